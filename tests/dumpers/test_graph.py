"""Graph: what ops and ports tell, loops, walks without circles, calls of sub-graphs and functions."""

from __future__ import annotations

import pickle
from pathlib import Path

import networkx
import pytest

from dumpers.formats.ge_graph import read_ge_graphs, read_ge_text, write_ge_text
from dumpers.formats.tf_graph import read_graph_def
from dumpers.graph import Graph, Op, Port, Source


def graph_of(*ops: Op, name: str = "g") -> Graph:
    return Graph(name, {op.name: op for op in ops}, "ge")


def op(name: str, kind: str = "A", *inputs: str, controls: tuple[str, ...] = (), **attrs: object) -> Op:
    sources = tuple(Source(text.partition(":")[0], int(text.partition(":")[2] or 0)) for text in inputs)
    return Op(name, kind, sources, controls, attrs=attrs)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- ports and ops


def test_port_before_the_device_changed_it():
    attrs = {"origin_format": "NHWC", "origin_shape": (1, 2, 2, 3), "origin_data_type": "float32"}
    port = Port("float16", (1, 1, 2, 2, 16), "NC1HWC0", attrs)
    assert (port.origin_format, port.origin_shape, port.origin_dtype) == ("NHWC", (1, 2, 2, 3), "float32")
    assert (Port("int8").origin_format, Port("int8").origin_shape, Port("int8").origin_dtype) == ("", None, "")
    assert Port("int8", attrs={"origin_shape": ()}).origin_shape == ()
    assert Port("int8", attrs={"origin_shape": (-2,)}).origin_shape is None, "rank unknown"
    assert Port("int8", attrs={"origin_shape": (-1, 3)}).origin_shape == (-1, 3)
    assert Port("int8", attrs={"origin_shape": (3,), "origin_shape_initialized": False}).origin_shape is None
    assert Port("int8", attrs={"origin_shape": ("x",), "origin_format": 3}).origin_shape is None
    assert Port("int8", attrs={"origin_data_type": "RESERVED"}).origin_dtype == ""


def test_kernel_stream_and_passes():
    attrs = {
        "a/b_kernelname": "te_1",
        "_kernelname": "te_2",
        "_ge_attr_op_kernel_lib_name": "AIcoreEngine",
        "pass_name": ("P", "Q"),
        "pass_name_ub": "U",
        "subgraph_name": ("s1",),
    }
    one = Op("a/b", "A", attrs=attrs, stream_id=4)
    assert (one.kernel_name, one.kernel_lib, one.stream_id) == ("te_1", "AIcoreEngine", 4)
    assert Op("c", "A", attrs=attrs).kernel_name == "te_2"
    assert (Op("c", "A").kernel_name, Op("c", "A").kernel_lib, Op("c", "A").subgraph_names) == ("", "", ())
    assert (one.pass_names, one.applied_passes, one.subgraph_names) == (("P", "Q", "U"), ("P", "Q", "U"), ("s1",))


def test_a_fusion_that_was_undone_has_no_applied_pass():
    undone = Op("a", "A", attrs={"pass_name": "P", "fusion_failed": 1, "_datadump_original_op_names": ("a",)})
    assert (undone.pass_names, undone.applied_passes, undone.fused) == (("P",), (), False)
    fused = Op("ab", "A", attrs={"pass_name": "P", "fusion_failed": 1, "_datadump_original_op_names": ("a", "b")})
    assert (fused.applied_passes, fused.fused) == (("P",), True)


def test_undone_fusions_of_the_real_graph(shared_data: Path):
    (graph,) = read_ge_graphs(shared_data / "npu_samples/ddnet_om/out_model_def_partition.bin")
    assert sum(bool(op.pass_names) for op in graph) == 30
    assert sum(bool(op.applied_passes) for op in graph) == 0
    joined = [op.name for op in graph if op.fused and "batchnorm" in op.name]
    assert [name.rpartition("leaky_re_lu_")[2] for name in joined] == ["7/LeakyRelu", "8/LeakyRelu"]


def test_formats_before_and_after_on_the_real_graph(shared_data: Path):
    graph = read_ge_text(shared_data / "npu_samples/derived/ge_proto_00000000_Build.txt")
    port = graph.ops["recognition/w_mean/MatMuladd"].output_ports[0]
    assert (port.format, port.shape) == ("FRACTAL_NZ", (2, 7, 16, 16))
    assert (port.origin_shape, port.origin_format) == ((100, 20), "ND")
    kernels = [op.kernel_name for op in graph if op.kernel_name]
    assert len(kernels) == 24
    assert graph.ops["recognition/w_mean/MatMuladd"].kernel_name == (
        "te_fused_op_mat_mul_add_b3ec4a92b8991bbf_2d722d672a9d6cb9_0__kernel0"
    )
    assert {op.stream_id for op in graph} == {0, 1}
    assert graph.ops["recognition/w_mean/MatMuladd"].kernel_lib == "AIcoreEngine"


# ---------------------------------------------------------------------------------------------------------- loops


def loop(frame: str = "outer/while", around: str = "x") -> list[Op]:
    """One loop in frames, all its ops below the frame's name."""
    n = frame
    return [
        op(f"{n}/Enter", "Enter", around, frame_name=frame),
        op(f"{n}/Merge", "Merge", f"{n}/Enter", f"{n}/Next"),
        op(f"{n}/Cond", "LoopCond", f"{n}/Merge"),
        op(f"{n}/Switch", "Switch", f"{n}/Merge", f"{n}/Cond"),
        op(f"{n}/Body", "Add", f"{n}/Switch:1", f"{n}/const"),
        op(f"{n}/const", "Const", controls=(f"{n}/Switch",)),
        op(f"{n}/Next", "NextIteration", f"{n}/Body"),
        op(f"{n}/Exit", "Exit", f"{n}/Switch"),
    ]


def test_frames_and_back_edges():
    graph = graph_of(op("x"), *loop(), op("after", "Neg", "outer/while/Exit"), op("apart"))
    assert not networkx.is_directed_acyclic_graph(graph.networkx)
    assert networkx.is_directed_acyclic_graph(graph.dag)
    assert set(graph.networkx.edges) - set(graph.dag.edges) == {("outer/while/Next", "outer/while/Merge")}
    inside = {name: frame for name, frame in graph.frames.items() if frame}
    assert inside == {name: ("outer/while",) for name in graph.ops if name.startswith("outer/while/")}
    assert (graph.frames["x"], graph.frames["after"], graph.frames["apart"]) == ((), (), ())
    assert list(graph.frames) == list(graph.ops)
    assert graph.dag.edges["outer/while/Switch", "outer/while/const"]["control"] is True


def test_frames_inside_frames():
    inner = loop("inner", "outer/while/Switch")
    outer = [
        *loop(),
        *inner,
        op("outer/while/Use", "Neg", "inner/Exit"),
    ]
    graph = graph_of(op("x"), *outer)
    assert graph.frames["inner/Body"] == ("outer/while", "inner")
    assert graph.frames["inner/Exit"] == ("outer/while", "inner")
    assert graph.frames["outer/while/Use"] == ("outer/while",)
    assert networkx.is_directed_acyclic_graph(graph.dag)


def test_circles_of_any_kind_are_opened():
    graph = graph_of(
        op("a", "A", "c"), op("b", "B", "a"), op("c", "C", "b"), op("self", "D", "self"), op("e", "E", "c")
    )
    assert networkx.is_directed_acyclic_graph(graph.dag)
    removed = set(graph.networkx.edges) - set(graph.dag.edges)
    assert removed == {("c", "a"), ("self", "self")}
    assert set(graph.frames.values()) == {()}


def test_control_edge_back_to_the_merge_is_no_circle():
    ops = [op("e", "Enter"), op("m", "Merge", "e", controls=("n",)), op("n", "NextIteration", "m")]
    graph = graph_of(*ops)
    assert networkx.is_directed_acyclic_graph(graph.dag)
    assert graph.frames == {"e": ("e",), "m": ("e",), "n": ("e",)}


def test_a_long_chain_does_not_exhaust_the_stack():
    ops = [op("op0", "Enter", "op4999", frame_name="f"), *(op(f"op{i}", "A", f"op{i - 1}") for i in range(1, 5000))]
    graph = graph_of(*ops)
    assert set(graph.networkx.edges) - set(graph.dag.edges) == {("op4999", "op0")}
    assert graph.frames["op4999"] == ("f",)


def test_loops_as_tensorflow_sees_them(tmp_path: Path):
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    graph = tf.Graph()
    was = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with graph.as_default():

            def body(i, x):  # type: ignore[no-untyped-def]
                inner = v1.while_loop(lambda j, y: j < 3, lambda j, y: (j + 1, y * 2.0), (0, x), name="inner")
                return i + 1, inner[1] + 1.0

            start = v1.placeholder(tf.float32, (2,), name="start")
            tf.negative(v1.while_loop(lambda i, x: i < 4, body, (0, start), name="outer")[1], name="end")
    finally:
        if was:
            v1.enable_control_flow_v2()
    (tmp_path / "g.pb").write_bytes(graph.as_graph_def().SerializeToString())
    found = read_graph_def(tmp_path / "g.pb")
    assert networkx.is_directed_acyclic_graph(found.dag)
    assert any(frame for frame in found.frames.values())
    for node in graph.get_operations():
        context, frames = node._get_control_flow_context(), []
        while context is not None:
            if context.IsWhileContext():
                frames.insert(0, context.name)
            context = context.outer_context
        assert found.frames[node.name] == tuple(frames), node.name


# ---------------------------------------------------------------------------------------------------------- calls


def device_loop() -> tuple[Graph, ...]:
    call = Op("call", "PartitionedCall", (Source("x", 0), Source("y", 1)), output_ports=(Port("float32"),) * 2)
    call = Op(**{**call.__dict__, "attrs": {"subgraph_name": ("sub",)}})
    loop_op = op("loop", "While", "call:1", subgraph_name=("c", "b"))
    branch = op("branch", "If", "call:0", "y", subgraph_name=("t", "missing"))
    main = graph_of(op("x", "Data"), op("y", "Data"), call, loop_op, branch, name="main")
    result = Op(
        "sub_Node_Output",
        "NetOutput",
        (Source("relu", 0), Source("", 0), Source("in1", 0)),
        input_ports=(Port("float32", attrs={"_parent_node_index": 1}), Port("undefined"), Port("float32")),
    )
    sub = graph_of(
        op("in1", "Data", "", _parent_node_index=1),
        op("in0", "Data", "", _parent_node_index=0),
        op("relu", "Relu", "in0"),
        op("other", "NetOutput", "in0"),
        result,
        name="sub",
    )
    body = graph_of(op("d", "Data", "", _parent_node_index=0), op("o", "NetOutput", "d"), name="b")
    cond = graph_of(op("d", "Data", "", _parent_node_index=0), op("o", "NetOutput", "d"), name="c")
    then = graph_of(op("d", "Data", "", _parent_node_index=1), op("o", "NetOutput", "d"), name="t")
    return main, sub, cond, body, then


@pytest.fixture
def device_graphs(tmp_path: Path) -> list[Graph]:
    text = b""
    for graph in device_loop():
        write_ge_text(graph, tmp_path / "part.txt")
        text += (tmp_path / "part.txt").read_bytes()
    (tmp_path / "g.txt").write_bytes(text)
    return read_ge_graphs(tmp_path / "g.txt")


def test_from_a_call_to_the_sub_graph_and_back(device_graphs: list[Graph]):
    main, sub, *_ = device_graphs
    assert list(main.library) == ["main", "sub", "c", "b", "t"]
    (call,) = main.calls("call")
    assert (call.graph is sub, call.role, call.op.name) == (True, "f", "call")
    assert (call.inner_of(0), call.inner_of(1), call.inner_of(2)) == (("in0",), ("in1",), ())
    assert call.source_of("in1") == Source("y", 1)
    assert call.source_of("relu") is None
    assert call.result_of(1) == Source("relu", 0), "the descriptor's index counts, not the position"
    assert (call.result_of(2), call.result_of(0), call.result_of(-1)) == (Source("in1", 0), None, None)
    assert [(found.outer.name, found.op.name) for found in sub.callers] == [("main", "call")]
    assert main.callers == ()
    assert main.calls("x") == ()


def test_roles_of_loops_and_branches(device_graphs: list[Graph]):
    main, _, cond, body, then = device_graphs
    first, second = main.calls("loop")
    assert (first.role, first.graph is cond, second.role, second.graph is body) == ("cond", True, "body", True)
    assert first.result_of(0) is None, "a condition is no output of the loop"
    assert (second.result_of(0), second.source_of("d")) == (Source("d", 0), Source("call", 1))
    (taken,) = main.calls("branch")
    assert (taken.role, taken.graph is then, taken.source_of("d")) == ("then_branch", True, Source("y", 0))


def test_graphs_with_a_library_can_be_handed_to_a_worker(device_graphs: list[Graph]):
    copy = pickle.loads(pickle.dumps(device_graphs[0]))
    assert copy.library["main"] is copy
    assert copy == device_graphs[0]
    assert "library=" not in repr(copy)


def test_a_function_that_calls_itself_ends():
    library: dict[str, Graph] = {}
    body = Graph(
        "f", {"again": op("again", "f", "x")}, "tf", arguments=("x",), results=(Source("again", 0),), library=library
    )
    library["f"] = body
    (call,) = body.calls("again")
    assert (call.graph is body, call.source_of("x"), call.result_of(0)) == (True, Source("x", 0), Source("again", 0))
    assert [found.op.name for found in body.callers] == ["again"]
    assert body == body  # noqa: PLR0124 - comparing must not follow the library
