"""little_demo: a two-task click model over two embedding tables, the model under test of the demo.

    user_ids [B, n], item_ids [B, m] -> tables (dim 32 and 8) -> sum over the ids -> h0 [B, 40]
    h(k+1) = relu(h(k)) W + b for 1024, 512, 256, 128 -> two heads, logit_t = relu(h4) w_t + b_t

The activation stands on the *input* of each layer. Loss t is the mean sigmoid cross entropy with ``label_t``; only task
0 is trained, as in the published model. Dense part: Adam; tables: LazyAdam; both 0.01.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from engine.initial_values import uniform
from engine.lookup import sparse_lookup
from engine.optimizers.lazy_adam import LazyAdam
from engine.table import EmbeddingTable, TableConfig, create_table

USER_DIM = 32
ITEM_DIM = 8
WEIGHT_SEED = 128
WEIGHT_RANGE = 0.01
TASKS = 2

Initial = Callable[..., "tf.Tensor"]
"""Makes the initial value of a variable from its shape."""


@dataclass(frozen=True)
class LittleDemoOptions:
    """Sizes and arithmetic of the model.

    Attributes:
        batch_size: Samples B of a step.
        user_ids: Ids per sample that go to ``user_table``.
        item_ids: Ids per sample that go to ``item_table``.
        user_rows: Rows of ``user_table``; the keys of all steps together must fit.
        item_rows: Rows of ``item_table``.
        hidden: Widths of the layers.
        learning_rate: Of both optimizers.
        seed: Offsets the seeds of all initial values.
        loss_scale: The loss is multiplied by it before the gradients are taken, and each gradient by its reciprocal
            after. Gradients of this model reach 1e-9, below what float16 can hold (6e-8), so a device that computes
            products in float16 needs it. It must be a power of two: multiplying by one only changes the exponent, so
            in float32 the result is the same bit for bit as without.
        use_resource: False makes reference variables, as old graphs have.

    Raises:
        ValueError: An option is out of its range; the message names it.
    """

    batch_size: int = 512
    user_ids: int = 8
    item_ids: int = 16
    user_rows: int = 16384
    item_rows: int = 16384
    hidden: Sequence[int] = (1024, 512, 256, 128)
    learning_rate: float = 0.01
    seed: int = 0
    loss_scale: float = 1.0
    use_resource: bool = True

    def __post_init__(self) -> None:
        for name in ("batch_size", "user_ids", "item_ids", "user_rows", "item_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden must be widths of at least 1, got {self.hidden!r}")
        if self.loss_scale <= 0 or math.frexp(self.loss_scale)[0] != 0.5:
            raise ValueError(f"loss_scale must be a power of two, got {self.loss_scale!r}")


@dataclass(frozen=True)
class LittleDemo:
    """The built model: what to feed, what to run, what to look at.

    Attributes:
        user_ids, item_ids: int64 placeholders [B, n], [B, m].
        labels: float32 placeholders [B], one a task (``label_0``, ``label_1``).
        losses: float32 scalars, one a task; the first is trained. Not scaled.
        logits: float32 [B], one a task.
        train_op: One training step.
        init_op: Sets every variable to its initial value.
        tables: ``user_table`` and ``item_table``.
    """

    graph: tf.Graph
    options: LittleDemoOptions
    user_ids: tf.Tensor
    item_ids: tf.Tensor
    labels: tuple[tf.Tensor, ...]
    losses: tuple[tf.Tensor, ...]
    logits: tuple[tf.Tensor, ...]
    train_op: tf.Operation
    init_op: tf.Operation
    tables: tuple[EmbeddingTable, EmbeddingTable]


def build_little_demo(graph: tf.Graph, options: LittleDemoOptions | None = None) -> LittleDemo:
    """Builds the model and its training step in a graph.

    Args:
        graph: A ``tf.Graph`` that has no tables yet; tables, maps and variables belong to it alone.
        options: Sizes and arithmetic.
    """
    options = options or LittleDemoOptions()
    with graph.as_default():
        user_ids = _placeholder("user_ids", tf.int64, options.batch_size, options.user_ids)
        item_ids = _placeholder("item_ids", tf.int64, options.batch_size, options.item_ids)
        labels = tuple(_placeholder(f"label_{task}", tf.float32, options.batch_size) for task in range(TASKS))
        tables = _create_tables(options)
        pooled = [_pooled(table, ids) for table, ids in zip(tables, (user_ids, item_ids), strict=True)]
        logits = _network(tf.concat(pooled, axis=1, name="h0"), options)
        losses = tuple(_loss(task, logits[task], labels[task]) for task in range(TASKS))
        train_op = _train_step(losses[0], tables, options)
        init_op = tf.compat.v1.global_variables_initializer()
    return LittleDemo(graph, options, user_ids, item_ids, labels, losses, logits, train_op, init_op, tables)


def _placeholder(name: str, dtype: tf.DType, *shape: int) -> tf.Tensor:
    return tf.compat.v1.placeholder(dtype, shape, name=name)


def _create_tables(options: LittleDemoOptions) -> tuple[EmbeddingTable, EmbeddingTable]:
    user = TableConfig("user_table", USER_DIM, options.user_rows)
    item = TableConfig("item_table", ITEM_DIM, options.item_rows)
    return (
        create_table(user, seed=options.seed, use_resource=options.use_resource),
        create_table(item, seed=options.seed, use_resource=options.use_resource),
    )


def _pooled(table: EmbeddingTable, ids: tf.Tensor) -> tf.Tensor:
    """Returns the sum of a sample's embeddings, [B, D]."""
    embedding = sparse_lookup(table, ids, name=f"{table.table_name}_lookup")
    return tf.reduce_sum(embedding, axis=1, name=f"{table.table_name}_pooled")


def _network(h0: tf.Tensor, options: LittleDemoOptions) -> tuple[tf.Tensor, ...]:
    """Returns the logits of all tasks, [B] each."""
    layer = h0
    with tf.compat.v1.variable_scope("mlp"), tf.compat.v1.variable_scope("mlp"):
        for number, width in enumerate(options.hidden, start=1):
            layer = _dense(layer, f"h{number}", f"h{number}_w", f"h{number}_b", width, options)
        heads = [_dense(layer, f"head_{t}", f"h_w_head_{t}", f"h_b_head_{t}", 1, options) for t in range(TASKS)]
    return tuple(tf.reshape(head, [-1], name=f"logit_{task}") for task, head in enumerate(heads))


def _dense(inputs: tf.Tensor, scope: str, weight: str, bias: str, width: int, options: LittleDemoOptions) -> tf.Tensor:
    """Returns relu(inputs) W + b."""
    w = _variable(weight, [int(inputs.shape[-1]), width], _uniform(weight, options.seed), options)
    b = _variable(bias, [width], tf.compat.v1.zeros_initializer(), options)
    with tf.compat.v1.name_scope(scope):
        return tf.nn.bias_add(tf.matmul(tf.nn.relu(inputs, name="relu"), w, name="matmul"), b, name="bias_add")


def _variable(name: str, shape: list[int], initializer: Initial, options: LittleDemoOptions) -> tf.Variable:
    return tf.compat.v1.get_variable(
        name, shape=shape, dtype=tf.float32, initializer=initializer, use_resource=options.use_resource
    )


def _uniform(name: str, seed: int) -> Initial:
    """Returns an initializer, uniform in +-0.01.

    The published model gives each of these ops the seed 128, so its layers start with the same stream. Here the stream
    depends on the name as well, and it is a stateless one: the value is the same however a device runs the op.
    """

    def initial_value(shape: tf.TensorShape, dtype: tf.DType = None, partition_info: object = None) -> tf.Tensor:
        return uniform(shape, seed=WEIGHT_SEED + seed, name=name, low=-WEIGHT_RANGE, high=WEIGHT_RANGE)

    return initial_value


def _loss(task: int, logit: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
    with tf.compat.v1.name_scope(f"loss_{task}"):
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logit, name="cross_entropy")
        return tf.reduce_mean(entropy, name="mean")


def _train_step(loss: tf.Tensor, tables: Sequence[EmbeddingTable], options: LittleDemoOptions) -> tf.Operation:
    """Returns the op that applies one step of both optimizers."""
    dense = tf.compat.v1.trainable_variables()
    sparse = [table.variable for table in tables]
    gradients = _gradients(loss, [*dense, *sparse], options.loss_scale)
    adam = tf.compat.v1.train.AdamOptimizer(options.learning_rate)
    lazy = LazyAdam(options.learning_rate)
    # The head of the task that is not trained has no gradient; the optimizer leaves it alone.
    dense_step = adam.apply_gradients(list(zip(gradients, dense, strict=False)))
    sparse_step = lazy.apply_gradients(list(zip(gradients[len(dense) :], sparse, strict=True)))
    return tf.group(dense_step, sparse_step, name="train")


def _gradients(
    loss: tf.Tensor, variables: list[tf.Variable], scale: float
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    """Returns the gradients of the loss, computed from the scaled loss and scaled back."""
    if scale != 1.0:
        with tf.compat.v1.name_scope("loss_scale"):
            loss = tf.multiply(loss, tf.constant(scale, tf.float32, name="scale"), name="scaled_loss")
            factor = tf.constant(1.0 / scale, tf.float32, name="reciprocal")
    # Reference variables are updated in place; gating keeps an update from running before every gradient of the
    # product that reads the variable is computed.
    gradients: list[tf.Tensor | tf.IndexedSlices | None] = tf.gradients(loss, variables, gate_gradients=True)
    if scale == 1.0:
        return gradients
    with tf.compat.v1.name_scope("unscale"):
        return [_times(gradient, factor) for gradient in gradients]


def _times(gradient: tf.Tensor | tf.IndexedSlices | None, factor: tf.Tensor) -> tf.Tensor | tf.IndexedSlices | None:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
