"""The model of ``bench dump``: a deep and cross network over embedding tables, in graph mode, trained by Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Shape:
    """How large the model is.

    Attributes:
        features: Sparse features, a table each.
        dim: Numbers of a row.
        rows: Rows of a table.
        units: Width of each dense layer.
        layers: Dense layers.
        crosses: Cross layers.
        batch: Samples of a step.
    """

    features: int = 26
    dim: int = 16
    rows: int = 10_000
    units: int = 256
    layers: int = 3
    crosses: int = 3
    batch: int = 1024


@dataclass(frozen=True)
class Model:
    """A graph and what to run in it.

    Attributes:
        graph: The graph.
        init: Initialises its variables.
        step: Fetches of a training step, the loss first.
        feeds: One batch.
    """

    graph: tf.Graph
    init: Any
    step: tuple[Any, ...]
    feeds: dict[Any, Any]


def build(shape: Shape, seed: int) -> Model:
    """Builds it.

    Args:
        shape: How large.
        seed: Of the initial values and the batch.
    """
    import tensorflow as tf

    tf1 = tf.compat.v1
    random = np.random.default_rng(seed)
    graph = tf.Graph()
    with graph.as_default():

        def weight(name: str, *sizes: int) -> Any:  # noqa: ANN401 - a variable of TensorFlow
            start = random.normal(0, 0.05, sizes).astype(np.float32)
            return tf1.get_variable(name, initializer=start, use_resource=True)

        ids = tf1.placeholder(tf.int64, [None, shape.features], name="ids")
        label = tf1.placeholder(tf.float32, [None], name="label")
        tables = [weight(f"table_{n}", shape.rows, shape.dim) for n in range(shape.features)]
        looked_up = [tf.gather(table, ids[:, n], name=f"lookup_{n}") for n, table in enumerate(tables)]
        x0 = tf.concat(looked_up, 1, name="x0")
        width = shape.features * shape.dim
        x = x0
        for n in range(shape.crosses):
            x = x0 * tf.matmul(x, weight(f"cross_{n}", width, 1)) + weight(f"cross_bias_{n}", width) + x
        deep, inputs = x0, width
        for n in range(shape.layers):
            deep = tf.nn.relu(
                tf.matmul(deep, weight(f"dense_{n}", inputs, shape.units)) + weight(f"bias_{n}", shape.units)
            )
            inputs = shape.units
        joined = tf.concat([x, deep], 1)
        logit = tf.squeeze(tf.matmul(joined, weight("out", width + inputs, 1)), 1)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logit), name="loss")
        train = tf1.train.AdamOptimizer(1e-3).minimize(loss)
        init = tf1.global_variables_initializer()
    feeds = {
        ids: random.integers(0, shape.rows, (shape.batch, shape.features)),
        label: random.integers(0, 2, shape.batch).astype(np.float32),
    }
    return Model(graph, init, (loss, train), feeds)


def config() -> tf.compat.v1.ConfigProto:
    """Returns the session configuration that the how-to asks for: no rewriting of the graph."""
    import tensorflow as tf

    found = tf.compat.v1.ConfigProto()
    found.graph_options.rewrite_options.disable_meta_optimizer = True
    return found
