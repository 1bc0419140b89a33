"""What each fault kind does, against NumPy on the operator's own inputs."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import FaultError
from engine.npu.device import EmulatedDevice
from engine.npu.executor import Call
from engine.npu.fault_place import FaultPlace
from engine.npu.fault_updates import UPDATE_EFFECTS
from engine.npu.faults import KINDS, applicable, parse_fault
from engine.npu.kernels import ON_VARIABLES
from engine.npu.tasks import Task
from engine.observe import DeviceGraph, DeviceOp, DevicePort

DENSE = "layer0/matmullayer0/biaslayer0/relu"
ADAM = "Adam/update_layer0/w/ResourceApplyAdam"


class Recorder:
    """An observer that keeps everything of all steps: ``runs[step][name]``."""

    def __init__(self):
        self.graph = None
        self.runs = []

    def graph_compiled(self, graph):
        self.graph = graph

    def step_begin(self, graph, step):
        self.runs.append({})
        return True

    def op_executed(self, run):
        self.runs[-1][run.name] = run

    def step_end(self, graph, step):
        pass

    def op(self, type_, containing="", step=0):
        """The only or first operator of a type."""
        return next(run for run in self.runs[step].values() if run.type == type_ and containing in run.name)


@pytest.fixture
def run_with(click_model, config, train, monkeypatch):
    """Trains with a fault; returns the observed steps and the device."""

    def run(fault, *, steps=1, optimizer="adam", seed=0):
        recorder = Recorder()
        original = EmulatedDevice.__init__

        def init(self, graph, options, **kwargs):
            original(self, graph, options, **{**kwargs, "observers": (recorder,)})

        with monkeypatch.context() as patch:
            patch.setattr(EmulatedDevice, "__init__", init)
            model = click_model(optimizer=optimizer)
            result = train(model, config(emulated_fault=fault, precision_mode="", emulated_seed=seed), steps=steps)
        return recorder, result.device

    return run


@pytest.fixture(scope="module")
def clean_runs():
    return {}


@pytest.fixture
def clean(run_with, clean_runs):
    def run(**how):
        key = tuple(sorted(how.items()))
        if key not in clean_runs:
            clean_runs[key] = run_with("none", **how)[0]
        return clean_runs[key]

    return run


def pair(run_with, clean, text, name, *, step=0, **how):
    """Runs of one operator with and without the fault; everything before it is equal."""
    faulty, device = run_with(text, steps=step + 1, **how)
    right = clean(steps=step + 1, **how).runs[step][name]
    assert device.fault_target == name
    return faulty.runs[step][name], right, device


def test_bias(run_with, clean):
    wrong, right, _ = pair(run_with, clean, "bias@layer1/bias:value=0.25", "layer1/matmullayer1/bias")
    np.testing.assert_array_equal(wrong.outputs[0], right.outputs[0] + np.float32(0.25))
    wrong, right, _ = pair(run_with, clean, "bias@user_sum", "user_sum")
    np.testing.assert_array_equal(wrong.outputs[0], right.outputs[0] + np.float32(0.01))


def test_sign_flip(run_with, clean):
    wrong, right, _ = pair(run_with, clean, "sign_flip@layer0/relu", DENSE)
    assert (right.outputs[0] == 0).any(), "zeros keep their bits"
    assert wrong.outputs[0].tobytes() == np.where(right.outputs[0] == 0, 0, -right.outputs[0]).tobytes()
    wrong, right, _ = pair(run_with, clean, "sign_flip@user_sum:count=3", "user_sum")
    changed = wrong.outputs[0] != right.outputs[0]
    assert np.count_nonzero(changed) == 3
    np.testing.assert_array_equal(wrong.outputs[0][changed], -right.outputs[0][changed])
    wrong, right, _ = pair(run_with, clean, "sign_flip@user_sum:share=0.25", "user_sum")
    assert np.count_nonzero(wrong.outputs[0] != right.outputs[0]) == right.outputs[0].size // 4


def test_row_swap(run_with, clean):
    wrong, right, _ = pair(run_with, clean, "row_swap@user_sum:count=3", "user_sum")
    rows = np.flatnonzero((wrong.outputs[0] != right.outputs[0]).any(1))
    assert len(rows) == 6
    for row in rows:
        (partner,) = [r for r in rows if np.array_equal(wrong.outputs[0][row], right.outputs[0][r])]
        np.testing.assert_array_equal(wrong.outputs[0][partner], right.outputs[0][row])


def test_stale_rows_of_a_table_are_those_before_its_last_update(run_with, clean):
    wrong, right, device = pair(run_with, clean, "stale_rows@user_lookup", "user_lookup", step=1)
    before = clean(steps=2).runs[0]["user_lookup"].inputs[0]
    np.testing.assert_array_equal(wrong.outputs[0], before[right.inputs[1]])
    assert not np.array_equal(wrong.outputs[0], right.outputs[0])
    assert device.fault_steps == {1}, "there is no step before the first"


def test_stale_rows_of_an_output(run_with, clean):
    wrong, right, device = pair(run_with, clean, "stale_rows@user_sum:share=0.25", "user_sum", step=1)
    before = clean(steps=2).runs[0]["user_sum"].outputs[0]
    stale = (wrong.outputs[0] != right.outputs[0]).any(1)
    assert np.count_nonzero(stale) == len(stale) // 4
    np.testing.assert_array_equal(wrong.outputs[0][stale], before[stale])
    assert device.fault_steps == {1}


def test_inf(run_with, clean):
    wrong, right, _ = pair(run_with, clean, "inf@user_sum:7", "user_sum")
    assert np.flatnonzero(np.isposinf(wrong.outputs[0])).tolist() == [7]
    np.testing.assert_array_equal(np.delete(wrong.outputs[0], 7), np.delete(right.outputs[0], 7))


def narrow_sum(rows):
    """Sums float32 rows, rounding to float16 after every 16."""
    total = np.zeros(rows.shape[1:], np.float32)
    for start in range(0, len(rows), 16):
        total = (total + rows[start : start + 16].sum(0, dtype=np.float32)).astype(np.float16).astype(np.float32)
    return total


def test_fp16_accumulate_in_a_fused_product(run_with, clean):
    wrong, right, _ = pair(run_with, clean, "fp16_accumulate@layer0/matmul", DENSE)
    left, weights, bias = right.inputs
    products = left.T[:, :, None] * weights[:, None, :]
    summed = (narrow_sum(products) + bias).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(wrong.outputs[0], np.maximum(summed, 0), atol=2e-3)
    assert np.array_equal(wrong.outputs[0], wrong.outputs[0].astype(np.float16)), "every value is one of float16"
    assert 1e-6 < np.abs(wrong.outputs[0] - right.outputs[0]).max() < 1e-2


def test_fp16_accumulate_in_sums(run_with, clean):
    wrong, right, _ = pair(run_with, clean, "fp16_accumulate@user_sum", "user_sum")
    np.testing.assert_array_equal(wrong.outputs[0], narrow_sum(right.inputs[0].transpose(1, 0, 2)))
    name = clean().op("BiasAddGrad", "layer0").name
    wrong, right, _ = pair(run_with, clean, f"fp16_accumulate@{name}", name)
    np.testing.assert_allclose(wrong.outputs[0], narrow_sum(right.inputs[0]), rtol=1e-3, atol=1e-6)
    wrong, right, _ = pair(run_with, clean, "fp16_accumulate@loss", "loss")
    assert wrong.outputs[0] == pytest.approx(float(right.outputs[0]), rel=2e-3)
    assert wrong.outputs[0] != right.outputs[0]


def test_fp16_accumulate_in_a_segment_sum(run_with, clean):
    name = clean().op("UnsortedSegmentSum").name
    wrong, right, _ = pair(run_with, clean, f"fp16_accumulate@{name}", name)
    data, segments, count = right.inputs
    expected = np.zeros((int(count), data.shape[-1]), np.float32)
    for row, segment in zip(data.reshape(-1, data.shape[-1]), segments.reshape(-1), strict=True):
        expected[segment] = (expected[segment] + row).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(wrong.outputs[0], expected)


def adam(run, *, epsilon=None, powers=None):
    """Adam's formulas in float64."""
    var, m, v, power1, power2, rate, beta1, beta2, eps, grad = (np.asarray(x, np.float64) for x in run.inputs)
    power1, power2 = (power1, power2) if powers is None else powers
    new_m, new_v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
    alpha = rate * np.sqrt(1 - power2) / (1 - power1)
    return var - alpha * new_m / (np.sqrt(new_v) + (eps if epsilon is None else epsilon)), new_m, new_v


def test_eps_of_adam(run_with, clean):
    wrong, right, _ = pair(run_with, clean, f"eps@{ADAM}:value=0.01", ADAM)
    for value, expected in zip(wrong.outputs, adam(right, epsilon=0.01), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-8)
    assert not np.allclose(wrong.outputs[0], adam(right)[0], rtol=1e-5, atol=1e-8)


def test_eps_of_a_sum_with_a_constant(run_with, clean):
    """Adam on rows is written out in TensorFlow: its epsilon is added by an operator of its own."""
    name = next(n for n in applicable(clean().graph, "eps") if "Adam/update_user_table" in n)
    wrong, right, _ = pair(run_with, clean, f"eps@{name}:value=0.001", name)
    np.testing.assert_array_equal(wrong.outputs[0], right.inputs[0] + np.float32(0.001))


def test_eps_of_rmsprop(run_with, clean):
    name = clean(optimizer="rmsprop").op("ApplyRMSProp").name
    wrong, right, _ = pair(run_with, clean, f"eps@{name}:value=0.5", name, optimizer="rmsprop")
    var, ms, mom, rate, rho, momentum, _, grad = (np.asarray(x, np.float64) for x in right.inputs)
    new_ms = ms + (grad**2 - ms) * (1 - rho)
    expected = var - (mom * momentum + rate * grad / np.sqrt(new_ms + 0.5))
    np.testing.assert_allclose(wrong.outputs[0], expected, rtol=1e-5, atol=1e-7)
    assert not np.array_equal(wrong.outputs[0], right.outputs[0])


def test_no_bias_correction(run_with, clean):
    wrong, right, _ = pair(run_with, clean, f"no_bias_correction@{ADAM}", ADAM)
    np.testing.assert_allclose(wrong.outputs[0], adam(right, powers=(0, 0))[0], rtol=1e-5, atol=1e-8)
    assert not np.array_equal(wrong.outputs[0], right.outputs[0])
    assert wrong.outputs[1].tobytes() == right.outputs[1].tobytes(), "the moments have no part in it"


def test_last_write_wins_in_a_gradient_sum(run_with, clean):
    name = clean().op("UnsortedSegmentSum").name
    wrong, right, _ = pair(run_with, clean, f"last_write_wins@{name}", name)
    data, segments, count = right.inputs
    expected = np.zeros((int(count), data.shape[-1]), np.float32)
    for row, segment in zip(data.reshape(-1, data.shape[-1]), segments.reshape(-1), strict=True):
        expected[segment] = row
    np.testing.assert_array_equal(wrong.outputs[0], expected)
    assert not np.array_equal(wrong.outputs[0], right.outputs[0])


@pytest.mark.parametrize("type_", ["ScatterAdd", "ScatterSub"])
def test_last_write_wins_in_a_scatter(type_):
    random = np.random.default_rng(1)
    var = random.normal(size=(6, 3)).astype(np.float32)
    indices, updates = np.array([4, 1, 4, 0, 1, 4]), random.normal(size=(6, 3)).astype(np.float32)
    op = DeviceOp("scatter", type_, output_ports=(DevicePort("float32", (6, 3)),))
    task = Task(op, None, ON_VARIABLES[type_], None, (), None, "", False, {0: "var"}, False, ())
    call = Call(task, [var, indices, updates], lambda inputs: task.kernel({}, inputs), 0)
    place = FaultPlace(parse_fault("last_write_wins@scatter"), DeviceGraph("g", (op,), 1), task, random, None)
    (wrong,) = UPDATE_EFFECTS["last_write_wins"](place, call, call.compute(call.inputs))
    expected = var.copy()
    for row, index in enumerate(indices):
        expected[index] = var[index] + updates[row] * (1 if type_ == "ScatterAdd" else -1)
    np.testing.assert_array_equal(wrong, expected)


def test_skip_update(run_with, clean):
    wrong, right, _ = pair(run_with, clean, f"skip_update@{ADAM}", ADAM)
    for value, old in zip(wrong.outputs, right.inputs[:3], strict=True):
        assert value.tobytes() == old.tobytes()
    assert not np.array_equal(right.outputs[0], right.inputs[0])


def test_skip_update_of_rows(run_with, clean):
    name = clean().op("ScatterAdd", "user_table").name
    steps = run_with(f"skip_update@{name}:share=0.1")
    wrong, right = steps[0].runs[0][name], clean().runs[0][name]
    written = right.outputs[-1]
    changed = (written != right.inputs[0]).any(1)
    skipped = (wrong.outputs[-1] != written).any(1)
    assert np.count_nonzero(skipped) == max(1, int(0.1 * np.count_nonzero(changed)))
    np.testing.assert_array_equal(wrong.outputs[-1][skipped], right.inputs[0][skipped])
    np.testing.assert_array_equal(wrong.outputs[-1][~skipped], written[~skipped])


def test_a_skipped_update_leaves_the_device_variable_alone(run_with, clean):
    faulty, _ = run_with(f"skip_update@{ADAM}", steps=2)
    first, second = (faulty.runs[step][ADAM].inputs[0] for step in (0, 1))
    assert first.tobytes() == second.tobytes()


def test_no_world_divide(run_with, clean):
    (name,) = [n for n in applicable(clean().graph, "no_world_divide") if "half_grad" in n]
    wrong, right, _ = pair(run_with, clean, f"no_world_divide@{name}", name)
    np.testing.assert_array_equal(right.outputs[0], right.inputs[0] * np.float32(0.5))
    np.testing.assert_array_equal(wrong.outputs[0], right.inputs[0])


def test_intermittent_acts_in_every_kth_step(run_with):
    _, device = run_with("intermittent@user_sum:kind=scale,every=3,factor=2", steps=7)
    assert device.fault_steps == {2, 5}
    faulty, device = run_with("intermittent@user_sum:nan,index=4", steps=2)
    assert device.fault_steps == {1}
    assert [np.flatnonzero(np.isnan(runs["user_sum"].outputs[0])).tolist() for runs in faulty.runs][:2] == [[], [4]]


def test_intermittent_texts():
    spec = parse_fault("intermittent@x:kind=overwrite,every=5,count=2")
    assert (spec.kind, spec.every, spec.get("count"), spec.target) == ("overwrite", 5, 2, "x")
    assert [step for step in range(12) if spec.acts(step)] == [4, 9]
    plain = parse_fault("intermittent@x")
    assert (plain.kind, plain.every, plain.number("factor")) == ("scale", 2, 1.5)
    assert parse_fault("scale@x").every == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("row_swap@loss", "writes a scalar"),
        ("stale_rows@loss", "writes a scalar"),
        ("fp16_accumulate@user_lookup", "adds nothing up; it applies to"),
        ("eps@layer0/matmul", "no optimizer with an epsilon"),
        ("no_bias_correction@layer0/matmul", f"corrects no bias; it applies to {ADAM}"),
        ("last_write_wins@layer0/matmul", "adds up no values"),
        ("skip_update@layer0/matmul", "updates no variable"),
        ("no_world_divide@layer0/matmul", "divides by no scalar"),
        ("inf@loss:index=99", "there is no element 99"),
        ("intermittent@layer0/matmul:kind=wrong_row", "gathers no rows"),
        ("bias@Unique", "runs on the host"),
    ],
)
def test_faults_that_do_not_apply(run_with, text, complaint):
    with pytest.raises(FaultError, match=complaint):
        run_with(text)


@pytest.mark.parametrize("kind", ["sign_flip", "row_swap", "stale_rows", "skip_update", "intermittent"])
def test_the_seed_decides(run_with, clean, kind):
    name = applicable(clean().graph, kind)[0] if kind == "skip_update" else "user_lookup"
    options = {"row_swap": "count=2", "intermittent": "kind=sign_flip,share=0.3"}.get(kind, "share=0.3")
    name = next(n for n in applicable(clean().graph, kind) if "user_table" in n) if kind == "skip_update" else name
    runs = [run_with(f"{kind}@{name}:{options}", steps=2, seed=seed)[0].runs[1][name] for seed in (1, 1, 2)]
    bits = [run.outputs[-1].tobytes() for run in runs]
    assert bits[0] == bits[1]
    assert bits[0] != bits[2]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_changed_steps_are_true_to_the_bits(run_with, clean, kind):
    """Whether a fault says that it changed something is whether the operator wrote, or its readers read, other bits."""
    for name in applicable(clean().graph, kind)[:: max(1, len(applicable(clean().graph, kind)) // 3)]:
        faulty, device = run_with(f"{kind}@{name}")
        wrote = any(
            a.tobytes() != b.tobytes()
            for a, b in zip(faulty.runs[0][name].outputs, clean().runs[0][name].outputs, strict=True)
        )
        if kind == "overwrite":
            wrote = any(
                value.tobytes() != faulty.runs[0][place[0]].outputs[place[1]].tobytes()
                for run in faulty.runs[0].values()
                for value, place in zip(run.inputs, run.op.inputs, strict=False)
                if place[0] == name
            )
        assert (0 in device.fault_steps) == wrote, name


def test_several_faults_hit_an_operator_each_and_know_their_steps(run_with):
    texts = [f"scale@{DENSE}:factor=2", f"nan@{ADAM}:index=3"]
    steps, device = run_with(";".join(texts), steps=2)
    # The NaN of the first step is still in the weight in the second, where the fault changes nothing any more.
    assert device.steps_by_fault == {texts[0]: frozenset({0, 1}), texts[1]: frozenset({0})}
    assert device.fault_steps == {0, 1}
    assert np.isnan(steps.runs[0][ADAM].outputs[0].reshape(-1)[3])
    plain, _ = run_with("none")
    np.testing.assert_array_equal(steps.runs[0][DENSE].outputs[0], 2 * plain.runs[0][DENSE].outputs[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"scale@{DENSE};bias@{DENSE}", "takes one fault"),
        (f"scale@{DENSE};some.module:call", "KIND@OP each"),
        (f"scale@{DENSE};none", "KIND@OP each"),
        (f"scale@{DENSE};scale@nowhere", "nowhere"),
    ],
)
def test_several_faults_that_do_not_go_together_are_refused(run_with, text, said):
    with pytest.raises(FaultError, match=said):
        run_with(text)
