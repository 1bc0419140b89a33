"""Sessions on the emulated device, from their configuration to the files."""

from __future__ import annotations

import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from dumpers.errors import UsageError
from dumpers.formats.ge_graph import read_ge_text
from dumpers.formats.npu_dump import read_npu_dump
from engine.errors import EngineError, FaultError
from precision_tool import device

v1 = tf.compat.v1


@pytest.fixture(autouse=True, scope="module")
def _installed():
    assert device.install()


def npu_config(**options):
    config = v1.ConfigProto()
    optimizer = config.graph_options.rewrite_options.custom_optimizers.add()
    optimizer.name = "NpuOptimizer"
    for name, value in options.items():
        field = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "s"
        setattr(optimizer.parameter_map[name], field, value.encode() if field == "s" else value)
    return config


@pytest.fixture
def model():
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(1)
        x = v1.placeholder(tf.float32, [4, 3], "x")
        w = v1.get_variable("w", [3, 2], initializer=v1.random_uniform_initializer(-1, 1))
        b = v1.get_variable("b", [2], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.nn.bias_add(tf.matmul(x, w, name="mm"), b, name="bias")), name="loss")
        train = v1.train.AdamOptimizer(0.1).minimize(loss)
        init = v1.global_variables_initializer()
    return types.SimpleNamespace(graph=graph, x=x, loss=loss, train=train, init=init)


def run_steps(model, config, steps=2):
    with v1.Session(graph=model.graph, config=config) as session:
        session.run(model.init)
        feed = {model.x: np.arange(12, dtype=np.float32).reshape(4, 3) / 12}
        losses = [float(session.run([model.loss, model.train], feed)[0]) for _ in range(steps)]
        return losses, device.device_of(session)


def test_installing_again_changes_nothing():
    before = v1.Session.run, v1.Session._do_run, v1.Session.__init__
    assert device.install()
    assert before == (v1.Session.run, v1.Session._do_run, v1.Session.__init__)


def test_other_sessions_are_left_alone(model):
    other = v1.ConfigProto()
    other.graph_options.rewrite_options.custom_optimizers.add().name = "OtherOptimizer"
    for config in (None, v1.ConfigProto(), other, npu_config(use_off_line=False)):
        with v1.Session(graph=model.graph, config=config) as session:
            assert device.device_of(session) is None
            assert isinstance(session, v1.Session)


def test_a_session_on_the_device(model):
    losses, npu = run_steps(model, npu_config(use_off_line=True))
    golden, _ = run_steps(model, None)
    np.testing.assert_allclose(losses, golden, rtol=1e-5)
    assert npu.steps == 2
    assert npu.options.numerics.name == "FP32"


def test_subclasses_and_interactive_sessions(model):
    class MySession(v1.Session):
        pass

    with MySession(graph=model.graph, config=npu_config()) as session:
        assert device.device_of(session) is not None
    with model.graph.as_default():
        interactive = v1.InteractiveSession(config=npu_config())
        assert device.device_of(interactive) is not None
        interactive.close()


def test_dump(model, tmp_path, monkeypatch):
    monkeypatch.delenv("DUMP_GRAPH_PATH", raising=False)
    dump = tmp_path / "npu" / "debug_0" / "dump"
    _, npu = run_steps(
        model, npu_config(enable_dump=True, dump_path=str(dump), dump_step="1", dump_mode="all",
                          precision_mode="allow_mix_precision"),
    )  # fmt: skip
    (graph_file,) = dump.parent.joinpath("graph").glob("*_Build.txt")
    graph = read_ge_text(graph_file)
    assert graph.attrs["precision_mode"] == "allow_mix_precision"
    files = [path for path in dump.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == {"1"}
    contents = {content.op_name: content for content in map(read_npu_dump, files)}
    assert set(contents) == {op.name for op in npu.graphs[0].ops if op.has_task}
    assert all(not content.problems for content in contents.values())
    for name, content in contents.items():
        op = graph.ops[name]
        assert len(content.inputs) == len(op.inputs)
        assert [record.dtype for record in content.outputs] == [port.dtype for port in op.output_ports]
        for record, source in zip(content.inputs, op.inputs, strict=True):
            if source.op in contents:
                written = contents[source.op].outputs[source.slot].load()
                np.testing.assert_array_equal(record.load(), written)
    adam = next(content for name, content in contents.items() if graph.ops[name].type == "ApplyAdamD")
    assert not np.array_equal(adam.inputs[0].load(), adam.outputs[0].load())


def test_graphs_go_where_the_environment_says(model, tmp_path, monkeypatch):
    monkeypatch.setenv("DUMP_GRAPH_PATH", str(tmp_path / "graphs"))
    run_steps(model, npu_config(enable_dump=True, dump_path=str(tmp_path / "dump")), 1)
    assert len(list((tmp_path / "graphs").glob("ge_proto_*_Build.txt"))) == 1


def test_fault(model):
    golden, _ = run_steps(model, npu_config())
    losses, npu = run_steps(model, npu_config(emulated_fault="scale@loss:factor=2"))
    assert losses[0] == pytest.approx(2 * golden[0])
    assert npu.fault_changed


@pytest.mark.parametrize(
    ("options", "kind", "complaint"),
    [
        ({"precision_mode": "force_fp16"}, EngineError, "knows"),
        ({"precision_mode": 3}, EngineError, "must be a text"),
        ({"emulated_seed": "x"}, EngineError, "emulated_seed"),
        ({"emulated_fault": "scal@loss"}, FaultError, "did you mean 'scale'"),
        ({"enable_dump": True}, UsageError, "dump_path"),
        ({"enable_dump": True, "dump_path": "x", "dump_step": "a"}, UsageError, "neither a step"),
        ({"enable_dump": True, "dump_path": "x", "dump_mode": "some"}, UsageError, "all, input, output"),
        ({"enable_dump": True, "dump_path": "x", "dump_data": "stats"}, UsageError, "stats"),
        ({"enable_dump_debug": True}, UsageError, "dump_path"),
        ({"enable_dump_debug": True, "enable_dump": True, "dump_path": "x"}, UsageError, "exclude"),
        ({"enable_dump_debug": True, "dump_path": "x", "dump_debug_mode": "l2"}, UsageError, "aicore_overflow"),
        ({"fusion_switch_file": "/no/such/file"}, EngineError, "/no/such/file"),
    ],
)
def test_wrong_options(model, options, kind, complaint):
    with pytest.raises(kind, match=complaint):
        v1.Session(graph=model.graph, config=npu_config(**options))


def test_a_real_plugin_wins(tmp_path, monkeypatch):
    assert device.real_plugin() is None
    (tmp_path / "npu_bridge").mkdir()
    (tmp_path / "npu_bridge" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert device.real_plugin() == "npu_bridge"
    assert not device.install()


def test_our_own_stand_ins_are_no_plugin(monkeypatch, project_root):
    module = types.ModuleType("npu_bridge")
    module.__file__ = str(project_root / "engine" / "compat" / "npu_bridge.py")
    monkeypatch.setitem(sys.modules, "npu_bridge", module)
    assert device.real_plugin() is None


def test_importing_it_loads_no_tensorflow(project_root):
    code = "import sys; import precision_tool.device; sys.exit('tensorflow' in sys.modules or 'engine' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=project_root, check=False).returncode == 0
