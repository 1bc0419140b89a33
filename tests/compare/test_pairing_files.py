"""Pairs of real dump files: slices, padding, inserted ops, hashed names. The truth is cut out of arrays by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from compare.pairing import pair_dumps
from compare.sweep import compare_dumps
from compare.views import as_stored
from dumpers.formats.npu_dump_writer import HeaderExtras, TensorSpec, dump_file_name, short_file_name, write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.formats.registry import read_dump
from dumpers.graph import Port

RNG = np.random.default_rng(11)


@pytest.fixture
def device(tmp_path):
    """Writes a device dump: op name -> (inputs, outputs); returns the dump read back."""

    def write(folder, ops, graph=None, extras=None):
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        for number, (op, (inputs, outputs)) in enumerate(ops.items()):
            name = short_file_name(place, dump_file_name("MatMul", op, number, 1, 1_700_000_000_000_000 + number))
            write_npu_dump(
                place / name,
                op_name="" if op.startswith("flat") else op,
                inputs=inputs,
                outputs=outputs,
                dump_time_us=1,
                extras=extras,
            )
        return read_dump(place, graph=graph)

    return write


@pytest.fixture
def reference(tmp_path):
    def write(arrays):
        place = tmp_path / "tf"
        place.mkdir(exist_ok=True)
        for name, array in arrays.items():
            write_npy(place / f"{name}.0.1700000000000000.npy", array)
        return read_dump(place)

    return write


def figures(table):
    return {(row.tensor, row.right.op): row.figures for row in table.rows if row.figures is not None}


def rows(shape):
    return RNG.normal(size=shape).astype(np.float32)


def test_slices_are_compared_with_their_rows(device):
    whole = rows((10, 3))
    wrong = whole.copy()
    wrong[5, 1] += 0.25  # in slice 1, row 1 of it
    left = device(
        "a", {f"net/mm_lxslice{i}": ((), (wrong[a:b],)) for i, (a, b) in enumerate(((0, 4), (4, 6), (6, 10)))}
    )
    right = device("b", {"net/mm": ((), (whole,))})
    table = compare_dumps(left, right)
    found = figures(table)
    assert [found[f"net/mm_lxslice{i}:output:0", "net/mm"].differing for i in range(3)] == [0, 1, 0]
    assert found["net/mm_lxslice1:output:0", "net/mm"].max_abs_error == pytest.approx(0.25, abs=1e-6)
    assert "slice 1 is rows 4 to 5 of the 10 rows of the right tensor" in table.rows[1].note
    assert not table.unpaired
    turned = compare_dumps(right, left)
    assert [row.figures.differing for row in turned.rows] == [0, 1, 0]
    assert "rows 6 to 9 of the 10 rows of the left tensor" in turned.rows[2].note


def test_the_first_slices_alone_are_a_prefix(device):
    whole = rows((10, 3))
    left = device("a", {"mm_lxslice0": ((), (whole[:4],)), "mm_lxslice1": ((), (whole[4:8],))})
    table = compare_dumps(left, device("b", {"mm": ((), (whole,))}))
    assert [row.figures.differing for row in table.rows] == [0, 0]


@pytest.mark.parametrize(
    "slices",
    [
        {"mm_lxslice1": (4, 10)},  # slice 0 is missing: where this one begins is not known
        {"mm_lxslice0": (0, 4), "mm_lxslice2": (4, 10)},
        {"mm_lxslice0": (0, 8), "mm_lxslice1": (2, 10)},  # more rows than the whole
        {"mm_part0": (0, 4), "mm_part1": (4, 10)},  # no name that says slice
    ],
)
def test_slices_that_leave_a_doubt_have_no_figure(device, slices):
    whole = rows((10, 3))
    left = device("a", {name: ((), (whole[a:b],)) for name, (a, b) in slices.items()})
    table = compare_dumps(left, device("b", {"mm": ((), (whole,))}))
    assert not table.judged
    assert all(row.messages() for row in table.rows)


def test_a_tensor_that_is_whole_in_every_slice_is_compared_whole(device):
    weight = rows((4, 4))
    left = device("a", {f"mm_lxslice{i}": ((weight,), ()) for i in range(2)})
    table = compare_dumps(left, device("b", {"mm": ((weight,), ())}))
    assert [row.figures.differing for row in table.rows] == [0, 0]


def test_slices_meet_the_original_through_the_graph(device, reference, make):
    whole = rows((6, 2))
    graph = make.graph(make.op("net/mm", "MatMul"))
    left = device("a", {f"net/mm_lxslice{i}": ((), (whole[3 * i : 3 * i + 3],)) for i in range(2)}, graph)
    table = compare_dumps(left, reference({"net_mm": whole}), graph)
    assert [(row.figures.differing, row.right.op) for row in table.rows] == [(0, "net_mm")] * 2


def test_joined_slices_need_nothing(device):
    whole = rows((6, 2))
    facts = {
        "threadMode": False,
        "slice_instance_num": 2,
        "outputCutList": [[2, 1]],
        "output_tensor_slice": [[[{"lower": 3 * i, "higher": 3 * i + 3}, {"lower": 0, "higher": 2}]] for i in (0, 1)],
    }
    extras = HeaderExtras(attrs={"_slice": json.dumps(facts)})
    left = device("a", {f"mm_lxslice{i}": ((), (whole[3 * i : 3 * i + 3],)) for i in range(2)}, extras=extras)
    table = compare_dumps(left, device("b", {"mm": ((), (whole,))}))
    assert [(row.op, row.figures.differing) for row in table.rows] == [("mm", 0)]


def padded(array, shape):
    stored = np.full(shape, np.float32(7))
    stored[tuple(map(slice, array.shape))] = array
    return stored


def test_padding_that_a_record_states_is_cut(device):
    values = rows((10, 20))
    wrong = values.copy()
    wrong[9, 19] += 1
    left = device("a", {"op": ((), (TensorSpec(padded(wrong, (16, 32)), original_shape=(10, 20)),))})
    right = device("b", {"op": ((), (values,))})
    for table in (compare_dumps(left, right), compare_dumps(right, left)):
        (row,) = table.rows
        assert (row.figures.differing, row.figures.elements, row.shape) == (1, 200, (10, 20))
        assert "[16,32] cut to its original shape [10,20]: the rest is padding" in row.note
    other = device("c", {"op": ((), (TensorSpec(padded(values, (10, 24)), original_shape=(10, 20)),))})
    (row,) = compare_dumps(left, other).rows
    assert row.figures.differing == 1


def test_padding_on_both_sides_is_not_compared(device):
    values = rows((10, 20))
    other = padded(values, (16, 32))
    other[15, 31] = -1
    left, right = (
        device(name, {"op": ((), (TensorSpec(array, original_shape=(10, 20)),))})
        for name, array in (("a", padded(values, (16, 32))), ("b", other))
    )
    (row,) = compare_dumps(left, right).rows
    assert (row.figures.differing, row.figures.elements) == (0, 200)


def test_nothing_is_cut_without_a_record(device):
    values = rows((10, 20))
    specs = [
        TensorSpec(padded(values, (16, 32))),  # 16 and 32 look like blocks, and nobody says so
        TensorSpec(padded(values, (16, 32)), original_shape=(10, 21)),  # another shape than the partner's
        TensorSpec(padded(values, (16, 32)), original_shape=(200,)),  # another rank
    ]
    for number, spec in enumerate(specs):
        left = device(f"a{number}", {"op": ((), (spec,))})
        (row,) = compare_dumps(left, device("b", {"op": ((), (values,))})).rows
        assert not row.judged
        assert "shapes differ" in "; ".join(row.messages())


def test_a_prefix_has_no_figure(shared_data, make):
    folder = shared_data / "field_cases" / "FC12"
    left, right = (make.record("x:output:0", np.load(folder / f"prefix.{side}.npy")) for side in ("left", "right"))
    assert (left.shape, right.shape) == ((6,), (5,))
    assert pair_dumps(make.dump(left), make.dump(right)).pairs[0].steps == ()
    (row,) = compare_dumps(make.dump(left), make.dump(right)).rows
    assert not row.judged
    assert "shapes differ" in "; ".join(row.messages())


def test_plain_axes_in_another_order_are_turned_where_record_and_graph_say_so(device, make):
    value = rows((2, 4, 5, 3))  # NHWC in the framework
    stored = np.ascontiguousarray(value.transpose(0, 3, 1, 2))
    port = Port("float32", stored.shape, "NCHW", {"origin_shape": value.shape, "origin_format": "NHWC"})
    graph = make.graph(replace(make.op("conv", "Conv2D"), output_ports=(port,)))
    spec = TensorSpec(stored, format="NCHW", original_shape=value.shape)
    left = device("a", {"conv": ((), (spec,))}, graph)
    right = make.dump(make.record("conv:output:0", value, device="tf"))
    (pair,) = pair_dumps(left, right, graph).pairs
    assert not as_stored(pair)
    (row,) = compare_dumps(left, right, graph).rows
    assert row.figures.differing == 0
    assert "NCHW turned to NHWC" in row.note


@pytest.mark.parametrize(
    ("ops", "stored"),
    [
        ([("Cast", {}), ("Identity", {})], lambda x: x),
        ([("TransposeD", {"perm": (1, 0, 2)})], lambda x: x.transpose(1, 0, 2)),
        ([("TransposeD", {"perm": (2, 0, 1)}), ("TransposeD", {"perm": (1, 0, 2)})], lambda x: x.transpose(0, 2, 1)),
        ([("Reshape", {})], lambda x: x.reshape(6, 4)),
        ([("Reshape", {"shape": (6, 4)}), ("Transpose", {"perm": (1, 0)})], lambda x: x.reshape(6, 4).T),
        (
            [("Cast", {}), ("TransposeD", {"perm": (1, 0, 2)}), ("Reshape", {})],
            lambda x: x.transpose(1, 0, 2).reshape(-1),
        ),
        ([("ExpandDims", {}), ("Cast", {})], lambda x: x[None]),
    ],
)
def test_inserted_chains_lead_to_the_original(make, device, reference, ops, stored):
    value = rows((2, 3, 4))
    nodes, source = [make.op("x", "Data")], "x:0"
    for number, (kind, attrs) in enumerate(ops):
        shape = attrs.get("shape")
        node = make.op(f"ins{number}", kind, (source,), originals=(), **{k: v for k, v in attrs.items() if k == "perm"})
        nodes.append(replace(node, output_ports=(Port("float32", shape),)) if shape else node)
        source = f"ins{number}:0"
    graph = make.graph(*nodes, make.op("use", "Relu", (source,)))
    there = np.ascontiguousarray(stored(value))
    wrong = there.copy()
    wrong.reshape(-1)[5] += 1
    left = device("a", {"use": ((wrong,), ()), f"ins{len(ops) - 1}": ((), (there,))}, graph)
    table = compare_dumps(left, reference({"x": value}), graph)
    found = {row.tensor: row.figures.differing for row in table.rows if row.figures is not None}
    assert found == {"use:input:0": 1, f"ins{len(ops) - 1}:output:0": 0}
    turned = compare_dumps(reference({"x": value}), left, graph)
    assert sorted(row.figures.differing for row in turned.rows if row.figures is not None) == [0, 1]


@pytest.mark.parametrize("attrs", [{}, {"perm": (0, 0, 1)}, {"perm": "ab"}, {"perm": (True, False)}])
def test_a_transpose_of_unknown_axes_is_not_passed(make, attrs):
    value = rows((2, 2))
    graph = make.graph(
        make.op("x", "Data"),
        make.op("t", "TransposeD", ["x:0"], originals=(), **attrs),
        make.op("use", "Relu", ["t:0"]),
    )
    left = make.dump(make.record("use:input:0", value))
    pairing = pair_dumps(left, make.dump(make.record("x:output:0", value, device="tf")), graph)
    assert pairing.pairs == ()
    assert any("which axes it exchanges is not known" in u.reason for u in pairing.unpaired)


def test_the_axes_may_come_from_a_constant(make):
    value = rows((2, 3))
    graph = make.graph(
        make.op("x", "Data"),
        make.op("p", "Const", originals=(), value=(1, 0)),
        make.op("t", "Transpose", ["x:0", "p:0"], originals=()),
        make.op("use", "Relu", ["t:0"]),
    )
    left = make.dump(make.record("use:input:0", np.ascontiguousarray(value.T)))
    (row,) = (
        r for r in compare_dumps(left, make.dump(make.record("x:output:0", value, device="tf")), graph) if r.figures
    )
    assert row.figures.differing == 0


def test_names_too_long_for_a_file_pair_through_the_mapping(device, reference, make, tmp_path):
    value = rows((4, 3))
    op = "/".join(["flat" + "scope" * 8] * 8)  # the header has no name, so only mapping.csv tells
    ops = {op: ((), (value,)), "flat_b": ((), (value + 1,))}
    left, right = device("a", ops), device("b", ops)
    digits = [path.name for path in (tmp_path / "a").iterdir() if path.name.isdigit()]
    assert digits
    assert (tmp_path / "a" / "mapping.csv").exists()
    table = compare_dumps(left, right)
    assert [row.figures.differing for row in table.rows] == [0, 0]
    graph = make.graph(make.op(op, "MatMul"))
    hashed = tmp_path / "tf"
    hashed.mkdir()
    full = f"{op.replace('/', '_')}.0.1700000000000000.npy"
    write_npy(hashed / "1234567890123.npy", value)
    (hashed / "mapping.csv").write_text(f"1234567890123,{full}\n")
    left = device("a", ops, graph)
    (row,) = (row for row in compare_dumps(left, read_dump(hashed), graph) if row.figures is not None)
    assert (row.op, row.figures.differing) == (op, 0)


def test_a_hash_without_a_line_in_the_mapping_is_a_problem(device, tmp_path):
    value = rows((4, 3))
    left = device("a", {"x": ((), (value,))})
    place = tmp_path / "b"
    place.mkdir()
    write_npu_dump(place / "99887766", op_name="x", inputs=(), outputs=(value,), dump_time_us=1)
    write_npu_dump(
        place / dump_file_name("MatMul", "x", 1, 1, 1_700_000_000_000_000),
        op_name="x",
        inputs=(),
        outputs=(value,),
        dump_time_us=1,
    )
    right = read_dump(place)
    assert any("mapping.csv does not have" in problem.reason for problem in right.problems)
    assert len(compare_dumps(left, right).judged) == 1
