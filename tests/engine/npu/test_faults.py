"""Faults: their texts, where they apply, what they do."""

from __future__ import annotations

import textwrap

import ml_dtypes
import numpy as np
import pytest

from engine.errors import FaultError
from engine.npu.device import EmulatedDevice, make_fault
from engine.npu.faults import KINDS, applicable, is_builtin, parse_fault
from engine.observe import DeviceGraph, OpRun
from precision_tool import device as facade


class Recorder:
    """An observer that keeps everything of one step."""

    def __init__(self, step: int = 0) -> None:
        self.graph: DeviceGraph | None = None
        self.runs: dict[str, OpRun] = {}
        self._step = step

    def graph_compiled(self, graph):
        self.graph = graph

    def step_begin(self, graph, step):
        return step == self._step

    def op_executed(self, run):
        self.runs[run.name] = run

    def step_end(self, graph, step):
        pass

    def read_by_consumers(self, name: str, slot: int = 0):
        """What each consumer read of an output."""
        return [
            run.inputs[index]
            for run in self.runs.values()
            for index, place in enumerate(run.op.inputs)
            if place == (name, slot)
        ]


@pytest.fixture
def run_with(click_model, config, train, monkeypatch):
    """Trains with a fault; returns the observed step and the device."""

    def run(fault: str, *, step: int = 0, mode: str = "force_fp32", **options):
        recorder = Recorder(step)
        original = EmulatedDevice.__init__

        def init(self, graph, options, **kwargs):
            original(self, graph, options, **{**kwargs, "observers": (recorder,)})

        with monkeypatch.context() as patch:
            patch.setattr(EmulatedDevice, "__init__", init)
            result = train(click_model(), config(emulated_fault=fault, precision_mode=mode, **options), steps=step + 1)
        return recorder, result.device

    return run


def test_texts():
    assert parse_fault("none") is None
    assert parse_fault("") is None
    spec = parse_fault("scale@a/b:factor=2")
    assert (spec.kind, spec.target, spec.number("factor")) == ("scale", "a/b", 2.0)
    assert parse_fault("scale@x").number("factor") == 1.5
    assert parse_fault("nan@x:7").get("index") == 7
    assert parse_fault("overwrite@x:share=0.5,count=3").get("count") == 3
    assert parse_fault("fusion_drop@x:BiasAdd").get("member") == "BiasAdd"
    assert is_builtin("scale@x")
    assert is_builtin("none")
    assert not is_builtin("module:callable")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("scal@x", "did you mean 'scale'"),
        ("scale", "say which operator"),
        ("scale@", "say which operator"),
        ("scale@x:speed=1", "scale takes factor"),
        ("scale@x:factor=fast", "factor='fast'"),
        ("scale@x:factor=nan", "must be a number"),
        ("wrong_row@x:share=0", "above 0"),
        ("wrong_row@x:share=1.5", "at most 1"),
        ("drop_tail@x:count=0", "at least 1"),
        ("nan@x:index=-1", "0 or more"),
        ("bf16_inputs@x:3", "takes no parameters"),
        ("module:", "package.module:callable"),
        ("no_such_module_anywhere:f", "cannot be imported"),
        ("json:no_such_function", "has no callable"),
        ("intermittent@x:kind=flicker", "no kind 'flicker' to repeat"),
        ("intermittent@x:intermittent", "no kind 'intermittent'"),
        ("intermittent@x:every=0", "at least 1"),
        ("intermittent@x:kind=nan,factor=2", "nan takes index"),
        ("intermittent@x:scale,2", "scale takes factor"),
        ("bias@x:value=nan", "must be a number"),
        ("sign_flip@x:share=2", "at most 1"),
        ("row_swap@x:0", "at least 1"),
        ("eps@x:value=-1", "in 0 .. 1"),
        ("no_bias_correction@x:1", "takes no parameters"),
    ],
)
def test_wrong_texts(text, complaint):
    with pytest.raises(FaultError, match=complaint) as caught:
        make_fault(text, 0)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("scale@layer0/matmol", r"near: .*layer0/matmul"),
        ("wrong_row@layer0/matmul", r"gathers no rows; it applies to user_lookup"),
        ("fusion_drop@loss", r"is not fused; it applies to layer0"),
        ("nan@Unique", r"runs on the host"),
        ("scale@label", r"no task"),
        ("drop_tail@Reshape", "no floating-point"),
        ("overwrite@Adam/update_layer0/w/ResourceApplyAdam", "reads its output"),
        ("nan@loss:index=99", "there is no element 99"),
        ("fusion_drop@layer0/bias:member=Tanh", r"no member 'Tanh'.*layer0/relu \(Relu\)"),
        ("fusion_drop@layer0/bias:member=MatMul", "leads"),
    ],
)
def test_faults_that_do_not_apply(run_with, text, complaint):
    with pytest.raises(FaultError, match=complaint):
        run_with(text)


_CLEAN: dict[str, Recorder] = {}


@pytest.fixture
def clean(run_with):
    """The same step without a fault; run once."""
    if "none" not in _CLEAN:
        _CLEAN["none"] = run_with("none")[0]
    return _CLEAN["none"]


def differing(clean, faulty):
    """Names of operators whose outputs differ, in order."""
    return [
        name
        for name, run in clean.runs.items()
        if any(a.tobytes() != b.tobytes() for a, b in zip(run.outputs, faulty.runs[name].outputs, strict=True))
    ]


def test_scale(run_with, clean):
    faulty, device = run_with("scale@layer1/bias:factor=3")
    name = "layer1/matmullayer1/bias"
    assert differing(clean, faulty)[0] == name == device.fault_target
    np.testing.assert_array_equal(faulty.runs[name].outputs[0], clean.runs[name].outputs[0] * np.float32(3))
    for value in faulty.read_by_consumers(name):
        np.testing.assert_array_equal(value, faulty.runs[name].outputs[0])
    assert device.fault_changed


def test_nan(run_with):
    faulty, _ = run_with("nan@user_sum:5")
    assert np.flatnonzero(np.isnan(faulty.runs["user_sum"].outputs[0])).tolist() == [5]


@pytest.mark.parametrize(("text", "count"), [("drop_tail@user_sum:count=3", 3), ("drop_tail@user_sum", 16)])
def test_drop_tail(run_with, clean, text, count):
    faulty, _ = run_with(text)
    wrong, right = (record.runs["user_sum"].outputs[0].reshape(-1) for record in (faulty, clean))
    assert not wrong[-count:].any()
    np.testing.assert_array_equal(wrong[:-count], right[:-count])


@pytest.mark.parametrize("op", ["user_table", "user_lookup", "user_restore"])
def test_wrong_row(run_with, clean, op):
    faulty, _ = run_with(f"wrong_row@{op}:share=0.05")
    name = op.replace("table", "lookup")
    wrong, right = faulty.runs[name], clean.runs[name]
    indices = right.inputs[1].reshape(-1)
    width = right.outputs[0].shape[-1]
    changed = (wrong.outputs[0] != right.outputs[0]).reshape(-1, width).any(1)
    rows = np.unique(indices)
    assert len(np.unique(indices[changed])) == max(1, round(0.05 * len(rows)))
    for row in wrong.outputs[0].reshape(-1, width)[changed]:
        assert (right.inputs[0] == row).all(1).any(), "another row of the table"
    np.testing.assert_array_equal(wrong.inputs[1], right.inputs[1])


def test_zero_rows(run_with, clean):
    faulty, _ = run_with("zero_rows@item_restore:share=0.1")
    wrong, right = faulty.runs["item_restore"].outputs[0], clean.runs["item_restore"].outputs[0]
    zero = ~wrong.any(2)
    indices = clean.runs["item_restore"].inputs[1]
    assert len(np.unique(indices[zero])) == round(0.1 * len(np.unique(indices)))
    np.testing.assert_array_equal(wrong[~zero], right[~zero])


def test_overwrite_hits_the_consumers_only(run_with, clean):
    faulty, device = run_with("overwrite@user_sum:count=4")
    wrote = faulty.runs["user_sum"].outputs[0]
    np.testing.assert_array_equal(wrote, clean.runs["user_sum"].outputs[0])
    read = faulty.read_by_consumers("user_sum")
    assert read
    for value in read:
        assert np.count_nonzero(value != wrote) == 4
        assert np.isfinite(value).all()
    assert device.fault_changed


def test_fusion_drop(run_with, clean):
    name = "layer0/matmullayer0/biaslayer0/relu"
    inputs = clean.runs[name].inputs
    product = inputs[0].astype(np.float64) @ inputs[1]
    for text, expected in [
        ("fusion_drop@layer0/relu", product + inputs[2]),
        ("fusion_drop@layer0/matmul:member=layer0/bias", np.maximum(product, 0)),
    ]:
        faulty, device = run_with(text)
        np.testing.assert_allclose(faulty.runs[name].outputs[0], expected, atol=1e-5)
        assert device.fault_changed
    scaled, _ = run_with("fusion_drop@layer1/shift")
    half = scaled.runs["layer1/halflayer1/shift"]
    np.testing.assert_array_equal(half.outputs[0], half.inputs[0] * half.inputs[1])


@pytest.mark.parametrize("mode", ["force_fp32", "allow_mix_precision"])
def test_bf16_inputs(run_with, mode):
    faulty, device = run_with("bf16_inputs@layer1/matmul", mode=mode)
    run = faulty.runs["layer1/matmullayer1/bias"]
    a, b, bias = (value.astype(ml_dtypes.bfloat16).astype(np.float64) for value in run.inputs)
    np.testing.assert_allclose(run.outputs[0], a @ b + bias, atol=1e-5)
    assert not np.array_equal(run.inputs[1], run.inputs[1].astype(ml_dtypes.bfloat16).astype(run.inputs[1].dtype))
    assert device.fault_changed


def test_a_fault_on_an_update_reaches_the_variable(run_with):
    faulty, device = run_with("scale@Adam/update_layer0/w/ResourceApplyAdam:factor=2", step=1)
    run = faulty.runs["Adam/update_layer0/w/ResourceApplyAdam"]
    np.testing.assert_array_equal(run.outputs[0], device_variable(run, faulty))
    assert device.fault_changed


def device_variable(run, faulty):
    """Reads the written variable back through the operator's own report: it is output 0 times the factor."""
    m, v = run.outputs[1], run.outputs[2]
    rate, epsilon = run.inputs[5], run.inputs[8]
    alpha = rate * np.sqrt(np.float32(1) - run.inputs[4]) / (np.float32(1) - run.inputs[3])
    return (run.inputs[0] - m * alpha / (np.sqrt(v) + epsilon)) * np.float32(2)


def test_faults_repeat_with_the_seed_and_change_with_it(run_with):
    runs = [run_with("wrong_row@user_lookup:share=0.2", emulated_seed=seed)[0] for seed in (1, 1, 2)]
    outputs = [run.runs["user_lookup"].outputs[0] for run in runs]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


def test_a_fault_without_effect_is_known(run_with):
    _, device = run_with("scale@layer1/bias:factor=1")
    assert not device.fault_changed
    _, device = run_with("none")
    assert not device.fault_changed


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_applicable_operators_really_take_the_fault(run_with, clean, kind):
    names = applicable(clean.graph, kind)
    assert names
    for name in names[:: max(1, len(names) // 4)]:
        faulty, _ = run_with(f"{kind}@{name}")
        assert set(faulty.runs) == set(clean.runs)


FAULT_MODULE = """
    import numpy as np

    def swap_signs(op):
        if op.type == "MatMulV2" and op.name.startswith("layer1"):
            op.outputs[0][...] = -op.outputs[0]
            return op.outputs

    def fails(op):
        raise KeyError("lost")

    def one_too_many(op):
        return [*op.outputs, op.outputs[0]]

    def other_type(op):
        return [np.asarray(v, np.float64) for v in op.outputs] if op.name == "user_sum" else None

    def other_shape(op):
        return [v[None] for v in op.outputs]

    def writes_inputs(op):
        op.inputs[0][...] = 0
"""


@pytest.fixture
def fault_module(tmp_path, monkeypatch):
    (tmp_path / "my_fault.py").write_text(textwrap.dedent(FAULT_MODULE))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("fault_module")
def test_module_fault(run_with, clean):
    faulty, device = run_with("my_fault:swap_signs")
    name = "layer1/matmullayer1/bias"
    assert differing(clean, faulty)[0] == name
    np.testing.assert_array_equal(faulty.runs[name].outputs[0], -clean.runs[name].outputs[0])
    assert device.fault_changed


@pytest.mark.usefixtures("fault_module")
@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("fails", "KeyError"),
        ("one_too_many", "returned 2 arrays"),
        ("other_type", r"'user_sum' .*must be float32"),
        ("other_shape", "must be"),
        ("writes_inputs", "read-only"),
    ],
)
def test_module_faults_that_misbehave(run_with, function, complaint):
    with pytest.raises(FaultError, match=complaint) as caught:
        run_with(f"my_fault:{function}")
    assert "operator" in str(caught.value)
    assert "my_fault" in str(caught.value)


def test_a_module_of_the_same_name_elsewhere_is_another(tmp_path, monkeypatch):
    answers = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "twice_named.py").write_text(f"def f(op):\n    return {number}\n")
        monkeypatch.chdir(folder)
        answers.append(make_fault("twice_named:f", 0)._call(None))
    assert answers == [1, 2]


def test_plain_sessions_know_no_faults(click_model, train):
    assert train(click_model(), None, steps=1).device is None
    assert facade.device_of(object()) is None
