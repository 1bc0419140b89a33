from __future__ import annotations

import csv
from itertools import islice

import numpy as np
import pytest

from engine.errors import EngineError
from engine.keys import KEY_MASK, fnv1a64
from engine.pipeline import CRITEO_COLUMNS, BatchFileError, criteo_batches, random_batches

HEADER = ",".join(CRITEO_COLUMNS)


def line(label, tokens=()):
    cells = [*tokens, *[""] * (26 - len(tokens))]
    return ",".join([str(label), *["1"] * 13, *cells])


def write(path, *lines):
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def test_random_batches_follow_the_published_order_of_draws():
    batches = list(islice(random_batches(6, user_range=100, item_range=50, seed=9), 2))
    draw = np.random.RandomState(9)
    for batch in batches:
        assert (batch.item_ids == draw.randint(0, 50, (6, 16))).all()
        assert (batch.user_ids == draw.randint(0, 100, (6, 8))).all()
        draw.randint(0, 5000, (6, 3))
        assert (batch.label_0 == draw.randint(0, 2, (6,))).all()
        assert (batch.label_1 == draw.randint(0, 2, (6,))).all()
        assert [part.dtype for part in (batch.user_ids, batch.item_ids, batch.label_0)] == ["int64", "int64", "float32"]


def test_sample_file_equals_hashing_each_token_by_hand(shared_data):
    path = shared_data / "datasets" / "criteo_sample.txt"
    batch = next(criteo_batches(path, 200))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    want = [[fnv1a64(f"C{c}={row[f'C{c}']}".encode()) & KEY_MASK for c in range(1, 27)] for row in rows]
    assert (batch.user_ids == np.array(want)[:, :13]).all()
    assert (batch.item_ids == np.array(want)[:, 13:]).all()
    assert batch.label_0.tolist() == [float(row["label"]) for row in rows]
    assert not batch.label_1.any()


def test_blank_tokens_are_one_key_per_field(tmp_path):
    batch = next(criteo_batches(write(tmp_path / "f.txt", line(1), line(0)), 2))
    assert (batch.user_ids[0] == batch.user_ids[1]).all()
    assert len({*batch.user_ids[0].tolist(), *batch.item_ids[0].tolist()}) == 26


def test_a_short_file_repeats(tmp_path):
    path = write(tmp_path / "f.txt", *[line(0, [str(n)]) for n in range(3)])
    first, second = islice(criteo_batches(path, 4), 2)
    column = np.concatenate([first.user_ids[:, 0], second.user_ids[:, 0]])
    assert (column == np.resize(column[:3], 8)).all()
    assert len(set(column[:3].tolist())) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEADER + "\n", "no data line"),
        ("a,b\n1,2\n", r":1: the header must be"),
        (f"{HEADER}\n{line(0)}\n{line(0)},x\n", r":3: 41 columns, the header has 40"),
        (f"{HEADER}\n{line(0)}\n\n", r":3: 0 columns"),
        (f"{HEADER}\n{line('yes')}\n", r":2: the label 'yes' is not a number"),
        (f"{HEADER}\n{line('nan')}\n", r":2: the label 'nan' is not between"),
        (f"{HEADER}\n{line('3')}\n", r":2: the label '3' is not between"),
        (f'{HEADER}\n{line(0)}\n1,"\n', r":3: not comma-separated"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(BatchFileError, match=message) as caught:
        next(criteo_batches(path, 2))
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, EngineError)


def test_missing_directory_and_binary_files(tmp_path):
    with pytest.raises(BatchFileError, match="cannot be read"):
        next(criteo_batches(tmp_path / "absent.txt", 2))
    with pytest.raises(BatchFileError, match="cannot be read"):
        next(criteo_batches(tmp_path, 2))
    binary = tmp_path / "b.bin"
    binary.write_bytes(b"\x93NUMPY\xff\xfe")
    with pytest.raises(BatchFileError, match="not a text file"):
        next(criteo_batches(binary, 2))
    zeros = tmp_path / "z.bin"
    zeros.write_bytes(b"\0" * 64)
    with pytest.raises(BatchFileError):
        next(criteo_batches(zeros, 2))
