"""SavedModels, checkpoint graphs and functions, against TensorFlow's own view of them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from dumpers.errors import DataError
from dumpers.formats.kinds import identify
from dumpers.formats.saved_model import read_saved_model
from dumpers.formats.schema import tf_message
from dumpers.formats.tf_graph import read_attr, read_functions, read_graph_def
from dumpers.formats.tf_outputs import _COMMON
from dumpers.graph import Graph, Source


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def module_model(tf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TensorFlow 2 model: its main graph is a shell, the work is done in functions."""

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.ones((3, 4)), name="w")

        @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.float32, name="x")])
        def __call__(self, x):  # type: ignore[no-untyped-def]
            values, places = tf.math.top_k(x @ self.w, k=2)
            parts = tf.split(values, 2, axis=1)
            total = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2.0), (0, parts[1]))[1]
            return {"total": tf.cond(tf.reduce_sum(total) > 0, lambda: total, lambda: -total), "places": places}

    folder = tmp_path_factory.mktemp("models") / "tf2"
    model = Model()
    tf.saved_model.save(model, str(folder), signatures=model.__call__)
    return folder


def _write_v1_model(tf, folder: Path) -> None:  # type: ignore[no-untyped-def]
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(folder))
    for tags in (["train"], ["serve", "gpu"]):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, (None, 2), name="x")
            w = v1.get_variable("w", (2, 2), use_resource=False)
            y = tf.identity(x @ w, name="_".join(tags))
            session.run(v1.global_variables_initializer())
            if tags == ["train"]:
                builder.add_meta_graph_and_variables(session, tags)
            else:
                signature = v1.saved_model.predict_signature_def({"in": x}, {"out": y})
                builder.add_meta_graph(tags, signature_def_map={"serving_default": signature})
    builder.save()
    builder.save(as_text=True)


@pytest.fixture(scope="module")
def session_model(tf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TensorFlow 1 model with two graphs, as binary and as text."""
    folder = tmp_path_factory.mktemp("models") / "tf1"
    _write_v1_model(tf, folder)
    return folder


def test_a_folder_is_known(module_model: Path, tmp_path: Path):
    assert identify(module_model).kind.name == "saved_model"
    assert identify(tmp_path) is None
    assert identify(tmp_path / "none") is None


def test_several_graphs_by_tags(session_model: Path, tmp_path: Path):
    for file in ("saved_model.pb", "saved_model.pbtxt"):
        graphs = read_saved_model(session_model / file)
        assert [(graph.name, graph.attrs["tags"]) for graph in graphs] == [
            ("train", ("train",)), ("serve,gpu", ("serve", "gpu")),
        ]  # fmt: skip
        assert ["serve_gpu" in graph.ops for graph in graphs] == [False, True]
        assert graphs[1].attrs["signatures"] == {
            "serving_default": {
                "method": "tensorflow/serving/predict", "inputs": {"in": "x:0"}, "outputs": {"out": "serve_gpu:0"}
            }
        }  # fmt: skip
        assert "variables" in graphs[0].attrs["collections"]
        assert graphs[0].attrs["saver"]["restore_op"].startswith("save")
        assert read_graph_def(session_model / file).name in ("train", "serve,gpu")
    text_only = tmp_path / "text"
    text_only.mkdir()
    shutil.copy(session_model / "saved_model.pbtxt", text_only)
    assert identify(text_only).kind.name == "saved_model"
    assert read_saved_model(text_only)[0].ops == read_saved_model(session_model)[0].ops


def test_functions_as_tensorflow_builds_them(tf, module_model: Path):
    """Every edge of every function body, as TensorFlow makes graphs of them; op definitions are in the file."""
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((module_model / "saved_model.pb").read_bytes())
    (graph,) = read_saved_model(module_model)
    bodies = {name: body for name, body in graph.library.items() if name}
    definitions = {function.signature.name: function for function in message.meta_graphs[0].graph_def.library.function}
    assert set(bodies) == set(definitions) == set(graph.attrs["functions"])
    compared = 0
    with tf.Graph().as_default():
        tf.import_graph_def(  # bodies call each other
            tf.compat.v1.GraphDef(
                library=message.meta_graphs[0].graph_def.library, versions=message.meta_graphs[0].graph_def.versions
            ),
            name="",
        )
        for name, definition in definitions.items():
            right = function_def_to_graph(definition)
            for node in right.get_operations():
                if node.name in bodies[name].ops:
                    places = tuple(Source(t.op.name, int(t.name.rpartition(":")[2])) for t in node.inputs)
                    assert bodies[name].ops[node.name].inputs == places, (name, node.name)
                    compared += 1
            assert bodies[name].arguments == tuple(t.op.name for t in right.inputs)
            assert bodies[name].results == tuple(
                Source(t.op.name, int(t.name.rpartition(":")[2])) for t in right.outputs
            )
    assert compared > 30


def test_calls_inside_the_model(module_model: Path):
    (main,) = read_saved_model(module_model)
    assert main.library[""] is main
    body = next(graph for graph in main.library.values() if any("While" in op.type for op in graph))
    loop = next(op for op in body if "While" in op.type)
    assert {call.role for call in body.calls(loop.name)} == {"cond", "body"}
    (rounds,) = (call for call in body.calls(loop.name) if call.role == "body")
    for index, name in enumerate(rounds.graph.arguments):
        assert rounds.inner_of(index) == (name,)
        assert rounds.source_of(name) == loop.inputs[index]
    assert rounds.result_of(0) == rounds.graph.results[0]
    (branching,) = (op for op in body if op.type.endswith("If"))
    taken = next(call for call in body.calls(branching.name) if call.role == "then_branch")
    assert taken.source_of(taken.graph.arguments[0]) == branching.inputs[1], "input 0 is the condition"
    assert any(call.op.name == loop.name for call in rounds.graph.callers)


def test_functions_of_a_plain_graph(tf, tmp_path: Path):
    """Without the file's list of op definitions the common ops with several outputs are known."""

    @tf.function
    def places(x):  # type: ignore[no-untyped-def]
        return tf.math.top_k(x, 2)[1] + 1

    graph = tf.Graph()
    with graph.as_default():
        places(tf.zeros((4,)))
    (tmp_path / "g.pb").write_bytes(graph.as_graph_def().SerializeToString())
    (body,) = read_functions(tmp_path / "g.pb").values()
    adding = next(op for op in body if op.type.startswith("Add"))
    assert (body.ops[adding.inputs[0].op].type, adding.inputs[0].slot) == ("TopKV2", 1)
    main = read_graph_def(tmp_path / "g.pb")
    (caller,) = (op for op in main if op.type.endswith("PartitionedCall"))
    assert main.calls(caller.name)[0].graph.name == body.name


def test_known_outputs_are_those_of_tensorflow(tf):
    from tensorflow.python.framework import op_def_registry

    for name, outputs in _COMMON.items():
        definition = op_def_registry.get(name)
        assert definition is not None, name
        right = [(arg.name, arg.number_attr or arg.type_list_attr) for arg in definition.output_arg]
        assert [tuple(output) for output in outputs] == right, name


def test_graph_of_a_checkpoint(tf, tmp_path: Path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("w", (2,), use_resource=False)
        v1.add_to_collection("train_op", tf.zeros((), name="loss"))
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        saver.save(session, str(tmp_path / "model"))
        v1.train.export_meta_graph(str(tmp_path / "text.meta"), as_text=True, saver_def=saver.saver_def)
    for file in ("model.meta", "text.meta"):
        graph = read_graph_def(tmp_path / file)
        assert graph.ops["w"].type == "VariableV2"
        assert graph.attrs["saver"] == {
            "filename_tensor": "save/Const:0",
            "save_tensor": "save/control_dependency:0",
            "restore_op": "save/restore_all",
        }  # fmt: skip
        assert graph.attrs["tensorflow_version"] == tf.__version__
        assert set(graph.attrs["collections"]) >= {"variables", "trainable_variables"}
    assert graph.attrs["collections"].get("train_op") == ("loss:0",)  # type: ignore[union-attr]


def test_function_of_the_adapter(shared_data: Path):
    graph = read_graph_def(shared_data / "npu_samples/tf_graph/geop.pbtxt")
    (call,) = graph.calls("GeOp1_0")
    assert (call.role, call.graph.name, call.result_of(0)) == ("function", "GeOp1_0", Source("Add", 0))
    assert call.graph.ops["Variable/read"].inputs == (Source("Variable", 0),)
    assert isinstance(call.graph, Graph)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a SavedModel"), (b"\x08\x01", "not a SavedModel"), (b"\x08\x01\x12\x00", "holds no"),
     (b"\x08\x01\x12\x7f", "not a SavedModel"), (b"meta_graphs { graph_def {", "cut off")],
)  # fmt: skip
def test_no_saved_model(tmp_path: Path, content: bytes, message: str):
    with pytest.raises(DataError, match=r"no saved_model\.pb"):
        read_saved_model(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_saved_model(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_saved_model(tmp_path / "none.pb")


def test_damaged_models(module_model: Path, tmp_path: Path):
    raw = (module_model / "saved_model.pb").read_bytes()
    chance = random.Random(5)
    path = tmp_path / "saved_model.pb"
    samples = [raw[:end] for end in range(0, 300, 4)]
    for _ in range(40):
        damaged = bytearray(raw)
        for _ in range(4):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        samples.append(bytes(damaged))
    refused = 0
    for sample in samples:
        path.write_bytes(sample)
        try:
            assert all(len(graph) or graph.library for graph in read_saved_model(path))
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017 - some are refused, some read
            refused += 1
    assert refused > 70


def test_type_of_the_future_keeps_its_name():
    message = tf_message("AttrValue")
    message.type_name = b"DT_FUTURE"
    assert read_attr(message) == "future"
