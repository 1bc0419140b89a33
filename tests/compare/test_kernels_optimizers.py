"""Optimizer updates against TensorFlow, over whole variables and over rows; wrong ones are found."""

import numpy as np
import pytest

from compare.bounds import RATIO_LIMIT
from compare.kernels import optimizers, proximal
from compare.replay import local_error
from dumpers.graph import Op
from tests.compare.tensorflow_oracle import eager_mode

tf = pytest.importorskip("tensorflow")
eagerly = pytest.fixture(autouse=True, scope="module")(eager_mode)

FTRL, FTRL_V2 = "lr l1 l2 lr_power", "lr l1 l2 l2_shrinkage lr_power"
DUAL = "var gradient_accumulator gradient_squared_accumulator grad"
ADAM = "beta1_power beta2_power lr beta1 beta2 epsilon grad"
INPUTS = {
    "ApplyAdagrad": (2, "var accum lr grad"),
    "ApplyAdagradV2": (2, "var accum lr epsilon grad"),
    "ApplyGradientDescent": (1, "var alpha delta"),
    "ApplyMomentum": (2, "var accum lr grad momentum"),
    "ApplyKerasMomentum": (2, "var accum lr grad momentum"),
    "ApplyRMSProp": (3, "var ms mom lr rho momentum epsilon grad"),
    "ApplyCenteredRMSProp": (4, "var mg ms mom lr rho momentum epsilon grad"),
    "ApplyAdadelta": (3, "var accum accum_update lr rho epsilon grad"),
    "ApplyAdam": (3, f"var m v {ADAM}"),
    "ApplyAdamWithAmsgrad": (4, f"var m v vhat {ADAM}"),
    "ApplyAdaMax": (3, "var m v beta1_power lr beta1 beta2 epsilon grad"),
    "ApplyAddSign": (2, "var m lr alpha sign_decay beta grad"),
    "ApplyPowerSign": (2, "var m lr logbase sign_decay beta grad"),
    "ApplyFtrl": (3, f"var accum linear grad {FTRL}"),
    "ApplyFtrlV2": (3, f"var accum linear grad {FTRL_V2}"),
    "ApplyProximalAdagrad": (2, "var accum lr l1 l2 grad"),
    "ApplyProximalGradientDescent": (1, "var alpha l1 l2 delta"),
    "ApplyAdagradDA": (3, f"{DUAL} lr l1 l2 global_step"),
    "SparseApplyAdagrad": (2, "var accum lr grad indices"),
    "SparseApplyAdagradV2": (2, "var accum lr epsilon grad indices"),
    "SparseApplyMomentum": (2, "var accum lr grad indices momentum"),
    "SparseApplyKerasMomentum": (2, "var accum lr grad indices momentum"),
    "SparseApplyRMSProp": (3, "var ms mom lr rho momentum epsilon grad indices"),
    "SparseApplyCenteredRMSProp": (4, "var mg ms mom lr rho momentum epsilon grad indices"),
    "SparseApplyAdadelta": (3, "var accum accum_update lr rho epsilon grad indices"),
    "SparseApplyFtrl": (3, f"var accum linear grad indices {FTRL}"),
    "SparseApplyFtrlV2": (3, f"var accum linear grad indices {FTRL_V2}"),
    "SparseApplyProximalAdagrad": (2, "var accum lr l1 l2 grad indices"),
    "SparseApplyProximalGradientDescent": (1, "var alpha l1 l2 grad indices"),
    "SparseApplyAdagradDA": (3, f"{DUAL} indices lr l1 l2 global_step"),
}
"""State tensors and input names in TensorFlow's order."""

FLAGS = {
    **{name: "use_nesterov" for name in INPUTS if name.endswith(("Momentum", "ApplyAdam"))},
    **{name: "update_slots" for name in INPUTS if "ApplyAdagrad" in name and not name.endswith("DA")},
    **{name: "multiply_linear_by_lr" for name in INPUTS if "Ftrl" in name},
}
POSITIVE = ("accum", "ms", "v", "vhat", "accum_update", "gradient_squared_accumulator")
ROWS, COLUMNS = 40, 8


def values(rng, name, kind, rows):
    """One input as it occurs in training; sizes of the slots follow from that of the gradients."""
    scale = 10.0 ** rng.integers(-4, 1)
    made = {
        "var": lambda: rng.normal(size=(ROWS, COLUMNS)),
        "mg": lambda: rng.normal(size=(ROWS, COLUMNS)) * 0.01,
        "ms": lambda: rng.uniform(0.001, 0.1, size=(ROWS, COLUMNS)),
        "grad": lambda: rng.normal(size=(rows, COLUMNS)) * scale,
        "delta": lambda: rng.normal(size=(rows, COLUMNS)) * scale,
        "indices": lambda: rng.integers(0, ROWS // 2, size=rows),
        "global_step": lambda: rng.integers(1, 1000),
        "lr_power": lambda: -rng.choice([0.5, 0.5, 0.3, 0.7]),
        **{n: lambda: 10.0 ** rng.uniform(-4, -1) for n in ("lr", "alpha", "epsilon")},
        **{n: lambda: rng.choice([0.0, 0.001, 0.1]) for n in ("l1", "l2", "l2_shrinkage")},
        **{n: lambda: rng.choice([0.9, 0.99, 0.5]) for n in ("rho", "momentum", "beta1", "beta", "beta1_power")},
        **{n: lambda: 0.999 for n in ("beta2", "beta2_power")},
        **{n: lambda: rng.uniform(0.5, 1.5) for n in ("logbase", "sign_decay")},
    }.get(name, lambda: rng.normal(size=(ROWS, COLUMNS)) * 0.1)()
    made = np.abs(made) + 1e-3 if name in POSITIVE else made
    return np.asarray(made, {"indices": np.int32, "global_step": np.int64}.get(name, kind))


def case(name, seed, kind="float32"):
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    states, words = INPUTS[name]
    rows = 60 if name.startswith("Sparse") else ROWS
    given = {word: values(rng, word, kind, rows) for word in words.split()}
    attrs = {FLAGS[name]: bool(seed % 2)} if name in FLAGS else {}
    return states, given, attrs


def tensorflow(name, states, given, attrs):
    """What TensorFlow makes of the state."""
    variables = {word: tf.Variable(value) for word, value in list(given.items())[:states]}
    handles = {word: variable.handle for word, variable in variables.items()}
    getattr(tf.raw_ops, "Resource" + name)(**{**given, **handles}, **attrs)
    return [variable.numpy() for variable in variables.values()]


HALF = [name for name in INPUTS if not name.endswith("DA") and "Proximal" not in name]  # what the CPU has


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((n, "float32") for n in INPUTS), *((n, "float64") for n in INPUTS), *((n, "float16") for n in HALF)],
)
def test_updates(name, kind):
    for seed in range(12):
        states, given, attrs = case(name, seed, kind)
        outputs = tensorflow(name, states, given, attrs)
        for known in (name, "Resource" + name):
            errors = local_error(Op("u", known, attrs=attrs), list(given.values()), outputs)
            assert [error.reason for error in errors] == [""] * states
            # In 16 bits squares overflow and vanish; what cannot be judged there is said.
            assert kind == "float16" or sum(error.unjudged for error in errors) == 0, errors
            assert max(error.ratio for error in errors) <= 1, (seed, known, errors)


@pytest.mark.parametrize("name", [name for name in INPUTS if name.startswith("Sparse")])
def test_rows_that_are_not_named_stay(name):
    states, given, attrs = case(name, 3)
    outputs = tensorflow(name, states, given, attrs)
    outputs[0][-1, 0] = np.nextafter(outputs[0][-1, 0], np.float32(9))
    error = local_error(Op("u", name, attrs=attrs), list(given.values()), outputs)[0]
    assert (error.ratio, error.index, error.differing) == (np.inf, (ROWS - 1, 0), 1)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("fault", ["learning rate", "lost gradient", "state as before"])
def test_wrong_updates_are_found(name, fault):
    states, given, attrs = case(name, 4)
    sizes = {"l1": 0.01, "l2": 0.01, "l2_shrinkage": 0.01, "lr": 0.03, "alpha": 0.03}
    given = given | {word: np.asarray(size, "f") for word, size in sizes.items() if word in given}
    given = given | ({"global_step": np.int64(3)} if "global_step" in given else {})
    wrong = dict(given)
    if fault == "learning rate":
        rate = "alpha" if "lr" not in given else "lr"
        wrong[rate] = given[rate] * np.float32(1.01)
    elif fault == "lost gradient":
        word = "delta" if "delta" in given else "grad"
        wrong[word] = given[word].copy()
        wrong[word][1] = 0
    outputs = tensorflow(name, states, wrong, attrs)
    if fault == "state as before":
        outputs[0] = given["var"]
    errors = local_error(Op("u", name, attrs=attrs), list(given.values()), outputs)
    assert max(error.ratio for error in errors) > RATIO_LIMIT


def test_scalars_of_device_types_are_attributes():
    states, given, attrs = case("SparseApplyRMSProp", 5)
    scalars = {word: float(given[word]) for word in ("rho", "momentum", "epsilon")}
    arrays = [value for word, value in given.items() if word not in scalars]
    outputs = tensorflow("SparseApplyRMSProp", states, given, attrs)
    errors = local_error(Op("u", "SparseApplyRMSPropD", attrs=scalars), arrays, outputs)
    assert max(error.ratio for error in errors) <= 1
    wrong = local_error(Op("u", "SparseApplyRMSPropD", attrs={**scalars, "rho": 0.8}), arrays, outputs)
    assert max(error.ratio for error in wrong) > RATIO_LIMIT


@pytest.mark.parametrize("name", INPUTS)
def test_hostile_inputs_are_reasons(name):
    _, given, _ = case(name, 6)
    changes = {
        "var": np.zeros((3, 2, 1), "f"),
        "grad": np.zeros((5,), "f"),
        "indices": np.full(60, ROWS, np.int32),
        "lr": np.zeros(2, "f"),
        "alpha": np.zeros(2, "f"),
    }
    for word, value in changes.items():
        if word in given:
            (error, *_) = local_error(Op("u", name), list((given | {word: value}).values()), [given["var"]])
            assert error.reason.startswith("not replayable: "), word
    (error,) = local_error(Op("u", name), list(given.values())[:-1], [given["var"]])
    assert error.reason.startswith("not replayable: ")


def test_no_rows_and_no_columns():
    empty = np.zeros((0, 4), "f")
    inputs = [empty, empty, np.float32(0.1), empty, np.zeros(0, np.int32)]
    assert [e.ratio for e in local_error(Op("u", "SparseApplyAdagrad"), inputs, [empty, empty])] == [0, 0]
    var, none = np.ones((5, 4), "f"), np.zeros((0, 4), "f")
    inputs = [var, var, np.float32(0.1), none, np.zeros(0, np.int32)]
    assert [e.ratio for e in local_error(Op("u", "SparseApplyAdagrad"), inputs, [var, var])] == [0, 0]


def test_every_rule_is_tested():
    plain = {"AssignAdd", "AssignSub"}
    known = set(optimizers.UPDATES) | set(proximal.PROXIMAL)
    assert {name.replace("AdamD", "Adam") for name in known} - plain == set(INPUTS)
