"""The reference models in plain TensorFlow, small: six sparse features, rows of eight numbers, batches of 32.

Networks, losses and optimizers are those of the full models (lazy Adam, gradient descent with weight decay, scaled
losses, a rate that warms up); every initial value comes from a fixed seed. Python 3.7, TensorFlow 1.15.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

BATCH, FIELDS, DIM, ROWS, DENSE, SEED = 32, 6, 8, 60, 4, 128
ODD = np.array([0x7FC12345, 0xFFC00001, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001], np.uint32).view(np.float32)
"""NaNs that carry bits, infinities, the negative zero and the smallest number."""


class Parts:
    """Makes variables, layers and training ops of one graph.

    Args:
        use_resource: Whether variables are resources, else references.
        seed: Of the random ops.
    """

    def __init__(self, use_resource: bool, seed: int = SEED) -> None:
        self.use_resource = use_resource
        self.seed = seed
        self.dense_variables: list[Any] = []
        self.placeholders: list[Any] = []
        self._random = np.random.RandomState(SEED)

    def feed(self, name: str, dtype: Any, *shape: int) -> Any:
        """A placeholder, its values made by :func:`batches`."""
        self.placeholders.append(tf1.placeholder(dtype, shape, name=name))
        return self.placeholders[-1]

    def state(self, name: str, value: Any, trainable: bool = False) -> Any:
        """A variable."""
        start = np.asarray(value, np.float32)
        return tf1.get_variable(name, initializer=start, use_resource=self.use_resource, trainable=trainable)

    def weight(self, name: str, *shape: int) -> Any:
        """A trainable dense variable."""
        made = self.state(name, self._random.uniform(-0.3, 0.3, shape), trainable=True)
        self.dense_variables.append(made)
        return made

    def table(self, name: str, dim: int = DIM) -> Any:
        """An embedding table, trained by an optimizer of its own."""
        return self.state(name, self._random.normal(0, 0.2, (ROWS, dim)), trainable=True)

    def layer(self, x: Any, name: str, width: int, activation: Any = None) -> Any:
        """``x W + b``."""
        found = tf.matmul(x, self.weight(name + "_w", int(x.shape[-1]), width)) + self.weight(name + "_b", width)
        return found if activation is None else activation(found, name=name + "_out")

    def layers(self, x: Any, name: str, *widths: int) -> Any:
        """Layers with a relu each."""
        for number, width in enumerate(widths, start=1):
            x = self.layer(x, name + str(number), width, tf.nn.relu)
        return x

    def lazy_adam(self, table: Any, gradient: Any, rate: Any) -> Any:
        """Adam for the rows that the step looked up: Adam's formulas on those rows of the slots alone."""
        name = table.op.name
        m, v = self.state(name + "_m", np.zeros(table.shape)), self.state(name + "_v", np.zeros(table.shape))
        powers = [self.state(name + "_power1", 0.9), self.state(name + "_power2", 0.999)]
        rows, summed = unique_rows(gradient)
        new_m = 0.9 * tf.gather(m, rows) + 0.1 * summed
        new_v = 0.999 * tf.gather(v, rows) + 0.001 * tf.square(summed)
        corrected = rate * tf.sqrt(1.0 - powers[1]) / (1.0 - powers[0])
        change = corrected * new_m / (tf.sqrt(new_v) + 1e-8)
        updates = [tf1.scatter_update(m, rows, new_m), tf1.scatter_update(v, rows, new_v)]
        updates.append(tf1.scatter_sub(table, rows, change))
        with tf.control_dependencies(updates):
            return tf.group(tf1.assign(powers[0], powers[0] * 0.9), tf1.assign(powers[1], powers[1] * 0.999))

    def decayed_descent(self, table: Any, gradient: Any, rate: Any) -> Any:
        """``row -= rate (g + 1e-4 row)``."""
        rows, summed = unique_rows(gradient)
        return tf1.scatter_sub(table, rows, rate * (summed + 1e-4 * tf.gather(table, rows)))

    def train(self, loss: Any, optimizer: Any, sparse: Any, tables: Any, scale: float = 1.0) -> Any:
        """Gradients of the scaled loss, given to the dense and to the sparse optimizer (a function of table, gradient).

        No variable changes before all gradients and the loss are there: a reference variable that does while others
        read it gives another result each time.
        """
        gradients = tf1.gradients(loss * scale, [*self.dense_variables, *tables], gate_gradients=True)
        gradients = tf1.tuple(gradients, control_inputs=[loss.op])
        count = len(self.dense_variables)
        # A layer that only another task uses has no gradient.
        pairs = [(g, v) for g, v in zip(gradients, self.dense_variables) if g is not None]  # noqa: B905
        updates = [optimizer.apply_gradients(pairs)]
        updates += [sparse(table, gradient) for table, gradient in zip(tables, gradients[count:])]  # noqa: B905
        return tf.group(*updates, name="train")

    def warmed_up(self) -> tuple[Any, Any]:
        """The factor of the learning rates, which rises over four steps, stays and falls, and its counter."""
        counter = self.state("counter", 2)
        falling = tf.square((40.0 - counter) / 20.0)
        held = tf.where(counter < 20.0, tf.ones([]), tf.maximum(falling, 0.05))
        return tf.where(counter < 4.0, counter / 4.0, held, name="factor"), counter


def unique_rows(gradient: Any) -> tuple[Any, Any]:
    """Rows of a sparse gradient, each once, and their sums."""
    rows, place = tf.unique(gradient.indices)
    return rows, tf.math.unsorted_segment_sum(gradient.values, place, tf.size(rows))


def cross_entropy(label: Any, logit: Any) -> Any:
    """Mean binary cross-entropy."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logit))


def log_loss(label: Any, chance: Any, epsilon: float) -> Any:
    """Mean log loss."""
    return -tf.reduce_mean(label * tf1.log(chance + epsilon) + (1.0 - label) * tf1.log(1.0 - chance + epsilon))


def little_demo(parts: Parts) -> tuple[Any, Any]:
    """Two tables, sums of looked-up rows, an MLP, two heads, of which only the first is trained."""
    items, users = parts.feed("item_ids", tf.int64, BATCH, 4), parts.feed("user_ids", tf.int64, BATCH, 2)
    labels = [parts.feed(f"label_{task}", tf.float32, BATCH) for task in (0, 1)]
    tables = [parts.table("user_table", 2 * DIM), parts.table("item_table")]
    h = tf.concat([tf.reduce_sum(tf.gather(t, i), axis=1) for t, i in zip(tables, (users, items))], 1)  # noqa: B905
    for number, width in enumerate((16, 12, 8, 8), start=1):
        h = parts.layer(tf.nn.relu(h), f"h{number}", width)
    losses = []
    for task, label in enumerate(labels):
        logit = tf.reshape(parts.layer(tf.nn.relu(h), f"head_{task}", 1), [-1])
        tf.sigmoid(logit, name=f"prediction_{task}")
        losses.append(cross_entropy(label, logit))
    adam = tf1.train.AdamOptimizer(0.01)
    return losses, parts.train(losses[0], adam, lambda t, g: parts.lazy_adam(t, g, 0.01), tables)


def criteo_inputs(parts: Parts) -> tuple[Any, Any, Any]:
    """Dense numbers through the bottom MLP, looked-up rows, and the table."""
    x = tf1.log(parts.feed("dense_feature", tf.float32, BATCH, DENSE) + 3.0)
    table = parts.table("sparse_embeddings")
    rows = tf.gather(table, parts.feed("sparse_feature", tf.int64, BATCH, FIELDS), name="user_embedding_lookup")
    return parts.layers(x, "bs", 16, DIM), rows, table


def counted(train: Any, counter: Any) -> Any:
    """The training op with the step counter, which goes up when nobody reads it any more."""
    with tf.control_dependencies([train]):
        return tf.group(tf1.assign_add(counter, 1.0), name="train_and_count")


def dcnv2(parts: Parts) -> tuple[Any, Any]:
    """Three cross layers of low rank with shared weights, Adam and lazy Adam, loss times 65536."""
    scale = 65536.0
    d, rows, table = criteo_inputs(parts)
    width = (FIELDS + 1) * DIM
    x0 = x = tf.reshape(tf.concat([tf.expand_dims(d, 1), rows], 1), [BATCH, width])
    u = parts.weight("dense_u_w", width, 6), parts.weight("dense_u_b", 6)
    v = parts.weight("dense_v_w", 6, width), parts.weight("dense_v_b", width)
    for _ in range(3):
        low = tf.nn.relu(tf.matmul(x, u[0]) + u[1])
        x = x0 * (tf.matmul(low, v[0]) + v[1]) + x
    logit = parts.layer(parts.layers(tf.concat([d, x], 1), "ts", 16, 12, 8), "ts4", 1)
    loss = cross_entropy(parts.feed("label", tf.float32, BATCH, 1), logit)
    factor, counter = parts.warmed_up()
    adam = tf1.train.AdamOptimizer(28.443 * factor / scale)
    rate = tf.clip_by_value(33.71193 * factor, 0.0, 10.0) / scale
    train = parts.train(loss, adam, lambda t, g: parts.lazy_adam(t, g, rate), [table], scale)
    return [loss, tf.sigmoid(logit)], counted(train, counter)


def dlrm(parts: Parts) -> tuple[Any, Any]:
    """Products of all pairs of fields, gradient descent, weight decay of the table, loss times 1024."""
    scale = 1024.0
    d, rows, table = criteo_inputs(parts)
    z = tf.concat([tf.expand_dims(d, 1), rows], 1)
    below = tf.linalg.band_part(tf.matmul(z, z, transpose_b=True), -1, 0)
    products = tf.linalg.set_diag(below, tf.zeros([BATCH, FIELDS + 1]))
    t = tf.concat([d, tf.reshape(products, [BATCH, (FIELDS + 1) ** 2])], 1)
    logit = parts.layer(parts.layers(t, "ts", 16, 12, 8), "ts4", 1)
    loss = cross_entropy(parts.feed("label", tf.float32, BATCH, 1), logit)
    factor, counter = parts.warmed_up()
    descent = tf1.train.GradientDescentOptimizer(0.3 * factor / scale)
    train = parts.train(loss, descent, lambda t, g: parts.decayed_descent(t, g, 0.3 * factor / scale), [table], scale)
    return [loss, tf.sigmoid(logit)], counted(train, counter)


def wide_deep(parts: Parts) -> tuple[Any, Any]:
    """A wide table whose first components are summed, a deep one under an MLP with dropout."""
    ids = parts.feed("ids", tf.int64, BATCH, FIELDS)
    tables = [parts.table("wide_embeddings"), parts.table("deep_embeddings")]
    wide, deep = (tf.gather(table, ids) for table in tables)
    x = tf.reshape(deep, [BATCH, FIELDS * DIM])
    for number, width in enumerate((24, 16, 8), start=1):
        x = tf1.nn.dropout(parts.layers(x, f"deep{number}_", width), rate=0.5, seed=parts.seed + number)
    logit = 0.5 * (tf.reduce_sum(wide[:, :, 0], axis=1, keepdims=True) + parts.layer(x, "out", 1))
    loss = cross_entropy(parts.feed("label", tf.float32, BATCH, 1), logit)
    adam = tf1.train.AdamOptimizer(0.001)
    train = parts.train(loss, adam, lambda t, g: parts.lazy_adam(t, g, 0.001), tables)
    return [loss, tf.sigmoid(logit)], train


def mmoe(parts: Parts) -> tuple[Any, Any]:
    """Four experts, a gate and a tower for each of two tasks; the looked-up rows stand in for a wide linear layer."""
    experts, width, tasks = 4, 6, 2
    x = parts.feed("dense_feature", tf.float32, BATCH, DENSE)
    table = parts.table("sparse_embeddings", experts * width + tasks * experts)
    s = tf.reduce_sum(tf.gather(table, parts.feed("sparse_feature", tf.int64, BATCH, FIELDS)), axis=1)
    label = parts.feed("label", tf.float32, BATCH, tasks)
    outs = []
    for number in range(experts):
        part = s[:, number * width : (number + 1) * width]
        outs.append(tf.nn.relu(parts.layer(x, f"expert_layer_{number}", width) + part))
    stacked, chances = tf.stack(outs, 1), []
    for task in range(tasks):
        first = experts * (width + task)
        gate = tf.nn.softmax(parts.layer(x, f"gate_layer_{task}", experts) + s[:, first : first + experts])
        mix = tf.reduce_sum(tf.expand_dims(gate, 2) * stacked, axis=1)
        tower = parts.layers(mix, f"tower_layer_{task}_", 8)
        p = tf.nn.softmax(parts.layer(tower, f"tower_layer_out_{task}", 2))
        chances.append(tf.clip_by_value(p, 1e-15, 1.0 - 1e-15)[:, 1])
    loss = 0.5 * tf.add_n([log_loss(label[:, task], chance, 1e-4) for task, chance in enumerate(chances)])
    adam = tf1.train.AdamOptimizer(0.001)
    return [loss, *chances], parts.train(loss, adam, lambda t, g: parts.lazy_adam(t, g, 0.001), [table])


def xdeepfm(parts: Parts) -> tuple[Any, Any]:
    """A linear part of a sparse matrix, compressed interactions, an MLP; sums of squares of all weights in the loss."""
    ids = parts.feed("ids", tf.int64, BATCH, FIELDS)
    values = parts.feed("values", tf.float32, BATCH, FIELDS)
    place = tf.constant([[row, field] for row in range(BATCH) for field in range(FIELDS)], tf.int64)
    weights = tf.sparse.to_dense(tf.SparseTensor(place, tf.reshape(values, [-1]), [BATCH, FIELDS]))
    table = parts.table("sparse_embeddings_table")
    x0 = tf.gather(table, ids) * tf.expand_dims(weights, 2)
    columns = tf.stack([place[:, 0], tf.reshape(ids, [-1])], 1)
    matrix = tf.sparse.reorder(tf.SparseTensor(columns, tf.reshape(values, [-1]), [BATCH, ROWS]))
    linear = tf.sparse.sparse_dense_matmul(matrix, parts.weight("linear_w", ROWS, 1)) + parts.weight("linear_b", 1)
    hidden, kept = x0, []
    for number, maps in enumerate((10, 10, 5)):
        pairs = tf.einsum("bfd,bhd->bdfh", x0, hidden)
        flat = tf.reshape(pairs, [BATCH, DIM, FIELDS * int(hidden.shape[1])])
        kernel = parts.weight(f"f_{number}", 1, int(flat.shape[-1]), maps)
        made = tf.transpose(tf1.nn.conv1d(flat, kernel, stride=1, padding="VALID"), [0, 2, 1])
        hidden, out = (made, made) if number == 2 else tf.split(made, 2, axis=1)
        kept.append(out)
    cross = parts.layer(tf.reduce_sum(tf.concat(kept, 1), axis=2), "cross_out", 1)
    deep = parts.layer(parts.layers(tf.reshape(x0, [BATCH, FIELDS * DIM]), "deep", 12, 12), "deep_out", 1)
    chance = tf.sigmoid(linear + cross + deep)
    data_loss = log_loss(parts.feed("label", tf.float32, BATCH, 1), chance, 1e-7)
    squares = [tf.nn.l2_loss(variable) for variable in parts.dense_variables] + [tf.nn.l2_loss(x0)]
    loss = data_loss + 1e-4 * tf.add_n(squares)
    adam = tf1.train.AdamOptimizer(1e-3)
    return [loss, data_loss, chance], parts.train(loss, adam, lambda t, g: parts.lazy_adam(t, g, 1e-3), [table])


MODELS = {
    "little_demo": little_demo,
    "DCNv2": dcnv2,
    "DLRM": dlrm,
    "WideDeep": wide_deep,
    "MMoE": mmoe,
    "xDeepFM": xdeepfm,
}


def batches(placeholders: Any, count: int, odd: int) -> list[dict[Any, Any]]:
    """Feeds of so many steps; that of number ``odd`` has NaNs, infinities and the like among its numbers."""
    random = np.random.RandomState(SEED)
    found: list[Any] = []
    for number in range(count):
        feeds = {}
        for tensor in placeholders:
            shape = tensor.shape.as_list()
            if tensor.dtype == tf.int64:
                value = random.zipf(1.3, shape) % ROWS
            elif "label" in tensor.name:
                value = random.randint(0, 2, shape)
            else:
                value = random.uniform(0, 3, shape)
            value = value.astype(tensor.dtype.as_numpy_dtype)
            if number == odd and tensor.dtype == tf.float32:
                value.ravel()[: len(ODD)] = ODD
            feeds[tensor] = value
        found.append(feeds)
    return found


def build(name: str, use_resource: bool, seed: int = SEED) -> SimpleNamespace:
    """A model by its name: ``graph``, ``fetches`` (training op first), ``init``, ``placeholders``, ``variables``."""
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(SEED)
        parts = Parts(use_resource, seed)
        results, train = MODELS[name](parts)
        variables = {variable.op.name: variable for variable in tf1.global_variables()}
        init = tf1.global_variables_initializer()
    return SimpleNamespace(
        graph=graph, fetches=[train, *results], init=init, placeholders=parts.placeholders, variables=variables
    )
