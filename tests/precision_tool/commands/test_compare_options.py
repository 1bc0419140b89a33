"""Options of ``vc`` and ``ac -c``: what they leave out, what they write, and how an interruption ends."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import cli
from dumpers.errors import UsageError
from dumpers.settings import Settings
from precision_tool import batch, dispatch, render
from precision_tool.workbench import Workbench

RELU = "dense/Relu:output:0"


def journals(root: Path) -> list[Path]:
    return sorted((root / "precision_data/temp/vector_compare").glob("*.journal"))


def test_only_the_asked_ops_and_columns(data, ask) -> None:
    result = ask("vc --ops Relu$ --metrics cosine,8 --threads 2", data.root)
    with result.files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["TensorIndex"] for row in rows} == {"dense/Relu:input:0", RELU}
    assert list(rows[0])[-4:] == ["Shape", "CosineSimilarity", "MaxRelativeError", "CompareFailReason"]
    (comparison,) = result.data["comparisons"]
    assert f"{comparison['left_out']} rows are not asked for (--ops, --since)" in result.notes
    assert comparison["rows"] + comparison["left_out"] == ask("vc", data.root).data["comparisons"][0]["rows"]


def test_since_leaves_out_what_ran_before(data, ask) -> None:
    result = ask("vc --since dense/Relu", data.root)
    with result.files[0].open(newline="") as file:
        assert next(csv.DictReader(file))["TensorIndex"].startswith("dense/Relu")
    with pytest.raises(UsageError, match=r"--since dense/Rel: no such op.*did you mean dense/Relu"):
        ask("vc --since dense/Rel", data.root)


def test_limits_decide_instead_of_the_cosine(data, ask, tmp_path) -> None:
    (tmp_path / "limits.toml").write_text("[default]\nrelative_distance = 0.1\n[dtype.int32]\ncosine = -1\n")
    result = ask(f"vc --thresholds {tmp_path / 'limits.toml'}", data.root)
    assert result.exit_code == 1
    below = {row["tensor"]: row for row in result.data["comparisons"][0]["below"]}
    assert RELU in below
    assert "over the limit: relative_distance 0.5 above 0.1" in below[RELU]["reason"]
    assert "Outputs over a limit" in [block.title for block in result.blocks]
    assert ask("vcs", data.root).exit_code == 1
    (tmp_path / "limits.toml").write_text("[default]\ncosine = -1\n")
    assert ask(f"vc --thresholds {tmp_path / 'limits.toml'}", data.root).exit_code == 0


def test_required_tolerance_is_in_the_table_and_passes(data, ask) -> None:
    result = ask("vc", data.root)
    table = next(block for block in result.blocks if getattr(block, "paged", False))
    row = dict(
        zip(
            table.columns,
            next(row for row in table.rows if row[2] == "dense/Relu" and row[4] == "output:0"),
            strict=True,
        )
    )
    right = data.values["dense/Relu"].astype(np.float64)
    left = (data.values["dense/Relu"] * np.float32(1.5)).astype(np.float64)
    assert np.all(np.abs(left - right) <= row["RequiredAtol"])
    assert np.all(np.abs(left - right) <= row["RequiredRtol"] * np.abs(right))
    assert row["RequiredRtol"] == pytest.approx(0.5, abs=2e-3)
    json.dumps(render.plain_data(result.data), allow_nan=False)


def test_out_writes_the_same_comparison_besides(data, ask, tmp_path) -> None:
    result = ask(f"vc --out {tmp_path / 'a.csv'} --out {tmp_path / 'a.json'} --workers 1", data.root)
    assert result.files[1:] == [tmp_path / "a.csv", tmp_path / "a.json"]
    assert (tmp_path / "a.csv").read_bytes() == result.files[0].read_bytes()
    assert len(json.loads((tmp_path / "a.json").read_text())["rows"]) == result.data["comparisons"][0]["rows"]
    assert ask("vc", data.root).files[0].read_bytes() == result.files[0].read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--metrics Cosin", "--metrics Cosin: no such column; did you mean CosineSimilarity"),
        ("--metrics ,", "names no column"),
        ("--metrics 10", "no such column"),
        ("--ops (", r"--ops \(: no regular expression"),
        ("--ops nothing", "fits none of"),
        ("--threads 0", "--threads 0: has to be between 1 and 256"),
        ("--workers 1000", "--workers 1000: has to be"),
        ("--threads 2 --workers 2", "give one of the two"),
        ("--thresholds none.toml", "--thresholds none.toml: cannot be read: No such file"),
        ("--out result.xlsx", "has to end in"),
        ("--out nowhere/result.csv", "no file can be made there"),
    ],
)
def test_an_option_that_cannot_be_meant_is_one_line(data, ask, words, message) -> None:
    for line in (f"vc {words}",):
        with pytest.raises(UsageError, match=message):
            ask(line, data.root)
    assert not list((data.root / "precision_data/temp").rglob("*.csv"))


def test_out_never_goes_into_a_dump_nor_for_several_comparisons(data, ask) -> None:
    with pytest.raises(UsageError, match="lies in the dump"):
        ask(f"vc --out {data.reference / 'x.csv'}", data.root)
    assert not (data.reference / "x.csv").exists()


def test_ac_takes_the_options_with_c_only(data, ask, tmp_path) -> None:
    with pytest.raises(UsageError, match="ac: --ops is for a comparison; add -c"):
        ask("ac --ops Relu", data.root)
    result = ask(f"ac -c --ops Relu$ --out {tmp_path / 'x.csv'}", data.root)
    assert result.data["vector_compare"]["comparisons"][0]["left_out"] > 0
    assert (tmp_path / "x.csv").exists()


def test_an_interrupt_says_how_to_go_on_and_the_same_line_does(data, ask, monkeypatch, capsys) -> None:
    time.sleep(0.06)  # files that were written meanwhile are not kept
    monkeypatch.setattr("compare.units.BATCH_PAIRS", 1)
    monkeypatch.setattr("compare.journal.WORTH_BYTES", 0)
    whole = ask("vc", data.root).files[0].read_bytes()
    line = dispatch.parse_line("vc --threads 1")
    state = {"done": 0}

    def stop(what, done, total):
        state["done"] = done
        if done >= 2:
            raise KeyboardInterrupt

    code = batch.guarded(["vc"], lambda: line.run(Workbench(Settings(root_dir=data.root)), stop).exit_code)
    assert code == 130
    (journal,) = journals(data.root)
    message = capsys.readouterr().err
    assert f"pairs are compared and kept in {journal}; the same command goes on from there" in message
    assert ask("vcs", data.root).exit_code == 1  # the newest result is still the one before
    other = ask("vc --ops Relu", data.root)
    assert journals(data.root) == [journal]
    assert not any("interruption" in note for note in other.notes)
    result = ask("vc --threads 2", data.root)
    assert result.files[0].read_bytes() == whole
    assert any("pairs were compared before an interruption" in note for note in result.notes)
    assert journals(data.root) == []


def test_fresh_starts_over(data, ask, monkeypatch) -> None:
    time.sleep(0.06)
    monkeypatch.setattr("compare.units.BATCH_PAIRS", 1)
    monkeypatch.setattr("compare.journal.WORTH_BYTES", 0)

    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dispatch.parse_line("vc").run(Workbench(Settings(root_dir=data.root)), stop)
    assert len(journals(data.root)) == 1
    result = ask("vc --fresh", data.root)
    assert not any("interruption" in note for note in result.notes)
    assert journals(data.root) == []


def test_ctrl_c_in_the_program_itself(tmp_path, project_root) -> None:
    """SIGINT at a time of its own choosing, with JSON and workers; then the command to its end."""
    rng = np.random.default_rng(1)
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        for number in range(300):
            np.save(tmp_path / side / f"op{number:03}.npy", rng.normal(size=3000))
    words = [
        sys.executable,
        str(project_root / "cli.py"),
        "vc",
        "-lt",
        "left",
        "-rt",
        "right",
        "--json",
        "--workers",
        "1",
    ]
    running = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(2)
    os.killpg(running.pid, signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode in (130, 1)
    assert "Traceback" not in errors
    document = json.loads(out)
    assert document["ok"] == (running.returncode == 1)
    if running.returncode == 130:
        assert document["error"].startswith("interrupted")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(done.stdout)["result"]["comparisons"][0]["judged"] == 300


@pytest.mark.parametrize("words", [["--json", "info", "."], ["--json", "info", "nowhere"]])
def test_an_interrupt_while_the_document_is_written_leaves_one_whole_document(tmp_path, monkeypatch, words) -> None:
    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            half = len(text) // 2
            super().write(text[:half])
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            super().write(text[half:])
            return len(text)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"")
    monkeypatch.setattr(sys, "stdout", Slow())
    code = cli.main(words)
    document = json.loads(sys.stdout.getvalue())
    assert (document["exit_code"], document["ok"]) == (code, code in (0, 1))
    assert code != 130


def test_an_interrupt_after_the_document_prints_no_second_one(tmp_path, monkeypatch, capsys) -> None:
    whole = batch._print_document

    def interrupted(text: str, code: int) -> None:
        whole(text, code)
        raise KeyboardInterrupt  # between the print and the end of the program

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    monkeypatch.setattr(batch, "_print_document", interrupted)
    code = cli.main(["--json", "info", "."])
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_a_terminal_that_closed_ends_the_drawing_and_not_the_work() -> None:
    class Gone:
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

        def flush(self) -> None:
            raise ValueError("I/O operation on closed file")

    os.environ.setdefault("TERM", "xterm")
    line = render.ProgressLine(Gone())
    line("comparing", 1, 2)
    line("comparing", 2, 2)
    line.clear()


def test_an_interrupt_that_an_import_wrapped_is_no_bug(capsys) -> None:
    def action() -> int:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

    assert batch.guarded(["vc"], action) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert batch.guarded(["vc"], lambda: 1 // 0) == 3
    assert "a bug: ZeroDivisionError" in capsys.readouterr().err
