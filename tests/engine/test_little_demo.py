from __future__ import annotations

import re
from itertools import islice

import numpy as np
import pytest
import tensorflow as tf

from engine.models.little_demo import LittleDemoOptions, build_little_demo
from engine.pipeline import random_batches

SMALL = {"batch_size": 24, "hidden": (12, 6), "user_rows": 300, "item_rows": 300, "learning_rate": 0.01}


def feeds(model, batch):
    return {
        model.user_ids: batch.user_ids,
        model.item_ids: batch.item_ids,
        model.labels[0]: batch.label_0,
        model.labels[1]: batch.label_1,
    }


def run(steps, *, batches_seed=4, **options):
    """Trains; returns the losses of both tasks a step, and all variables before and after by name."""
    model = build_little_demo(tf.Graph(), LittleDemoOptions(**{**SMALL, **options}))
    with model.graph.as_default():
        variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    batches = list(
        islice(random_batches(model.options.batch_size, user_range=90, item_range=70, seed=batches_seed), steps)
    )
    with tf.compat.v1.Session(graph=model.graph) as session:
        session.run(model.init_op)
        before = session.run(variables)
        losses = [session.run([model.losses, model.train_op], feeds(model, batch))[0] for batch in batches]
        after = session.run(variables)
    return losses, before, after, batches, model


class Reference:
    """The model and its training in float64, written from the formulas, with gradients taken by hand."""

    def __init__(self, variables, tables, hidden):
        state = ("Adam", "power")
        self.w = {n: v.astype(np.float64) for n, v in variables.items() if not any(part in n for part in state)}
        self.rows = [{int(k): r for r, k in enumerate(table.keys.keys())} for table in tables]
        self.layers = [f"mlp/mlp/h{k}_" for k in range(1, len(hidden) + 1)]
        self.moments = {name: (np.zeros_like(v), np.zeros_like(v)) for name, v in self.w.items()}
        self.t = 0

    def step(self, batch):
        ids = [
            np.vectorize(rows.get)(part) for rows, part in zip(self.rows, (batch.user_ids, batch.item_ids), strict=True)
        ]
        names = ["user_table/user_table", "item_table/item_table"]
        inputs = [np.concatenate([self.w[name][i].sum(axis=1) for name, i in zip(names, ids, strict=True)], axis=1)]
        for layer in self.layers:
            inputs.append(np.maximum(inputs[-1], 0) @ self.w[layer + "w"] + self.w[layer + "b"])
        losses, logits = [], []
        for task, label in enumerate((batch.label_0, batch.label_1)):
            top = np.maximum(inputs[-1], 0)
            logit = (top @ self.w[f"mlp/mlp/h_w_head_{task}"] + self.w[f"mlp/mlp/h_b_head_{task}"])[:, 0]
            losses.append(np.mean(np.log1p(np.exp(logit)) - label * logit))
            logits.append(logit)
        self._train(ids, names, inputs, (1 / (1 + np.exp(-logits[0])) - batch.label_0) / len(batch.label_0))
        return losses

    def _train(self, ids, names, inputs, dlogit):
        grads = {}
        d = dlogit[:, None]
        weights = ["mlp/mlp/h_w_head_0", *(layer + "w" for layer in reversed(self.layers))]
        biases = ["mlp/mlp/h_b_head_0", *(layer + "b" for layer in reversed(self.layers))]
        for weight, bias, value in zip(weights, biases, reversed(inputs), strict=True):
            grads[weight], grads[bias] = np.maximum(value, 0).T @ d, d.sum(axis=0)
            d = (d @ self.w[weight].T) * (value > 0)
        for name, index, part in zip(names, ids, np.split(d, [32], axis=1), strict=True):
            grads[name] = np.zeros_like(self.w[name])
            np.add.at(grads[name], index, np.broadcast_to(part[:, None], (*index.shape, part.shape[1])))
        touched = {name: np.unique(index) for name, index in zip(names, ids, strict=True)}
        self.t += 1
        rate = 0.01 * np.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t)
        for name, g in grads.items():
            at = touched.get(name, slice(None))
            m, v = self.moments[name]
            m[at] = 0.9 * m[at] + 0.1 * g[at]
            v[at] = 0.999 * v[at] + 0.001 * g[at] ** 2
            self.w[name][at] -= rate * m[at] / (np.sqrt(v[at]) + 1e-8)


def test_three_steps_equal_a_float64_reference():
    losses, before, after, batches, model = run(3)
    reference = Reference(before, model.tables, SMALL["hidden"])
    want = [reference.step(batch) for batch in batches]
    np.testing.assert_allclose(losses, want, rtol=1e-6)
    for name, value in reference.w.items():
        # A step moves a value by about 0.01; some gradients are near epsilon, where the direction is soft.
        np.testing.assert_allclose(after[name], value, atol=2e-5, err_msg=name)
    moved = [np.abs(after[name] - before[name]).max() for name in reference.w if "head_1" not in name]
    assert min(moved) > 1e-3, "the tolerance above must be small against what a step does"


def test_only_task_0_is_trained():
    _, before, after, _, _ = run(2)
    for name in ("mlp/mlp/h_w_head_1", "mlp/mlp/h_b_head_1"):
        assert (before[name] == after[name]).all()
        assert f"{name}/Adam" not in after
    assert (before["mlp/mlp/h_w_head_0"] != after["mlp/mlp/h_w_head_0"]).any()


@pytest.mark.parametrize("options", [{"loss_scale": 2.0**20}, {"use_resource": False}])
def test_scale_and_kind_of_variable_change_no_bit(options):
    losses, before, after, _, _ = run(4)
    other_losses, other_before, other_after, _, _ = run(4, **options)
    assert losses == other_losses
    assert before.keys() == other_before.keys()
    for name in before:
        assert before[name].tobytes() == other_before[name].tobytes(), name
        assert after[name].tobytes() == other_after[name].tobytes(), name


def test_default_sizes_names_and_parameters():
    model = build_little_demo(tf.Graph())
    with model.graph.as_default():
        trainable = {v.op.name: tuple(v.shape.as_list()) for v in tf.compat.v1.trainable_variables()}
        variables = {v.op.name for v in tf.compat.v1.global_variables()}
    assert trainable == {
        "mlp/mlp/h1_w": (40, 1024),
        "mlp/mlp/h1_b": (1024,),
        "mlp/mlp/h2_w": (1024, 512),
        "mlp/mlp/h2_b": (512,),
        "mlp/mlp/h3_w": (512, 256),
        "mlp/mlp/h3_b": (256,),
        "mlp/mlp/h4_w": (256, 128),
        "mlp/mlp/h4_b": (128,),
        "mlp/mlp/h_w_head_0": (128, 1),
        "mlp/mlp/h_b_head_0": (1,),
        "mlp/mlp/h_w_head_1": (128, 1),
        "mlp/mlp/h_b_head_1": (1,),
    }
    assert sum(int(np.prod(shape)) for shape in trainable.values()) == 731_266
    assert {"user_table/user_table", "item_table/LazyAdam_0/velocity"} <= variables
    assert [tuple(table.variable.shape.as_list()) for table in model.tables] == [(16384, 32), (16384, 8)]
    assert (model.user_ids.shape.as_list(), model.item_ids.shape.as_list()) == ([512, 8], [512, 16])


def test_initial_weights_are_uniform_and_differ_by_name_and_seed():
    _, first, _, _, _ = run(0, hidden=(64, 64))
    _, other, _, _, _ = run(0, hidden=(64, 64), seed=1)
    h1, h2 = first["mlp/mlp/h1_w"], first["mlp/mlp/h2_w"]
    assert np.abs(h2).max() <= 0.01
    assert abs(h2.astype(np.float64).std() - 0.01 / np.sqrt(3)) < 2e-4
    assert not np.intersect1d(h1, h2).size > h1.size // 100
    assert (h2 != other["mlp/mlp/h2_w"]).mean() > 0.99
    assert not first["mlp/mlp/h1_b"].any()
    assert abs(first["user_table/user_table"].std() - 0.88) < 0.02


def test_a_step_has_one_host_op_a_table_and_reads_each_row_once():
    model = build_little_demo(tf.Graph(), LittleDemoOptions(**SMALL))
    types = [op.type for op in model.graph.get_operations()]
    assert types.count("PyFunc") == 2
    assert types.count("UnsortedSegmentSum") == 2
    assert not {"Unique", "IdentityN"} & set(types)
    stateful_random = {op for op in types if re.match(r"(Random|TruncatedNormal)", op)}
    assert not stateful_random


def test_models_of_one_process_share_nothing():
    one, _, _, _, first = run(2)
    two, _, _, _, second = run(2)
    assert one == two
    assert first.tables[0].keys is not second.tables[0].keys


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batch_size", 0),
        ("user_rows", -1),
        ("hidden", ()),
        ("hidden", (8, 0)),
        ("loss_scale", 1000.0),
        ("loss_scale", -2.0),
    ],
)
def test_options_are_checked(option, value):
    with pytest.raises(ValueError, match=option):
        LittleDemoOptions(**{option: value})
