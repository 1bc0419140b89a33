"""Field cases FC06-FC13: pairs of arrays, result files and names that real tools got wrong."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from compare.closeness import close_figures
from compare.metrics import compare_arrays
from compare.result_file import read_csv
from compare.second_look import with_details
from compare.summary import summarise
from compare.sweep import compare_dumps


@pytest.fixture(scope="module")
def cases(shared_data):
    return shared_data / "field_cases"


@pytest.fixture(scope="module")
def expected(cases):
    return json.loads((cases / "expected.json").read_text())


@pytest.fixture(autouse=True)
def _no_warning_on_screen():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def load(cases, case, name):
    return tuple(np.load(cases / case / f"{name}.{side}.npy") for side in ("left", "right"))


def figures_of(cases, case):
    names = sorted({path.name.split(".")[0] for path in (cases / case).glob("*.npy")})
    return {name: compare_arrays(*load(cases, case, name)) for name in names}


def check(figures, wanted):
    counts = (
        figures.elements,
        figures.differing,
        figures.non_finite_mismatches,
        (figures.nan_left, figures.nan_right, figures.inf_left, figures.inf_right),
    )
    assert counts == (
        wanted["elements"],
        wanted["differing"],
        wanted["non_finite_mismatches"],
        tuple(wanted[key] for key in ("nan_left", "nan_right", "inf_left", "inf_right")),
    )
    assert figures.cosine == close_to(wanted["cosine_of_jointly_finite"], abs=1e-12)
    assert figures.max_abs_error == close_to(wanted["max_abs_error_of_jointly_finite"], rel=1e-12)
    assert figures.relative_distance == close_to(wanted["relative_euclidean_distance"], rel=1e-9)


def close_to(value, **tolerance):
    return None if value is None else pytest.approx(value, **tolerance)


@pytest.mark.parametrize("case", ["FC06", "FC07", "FC08", "FC09", "FC10"])
def test_figures_agree_with_exact_fractions(cases, expected, case):
    found = figures_of(cases, case)
    assert found.keys() == expected[case].keys()
    for name, figures in found.items():
        check(figures, expected[case][name])


def test_fc06_cosine_is_symmetric_to_the_last_bit_and_at_most_one(cases):
    for name, figures in figures_of(cases, "FC06").items():
        left, right = load(cases, "FC06", name)
        assert compare_arrays(right, left).cosine == figures.cosine
        assert abs(figures.cosine) <= 1
    found = figures_of(cases, "FC06")
    assert found["f16_two"].cosine == 1
    assert found["f32_tiny"].below(0.98)
    assert not found["f32_near_one"].equal
    assert found["f32_near_one"].cosine < 1


def test_fc07_zero_vectors(cases):
    found = figures_of(cases, "FC07")
    for name in ("both_zero", "negative_zero"):
        assert (found[name].verdict, found[name].cosine, found[name].below(1.0)) == ("equal", None, False)
    one_sided = found["left_zero_only"]
    assert (one_sided.verdict, one_sided.reasons["CosineSimilarity"]) == ("different", "left is zero")
    assert (round(one_sided.max_abs_error, 6), one_sided.relative_distance) == (0.001, 1)
    assert one_sided.below(-1.0)
    assert (found["subnormal_equal"].verdict, found["subnormal_equal"].cosine) == ("equal", 1)


def test_fc08_non_finite_elements(cases):
    found = figures_of(cases, "FC08")
    equal = {"nan_same_place": 1, "inf_same": 1, "all_nan": 8}
    for name, figures in found.items():
        assert figures.verdict == ("equal" if name in equal else "different")
        assert figures.cosine == (None if name == "all_nan" else 1)
        assert figures.below(0.98) == (name not in equal)
    assert {name: found[name].nan_left + found[name].inf_left for name in equal} == equal
    finite = compare_arrays(np.float32([1, -1]), np.float32([-1, 1]))
    assert all(found[name].rank < finite.rank for name in found.keys() - equal.keys())


def test_fc09_integers_are_exact(cases):
    found = figures_of(cases, "FC09")
    largest = {n: f.max_abs_exact or f.max_abs_error for n, f in found.items()}
    assert largest == {"above_2p24": 1, "above_2p53": 1, "hash_ids": 10, "uint8_wrap": 255, "bool": 1, "same": 0}
    assert {name: f.differing for name, f in found.items()} == {
        "above_2p24": 1,
        "above_2p53": 1,
        "hash_ids": 1,
        "uint8_wrap": 2,
        "bool": 1,
        "same": 0,
    }
    assert {name for name, f in found.items() if f.verdict == "equal"} == {"same"}


def test_fc10_perfect_cosine_wrong_values(cases):
    found = figures_of(cases, "FC10")
    assert sorted(found, key=lambda name: found[name].rank) == ["doubled", "offset", "rounding_only"]
    assert not any(figures.equal for figures in found.values())
    assert found["doubled"].pattern.startswith("scaled by 2 ")
    assert found["offset"].pattern.startswith("shifted by -1 ")
    assert found["rounding_only"].pattern == ""


def test_fc10_and_the_second_look(cases):
    said = {}
    for case in ("FC08", "FC09", "FC10", "FC12"):
        for name, figures in figures_of(cases, case).items():
            said[name] = with_details(figures, *load(cases, case, name)).explanation
    assert said["doubled"] == "scaled by 2 (right = 2 x left)"
    assert said["offset"] == "shifted by -1 (left = right - 1)"
    assert said["rounding_only"] == ""
    assert said["transposed"] == "transposed"
    assert said["inf_vs_saturated"] == said["inf_sign"] == "1 element differs, the rest equal: first at index 2"
    assert said["nan_vs_inf"] == "1 element differs, the rest equal: first at index 2, left is NaN there"
    assert said["bool"] == "1 element differs, the rest equal: first at index 1, left is zero there"
    assert said["hash_ids"] == "1 element differs, the rest equal: first at index 0"


@pytest.mark.parametrize("name", ["result_20240101000000.csv", "result_20240101000001.csv"])
def test_fc11_the_true_culprit_comes_first(cases, name):
    summary = summarise(read_csv(cases / "FC11" / name).rows, threshold=0.98)
    first = summary.suspects[0]
    assert (first.name, first.lowest, summary.listed[0]) == ("MatMul_9", 0.806927, first)
    assert [value.number for value in first.inputs.values()] == [0.99986, 1.0]
    assert [op.name for op in summary.consequences] == ["Relu_10", "Split_11"]
    assert [op.name for op in summary.suspects] == ["MatMul_9", "Sum_13"]
    assert [op.name for op in summary.at_threshold] == ["GatherV2_12"]
    assert [op.name for op in summary.undetermined] == ["MaskedFill_3"]
    assert "MaskedFill_3" in summary.warnings()[0]
    assert [op.name for op in summary.no_partner] == ["trans_TransData_2"]
    split = summary.consequences[1]
    assert (split.outputs[10].number, split.outputs[2].number, len(split.outputs)) == (0.80, 0.64, 12)
    assert [op.index for op in summary.ops] == [0, 1, 2, 3, 9, 10, 11, 12, 13]


def test_fc12_empty_tensors_and_shapes_that_differ(cases):
    found = figures_of(cases, "FC12")
    empty = found["both_empty"]
    assert (empty.verdict, empty.cosine, empty.differing) == ("equal", None, 0)
    for name in ("one_empty", "prefix"):
        figures = found[name]
        assert (figures.verdict, figures.flattened) == ("shapes differ", None)
        assert set(figures.columns().values()) == {None}
    turned = found["transposed"]
    assert set(turned.columns().values()) == {None}
    assert "same element count" in turned.reasons["CosineSimilarity"]
    assert turned.flattened.cosine == pytest.approx(0.9090909090909091)
    for name in ("flattened", "scalar"):
        figures = found[name]
        assert (figures.verdict, figures.flattened.differing) == ("shapes differ", 0)
        assert "equal element for element" in figures.reasons["CosineSimilarity"]
    for name in found:
        assert close_figures(*load(cases, "FC12", name)).comparable == (name not in ("one_empty", "prefix"))


def test_fc13_the_first_nan_by_time_and_clean_inputs(cases):
    from compare.nan_origin import search_nan
    from dumpers.formats.registry import read_dump

    dump = read_dump(cases / "FC13" / "npu")
    search = search_nan(dump)
    origin = search.origin
    assert (origin.op, origin.io, origin.slot, origin.record.timestamp_us) == (
        "fc2_MatMul",
        "output",
        0,
        1700000000000250,
    )
    assert (origin.cause, origin.inputs_clean) == ("operator", True)
    assert [(f.record.op, f.record.slot) for f in search.findings] == [
        ("fc2_MatMul", 0),
        ("fc1_MatMul_lxslice0", 0),
        ("prob", 0),
        ("prob", 10),
    ]
    assert [path.name for path in dump.ignored] == ["readme.txt"]


def test_fc13_the_dump_against_itself_is_equal(cases):
    from dumpers.formats.registry import read_dump

    dump = read_dump(cases / "FC13" / "npu")
    table = compare_dumps(dump, dump)
    assert all(row.figures.equal for row in table)
    assert [row.slot for row in table if row.op == "prob"] == [0, 2, 10]
