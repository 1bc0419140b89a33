"""TensorFlow as the truth about single ops: what its raw op gives must lie within the bound of our replay."""

import numpy as np
import pytest

from compare.replay import local_error, replay_op
from dumpers.graph import Op, Port

tf = pytest.importorskip("tensorflow")


def eager_mode():
    """For a fixture: a module that ran before may have left the process in graph mode."""
    from tensorflow.python.eager import context

    with context.eager_mode():
        yield


def check(tf_type, arguments, attrs=None, *, dtypes=("float32", "float64", "float16"), op_type=None):
    """Runs the raw op in each dtype and lets the replay judge it, under TensorFlow's name and the device's."""
    attrs = attrs or {}
    for dtype in dtypes:
        kwargs = {k: [typed(x, dtype) for x in v] if isinstance(v, list) else typed(v, dtype)
                  for k, v in arguments.items()}  # fmt: skip
        got = getattr(tf.raw_ops, tf_type)(**{k: unlisted(v) for k, v in kwargs.items()}, **attrs)
        outputs = [part.numpy() for part in (got if isinstance(got, (list, tuple)) else [got])]
        inputs = [np.asarray(x) for v in kwargs.values() for x in (v if isinstance(v, list) else [v])]
        for name in dict.fromkeys([tf_type, op_type or tf_type]):
            graph_op = Op("op", name, attrs=named(attrs), output_ports=tuple(Port(o.dtype.name) for o in outputs))
            judged = local_error(graph_op, inputs, outputs)
            assert judged
            for error in judged:
                assert error.reason == "", (name, dtype, error)
                assert error.ratio <= 1.0, (name, dtype, error)
                assert error.unjudged == 0, (name, dtype, error)
            replay = replay_op(graph_op, inputs)
            for exact, out in zip(replay.exact, outputs, strict=True):
                if dtype == "float64" and out.dtype.kind == "f":
                    np.testing.assert_allclose(exact, out, rtol=1e-10, atol=1e-13)


def typed(value, dtype):
    return np.asarray(value, dtype) if value.dtype == np.float64 else value


def unlisted(value):
    return [tf.constant(x) for x in value] if isinstance(value, list) else tf.constant(value)


def named(attrs):
    return {k: v.as_datatype_enum if isinstance(v, tf.DType) else v for k, v in attrs.items()}
