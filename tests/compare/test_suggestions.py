"""What is proposed for ``--map``: names made by hand, so that the right answer is known; a proposal is then applied."""

from __future__ import annotations

import time

import numpy as np
import pytest

from compare.name_map import read_map
from compare.pairing import pair_dumps
from compare.suggestions import map_text, suggest
from dumpers.names import flatten

OPS = ("fc1/MatMul", "fc1/BiasAdd", "fc2/MatMul", "fc2/Relu", "out/Softmax")


def dump(make, names, *, shapes=None, values=None, **fields):
    records = []
    for number, name in enumerate(names):
        shape = (shapes or {}).get(name, (4, 5))
        array = np.full(shape, number, np.float32) if values is None else values[name]
        records.append(make.record(f"{name}:output:0", array, timestamp_us=number, **fields))
    return make.dump(*records)


def proposals(left, right, graph=None):
    pairing = pair_dumps(left, right, graph)
    return suggest(pairing.unpaired, {r.op for p in pairing.pairs for r in (p.left, p.right)})


def applied(left, right, found, tmp_path, graph=None):
    path = tmp_path / "map.csv"
    path.write_text(map_text(found))
    pairing = pair_dumps(left, right, graph, read_map(path))
    assert pairing.notes == ()
    return {(pair.left.op, pair.right.op) for pair in pairing.pairs}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda op: f"net_1/{op}", ("re:model/(.+)", "net_1/\\1")),
        (lambda op: f"model_1/{op}", ("re:model/(.+)", "model_1/\\1")),
        (lambda op: op, ("re:model/(.+)", "\\1")),
        (lambda op: f"train/model/{op}", ("re:(.+)", "train/\\1")),
        (lambda op: f"model/deep/{op}", ("re:model/(.+)", "model/deep/\\1")),
        (lambda op: f"model/{op}_1", ("re:(.*)", "\\1_1")),
    ],
)
@pytest.mark.parametrize("flat", [(), ("left",), ("right",), ("left", "right")])
def test_one_renamed_scope_is_one_pattern_that_pairs_everything(make, tmp_path, change, line, flat):
    names = [f"model/{op}" for op in OPS]
    sides = {"left": names, "right": [change(op) for op in OPS]}
    truth = set(zip(sides["left"], sides["right"], strict=True))
    left, right = (
        dump(make, [flatten(name) if side in flat else name for name in found]) for side, found in sides.items()
    )
    assert not pair_dumps(left, right).pairs
    found = proposals(left, right)
    assert [(each.kind, each.tensors, each.sure, each.score) for each in found] == [("scope", 5, True, 1.0)]
    got = applied(left, right, found, tmp_path)
    assert {(flatten(a), flatten(b)) for a, b in got} == {(flatten(a), flatten(b)) for a, b in truth}
    if not flat:
        assert found[0].lines == (line,)


@pytest.mark.parametrize("flat", [False, True])
def test_an_inner_scope_below_many_others_is_one_pattern(make, tmp_path, flat):
    names = [f"model/layer_{i}/{scope}/{op}" for i in range(60) for scope in ("old", "kept") for op in ("mm", "add")]
    others = [name.replace("/old/", "/new/") for name in names]
    sides = [[flatten(name) for name in side] if flat else side for side in (names, others)]
    left, right = (dump(make, side) for side in sides)
    found = proposals(left, right)
    assert [(each.tensors, each.sure) for each in found] == [(120, True)]
    mark = "_" if flat else "/"
    assert found[0].lines == ((f"re:(.+{mark})old{mark}(.+)", f"\\1new{mark}\\2"),)
    assert applied(left, right, found, tmp_path) == set(zip(*sides, strict=True))


def test_several_scopes_and_inner_ones(make, tmp_path):
    left = dump(make, [f"{scope}/{op}" for scope in ("user", "item") for op in OPS] + [f"g/user/{op}" for op in OPS])
    right = dump(make, [f"{scope}/{op}" for scope in ("u", "i") for op in OPS] + [f"g/u/{op}" for op in OPS])
    # Shapes are all the same, so only the order of the letters could tell user from item: two rivals, nothing is sure.
    found = proposals(left, right)
    assert [each.lines[0][0] for each in found if each.sure] == ["re:g/user/(.+)"]
    shapes = {f"{s}/{op}": (3, 3) for s in ("user", "u") for op in OPS}
    left, right = (dump(make, [r.op for r in side], shapes=shapes) for side in (left, right))
    found = proposals(left, right)
    assert {each.lines for each in found} == {
        (("re:user/(.+)", "u/\\1"),),
        (("re:item/(.+)", "i/\\1"),),
        (("re:g/user/(.+)", "g/u/\\1"),),
    }
    assert len(applied(left, right, found, tmp_path)) == 15


def test_a_scope_with_two_homes_is_no_sure_proposal(make, tmp_path):
    left = dump(make, [f"tower/{op}" for op in OPS])
    right = dump(make, [f"{scope}/{op}" for scope in ("tower_a", "tower_b") for op in OPS])
    found = [each for each in proposals(left, right) if each.kind == "scope"]
    assert found
    assert not any(each.sure for each in found)
    assert "not certain" in found[0].reason
    assert all(line.startswith("#") or line == "left,right" for line in map_text(found).splitlines())


def test_shapes_that_disagree_are_no_support(make):
    names = [f"model/{op}" for op in OPS]
    others = [f"net/{op}" for op in OPS]
    left, right = dump(make, names), dump(make, others, shapes=dict.fromkeys(others, (9, 9)))
    assert not [each for each in proposals(left, right) if each.kind == "scope"]
    assert not [each for each in proposals(dump(make, names[:2]), dump(make, others[:2])) if each.kind == "scope"]


def test_a_pattern_never_catches_an_op_that_has_a_partner(make, tmp_path):
    both = [f"model/shared/{op}" for op in OPS]
    left = dump(make, [*both, *(f"model/{op}" for op in OPS)])
    right = dump(make, [*both, *(f"net/{op}" for op in OPS)])
    found = proposals(left, right)
    assert set(found[0].lines) == {(f"model/{op}", f"net/{op}") for op in OPS}
    assert applied(left, right, found, tmp_path) == {(n, n) for n in both} | set(found[0].lines)


def test_mixed_precision_agrees_and_integers_do_not(make):
    left = make.dump(*(make.record(f"m/{op}:output:0", np.zeros((4, 5), np.float16)) for op in OPS))
    right = make.dump(*(make.record(f"n/{op}:output:0", np.zeros((4, 5), np.float32)) for op in OPS))
    assert proposals(left, right)[0].kind == "scope"
    ids = make.dump(*(make.record(f"n/{op}:output:0", np.zeros((4, 5), np.int32)) for op in OPS))
    assert not [each for each in proposals(left, ids) if each.kind == "scope"]


def test_a_scope_of_the_framework_that_the_graph_calls_differently(make, tmp_path):
    names = [f"model/{op}" for op in OPS]
    graph = make.graph(*(make.op(f"dev{i}", "Relu", originals=(name,)) for i, name in enumerate(names)))
    left = dump(make, [f"dev{i}" for i in range(len(names))])
    right = dump(make, [f"net/{op}" for op in OPS], device="tf")
    found = proposals(left, right, graph)
    assert found[0].lines == (("re:model/(.+)", "net/\\1"),)
    assert len(applied(left, right, found, tmp_path, graph)) == len(OPS)
    turned = proposals(right, left, graph)
    assert turned[0].lines == (("re:net/(.+)", "model/\\1"),)
    assert len(applied(right, left, turned, tmp_path, graph)) == len(OPS)


def test_equal_and_like_values_find_ops_of_other_names(make):
    rng = np.random.default_rng(3)
    a, b, c = (rng.normal(size=(8, 8)).astype(np.float32) for _ in range(3))
    left = dump(make, "abcz", values={"a": a, "b": b, "c": c, "z": np.zeros((8, 8), np.float32)})
    noisy = (b + np.float32(1e-3) * c).astype(np.float16)
    values = {"p": a, "q": noisy, "r": rng.normal(size=(8, 8)).astype(np.float32), "s": np.zeros((8, 8), np.float32)}
    right = dump(make, "pqrs", values=values)
    found = {each.lines[0]: each for each in proposals(left, right)}
    assert (found["a", "p"].kind, found["a", "p"].score, found["a", "p"].sure) == ("equal values", 1.0, True)
    assert (found["b", "q"].kind, found["b", "q"].sure) == ("like values", False)
    truth = np.corrcoef(b.reshape(-1).astype(float), noisy.reshape(-1).astype(float))[0, 1]
    assert found["b", "q"].score == pytest.approx(truth, rel=1e-12, abs=0)
    assert ("z", "s") not in found


def test_values_in_a_private_layout_are_looked_at_as_the_framework_has_them(make):
    value = np.random.default_rng(6).normal(size=(20, 40)).astype(np.float32)
    padded = np.zeros((32, 48), np.float32)
    padded[:20, :40] = value
    stored = np.ascontiguousarray(padded.reshape(2, 16, 3, 16).transpose(2, 0, 1, 3))
    left = make.dump(make.record("fused:output:0", stored, format="FRACTAL_NZ", original_shape=value.shape))
    found = proposals(left, dump(make, ["q", "r"], values={"q": value, "r": value[::-1].copy()}))
    assert [(each.kind, each.lines) for each in found] == [("equal values", (("fused", "q"),))]


def test_values_that_two_tensors_share_say_nothing(make):
    x = np.random.default_rng(4).normal(size=(8, 8)).astype(np.float32)
    found = proposals(dump(make, "ab", values={"a": x, "b": x}), dump(make, "pq", values={"p": x, "q": x}))
    assert not [each for each in found if "values" in each.kind]


def test_damaged_nan_and_extreme_tensors_are_no_evidence_and_no_error(make):
    nan = np.full((8, 8), np.nan, np.float32)
    huge = np.full((8, 8), np.finfo(np.float64).max)
    huge[0] = -huge[0]
    huge[1, 1] = 0
    left = make.dump(
        make.record("a:output:0", "a.bin is cut short", shape=(8, 8)),
        make.record("b:output:0", nan),
        make.record("c:output:0", huge),
        make.record("d:output:0", None, dtype="resource"),
        make.record("e:output:0", np.zeros((0, 3), np.float32)),
    )
    right = make.dump(
        make.record("p:output:0", nan),
        make.record("q:output:0", huge),
        make.record("r:output:0", np.zeros((8, 8), np.int32)),
    )
    with np.errstate(all="raise"):
        found = proposals(left, right)
    assert {each.lines[0] for each in found if "values" in each.kind} == {("c", "q")}


def test_the_nearest_name_is_a_guess(make, tmp_path):
    left = dump(make, ["model/tower_user/dense_3/MatMul"])
    right = dump(make, ["net/user_tower/dense_3/matmul", "other/thing/Relu"])
    (found,) = proposals(left, right)
    assert (found.kind, found.sure) == ("like names", False)
    assert found.lines == (("model/tower_user/dense_3/MatMul", "net/user_tower/dense_3/matmul"),)
    assert 0.5 <= found.score < 1
    assert "nearest name" in found.reason


def test_nothing_is_proposed_for_a_missing_output_of_a_paired_op(make):
    left = make.dump(*(make.record(f"op{i}:output:{s}", np.zeros(3, np.float32)) for i in range(5) for s in (0, 1)))
    right = make.dump(*(make.record(f"op{i}:output:{s}", np.zeros(3, np.float32)) for i in range(5) for s in (0, 2)))
    assert proposals(left, right) == []


def test_names_that_a_line_cannot_hold_are_comments(make, tmp_path):
    rng = np.random.default_rng(5)
    odd = ("re:(", "#x", " y ", "a\nb", "a\x0bb", "\u2028z")
    values = {name: rng.normal(size=(8, 8)).astype(np.float32) for name in (*odd, 'q"u,o', "ü/é")}
    left = dump(make, values, values=values)
    right = dump(make, [f"R{name}" for name in values], values={f"R{name}": value for name, value in values.items()})
    found = proposals(left, right)
    assert len(found) == len(values)
    assert applied(left, right, found, tmp_path) == {('q"u,o', 'Rq"u,o'), ("ü/é", "Rü/é")}
    assert sum("cannot be written" in line for line in map_text(found).splitlines()) == len(odd)


def test_twenty_thousand_leftovers_take_seconds(make):
    names = [f"layer_{i // 20}/block_{i % 20}/MatMul" for i in range(20_000)]
    left = make.dump(*(make.record(f"model/{name}:output:0", None, shape=(4, 5)) for name in names))
    right = make.dump(*(make.record(f"net/{name}:output:0", None, shape=(4, 5)) for name in names))
    start = time.perf_counter()
    found = proposals(left, right)
    assert found[0].lines == (("re:model/(.+)", "net/\\1"),)
    assert found[0].tensors == len(names)
    assert time.perf_counter() - start < 30
