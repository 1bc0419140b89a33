from __future__ import annotations

import random

import numpy as np
import pytest

from compare.pairing import Pair, pair_dumps
from dumpers.errors import DataError

A = np.float32([1, 2])


def names(pairing):
    return [(p.index, f"{p.op}:{p.io}:{p.slot}", p.right.name) for p in pairing.pairs]


def origin(name, index=0):
    return {"_datadump_origin_name": name, "_datadump_origin_output_index": index}


def npu(make, *names_, time=1):
    return [make.record(name, A, timestamp_us=time) for name in names_]


def tf(make, *names_, **fields):
    return [make.record(name, A, device="tf", **fields) for name in names_]


def test_two_device_dumps_pair_by_name_in_the_order_of_execution(make):
    left = make.dump(*npu(make, "z:output:0", time=1), *npu(make, "a:output:10", "a:output:2", "a:input:0", time=2))
    right = make.dump(*npu(make, "a:input:0", "a:output:2", "a:output:10", "z:output:0"))
    pairing = pair_dumps(left, right)
    assert names(pairing) == [
        (0, "z:output:0", "z:output:0"),
        (1, "a:input:0", "a:input:0"),
        (1, "a:output:2", "a:output:2"),
        (1, "a:output:10", "a:output:10"),
    ]
    assert (pairing.coverage.left_bytes, pairing.coverage.paired_left_bytes) == (32, 32)


def test_everything_without_a_partner_is_listed(make):
    left = make.dump(*npu(make, "a:output:0", "a:output:1", "gone:input:0", "gone:output:0"))
    right = make.dump(*npu(make, "a:output:0", "new:output:0"))
    pairing = pair_dumps(left, right)
    assert {(u.tensor, u.side) for u in pairing.unpaired} == {
        ("a:output:1", "left"),
        ("gone:input:0", "left"),
        ("gone:output:0", "left"),
        ("new:output:0", "right"),
    }
    assert all(u.reason for u in pairing.unpaired)
    rows = [(r.op, r.left_names, r.right_names) for r in pairing.rows if not isinstance(r, Pair)]
    # An op that the other side lacks is one row, as users' files have it.
    assert rows == [("a", ("a",), ()), ("gone", ("gone",), ()), ("new", (), ("new",))]


def test_flattened_names_meet_full_ones_and_ambiguity_is_said(make):
    left = make.dump(*npu(make, "scope_op_x:output:0", "tower_out:output:0"))
    right = make.dump(*tf(make, "scope/op.x:output:0", "tower/out:output:0", "tower.out:output:0"))
    pairing = pair_dumps(left, right)
    assert [p.right.op for p in pairing.pairs] == ["scope/op.x"]
    (lost,) = [u for u in pairing.unpaired if u.side == "left"]
    assert "once flattened" in lost.reason


def test_greatest_time_stamp_wins(make):
    right = make.dump(
        make.record("a:output:0", A * 1, device="tf", timestamp_us=90),
        make.record("a:output:0", A * 2, device="tf", timestamp_us=100),
        make.record("a:output:0", A * 3, device="tf", timestamp_us=9),
    )
    left = make.dump(*tf(make, "a:output:0"))
    (pair,) = (pairing := pair_dumps(left, right)).pairs
    assert pair.right.timestamp_us == 100
    assert [u.record.timestamp_us for u in pairing.unpaired] == [9, 90]


def test_fused_op_pairs_with_its_last_member_and_inputs_pass_inserted_casts(make):
    graph = make.graph(
        make.op("x", "Data"),
        make.op("w", "Const", originals=()),
        make.op("trans_Cast_0", "Cast", ["x:0"], originals=()),
        make.op(
            "fc/MatMulfc/Add",
            "MatMulV2",
            ["trans_Cast_0:0", "w:0"],
            [origin("fc/Add")],
            originals=("fc/MatMul", "fc/Add"),
        ),
    )
    left = make.dump(
        *npu(make, "fc_MatMulfc_Add:input:0", "fc_MatMulfc_Add:input:1", "fc_MatMulfc_Add:output:0"),
        *npu(make, "trans_Cast_0:input:0", "trans_Cast_0:output:0", time=0),
    )
    right = make.dump(*tf(make, "x:output:0", "fc/Add:output:0", "fc/MatMul:output:0"))
    pairing = pair_dumps(left, right, graph)
    assert names(pairing) == [
        (2, "trans_Cast_0:input:0", "x:output:0"),
        (2, "trans_Cast_0:output:0", "x:output:0"),
        (3, "fc/MatMulfc/Add:input:0", "x:output:0"),
        (3, "fc/MatMulfc/Add:output:0", "fc/Add:output:0"),
    ]
    assert pairing.pairs[0].right_names == ()
    assert pairing.pairs[-1].right_names == ("fc/MatMul", "fc/Add")
    reasons = {u.tensor: u.reason for u in pairing.unpaired}
    assert "inserted by the compiler" in reasons["fc/MatMulfc/Add:input:1"]
    assert "fused away" in reasons["fc/MatMul:output:0"]
    assert {"x", "w"} <= set(reasons)


def test_origin_index_renamed_ops_and_a_cast_of_the_users_own(make):
    graph = make.graph(
        make.op("cast", "Cast", ["split:1"]),
        make.op("split", "SplitD", [], [origin("my/split", 1), origin("my/split", 0)], originals=("my/split",)),
        make.op("renamed_1", "Relu", ["cast:0"], originals=("relu",)),
    )
    left = make.dump(*npu(make, "split:output:0", "split:output:1", "renamed_1:input:0", "renamed_1:output:0"))
    right = make.dump(*tf(make, "my/split:output:0", "my/split:output:1", "relu:output:0", "cast:output:0"))
    assert [(p.op, p.io, p.slot, p.right.name) for p in pair_dumps(left, right, graph).pairs] == [
        ("split", "output", 0, "my/split:output:1"),
        ("split", "output", 1, "my/split:output:0"),
        ("renamed_1", "input", 0, "cast:output:0"),
        ("renamed_1", "output", 0, "relu:output:0"),
    ]


def test_only_casts_and_layout_changes_are_passed(make):
    graph = make.graph(
        make.op("x", "Data"),
        make.op("turn", "TransposeD", ["x:0"], originals=()),
        make.op("fused", "Add", ["x:0"], originals=("p", "q")),
        make.op("y", "Relu", ["turn:0"]),
        make.op("z", "Relu", ["fused:0"]),
    )
    left = make.dump(*npu(make, "y:input:0", "z:input:0"))
    pairing = pair_dumps(left, make.dump(*tf(make, "x:output:0")), graph)
    assert pairing.pairs == ()
    reasons = {u.tensor: u.reason for u in pairing.unpaired}
    assert "turn was inserted by the compiler" in reasons["y:input:0"]
    assert "does not say whose output this is" in reasons["z:input:0"]


@pytest.mark.parametrize(("recorded", "wanted"), [(2, {0: "a", 1: "b"}), (3, {0: "a", 2: "b"})])
def test_absent_optional_inputs_shift_slots_only_where_the_dump_leaves_them_out(make, recorded, wanted):
    graph = make.graph(make.op("a", "Data"), make.op("b", "Data"), make.op("op", "Conv2D", ["a:0", "", "b:0"]))
    left = make.dump(*npu(make, *(f"op:input:{slot}" for slot in range(recorded))))
    right = make.dump(*tf(make, "a:output:0", "b:output:0"))
    assert {p.slot: p.right.op for p in pair_dumps(left, right, graph).pairs} == wanted


def test_groups_number_ops_of_one_original_together(make):
    graph = make.graph(
        make.op("first", "Relu"),
        make.op("part_1", "Slice", originals=("big",), _datadump_is_multiop=True),
        make.op("other", "Relu"),
        make.op("part_2", "Concat", [], [origin("big")], originals=("big",), _datadump_is_multiop=True),
    )
    left = make.dump(*npu(make, "part_2:output:0", time=5), *npu(make, "part_1:output:0", time=4))
    pairing = pair_dumps(left, make.dump(*tf(make, "big:output:0")), graph)
    assert [row.index for row in pairing.rows] == [0, 1, 1, 2]
    assert pairing.pairs[0].left_names == ("part_1", "part_2")
    assert "inner op of a split" in {u.tensor: u.reason for u in pairing.unpaired}["part_1:output:0"]


def test_a_graph_of_another_network_is_an_error_and_a_stray_op_is_not(make):
    graph = make.graph(make.op("a", "Relu"))
    right = make.dump(*tf(make, "a:output:0"))
    with pytest.raises(DataError, match="does not belong to the dump"):
        pair_dumps(make.dump(*npu(make, "z:output:0")), right, graph)
    pairing = pair_dumps(make.dump(*npu(make, "a:output:0", "z:output:0")), right, graph)
    assert [(u.tensor, u.reason) for u in pairing.unpaired] == [("z:output:0", "graph g has no op z")]


def test_sides_may_be_exchanged(make):
    graph = make.graph(make.op("mm", "MatMulV2", [], [origin("add")], originals=("mul", "add")))
    left, right = make.dump(*npu(make, "mm:output:0")), make.dump(*tf(make, "add:output:0", "mul:output:0"))
    (pair,) = (pairing := pair_dumps(right, left, graph)).pairs
    assert (pair.op, pair.left_names, pair.right_names) == ("add", ("mul", "add"), ("mm",))
    assert [(u.tensor, u.side) for u in pairing.unpaired] == [("mul:output:0", "left")]


def fused_and_unfused(make, fused_name):
    fused = make.graph(
        make.op("x", "Data"),
        make.op(fused_name, "MatMulV2", ["x:0"], [origin("fc/BiasAdd")], originals=("fc/MatMul", "fc/BiasAdd")),
        make.op("relu", "Relu", [f"{fused_name}:0"]),
    )
    plain = make.graph(
        make.op("x", "Data"),
        make.op("fc/MatMul", "MatMulV2", ["x:0"]),
        make.op("fc/BiasAdd", "BiasAdd", ["fc/MatMul:0"]),
        make.op("relu", "Relu", ["fc/BiasAdd:0"]),
    )
    left = make.dump(
        *npu(make, f"{fused_name}:input:0", f"{fused_name}:output:0", "relu:input:0", "relu:output:0"), graph=fused
    )
    ops = ("fc/MatMul:input:0", "fc/MatMul:output:0", "fc/BiasAdd:input:0", "fc/BiasAdd:output:0", "relu:input:0")
    return left, make.dump(*npu(make, *ops, "relu:output:0"), graph=plain)


@pytest.mark.parametrize("name", ["fc/MatMul", "fc/MatMulfc/BiasAdd"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_fused_run_meets_an_unfused_one_by_the_originals(make, name, turned):
    left, right = fused_and_unfused(make, name)
    pairing = pair_dumps(right, left) if turned else pair_dumps(left, right)
    pairs = {(p.right.name, p.left.name) if turned else (p.left.name, p.right.name) for p in pairing.pairs}
    assert pairs == {
        (f"{name}:input:0", "fc/MatMul:input:0"),
        (f"{name}:output:0", "fc/BiasAdd:output:0"),
        ("relu:input:0", "relu:input:0"),
        ("relu:output:0", "relu:output:0"),
    }
    reasons = {u.tensor: u.reason for u in pairing.unpaired}
    assert set(reasons) == {"fc/MatMul:output:0", "fc/BiasAdd:input:0"}
    if name == "fc/MatMul":
        assert "stands for fc/" in reasons["fc/MatMul:output:0"]


def test_two_runs_of_one_graph_pair_by_name_whatever_the_originals(make):
    left, _ = fused_and_unfused(make, "fc/MatMul")
    right, _ = fused_and_unfused(make, "fc/MatMul")
    assert len(pair_dumps(left, right).pairs) == 4


def expected(left, right):
    """The rule in its own words: equal names first, then the flattened name if one tensor on each side is left."""
    pairs = {name: name for name in left if name in right}
    loose = [[name for name in side if name not in pairs] for side in (left, right)]
    flat = [[name.replace("/", "_").replace(".", "_") for name in side] for side in loose]
    for name, key in zip(loose[0], flat[0], strict=True):
        if flat[0].count(key) == 1 == flat[1].count(key):
            pairs[name] = loose[1][flat[1].index(key)]
    return pairs


def test_random_names_pair_as_the_rule_says_and_nothing_is_dropped(make):
    choose = random.Random(1)

    def side():
        ops = ("a/b", "a_b", "a.b", "a", "c/d", "c_d")
        count = choose.randint(1, 8)
        return sorted(
            {f"{choose.choice(ops)}:{choose.choice(('input', 'output'))}:{choose.randint(0, 1)}" for _ in range(count)}
        )

    for _ in range(500):
        left, right = side(), side()
        pairing = pair_dumps(make.dump(*npu(make, *left)), make.dump(*npu(make, *right)))
        assert {pair.left.name: pair.right.name for pair in pairing.pairs} == expected(left, right)
        for name, given in (("left", left), ("right", right)):
            lost = [u.record.name for u in pairing.unpaired if u.side == name]
            assert sorted([getattr(pair, name).name for pair in pairing.pairs] + lost) == given
        assert all(u.reason for u in pairing.unpaired)
