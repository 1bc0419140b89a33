"""TensorFlow 2: inner tensors of functions, eager blocks and Keras steps against TensorFlow itself."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dumpers.capture.function_steps import StepLog, need_tensorflow_2
from dumpers.capture.functions import EagerBlock, record_function
from dumpers.capture.selection import read_selection
from dumpers.capture.step_block import StepBlock
from dumpers.capture.steps import parse_steps
from dumpers.errors import UsageError
from dumpers.settings import Settings

tf = pytest.importorskip("tensorflow")
TF_1 = int(tf.__version__.split(".")[0]) < 2
needs_2 = pytest.mark.skipif(TF_1, reason="TensorFlow 2 has functions")


@pytest.fixture(autouse=True, scope="module")
def graph_mode():
    """The other way round than in the neighbouring modules: eager, and functions not rewritten."""
    if TF_1:
        yield
        return
    from tensorflow.python.eager import context

    with context.eager_mode():
        before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        yield
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


@pytest.mark.skipif(not TF_1, reason="for TensorFlow 1")
def test_tensorflow_1_is_refused_in_one_line():
    with pytest.raises(UsageError, match="needs TensorFlow 2"):
        need_tensorflow_2("function_dump")


def small_model():
    random = np.random.RandomState(3)
    weight = tf.Variable(random.rand(3, 2).astype(np.float32), name="weight")
    table = tf.Variable(random.rand(8, 2).astype(np.float32), name="table")

    @tf.function
    def hidden(x):
        return tf.nn.relu(tf.matmul(x, weight, name="product"), name="hidden")

    @tf.function
    def train_step(x, ids):
        with tf.GradientTape() as tape:
            y = hidden(x) + tf.gather(table, ids, name="rows")
            loss = tf.reduce_sum(y * y, name="loss")
        gradients = tape.gradient(loss, [weight, table])
        weight.assign_sub(0.01 * gradients[0])
        sparse = gradients[1]
        table.scatter_sub(tf.IndexedSlices(0.01 * sparse.values, sparse.indices))
        after = tf.identity(weight, name="after")
        return loss, tf.reduce_sum(after)

    batches = [(random.rand(4, 3).astype(np.float32), random.randint(0, 8, 4)) for _ in range(6)]
    return weight, table, train_step, batches


def one(found, ending):
    (name,) = [name for name in found if name == ending or name.endswith("/" + ending)]
    return found[name]


@needs_2
def test_inner_tensors_are_those_of_eager_execution_before_and_after_the_update(tmp_path, manifests, values):
    weight, table, train_step, batches = small_model()
    log = StepLog(tmp_path, parse_steps("1"))
    step = record_function(train_step, log)
    step(*batches[0])
    old_weight, old_table = weight.numpy(), table.numpy()
    x, ids = batches[1]
    with tf.GradientTape() as tape:
        product = tf.matmul(x, weight)
        y = tf.nn.relu(product) + tf.gather(table, ids)
        loss = tf.reduce_sum(y * y)
    gradient = tape.gradient(loss, weight).numpy()
    returned = step(*batches[1])
    log.flush()
    (record,) = manifests(tmp_path)
    found = values(record)
    assert record["step"] == 1
    assert record["complete"]
    assert one(found, "product:0").tobytes() == product.numpy().tobytes()
    assert one(found, "product/ReadVariableOp:0").tobytes() == old_weight.tobytes()
    assert one(found, "rows:0").tobytes() == old_table[ids].tobytes()
    assert found["loss:0"].tobytes() == loss.numpy().tobytes() == returned[0].numpy().tobytes()
    assert found["after:0"].tobytes() == weight.numpy().tobytes() != old_weight.tobytes()
    assert any(value.shape == gradient.shape and value.tobytes() == gradient.tobytes() for value in found.values())
    assert found["x:0"].tobytes() == x.tobytes()
    assert {"weight", "table"} <= {t["op"] for t in record["tensors"] if t["op_type"] == "VarHandleOp"}
    moments = [t["timestamp_us"] for t in record["tensors"]]
    assert moments == sorted(moments)
    check_graph(record)


@needs_2
def test_only_what_is_chosen_is_recorded(tmp_path, manifests, values):
    chosen = read_selection(Settings(dump_op_types="MatMul|Relu", dump_sizes="32-"))
    found = {}
    for name, selection in (("all", None), ("some", chosen)):
        _, _, train_step, batches = small_model()
        log = StepLog(tmp_path / name, parse_steps("0"), selection=selection)
        record_function(train_step, log)(*batches[0])
        log.flush()
        (found[name],) = manifests(tmp_path / name)
    types = {"{}:{}".format(t["op"], t["output"]): t["op_type"] for t in found["all"]["tensors"]}
    whole, some = values(found["all"]), values(found["some"])
    wanted = {name for name in whole if types[name] in ("MatMul", "Relu") and whole[name].nbytes >= 32}
    assert set(some) == wanted
    assert wanted != {name for name in whole if types[name] in ("MatMul", "Relu")}
    assert found["some"]["selection"] == {"TF_DUMP_OP_TYPES": "MatMul|Relu", "TF_DUMP_SIZES": "32-"}


def check_graph(record):
    """TensorFlow takes the graph, and each recorded tensor is in it with its type."""
    message = tf.compat.v1.GraphDef.FromString((record["path"] / "graph.pb").read_bytes())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(message, name="")
        for tensor in record["tensors"]:
            known = graph.get_tensor_by_name("{}:{}".format(tensor["op"], tensor["output"]))
            assert known.op.type == tensor["op_type"]
            if tensor["file"]:
                assert known.dtype.base_dtype.name == tensor["dtype"]


@needs_2
def test_a_recorded_function_changes_no_bit_and_its_steps_are_chosen(tmp_path, manifests):
    def train(choose):
        weight, table, train_step, batches = small_model()
        log = StepLog(tmp_path / choose.replace("|", "_"), parse_steps(choose)) if choose != "plain" else None
        step = record_function(train_step, log) if log else train_step
        losses = [step(*batches[n % 6])[0].numpy().tobytes() for n in range(50)]
        if log:
            log.flush()
        return losses, weight.numpy().tobytes(), table.numpy().tobytes()

    plain = train("plain")
    assert train("0-49") == plain
    assert train("1|3-4") == plain
    assert [record["step"] for record in manifests(tmp_path / "1_3-4")] == [1, 3, 4]


@needs_2
def test_random_numbers_with_a_seed_go_on_around_recorded_steps(tmp_path, capfd):
    def draws(choose):
        tf.random.set_seed(4)

        @tf.function
        def step():
            return tf.random.uniform([3], seed=7)

        recorded = record_function(step, StepLog(tmp_path, parse_steps(choose))) if choose else step
        return [recorded().numpy().tolist() for _ in range(6)]

    plain = draws("")
    assert len({tuple(row) for row in plain}) == 6
    assert draws("2|4") == plain
    assert draws("0") == plain
    assert "draws random numbers" in capfd.readouterr().err


@needs_2
def test_a_function_that_has_drawn_before_the_hook_came_goes_on_with_its_numbers(tmp_path, capfd, manifests):
    def draws(choose):
        tf.random.set_seed(4)

        @tf.function
        def step():
            return tf.random.uniform([3], seed=7)

        found = [step().numpy().tolist() for _ in range(2)]
        log = StepLog(tmp_path, parse_steps(choose))
        recorded = record_function(step, log) if choose else step
        found += [recorded().numpy().tolist() for _ in range(4)]
        log.flush()
        return found

    plain = draws("")
    assert draws("1") == plain
    assert "before the hook" in capfd.readouterr().err
    (record,) = manifests(tmp_path)
    assert [t["op_type"] for t in record["tensors"]] == ["StatefulPartitionedCall"]


@needs_2
def test_a_new_shape_of_the_input_is_recorded_too(tmp_path, manifests, values):
    weight = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="weight")

    @tf.function
    def step(x):
        return tf.reduce_sum(tf.tanh(tf.matmul(x, weight), name="squashed"))

    log = StepLog(tmp_path, parse_steps(""))
    recorded = record_function(step, log)
    random = np.random.RandomState(2)
    inputs = [random.rand(rows, 3).astype(np.float32) for rows in (4, 5, 4, 1, 7)]
    for x in inputs:
        recorded(tf.constant(x))
    log.flush()
    records = manifests(tmp_path)
    assert len(records) == 5
    for x, record in zip(inputs, records):  # noqa: B905 - Python 3.7
        assert one(values(record), "squashed:0").tobytes() == tf.tanh(tf.matmul(x, weight)).numpy().tobytes()
        check_graph(record)


@needs_2
def test_an_outer_tape_sees_the_same_gradients(tmp_path, manifests):
    weight = tf.Variable([[1.0, -2.0], [0.5, 3.0]])

    @tf.function
    def model(x):
        return tf.reduce_sum(tf.tanh(tf.matmul(x, weight)))

    log = StepLog(tmp_path, parse_steps("0"))

    def train_step(x):
        with tf.GradientTape() as tape:
            loss = model(x)
        return tape.gradient(loss, weight)

    x = tf.constant([[0.25, 0.5]])
    plain = train_step(x).numpy()
    assert record_function(train_step, log)(x).numpy().tobytes() == plain.tobytes()
    log.flush()
    (record,) = manifests(tmp_path)
    assert {"model/Tanh", "model/MatMul"} <= {t["op"] for t in record["tensors"]}
    assert any(t["op"].startswith("backward_model/") and t["op_type"] == "TanhGrad" for t in record["tensors"])
    check_graph(record)


@needs_2
def test_errors_reach_the_caller_unchanged_and_leave_an_incomplete_record(tmp_path, manifests):
    @tf.function
    def step(x):
        return tf.debugging.check_numerics(x, "bad input")

    bad = tf.constant([1.0, np.nan])
    with pytest.raises(tf.errors.InvalidArgumentError) as plain:
        step(bad)
    log = StepLog(tmp_path, parse_steps("0"))
    recorded = record_function(step, log)
    with pytest.raises(tf.errors.InvalidArgumentError) as ours:
        recorded(bad)
    assert str(ours.value) == str(plain.value)
    assert recorded(tf.constant([2.0])).numpy().tolist() == [2.0]
    log.flush()
    failed, good = manifests(tmp_path)
    assert (failed["complete"], failed["step"]) == (False, 0)
    assert "bad input" in failed["reason"]
    assert (good["complete"], good["step"]) == (True, 0)


@needs_2
@pytest.mark.parametrize("name", ["_look_at", "_opened", "_keep_op", "_take"])
def test_a_fault_of_ours_does_not_reach_the_step(tmp_path, manifests, monkeypatch, capsys, name):
    """It breaks in the second of three steps, each time that it is reached; the other records are whole."""

    def run(step, weight, table, batch):
        return [value.numpy().tobytes() for value in (*step(*batch), weight, table)]

    weight, table, train_step, batches = small_model()
    plain = [run(train_step, weight, table, map(tf.constant, batch)) for batch in batches[:3]]
    weight, table, train_step, batches = small_model()
    log = StepLog(tmp_path, parse_steps(""))
    real, now = getattr(StepBlock, name), [0]

    def broken(block, *given):
        if now[0] == 1:
            raise KeyError("of ours")
        return real(block, *given)

    def whole_step(x, ids):
        return train_step(tf.constant(x) * 1.0, tf.constant(ids))  # an eager op before the function

    recorded = record_function(whole_step, log)
    monkeypatch.setattr(StepBlock, name, broken)
    found = []
    for now[0], batch in enumerate(batches[:3]):
        found.append(run(recorded, weight, table, batch))
    log.flush()
    assert found == plain
    said = [line for line in capsys.readouterr().err.splitlines() if "precision_tool" in line]
    assert len(said) == 1
    assert "step 1 could not be recorded completely: KeyError: 'of ours'; training goes on" in said[0]
    records = manifests(tmp_path)
    assert [(record["step"], record["complete"]) for record in records] == [(0, True), (1, False), (2, True)]
    assert "KeyError" in records[1]["reason"]
    assert len(records[0]["tensors"]) == len(records[2]["tensors"]) > len(records[1]["tensors"])


@needs_2
def test_loops_run_as_one_op_and_say_so(tmp_path, manifests, values):
    @tf.function
    def step(x):
        for _ in tf.range(3):
            x = x * 2.0
        return tf.add(x, 1.0, name="last")

    log = StepLog(tmp_path, parse_steps("0"))
    record_function(step, log)(tf.constant([1.0]))
    log.flush()
    (record,) = manifests(tmp_path)
    assert values(record)["last:0"].tolist() == [9.0]
    assert any("inside its loop" in t["note"] for t in record["tensors"])
    check_graph(record)


@needs_2
def test_an_eager_block_records_ops_in_order(tmp_path, manifests, values):
    weight = tf.Variable([[2.0], [3.0]], name="weight")
    block = EagerBlock(StepLog(tmp_path, parse_steps("1")))
    for number in range(3):
        x = tf.constant([[1.0 + number, 2.0]])
        with block:
            with tf.GradientTape() as tape:
                y = tf.reduce_sum(tf.square(x @ weight))
            gradient = tape.gradient(y, weight)
        tf.square(x)  # outside: not recorded
        if number == 1:
            expected = (y.numpy(), gradient.numpy())
    block.flush()
    (record,) = manifests(tmp_path)
    found = values(record)
    assert record["step"] == 1
    assert found["eager/Sum:0"].tobytes() == expected[0].tobytes()
    assert any(value.tobytes() == expected[1].tobytes() for value in found.values())
    assert [t["op"] for t in record["tensors"] if t["op_type"] == "Square"] == ["eager/Square"]
    check_graph(record)


@needs_2
def test_threads_do_not_mix_records(tmp_path, manifests):
    @tf.function
    def step(x):
        return tf.add(x, 1.0, name="sum")

    log = StepLog(tmp_path, parse_steps(""))
    recorded = record_function(step, log)

    def work(first):
        for number in range(first, first + 8):
            tf.square(2.0)
            assert recorded(tf.constant(float(number))).numpy() == number + 1

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    records = manifests(tmp_path)
    assert sorted(record["step"] for record in records) == list(range(16))
    assert {len(record["tensors"]) for record in records} == {4}
