"""Modes: whatever is kept of the tensors, the training is the same, and summaries are those of the values."""

from __future__ import annotations

import numpy as np
import pytest

from dumpers.capture.plan import How, Taken
from dumpers.capture.record import KEEPS, GraphFile, Item, RunRecord
from dumpers.capture.session import flush, record_session
from dumpers.capture.steps import parse_steps
from dumpers.capture.summaries import MODES, summarise
from dumpers.capture.talk import SayOnce
from dumpers.capture.worker import BoundedWorker
from dumpers.errors import UsageError
from dumpers.settings import read_settings

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1


def train(model, config, wrap, count):
    """Losses of some steps, and the values of all variables afterwards."""
    with wrap(tf1.Session(graph=model.graph, config=config())) as session:
        session.run(model.init)
        losses = [session.run([model.loss, model.train], batch)[0] for batch in (model.batches * count)[:count]]
        variables = model.graph.get_collection("variables")
        return np.array(losses).tobytes(), [value.tobytes() for value in session.run(variables)]


@pytest.mark.parametrize("use_resource", [True, False])
def test_fifty_steps_are_the_same_in_every_mode(tmp_path, click_model, config, use_resource):
    model = click_model(use_resource, table_by_scatter=False)
    expected = train(model, config, lambda session: session, 50)
    for keep in KEEPS:
        steps = parse_steps("" if keep == "pack" else "0-2|20-24|49")

        def wrap(session, keep=keep, steps=steps):
            return record_session(session, tmp_path / keep, steps, keep=keep)

        assert train(model, config, wrap, 50) == expected, keep


@pytest.mark.parametrize("mode", MODES)
def test_a_summary_is_that_of_the_values(tmp_path, click_model, config, manifests, values, monkeypatch, mode):
    model = click_model(True)
    for folder, keep in (("full", "pack"), ("summary", None)):
        monkeypatch.setenv("TF_DUMP_MODE", mode)
        with record_session(
            tf1.Session(graph=model.graph, config=config()), tmp_path / folder, parse_steps("1"), keep=keep
        ) as session:
            session.run(model.init)
            for batch in model.batches[:2]:
                session.run(model.train, batch)
            flush(session)
    (full,), (short,) = manifests(tmp_path / "full"), manifests(tmp_path / "summary")
    assert short["complete"]
    assert not list(short["path"].glob("*.pack"))
    found = values(full)
    entries = {"{}:{}".format(t["op"], t["output"]): t for t in short["tensors"]}
    assert set(entries) == {"{}:{}".format(t["op"], t["output"]) for t in full["tensors"]}
    for name, entry in entries.items():
        assert entry["file"] is None
        if name in found:
            assert entry["summary"] == summarise(found[name], entry["dtype"], mode), name
        else:
            assert "summary" not in entry


@pytest.mark.parametrize("mode", MODES)
def test_a_tensor_that_cannot_be_summarised_takes_no_other_with_it(tmp_path, manifests, capsys, mode):
    arrays = [np.arange(4, dtype=np.float32), np.array(["2020-02-02"], "M8[D]"), np.ones([3, 3], np.int32)]
    items = [
        Item(Taken(f"t{n}:0", f"t{n}", 0, "Add", "float32", a.shape, n, How.FETCH), n, a, str(a.dtype), "odd")
        for n, a in enumerate(arrays)
    ]
    header = {"format": 2, "run": 1, "step": 0, "start_us": 5, "graph": None, "fetches": [], "selection": {}}
    worker = BoundedWorker()
    RunRecord(tmp_path, header, SayOnce(), mode).submit(worker, GraphFile(b""), items)
    worker.flush()
    (record,) = manifests(tmp_path)
    good, bad, other = record["tensors"]
    assert good["summary"] == summarise(arrays[0], "float32", mode)
    assert other["summary"] == summarise(arrays[2], "int32", mode)
    assert good["note"] == other["note"] == "odd"
    assert "summary" not in bad
    assert bad["note"].startswith("odd; no summary: ValueError: no summary of datetime64")
    assert not record["complete"]
    assert "datetime64" in record["reason"]
    assert capsys.readouterr().err.count("please report it") == 1


def test_settings_name_mode_and_format():
    assert read_settings({}).keep == "pack"
    assert read_settings({"TF_DUMP_FORMAT": "npy"}).keep == "npy"
    assert read_settings({"TF_DUMP_MODE": "sketch", "TF_DUMP_FORMAT": "npy"}).keep == "sketch"
    for name in ("TF_DUMP_MODE", "TF_DUMP_FORMAT"):
        with pytest.raises(UsageError, match=name):
            read_settings({name: "Full"})
