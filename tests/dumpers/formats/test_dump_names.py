"""Names of dump files of every layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from dumpers.formats.dump_names import (
    full_name,
    is_alias,
    parse_converted_name,
    parse_dump_name,
    parse_tf_name,
    read_mapping,
)

TIME = 1619347786532995


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (f"Add.a_b.7.{TIME}", ("Add", "a_b", 7, None, TIME, ())),
        (f"Add.a_b.7.0.{TIME}", ("Add", "a_b", 7, 0, TIME, ())),
        (f"Add.a_b.7.3.{TIME}.0.1.2.3", ("Add", "a_b", 7, 3, TIME, (0, 1, 2, 3))),
        (f"Add.a_b_lxslice0.7.{TIME}.3.0.0.0", ("Add", "a_b_lxslice0", 7, None, TIME, (3, 0, 0, 0))),
        (f"Add>1.while>a b.7.3.{TIME}", ("Add>1", "while>a b", 7, 3, TIME, ())),
        ("Add.a-b.7.3.99", ("Add", "a-b", 7, 3, 99, ())),
        ("Add.a.7.99", ("Add", "a", 7, None, 99, ())),
    ],
)
def test_device_names(name: str, fields: tuple):
    parsed = parse_dump_name(name)
    assert parsed is not None
    got = (parsed.op_type, parsed.op_name, parsed.task_id, parsed.stream_id, parsed.timestamp_us, parsed.extra)
    assert got == fields
    assert not parsed.statistics
    assert parse_dump_name(name + ".csv").statistics
    converted = parse_converted_name(f"{name}.output.10.npy")
    assert (converted.io, converted.slot, converted.op_name) == ("output", 10, fields[1])
    assert parse_converted_name(f"{name}.input.2.2x3x4.npy").slot == 2
    assert parse_converted_name(f"{name}.input.2.NC1HWC0.npy").io == "input"
    assert parse_dump_name(f"{name}.output.10.npy") is None


@pytest.mark.parametrize(
    "name",
    ["", "readme.txt", "a.b.c.d", f"Add.a.{TIME}", "1.2.3.4", f"Add.a/b.7.{TIME}", f"A..7.{TIME}", "x.npy", "a.b.-1.5"],
)
def test_other_names(name: str):
    assert parse_dump_name(name) is None
    assert parse_converted_name(name) is None


def test_an_op_called_input():
    parsed = parse_converted_name(f"Data.input.1.{TIME}.output.0.npy")
    assert (parsed.op_name, parsed.io, parsed.slot) == ("input", "output", 0)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (f"a_b_add_3.0.{TIME}.npy", ("a_b_add_3", 0, TIME)),
        (f"a.b_c.2.{TIME}.npy", ("a.b_c", 2, TIME)),
        (f"x.1.5.{TIME}.npy", ("x", 1, TIME)),
        ("x.npy", None),
        (f"x.{TIME}.npy", None),
        (f"x.0.{TIME}.pb", None),
    ],
)
def test_reference_names(name: str, fields: tuple | None):
    parsed = parse_tf_name(name)
    assert (parsed and (parsed.op_name, parsed.slot, parsed.timestamp_us)) == fields


def test_overflow_records_are_known():
    assert parse_dump_name(f"Opdebug.Node_OpDebug.33.{TIME}").is_overflow


def test_mapping(tmp_path: Path):
    (tmp_path / "mapping.csv").write_text(
        f'123,Add.long.1.2.{TIME}\n"456","name, with comma"\nbroken line\n{"a" * 32}.npy,Add.x.1.{TIME}.output.0.npy\n'
    )
    mapping = read_mapping(tmp_path)
    assert full_name("123", mapping) == f"Add.long.1.2.{TIME}"
    assert full_name("456", mapping) == "name, with comma"
    assert full_name("a" * 32 + ".npy", mapping) == f"Add.x.1.{TIME}.output.0.npy"
    assert full_name("789", mapping) is None
    assert full_name("plain", mapping) == "plain"
    assert read_mapping(tmp_path / "none") == {}
    assert is_alias("123.npy")
    assert not is_alias("x123")


def test_suffix_may_be_on_one_side_only():
    assert full_name("12.npy", {"12": "full"}) == "full.npy"
    assert full_name("12.npy", {"12": "full.npy"}) == "full.npy"
    assert full_name("12", {"12": "full"}) == "full"
