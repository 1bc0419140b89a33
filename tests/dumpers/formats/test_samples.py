"""Every sample in ``tests/data/samples`` opens with its reader to what was written into it."""

from __future__ import annotations

import filecmp
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dumpers.formats.layouts import load_original
from dumpers.formats.registry import read_dump, read_graph, read_tensor
from dumpers.graph import Graph
from dumpers.records import Dump, TensorRecord

DATA = Path(__file__).resolve().parents[2] / "data"
EXPECTED = json.loads((DATA / "samples" / "expected.json").read_text())
MAKER = DATA / "make_samples.py"


def numbers(tensor: dict) -> np.ndarray:
    """The expected values of a number tensor, in float64 or as Python integers."""
    return np.array([float(v) if isinstance(v, str) else v for v in tensor["values"]]).reshape(tensor["shape"])


def check(array: np.ndarray, tensor: dict) -> None:
    """Compares an array with what the sample must hold, exactly."""
    assert list(array.shape) == tensor["shape"]
    if tensor["dtype"] == "string":
        assert [text.decode() for text in array.ravel().tolist()] == tensor["values"]
        return
    wide = array if array.dtype.kind in "iub" else array.astype(np.float64)
    np.testing.assert_array_equal(wide, numbers(tensor))


def check_records(records: tuple[TensorRecord, ...], expected: dict) -> None:
    """Compares records by name; neither side may have one that the other lacks."""
    assert sorted(record.name for record in records) == sorted(expected)
    for record in records:
        tensor = expected[record.name]
        assert record.dtype == tensor["dtype"], record.name
        array = load_original(record) if tensor.get("original") else record.load()
        check(array, tensor)
        if not tensor.get("original"):
            assert record.shape == array.shape


def whole(dump: Dump) -> tuple[TensorRecord, ...]:
    """The records of a dump without damage."""
    assert dump.problems == ()
    return dump.records


def ops_of(graph: Graph) -> dict:
    return {op.name: [op.type, [f"{s.op}:{s.slot}" for s in op.inputs if s]] for op in graph.ops.values()}


def test_every_sample_is_described(samples):
    assert set(samples) == set(EXPECTED)
    table = (DATA / "samples" / "README.md").read_text()
    assert not [kind for kind in samples if f"`{kind}`" not in table]
    assert sum(path.stat().st_size for path in (DATA / "samples").rglob("*") if path.is_file()) < 1_500_000


FOLDERS = (
    "npu_dump npu_old_names npu_ffts npu_low_precision npu_layouts npu_hashed converted npy tf_npy".split()  # noqa: SIM905
)


@pytest.mark.parametrize("kind", FOLDERS)
def test_dump_folders(samples, kind):
    check_records(whole(read_dump(samples[kind])), EXPECTED[kind])


@pytest.mark.parametrize("kind", ["npu_dump", "npu_old_names", "npu_low_precision", "converted", "npy"])
def test_single_tensor_files(samples, kind):
    files = [path for path in sorted(samples[kind].rglob("*")) if path.is_file()]
    found = [record for path in files for record in read_tensor(path)]
    assert len(found) == len(EXPECTED[kind])
    by_shape = {(record.dtype, record.shape): record for record in found}
    for tensor in EXPECTED[kind].values():
        assert (tensor["dtype"], tuple(tensor["shape"])) in by_shape


def test_raw_record(samples):
    (run,) = samples["tf_record"].iterdir()
    check_records(whole(read_dump(run)), EXPECTED["tf_record"])


def test_debugger_run(samples):
    from dumpers.formats.tfdbg import read_tfdbg_run

    (run,) = samples["tfdbg"].iterdir()
    check_records(whole(read_tfdbg_run(run)), EXPECTED["tfdbg"])


def test_debugger_v2(samples):
    from dumpers.formats.tfdbg_v2 import read_tfdbg_v2

    dump = read_tfdbg_v2(samples["tfdbg_v2"])
    assert dump.problems == ()
    left = [record for record in dump if record.source is not None]
    for op_type, tensor in EXPECTED["tfdbg_v2"]["tensors"]:
        fits = [r for r in left if r.op_type == op_type and list(r.shape or ()) == tensor["shape"]]
        same = [r for r in fits if np.array_equal(r.load().astype(float), numbers(tensor))]
        assert same, f"{op_type} {tensor}"
        left.remove(same[0])


@pytest.mark.parametrize("kind", ["checkpoint_v1", "checkpoint_v2", "checkpoint_object"])
def test_checkpoints(samples, kind):
    from dumpers.formats.checkpoint import find_checkpoint, read_checkpoint

    records = whole(read_checkpoint(find_checkpoint(samples[kind])))
    found = {
        record.op.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): record for record in records if record.dtype != "string"
    }
    wanted = {name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): tensor for name, tensor in EXPECTED[kind].items()}
    assert set(found) >= set(wanted)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor["dtype"]
        check(found[name].load(), tensor)


def test_scalars(samples):
    from dumpers.formats.event_file import read_scalars

    files = sorted(path for path in samples["event_file"].rglob("*tfevents*"))
    found = {series.tag: series for path in files for series in read_scalars(path)}
    for tag, points in EXPECTED["event_file"]["curves"].items():
        assert [[int(s), float(v)] for s, v in zip(found[tag].steps, found[tag].values, strict=True)] == points


@pytest.mark.parametrize("kind", ["graph_pb", "graph_pbtxt", "meta_graph", "ge_text", "ge_json", "om"])
def test_graph_files(samples, kind):
    (file,) = samples[kind].iterdir()
    graph = read_graph(file)
    assert ops_of(graph) == {name: [facts[0], facts[1]] for name, facts in EXPECTED[kind]["ops"].items()}
    for name, facts in EXPECTED[kind]["ops"].items():
        assert sorted(graph.ops[name].control_inputs) == sorted(facts[2] if len(facts) > 2 else [])


def test_saved_model(samples):
    from dumpers.formats.saved_model import read_saved_model

    graph = max(read_saved_model(samples["saved_model"]), key=len)
    expected = EXPECTED["saved_model"]["ops"]
    assert set(graph.ops) >= set(expected)
    assert {name: graph.ops[name].type for name in expected} == {name: facts[0] for name, facts in expected.items()}


def test_constants_of_a_compiled_model(samples):
    from dumpers.formats.ge_model import om_constants

    check_records(om_constants(samples["om"] / "sample.om"), EXPECTED["om"]["constants"])


def test_statistics(samples):
    from dumpers.formats.npu_statistics import read_statistics

    (file,) = (path for path in samples["npu_statistics"].rglob("*.csv"))
    found = {record.name: record for record in read_statistics(file)}
    assert set(found) == set(EXPECTED["npu_statistics"])
    for name, wanted in EXPECTED["npu_statistics"].items():
        assert (found[name].dtype, list(found[name].shape)) == (wanted["dtype"], wanted["shape"])
        assert {key: getattr(found[name].statistics, key) for key in wanted["statistics"]} == wanted["statistics"]
        assert found[name].source is None


def test_overflow_records(samples):
    from dumpers.formats.overflow import find_overflow_files, read_overflow, read_overflow_json

    wanted = EXPECTED["overflow"]
    files = [path for path in find_overflow_files(samples["overflow"]) if path.suffix != ".json"]
    records = [record for path in files for record in read_overflow(path)]
    (text,) = samples["overflow"].glob("*.json")
    as_json = read_overflow_json(text)
    again = as_json[0] if isinstance(as_json, list | tuple) else as_json
    for record, unit in [*zip(records, wanted["units"], strict=True), (again, wanted["units"][-1])]:
        (event,) = record.events
        assert (event.unit, event.task_id, event.stream_id) == (unit, wanted["task_id"], wanted["stream_id"])
        assert event.status == (wanted["status"],)


def by_values(dump: Dump, expected: dict) -> None:
    """Compares dumps whose names each tool makes differently: by what the names end with."""
    records = whole(dump)
    assert len(records) == len(expected)
    for io_name, tensor in expected.items():
        (record,) = (r for r in records if io_name in (r.io, r.name) or io_name in r.op)
        assert record.dtype == tensor["dtype"]
        check(record.load(), tensor)


def test_archive_of_arrays(samples):
    from dumpers.formats.npz import read_npz

    check_records(whole(read_npz(samples["npz"] / "arrays.npz")), EXPECTED["npz"])


def test_msprobe(samples):
    from dumpers.formats.msprobe import read_msprobe

    by_values(read_msprobe(samples["msprobe"]), EXPECTED["msprobe"])


def test_torch_file(samples):
    from dumpers.formats.torch_file import read_torch_file

    by_values(
        read_torch_file(samples["torch_pt"] / "model.pt"), {n.split(":")[0]: t for n, t in EXPECTED["torch_pt"].items()}
    )


def test_hdf5(samples):
    from dumpers.formats.hdf5 import read_hdf5

    by_values(read_hdf5(samples["hdf5"] / "dump.h5"), EXPECTED["hdf5"])


def test_fusion_reports(samples):
    from dumpers.formats.fusion import read_fusion_result

    wanted = EXPECTED["fusion_result"]
    for generation, graphs in enumerate(wanted["graphs"], 1):
        found = read_fusion_result(samples["fusion_result"] / f"fusion_result_{generation}.json")
        assert len(found) == graphs
        for report in found:
            assert report.graph_fusion == wanted["effect_times"]


def test_fusion_switch(samples):
    from dumpers.formats.fusion_switch import read_fusion_switch

    switch = read_fusion_switch(samples["fusion_switch"] / "fusion_switch.cfg")
    assert switch.is_on("MulAddFusionPass", "graph")
    assert not switch.is_on("SomeOtherPass", "graph")
    assert switch.is_on("SomeOtherPass", "ub")


def test_result_files(samples):
    from compare.result_file import read_csv

    wanted = EXPECTED["result_csv"]
    for name, cosine in wanted["cosine"].items():
        (row,) = read_csv(samples["result_csv"] / name).rows
        assert row.cosine == pytest.approx(cosine)
        assert row.op == wanted["op"]


def test_samples_are_made_the_same_again(tmp_path, samples):
    words = [sys.executable, str(MAKER), "--without-tensorflow", "--out", str(tmp_path)]
    subprocess.run(words, check=True, timeout=120, capture_output=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    made = [path for path in made if path.parts[0] not in ("hdf5", "expected.json")]  # another h5py, other bytes
    assert len(made) > 40
    differ = [path for path in made if not filecmp.cmp(tmp_path / path, DATA / "samples" / path, shallow=False)]
    assert differ == []
    again = json.loads((tmp_path / "expected.json").read_text())
    assert again == {kind: EXPECTED[kind] for kind in again}
