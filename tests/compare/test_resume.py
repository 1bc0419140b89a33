"""An interrupted comparison goes on and gives the same bytes; nothing in a journal is trusted."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from compare import sweep
from compare.journal import Journal
from compare.sweep import SweepOptions, compare_dumps
from compare.table import csv_text
from tests.compare.dump_files import settle, two_sides

COUNT = 60


@pytest.fixture
def sides(tmp_path, monkeypatch):
    monkeypatch.setattr("compare.units.BATCH_PAIRS", 5)
    monkeypatch.setattr("compare.journal.WORTH_BYTES", 0)
    return two_sides(tmp_path, COUNT)


@pytest.fixture
def compared(monkeypatch):
    """Names of the ops that were compared."""
    names, real = [], sweep.compare_pair

    def counting(pair, wanted):
        names.append(pair.op)
        return real(pair, wanted)

    monkeypatch.setattr(sweep, "compare_pair", counting)
    return names


def text_of(sides, journal=None, stop_after=None, **options):
    def progress(done, total):
        if stop_after is not None and done >= stop_after:
            raise KeyboardInterrupt

    chosen = SweepOptions(journal=journal, **options)
    return csv_text(compare_dumps(*sides, threads=2, progress=progress, options=chosen))


def interrupted(sides, path, stop_after=30, **options):
    with pytest.raises(KeyboardInterrupt) as caught, Journal(path) as journal:
        text_of(sides, journal, stop_after, **options)
    return str(caught.value)


@pytest.mark.parametrize("stop_after", [1, 30, COUNT])
def test_an_interrupted_sweep_goes_on_and_gives_the_same_bytes(sides, tmp_path, stop_after, compared):
    whole, path = text_of(sides), tmp_path / "journal"
    message = interrupted(sides, path, stop_after)
    assert message.startswith("interrupted: ")
    assert f" of {COUNT} pairs are compared and kept in {path}; the same command goes on" in message
    kept = int(message.split()[1])
    assert kept >= stop_after
    compared.clear()
    with Journal(path) as journal:
        assert text_of(sides, journal) == whole
    assert len(compared) == COUNT - kept
    assert journal.notes == [f"{kept} of {COUNT} pairs were compared before an interruption: {path}"]
    assert not path.exists()


def test_every_figure_comes_back_bit_for_bit(sides, tmp_path):
    rows = compare_dumps(*sides).rows
    path = tmp_path / "journal"
    interrupted(sides, path, COUNT)
    with Journal(path) as journal:
        again = compare_dumps(*sides, options=SweepOptions(journal=journal)).rows
    assert list(again) == list(rows)
    assert [repr(row.figures) for row in again] == [repr(row.figures) for row in rows]


def test_the_second_look_comes_back_too(sides):
    from compare.outcomes import decode, encode
    from compare.pairing import pair_dumps
    from compare.second_look import with_details

    seen = set()
    for pair, row in zip(pair_dumps(*sides).pairs, compare_dumps(*sides).rows, strict=True):
        figures = with_details(row.figures, pair.left.load(), pair.right.load())
        whole = replace(row, figures=figures)
        assert repr(decode(pair, encode(whole))) == repr(whole)
        seen.add(figures.details is None)
    assert seen == {True, False}


@pytest.mark.parametrize("damage", ["cut", "flip", "noise", "foreign", "nothing", "binary", "long", "forged"])
def test_what_is_damaged_is_passed_over_with_a_note(sides, tmp_path, damage, compared):
    whole, path = text_of(sides), tmp_path / "journal"
    interrupted(sides, path)
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    good = next(number for number, line in enumerate(lines) if line and not line.startswith(b"#"))
    other = lines[good].replace(b'"differing":', b'"differing":1', 1)
    changed = {
        "cut": raw[: len(raw) - len(lines[-2]) // 2],
        "flip": raw.replace(lines[good], bytes([lines[good][0] ^ 1]) + lines[good][1:]),
        "noise": raw + b"\n0123456789abcdef {} []\n" + b"\xff\xfe\n",
        "foreign": b"\n".join([*lines[: good + 1], b"not a journal at all"]),
        "nothing": b"",
        "binary": os.urandom(5000) + b"\n" + raw,
        "long": b"x" * 9_000_000 + b"\n" + raw,
        "forged": raw.replace(lines[good], other),
    }[damage]
    path.write_bytes(changed)
    compared.clear()
    with Journal(path) as journal:
        assert text_of(sides, journal) == whole
    assert damage == "nothing" or any("damaged lines were passed over" in note for note in journal.notes)
    assert compared


def test_a_line_with_a_right_checksum_and_wrong_types_is_passed_over(sides, tmp_path):
    from compare.journal import _line

    whole, path = text_of(sides), tmp_path / "journal"
    interrupted(sides, path)
    lines = path.read_text().splitlines()
    kept = [line.split(" ", 2) for line in lines if line and not line.startswith("#")]
    wrong = ['{"figures":{"left_shape":"x"}}', '{"op":"other"}', "[]", '{"shape":[1.5]}', "{", '{"figures":{"no":1}}']
    path.write_text("".join(_line(f"{key} {text}") + "\n" for (_, key, _), text in zip(kept, wrong, strict=False)))
    with Journal(path) as journal:
        assert text_of(sides, journal) == whole
    assert f"{path}: {len(wrong)} damaged lines were passed over" in journal.notes


def test_changed_files_and_other_figures_are_compared_again(sides, tmp_path, compared):
    path = tmp_path / "journal"
    interrupted(sides, path, COUNT)
    array = np.load(sides[0].records[3].source.path)
    np.save(sides[0].records[3].source.path, array + 1)
    settle(tmp_path)
    whole = text_of(sides)
    compared.clear()
    with Journal(path) as journal:
        assert text_of(sides, journal) == whole
    assert compared.count("op3") == 1
    assert any("compared again: their files or the program changed" in note for note in journal.notes)
    metrics = ("CosineSimilarity",)
    interrupted(sides, path, COUNT)
    whole = text_of(sides, metrics=metrics)
    with Journal(path) as journal:
        assert text_of(sides, journal, metrics=metrics) == whole
    assert not any("before an interruption" in note for note in journal.notes)


def test_a_file_that_changes_meanwhile_or_cannot_be_read_is_not_kept(sides, tmp_path):
    path = tmp_path / "journal"
    sides[0].records[1].source.path.write_bytes(b"damaged")
    kept = int(interrupted(sides, path, COUNT).split()[1])
    with Journal(path) as journal:
        journal.begin([], "all")
    os.utime(sides[0].records[2].source.path)
    assert kept == COUNT - 1
    assert int(interrupted(sides, path, COUNT).split()[1]) == COUNT - 2


def test_two_at_a_time_do_not_write_into_one_journal(sides, tmp_path):
    path = tmp_path / "journal"
    path.touch()
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with Journal(path, interval=0) as journal:
            text_of(sides, journal)
    assert journal.notes == [
        f"{path}: the same comparison is running already, so an interruption of this one loses all"
    ]
    assert path.exists()


def test_a_place_that_cannot_be_written_spoils_nothing(sides, tmp_path):
    whole = text_of(sides)
    (tmp_path / "file").touch()
    with Journal(tmp_path / "file" / "journal", interval=0) as journal:
        assert text_of(sides, journal) == whole
    (note,) = journal.notes
    assert "cannot be opened (" in note
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with Journal(tmp_path / "link", interval=0) as journal:
        assert text_of(sides, journal) == whole
    assert not (tmp_path / "target").exists()


def test_a_short_sweep_writes_no_journal(sides, tmp_path):
    with Journal(tmp_path / "folder" / "journal") as journal:
        text_of(sides, journal)
        journal.add(None, replace(compare_dumps(*sides).rows[0], figures=None))
        assert not journal.path.parent.exists()


def test_small_pairs_have_no_line(sides, tmp_path, monkeypatch):
    monkeypatch.setattr("compare.journal.WORTH_BYTES", 700_000)  # op7 has 720,000 bytes
    assert interrupted(sides, tmp_path / "journal", COUNT).startswith(f"interrupted: 1 of {COUNT} pairs")


PROGRAM = """
import sys, time
from pathlib import Path
import compare.journal as journals, compare.sweep as sweep, compare.units as units
from compare.journal import Journal
from compare.table import csv_text
from dumpers.formats.registry import read_dump
folder, workers, slow = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
units.BATCH_PAIRS, journals.WORTH_BYTES = 5, 0
real = sweep.compare_pair
def slowly(pair, wanted):
    time.sleep(slow)
    return real(pair, wanted)
sweep.compare_pair = slowly
try:
    with Journal(folder / "journal", interval=0.05) as journal:
        options = sweep.SweepOptions(workers=workers, journal=journal)
        print("start", flush=True)
        found = sweep.compare_dumps(read_dump(folder / "left"), read_dump(folder / "right"), threads=2, options=options)
        (folder / "result").write_bytes(csv_text(found).encode())
except KeyboardInterrupt as error:
    sys.exit(str(error) or "interrupted")
"""


@pytest.mark.parametrize(("workers", "stop"), [(0, signal.SIGINT), (2, signal.SIGINT), (0, signal.SIGKILL)])
def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path, sides, workers, stop, project_root):
    random.seed(workers)
    whole = None
    for delay in (*(random.uniform(0, 0.4) for _ in range(1 if workers else 2)), None):
        words = [sys.executable, "-c", PROGRAM, str(tmp_path), str(workers), "0.004"]
        program = subprocess.Popen(
            words, cwd=project_root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert program.stdout.readline() == "start\n"
        if delay is not None:
            time.sleep(delay)
            os.killpg(program.pid, stop)
        _, errors = program.communicate(timeout=60)
        assert "Traceback" not in errors
        if (tmp_path / "result").exists():
            whole = (tmp_path / "result").read_bytes().decode()
            (tmp_path / "result").unlink()
        else:
            assert errors.startswith("interrupted") or stop == signal.SIGKILL
    from dumpers.formats.registry import read_dump

    assert whole == csv_text(compare_dumps(read_dump(tmp_path / "left"), read_dump(tmp_path / "right")))
    assert not (tmp_path / "journal").exists()


def test_records_of_every_kind_have_a_key_and_can_be_handed_to_a_process(samples):
    import pickle

    from compare.journal import _Keys
    from compare.pairing import Pair
    from dumpers.errors import DataError
    from dumpers.formats.registry import read_dump

    seen = set()
    for folder in samples.values():
        for path in (folder, *folder.iterdir()):
            try:
                records = read_dump(path).records
            except DataError:
                continue
            for record in records:
                pair = Pair(0, record.op, "", (record.op,), (record.op,), record, record)
                assert _Keys("", 0).of(pair), record
                assert _Keys("", 0).of(pickle.loads(pickle.dumps(pair))) == _Keys("", 0).of(pair)
                seen.add(type(record.source).__name__)
    assert len(seen) >= 8, seen
