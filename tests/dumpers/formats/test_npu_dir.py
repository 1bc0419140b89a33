"""Folders of device dumps: trees with and without steps, links, names of digits, what is damaged beside what is not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.dump_names import full_name, parse_converted_name, parse_dump_name, read_mapping
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.registry import read_dump

TIME = 1706168000000000


def dump(folder: Path, name: str = f"Add.a.1.2.{TIME}", value: float = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_npu_dump(folder / name, op_name="", inputs=[], outputs=[np.float32(value)], dump_time_us=TIME)
    return folder / name


def values(root: Path) -> list[float]:
    return [float(record.load()) for record in read_dump(root)]


def test_single_op_dumps_have_no_step_level(tmp_path: Path):
    dump(tmp_path / "20240125153144/0", value=3)
    found = read_dump(tmp_path)
    assert [(record.op, record.step, float(record.load())) for record in found] == [("a", None, 3)]


def test_devices_models_and_steps_are_never_merged(tmp_path: Path):
    top = tmp_path / "20240125153144"
    for number, leaf in enumerate(("0/g_1/1/0", "0/g_1/1/1", "0/g_2/2/0", "1/g_1/1/0")):
        dump(top / leaf, value=number)
    found = read_dump(tmp_path)
    assert (found.path, [float(r.load()) for r in found]) == (top / "0/g_1/1/0", [0])
    assert [path.relative_to(top).as_posix() for path in found.ignored] == ["0/g_1/1/1", "0/g_2/2/0", "1/g_1/1/0"]


def test_links_are_followed_also_out_of_the_tree_and_loops_are_not(tmp_path: Path):
    leaf = tmp_path / "elsewhere/0/g/1/4"
    dump(leaf, value=5)
    root = tmp_path / "root"
    root.mkdir()
    os.symlink(tmp_path / "elsewhere", root / "20240125153144")
    os.symlink(root, root / "loop")
    os.symlink("self", root / "self")
    os.symlink(tmp_path / "nowhere", root / "dangling")
    found = read_dump(root)
    assert [(record.step, float(record.load())) for record in found] == [(4, 5)]
    assert found.ignored == ()
    os.symlink(leaf / f"Add.a.1.2.{TIME}", root / "20240125153144/0/g/1/4" / f"Add.b.1.2.{TIME + 1}")
    assert values(root) == [5, 5]


def test_files_that_link_to_themselves_or_nothing(tmp_path: Path):
    dump(tmp_path)
    os.symlink(f"Add.b.1.2.{TIME}", tmp_path / f"Add.b.1.2.{TIME}")
    os.symlink(tmp_path / "nowhere", tmp_path / f"Add.c.1.2.{TIME}")
    os.mkfifo(tmp_path / f"Add.d.1.2.{TIME}")
    found = read_dump(tmp_path)
    assert [record.op for record in found] == ["a"]
    assert [problem.path.name[4] for problem in found.problems] == ["b", "c", "d"]
    assert "no regular file" in found.problems[2].reason


def test_deep_trees(tmp_path: Path):
    deep = tmp_path.joinpath(*["level"] * 400)
    dump(deep, value=9)
    assert values(tmp_path) == [9]


def test_names_of_digits(tmp_path: Path):
    dump(tmp_path, "111", 1)
    dump(tmp_path, "222", 2)
    dump(tmp_path, "333", 3)
    (tmp_path / "mapping.csv").write_text(
        f'111,Add.long.1.2.{TIME}\n222,"Mul.a,b.1.2.{TIME + 1}"\n333,Mul.a,b.1.2.{TIME}\n444,../../etc/passwd\n'
    )
    found = read_dump(tmp_path)
    assert [(r.op_type, r.op, float(r.load())) for r in found] == [("Add", "long", 1), ("Mul", "a,b", 2)]
    assert [(problem.path.name, problem.reason.split(";")[0]) for problem in found.problems] == [
        ("333", "name of digits only that mapping.csv does not have")
    ]


def test_full_names_that_lead_out_of_the_folder_are_names_only(tmp_path: Path):
    outside = dump(tmp_path / "outside", f"Add.secret.1.2.{TIME}", 42)
    leaf = tmp_path / "leaf"
    dump(leaf, "111")
    dump(leaf, f"Add.a.1.2.{TIME}", 7)
    (leaf / "mapping.csv").write_text(f"111,../outside/{outside.name}\n")
    found = read_dump(leaf)
    assert [float(record.load()) for record in found] == [7]
    assert [path.name for path in found.ignored] == []


@pytest.mark.parametrize("content", [b"\x00\xff,\n" * 4, b'"' + b"x" * 200_000, b"1" * 200_000 + b",x\n"])
def test_damaged_mapping_spoils_nothing(tmp_path: Path, content: bytes):
    dump(tmp_path)
    dump(tmp_path, "111")
    (tmp_path / "mapping.csv").write_bytes(content + f"\n222,Add.b.1.2.{TIME}\n".encode())
    found = read_dump(tmp_path)
    assert [record.op for record in found] == ["a"]
    assert [problem.path.name for problem in found.problems] == ["111"]


def test_lines_behind_one_that_is_too_long(tmp_path: Path):
    (tmp_path / "mapping.csv").write_text("1" * 200_000 + f",x\n222,Add.b.1.2.{TIME}\n")
    assert read_mapping(tmp_path) == {"222": f"Add.b.1.2.{TIME}"}


def test_mapping_that_cannot_be_read(tmp_path: Path):
    os.mkfifo(tmp_path / "mapping.csv")
    with pytest.raises(DataError, match="no regular file"):
        read_mapping(tmp_path)
    with open(tmp_path / "other", "wb") as file:
        file.truncate(65 << 20)
    (tmp_path / "mapping.csv").unlink()
    (tmp_path / "other").rename(tmp_path / "mapping.csv")
    with pytest.raises(DataError, match="larger than any mapping"):
        read_mapping(tmp_path)
    dump(tmp_path)
    found = read_dump(tmp_path)
    assert [record.op for record in found] == ["a"]
    assert [problem.path.name for problem in found.problems] == ["mapping.csv"]


def test_suffix_of_statistics_that_were_shortened():
    assert full_name("12.csv", {"12": f"Add.b.1.2.{TIME}.csv"}) == f"Add.b.1.2.{TIME}.csv"
    assert full_name("12.csv", {"12": f"Add.b.1.2.{TIME}"}) == f"Add.b.1.2.{TIME}.csv"
    assert full_name("12.csv", {}) == "12.csv"


# names


@pytest.mark.parametrize("digits", [1, 2, 13, 14, 16, 100, 255])
def test_time_stamps_of_any_length(digits: int):
    time = "7" * digits
    old, current = parse_dump_name(f"Add.a.5.{time}"), parse_dump_name(f"Add.a.5.6.{time}")
    assert (old.stream_id, old.timestamp_us) == (None, int(time))
    assert (current.stream_id, current.timestamp_us) == (6, int(time))
    assert parse_dump_name(f"Add.a.5.6.{time}.csv").statistics
    assert parse_dump_name("Add.a.5.6." + "7" * 256) is None


@pytest.mark.parametrize(
    ("rest", "shape", "layout"),
    [("0", None, ""), ("0.2x3", (2, 3), ""), ("0.640", (640,), ""), ("0.NC1HWC0", None, "NC1HWC0")],
)
def test_converted_names(rest: str, shape: tuple | None, layout: str):
    for middle, extra in ((f"7.{TIME}", ()), (f"7.8.{TIME}", ()), (f"7.8.{TIME}.4.1.2.0", (4, 1, 2, 0))):
        parsed = parse_converted_name(f"Add.a_lxslice0.{middle}.output.{rest}.npy")
        assert (parsed.shape, parsed.format, parsed.extra, parsed.io) == (shape, layout, extra, "output")
        assert parsed.stream_id == (8 if ".8." in middle else None)
    assert parse_converted_name(f"Add.a.7.{TIME}.output.{'9' * 5000}.npy") is None


@pytest.mark.parametrize(
    "name", ["Add.a\n.1.2." + str(TIME), "Add.\x1b[31m.1.2." + str(TIME), "Add." + "é" * 100 + f".1.2.{TIME}"]
)
def test_names_with_odd_characters(tmp_path: Path, name: str):
    dump(tmp_path, name, 6)
    assert values(tmp_path) == [6]


def test_fc13(shared_data: Path):
    from compare.nan_origin import search_nan

    found = read_dump(shared_data / "field_cases/FC13/npu")
    assert [path.name for path in found.ignored] == ["readme.txt"]
    assert found.problems == ()
    times = {record.op: record.timestamp_us for record in found}
    assert times == {
        "conv1_Conv2D": 1700000000000100,
        "relu1": 1700000000000200,
        "fc2_MatMul": 1700000000000250,
        "fc1_MatMul_lxslice0": 1700000000000300,
        "prob": 1700000000000400,
    }
    assert [record.slot for record in found if record.op == "prob"] == [0, 2, 10]
    search = search_nan(found)
    names = [finding.record.name for finding in search.findings]
    assert names == ["fc2_MatMul:output:0", "fc1_MatMul_lxslice0:output:0", "prob:output:0", "prob:output:10"]
    assert (search.origin.op, search.origin.inputs_clean) == ("fc2_MatMul", True)
