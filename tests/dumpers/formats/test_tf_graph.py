"""TensorFlow graphs, against what TensorFlow itself writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.schema import tf_message
from dumpers.formats.tf_graph import MAX_VALUES, read_functions, read_graph_def
from dumpers.formats.tf_tensor import proto_array
from dumpers.graph import Source


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def graph(tf):
    result = tf.Graph()
    with result.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, 3), name="x")
        a, b = tf.split(x, [1, 2], axis=1, name="parts")
        with tf.control_dependencies([x]):
            y = tf.add(a, b, name="scope/y")
        tf.cast(y, tf.bfloat16, name="half")
        tf.constant(np.arange(6).reshape(2, 3), name="small")
        tf.constant(np.arange(MAX_VALUES + 1, dtype=np.float32), name="large")
        tf.constant([b"a", b"\xff"], name="words")
        tf.constant(1 + 2j, tf.complex64, name="complex")
        tf.cond(tf.reduce_sum(y) > 0, lambda: y, lambda: -y, name="branch")
    return result


@pytest.mark.parametrize("form", ["binary", "text", "meta", "meta_text"])
def test_equals_the_graph_of_tensorflow(tf, graph, tmp_path: Path, form: str):
    path = tmp_path / "g.pb"
    if form.startswith("meta"):
        with graph.as_default():
            meta = tf.compat.v1.train.export_meta_graph()
        from google.protobuf import text_format

        path.write_bytes(
            meta.SerializeToString() if form == "meta" else text_format.MessageToString(meta).encode("utf-8")
        )
    else:
        tf.io.write_graph(graph, str(tmp_path), "g.pb", as_text=form == "text")
    found = read_graph_def(path)
    nodes = graph.get_operations()
    assert list(found.ops) == [node.name for node in nodes]
    assert found.kind == "tf"
    for node in nodes:
        op = found.ops[node.name]
        assert op.type == node.type
        assert op.inputs == tuple(Source(t.op.name, int(t.name.rpartition(":")[2])) for t in node.inputs)
        assert set(op.control_inputs) == {other.name for other in node.control_inputs}
    assert found.ops["x"].attrs["dtype"] == "float32"
    assert found.ops["x"].attrs["shape"] == (-1, 3)
    assert found.ops["half"].attrs["DstT"] == "bfloat16"
    assert found.ops["small"].attrs["value"] == {"dtype": "int64", "shape": (2, 3), "values": (0, 1, 2, 3, 4, 5)}
    assert found.ops["large"].attrs["value"] == {"dtype": "float32", "shape": (MAX_VALUES + 1,)}
    assert found.ops["words"].attrs["value"]["values"] == (b"a", b"\xff")
    assert found.ops["complex"].attrs["value"]["values"] == ((1.0, 2.0),)
    branch = found.ops["branch"].attrs["then_branch"]["name"]
    assert branch in found.attrs["functions"]
    functions = read_functions(path)
    assert set(functions) == set(found.attrs["functions"])
    assert any(op.type == "Neg" for body in functions.values() for op in body)


def test_output_shapes_become_ports(tf, graph, tmp_path: Path):
    path = tmp_path / "g.pb"
    path.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    found = read_graph_def(path)
    assert [port.shape for port in found.ops["parts"].output_ports] == [(-1, 1), (-1, 2)]
    assert found.ops["parts"].output_ports[0].dtype == "float32"


DTYPES = [
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "complex64", "complex128",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["content", "values", "one_value"])
def test_tensor_protos(tf, dtype: str, form: str):
    wanted = tf.as_dtype(dtype).as_numpy_dtype
    array = np.array([[1, 0, 2], [3, 5, 250 if dtype == "uint8" else 7]]).astype(wanted)
    if form == "one_value":
        array = np.full((2, 3), array[1, 2])
    proto = tf.make_tensor_proto(array)
    if form != "content":
        flat = array.reshape(-1)[: 1 if form == "one_value" else None]
        proto = tf.compat.v1.make_tensor_proto(
            flat.tolist(), dtype=tf.as_dtype(dtype), shape=(2, 3) if form == "one_value" else None
        )
        if form == "values":
            proto = tf.compat.v1.make_tensor_proto(
                [flat[0].item()] if flat.size else [], dtype=tf.as_dtype(dtype), shape=(2, 3)
            )
            array = np.full((2, 3), array[0, 0])
    ours = tf_message("TensorProto")
    ours.ParseFromString(proto.SerializeToString())
    got = proto_array(ours)
    right = tf.make_ndarray(proto)
    assert got.dtype == right.dtype
    np.testing.assert_array_equal(got, right)
    np.testing.assert_array_equal(got, array)


def test_quantised_and_eight_bit_types(tf):
    ours = tf_message("TensorProto")
    proto = tf.make_tensor_proto(np.arange(4, dtype=np.float32))
    proto.dtype = tf.qint32.as_datatype_enum
    ours.ParseFromString(proto.SerializeToString())
    assert proto_array(ours).dtype == np.int32
    if hasattr(tf.dtypes.experimental, "float8_e5m2"):
        dtype = tf.dtypes.experimental.float8_e5m2
        proto = tf.make_tensor_proto(np.array([1, -2, 0.5]).astype(dtype.as_numpy_dtype), dtype=dtype)
        ours = tf_message("TensorProto")
        ours.ParseFromString(proto.SerializeToString())
        assert proto_array(ours).astype(float).tolist() == [1, -2, 0.5]


def test_duplicate_attribute_the_last_one_wins(tmp_path: Path):
    (tmp_path / "g.pbtxt").write_text(
        '# a comment\nnode { name: "a" op: "A" attr { key: "k" value { i: 1 } } '
        'attr { key: "k" value { i: 2 } } unknown: 3 }'
    )
    assert read_graph_def(tmp_path / "g.pbtxt").ops["a"].attrs == {"k": 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "not a TensorFlow graph"),
        (b'node { name: "a', "cut off"),
        (b"\x1a\x00", "holds no"),
    ],
)
def test_files_that_are_no_graph(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "g.pb").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_graph_def(tmp_path / "g.pb")


def test_hostile_constant_is_described_only(tmp_path: Path):
    (tmp_path / "g.pbtxt").write_text(
        'node { name: "a" op: "Const" attr { key: "value" value { tensor { dtype: DT_FLOAT '
        "tensor_shape { dim { size: 1000000000000 } } float_val: 1 } } } }"
    )
    value = read_graph_def(tmp_path / "g.pbtxt").ops["a"].attrs["value"]
    assert value == {"dtype": "float32", "shape": (1000000000000,)}


# real files


def test_vae_graph(shared_data: Path):
    graph = read_graph_def(shared_data / "npu_samples/vae_om/hh.pb")
    assert len(graph) == 68
    assert graph.ops["input"].type == "Placeholder"
    assert "generation/output" in graph.ops
    assert any(op.type == "RandomStandardNormal" for op in graph)


def test_rewritten_graphs(shared_data: Path):
    folder = shared_data / "npu_samples/tf_graph"
    graph = read_graph_def(folder / "geop.pbtxt")
    assert {op.name: op.type for op in graph} == {"retval_Add_0_0": "_Retval", "GeOp1_0": "GeOp"}
    attrs = graph.ops["GeOp1_0"].attrs
    expected = {
        "_enable_dump": "1",
        "_enable_dump_debug": "1",
        "_dump_path": "./",
        "_dump_step": "1",
        "_dump_mode": "output",
        "_dump_debug_mode": "all",
        "_op_debug_level": "0",
    }
    assert {key: attrs[key] for key in expected} == expected
    assert graph.attrs["functions"] == ("GeOp1_0",)
    assert list(read_functions(folder / "geop.pbtxt")["GeOp1_0"].ops) == ["Const_1", "Variable", "Variable/read", "Add"]
    before = read_graph_def(folder / "om_test_build_geop.pbtxt")
    assert list(before.ops) == ["Const_1", "Variable", "Variable/read", "Add", "retval_Add_0_0"]
    assert before.ops["Const_1"].attrs["_enable_dump"] == "1"
