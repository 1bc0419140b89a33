"""A two-table click model and sessions on the emulated device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from precision_tool import device

v1 = tf.compat.v1
BATCH, ROWS = 32, 50


@functools.cache
def build_click_model(*, resource: bool = True, optimizer: str = "adam", seed: int = 7) -> SimpleNamespace:
    """Two tables, sums over the ids, two dense layers, one head."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(seed)
        ids = {name: v1.placeholder(tf.int64, [BATCH, 4], f"{name}_ids") for name in ("user", "item")}
        label = v1.placeholder(tf.float32, [BATCH], "label")
        hidden = tf.concat([_embedding(name, ids[name], resource) for name in ids], 1)
        for index, width in enumerate((16, 8, 1)):
            with v1.variable_scope(f"layer{index}", use_resource=resource):
                weights = v1.get_variable(
                    "w", [int(hidden.shape[1]), width], initializer=v1.random_uniform_initializer(-0.3, 0.3, seed=index)
                )
                bias = v1.get_variable("b", [width], initializer=v1.constant_initializer(0.05))
                hidden = tf.nn.bias_add(tf.matmul(hidden, weights, name="matmul"), bias, name="bias")
                if index == 0:
                    hidden = tf.nn.relu(hidden, name="relu")
                if index == 1:
                    hidden = v1.multiply(hidden, v1.constant(0.5), name="half")
                    hidden = tf.add(hidden, v1.constant(0.125), name="shift")
        logits = tf.reshape(hidden, [-1])
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits), name="loss")
        step = v1.train.get_or_create_global_step()
        train = _OPTIMIZERS[optimizer]().minimize(loss, global_step=step)
        init = v1.global_variables_initializer()
    variables = graph.get_collection("variables")
    return SimpleNamespace(
        graph=graph, feeds=(ids["user"], ids["item"], label), loss=loss, train=train, init=init, variables=variables
    )


def _embedding(name: str, ids: tf.Tensor, resource: bool) -> tf.Tensor:
    table = v1.get_variable(
        f"{name}_table", [ROWS, 8], initializer=v1.truncated_normal_initializer(), use_resource=resource
    )
    unique, restore = tf.unique(tf.reshape(ids, [-1]))
    if resource:
        rows = tf.raw_ops.ResourceGather(resource=table.handle, indices=unique, dtype=tf.float32, name=f"{name}_lookup")
    else:
        rows = tf.gather(table, unique, name=f"{name}_lookup")
    rows.op._set_attr("_embedding_table", v1.AttrValue(s=f"{name}_table".encode()))
    rows.op._set_attr("_embedding_keys", v1.AttrValue(s=unique.name.encode()))
    return tf.reduce_sum(tf.gather(rows, restore_shape(restore), name=f"{name}_restore"), 1, name=f"{name}_sum")


def restore_shape(restore: tf.Tensor) -> tf.Tensor:
    return tf.reshape(restore, [BATCH, 4])


_OPTIMIZERS = {
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1),
}


def npu_config(**options: str | int | bool) -> tf.compat.v1.ConfigProto:
    """A session configuration with an NpuOptimizer."""
    config = v1.ConfigProto()
    optimizer = config.graph_options.rewrite_options.custom_optimizers.add()
    optimizer.name = "NpuOptimizer"
    optimizer.parameter_map["use_off_line"].b = True
    for name, value in options.items():
        if isinstance(value, bool):
            optimizer.parameter_map[name].b = value
        elif isinstance(value, int):
            optimizer.parameter_map[name].i = value
        else:
            optimizer.parameter_map[name].s = value.encode()
    return config


def train_model(model: SimpleNamespace, config: tf.compat.v1.ConfigProto | None, steps: int = 4) -> SimpleNamespace:
    """Trains on fixed batches; returns initial and final variables, losses, and the device."""
    random = np.random.default_rng(3)
    with v1.Session(graph=model.graph, config=config) as session:
        session.run(model.init)
        first = session.run(model.variables)
        losses = []
        for _ in range(steps):
            batch = (
                random.integers(0, ROWS, (BATCH, 4)),
                random.integers(0, ROWS, (BATCH, 4)),
                random.integers(0, 2, BATCH).astype(np.float32),
            )
            losses.append(float(session.run([model.loss, model.train], dict(zip(model.feeds, batch, strict=True)))[0]))
        last = session.run(model.variables)
        return SimpleNamespace(first=first, last=last, losses=losses, device=device.device_of(session))


@pytest.fixture(scope="session", autouse=True)
def _hooks() -> None:
    assert device.install()


@pytest.fixture
def click_model() -> Callable[..., SimpleNamespace]:
    return build_click_model


@pytest.fixture
def config() -> Callable[..., tf.compat.v1.ConfigProto]:
    return npu_config


@pytest.fixture
def train() -> Callable[..., SimpleNamespace]:
    return train_model
