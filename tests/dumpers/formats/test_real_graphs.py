"""The real graph files, and every number that their README states."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dumpers.formats.ge_graph import read_ge_graphs, read_ge_json, read_ge_model, read_ge_text
from dumpers.formats.tf_graph import read_functions, read_graph_def
from dumpers.graph import Graph, Source

FACTS = {
    # data edges, control edges, empty inputs, with originals, with non-empty originals, pass_name, origin names, absent
    "derived/ge_proto_00000000_Build.txt": ("hh_om_0", 46, 47, 5, 4, 38, 9, 5, 9, 3),
    "vae_om/hh_om.om": ("hh_om_0", 46, 47, 5, 4, 38, 9, 5, 9, 3),
    "derived/vae_compare/hh_om_graph.json": ("hh_om_0", 46, 47, 5, 4, 38, 9, 5, 9, 3),
    "ddnet_om/out_model_def_partition.bin": ("out_0", 194, 194, 4, 37, 120, 11, 30, None, 35),
    "ge_json/model.json": ("sub_model_NPU_0", 19, 21, 0, 4, 9, 4, 1, 5, None),
    "ge_json/test.om.json": ("tdnn_NPU_0", 132, 140, 33, 7, 115, 40, 14, 65, None),
}


@pytest.mark.parametrize("file", FACTS)
def test_real_graphs(shared_data: Path, file: str):
    (graph,) = read_ge_graphs(shared_data / "npu_samples" / file)
    inputs = [source for op in graph for source in op.inputs]
    key = "_datadump_original_op_names"
    facts = (
        graph.name,
        len(graph),
        sum(bool(source.op) for source in inputs),
        sum(len(op.control_inputs) for op in graph),
        sum(not source.op for source in inputs),
        sum(key in op.attrs for op in graph),
        sum(bool(op.attrs.get(key)) for op in graph),
        sum("pass_name" in op.attrs for op in graph),
        sum("_datadump_origin_name" in port.attrs for op in graph for port in op.output_ports),
        sum(port.dtype == "undefined" for op in graph for port in op.input_ports),
    )
    assert [a for a, b in zip(facts, FACTS[file], strict=True) if b is not None] == [
        b for b in FACTS[file] if b is not None
    ]
    assert all(len(op.inputs) == len(op.input_ports) for op in graph)
    assert sorted(op.id for op in graph) == list(range(len(graph)))


def test_one_model_in_three_forms(shared_data: Path):
    folder = shared_data / "npu_samples"
    text = read_ge_text(folder / "derived/ge_proto_00000000_Build.txt")
    tree = read_ge_json(folder / "derived/vae_compare/hh_om_graph.json")
    binary = read_ge_model(folder / "vae_om/hh_om.om")
    for name, op in text.ops.items():
        for other in (tree.ops[name], binary.ops[name]):
            assert (op.type, op.inputs, op.control_inputs, op.id, op.stream_id) == (
                other.type, other.inputs, other.control_inputs, other.id, other.stream_id,
            )  # fmt: skip
            assert [(p.dtype, p.shape, p.format, p.attrs) for p in op.input_ports + op.output_ports] == [
                (p.dtype, p.shape, p.format, p.attrs) for p in other.input_ports + other.output_ports
            ]
            for key in tree.ops[name].attrs.keys() - {"value"}:
                assert op.attrs[key] == other.attrs[key], key
    assert text.attrs["_session_graph_id"] == "-1_0"


def test_counts_and_fused_ops_of_the_vae(shared_data: Path):
    graph = read_ge_text(shared_data / "npu_samples/derived/ge_proto_00000000_Build.txt")
    counts = Counter(op.type for op in graph)
    assert (counts["Const"], counts["TransData"], counts["Cast"], counts["MatMulV2"], len(counts)) == (17, 7, 3, 3, 17)
    mean = graph.ops["recognition/w_mean/MatMuladd"]
    assert mean.originals == ("recognition/w_mean/add", "recognition/w_mean/MatMul", "add")
    assert mean.pass_names == ("TbeFullyconnectionElemwiseDequantFusionPass",)
    assert mean.output_ports[0].attrs["_datadump_origin_name"] == "add"
    assert mean.output_ports[0].attrs["origin_shape"] == (100, 20)
    relu = graph.ops["generation/g_h1/conv2d_transposegeneration/Relu_1"]
    assert relu.output_ports[0].attrs["_datadump_origin_name"] == "generation/Relu_1"
    cast = graph.ops["trans_Cast_0"]
    assert cast.originals == ()
    assert (cast.attrs["SrcT"], cast.attrs["DstT"]) == ("float32", "float16")


def test_a_pass_that_was_undone(shared_data: Path):
    graph = read_ge_model(shared_data / "npu_samples/ddnet_om/out_model_def_partition.bin")
    undone = [op for op in graph if op.pass_names]
    assert len(undone) == 30
    assert all("fusion_failed" in op.attrs for op in undone)


def test_pass_names_as_lists_and_text(shared_data: Path):
    graph = read_ge_json(shared_data / "npu_samples/ge_json/test.om.json")
    assert sum(isinstance(op.attrs.get("pass_name"), tuple) for op in graph) == 14
    assert sum(isinstance(op.attrs.get("pass_name_ub"), str) for op in graph) == 6
    assert sum("_datadump_is_multiop" in op.attrs for op in graph) == 7
    twice = read_ge_json(shared_data / "npu_samples/ge_json/test.om.json")
    assert any(len(op.attrs.get("_datadump_original_op_names") or ()) > len(op.originals) for op in twice)
    slopes = {op.attrs["negative_slope"] for op in graph if "negative_slope" in op.attrs}
    assert slopes == {float(np.float32("0.01"))}


VAE = "recognition/lrelu/Absrecognition/lrelu/mulrecognition/lrelu/mul_1recognition/lrelu/add"
FUSED = {
    # name: type, originals, pass, where output 0 comes from
    "recognition/w_mean/MatMuladd": (
        "MatMulV2",
        ("recognition/w_mean/add", "recognition/w_mean/MatMul", "add"),
        "TbeFullyconnectionElemwiseDequantFusionPass",
        "add",
    ),
    "recognition/w_stddev/MatMulmul": (
        "MatMulV2",
        ("recognition/w_stddev/add", "recognition/w_stddev/MatMul", "mul"),
        "TbeFullyconnectionElemwiseDequantFusionPass",
        "mul",
    ),
    VAE: (
        "Abs",
        tuple(f"recognition/lrelu/{name}" for name in ("Abs", "mul", "mul_1", "add")),
        "AutomaticUbFusion",
        "recognition/lrelu/add",
    ),
    "generation/g_h1/conv2d_transposegeneration/Relu_1": (
        "Conv2DBackpropInputD",
        (
            "generation/g_h1/conv2d_transpose/input_sizes",
            "generation/g_h1/conv2d_transpose",
            "generation/Relu_1",
        ),
        "TbeDxElemwisePass",
        "generation/Relu_1",
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_ops_of_the_vae(shared_data: Path, name: str):
    op = read_ge_model(shared_data / "npu_samples/vae_om/hh_om.om").ops[name]
    kind, originals, fusion, origin = FUSED[name]
    assert (op.type, sorted(op.originals), op.pass_names) == (kind, sorted(originals), (fusion,))
    assert (op.fused, op.applied_passes) == (True, (fusion,))
    assert op.output_ports[0].attrs["_datadump_origin_name"] == origin
    assert op.output_ports[0].attrs.get("_datadump_origin_output_index", 0) == 0


def test_op_counts(shared_data: Path):
    vae = read_ge_model(shared_data / "npu_samples/vae_om/hh_om.om")
    single = ["Data", "AtomicAddrClean", "FrameworkOp", "Send", "Recv", "Mul", "Add", "Relu", "Sigmoid", "NetOutput"]
    assert Counter(op.type for op in vae) == {
        "Const": 17, "TransData": 7, "Cast": 3, "MatMulV2": 3, "Conv2D": 2, "Abs": 2, "Conv2DBackpropInputD": 2,
        **dict.fromkeys(single, 1),
    }  # fmt: skip
    assert {op.stream_id for op in vae} == {0, 1}
    assert sum(bool(op.kernel_name) for op in vae) == 24
    ddnet = read_ge_model(shared_data / "npu_samples/ddnet_om/out_model_def_partition.bin")
    single = ["ConcatV2D", "ReduceMaxD", "SoftmaxV2", "NetOutput"]
    assert Counter(op.type for op in ddnet) == {
        "Const": 55, "TransData": 48, "Mul": 17, "Add": 17, "Conv2D": 15, "LeakyRelu": 15, "Cast": 5,
        "StridedSliceD": 5, "MaxPool": 4, "MatMulV2": 3, "Data": 2, "Sub": 2, "ResizeBilinearV2D": 2,
        **dict.fromkeys(single, 1),
    }  # fmt: skip
    assert {op.stream_id for op in ddnet} == {0}


def test_models_behind_the_graphs(shared_data: Path):
    folder = shared_data / "npu_samples"
    attrs = read_ge_model(folder / "vae_om/hh_om.om").attrs
    assert (attrs["model_name"], attrs["model_version"], attrs["model_custom_version"]) == ("hh_om", 2, "1.11.z.0")
    assert read_ge_model(folder / "ddnet_om/out_model_def_partition.bin").attrs["model_name"] == "out"
    assert read_ge_json(folder / "ge_json/model.json").attrs["model_name"] == "sub_model"
    assert read_ge_json(folder / "ge_json/test.om.json").attrs["model_name"] == "tdnn"
    assert "model_name" not in read_ge_text(folder / "derived/ge_proto_00000000_Build.txt").attrs


def test_traps_of_the_converter_s_json(shared_data: Path):
    graph = read_ge_json(shared_data / "npu_samples/ge_json/model.json")
    (op,) = (op for op in graph if op.pass_names)
    assert op.name == "Slice_1218"
    assert isinstance(op.attrs["pass_name"], tuple)
    assert any("ConstToAttrStridedSliceV2Fusion" in name for name in op.applied_passes)
    ports = [port for other in (graph, read_ge_json(shared_data / "npu_samples/ge_json/test.om.json")) for op in other
             for port in (*op.input_ports, *op.output_ports)]  # fmt: skip
    assert any(port.attrs.get("_datadump_origin_data_type") == "RESERVED" for port in ports)
    assert any("shape_range" in port.attrs and port.attrs["shape_range"] is None for port in ports)
    assert all(port.dtype == "undefined" and port.shape is None for port in ports if port.format == "FORMAT_RESERVED")


@pytest.mark.parametrize("file", FACTS)
def test_edges_stay_apart_and_have_no_circle(shared_data: Path, file: str):
    (graph,) = read_ge_graphs(shared_data / "npu_samples" / file)
    edges = graph.networkx.edges(data="control")
    data = {(source.op, op.name) for op in graph for source in op.inputs if source.op}
    controls = {(name, op.name) for op in graph for name in op.control_inputs}
    assert {(a, b) for a, b, control in edges if not control} == data
    assert {(a, b) for a, b, control in edges if control} == controls - data
    assert set(graph.dag.edges) == set(graph.networkx.edges)
    assert set(graph.frames.values()) == {()}
    readers = {(op, user, index, slot) for op, users in graph.consumers.items() for user, index, slot in users}
    assert readers == {
        (source.op, op.name, index, source.slot)
        for op in graph for index, source in enumerate(op.inputs) if source.op
    }  # fmt: skip


def test_the_adapter_s_attributes_are_text(shared_data: Path):
    folder = shared_data / "npu_samples/tf_graph"
    text = (folder / "om_test_build_geop.pbtxt").read_text()
    node = text[: text.index('name: "Variable"')]
    keys = Counter(re.findall(r'key: "([^"]+)"', node))
    (twice,) = (key for key, count in keys.items() if count == 2)
    last = re.findall(rf'key: "{twice}"\s*value {{\s*s: "([^"]*)"', node)[-1]
    op = read_graph_def(folder / "om_test_build_geop.pbtxt").ops["Const_1"]
    assert op.attrs[twice] == last
    adapter = read_graph_def(folder / "geop.pbtxt").ops["GeOp1_0"].attrs
    assert all(isinstance(value, str) for key, value in adapter.items() if key.startswith("_"))
    body = read_functions(folder / "geop.pbtxt")["GeOp1_0"]
    assert isinstance(body, Graph)
    assert (body.arguments, body.results) == ((), (Source("Add", 0),))
