"""``replay --export``: the script runs alone and says what the replay says."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from compare.replay import local_error
from dumpers.errors import DataError, UsageError
from dumpers.graph import Op, Port
from precision_tool.repro import export

RANDOM = np.random.default_rng(5)


def floats(*shape, dtype=np.float32, positive=False):
    x = RANDOM.normal(size=shape)
    return (np.abs(x) + 0.1 if positive else x).astype(dtype)


def index(high, *shape):
    return RANDOM.integers(0, high, size=shape).astype(np.int32)


def node(kind, outputs=1, name="model/op", dtype="float32", **attrs):
    return Op(name, kind, output_ports=(Port(dtype),) * outputs, attrs=attrs)


def axis(*numbers):
    return np.array(numbers, np.int32)


def adam_inputs():
    state = [floats(30, 4), floats(30, 4), floats(30, 4, positive=True)]
    rates = [np.float32(k) for k in (0.9, 0.999, 0.01, 0.9, 0.999, 1e-8)]
    return [*state, *map(np.asarray, rates), floats(30, 4)]


CASES = {
    "MatMul": ([floats(40, 16), floats(16, 5)], {}),
    "MatMul transposed": ([floats(16, 40), floats(5, 16)], {"transpose_a": True, "transpose_b": True}),
    "BatchMatMulV2": ([floats(20, 3, 16), floats(20, 16, 5)], {}),
    "BatchMatMulV2 adjoint": ([floats(20, 16, 3), floats(20, 5, 16)], {"adj_x": True, "adj_y": True}),
    "BiasAdd": ([floats(40, 5), floats(5)], {}),
    **{k: ([floats(40, 5), floats(40, 5)], {}) for k in ("Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum")},
    "RealDiv": ([floats(40, 5), floats(40, 5, positive=True)], {}),
    "SquaredDifference": ([floats(40, 5), floats(1, 5)], {}),
    "AddN": ([floats(40, 5), floats(40, 5), floats(40, 5)], {}),
    **{k: ([floats(40, 5)], {}) for k in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softmax", "LogSoftmax", "Exp")},
    **{k: ([floats(40, 5)], {}) for k in ("Square", "Neg")},
    **{k: ([floats(40, 5, positive=True)], {}) for k in ("Log", "Sqrt", "Rsqrt")},
    **{k: ([floats(40, 5), floats(40, 5)], {}) for k in ("ReluGrad", "SigmoidGrad", "TanhGrad")},
    **{k: ([floats(40, 5, 3), axis(1)], {}) for k in ("Sum", "Mean", "Max", "Min", "Prod")},
    "Sum over rows": ([floats(40, 5), axis(0)], {"keep_dims": True}),
    "GatherV2": ([floats(50, 4), index(50, 40), np.array(0, np.int32)], {}),
    "Gather": ([floats(50, 4), index(50, 40)], {}),
    "ResourceGather": ([floats(50, 4), index(50, 40, 2)], {}),
    "UnsortedSegmentSum": ([floats(60, 4), index(20, 60), np.array(20, np.int32)], {}),
    "SegmentSum": ([floats(60, 4), np.sort(index(20, 60))], {}),
    "Cast": ([floats(40, 5)], {}),
    "Reshape": ([floats(40, 6), axis(80, 3)], {}),
    "Transpose": ([floats(40, 6), axis(1, 0)], {}),
    "ConcatV2": ([floats(40, 6), floats(40, 2), np.array(1, np.int32)], {}),
    "Pack": ([floats(40, 6), floats(40, 6)], {"axis": 1}),
    "SoftmaxCrossEntropyWithLogits": ([floats(40, 6), np.eye(6, dtype=np.float32)[index(6, 40)]], {}),
    "SparseSoftmaxCrossEntropyWithLogits": ([floats(40, 6), index(6, 40)], {}),
    "ResourceApplyAdam": (adam_inputs(), {}),
    "ApplyGradientDescent": ([floats(40, 5), np.asarray(np.float32(0.1)), floats(40, 5)], {}),
}
OUTPUTS = {"SoftmaxCrossEntropyWithLogits": 2, "SparseSoftmaxCrossEntropyWithLogits": 2, "ResourceApplyAdam": 3}


def written(op, inputs, dtype=None):
    """What an honest device writes: the op in float32."""
    from compare.replay import replay_op

    replay = replay_op(op, inputs)
    assert not replay.reason
    return [np.array(x if dtype is None else x.astype(dtype)) for x in replay.own]


def run(script, *flags):
    words = [sys.executable, "-I", *flags, str(script)]
    empty = script.parent / "empty"
    empty.mkdir(exist_ok=True)
    done = subprocess.run(words, cwd=empty, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def first_line(text):
    """Index, dumped, expected, error, bound of the worst element that a script printed."""
    at = re.search(r"at (\[.*?\]) dumped (\S+) expected (\S+) error (\S+) bound (\S+) ratio (\S+)", text)
    assert at, text
    return tuple(json.loads(at[1])), *(float(at[k]) for k in range(2, 7))


@pytest.mark.parametrize("case", CASES)
def test_script_finds_what_the_replay_finds(case, tmp_path):
    inputs, attrs = CASES[case]
    kind = case.split()[0]
    op = node(kind, OUTPUTS.get(kind, 1), **attrs, **({"DstT": "float16"} if kind == "Cast" else {}))
    if kind == "Cast":
        op = node(kind, dtype="float16", DstT="float16")
    clean = written(op, inputs)
    done = export(op, inputs, clean, tmp_path / "clean", overwrite=False)
    answer = run(done.script)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    wrong = [x.copy() for x in clean]
    place = wrong[0].size // 3
    wrong[0].reshape(-1)[place] = wrong[0].reshape(-1)[place] * wrong[0].dtype.type(1.5) + wrong[0].dtype.type(0.25)
    done = export(op, inputs, wrong, tmp_path / "wrong", overwrite=False)
    answer = run(done.script)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    error = local_error(op, inputs, wrong)[0]
    assert error.index == tuple(int(k) for k in np.unravel_index(place, wrong[0].shape))
    at, dumped, expected, far, bound, ratio = first_line(answer.stdout)
    assert (at, dumped, bound) == (error.index, error.got, error.bound)
    assert expected == pytest.approx(error.expected, rel=1e-12)
    assert far == pytest.approx(abs(error.got - error.expected), rel=1e-9)
    assert ratio == pytest.approx(error.ratio, rel=1e-4)
    if done.rows is not None:
        assert error.index[0] in done.rows
        assert len(done.rows) <= 11
    ast.parse(done.script.read_text(), feature_version=(3, 7))


def test_elementwise_rows_are_cut_and_index_is_the_original(tmp_path):
    inputs = [floats(400, 5), floats(400, 5)]
    op = node("Mul")
    wrong = written(op, inputs)
    wrong[0][321, 2] += 1
    done = export(op, inputs, wrong, tmp_path, overwrite=False)
    assert done.rows is not None
    assert done.size < sum(x.nbytes for x in (*inputs, *wrong)) * 2
    text = run(done.script).stdout
    assert first_line(text)[0] == (321, 2)
    with np.load(done.data, allow_pickle=False) as data:
        assert data["input_0"].shape == (len(done.rows), 5)
        np.testing.assert_array_equal(data["input_1"], inputs[1][list(done.rows)])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite(value, tmp_path):
    inputs = [floats(4, 5), floats(4, 5)]
    wrong = written(node("Mul"), inputs)
    wrong[0][2, 1] = value
    answer = run(export(node("Mul"), inputs, wrong, tmp_path, overwrite=False).script)
    assert answer.returncode == 1
    assert first_line(answer.stdout)[0] == (2, 1)


@pytest.mark.parametrize("kind", ["Mul", "Relu", "Cast"])
def test_bfloat16_travels_as_bits(kind, tmp_path):
    dtype = ml_dtypes.bfloat16
    inputs = [floats(40, 5, dtype=np.float32 if kind == "Cast" else dtype)] * (2 if kind == "Mul" else 1)
    op = node(kind, dtype="bfloat16", DstT="bfloat16")
    out = written(op, inputs, dtype)
    done = export(op, inputs, out, tmp_path / "a", overwrite=False)
    assert run(done.script).returncode == 0
    with np.load(done.data, allow_pickle=False) as data:
        assert data["output_0"].dtype == np.uint16
    out[0][7, 3] = 100
    answer = run(export(op, inputs, out, tmp_path / "b", overwrite=False).script)
    assert answer.returncode == 1
    assert first_line(answer.stdout)[:2] == ((7, 3), 100.0)


def test_subnormal_inputs_may_be_flushed(tmp_path):
    inputs = [np.full((4, 2), 1e-40, np.float32), np.full((4, 2), 1e30, np.float32)]
    flushed = [np.zeros((4, 2), np.float32)]
    assert not local_error(node("Mul"), inputs, flushed)[0].faulty
    assert run(export(node("Mul"), inputs, flushed, tmp_path, overwrite=False).script).returncode == 0


NAMES = ['a"); import os #', "../../x", "a\nb", "ünï\u2028", "x" * 4000, "-rf", '"""\nimport os', "\udc80"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_names_are_neither_code_nor_path(name, tmp_path):
    inputs = [floats(4, 5)]
    folder = tmp_path / "out"
    out = written(node("Exp"), inputs)
    done = export(node("Exp", name=name, odd=name), inputs, out, folder, overwrite=False)
    assert done.script.parent == folder
    assert done.script.resolve().parent == folder.resolve()
    plain = export(node("Exp", name="plain"), inputs, out, tmp_path / "plain", overwrite=False)
    assert done.script.read_bytes() == plain.script.read_bytes()
    answer = run(done.script)
    assert answer.returncode == 0
    assert json.dumps(name)[:300] in answer.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "plain"]


def test_same_bytes_again_and_no_file_is_replaced_untold(tmp_path):
    inputs = [floats(40, 5)]
    out = written(node("Exp"), inputs)
    one = export(node("Exp"), inputs, out, tmp_path / "a", overwrite=False)
    two = export(node("Exp"), inputs, out, tmp_path / "b", overwrite=False)
    assert one.data.read_bytes() == two.data.read_bytes()
    assert one.script.read_bytes() == two.script.read_bytes()
    one.script.write_text("mine")
    with pytest.raises(UsageError, match="--overwrite"):
        export(node("Exp"), inputs, out, tmp_path / "a", overwrite=False)
    assert one.script.read_text() == "mine"
    export(node("Exp"), inputs, out, tmp_path / "a", overwrite=True)
    assert one.script.read_bytes() == two.script.read_bytes()


def test_what_cannot_be_exported_writes_nothing(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(DataError, match="random"):
        export(node("RandomUniform"), [axis(3)], [floats(3)], target, overwrite=False)
    with pytest.raises(DataError, match="no numbers"):
        export(node("Identity"), [np.array([b"a"])], [np.array([b"a"])], target, overwrite=False)
    assert not target.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        export(node("Exp"), [floats(3)], [floats(3)], tmp_path / "file" / "x", overwrite=False)


RAW = {
    "Cumsum": ([floats(5, 4), axis(1)], {"exclusive": True, "reverse": False, "Tidx": "int32"}, ("float32",)),
    "ConcatOffset": ([axis(1), axis(2, 3), axis(2, 4), axis(2, 1)], {"N": 3}, ("int32",) * 3),
    "Split": ([axis(1), floats(5, 6)], {"num_split": 3}, ("float32",) * 3),
    "SplitV": ([floats(5, 6), axis(2, 4), axis(1)], {"num_split": 2}, ("float32",) * 2),
    "Unpack": ([floats(5, 3)], {"num": 3, "axis": 1}, ("float32",) * 3),
    "TopKV2": ([floats(5, 9), axis(2)], {"sorted": True}, ("float32", "int32")),
    "OneHot": ([index(6, 5), axis(6), np.float32(1), np.float32(0)], {"axis": -1}, ("float32",)),
    "DynamicStitch": ([axis(0, 2), axis(1, 3), floats(2, 3), floats(2, 3)], {"N": 2}, ("float32",)),
    "LeakyRelu": ([floats(5, 4)], {"alpha": 0.3}, ("float32",)),
    "Elu": ([floats(5, 4)], {}, ("float32",)),
    "Einsum": ([floats(5, 4), floats(4, 3)], {"equation": "ab,bc->ac", "N": 2}, ("float32",)),
    "ArgMax": ([floats(5, 4), axis(1)], {"output_type": "int64"}, ("int64",)),
}


@pytest.mark.parametrize("kind", RAW)
def test_type_without_a_formula_runs_in_tensorflow(kind, tmp_path):
    pytest.importorskip("tensorflow")
    given, attrs, dtypes = RAW[kind]
    scalars = {"ConcatOffset": (0,), "Split": (0,), "SplitV": (2,), "TopKV2": (1,), "OneHot": (1,), "ArgMax": (1,)}
    scalars["Cumsum"] = (1,)
    inputs = [np.asarray(x).reshape(()) if k in scalars.get(kind, ()) else np.asarray(x) for k, x in enumerate(given)]
    op = Op("model/op", kind, output_ports=tuple(map(Port, dtypes)), attrs=attrs)
    out = written(op, inputs)
    assert run(export(op, inputs, out, tmp_path / "a", overwrite=False).script).returncode == 0
    out[-1].reshape(-1)[-1] += 1
    answer = run(export(op, inputs, out, tmp_path / "b", overwrite=False).script)
    assert answer.returncode == 1
    assert first_line(answer.stdout)[0] == tuple(k - 1 for k in out[-1].shape)


def test_batch_norm_needs_the_float32_kernel_and_runs(tmp_path):
    """TensorFlow has no float64 kernel: the script falls back, what it leaves out is far below the bound."""
    tf = pytest.importorskip("tensorflow")
    x, scale, offset, none = floats(8, 4, 4, 3), floats(3), floats(3), floats(0)
    attrs = {"T": "float32", "U": "float32", "epsilon": 1e-3, "data_format": "NHWC", "is_training": True}
    ports = (Port("float32"),) * 6
    op = Op("bn", "FusedBatchNormV3", output_ports=ports, attrs={**attrs, "exponential_avg_factor": 1.0})
    inputs = [x, scale, offset, none, none]
    raw = tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=none, variance=none, epsilon=1e-3)
    out = [np.array(k) for k in raw]
    assert run(export(op, inputs, out, tmp_path / "a", overwrite=False).script).returncode == 0
    out[0][2, 1, 3, 1] += 0.1
    answer = run(export(op, inputs, out, tmp_path / "b", overwrite=False).script)
    assert answer.returncode == 1
    assert first_line(answer.stdout)[0] == (2, 1, 3, 1)


HELD = ("ResourceGather", "ResourceApplyAdam", "ApplyGradientDescent")


@pytest.mark.parametrize("case", [k for k in CASES if k.split()[0] not in HELD])
def test_formula_gives_what_tensorflow_gives_in_float64(case):
    pytest.importorskip("tensorflow")
    from precision_tool.repro_raw_op import raw_node
    from precision_tool.repro_script import compute_text

    inputs, attrs = CASES[case]
    kind = case.split()[0]
    if kind == "Cast":
        attrs = {"DstT": "float16", "output_dtypes": ["float16"]}
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    space = {"np": np}
    exec(compute_text(kind, []), space)
    ours = space["compute"](wide, attrs)
    exec(compute_text("No formula", []), space)
    theirs = space["compute"](wide, raw_node(kind, len(wide), attrs))
    for mine, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-11, atol=1e-12)


def test_fused_op_is_its_members_in_order(tmp_path):
    inputs = [floats(40, 16), floats(16, 5), floats(5)]
    attrs = {
        "_datadump_original_op_names": ["m", "b", "r"],
        "_datadump_original_op_types": ["MatMul", "BiasAdd", "Relu"],
    }
    op = node("MatMulV2", **attrs)
    out = written(op, inputs)
    assert run(export(op, inputs, out, tmp_path / "a", overwrite=False).script).returncode == 0
    out[0][5, 1] += 3
    answer = run(export(op, inputs, out, tmp_path / "b", overwrite=False).script)
    assert answer.returncode == 1
    assert first_line(answer.stdout)[0] == (5, 1)


def test_python_37_runs_the_script(tmp_path):
    import shutil

    old = shutil.which("python3.7")
    if old is None or subprocess.run([old, "-c", "import numpy"], capture_output=True, check=False).returncode:
        pytest.skip("no Python 3.7 with NumPy")
    inputs = [floats(4, 5)]
    done = export(node("Exp"), inputs, written(node("Exp"), inputs), Path(tmp_path), overwrite=False)
    assert subprocess.run([old, "-I", str(done.script)], capture_output=True, check=False).returncode == 0
