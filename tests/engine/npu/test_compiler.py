"""The device graph: names, types, fusions, casts, origins."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import EngineError
from engine.npu.faults import find_op
from engine.npu.fusions import FusionSwitches, read_fusion_switches
from engine.observe import DeviceGraph
from precision_tool import device

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def _graphs() -> dict[str, DeviceGraph]:
    return {}


@pytest.fixture
def compiled(click_model, config, train, _graphs):
    """Device graph of the click model's training step, by precision mode; compiled once."""

    def get(mode: str = "force_fp32") -> DeviceGraph:
        if mode not in _graphs:
            _graphs[mode] = train(click_model(), config(precision_mode=mode), steps=1).device.graphs[0]
        return _graphs[mode]

    return get


@pytest.mark.parametrize("mode", ["force_fp32", "allow_mix_precision"])
def test_the_graph_is_consistent(compiled, mode):
    graph = compiled(mode)
    names = [op.name for op in graph.ops]
    assert len(set(names)) == len(names)
    before: dict[str, int] = {}
    for number, op in enumerate(graph.ops):
        assert op.id == number
        assert len(op.inputs) == len(op.input_ports)
        for (source, slot), port in zip(op.inputs, op.input_ports, strict=True):
            assert slot < before[source]
            assert port.dtype == next(o for o in graph.ops if o.name == source).output_ports[slot].dtype
        assert set(op.control_inputs) <= set(before)
        before[op.name] = len(op.output_ports)
    assert graph.ops[-1].type == "NetOutput"


def test_matmul_bias_relu_is_fused(compiled):
    op = find_op(compiled(), "layer0/matmul")
    assert op.name == "layer0/matmullayer0/biaslayer0/relu"
    assert op.type == "MatMulV2"
    assert op.originals == ("layer0/matmul", "layer0/bias", "layer0/relu")
    assert op.original_types == ("MatMul", "BiasAdd", "Relu")
    assert op.pass_name == "MatMulBiasAddReluFusionPass"
    assert op.output_ports[0].origin == ("layer0/relu", 0)
    assert len(op.inputs) == 3
    assert op.attrs["transpose_x1"] is False


def test_matmul_bias_and_mul_add_are_fused(compiled):
    bias = find_op(compiled(), "layer1/bias")
    assert (bias.originals, bias.pass_name) == (("layer1/matmul", "layer1/bias"), "MatMulBiasAddFusionPass")
    shift = find_op(compiled(), "layer1/shift")
    assert (shift.type, shift.original_types) == ("FusedMulAdd", ("Mul", "AddV2"))
    assert shift.pass_name == "MulAddFusionPass"


def test_mixed_precision_declares_its_casts(compiled):
    graph = compiled("allow_mix_precision")
    assert graph.attrs["precision_mode"] == "allow_mix_precision"
    casts = [op for op in graph.ops if op.name.startswith("trans_Cast_")]
    assert casts
    for cast in casts:
        assert cast.originals == ()
        assert (cast.attrs["SrcT"], cast.attrs["DstT"]) == ("float32", "float16")
        assert (cast.input_ports[0].dtype, cast.output_ports[0].dtype) == ("float32", "float16")
    for op in graph.ops:
        if op.type == "MatMulV2":
            assert [port.dtype for port in op.input_ports[:2]] == ["float16", "float16"]
            assert op.output_ports[0].dtype == "float32"
    assert not [op for op in compiled().ops if op.name.startswith("trans_Cast_")]


def test_lookups_carry_their_table(compiled):
    op = find_op(compiled(), "user_table")
    assert op.type == "GatherV2"
    assert op.attrs["_embedding_keys"].endswith(":0")
    assert [port.dtype for port in op.input_ports] == ["float32", "int64", "int32"]
    # A table's name is also its variable's: the lookup is meant, for a variable has no task.
    assert op.name == "user_lookup"


def test_host_ops_and_updates(compiled):
    graph = compiled()
    unique = find_op(graph, "Unique")
    assert (unique.type, unique.attrs["original_type"], unique.has_task) == ("FrameworkOp", "Unique", True)
    adam = next(op for op in graph.ops if op.type == "ApplyAdamD")
    assert len(adam.inputs) == 10
    assert [port.dtype for port in adam.output_ports] == ["float32"] * 3
    assert adam.original_types == ("ResourceApplyAdam",)
    placeholder = find_op(graph, "label")
    assert (placeholder.type, placeholder.has_task) == ("Data", False)


def run_once(graph, fetches, config):
    """Compiles one run that counts as a step and returns its device graph and the fetched values."""
    with graph.as_default():
        v = v1.get_variable("v", initializer=1.0)
        train = v1.assign_add(v, 1.0)
        init = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=config) as session:
        session.run(init)
        values = session.run([*fetches, train])
        return device.device_of(session).graphs[0], values[:-1]


def test_chains_that_somebody_else_reads_are_not_fused(config):
    graph = tf.Graph()
    with graph.as_default():
        a = v1.placeholder_with_default(np.ones((2, 3), np.float32), [2, 3])
        fetched = tf.matmul(a, tf.ones([3, 4]), name="fetched")
        one = tf.nn.bias_add(fetched, tf.ones([4]), name="one")
        waited = tf.matmul(a, tf.ones([3, 4]), name="waited")
        with tf.control_dependencies([waited]):
            late = tf.ones([4]) * 2.0
        two = tf.nn.bias_add(waited, late, name="two")
        twice = tf.multiply(a, a, name="twice")
        three = tf.add(twice, twice, name="three")
    compiled_graph, _ = run_once(graph, [fetched, one, two, three], config())
    assert not [op.name for op in compiled_graph.ops if op.pass_name]


@pytest.mark.parametrize("swapped", [True, False])
def test_fused_values(config, swapped):
    random = np.random.default_rng(0)
    x, y, z, w = (random.normal(size=shape).astype(np.float32) for shape in ((3, 4), (4,), (3, 4), (4, 4)))
    graph = tf.Graph()
    with graph.as_default():
        product = tf.multiply(x, y, name="product")
        total = tf.add(z, product, name="total") if swapped else tf.add(product, z, name="total")
        dense = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), y))
    compiled_graph, (fused, layer) = run_once(graph, [total, dense], config())
    assert {op.pass_name for op in compiled_graph.ops} == {"", "MulAddFusionPass", "MatMulBiasAddReluFusionPass"}
    exact = x.astype(np.float64) * y + z
    np.testing.assert_array_equal(fused, exact.astype(np.float32))
    np.testing.assert_allclose(layer, np.maximum(x.astype(np.float64) @ w + y, 0), atol=1e-5)


def test_fusion_switch_file(config, tmp_path, click_model, train):
    path = tmp_path / "switch.cfg"
    path.write_text(json.dumps({"Switch": {"GraphFusion": {"ALL": "off", "MatMulBiasAddFusionPass": "on"}}}))
    graph = train(click_model(), config(fusion_switch_file=str(path)), steps=1).device.graphs[0]
    assert {op.pass_name for op in graph.ops} == {"", "MatMulBiasAddFusionPass"}


def test_fusion_switches():
    assert "MulAddFusionPass" in FusionSwitches()
    assert "MulAddFusionPass" in FusionSwitches({"ALL": False, "MulAddFusionPass": True})
    assert "MulAddFusionPass" not in FusionSwitches({"ALL": False})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("{", "line 1"), ("[]", "no object 'Switch'"), ('{"Switch": {"GraphFusion": {"A": "maybe"}}}', "'maybe'")],
)
def test_bad_switch_files(tmp_path, content, complaint):
    path = tmp_path / "switch.cfg"
    path.write_text(content)
    with pytest.raises(EngineError, match=complaint) as caught:
        read_fusion_switches(path)
    assert str(path) in str(caught.value)


def test_ub_rules_do_not_switch_graph_passes_off(tmp_path):
    path = tmp_path / "switch.cfg"
    path.write_text('{"Switch": {"UBFusion": {"ALL": "off"}}}')
    assert "MulAddFusionPass" in read_fusion_switches(path)
