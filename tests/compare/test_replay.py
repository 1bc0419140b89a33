"""replay_op and local_error: exact ops, non-finite numbers, fused chains, arithmetic fits, reasons for the rest."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.bounds import RATIO_LIMIT, Bounded
from compare.kernels.table import ALIASES, KERNELS
from compare.replay import explains, fusion_hypotheses, local_error, precision_fit, replay_op
from dumpers.graph import Op, Port

F32 = np.float32
INF, NAN = np.inf, np.nan


def one(op_type, inputs, output, **attrs):
    (error,) = local_error(Op("op", op_type, attrs=attrs), inputs, [output])
    assert error.reason == ""
    return error


def f32(*values):
    return np.array(values, F32)


# --- figures ------------------------------------------------------------------------------------------------------


def test_figures_of_one_wrong_element():
    x = np.arange(12, dtype=F32).reshape(3, 4)
    out = x + F32(1)
    out[1, 2] += F32(0.5)
    error = one("Add", [x, F32(1)], out)
    assert (error.index, error.got, error.expected) == ((1, 2), 7.5, 7.0)
    assert error.max_error == 0.5
    assert error.ratio == pytest.approx(0.5 / error.bound)
    assert (error.differing, error.non_finite, error.count) == (1, 0, 12)
    assert error.faulty


def test_equal_results_have_ratio_zero():
    x = np.ones((2, 3), F32)
    error = one("Mul", [x, x], x)
    assert (error.ratio, error.max_error, error.index, error.faulty) == (0.0, 0.0, None, False)
    empty = np.zeros((0, 3), F32)
    assert one("Mul", [empty, empty], empty).ratio == 0.0


def test_replay_has_own_and_exact_results():
    a, b = f32(1).reshape(1, 1) / 3, f32(1).reshape(1, 1) / 7
    replay = replay_op(Op("m", "MatMulV2", output_ports=(Port("float32"),)), [a, b])
    assert replay.replayable
    assert replay.own[0].dtype == F32
    assert replay.exact[0][0, 0] == float(a[0, 0]) * float(b[0, 0])
    assert 0 < replay.bound[0][0, 0] <= 2.0**-24 * replay.exact[0][0, 0] * 1.01


def test_half_precision_results_are_rounded_once():
    x = np.array([[0.1, 0.2, 0.3]], np.float16)
    replay = replay_op(Op("s", "ReduceSum", output_ports=(Port("float16"),)), [x, np.array([1])])
    assert replay.own[0].dtype == np.float16
    assert replay.own[0][0] == np.float16(x.astype(np.float64).sum())


def test_bfloat16_goes_through_float32():
    x = np.array([1.5, 2.5, 3.0], ml_dtypes.bfloat16)
    error = one("Mul", [x, x], x * x)
    assert error.ratio <= 1
    assert one("Identity", [x], x).ratio == 0


# --- ops that round nothing ---------------------------------------------------------------------------------------


def test_one_wrong_row_of_thousands_is_infinitely_wrong():
    params, rows = np.arange(40000, dtype=F32).reshape(10000, 4), np.arange(0, 9000, 3)
    out = params[rows]
    assert one("GatherV2", [params, rows, np.int32(0)], out).ratio == 0
    out[1234] = params[7]
    error = one("GatherV2", [params, rows, np.int32(0)], out)
    assert error.ratio == INF
    assert error.index[0] == 1234
    assert error.differing == 4


def test_last_bit_counts_where_nothing_is_computed():
    x = f32(1, 2, 3)
    changed = np.nextafter(x, F32(9))
    for name in ("Identity", "Relu", "Reshape", "Abs"):
        inputs = [x, np.array([3])] if name == "Reshape" else [x]
        assert one(name, inputs, changed).ratio == INF
    assert one("Assign", [x * 0, x], x).ratio == 0


def test_large_integers_differ_by_one():
    ids = np.array([2**60, 2**60 + 1], np.int64)
    assert one("Identity", [ids], ids).ratio == 0
    error = one("Identity", [ids], ids + np.array([0, 1]))
    assert (error.ratio, error.index, error.differing) == (INF, (1,), 1)


def test_signed_zeros_and_nan_payloads_are_equal():
    x = f32(0.0, NAN)
    out = np.array([0x80000000, 0x7FC00123], np.uint32).view(F32)
    assert one("Identity", [x], out).ratio == 0


def test_of_duplicate_updates_any_may_win():
    var, rows, updates = np.zeros((4, 2), F32), np.array([1, 1, 2]), f32(1, 2, 3, 4, 5, 6).reshape(3, 2)
    first, last = np.zeros((4, 2), F32), np.zeros((4, 2), F32)
    first[[1, 2]], last[[1, 2]] = updates[[0, 2]], updates[[1, 2]]
    assert one("ScatterUpdate", [var, rows, updates], first).ratio <= 1
    assert one("ScatterUpdate", [var, rows, updates], last).ratio == 0
    last[2, 0] = 0
    assert one("ScatterUpdate", [var, rows, updates], last).ratio == INF


def test_a_single_term_is_copied_exactly():
    rows, ids = f32(1, 2, 3), np.array([0, 2, 2])
    out = f32(1, 0, 5)
    assert one("UnsortedSegmentSum", [rows, ids, np.int32(3)], out).ratio == 0
    out[0] = np.nextafter(out[0], F32(2))
    assert one("UnsortedSegmentSum", [rows, ids, np.int32(3)], out).ratio == INF


# --- NaN, infinity, subnormals ------------------------------------------------------------------------------------


def test_nan_in_place_of_a_number():
    error = one("Exp", [f32(0, 1, 2)], f32(1, NAN, np.exp(2)))
    assert (error.ratio, error.index, error.non_finite) == (INF, (1,), 1)
    assert np.isnan(error.got)


def test_nan_that_arithmetic_explains():
    with np.errstate(all="ignore"):
        assert one("Log", [f32(-1, 0, 1)], f32(NAN, -INF, 0)).ratio == 0
        assert one("RealDiv", [f32(0, 1), f32(0, 0)], f32(NAN, INF)).ratio == 0
    assert one("Log", [f32(-1)], f32(0)).ratio == INF
    assert one("Log", [f32(0)], f32(INF)).ratio == INF


def test_overflow_only_where_the_result_is_too_large():
    assert one("Exp", [f32(89, 800)], f32(INF, INF)).ratio == 0
    assert one("Exp", [f32(80)], f32(INF)).ratio == INF
    assert one("Exp", [f32(89)], f32(-INF)).ratio == INF
    half = np.array([300, 300], np.float16)
    assert one("Mul", [half, half], np.array([INF, 65504], np.float16)).ratio == 0
    assert one("Mul", [half, half], np.array([-INF, 0], np.float16)).ratio == INF


def test_implementations_may_treat_nan_operands_of_max_their_way():
    assert one("Relu", [f32(NAN, 1)], f32(0, 1)).ratio == 0
    assert one("Relu", [f32(NAN, 1)], f32(NAN, 1)).ratio == 0
    error = one("Maximum", [f32(NAN, 1), f32(2, 3)], f32(2, 3))
    assert (error.ratio, error.unjudged) == (0, 1)


def test_subnormals_may_be_flushed_but_normals_not():
    small = f32(1e-39)
    assert one("Mul", [small, f32(1)], f32(0)).ratio <= 1
    assert one("Mul", [small, f32(1e30)], f32(0)).ratio <= 1
    assert one("Mul", [f32(1e-30), f32(1)], f32(0)).ratio > RATIO_LIMIT
    assert one("Identity", [small], f32(0)).ratio == INF
    a, b = f32(1e-20, 1e-20).reshape(1, 2), f32(1e-20, 1e-16).reshape(2, 1)
    assert one("MatMul", [a, b], f32(1e-36).reshape(1, 1)).ratio <= 1


# --- fused ops ----------------------------------------------------------------------------------------------------


def fused(rng, *, relu=True):
    originals = ["net/MatMul", "net/BiasAdd"] + ["net/Relu"] * relu
    types = ["MatMul", "BiasAdd"] + ["Relu"] * relu
    attrs = {"_datadump_original_op_names": originals, "_datadump_original_op_types": types, "transpose_x1": False}
    inputs = [rng.normal(size=s).astype(F32) for s in ((64, 40), (40, 24), (24,))]
    return Op("net_MatMulnet_BiasAdd", "MatMulV2", attrs=attrs, output_ports=(Port("float32", (64, 24)),)), inputs


@pytest.mark.parametrize("half", [False, True])
def test_a_fused_layer(half):
    op, (a, b, bias) = fused(np.random.default_rng(1))
    if half:
        a, b = a.astype(np.float16), b.astype(np.float16)
    out = np.maximum(a.astype(F32) @ b.astype(F32) + bias, 0)
    (error,) = local_error(op, [a, b, bias], [out])
    assert (error.reason, error.ratio <= 1) == ("", True)
    out[3, 3] += F32(0.01)
    assert local_error(op, [a, b, bias], [out])[0].ratio > 100


def test_dropped_members_are_named():
    op, (a, b, bias) = fused(np.random.default_rng(2))
    whole = np.maximum(a @ b + bias, 0)
    without_bias, without_relu = np.maximum(a @ b, 0), a @ b + bias
    names = [(h.member, h.member_type) for h in fusion_hypotheses(op, [a, b, bias])]
    assert names == [("net/BiasAdd", "BiasAdd"), ("net/Relu", "Relu")]
    outcomes = {"net/BiasAdd": without_bias, "net/Relu": without_relu}
    for dropped, out in outcomes.items():
        for member in ("net/MatMul", *outcomes):
            assert explains(op, [a, b, bias], [out], member) == (member == dropped)
    assert not any(explains(op, [a, b, bias], [whole], member) for member in outcomes)
    assert not any(explains(op, [a, b, bias], [whole * F32(1.5)], member) for member in outcomes)


def test_multiply_add_chain():
    rng = np.random.default_rng(3)
    x, y, z = (rng.normal(size=(50, 8)).astype(F32) for _ in range(3))
    attrs = {"_datadump_original_op_names": ["a/mul", "a/add"], "_datadump_original_op_types": ["Mul", "AddV2"]}
    op = Op("a_mula_add", "FusedMulAdd", attrs=attrs)
    fma = (x.astype(np.float64) * y + z).astype(F32)
    for out in (x * y + z, fma):
        assert local_error(op, [x, y, z], [out])[0].ratio <= 1
    assert explains(op, [x, y, z], [x * y], "a/add")
    assert explains(op, [x, y, z], [x + z], "a/mul")
    assert local_error(Op("plain", "FusedMulAdd"), [x, y, z], [fma])[0].ratio <= 1


def test_a_third_input_of_a_device_product_is_its_bias():
    _, (a, b, bias) = fused(np.random.default_rng(4))
    op = Op("m", "MatMulV2")
    assert local_error(op, [a, b, bias], [a @ b + bias])[0].ratio <= 1
    assert local_error(op, [a, b, None], [a @ b])[0].ratio <= 1
    assert local_error(op, [a, b, bias], [a @ b])[0].ratio > RATIO_LIMIT


def test_chains_that_cannot_be_told():
    op, inputs = fused(np.random.default_rng(5))
    (error,) = local_error(op, inputs[:2], [inputs[0] @ inputs[1]])
    assert error.ratio is None
    assert "reads 3" in error.reason
    unknown = Op("m", "MatMulV2", attrs={"_datadump_original_op_names": ["a", "b", "c"]})
    assert "types of the fused ops" in replay_op(unknown, inputs).reason
    assert fusion_hypotheses(unknown, inputs) == []
    odd = Op("m", "X", attrs={"_datadump_original_op_names": ["a", "b"], "_datadump_original_op_types": ["Mul", "Odd"]})
    assert "Odd" in replay_op(odd, inputs).reason
    assert not explains(odd, inputs, inputs[:1], "b")


# --- which arithmetic ---------------------------------------------------------------------------------------------


def to(x, dtype):
    return x.astype(dtype).astype(F32)


def test_the_arithmetic_behind_an_error_is_named():
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(50, 300)).astype(F32), rng.normal(size=(300, 40)).astype(F32)
    op = Op("m", "MatMulV2")
    assert precision_fit(op, [a, b], [to(a, ml_dtypes.bfloat16) @ to(b, ml_dtypes.bfloat16)]) == "bfloat16"
    small_a, small_b = a * F32(1e-4), b
    halves = to(small_a, np.float16) @ to(small_b, np.float16)
    assert precision_fit(op, [small_a, small_b], [halves]) == "float16"
    assert precision_fit(op, [a, b], [a @ b]) is None
    assert precision_fit(op, [a, b], [(a @ b) * F32(1.5)]) is None
    gathered = to(a, ml_dtypes.bfloat16)[[3, 1]]
    assert precision_fit(Op("g", "GatherV2"), [a, np.array([3, 1]), np.int32(0)], [gathered]) == "bfloat16"


# --- reasons ------------------------------------------------------------------------------------------------------

X = np.ones((3, 4), F32)
REASONS = {
    "missing input": (Op("o", "Add"), [X, None], "input 1 missing"),
    "no input": (Op("o", "Add"), [], "input 0 missing"),
    "too many": (Op("o", "Relu"), [X, X], "at most 1"),
    "host": (Op("o", "FrameworkOp", attrs={"original_type": "PyFunc"}), [X], "PyFunc runs on the host"),
    "random": (Op("o", "RandomUniform"), [X], "is random"),
    "unknown": (Op("o", "NoSuchOp"), [X], "no kernel for op type NoSuchOp"),
    "product shapes": (Op("o", "MatMul"), [X, X], "do not fit"),
    "broadcast": (Op("o", "Add"), [X, np.ones(5, F32)], "broadcast"),
    "index": (Op("o", "GatherV2"), [X, np.array([3]), np.int32(0)], "index 3 outside 0..2"),
    "axis": (Op("o", "ReduceSum"), [X, np.array([2])], "axis 2 outside rank 2"),
    "reshape": (Op("o", "Reshape"), [X, np.array([5])], "reshape"),
    "huge": (Op("o", "Fill"), [np.array([2**20, 2**20]), F32(0)], "too large"),
    "negative": (Op("o", "Fill"), [np.array([-1]), F32(0)], "negative"),
    "divide": (Op("o", "FloorDiv"), [np.array([1]), np.array([0])], "division by zero"),
    "strings": (Op("o", "Identity"), [np.array(["a"])], "no numbers"),
    "cast": (Op("o", "Cast"), [X], "target dtype unknown"),
    "cast name": (Op("o", "Cast", attrs={"DstT": "float99"}), [X], "float99"),
    "adam": (Op("o", "ApplyAdamD"), [X] * 10, "wanted ()"),
}


@pytest.mark.parametrize("case", REASONS)
def test_reasons(case):
    op, inputs, words = REASONS[case]
    replay = replay_op(op, inputs)
    assert not replay.replayable
    assert replay.reason.startswith("not replayable: ")
    assert words in replay.reason
    if op.type == "Cast":  # a dumped output tells its dtype
        return
    (error,) = local_error(op, inputs, [X])
    assert (error.ratio, error.max_error, error.faulty) == (None, None, False)
    assert error.reason == replay.reason


def test_outputs_that_do_not_fit():
    (error,) = local_error(Op("o", "Relu"), [X], [X[:2]])
    assert error.reason == "shape (2, 4) instead of (3, 4)"
    missing, extra = local_error(Op("o", "Relu"), [X], [None, X])
    assert missing.reason == "output missing"
    assert "no such output" in extra.reason
    assert local_error(Op("o", "Relu"), [X], []) == []


@given(data=st.data(), name=st.sampled_from(sorted({*KERNELS, *ALIASES})))
@settings(max_examples=200, deadline=None)
def test_no_data_raises(data, name):
    shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    dtype = st.sampled_from([F32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64, np.bool_])
    inputs = []
    for _ in range(data.draw(st.integers(0, 5))):
        values = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-2, 4, size=data.draw(shapes))
        inputs.append(None if data.draw(st.integers(0, 9)) == 0 else np.asarray(values).astype(data.draw(dtype)))
    op = Op("o", name, attrs={"axis": data.draw(st.sampled_from([0, -1, 7, None]))})
    replay = replay_op(op, inputs)
    assert replay.replayable != bool(replay.reason)
    for own, bound in zip(replay.own, replay.bound, strict=True):
        assert own.shape == bound.shape
        assert not np.isnan(bound).any()
    for error in local_error(op, inputs, list(replay.own)):
        assert error.reason or error.ratio <= 1.0


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=3), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_running_errors_hold(values, seed):
    """A formula in float32 lies within the running error of the same formula."""
    a, b, c = (np.asarray(v, F32) for v in values)
    x, y, z = (Bounded(np.asarray(v, np.float64), np.zeros(()), 2.0**-24) for v in (a, b, c))
    result = (x * y - z) / (x + y) * z - 1.0
    got = (a * b - c) / (a + b) * c - F32(1)
    assert abs(float(got) - float(result.value)) <= float(result.error)
