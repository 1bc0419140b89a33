"""Every reference model, resource and reference variables: our record against TensorFlow's own dumping session."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps

tf = pytest.importorskip("tensorflow")
tf1 = tf.compat.v1

_MODELS = Path(__file__).resolve().parents[3] / "engine" / "models" / "plain.py"
_SPEC = importlib.util.spec_from_file_location("plain_models", str(_MODELS))
models = importlib.util.module_from_spec(_SPEC)  # no package around the tests, on hosts neither
_SPEC.loader.exec_module(models)

NO_ARRAY = ("resource", "variant")
LEAST = {"little_demo": 260, "DCNv2": 250, "DLRM": 210, "WideDeep": 260, "MMoE": 440, "xDeepFM": 380}
every_model = pytest.mark.parametrize("name", sorted(models.MODELS))
every_kind = pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])


def stock_values(folder):
    """What TensorFlow's dumping session recorded in a run, read by TensorFlow: names in the graph and values.

    Fed placeholders come as ``_arg_name_slot_number``. A constant that TensorFlow folded comes as ``op/_1__cf__1``,
    whichever output of the op it stands for: its name here ends in ``:?``.
    """
    from tensorflow.python.debug.lib.debug_data import DebugDumpDir

    found = []
    for datum in DebugDumpDir(str(folder), validate=False).dumped_tensor_data:
        fed = re.match(r"_arg_(.+)_(\d+)_\d+\Z", datum.node_name)
        folded = re.match(r"(.+)/_\d+__cf__\d+\Z", datum.node_name)
        name = f"{datum.node_name}:{datum.output_slot}"
        if fed or folded:
            name = f"{fed.group(1)}:{fed.group(2)}" if fed else folded.group(1) + ":?"
        value = datum.get_tensor()
        if isinstance(value, np.ndarray):  # a handle is not
            found.append((name, value))
    return found


def recorded_as(ours, name):
    """Our values of what TensorFlow's session calls so; several for a folded constant of an op with several outputs."""
    if not name.endswith(":?"):
        return [ours[name]] if name in ours else []
    op = name[:-2]
    return [value for tensor, value in ours.items() if tensor.rsplit(":", 1)[0] == op]


def same(one, other):
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def debugged(session, model, feeds, root):
    """Runs steps under TensorFlow's dumping session; returns their results and what it recorded of each."""
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    root.mkdir()
    wrapper = DumpingDebugWrapperSession(session, session_root=str(root))
    results = [wrapper.run(model.fetches, feed) for feed in feeds]
    state = wrapper.run(model.variables)  # the wrapper closes the session when it goes
    runs = sorted(root.glob("run_*"), key=lambda path: [int(part) for part in path.name.split("_")[1:]])
    return results, state, [stock_values(run) for run in runs[: len(feeds)]]


def bits(values):
    return [None if value is None else np.asarray(value).tobytes() for value in values]


@every_model
@every_kind
def test_every_tensor_of_tensorflows_dumping_session_is_bit_equal_in_ours(
    tmp_path, config, manifests, values, name, use_resource
):
    """Two steps from the same start; the second one is fed NaNs that carry bits, infinities and negative zeros."""
    model = models.build(name, use_resource)
    feeds = models.batches(model.placeholders, 2, odd=1)
    with tf1.Session(graph=model.graph, config=config()) as session:
        session.run(model.init)
        their_results, their_state, stocks = debugged(session, model, feeds, tmp_path / "stock")
    with record_session(
        tf1.Session(graph=model.graph, config=config()), tmp_path / "ours", parse_steps("0-1")
    ) as session:
        session.run(model.init)
        results = [session.run(model.fetches, feed) for feed in feeds]
        our_state = session.run(model.variables)
    records = manifests(tmp_path / "ours")
    assert [record["step"] for record in records] == [0, 1]
    for record, result, their_result, stock in zip(records, results, their_results, stocks):  # noqa: B905
        assert record["complete"]
        ours = values(record)
        assert len(stock) > LEAST[name]
        assert len(ours) >= len(stock)
        assert [n for n, value in stock if not any(same(value, mine) for mine in recorded_as(ours, n))] == []
        assert bits(result) == bits(their_result)
        missing = [t["op"] for t in record["tensors"] if not t["file"] and t["dtype"] not in NO_ARRAY]
        assert missing == []
    assert np.isnan(ours[model.fetches[1].name]).all()
    carried = [value for value in ours.values() if value.dtype == np.float32 and _payloads(value) & {0x12345}]
    assert carried
    assert set(our_state) == set(their_state)
    assert [n for n in our_state if our_state[n].tobytes() != their_state[n].tobytes()] == []


def _payloads(value):
    raw = np.ravel(value).view(np.uint32)
    return set((raw[np.isnan(np.ravel(value))] & 0x3FFFFF).tolist())


@every_model
@every_kind
def test_results_and_variables_after_50_recorded_steps_are_those_of_the_plain_session(
    tmp_path, config, name, use_resource
):
    model = models.build(name, use_resource)
    feeds = models.batches(model.placeholders, 50, odd=-1)

    def trained(session):
        with session:
            session.run(model.init)
            results = [bits(session.run(model.fetches, feed)) for feed in feeds]
            return results, {n: v.tobytes() for n, v in session.run(model.variables).items()}

    plain = trained(tf1.Session(graph=model.graph, config=config()))
    ours = trained(record_session(tf1.Session(graph=model.graph, config=config()), tmp_path, parse_steps("0-49")))
    assert ours == plain
    assert len({tuple(result) for result in plain[0]}) == 50, "the model does not train"
    assert len(list(tmp_path.glob("run_*"))) == 50
