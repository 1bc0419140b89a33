"""``bench dump``: what it reports hangs together, and its parts do what they say. How fast anything is, is no test."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dumpers.capture.record import KEEPS
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from precision_tool.bench import dump
from precision_tool.bench.dump_model import Shape, build, config
from precision_tool.commands.base import silent
from precision_tool.dispatch import parse_words
from precision_tool.render import json_document
from precision_tool.workbench import Workbench


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("bench")))
        answer = parse_words(["bench", "dump", "--small", "--seed", "4"]).run(Workbench(), silent)
    document = json.loads(json_document("bench", answer))
    assert document["ok"]
    return document["result"]


def test_rows_and_setup(data):
    assert {"python", "numpy", "tensorflow", "processors", "load_at_start", "rounds"} <= set(data["setup"])
    assert data["setup"]["seed"] == 4
    assert data["setup"]["tensors"] > 100
    cases = {row["case"] for row in data["rows"]}
    assert cases == {"plain", "idle hook", "stock"} | {f"{k}, {what}" for k in KEEPS for what in ("seen", "drained")}
    plain = next(row["seconds"] for row in data["rows"] if row["case"] == "plain")
    for row in data["rows"]:
        assert row["amount"] == data["setup"]["bytes"]
        assert row["ratio"] == pytest.approx(plain / row["seconds"])


def test_summary_follows_from_the_rows(data):
    seconds, summary = {row["case"]: row["seconds"] for row in data["rows"]}, data["summary"]
    plain = seconds["plain"]
    assert summary["plain_step_ms"] == pytest.approx(1e3 * plain)
    assert summary["idle_hook"] == seconds["idle hook"] / plain
    for keep in KEEPS:
        assert summary[f"{keep}_seen"] == seconds[f"{keep}, seen"] / plain
        assert summary[f"{keep}_drained"] == seconds[f"{keep}, drained"] / plain
        assert seconds[f"{keep}, seen"] < seconds[f"{keep}, drained"]
    assert summary["stock_session"] == seconds["stock"] / plain
    assert summary["stock_over_pack_drained"] == seconds["stock"] / seconds["pack, drained"]


def test_tensors_and_bytes_are_those_of_a_recorded_step(data, tmp_path, monkeypatch):
    """Against the values of a whole record: each memory once, as its pack has it."""
    import tensorflow as tf

    from dumpers.formats.tf_record import read_tf_record

    model = build(dump.SMALL.shape, 4)
    with record_session(
        tf.compat.v1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0"), keep="pack"
    ) as session:
        session.run(model.init)
        session.run(model.step, model.feeds)
    (folder,) = tmp_path.iterdir()
    records = [record for record in read_tf_record(folder).records if record.source is not None]
    assert data["setup"]["tensors"] == len(records)
    places = {(record.source.path, record.source.offset): record.load().nbytes for record in records}
    assert data["setup"]["bytes"] == pytest.approx(sum(places.values()), rel=0.05)


def test_the_model_learns_what_numpy_computes():
    """The loss of the first step, in float64."""
    import tensorflow as tf

    shape = Shape(features=3, dim=4, rows=50, units=8, batch=16)
    model = build(shape, 1)
    with tf.compat.v1.Session(graph=model.graph, config=config()) as session:
        session.run(model.init)
        variables = {v.op.name: v for v in model.graph.get_collection("trainable_variables")}
        start = {name: value.astype(np.float64) for name, value in session.run(variables).items()}
        losses = [session.run(model.step, model.feeds)[0] for _ in range(30)]
    ids, label = model.feeds.values()
    x0 = np.concatenate([start[f"table_{n}"][ids[:, n]] for n in range(shape.features)], axis=1)
    x, deep = x0, x0
    for n in range(shape.crosses):
        x = x0 * (x @ start[f"cross_{n}"]) + start[f"cross_bias_{n}"] + x
    for n in range(shape.layers):
        deep = np.maximum(deep @ start[f"dense_{n}"] + start[f"bias_{n}"], 0)
    logit = (np.concatenate([x, deep], axis=1) @ start["out"])[:, 0]
    loss = np.mean(np.logaddexp(0, logit) - label * logit)
    assert losses[0] == pytest.approx(loss, rel=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("keep", ["", "stats"])
def test_the_peak_is_that_of_another_process(tmp_path, keep):
    peak = dump.peak_mb(keep, tmp_path, small=True, seed=0)
    assert peak is None or 100 < peak < 3000
    assert not list(tmp_path.iterdir())
