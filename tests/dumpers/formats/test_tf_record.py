"""Our raw record: read completely, checked completely."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.extent import open_tensor
from dumpers.formats.npy import write_npy
from dumpers.formats.registry import read_dump
from dumpers.formats.schema import tf_message
from dumpers.formats.tf_record import is_tf_record, read_tf_record
from dumpers.records import Dump


def entry(op: str, slot: int, file: str | None, dtype: str, shape: list[int], **more: object) -> dict:
    return {
        "op": op, "output": slot, "op_type": "Add", "dtype": dtype, "shape": shape, "file": file, "timestamp_us": 5,
        "note": "", **more,
    }  # fmt: skip


@pytest.fixture
def record(tmp_path: Path) -> Path:
    folder = tmp_path / "run_1700000000000000_1"
    (folder / "tensors").mkdir(parents=True)
    graph = tf_message("GraphDef")
    node = graph.node.add(name=b"x", op=b"Placeholder")
    node.attr.add(key=b"dtype").value.type = 14
    graph.node.add(name=b"scope/add", op=b"AddV2", input=[b"x", b"x"])
    (folder / "graph.pb").write_bytes(graph.SerializeToString())
    write_npy(folder / "tensors/0.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    write_npy(folder / "tensors/1.npy", np.array([1, -2.5]).astype(ml_dtypes.bfloat16))
    manifest = {
        "format": 1,
        "step": 3,
        "complete": True,
        "reason": "",
        "graph": "graph.pb",
        "start_us": 1,
        "fetches": ["scope/add:0"],
        "feeds": {"x:0": "tensors/1.npy"},
        "tensors": [
            entry("scope/add", 0, "tensors/0.npy", "float32", [2, 3]),
            entry("half", 1, "tensors/1.npy", "bfloat16", [2], timestamp_us=4),
            entry("var", 0, None, "resource", []),
        ],
    }
    save(folder, manifest)
    return folder


def save(folder: Path, manifest: object) -> None:
    (folder / "record.json").write_text(json.dumps(manifest))


def change(folder: Path, **fields: object) -> None:
    save(folder, {**json.loads((folder / "record.json").read_text()), **fields})


def test_whole_record(record: Path):
    dump = read_dump(record)
    assert dump.problems == ()
    assert [(r.op, r.slot, r.dtype, r.timestamp_us, r.step) for r in dump] == [
        ("x", 0, "bfloat16", 1, 3),
        ("half", 1, "bfloat16", 4, 3),
        ("scope/add", 0, "float32", 5, 3),
        ("var", 0, "resource", 5, 3),
    ]
    assert dump.tensor("scope/add", "output", 0).load().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert dump.tensor("half", "output", 1).load().astype(float).tolist() == [1, -2.5]
    fed = dump.tensor("x", "output", 0)
    assert (fed.op_type, fed.note) == ("Placeholder", "fed")
    assert fed.load().astype(float).tolist() == [1, -2.5]
    assert "no value" in dump.tensor("var", "output", 0).note
    assert dump.graph.ops["scope/add"].type == "AddV2"
    assert all(r.device == "tf" for r in dump)


def test_incomplete_record_says_so(record: Path):
    change(record, complete=False, reason="no space left")
    dump = read_tf_record(record)
    assert len(dump) == 4
    assert "no space left" in dump.problems[0].reason


def test_step_that_was_cut_off(record: Path):
    (record / "record.json").unlink()
    assert is_tf_record(record)
    with pytest.raises(DataError, match="cut off before it was written"):
        read_dump(record)


@pytest.mark.parametrize(
    "name", ["../outside.npy", "/etc/passwd", "tensors/../../outside.npy", "tensors/link.npy", "", 7]
)
def test_files_outside_the_record_are_never_opened(record: Path, name: object):
    write_npy(record.parent / "outside.npy", np.arange(3))
    (record / "tensors/link.npy").symlink_to(record.parent / "outside.npy")
    change(record, tensors=[entry("evil", 0, name, "int64", [3])])
    dump = read_tf_record(record)
    assert dump.tensor("evil", "output", 0).source is None
    assert len(dump.problems) == 1
    change(record, feeds={"x:0": name}, tensors=[])
    assert read_tf_record(record).problems


def test_missing_and_wrong_files(record: Path):
    (record / "tensors/0.npy").unlink()
    (record / "graph.pb").write_bytes(b"\xff\xff")
    dump = read_tf_record(record)
    assert {problem.path.name for problem in dump.problems} == {"0.npy", "graph.pb"}
    assert dump.graph is None
    write_npy(record / "tensors/0.npy", np.zeros((3, 2), np.float32))
    wrong = read_tf_record(record).tensor("scope/add", "output", 0)
    with pytest.raises(DataError, match="its index says"):
        wrong.load()


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"format": 3}, "format 3 is not known"), ({"tensors": 5}, "no list of tensors"), ({"format": None}, "None")],
)
def test_manifest_that_makes_no_sense(record: Path, fields: dict, message: str):
    change(record, **fields)
    with pytest.raises(DataError, match=message):
        read_tf_record(record)


@pytest.mark.parametrize(
    "bad", [5, {}, {"op": "", "output": 0, "dtype": "x"}, {"op": "a", "output": -1, "dtype": "x"},
            {"op": "a", "output": True, "dtype": "x"}, {"op": "a", "output": 0, "dtype": "x", "shape": "2"}],
)  # fmt: skip
def test_bad_entries_spoil_only_themselves(record: Path, bad: object):
    change(record, tensors=[bad, entry("scope/add", 0, "tensors/0.npy", "float32", [2, 3])])
    dump = read_tf_record(record)
    assert dump.tensor("scope/add", "output", 0) is not None
    assert [problem.reason.split(" ")[:2] for problem in dump.problems] == [["tensor", "0"]]


def test_no_json(record: Path):
    (record / "record.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        read_tf_record(record)


def test_of_several_runs_one_has_to_be_named(record: Path):
    assert read_dump(record.parent).tensor("scope/add", "output", 0).load().shape == (2, 3)
    last = record.with_name("run_1700000000000009_2")
    shutil.copytree(record, last)
    with pytest.raises(
        DataError, match=rf"holds 2 recorded runs, not one dump; give one of them, the last is {last.name}"
    ):
        read_dump(record.parent)


def packed(folder: Path, **fields: object) -> Dump:
    """A record with one tensor of six float32 in a pack of 100 bytes."""
    (folder / "tensors.0.pack").write_bytes(bytes(4) + np.arange(24, dtype=np.float32).tobytes())
    change(
        folder,
        format=2,
        feeds={},
        tensors=[{**entry("a", 0, "tensors.0.pack", "float32", [2, 3]), "offset": 4, **fields}],
    )
    return read_tf_record(folder)


def test_a_tensor_in_a_pack(record: Path):
    dump = packed(record)
    assert not dump.problems
    assert dump.records[0].load().tolist() == [[0, 1, 2], [3, 4, 5]]
    with open_tensor(dump.records[0].source) as file:
        assert (file.offset, file.shape, file.dtype) == (4, (2, 3), np.float32)


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": -1},
        {"offset": "4"},
        {"offset": 77},
        {"offset": 1 << 70},
        {"offset": True},
        {"shape": None},
        {"shape": [1 << 40, 1 << 40]},
        {"shape": [-1, 3]},
        {"shape": [1 << 31]},
        {"dtype": "resource"},
        {"dtype": "nonsense"},
        {"dtype": "string", "width": -3},
        {"dtype": "string", "width": 1 << 60},
        {"dtype": "string", "width": 2.5},
        {"file": "../outside.pack"},
        {"file": "missing.pack"},
    ],
)
def test_hostile_places_in_a_pack(record: Path, fields: dict):
    dump = packed(record, **fields)
    assert dump.problems
    assert [r.source for r in dump.records] in ([None], [])


def test_a_pack_that_became_shorter(record: Path):
    dump = packed(record)
    os.truncate(record / "tensors.0.pack", 20)
    with pytest.raises(DataError, match="ends after"):
        dump.records[0].load()


def test_texts_in_a_pack(record: Path):
    (record / "texts.pack").write_bytes(b"??ab\0c\0\0def")
    change(
        record,
        format=2,
        feeds={},
        tensors=[
            {**entry("text", 0, "texts.pack", "string", [3]), "offset": 2, "width": 3},
            {**entry("none", 0, "texts.pack", "string", [0, 2]), "offset": 0, "width": 0},
            {**entry("empty", 0, "texts.pack", "string", [2]), "offset": 0, "width": 0},
        ],
    )
    dump = read_tf_record(record)
    found = {r.op: r.load().tolist() for r in dump.records}
    assert found == {"text": [b"ab", b"c", b"def"], "none": [], "empty": [b"", b""]}
