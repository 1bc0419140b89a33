"""Dumps made as a user makes them, through the facade, with the right values beside them in ``expected.npz``.

``tests/hosts`` opens both in the workbench, whatever TensorFlow made them. The values do not come from our hooks: they
are what was fed, and what TensorFlow's own debugger saw in a second session from the same start.
"""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1

ODD = ("long_" + "x" * 295, "CON", "a.b", "A.b", "x-y/z.w")
SHAPES = [(), (0, 3), (2, 3)]
TYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64", "bfloat16",
    "complex64", "complex128", "string",
]  # fmt: skip


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Wraps a session as ``sess_dump`` does, to record step 1 below tmp_path."""
    monkeypatch.setenv("ROOT_DIR", str(tmp_path))
    monkeypatch.setenv("TF_DUMP_STEP", "1")
    return importlib.import_module("precision_tool.tf_config").sess_dump


def raw(array):
    """Types that NumPy lacks as the unsigned integers of their width: bytes are compared, not numbers."""
    array = np.asarray(array)
    if array.dtype.kind == "O":
        return np.array([x if isinstance(x, bytes) else x.encode() for x in array.ravel()], "S").reshape(array.shape)
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def write_expected(folder, values):
    """Names, dtypes and arrays; the arrays are named by number, since names of tensors are no names of files."""
    names = sorted(values)
    arrays = {f"v{number}": raw(values[name]) for number, name in enumerate(names)}
    dtypes = np.array([np.asarray(values[name]).dtype.name for name in names])
    np.savez(str(folder / "expected.npz"), names=np.array(names), dtypes=dtypes, **arrays)


def debugged(session, folder, graph, fetches, feeds):
    """What TensorFlow's own debugger sees of one run, without what may race in it (see test_session.py)."""
    from tensorflow.python.debug.lib.debug_data import DebugDumpDir
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    folder.mkdir()
    DumpingDebugWrapperSession(session, session_root=str(folder)).run(fetches, feeds)
    (run,) = folder.glob("run_*")
    known = {op.name: op for op in graph.get_operations()}
    found = {}
    for datum in DebugDumpDir(str(run), validate=False).dumped_tensor_data:
        op = known.get(datum.node_name)
        if op is None:
            continue
        tensor = op.outputs[datum.output_slot]
        racing = tensor.dtype._is_ref_dtype and op.type == "Assign" and not tensor.consumers()
        if not racing and tensor.dtype.base_dtype not in (tf.resource, tf.variant):
            found[tensor.name] = datum.get_tensor()
    return found


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_training_step(tmp_path, click_model, config, recorded, use_resource):
    model = click_model(use_resource)
    fetches = [model.loss, model.train]
    losses = []
    with tf1.Session(graph=model.graph, config=config()) as session:
        session.run(model.init)
        losses.append(session.run(fetches, model.batches[0])[0])
        expected = debugged(session, tmp_path / "stock", model.graph, fetches, model.batches[1])
    with recorded(sess=tf1.Session(graph=model.graph, config=config())) as session:
        session.run(model.init)
        ours = [session.run(fetches, batch)[0] for batch in model.batches[:2]]
    expected.update({tensor.name: value for tensor, value in model.batches[1].items()})
    assert len(expected) > 60
    assert ours[0].tobytes() == losses[0].tobytes()
    assert ours[1].tobytes() == expected[model.loss.name].tobytes()
    write_expected(tmp_path, expected)


def sample(name, shape, random):
    """Values of a type, the odd ones first."""
    count = int(np.prod(shape))
    if name == "string":
        odd = [b"", b"\xff\xfe bytes", "層".encode(), b"a\nb"]
        return np.array((odd + [b"plain"] * count)[:count], dtype=object).reshape(shape)
    if name == "bool":
        return random.randint(0, 2, size=shape).astype(bool)
    if name.startswith(("int", "uint")):
        limits = np.iinfo(name)
        return np.array([limits.min, limits.max, *range(count)][:count], name).reshape(shape)
    odd = [np.nan, -0.0, np.inf, -np.inf, 1e-40, 1.0 / 3]
    numbers = np.array((odd + [0.1] * count)[:count]).reshape(shape)
    if name.startswith("complex"):
        return (numbers + 1j * numbers[::-1] if shape else numbers * 1j).astype(name)
    return numbers.astype(tf.as_dtype(name).as_numpy_dtype)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_every_type_and_odd_names(tmp_path, config, recorded):
    random = np.random.RandomState(3)
    graph = tf.Graph()
    feeds, same = {}, []
    with graph.as_default():
        for name in TYPES:
            for number, shape in enumerate(SHAPES):
                fed = tf1.placeholder(tf.as_dtype(name), shape, name=f"fed/{name}_{number}")
                feeds[fed] = sample(name, shape, random)
                same.append(tf.identity(fed, name=f"same/{name}_{number}"))
        weight = tf1.get_variable("weight", initializer=np.ones([3], np.float32))
        chain = [weight * 2.0]
        for name in ODD:
            chain.append(tf.identity(chain[-1], name=name))
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(chain[-1]), name="train")
        init = tf1.global_variables_initializer()
    with recorded(sess=tf1.Session(graph=graph, config=config())) as session:
        session.run(init)
        for _ in range(2):
            fetched = session.run([train, chain[-1], *same], feeds)[2:]
    expected = {}
    for index, (fed, value) in enumerate(feeds.items()):
        expected[fed.name] = expected[same[index].name] = value
        assert raw(fetched[index]).tobytes() == raw(value).tobytes(), fed.name
    weight_then = np.ones(3, np.float32) - np.float32(0.1) * np.float32(2)
    for tensor in chain:  # TensorFlow has made A.b another name beside a.b
        expected[tensor.name] = weight_then * np.float32(2)
    (record,) = (tmp_path / "precision_data" / "tf" / "tf_debug").glob("run_*")
    assert json.loads((record / "record.json").read_text())["complete"]
    write_expected(tmp_path, expected)
