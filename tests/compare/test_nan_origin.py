from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from compare.nan_origin import find_nan_origin, search_nan

NAN, INF = np.float32(np.nan), np.float32(np.inf)


def f32(*values):
    return np.array(values, np.float32)


def test_finite_dump_has_no_origin(make):
    search = search_nan(make.dump(make.record("a:output:0", f32(1, 2)), make.record("b:output:0", np.arange(3))))
    assert (search.origin, search.findings, search.scanned) == (None, (), 2)


def test_without_graph_the_first_op_in_time_with_clean_inputs_is_the_origin(make):
    dump = make.dump(
        make.record("late:output:0", f32(NAN, 1), timestamp_us=300),
        make.record("mid:input:0", f32(1, 2), timestamp_us=250),
        make.record("mid:output:0", f32(1, NAN), timestamp_us=250, op_type="Log"),
        make.record("first:output:0", f32(1, 2), timestamp_us=100),
    )
    origin = find_nan_origin(dump)
    assert (origin.op, origin.io, origin.slot, origin.index, origin.kind) == ("mid", "output", 0, (1,), "nan")
    assert (origin.cause, origin.inputs_clean) == ("operator", True)
    assert [f.record.op for f in origin.consequences] == ["late"]
    assert "logarithm" in origin.hint


def test_without_graph_a_bad_input_comes_from_outside(make):
    dump = make.dump(
        make.record("op:input:0", f32(1, INF), timestamp_us=1), make.record("op:output:0", f32(1, NAN), timestamp_us=1)
    )
    origin = find_nan_origin(dump)
    assert (origin.op, origin.io, origin.kind, origin.cause) == ("op", "input", "inf", "outside")


def test_clean_producer_and_bad_consumer_input_is_overwritten_memory(make):
    graph = make.graph(make.op("a", "Relu"), make.op("b", "Relu", ["a:0"]))
    dump = make.dump(
        make.record("a:output:0", f32(1, 2), timestamp_us=1),
        make.record("b:input:0", f32(1, NAN), timestamp_us=2),
        make.record("b:output:0", f32(1, NAN), timestamp_us=2),
    )
    origin = find_nan_origin(dump, graph)
    assert (origin.op, origin.io, origin.cause) == ("b", "input", "overwritten")


def test_a_bad_feed_is_a_source(make):
    graph = make.graph(make.op("x", "Placeholder"), make.op("y", "Relu", ["x:0"]), kind="tf")
    dump = make.dump(make.record("x:output:0", f32(NAN)), make.record("y:output:0", f32(NAN), timestamp_us=1))
    origin = find_nan_origin(dump, graph)
    assert (origin.op, origin.cause) == ("x", "source")
    assert [f.record.op for f in origin.consequences] == ["y"]


def test_an_op_that_turns_infinities_on_purpose_into_nan_is_blamed_and_not_who_passed_them_on(make):
    graph = make.graph(
        make.op("x", "Placeholder"),
        make.op("mask", "Const"),
        make.op("add", "Add", ["x:0", "mask:0"]),
        make.op("softmax", "Softmax", ["add:0"]),
        kind="tf",
    )
    values = {"x": f32(1, 2), "mask": f32(-INF, -INF), "add": f32(-INF, -INF), "softmax": f32(NAN, NAN)}
    records = [make.record(f"{op}:output:0", value, timestamp_us=t) for t, (op, value) in enumerate(values.items())]
    origin = find_nan_origin(make.dump(*records), graph)
    assert (origin.op, origin.cause, origin.inputs_clean) == ("softmax", "operator", False)


def test_order_of_the_files_does_not_matter_with_a_graph(make):
    graph = make.graph(
        make.op("x", "Placeholder"), make.op("lg", "Log", ["x:0"]), make.op("mm", "Mul", ["lg:0", "x:0"]), kind="tf"
    )
    values = {"x": f32(0, 1), "lg": f32(-INF, 0), "mm": f32(NAN, 0)}
    for times in ((1, 2, 3), (3, 2, 1)):
        records = [
            make.record(f"{op}:output:0", values[op], timestamp_us=t) for op, t in zip(values, times, strict=True)
        ]
        origin = find_nan_origin(make.dump(*records), graph)
        assert (origin.op, origin.kind, origin.index) == ("lg", "-inf", (0,))
        assert [(v.tensor, v.value, v.clean) for v in origin.inputs] == [("x:output:0", "0.0", True)]


def test_complex_parts_count_and_integers_strings_and_missing_values_do_not(make):
    dump = make.dump(
        make.record("c:output:0", np.array([1j, complex(0, np.nan)], np.complex64), timestamp_us=9),
        make.record("i:output:0", np.array([1, 2])),
        make.record("s:output:0", np.array([b"nan"], object), dtype="string"),
        make.record("r:output:0", None, dtype="resource"),
    )
    search = search_nan(dump)
    assert (search.origin.op, search.origin.index, search.origin.kind) == ("c", (1,), "nan")
    assert [f.problem for f in search.unread] == ["no value: resource"]


def test_a_damaged_file_is_named_and_the_search_goes_on(make):
    search = search_nan(make.dump(make.record("a:output:0", "cut short"), make.record("b:output:0", f32(NAN))))
    assert search.origin.op == "b"
    assert [f.problem for f in search.unread] == ["cut short"]


def test_a_pattern_excludes_ops(make):
    dump = make.dump(make.record("attn/mask:output:0", f32(-INF)), make.record("z:output:0", f32(NAN), timestamp_us=5))
    assert find_nan_origin(dump, exclude=["attn/*"]).op == "z"


def test_bad_element_beyond_the_first_block_is_found_at_its_place(make):
    array = np.zeros((400, 100), np.float16)
    array[399, 98] = np.inf
    assert find_nan_origin(make.dump(make.record("a:output:0", array))).index == (399, 98)


@pytest.fixture(scope="module")
def evaluated(shared_data, tmp_path_factory, make):
    """Evaluates every tensor of a recipe with TensorFlow; returns (dump, graph)."""
    tf = pytest.importorskip("tensorflow")
    from dumpers.formats.tf_graph import read_graph_def

    spec = importlib.util.spec_from_file_location("nan_recipes", shared_data / "field_cases" / "nan_recipes.py")
    recipes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipes)

    def run(name, reverse=False):
        graph = tf.Graph()
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with graph.as_default(), tf.compat.v1.Session(graph=graph, config=config) as session:
            _, feed, _ = recipes.RECIPES[name]()
            session.run(tf.compat.v1.global_variables_initializer())
            values = {
                t.name: session.run(t, feed)
                for op in graph.get_operations()
                if not op.name.startswith("train")
                for t in op.outputs
                if t.dtype.is_floating
            }
        path = tmp_path_factory.mktemp("graph") / "graph.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
        records = []
        for number, (tensor, value) in enumerate(values.items()):
            op, slot = tensor.rsplit(":", 1)
            time = -number if reverse else number
            fields = {"op_type": graph.get_operation_by_name(op).type, "device": "tf", "timestamp_us": 1000 + time}
            records.append(make.record(f"{op}:output:{slot}", np.asarray(value), **fields))
        return make.dump(*records), read_graph_def(path)

    return run


def test_fc16_infinities_on_purpose_are_harmless(evaluated):
    origin = find_nan_origin(*evaluated("fc16_constants_on_purpose"))
    assert (origin.op, origin.op_type, origin.kind) == ("norm/div", "RealDiv", "nan")
    assert {f.record.op for f, _ in origin.harmless} == {"clip/upper", "attn/mask", "attn/add"}
    assert any("attn/softmax" in reason for f, reason in origin.harmless if f.record.op == "attn/add")


def test_fc17_the_logarithm_is_blamed_and_not_the_matrix_product(evaluated):
    origin = find_nan_origin(*evaluated("fc17_minus_infinity_first"))
    assert (origin.op, origin.kind, origin.index) == ("dense/log", "-inf", (0, 1))
    assert (origin.consequences[0].record.op, origin.consequences[0].kind) == ("fc/MatMul", "nan")
    assert ("dense/add:output:0", "0.0") in [(v.tensor, v.value) for v in origin.inputs]
    assert origin.inputs_clean is True


@pytest.mark.parametrize("reverse", [False, True])
def test_fc18_the_masked_branch_is_absorbed_and_its_gradient_is_the_origin(evaluated, reverse):
    origin = find_nan_origin(*evaluated("fc18_masked_branch_gradient", reverse))
    assert (origin.op, origin.kind, origin.index) == ("gradients/branch/lg_grad/Reciprocal", "inf", (1,))
    assert (origin.consequences[0].record.op, origin.consequences[0].index) == ("gradients/branch/lg_grad/mul", (1,))
    absorbed = {f.record.op: reason for f, reason in origin.harmless}
    assert "pick" in absorbed["branch/lg"]
    assert "double where" in origin.hint


def test_fc19_clipping_spreads_one_bad_gradient(evaluated):
    dump, graph = evaluated("fc19_clip_spreads")
    origin = find_nan_origin(dump, graph)
    assert origin.op.startswith("gradients/mid/up_grad/")
    clip = {op: names for op, names in origin.spreads if op.startswith("clip")}
    assert clip
    innocent = " ".join(name for names in clip.values() for name in names)
    assert "m_middle" not in innocent
    assert len([name for names in clip.values() for name in names]) == 2


@pytest.mark.parametrize(("target", "harmful"), [(np.int32, True), (np.bool_, False), (np.float16, False)])
def test_a_nan_that_becomes_an_integer_is_not_harmless(target, harmful, make):
    graph = make.graph(
        make.op("x", "Placeholder"), make.op("lg", "Log", ["x:0"]), make.op("c", "Cast", ["lg:0"]), kind="tf"
    )
    records = [
        make.record("x:output:0", f32(-1, 1)),
        make.record("lg:output:0", f32(NAN, 0), timestamp_us=1),
        make.record("c:output:0", np.array([1, 0]).astype(target), timestamp_us=2),
    ]
    search = search_nan(make.dump(*records), graph)
    assert (search.origin is not None) == harmful
    assert bool(search.harmless) != harmful
    if harmful:
        assert (search.origin.op, search.origin.cause) == ("lg", "operator")
