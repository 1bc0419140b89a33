"""What a session on the emulated device does, held against a plain session of the same graph."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOpError
from precision_tool import device

v1 = tf.compat.v1


def both(graph, config, action):
    """Runs an action on a plain session and on the device; returns both results."""
    with v1.Session(graph=graph) as plain, v1.Session(graph=graph, config=config()) as npu:
        assert device.device_of(plain) is None
        assert device.device_of(npu) is not None
        return action(plain), action(npu)


def test_structures_of_fetches(config):
    pair = collections.namedtuple("pair", "left right")
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [2], "x")
        double = tf.multiply(x, 2.0, name="double")
        slices = tf.IndexedSlices(double, tf.constant([0, 1]))
        nothing = tf.no_op("nothing")

    def action(session):
        fetches = {"a": [double, "double:0"], "b": pair(x, nothing), "c": slices, "d": (), "e": "nothing"}
        return session.run(fetches, {x: [1.0, 2.0]})

    plain, npu = both(graph, config, action)
    assert list(plain) == list(npu)
    assert isinstance(npu["b"], pair)
    assert npu["b"].right is None
    assert npu["e"] is None
    assert npu["d"] == ()
    np.testing.assert_array_equal(npu["a"][1], plain["a"][1])
    np.testing.assert_array_equal(npu["c"].values, plain["c"].values)


def test_scalars_and_texts_have_the_types_of_a_plain_session(config):
    graph = tf.Graph()
    with graph.as_default():
        fetches = [tf.constant(3.0), tf.constant(b"text"), tf.strings.join(["a", "b"]), tf.constant([b"x", b"yz"])]
    plain, npu = both(graph, config, lambda session: session.run(fetches))
    for left, right in zip(plain, npu, strict=True):
        assert type(left) is type(right)
        assert np.array_equal(left, right)


def test_any_tensor_can_be_fed(config):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [2], "x")
        middle = tf.square(x, name="middle")
        end = tf.add(middle, x, name="end")
        parts = tf.split(tf.range(4), 2, name="parts")
        total = parts[0] + parts[1]

    def action(session):
        return [
            session.run(end, {x: [1.0, 2.0], middle: [5.0, 6.0]}),
            session.run([middle, end], {"middle:0": [1.0, 1.0], x: [0.0, 0.0]}),
            session.run([total, parts[1]], {parts[0]: [10, 20]}),
        ]

    plain, npu = both(graph, config, action)
    for left, right in zip(plain, npu, strict=True):
        np.testing.assert_array_equal(left, right)


def test_wrong_feeds_are_refused_as_ever(config):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [2], "x")
        y = x + 1.0
    with v1.Session(graph=graph, config=config()) as session:
        with pytest.raises(ValueError, match="Cannot feed value of shape"):
            session.run(y, {x: [1.0]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="feed a value") as caught:
            session.run(y)
        assert caught.value.op.name == "x"
    with pytest.raises(RuntimeError, match="closed"):
        session.run(y, {x: [1.0, 2.0]})


@pytest.mark.parametrize("resource", [True, False])
def test_variables(config, resource):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", initializer=np.arange(6, dtype=np.float32).reshape(3, 2), use_resource=resource)
        counter = v1.get_variable("counter", initializer=np.int64(0), use_resource=resource)
        up = v1.assign_add(counter, 2)
        with tf.control_dependencies([up]):
            after = tf.identity(counter.read_value(), "after")
        scatter = v1.scatter_sub(v, [0, 2, 0], np.ones((3, 2), np.float32))
        update = v1.scatter_update(v, [1], np.full((1, 2), 9, np.float32))
        ready = v1.is_variable_initialized(v)
        init = v1.global_variables_initializer()

    def action(session):
        seen = [session.run(ready)]
        session.run(init)
        seen += [session.run(ready), session.run(after), session.run(after), session.run(v)]
        session.run(scatter)
        seen.append(session.run(v))
        session.run(update)
        seen += [session.run(v), session.run(counter), session.run(up)]
        v.load(np.zeros((3, 2), np.float32), session)
        return [*seen, session.run(v)]

    plain, npu = both(graph, config, action)
    for left, right in zip(plain, npu, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("resource", [True, False])
def test_a_variable_without_a_value(config, resource):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("some/v", [2], use_resource=resource)
        y = v * 2.0
    with (
        v1.Session(graph=graph, config=config()) as session,
        pytest.raises(tf.errors.FailedPreconditionError) as caught,
    ):
        session.run(y)
    assert "some/v" in str(caught.value)
    assert caught.value.op is not None


def test_sessions_do_not_share_variables(config):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", initializer=1.0)
        up = v1.assign_add(v, 1.0)
        init = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=config()) as one, v1.Session(graph=graph, config=config()) as two:
        one.run(init)
        two.run(init)
        one.run(up)
        assert (one.run(v), two.run(v)) == (2.0, 1.0)


def test_random_numbers_have_the_bits_of_a_plain_session(config):
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(5)
        values = [
            v1.random_uniform([4], -1.0, 3.0),
            v1.truncated_normal([4], stddev=2.0, seed=1),
            tf.random.stateless_normal([4], [1, 2]),
            v1.random_shuffle(tf.range(9)),
        ]
    plain, npu = both(graph, config, lambda session: [session.run(values) for _ in range(3)])
    for left, right in zip(itertools.chain(*plain), itertools.chain(*npu), strict=True):
        np.testing.assert_array_equal(left, right)


def test_iterators_tables_and_python_functions_keep_their_state(config):
    calls: list[int] = []

    def count(x):
        calls.append(int(x[0]))
        return x + np.int64(len(calls))

    graph = tf.Graph()
    with graph.as_default():
        base = v1.placeholder(tf.int64, [], "base")
        data = v1.data.Dataset.range(base + 1).map(lambda i: i * 10).batch(2)
        iterator = v1.data.make_initializable_iterator(data)
        batch = iterator.get_next()
        counted = tf.numpy_function(count, [batch], tf.int64)
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant([0, 10], tf.int64), tf.constant([5.0, 6.0])), -1.0
        )
        found = table.lookup(batch)
        init = v1.tables_initializer()

    def action(session):
        calls.clear()
        session.run([iterator.initializer, init], {base: 3})
        results = [session.run([batch, counted, found]) for _ in range(2)]
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            session.run(batch)
        assert caught.value.op.type == "IteratorGetNext"
        return [value for result in results for value in result]

    plain, npu = both(graph, config, action)
    for left, right in zip(plain, npu, strict=True):
        np.testing.assert_array_equal(left, right)


def test_saver(config, tmp_path):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", initializer=[1.0, 2.0])
        double = v1.assign(v, v * 2.0)
        init, saver = v1.global_variables_initializer(), v1.train.Saver()
    with v1.Session(graph=graph, config=config()) as session:
        session.run(init)
        path = saver.save(session, str(tmp_path / "model"))
        session.run(double)
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(v), [1.0, 2.0])
    with v1.Session(graph=graph) as plain:
        saver.restore(plain, path)
        np.testing.assert_array_equal(plain.run(v), [1.0, 2.0])


def test_make_callable(config):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [], "x")
        v = v1.get_variable("v", initializer=1.0)
        up = v1.assign_add(v, 1.0)
        init = v1.global_variables_initializer()
        y = x * 2.0
    with v1.Session(graph=graph, config=config()) as session:
        assert session.make_callable(init)() is None
        assert session.make_callable(y, [x])(3.0) == 6.0
        assert session.make_callable(up)() == 2.0
        assert session.make_callable({"v": v})() == {"v": 2.0}


def test_partial_runs_are_refused(config):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [], "x")
        y = x + 1.0
    with v1.Session(graph=graph, config=config()) as session, pytest.raises(UnsupportedOpError, match="partial_run"):
        session.partial_run_setup([y], [x])


def test_control_flow_is_refused_by_name(config):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [], "x")
        y = tf.cond(x > 0.0, lambda: x + 1.0, lambda: x - 1.0, name="branch")
    refusal = pytest.raises(UnsupportedOpError, match=r"branch.*control flow.*use_off_line")
    with v1.Session(graph=graph, config=config()) as session, refusal:
        session.run(y, {x: 1.0})


def test_use_off_line_false_stays_plain(config):
    graph = tf.Graph()
    with graph.as_default():
        y = tf.constant(1.0) + 1.0
    with v1.Session(graph=graph, config=config(use_off_line=False)) as session:
        assert device.device_of(session) is None
        assert session.run(y) == 2.0


def test_errors_name_the_op(config):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, None], "x")
        product = tf.matmul(x, tf.ones([3, 2]), name="scope/product")
        reshaped = tf.reshape(x, [7], name="scope/reshaped")
        rows = tf.gather(x, [5], name="scope/rows")
    with v1.Session(graph=graph, config=config()) as session:
        for tensor in (product, reshaped, rows):
            with pytest.raises(tf.errors.InvalidArgumentError, match=tensor.op.name) as caught:
                session.run(tensor, {x: np.ones((2, 2), np.float32)})
            assert caught.value.op is tensor.op


def test_a_failed_step_is_no_step(config):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None], "x")
        v = v1.get_variable("v", initializer=[1.0, 1.0])
        train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(v * tf.reshape(x, [2])))
        init = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=config()) as session:
        session.run(init)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(train, {x: [1.0]})
        assert device.device_of(session).steps == 0
        session.run(train, {x: [1.0, 2.0]})
        assert device.device_of(session).steps == 1


def test_monitored_session(config):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", initializer=1.0)
        step = v1.train.get_or_create_global_step()
        train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.square(v), global_step=step)
        with v1.train.MonitoredSession(v1.train.ChiefSessionCreator(config=config())) as session:
            for _ in range(3):
                session.run(train)
            assert device.device_of(session).steps == 3
            assert session.run(step) == 3


def test_results_belong_to_the_caller(config):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", initializer=[1.0, 2.0])
        init = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=config()) as session:
        session.run(init)
        value = session.run(v)
        value += 1.0
        np.testing.assert_array_equal(session.run(v), [1.0, 2.0])


def test_common_ops_match_a_plain_session(config):
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        x = tf.constant(random.normal(size=(4, 6)).astype(np.float32))
        y = [
            tf.nn.softmax(x), tf.reduce_max(x, 1), tf.reduce_prod(x, keepdims=True), tf.reduce_sum(x, [0, -1]),
            tf.reduce_mean(x, 0, keepdims=True), tf.add_n([x, x, x]), tf.nn.l2_loss(x), tf.einsum("ij,kj->ik", x, x),
            tf.linalg.matmul(tf.reshape(x, [2, 2, 6]), tf.reshape(x, [2, 2, 6]), transpose_b=True),
            tf.math.unsorted_segment_sum(x, [1, 0, 1, -1], 3), tf.transpose(x)[1:4:2], tf.where(x > 0, x, -x),
            tf.one_hot([1, 3], 4), tf.cast(x, tf.bfloat16), tf.cast(x, tf.float16), tf.argsort(x), tf.shape(x),
            tf.matmul(tf.cast(x, tf.float64), tf.cast(x, tf.float64), transpose_b=True), tf.reduce_any(x > 2, 1),
            tf.gather(x, [[0, 1], [2, 3]], batch_dims=0), tf.gather(tf.reshape(x, [2, 2, 6]), [[1], [0]], batch_dims=1),
            tf.quantization.fake_quant_with_min_max_args(x), tf.nn.top_k(x, 2).indices, tf.unique([3, 1, 3]).idx,
        ]  # fmt: skip
    plain, npu = both(graph, config, lambda session: session.run(y))
    for left, right, tensor in zip(plain, npu, y, strict=True):
        assert left.dtype == right.dtype, tensor
        assert left.shape == right.shape, tensor
        wanted, got = (np.asarray(value).astype(np.float64) for value in (left, right))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=tensor.name)


def test_works_inside_another_graph_and_with_eager_off(config):
    graph = tf.Graph()
    with graph.as_default():
        y = tf.nn.relu(tf.constant([-1.0, 1.0]))
    with tf.Graph().as_default() as other, v1.Session(graph=graph, config=config()) as session:
        assert not tf.executing_eagerly()
        np.testing.assert_array_equal(session.run(y), [0.0, 1.0])
        assert not other.get_operations()


def _doubling():
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [2], "x")
        return graph, x, tf.multiply(x, 2.0, name="double")


def test_debug_watches_are_refused(config):
    graph, x, double = _doubling()
    options = v1.RunOptions()
    watch = options.debug_options.debug_tensor_watch_opts.add()
    watch.node_name, watch.output_slot = "double", 0
    with v1.Session(graph=graph, config=config()) as session, pytest.raises(UnsupportedOpError, match="debug watches"):
        session.run(double, {x: [1.0, 2.0]}, options=options)


def test_a_trace_is_not_made_and_that_is_said_once(config, caplog):
    graph, x, double = _doubling()
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    with v1.Session(graph=graph, config=config()) as session:
        session.run(double, {x: [1.0, 2.0]}, options=v1.RunOptions(), run_metadata=v1.RunMetadata())
        assert caplog.records == []  # nobody asked for a trace: a hooked session always passes both
        for _ in range(2):
            value = session.run(double, {x: [1.0, 2.0]}, options=options, run_metadata=metadata)
    np.testing.assert_array_equal(value, [2.0, 4.0])
    assert metadata == v1.RunMetadata()
    assert ["trace" in record.message for record in caplog.records] == [True]
