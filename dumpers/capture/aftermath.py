"""What a failed step had computed: TensorFlow returns nothing then, but the cause lies just before the failing op."""

from __future__ import annotations

from typing import TYPE_CHECKING, FrozenSet, List, Sequence, Set

from .plan import impure_ops, in_order
from .steps import executed, written_variables

if TYPE_CHECKING:
    import tensorflow as tf


def repeatable_before(
    graph: tf.Graph, roots: Sequence[tf.Operation], fed: FrozenSet[str], failing: tf.Operation
) -> Set[str]:
    """Returns the ops before the failing one that give the same values when they run once more.

    Left out is what draws from a generator, an iterator or other state, and what reads a variable that the step may
    have updated before it failed. Updates behind the failing op cannot have run.

    Args:
        graph: The session's graph.
        roots: Ops that the fetches of the failed run name.
        fed: Names of its fed tensors.
        failing: The op that raised.
    """
    order = in_order(graph, executed(roots, fed), fed)
    behind = _behind(order, failing)
    changed = {variable.name for op in order if op not in behind for variable in written_variables(op)}
    doubtful = impure_ops(order, fed) | changed
    wanted = executed([failing], fed)
    found: Set[str] = set()
    for op in order:
        needed = [t.op for t in op.inputs if t.name not in fed] + list(op.control_inputs)
        if op.name in doubtful or any(producer.name in doubtful for producer in needed):
            doubtful.add(op.name)
        elif op in wanted and op is not failing:
            found.add(op.name)
    return found


def _behind(order: List[tf.Operation], start: tf.Operation) -> Set[tf.Operation]:
    """The op and all that need it."""
    found = {start}
    for op in order:
        if any(t.op in found for t in op.inputs) or any(producer in found for producer in op.control_inputs):
            found.add(op)
    return found
