"""LazyAdam: Adam for embedding tables that touches only the rows of the batch.

    lr_t = lr * sqrt(1 - beta2^t) / (1 - beta1^t)
    m = beta1*m + (1-beta1)*g;  v = beta2*v + (1-beta2)*g^2;  w -= lr_t * m / (sqrt(|v|) + epsilon)

t counts the applications of the optimizer, not of a row. Rows that are not in the batch keep value, m and v bit for
bit; a row whose gradients cancel to zero is in the batch: it moves and its moments decay.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from engine.errors import EngineError
from engine.lookup import UNIQUE_ROWS_ATTR

SLOTS = ("momentum", "velocity")
"""Names of the slot variables, m and v of the formulas."""

_NAMES_COLLECTION = "engine_optimizer_names"


class DenseGradientError(EngineError, NotImplementedError):
    """A lazy optimizer was given a dense gradient."""


@dataclass(frozen=True)
class _Factors:
    """The scalars of one application as tensors: float32, but for the rate made in float64."""

    rate: tf.Tensor
    beta1: tf.Tensor
    rest1: tf.Tensor
    beta2: tf.Tensor
    rest2: tf.Tensor
    epsilon: tf.Tensor


class LazyAdam(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Adam on the rows of a batch, for ``tf.IndexedSlices`` gradients of engine tables or any other variable.

    Repeated indices are summed before the update. Where they come straight from one lookup of the engine they are known
    to be distinct, and the graph is spared a second merge.

    The powers of beta are float64 scalars: float32 ones (a power near 1, subtracted from 1) put the rate off by 1.3e-5
    in the first steps, more than everything else in the update together.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        name: str = "LazyAdam",
    ) -> None:
        """Checks the arguments.

        Args:
            learning_rate: 0 to 10.
            beta1: Decay of m, strictly between 0 and 1.
            beta2: Decay of v, 0 to 1.
            epsilon: Above 0, at most 1.
            name: 1 to 200 characters; slots are named ``<table>/<name>_<k>/<slot>``, k counted per graph.

        Raises:
            ValueError: One is out of its range; the message names it.
        """
        _check_range("learning_rate", learning_rate, 0.0 <= learning_rate <= 10.0, "[0, 10]")
        _check_range("beta1", beta1, 0.0 < beta1 < 1.0, "(0, 1)")
        _check_range("beta2", beta2, 0.0 <= beta2 <= 1.0, "[0, 1]")
        _check_range("epsilon", epsilon, 0.0 < epsilon <= 1.0, "(0, 1]")
        if not 1 <= len(name) <= 200:
            raise ValueError(f"name must have 1 to 200 characters, has {len(name)}")
        super().__init__(use_locking=False, name=_numbered(name))
        self._learning_rate = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon
        self._factors: _Factors | None = None

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        first = min(var_list, key=lambda variable: variable.name)
        for power, start in (("beta1_power", self._beta1), ("beta2_power", self._beta2)):
            self._create_non_slot_variable(
                initial_value=tf.constant(start, tf.float64), name=f"{self._name}/{power}", colocate_with=first
            )
        for variable in var_list:
            for slot in SLOTS:
                slots = self._slot_dict(slot)
                key = (variable.op.graph, variable.op.name)
                if key not in slots:
                    slots[key] = self._new_slot(variable, slot)

    def _new_slot(self, variable: tf.Variable, slot: str) -> tf.Variable:
        return tf.compat.v1.get_variable(
            f"{_slot_scope(variable)}/{self._name}/{slot}",
            shape=variable.shape,
            dtype=variable.dtype.base_dtype,
            initializer=tf.compat.v1.zeros_initializer(),
            trainable=False,
            use_resource=_is_resource(variable),
        )

    def _powers(self) -> tuple[tf.Variable, tf.Variable]:
        graph = tf.compat.v1.get_default_graph()
        first, second = (
            self._get_non_slot_variable(f"{self._name}/{power}", graph=graph)
            for power in ("beta1_power", "beta2_power")
        )
        return first, second

    def _prepare(self) -> None:
        power1, power2 = self._powers()
        one = tf.constant(1.0, tf.float64, name="one")
        correction = tf.sqrt(one - power2) / (one - power1)
        self._factors = _Factors(
            rate=tf.cast(tf.constant(self._learning_rate, tf.float64, name="learning_rate") * correction, tf.float32),
            beta1=tf.constant(self._beta1, tf.float32, name="beta1"),
            rest1=tf.constant(1.0 - self._beta1, tf.float32, name="one_minus_beta1"),
            beta2=tf.constant(self._beta2, tf.float32, name="beta2"),
            rest2=tf.constant(1.0 - self._beta2, tf.float32, name="one_minus_beta2"),
            epsilon=tf.constant(self._epsilon, tf.float32, name="epsilon"),
        )

    def _apply_sparse_duplicate_indices(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._apply_rows(var, *_distinct(grad.values, grad.indices))

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        return self._apply_rows(handle, *_distinct(grad, indices))

    def _apply_rows(self, variable: tf.Variable, gradient: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
        """Adds the update of the given rows, which are distinct.

        Args:
            variable: float32 [N, D].
            gradient: float32 [U, D].
            rows: int [U].
        """
        if self._factors is None:
            raise EngineError("LazyAdam was asked to update rows outside apply_gradients; call apply_gradients")
        factors = self._factors
        momentum, velocity = (self.get_slot(variable, slot) for slot in SLOTS)
        new_m = _gather(momentum, rows, "momentum_rows") * factors.beta1 + gradient * factors.rest1
        new_v = _gather(velocity, rows, "velocity_rows") * factors.beta2 + tf.square(gradient) * factors.rest2
        change = factors.rate * new_m / (tf.sqrt(tf.abs(new_v)) + factors.epsilon)
        return tf.group(
            _scatter_update(momentum, rows, new_m, "update_momentum"),
            _scatter_update(velocity, rows, new_v, "update_velocity"),
            _scatter_sub(variable, rows, change, "update_rows"),
        )

    def _finish(self, update_ops: list[tf.Operation], name_scope: str) -> tf.Operation:
        betas = [tf.constant(beta, tf.float64, name="power_step") for beta in (self._beta1, self._beta2)]
        with tf.control_dependencies(update_ops):
            advance = [
                power.assign(power * beta, use_locking=False, read_value=False)
                for power, beta in zip(self._powers(), betas, strict=True)
            ]
        return tf.group(*update_ops, *advance, name=name_scope)

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        raise self._dense_error(var)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> tf.Operation:
        raise self._dense_error(handle)

    def _dense_error(self, variable: tf.Variable) -> DenseGradientError:
        return DenseGradientError(
            f"LazyAdam updates rows, but the gradient of {variable.name!r} is dense ({self._name});"
            " use a dense optimizer for that variable"
        )


def _check_range(name: str, value: object, fits: bool, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, float) or not fits:
        raise ValueError(f"{name} must be a float in {allowed}, got {value!r}")


def _numbered(name: str) -> str:
    """Returns ``<name>_<k>``, k counting the optimizers of that name in the current graph."""
    names: list[str] = tf.compat.v1.get_collection_ref(_NAMES_COLLECTION)
    names.append(name)
    return f"{name}_{names.count(name) - 1}"


def _slot_scope(variable: tf.Variable) -> str:
    """Returns where slots of a variable stand: for a table's ``<table>/<table>`` that is ``<table>``, else its name."""
    scope, _, last = str(variable.op.name).rpartition("/")
    return scope if scope.rpartition("/")[2] == last else str(variable.op.name)


def _is_resource(variable: tf.Variable) -> bool:
    return bool(variable.dtype == variable.dtype.base_dtype)


def _distinct(values: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns values and rows with no row twice: repeats are summed, unless they are known to be distinct."""
    if _known_distinct(indices):
        return values, indices
    rows, places = tf.unique(indices)
    return tf.math.unsorted_segment_sum(values, places, tf.shape(rows)[0]), rows


def _known_distinct(indices: tf.Tensor) -> bool:
    """Whether the indices are, but for a change of shape, the rows that one lookup of the engine put out."""
    tensor = indices
    while tensor.op.type in ("Reshape", "Identity"):
        tensor = tensor.op.inputs[0]
    if tensor.value_index != 1:
        return False
    return UNIQUE_ROWS_ATTR in tensor.op.node_def.attr


def _gather(variable: tf.Variable, rows: tf.Tensor, name: str) -> tf.Tensor:
    if _is_resource(variable):
        return tf.raw_ops.ResourceGather(resource=variable.handle, indices=rows, dtype=variable.dtype, name=name)
    return tf.gather(variable, rows, name=name)


def _scatter_update(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor, name: str) -> tf.Operation:
    if _is_resource(variable):
        return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=rows, updates=values, name=name)
    return tf.compat.v1.scatter_update(variable, rows, values, use_locking=False, name=name)


def _scatter_sub(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor, name: str) -> tf.Operation:
    if _is_resource(variable):
        return tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=rows, updates=values, name=name)
    return tf.compat.v1.scatter_sub(variable, rows, values, use_locking=False, name=name)
