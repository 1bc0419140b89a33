"""A small click model for the capture tests, which keep to Python 3.7 and TensorFlow 1.15 to run on old hosts too."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest


def plain_config() -> Any:
    """No graph rewriting, one thread."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def build_click_model(use_resource: bool, table_by_scatter: bool = True) -> SimpleNamespace:
    """Embedding table changed in place, two dense layers, Adam; every initial value from a fixed seed."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    random = np.random.RandomState(7)
    graph = tf.Graph()
    with graph.as_default():
        ids = tf1.placeholder(tf.int64, [None], name="ids")
        label = tf1.placeholder(tf.float32, [None], name="label")

        def variable(name: str, *shape: int, trainable: bool = True) -> Any:
            value = random.uniform(-0.5, 0.5, size=shape).astype(np.float32)
            return tf1.get_variable(name, initializer=value, use_resource=use_resource, trainable=trainable)

        table = variable("table", 20, 4)
        hits = variable("hits", 20, 1, trainable=False)
        with tf1.name_scope("net"):
            rows = tf.gather(table, ids, name="rows")
            weight = variable("w0", 4, 8)
            hidden = tf.nn.relu(tf.matmul(rows, weight) + variable("b0", 8), name="hidden")
            logits = tf.squeeze(tf.matmul(hidden, tf.reshape(variable("w1", 8), [8, 1])), 1, name="logits")
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits), name="loss")
        dense = [v for v in tf1.trainable_variables() if v is not table]
        step = tf1.train.get_or_create_global_step()
        optimizer = tf1.train.AdamOptimizer(0.05)
        gradients = optimizer.compute_gradients(loss, [*dense, table])
        updates = [optimizer.apply_gradients(gradients, global_step=step)]
        if table_by_scatter:
            updates.append(tf1.scatter_add(hits, ids, tf.ones([tf.size(ids), 1])))
        train = tf.group(*updates, name="train")
        init = tf1.global_variables_initializer()
        saver = tf1.train.Saver()
    random = np.random.RandomState(11)
    batches = [
        {
            ids: random.randint(0, 20, size=16).astype(np.int64),
            label: random.randint(0, 2, size=16).astype(np.float32),
        }
        for _ in range(6)
    ]
    return SimpleNamespace(
        graph=graph, loss=loss, train=train, init=init, saver=saver, batches=batches, ids=ids, label=label, table=table
    )


@pytest.fixture
def click_model() -> Any:
    return build_click_model


@pytest.fixture
def config() -> Any:
    return plain_config


def read_manifests(folder: Path) -> list[dict[str, Any]]:
    """All records in order of time, each with its ``path`` and ``value``, which reads the tensor of an entry."""
    paths = sorted(folder.glob("run_*"), key=lambda p: [int(n) for n in p.name.split("_")[1:]])
    found = [dict(json.loads((p / "record.json").read_text()), path=p) for p in paths if (p / "record.json").exists()]
    return [dict(manifest, value=partial(tensor_value, manifest)) for manifest in found]


def tensor_values(manifest: dict[str, Any]) -> dict[str, np.ndarray]:
    """Values of a record by ``op:output``; types that NumPy lacks as raw bytes."""
    return {"{}:{}".format(t["op"], t["output"]): tensor_value(manifest, t) for t in manifest["tensors"] if t["file"]}


def tensor_value(manifest: dict[str, Any], entry: dict[str, Any]) -> np.ndarray:
    """One value, read as the record's description says."""
    path = manifest["path"] / entry["file"]
    if "offset" not in entry:
        return np.load(str(path), allow_pickle=False)
    if entry["dtype"] == "string":
        kind = np.dtype("S{}".format(entry["width"]))
    elif entry["dtype"] == "bfloat16":
        kind = np.dtype("V2")
    else:
        kind = np.dtype(entry["dtype"])
    count = int(np.prod(entry["shape"], dtype=np.int64))
    raw = path.read_bytes()[entry["offset"] : entry["offset"] + count * kind.itemsize]
    assert len(raw) == count * kind.itemsize
    return np.frombuffer(raw, kind).reshape(entry["shape"]).copy()


@pytest.fixture
def manifests() -> Any:
    return read_manifests


@pytest.fixture
def values() -> Any:
    return tensor_values


class Kept:
    """What records have of each tensor, by ``op:output``, to be compared with ``==``."""

    def __call__(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self.of(self.values(manifest))

    @staticmethod
    def values(manifest: dict[str, Any]) -> dict[str, Any]:
        """A value, a summary, or None."""
        found = {"{}:{}".format(t["op"], t["output"]): t.get("summary") for t in manifest["tensors"]}
        found.update(tensor_values(manifest))
        return found

    @staticmethod
    def of(values: dict[str, Any]) -> dict[str, Any]:
        """Arrays as something that knows its bits."""
        arrays = {k: (str(v.dtype), v.shape, v.tobytes()) for k, v in values.items() if hasattr(v, "tobytes")}
        return dict(values, **arrays)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture(autouse=True, scope="module")
def graph_mode():
    """These tests build graphs, whatever mode the process is in; nothing of it may leak into other modules."""
    from tensorflow.python.eager import context

    with context.graph_mode():
        yield
