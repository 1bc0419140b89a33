"""TensorFlow as the truth about single ops: what its raw op gives must lie within the bound of our replay."""

import ml_dtypes
import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT
from compare.replay import local_error, replay_op
from dumpers.graph import Op, Port

tf = pytest.importorskip("tensorflow")

INF, NAN = np.inf, np.nan
HALVES = ("float16", "bfloat16")
HOSTILE = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, -1e-310, 1e-40, -1e-40, 1e-38, 6e-8, -6e-5, 1e-3, -0.5, 17.0,
                    -17.0, 88.0, -88.0, 250.0, -300.0, 6.5e4, -7e4, 1e19, -2e19, 3e38, -3e38,
                    1e300, INF, -INF, NAN])  # fmt: skip
"""Zeros, subnormals and ends of every format, and numbers that are none."""


def eager_mode():
    """For a fixture: a module that ran before may have left the process in graph mode."""
    from tensorflow.python.eager import context

    with context.eager_mode():
        yield


def check(tf_type, arguments, attrs=None, *, dtypes=("float32", "float64", "float16"), op_type=None, open_ended=False):
    """Runs the raw op in each dtype and lets the replay judge it, under TensorFlow's name and the device's.

    Then a fault is planted in each float output, and must be found. ``open_ended``: some elements cannot be judged.
    """
    attrs = attrs or {}
    for dtype in dtypes:
        inputs, outputs = ran(tf_type, arguments, attrs, dtype)
        for name in dict.fromkeys([tf_type, op_type or tf_type]):
            graph_op = Op("op", name, attrs=named(attrs), output_ports=tuple(Port(o.dtype.name) for o in outputs))
            judged = local_error(graph_op, inputs, outputs)
            assert judged
            for error in judged:
                assert error.reason == "", (name, dtype, error)
                assert error.ratio <= 1.0, (name, dtype, error)
                assert open_ended or error.unjudged == 0, (name, dtype, error)
            replay = replay_op(graph_op, inputs)
            plant(graph_op, inputs, outputs, replay)
            for exact, out in zip(replay.exact, outputs, strict=True):
                if dtype == "float64" and out.dtype.kind == "f" and not open_ended:
                    np.testing.assert_allclose(exact, out, rtol=1e-10, atol=1e-13)


def ran(tf_type, arguments, attrs, dtype):
    """Inputs and outputs of the raw op, float64 arguments brought to the dtype."""
    kwargs = {k: [typed(x, dtype) for x in v] if isinstance(v, list) else typed(v, dtype)
              for k, v in arguments.items()}  # fmt: skip
    got = getattr(tf.raw_ops, tf_type)(**{k: unlisted(v) for k, v in kwargs.items()}, **attrs)
    outputs = [part.numpy() for part in (got if isinstance(got, (list, tuple)) else [got])]
    return [np.asarray(x) for v in kwargs.values() for x in (v if isinstance(v, list) else [v])], outputs


def plant(op, inputs, outputs, replay):
    """Moves the element with the least room by a few times its bound, which must be beyond the limit."""
    for slot, (out, bound) in enumerate(zip(outputs, replay.bound, strict=True)):
        fine = np.isfinite(np.asarray(out, np.float64)) & np.isfinite(bound)
        if out.dtype.kind not in "fV" or not fine.any():
            continue
        place = np.unravel_index(np.argmin(np.where(fine, bound, INF)), out.shape)
        moved = np.array(out)
        step = 2 * np.abs(np.spacing(np.asarray(out[place], np.float32 if out.dtype.itemsize == 2 else out.dtype)))
        step = max(float(step) * (2.0**17 if out.dtype.itemsize == 2 else 1), 1e-300)
        # Towards zero, where no number is infinite; away from a zero.
        away = -1.0 if out[place] > 0 else 1.0
        moved[place] = np.asarray(float(out[place]) + away * max(4 * RATIO_LIMIT * bound[place], step), out.dtype)
        if moved[place] == out[place]:
            moved[place] = 1.0
        got = [moved if number == slot else part for number, part in enumerate(outputs)]
        assert local_error(op, inputs, got)[slot].ratio > RATIO_LIMIT, (op.type, slot, place, out[place], moved[place])


def typed(value, dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype) if value.dtype == np.float64 else value


def unlisted(value):
    return [tf.constant(x) for x in value] if isinstance(value, list) else tf.constant(value)


def named(attrs):
    return {k: v.as_datatype_enum if isinstance(v, tf.DType) else v for k, v in attrs.items()}
