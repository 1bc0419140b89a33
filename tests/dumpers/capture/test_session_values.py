"""Odd tensors, errors of the step, control flow, and names that the debugger cannot write."""

from __future__ import annotations

import numpy as np
import pytest

from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


def record(graph, fetches, folder, config, layout="pack", **run):
    """Runs once, recorded, and returns the result."""
    with record_session(tf1.Session(graph=graph, config=config()), folder, parse_steps(""), keep=layout) as session:
        with graph.as_default():
            session.run(tf1.global_variables_initializer())
        return session.run(fetches, **run)


def entries(manifest):
    return {"{}:{}".format(t["op"], t["output"]): t for t in manifest["tensors"]}


def _variable(op):
    """Name of the variable whose value an op reads, through the reading op."""
    while op.type not in ("VariableV2", "VarHandleOp") and op.inputs:
        op = op.inputs[0].op
    return op.name


def test_odd_tensors(tmp_path, config, manifests, values):
    """FC01: everything is listed, what has a value has it."""
    graph = tf.Graph()
    with graph.as_default():
        variable = tf1.get_variable("v", initializer=np.float32(2), use_resource=True)
        fetches = [
            tf.constant([b"a", b"bc"], name="text"),
            tf.constant([True, False], name="flag"),
            tf.constant(complex(np.nan, 1), tf.complex64, name="complex"),
            tf.constant([1, -2.5], tf.bfloat16, name="brain"),
            tf.zeros([0, 4], name="empty"),
            tf.constant(7, tf.int64, name="count"),
            tf.constant([1, 2], tf.float16, name="half"),
            tf.quantization.quantize([0.0, 1.0], 0.0, 1.0, tf.quint8, name="quant").output,
            tf.identity(
                tf.raw_ops.TensorListLength(
                    input_handle=tf.raw_ops.EmptyTensorList(
                        element_shape=[1], max_num_elements=3, element_dtype=tf.float32, name="list"
                    )
                ),
                name="length",
            ),
            variable.assign_add(1.0),
        ]
    record(graph, fetches, tmp_path, config)
    (manifest,) = manifests(tmp_path)
    found, listed = values(manifest), entries(manifest)
    assert found["text:0"].tolist() == [b"a", b"bc"]
    assert listed["text:0"]["dtype"] == "string"
    assert found["flag:0"].dtype == bool
    assert np.isnan(found["complex:0"].real)
    assert found["complex:0"].imag == 1
    assert found["brain:0"].dtype == np.dtype("V2")
    assert listed["brain:0"]["dtype"] == "bfloat16"
    assert found["brain:0"].view(np.uint16).tolist() == [0x3F80, 0xC020]
    assert found["empty:0"].shape == (0, 4)
    assert found["count:0"].shape == ()
    assert found["half:0"].dtype == np.float16
    assert found["quant:0"].dtype == np.uint8
    assert listed["quant:0"]["dtype"] == "uint8"
    for name, dtype in (("v:0", "resource"), ("list:0", "variant")):
        assert listed[name]["file"] is None
        assert listed[name]["note"] == "no value: " + dtype


@pytest.mark.parametrize("layout", ["pack", "npy"])
@pytest.mark.parametrize("use_resource", [True, False])
def test_long_names_and_colliding_names(tmp_path, config, manifests, values, use_resource, layout):
    """FC02: the process goes on, every tensor has a file of its own."""
    graph = tf.Graph()
    names = {}
    with graph.as_default():
        for length in (200, 221, 222, 230, 255, 300):
            name = "n" * length
            names[name] = tf1.get_variable(name, initializer=np.float32([length]), use_resource=use_resource)
        names["tower/out"] = tf.constant([2.0, 2.0], name="tower/out")
        names["tower_out"] = tf.constant([3.0, 3.0], name="tower_out")
        total = tf.add_n([tf.reduce_sum(t * t) for t in names.values()])
        train = tf1.train.GradientDescentOptimizer(1.0).minimize(total)
    result = record(graph, [train, total], tmp_path, config, layout)
    assert result[1] == sum(n * n for n in (200, 221, 222, 230, 255, 300)) + 26
    (manifest,) = manifests(tmp_path)
    assert manifest["complete"]
    found = values(manifest)
    assert found["tower/out:0"].tolist() == [2, 2]
    assert found["tower_out:0"].tolist() == [3, 3]
    for length in (200, 221, 222, 230, 255, 300):
        name = "n" * length
        consumers = [op.inputs[0].name for op in graph.get_operations() if op.type == "Mul" and _variable(op) == name]
        assert consumers
        for tensor in consumers + ([] if use_resource else [name + ":0"]):
            assert found[tensor].tolist() == [length], tensor
    if layout == "npy":
        files = [t["file"] for t in manifest["tensors"] if t["file"]]
        assert len(files) == len(set(files))


def test_names_that_differ_in_case_only(tmp_path, config, manifests, values):
    definition = tf1.GraphDef()
    for name, value in (("Tower/x", 2.0), ("tower/x", 3.0)):
        node = definition.node.add(name=name, op="Const")
        node.attr["dtype"].type = tf.float32.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf1.make_tensor_proto(value))
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")
    assert record(graph, ["Tower/x:0", "tower/x:0"], tmp_path, config) == [2.0, 3.0]
    found = values(manifests(tmp_path)[0])
    assert (found["Tower/x:0"], found["tower/x:0"]) == (2.0, 3.0)


@pytest.mark.parametrize("use_resource", [True, False])
def test_errors_are_those_of_the_plain_session(tmp_path, config, manifests, values, use_resource):
    """FC03 (a) to (c) and (e)."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, None], name="x")
        w = tf1.get_variable("w", initializer=np.ones([2, 2], "f4"), use_resource=use_resource)
        loss = tf.reduce_sum(tf.matmul(x, w), name="loss")
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        drawn = tf.identity(tf1.random_uniform([2, 2]), name="drawn")
        logarithm = tf1.log(x, name="log") + 0.0 * drawn + 0.0 * tf.reduce_sum(w, name="weights")
        logarithm = tf.identity(tf1.log(x, name="log2"), name="same") + logarithm * 0.0
        with tf.control_dependencies([train]):
            checked = tf1.check_numerics(logarithm, "log of x", name="checked")
        data = tf1.data.make_one_shot_iterator(tf1.data.Dataset.range(2)).get_next()
        step = tf.group(train, data)
        init = tf1.global_variables_initializer()
    good, clash, negative = np.ones([2, 2], "f4"), np.ones([2, 3], "f4"), -np.ones([2, 2], "f4")

    def errors(session):
        caught = []

        def attempt(fetches, value):
            try:
                session.run(fetches, {x: value})
                caught.append(None)
            except tf.errors.OpError as error:
                caught.append((type(error), error.message.splitlines()[0]))

        with session:
            attempt(train, good)
            session.run(init)
            attempt(train, clash)
            attempt([train, checked], negative)
            for _ in range(3):
                attempt(step, good)
        return caught

    plain = errors(tf1.Session(graph=graph, config=config()))
    ours = errors(record_session(tf1.Session(graph=graph, config=config()), tmp_path, parse_steps("")))
    assert ours == plain
    kinds = [caught and caught[0] for caught in plain]
    assert kinds[0] is tf.errors.FailedPreconditionError
    assert kinds[1:] == [
        tf.errors.InvalidArgumentError,
        tf.errors.InvalidArgumentError,
        None,
        None,
        tf.errors.OutOfRangeError,
    ]
    records = manifests(tmp_path)
    assert [r["complete"] for r in records] == [False, False, False, True, True]
    assert "InvalidArgumentError" in records[2]["reason"]
    assert [r["step"] for r in records[3:]] == [0, 1]
    failed = values(records[2])
    assert np.array_equal(failed["x:0"], negative)
    assert np.isnan(failed["log:0"]).all()
    assert np.isnan(failed["same:0"]).all()
    assert entries(records[2])["log:0"]["note"] == "evaluated again after the step failed"
    for name in ("drawn:0", "weights:0"):  # random, and changed by the train op that ran before
        assert name not in failed
        assert entries(records[2])[name]["note"] == "no value: the run failed"


@pytest.fixture
def control_flow_v1():
    """Branches and loops as old graphs have them; the process gets its setting back."""
    enabled = tf1.control_flow_v2_enabled()
    tf1.disable_control_flow_v2()
    yield
    if enabled:
        tf1.enable_control_flow_v2()


def test_branches_and_loops(tmp_path, config, manifests, values, control_flow_v1):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")
        chosen = tf1.cond(x > 0, lambda: tf.multiply(x, 2.0, name="yes"), lambda: tf.multiply(x, 3.0, name="no"))
        looped = tf1.while_loop(lambda i: i < 5.0, lambda i: tf.add(i, 1.0, name="inc"), [x])
        total = tf.add(chosen, looped, name="total")
        plain = tf1.Session(graph=graph, config=config()).run(total, {x: 1.0})
    assert record(graph, total, tmp_path, config, feed_dict={x: 1.0}) == plain == 7.0
    (manifest,) = manifests(tmp_path)
    found, listed = values(manifest), entries(manifest)
    assert found["cond/yes:0"] == 2.0
    assert "cond/no:0" not in found
    assert "did not run" in listed["cond/no:0"]["note"]
    assert listed["while/inc:0"]["note"] == "turn 3; kept 4 of 4"
    assert found["while/Exit:0"] == 5.0
    assert found["total:0"] == 7.0


def test_without_room_for_the_debugger_values_are_read_before_the_step(
    tmp_path, click_model, config, manifests, values, monkeypatch, capsys
):
    from dumpers.capture import recorder

    monkeypatch.setattr(recorder, "watch_room", lambda count, size: False)
    model = click_model(False)
    with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0")) as session:
        session.run(model.init)
        before = session.run(model.table).copy()
        session.run(model.train, model.batches[0])
    (manifest,) = manifests(tmp_path)
    found = values(manifest)
    assert capsys.readouterr().err.count("TMPDIR") == 1
    assert np.array_equal(found["table/read:0"], before)
    assert np.array_equal(found["table:0"], before)
    assert entries(manifest)["table:0"]["note"] == "read right before the step"
    assert "end of the step" in entries(manifest)["Adam/Assign:0"]["note"]


def test_feeds_of_sparse_tensors_and_by_name(tmp_path, config, manifests, values):
    graph = tf.Graph()
    with graph.as_default():
        sparse = tf1.sparse_placeholder(tf.float32, name="sp")
        y = tf1.placeholder(tf.float32, [], name="y")
        total = tf.add(tf.sparse.reduce_sum(sparse), y, name="total")
    feeds = {sparse: tf1.SparseTensorValue([[0, 1]], [4.0], [2, 2]), "y:0": 1.5}
    assert record(graph, {"t": total}, tmp_path, config, feed_dict=feeds) == {"t": 5.5}
    (manifest,) = manifests(tmp_path)
    found = values(manifest)
    assert found["sp/values:0"].tolist() == [4.0]
    assert found["sp/indices:0"].tolist() == [[0, 1]]
    assert found["y:0"] == 1.5
    assert sorted(manifest["feeds"]) == ["sp/indices:0", "sp/shape:0", "sp/values:0", "y:0"]


def test_a_feed_in_the_middle_cuts_the_graph(tmp_path, config, manifests, values):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [], name="x")
        middle = tf.multiply(x, 2.0, name="middle")
        tf.add(middle, 1.0, name="out")
    assert record(graph, "out:0", tmp_path, config, feed_dict={middle: 10.0}) == 11.0
    found = values(manifests(tmp_path)[0])
    assert found["middle:0"] == 10.0
    assert "x:0" not in found


def test_a_wrong_feed_raises_what_the_plain_session_raises(tmp_path, click_model, config):
    model = click_model(True)
    for feeds in ({model.ids: np.ones([2, 2])}, {"nothing:0": 1}, {model.ids: "text", model.label: [1.0]}):
        with tf1.Session(graph=model.graph, config=config()) as session:
            session.run(model.init)
            with pytest.raises(Exception) as plain:
                session.run(model.train, feeds)
        with record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("")) as session:
            session.run(model.init)
            with pytest.raises(Exception) as ours:
                session.run(model.train, feeds)
        assert type(ours.value) is type(plain.value)
        assert str(ours.value) == str(plain.value)
