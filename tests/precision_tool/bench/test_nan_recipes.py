"""Arithmetic that makes a NaN or an infinity, put into the reference models at drawn places: op and element are named.

Each recipe is an op on a tensor of the place's own shape, harmless but at one element; what it makes there is added to
what the model computed, times zero, so that the model carries on with one NaN.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compare.nan_origin import find_nan_origin
from dumpers.capture.selection import EVERYTHING
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from dumpers.settings import Settings
from precision_tool.bench.faults import MODELS
from precision_tool.training import golden_config
from precision_tool.workbench import Workbench

tf = pytest.importorskip("tensorflow")
plain = pytest.importorskip("engine.models.plain")

RECIPES = {
    "log of zero": (1.0, 0.0, tf.math.log),
    "log of less than zero": (1.0, -1e-8, tf.math.log),
    "log1p below -1": (0.5, -2.0, tf.math.log1p),
    "root of less than zero": (1.0, -1e-12, tf.sqrt),
    "reciprocal root of zero": (1.0, 0.0, tf.math.rsqrt),
    "zero by zero": (1.0, 0.0, lambda u: tf.divide(u, u)),
    "one by zero": (1.0, 0.0, tf.math.reciprocal),
    "exp of 89": (1.0, 89.0, tf.exp),
    "expm1 of 89": (1.0, 89.0, tf.math.expm1),
    "square of 1e20": (1.0, 1e20, tf.square),
    "product beyond the largest number": (1.0, 3e38, lambda u: tf.multiply(u, u)),
    "sum beyond the largest number": (1.0, 3e38, lambda u: tf.add(u, u)),
    "power of a negative number": (1.0, -0.5, lambda u: tf.pow(u, 0.5)),
    "float16 overflow": (1.0, 1e5, lambda u: tf.cast(u, tf.float16)),
    "acos of 2": (0.5, 2.0, tf.acos),
    "atanh of 1": (0.5, 1.0, tf.atanh),
    "acosh below 1": (1.5, 0.5, tf.acosh),
    "lgamma of zero": (1.5, 0.0, tf.math.lgamma),
}
"""Name -> an operand that does no harm, one that does, and the op."""


def places(made):
    """Tensors of the forward pass that another op of it reads, each a float32 of known shape that is no variable."""
    found = []
    for op in made.graph.get_operations():
        if op.name.startswith(("gradients", "Adam", "GradientDescent")) or "/Initializer" in op.name:
            continue
        if op.type in ("Const", "VariableV2", "VarHandleOp", "Placeholder", "Assign", "ReadVariableOp", "Identity"):
            continue
        for tensor in op.outputs:
            readers = [r for r in tensor.consumers() if not r.name.startswith(("gradients", "Adam", "GradientDescent"))]
            if tensor.dtype == tf.float32 and tensor.shape.is_fully_defined() and readers:
                found.append((tensor, readers))
    return found


def spoiled(model, resource, recipe, random):
    """The model with a recipe at a drawn place: the model, the recipe's op and the element."""
    made = plain.build(model, resource)
    spots = places(made)
    tensor, readers = spots[random.integers(len(spots))]
    good, bad, function = RECIPES[recipe]
    operand = np.full(tensor.shape.as_list(), good, np.float32)
    element = tuple(int(random.integers(size)) for size in operand.shape)
    operand[element] = bad
    with made.graph.as_default(), tf.name_scope("recipe"):
        result = function(tf.compat.v1.placeholder_with_default(operand, operand.shape, name="operand"))
        whole = tf.add(tensor, tf.cast(result, tf.float32) * 0.0, name="spoiled")
    for reader in readers:
        for index, source in enumerate(reader.inputs):
            if source is tensor:
                reader._update_input(index, whole)
    return made, result.op, element


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("seed", range(2))
def test_op_and_element_are_named_wherever_it_happens(tmp_path, recipe, seed):
    random = np.random.default_rng([seed, sorted(RECIPES).index(recipe)])
    model, resource = str(random.choice(MODELS)), bool(random.integers(2))
    made, op, element = spoiled(model, resource, recipe, random)
    settings = replace(Settings(), root_dir=tmp_path)
    workbench = Workbench(settings)
    plain_session = tf.compat.v1.Session(graph=made.graph, config=golden_config())
    folder = workbench.workspace.tf_debug
    with record_session(plain_session, folder, parse_steps("0"), keep="pack", selection=EVERYTHING) as session:
        session.run(made.init)
        results = session.run(made.fetches, plain.batches(made.placeholders, 1, -1)[0])[1:]
        results += session.run(list(made.variables.values()))
    dump = workbench.read_dump(workbench.last_reference_run())
    origin = find_nan_origin(dump, dump.graph)
    if all(np.isfinite(result).all() for result in results):  # a comparison or a branch not taken has swallowed it
        assert origin is None
        return
    assert (origin.op, origin.cause) == (op.name, "operator")
    assert origin.index == element
