"""The documented facade for training scripts: options of the device, seeds, and recording."""

from __future__ import annotations

import importlib
import json
import os
import random
import sys

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


@pytest.fixture
def tf_config(tmp_path, monkeypatch):
    for name in ("DUMP_GE_GRAPH", "DUMP_GRAPH_LEVEL", "DUMP_GRAPH_PATH", "NPU_DUMP_GRAPH", "PYTHONHASHSEED"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TF_DUMP_STEP", "PRECISION_TOOL_DUMP", "PRECISION_TOOL_OVERFLOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOT_DIR", str(tmp_path))
    return importlib.import_module("precision_tool.tf_config")


def parameters(config):
    (optimizer,) = config.graph_options.rewrite_options.custom_optimizers
    assert optimizer.name == "NpuOptimizer"
    return {key: getattr(value, value.WhichOneof("value")) for key, value in optimizer.parameter_map.items()}


def test_dump(tf_config, tmp_path):
    config = tf_config.session_dump_config(action="dump")
    root = str(tmp_path / "precision_data")
    assert parameters(config) == {
        "use_off_line": True,
        "debug_dir": (root + "/npu/debug_0").encode(),
        "enable_dump": True,
        "dump_mode": b"all",
        "dump_path": (root + "/npu/debug_0/dump").encode(),
        "op_debug_level": 4,
        "dump_step": b"0",
    }
    assert config.graph_options.rewrite_options.remapping == tf1.ConfigProto().graph_options.rewrite_options.OFF
    for place in ("npu/debug_0/dump", "npu/debug_0/graph", "npu/debug_0/prof", "overflow/dump"):
        assert os.stat(os.path.join(root, place)).st_mode & 0o777 == 0o700
    assert os.environ["DUMP_GE_GRAPH"] == "2"
    assert os.environ["DUMP_GRAPH_LEVEL"] == "3"
    assert os.environ["DUMP_GRAPH_PATH"] == root + "/npu/debug_0/graph"
    assert os.environ["NPU_DUMP_GRAPH"] == "true"


def test_the_plain_side_of_the_guard_dumps_nothing(tf_config, monkeypatch):
    monkeypatch.setenv("TF_DUMP_GUARD_PLAIN", "True")
    found = parameters(tf_config.session_dump_config(action="dump|fusion_off"))
    assert "enable_dump" not in found
    assert found["fusion_switch_file"] == tf_config.FUSION_OFF_FILE.encode()
    assert tf_config.estimator_dump_config("dump") is None


def test_overflow_excludes_dump_and_off_excludes_switch(tf_config, tmp_path):
    config = tf_config.session_dump_config(action="dump|overflow|fusion_switch|fusion_off")
    assert parameters(config) == {
        "use_off_line": True,
        "debug_dir": str(tmp_path / "precision_data/npu/debug_0").encode(),
        "enable_dump_debug": True,
        "dump_debug_mode": b"all",
        "dump_path": str(tmp_path / "precision_data/overflow/dump").encode(),
        "op_debug_level": 4,
        "fusion_switch_file": tf_config.FUSION_OFF_FILE.encode(),
    }


def test_profiling(tf_config, tmp_path):
    found = parameters(tf_config.session_dump_config(action="prof"))
    assert found["profiling_mode"] is True
    options = json.loads(found["profiling_options"].decode())
    assert options["output"] == str(tmp_path / "precision_data/npu/debug_0/prof")
    assert options["storage_limit"] == "1000MB"
    assert options["aic_metrics"] == "PipeUtilization"
    assert {options[key] for key in ("training_trace", "l2", "hccl", "task_trace", "aicpu", "msproftx")} == {"on"}
    assert options["fp_point"] == options["bp_point"] == ""


def test_fusion_files(tf_config):
    with open(tf_config.FUSION_OFF_FILE) as file:
        assert json.load(file) == {"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}
    with open(tf_config.FUSION_SWITCH_FILE) as file:
        assert json.load(file) == {"Switch": {"GraphFusion": {}, "UBFusion": {}}}
    found = parameters(tf_config.session_dump_config(action="fusion_switch"))
    assert found["fusion_switch_file"] == tf_config.FUSION_SWITCH_FILE.encode()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"PRECISION_TOOL_DUMP": "True"}, "enable_dump"),
        ({"PRECISION_TOOL_OVERFLOW": "True"}, "enable_dump_debug"),
        ({"PRECISION_TOOL_OVERFLOW": "True", "PRECISION_TOOL_DUMP": "True"}, "enable_dump_debug"),
        ({"PRECISION_TOOL_DUMP": "False"}, None),
    ],
)
def test_flags_of_the_environment(tf_config, monkeypatch, environ, expected):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = parameters(tf_config.session_dump_config())
    assert {key for key in found if key.startswith("enable_")} == ({expected} if expected else set())
    explicit = parameters(tf_config.session_dump_config(action="fusion_off"))
    assert not [key for key in explicit if key.startswith("enable_")]


def test_an_existing_configuration_is_extended(tf_config, monkeypatch):
    monkeypatch.setenv("TF_DUMP_STEP", "0|3-5")
    config = tf1.ConfigProto(allow_soft_placement=True)
    config.graph_options.rewrite_options.custom_optimizers.add().name = "NpuOptimizer"
    config.graph_options.rewrite_options.custom_optimizers[0].parameter_map["mine"].i = 3
    assert tf_config.session_dump_config(config, "dump") is config
    assert config.allow_soft_placement
    found = parameters(config)
    assert found["mine"] == 3
    assert found["dump_step"] == b"0|3-5"


def test_update_custom_op(tf_config):
    config = tf1.ConfigProto()
    custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    custom_op.name = "NpuOptimizer"
    assert tf_config.update_custom_op(custom_op, action="dump") is custom_op
    assert "use_off_line" not in parameters(config)
    assert parameters(config)["enable_dump"] is True


def test_an_action_that_does_nothing_is_refused(tf_config):
    from dumpers.errors import UsageError

    with pytest.raises(UsageError, match=r"dmup.*overflow, dump"):
        tf_config.session_dump_config(action="dmup")


def test_a_root_that_cannot_be_written(tf_config, tmp_path, monkeypatch):
    from dumpers.errors import DataError

    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("ROOT_DIR", str(tmp_path / "blocked"))
    with pytest.raises(DataError, match="ROOT_DIR"):
        tf_config.session_dump_config(action="dump")


def test_seeds(tf_config, capsys):
    def draws():
        graph = tf.Graph()
        with graph.as_default():
            tf_config.seed_everything()
            tensor = tf1.random_uniform([2])
            with tf1.Session(graph=graph) as session:
                return random.random(), np.random.rand(), session.run(tensor).tolist()

    assert draws() == draws()
    assert os.environ["PYTHONHASHSEED"] == "2022"
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2
    assert "seed 2022" in said.err


def test_sess_dump(tf_config, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_DUMP_STEP", "1")
    graph = tf.Graph()
    with graph.as_default():
        v = tf1.get_variable("v", initializer=2.0)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(v * v)
        init = tf1.global_variables_initializer()
    with tf_config.sess_dump(sess=tf1.Session(graph=graph)) as session:
        assert isinstance(session, tf1.Session)
        session.run(init)
        for _ in range(3):
            session.run(train)
    (record,) = (tmp_path / "precision_data" / "tf" / "tf_debug").glob("run_*")
    assert json.loads((record / "record.json").read_text())["step"] == 1


def test_public_names(tf_config):
    assert sorted(tf_config.__all__) == [
        "FUSION_OFF_FILE", "FUSION_SWITCH_FILE", "NpuPrintLossScaleCallBack", "eager_dump",
        "estimator_dump",
        "estimator_dump_config", "function_dump",
        "keras_dump",
        "npu_device_dump_config", "seed_everything", "sess_dump", "session_dump_config",
        "update_custom_op",
    ]  # fmt: skip
    assert all(getattr(tf_config, name) for name in tf_config.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        tf_config.nothing  # noqa: B018


def test_estimator_dump(tf_config, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_DUMP_STEP", "1")
    with tf.Graph().as_default():
        v = tf1.get_variable("v", initializer=2.0)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(v * v)
        hook = tf_config.estimator_dump()
        assert isinstance(hook, tf1.train.SessionRunHook)
        with tf1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(3):
                session.run(train)
    (record,) = (tmp_path / "precision_data" / "tf" / "tf_debug").glob("run_*")
    assert json.loads((record / "record.json").read_text())["step"] == 1
    assert os.environ["NPU_DUMP_GRAPH"] == "true"


def test_estimator_dump_config_without_a_plug_in(tf_config, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TF_DUMP_STEP", "0|3-5")
    root = tmp_path / "precision_data"
    dump = tf_config.estimator_dump_config(action="dump|prof")
    assert (dump.enable_dump, dump.enable_dump_debug) == (True, False)
    assert (dump.dump_path, dump.dump_step, dump.dump_mode) == (str(root / "npu/debug_0/dump"), "0|3-5", "all")
    overflow = tf_config.estimator_dump_config("dump|overflow")
    assert (overflow.enable_dump, overflow.enable_dump_debug) == (False, True)
    assert (overflow.dump_path, overflow.dump_mode, overflow.dump_step) == (str(root / "overflow/dump"), "all", None)
    assert tf_config.estimator_dump_config() is None
    capsys.readouterr()
    assert tf_config.estimator_dump_config("fusion_off") is None
    assert "FUSION_OFF_FILE" in capsys.readouterr().err
    monkeypatch.setenv("PRECISION_TOOL_DUMP", "True")
    assert tf_config.estimator_dump_config().enable_dump is True
    assert (root / "npu/debug_0/dump").is_dir()


def test_estimator_dump_config_uses_the_class_of_the_plug_in(tf_config, tmp_path, monkeypatch):
    """A package of that name with a class that takes the documented arguments, and no others."""
    package = tmp_path / "site" / "npu_bridge"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "npu_init.py").write_text(
        "class DumpConfig:\n"
        "    def __init__(self, enable_dump=False, dump_path=None, dump_step=None, dump_mode='output',\n"
        "                 enable_dump_debug=False, dump_debug_mode='all'):\n"
        "        self._enable_dump, self._dump_path = enable_dump, dump_path\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    try:
        config = tf_config.estimator_dump_config("dump")
    finally:  # the plug-in must not be there for other tests
        for name in ("npu_bridge.npu_init", "npu_bridge"):
            sys.modules.pop(name, None)
    assert type(config).__module__ == "npu_bridge.npu_init"
    assert config._enable_dump is True


def test_npu_device_dump_config(tf_config, tmp_path):
    """Options are whatever object the plug-in keeps; only what an action means is set."""
    from types import SimpleNamespace

    def filled(action):
        options = SimpleNamespace(dump_config=SimpleNamespace())
        device = SimpleNamespace(global_options=lambda: options)
        assert tf_config.npu_device_dump_config(device, action) is device
        flat = dict(vars(options), **vars(options.dump_config))
        flat.pop("dump_config")
        return flat

    root = str(tmp_path / "precision_data")
    assert filled("dump|fusion_off") == {
        "enable_dump": True, "dump_path": root + "/npu/debug_0/dump", "dump_step": "0", "dump_mode": "all",
        "op_debug_level": 4, "fusion_switch_file": tf_config.FUSION_OFF_FILE,
    }  # fmt: skip
    assert filled("dump|overflow|fusion_switch") == {
        "enable_dump_debug": True, "dump_path": root + "/overflow/dump", "dump_debug_mode": "all", "op_debug_level": 4,
        "fusion_switch_file": tf_config.FUSION_SWITCH_FILE,
    }  # fmt: skip
    assert filled("prof") == {}


def test_loss_scale_is_told_each_batch(tmp_path):
    """A Keras training in a process of its own, with Keras' own loss-scaling optimizer."""
    import subprocess
    import sys

    if not hasattr(tf.keras.mixed_precision, "LossScaleOptimizer"):
        pytest.skip("Keras of TensorFlow 1.15 has no optimizer that scales the loss")
    program = """
import numpy as np, tensorflow as tf
import precision_tool.tf_config as npu_tf_config
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
model.compile(optimizer, "mse")
told = npu_tf_config.NpuPrintLossScaleCallBack(optimizer, loss=lambda: 0.5)
model.fit(np.ones((6, 2), np.float32), np.ones((6, 1), np.float32), batch_size=2, verbose=0, callbacks=[told])
class Device:
    loss_scale, last_step_finite = tf.Variable(1024.0), tf.constant(False)
npu_tf_config.NpuPrintLossScaleCallBack(Device).on_train_batch_begin(7)
"""
    environment = dict(
        os.environ, ROOT_DIR=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path), TF_CPP_MIN_LOG_LEVEL="3"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "loss_scale" in line]
    assert told == [
        *(f"[precision_tool] step {step}: loss_scale=32768.0 last_step_finite=unknown loss=0.5" for step in range(3)),
        "[precision_tool] step 7: loss_scale=1024.0 last_step_finite=False",
    ]
