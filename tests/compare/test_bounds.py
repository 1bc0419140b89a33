"""Honest arithmetic stays within the bounds whatever its order; faults, subtle ones included, are far beyond."""

import ml_dtypes
import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT, confidence
from compare.evaluation import evaluate
from compare.local_error import judge
from compare.replay import local_error
from dumpers.graph import Op

F32 = np.float32
ORDERS = 200


# --- honest accumulation, terms a_k b_k over the last axis; b None for plain sums -----------------------------------


def sequential(a, b, rng):
    total = np.zeros(a.shape[:-1], F32)
    for k in range(a.shape[-1]):
        total = total + (a[..., k] if b is None else a[..., k] * b[..., k])
    return total


def reverse(a, b, rng):
    return sequential(a[..., ::-1], None if b is None else b[..., ::-1], rng)


def permuted(a, b, rng):
    order = rng.permutation(a.shape[-1])
    return sequential(a[..., order], None if b is None else b[..., order], rng)


def contracted(a, b, rng):
    """Fused multiply-add: the product is not rounded (float64 holds it exactly)."""
    if b is None:
        return permuted(a, b, rng)
    total = np.zeros(a.shape[:-1], F32)
    for k in range(a.shape[-1]):
        total = (a[..., k].astype(np.float64) * b[..., k] + total).astype(F32)
    return total


def blocked(a, b, rng):
    terms = a if b is None else a * b
    size = int(rng.integers(1, terms.shape[-1] + 1))
    starts = range(0, terms.shape[-1], size)
    parts = [sequential(terms[..., s : s + size], None, rng) for s in starts]
    return sequential(np.stack(parts, axis=-1), None, rng)


def lanes(a, b, rng):
    terms = a if b is None else a * b
    width = min(int(rng.choice([2, 4, 8, 16])), terms.shape[-1])
    parts = [sequential(terms[..., lane::width], None, rng) for lane in range(width)]
    return pairwise(np.stack(parts, axis=-1), None, rng)


def pairwise(a, b, rng):
    terms = a if b is None else a * b
    while terms.shape[-1] > 1:
        half = terms.shape[-1] // 2
        rest = terms[..., 2 * half :]
        terms = np.concatenate([terms[..., :half] + terms[..., half : 2 * half], rest], axis=-1)
    return terms[..., 0]


WAYS = (sequential, reverse, permuted, contracted, blocked, lanes, pairwise)


# --- data as it occurs -------------------------------------------------------------------------------------------


def normal(rng, shape):
    return rng.normal(size=shape).astype(F32)


def activations(rng, shape):
    return np.maximum(rng.normal(size=shape) + 0.5, 0).astype(F32)


def positive(rng, shape):
    return rng.uniform(0.2, 1.5, size=shape).astype(F32)


def constant(rng, shape):
    return np.full(shape, F32(rng.uniform(0.1, 1)), F32)


def masked_constant(rng, shape):
    return (rng.integers(0, 2, size=shape) * F32(rng.uniform(0.1, 1))).astype(F32)


def scattered(rng, shape):
    return (rng.normal(size=shape) * np.exp(rng.normal(size=shape) * 2)).astype(F32)


def grouped(rng, shape):
    """Positive numbers first, then negative ones: a batch sorted by label."""
    return np.sort(rng.normal(size=shape).astype(F32), axis=-1)[..., ::-1]


DATA = (normal, activations, positive, constant, masked_constant, scattered, grouped)


def cases(lengths, seed):
    """Yields ORDERS settings: generator, data, accumulation and K, each combination in turn."""
    for number in range(ORDERS):
        rng = np.random.default_rng([seed, number])
        yield rng, DATA[number % len(DATA)], WAYS[number // len(DATA) % len(WAYS)], lengths[number % len(lengths)]


def worst(found):
    return max(error.ratio for error in found)


@pytest.mark.parametrize("half", [False, True])
def test_matrix_products_in_any_order(half):
    for rng, data, way, length in cases((1, 2, 3, 7, 40, 128, 512, 1024), 1):
        a, b = data(rng, (6, length)), (normal if data is grouped else data)(rng, (length, 5))
        if half:
            a, b = a.astype(np.float16), b.astype(np.float16)
        terms = np.broadcast_arrays(a.astype(F32)[:, None, :], b.astype(F32).T[None])
        out = way(*terms, rng)
        assert worst(local_error(Op("m", "MatMulV2"), [a, b], [out])) <= 1, (data.__name__, way.__name__, length)


def test_gradient_products_in_any_order():
    for rng, data, way, length in cases((512, 130, 16), 2):
        x, dy = activations(rng, (length, 4)), data(rng, (length, 3))
        terms = np.broadcast_arrays(x.T[:, None, :], dy.T[None])
        op = Op("m", "MatMulV2", attrs={"transpose_x1": True})
        assert worst(local_error(op, [x, dy], [way(*terms, rng)])) <= 1, (data.__name__, way.__name__, length)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_sums_and_means_in_any_order(dtype):
    axis = np.array([1], np.int32)
    for rng, data, way, length in cases((1, 2, 5, 16, 512, 2000), 3):
        x = data(rng, (9, length)).astype(dtype)
        total = way(x.astype(F32), None, rng)
        place = (data.__name__, way.__name__, length)
        assert worst(local_error(Op("s", "ReduceSum"), [x, axis], [total.astype(dtype)])) <= 1, place
        mean = (total / F32(length)).astype(dtype)
        assert worst(local_error(Op("s", "ReduceMean"), [x, axis], [mean])) <= 1, place
        scaled = way(x.astype(F32) * (F32(1) / F32(length)), None, rng).astype(dtype)
        assert worst(local_error(Op("s", "ReduceMean"), [x, axis], [scaled])) <= 1, place
        gradient = local_error(Op("s", "BiasAddGrad"), [x.T], [total.astype(dtype)])
        assert worst(gradient) <= 1, place


def test_norms_and_sums_of_tensors_in_any_order():
    for rng, data, way, length in cases((1, 2, 5, 40, 700), 4):
        x = data(rng, (length,))
        half = np.asarray(way(x, x, rng) / F32(2))
        assert worst(local_error(Op("l", "L2Loss"), [x], [half])) <= 1, (data.__name__, way.__name__, length)
        parts = data(rng, (30, min(length, 9)))
        out = way(parts, None, rng)
        assert worst(local_error(Op("a", "AddN"), list(parts.T), [out])) <= 1, (data.__name__, way.__name__, length)


def test_segment_sums_in_any_order():
    for rng, data, way, length in cases((30, 200, 900), 5):
        rows, ids = data(rng, (length, 3)), rng.integers(0, 40, size=length)
        out = np.zeros((41, 3), F32)
        for segment in np.unique(ids):
            out[segment] = way(rows[ids == segment].T, None, rng)
        count = np.int32(41)
        op = Op("u", "UnsortedSegmentSum")
        assert worst(local_error(op, [rows, ids, count], [out])) <= 1, (data.__name__, way.__name__, length)
        var = data(rng, (41, 3))
        added = var.copy()
        for segment in np.unique(ids):
            terms = np.concatenate([var[segment][None], rows[ids == segment]])
            added[segment] = way(terms.T, None, rng)
        scattered_add = local_error(Op("s", "ScatterAdd"), [var, ids, rows], [added])
        assert worst(scattered_add) <= 1, (data.__name__, way.__name__, length)


def test_softmax_in_any_order():
    for rng, data, way, length in cases((1, 2, 9, 100), 6):
        x = data(rng, (8, length)) * F32(3)
        peak = x.max(axis=1, keepdims=True)
        # exp of another library: a few units in the last place off.
        powers = (np.exp(x - peak) * (1 + rng.integers(-3, 4, size=x.shape) * 2.0**-23)).astype(F32)
        total = way(powers, None, rng)[:, None]
        assert worst(local_error(Op("s", "Softmax"), [x], [powers / total])) <= 1, (data.__name__, way.__name__)
        logs = x - peak - np.log(total)
        assert worst(local_error(Op("s", "LogSoftmax"), [x], [logs])) <= 1, (data.__name__, way.__name__)
        labels = rng.dirichlet(np.ones(length), size=8).astype(F32)
        outputs = [way(-labels, logs, rng), powers / total - labels]
        errors = local_error(Op("s", "SoftmaxCrossEntropyWithLogits"), [x, labels], outputs)
        assert worst(errors) <= 1, (data.__name__, way.__name__)


FUNCTIONS = {"Exp": np.exp, "Expm1": np.expm1, "Log": np.log, "Log1p": np.log1p, "Tanh": np.tanh,
             "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Softplus": lambda x: np.log1p(np.exp(x)), "Sqrt": np.sqrt,
             "Rsqrt": lambda x: 1 / np.sqrt(x), "Reciprocal": lambda x: 1 / x}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_other_libraries(name):
    """Up to 3 units in the last place off, in any direction; 1 for those that hardware rounds."""
    for number in range(ORDERS):
        rng = np.random.default_rng([7, number])
        x = np.exp(rng.normal(size=300) * 2) if name in ("Log", "Sqrt", "Rsqrt", "Reciprocal") else rng.normal(size=300)
        x = (np.abs(x) if name == "Log1p" else x).astype(F32)
        exact = FUNCTIONS[name](x.astype(np.float64))
        off = 1 if name in ("Sqrt", "Reciprocal") else 3
        out = (exact * (1 + rng.integers(-off, off + 1, size=300) * 2.0**-23)).astype(F32)
        assert worst(local_error(Op("f", name), [x], [out])) <= 1


def adam(inputs, variant):
    """ApplyAdam in float32, written in four honest ways."""
    var, m, v, power1, power2, lr, beta1, beta2, epsilon, grad = inputs
    one = F32(1)
    rate = lr * np.sqrt(one - power2) / (one - power1)
    if variant % 2:
        m, v = beta1 * m + (one - beta1) * grad, beta2 * v + (one - beta2) * grad * grad
    else:
        m, v = m + (grad - m) * (one - beta1), v + (grad * grad - v) * (one - beta2)
    step = rate * (m / (np.sqrt(v) + epsilon)) if variant // 2 % 2 else m * rate / (np.sqrt(v) + epsilon)
    return [var - step, m, v]


def adam_inputs(rng):
    m, v = normal(rng, (40, 8)) * F32(0.01), np.abs(normal(rng, (40, 8))) * F32(1e-4)
    step = int(rng.integers(0, 1000))
    scalars = [0.9 ** (step + 1), 0.999 ** (step + 1), 1e-3, 0.9, 0.999, 1e-8]
    if step % 3 == 0:
        m, v = m * F32(0), v * F32(0)
    grad = normal(rng, (40, 8)) * F32(10.0 ** rng.integers(-8, 1))
    return [normal(rng, (40, 8)), m, v, *(np.asarray(s, F32) for s in scalars), grad]


def test_adam_in_any_way():
    for number in range(ORDERS):
        inputs = adam_inputs(np.random.default_rng([8, number]))
        assert worst(local_error(Op("a", "ApplyAdamD"), inputs, adam(inputs, number))) <= 1


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("epsilon 1e-6", {8: 1e-6}),
        ("no bias correction", {3: 0.0, 4: 0.0}),
        ("beta2 0.99", {7: 0.99}),
        ("lr", {5: 2e-3}),
    ],
)
def test_wrong_adams_are_found(fault, changes):
    for number in range(20):
        inputs = adam_inputs(np.random.default_rng([9, number]))
        inputs[9] = np.where(np.abs(inputs[9]) < 1e-5, F32(1e-4), inputs[9])
        inputs[3], inputs[4] = F32(0.9**7), F32(0.999**7)
        wrong = [F32(changes[k]) if k in changes else x for k, x in enumerate(inputs)]
        assert worst(local_error(Op("a", "ApplyAdamD"), inputs, adam(wrong, 0))) > RATIO_LIMIT, fault


# --- faults ---------------------------------------------------------------------------------------------------------


def to_bfloat16(x):
    return x.astype(ml_dtypes.bfloat16).astype(x.dtype) if x.dtype.kind == "f" else x


def scaled(out):
    return out * out.dtype.type(1.5)


def dropped_tail(out):
    flat = out.reshape(-1).copy()
    flat[-max(1, flat.size // 100) :] = 0
    return flat.reshape(out.shape)


def one_nan(out):
    flat = out.reshape(-1).copy()
    flat[flat.size // 3] = np.nan
    return flat.reshape(out.shape)


def wrong_row(out):
    result = out.copy()
    result[len(out) // 2] = out[len(out) // 2 - 1]
    return result


def zero_rows(out):
    result = out.copy()
    result[len(out) // 2 : len(out) // 2 + 2] = 0
    return result


def product(shape_a, shape_b, **attrs):
    def run(a, b):
        a, b = a.astype(F32), b.astype(F32)
        return (a.T if attrs.get("transpose_x1") else a) @ (b.T if attrs.get("transpose_x2") else b)

    return Op("m", "MatMulV2", attrs=attrs), (shape_a, shape_b), run


def reduction(kind, shape, run, *extra):
    return Op("r", kind), (shape,), run, *extra


PRODUCTS = [
    product((512, 40), (40, 1024)),
    product((512, 1024), (1024, 512)),
    product((512, 512), (512, 256)),
    product((512, 256), (256, 128)),
    product((512, 128), (128, 1)),
    product((512, 40), (512, 1024), transpose_x1=True),
    product((512, 128), (512, 1), transpose_x1=True),
    product((512, 256), (512, 256), transpose_x2=True),
    product((512, 1), (128, 1), transpose_x2=True),
]


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda case: f"{case[1]}{'t' * len(case[0].attrs)}")
@pytest.mark.parametrize(("dtype", "data"), [(F32, normal), (F32, positive), (np.float16, activations)])
def test_faulty_products_are_found(case, dtype, data):
    op, shapes, run = case
    rng = np.random.default_rng(11)
    inputs = [data(rng, shape).astype(dtype) for shape in shapes]
    out = run(*inputs)
    replay = evaluate(op, inputs, ["float32"])
    ratio = {
        fault.__name__: found(replay, fault(out)) for fault in (scaled, dropped_tail, one_nan, wrong_row, zero_rows)
    }
    ratio["bf16_inputs"] = found(replay, run(*(to_bfloat16(x) for x in inputs)))
    shared = 0 if op.attrs.get("transpose_x1") else 1
    cut = [np.delete(inputs[0], -1, shared), np.delete(inputs[1], -1, 1 if op.attrs.get("transpose_x2") else 0)]
    ratio["drop_term"] = found(replay, run(*cut)) if inputs[0].shape[shared] > 1 else np.inf
    assert found(replay, out) <= 1
    assert min(ratio.values()) > 3 * RATIO_LIMIT, ratio


def found(replay, out):
    return judge(0, np.asarray(out), replay.exact[0], replay.bound[0]).ratio


REDUCTIONS = {
    "BiasAddGrad": ((512, 128), [], lambda x: x.sum(axis=0, dtype=F32)),
    "ReduceMean": ((512,), [np.array([0], np.int32)], lambda x: np.asarray(x.mean(dtype=F32))),
    "ReduceSum": ((512, 16, 8), [np.array([1], np.int32)], lambda x: x.sum(axis=1, dtype=F32)),
}


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("dtype", [F32, np.float16])
@pytest.mark.parametrize("data", [normal, activations, positive])
def test_faulty_reductions_are_found(kind, dtype, data):
    shape, extra, run = REDUCTIONS[kind]
    rounded = []
    for seed in range(20):
        x = data(np.random.default_rng([12, seed]), shape).astype(dtype)
        replay = evaluate(Op("r", kind), [x, *extra], ["float32"])
        out = run(x)
        assert found(replay, out) <= 1
        faults = (scaled, dropped_tail, one_nan) + ((wrong_row, zero_rows) if out.ndim else ())
        assert min(found(replay, fault(out)) for fault in faults) > 5 * RATIO_LIMIT
        rounded.append(found(replay, run(to_bfloat16(x))))
    # A single number can come out right by chance: rounding errors of 512 inputs may cancel (a few in a hundred do).
    assert np.quantile(rounded, 0.2 if kind == "ReduceMean" else 0.0) > RATIO_LIMIT, sorted(rounded)


@pytest.mark.parametrize("kind", ["BiasAddGrad", "ReduceSum"])
def test_half_precision_results_hide_bfloat16_inputs_only_in_sums_of_one_sign(kind):
    """With a float16 output its own rounding is the bound; mixed signs still show inputs that lost three bits."""
    shape, extra, run = REDUCTIONS[kind]
    x = normal(np.random.default_rng(15), shape).astype(np.float16)
    replay = evaluate(Op("r", kind), [x, *extra], ["float16"])
    assert found(replay, run(x).astype(np.float16)) <= 1
    assert found(replay, run(to_bfloat16(x)).astype(np.float16)) > RATIO_LIMIT


def test_faulty_segment_sums_are_found():
    rng = np.random.default_rng(13)
    rows, ids = normal(rng, (8192, 16)), rng.permutation(np.r_[np.arange(7800), rng.integers(0, 7800, 392)])
    inputs = [rows, ids, np.int32(7800)]
    out = np.zeros((7800, 16), F32)
    np.add.at(out, ids, rows)
    replay = evaluate(Op("u", "UnsortedSegmentSum"), inputs, ["float32"])
    assert found(replay, out) <= 1
    rounded = np.zeros_like(out)
    np.add.at(rounded, ids, to_bfloat16(rows))
    last_wins = np.zeros_like(out)
    last_wins[ids] = rows
    wrong = [fault(out) for fault in (scaled, dropped_tail, one_nan, wrong_row, zero_rows)]
    for faulty in (*wrong, rounded, last_wins):
        assert found(replay, faulty) > 100 * RATIO_LIMIT


@pytest.mark.parametrize("kind", ["Add", "Mul", "Sub", "RealDiv", "Sigmoid", "Tanh", "Exp", "Softplus", "Log1p"])
def test_faulty_element_wise_ops_are_found(kind):
    rng = np.random.default_rng(14)
    two = kind in ("Add", "Mul", "Sub", "RealDiv")
    inputs = [np.abs(normal(rng, (512, 64))) + F32(0.1) for _ in range(2 if two else 1)]
    out = evaluate(Op("e", kind), inputs, ["float32"]).own[0]
    assert worst(local_error(Op("e", kind), inputs, [out])) <= 1
    rounded = evaluate(Op("e", kind), [to_bfloat16(x) for x in inputs], ["float32"]).own[0]
    for faulty in (scaled(out), dropped_tail(out), one_nan(out), wrong_row(out), zero_rows(out), rounded):
        assert worst(local_error(Op("e", kind), inputs, [faulty])) > 100 * RATIO_LIMIT


def test_confidence_grows_slowly():
    assert 6 < confidence(1) < 7
    assert confidence(10**9) < 9.5
