"""The figures of the real samples' README that no other test takes: sizes, raw tensors, the device against a CPU."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from dumpers.formats.ge_model import read_model
from dumpers.formats.npu_dump import read_npu_dump
from dumpers.formats.overflow import find_overflow_files, read_overflow
from dumpers.formats.raw import RawSource
from dumpers.formats.registry import read_dump

BYTES = {
    "vae_om/hh.pb": 495353,
    "vae_om/hh_om.om": 618993,
    "vae_om/hh.bin": 313600,
    "vae_om/hh_output0.bin": 313600,
    "vae_om/fusion_result.json": 1789,
    "ddnet_om/out_model_def_partition.bin": 276759,
    "ge_json/model.json": 213957,
    "ge_json/test.om.json": 520716,
    "other_csv/compare_result_20230703104808.csv": 2119,
    "derived/ge_proto_00000000_Build.txt": 247581,
}


@pytest.fixture
def real(shared_data: Path) -> Path:
    return shared_data / "npu_samples"


def test_the_samples_are_those_that_the_readme_describes(real: Path):
    assert {name: (real / name).stat().st_size for name in BYTES} == BYTES
    om = (real / "vae_om/hh_om.om").read_bytes()
    assert (om[:4], *map(int, np.frombuffer(om, "<u4", 2, 4)[:1]), int(np.frombuffer(om, "<u4", 1, 76)[0])) == (
        b"IMOD",
        256,
        618737,
    )
    partition = (real / "ddnet_om/out_model_def_partition.bin").read_bytes()
    assert read_model(partition).SerializeToString()[:4] == partition[:4]


def raw(path: Path, *shape: int) -> np.ndarray:
    return RawSource(path, 0, "float32", shape).load()


def test_raw_tensors_of_the_network(real: Path):
    fed, result = raw(real / "vae_om/hh.bin", 100, 784), raw(real / "vae_om/hh_output0.bin", 100, 28, 28, 1)
    assert (fed.min(), fed.max(), int((fed == 0).sum())) == (0, 1, 62889)
    assert float(fed.mean(dtype=np.float64)) == pytest.approx(0.136449488, abs=1e-9)
    assert float(fed.std(dtype=np.float64)) == pytest.approx(0.314374645, abs=1e-9)
    assert (float(result.min()), float(result.max())) == pytest.approx((1.5258789e-05, 0.9980469), rel=1e-7, abs=0)
    assert float(result.mean(dtype=np.float64)) == pytest.approx(0.138732564, abs=1e-9)
    assert float(result.std(dtype=np.float64)) == pytest.approx(0.295921998, abs=1e-9)
    assert np.array_equal(result.astype(np.float16).astype(np.float32), result)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_device_against_a_cpu(real: Path):
    tf = pytest.importorskip("tensorflow").compat.v1
    definition = tf.GraphDef()
    definition.ParseFromString((real / "vae_om/hh.pb").read_bytes())
    fed, device = raw(real / "vae_om/hh.bin", 100, 784), raw(real / "vae_om/hh_output0.bin", 100, 28, 28, 1)
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        tf.import_graph_def(definition, name="")
        feed = {"input:0": fed}
        runs = [session.run("generation/output:0", feed).reshape(device.shape) for _ in range(2)]
        mean = session.run("recognition/w_mean/add:0", feed)
        plain = session.run("generation/output:0", {**feed, "add:0": mean})
    assert not np.array_equal(*runs)  # the random op has no seed
    assert all(0.955 < cosine(run, device) < 0.970 for run in runs)
    assert all(0.5 < np.abs(run - device).max() < 1 for run in runs)
    assert cosine(plain, device) == pytest.approx(0.981619, abs=2e-6)


def test_sizes_in_the_graph_are_longer_than_the_elements(real: Path):
    model = read_model((real / "vae_om/hh_om.om").read_bytes())
    (constant,) = (op for op in model.graph[0].op if op.name == b"dynamic_const_5478_34")
    assert constant.output_desc[0].size == 12832


def test_the_vendor_s_overflow_summary(real: Path):
    """The five records, and the figures of the op that they point at, as the public program prints them."""
    derived = real / "derived"
    text = (derived / "dumps_expected/overflow_summary.txt").read_text()
    found = read_npu_dump(derived / "dumps/TransData.trans_TransData_1170.327.8.1706168000000007")
    lines = re.findall(r"\[Dtype: (\w+)\] \[Max: (\S+)\] \[Min: (\S+)\] \[Mean: (\S+)\]", text)
    arrays = [record.load() for record in (*found.inputs, *found.outputs)]
    with np.errstate(over="ignore"):
        ours = [(a.dtype.name, *(str(float(f(a))) for f in (np.max, np.min, np.mean))) for a in arrays]
    assert lines[:2] == ours
    events = {
        str(record.timestamp_us): (event.unit, str(event.task_id), str(event.stream_id), str(event.status[0]))
        for file in find_overflow_files(derived / "dumps")
        for record in read_overflow(file)
        for event in record.events
    }
    shown = re.findall(
        r"\[(\w+)\]\[TaskId:(\d+)\]\[StreamId:(\d+)\]\[Status:\[?(\d+)[^\]]*\]+\s+\[timestamp:(\d+)\]", text
    )
    assert shown
    assert all(events[time] == (unit, task, stream, status) for unit, task, stream, status, time in shown)
    assert len(events) == 5


def test_what_lies_in_the_comparison_of_a_network(real: Path):
    folder = real / "derived/vae_compare"
    device, reference = read_dump(folder / "npu"), read_dump(folder / "tf_dump")
    assert len({record.path for record in device}) == 6
    assert {record.task_id is not None and record.stream_id is not None for record in device} == {True}
    assert len({record.path for record in reference}) == 7
    tables = [list(csv.reader(path.open(newline=""))) for path in sorted(folder.glob("result_*.csv"))]
    assert [len(table) for table in tables] == [53, 11]
    assert [(len(t[0]), t[0].count("DataType"), t[0].count("Address")) for t in tables] == [(20, 2, 1), (21, 2, 2)]
    other = list(csv.reader((real / "other_csv/compare_result_20230703104808.csv").open(newline="")))
    assert (len(other), len(other[0]), other[0][:2]) == (9, 16, ["NPU Name", "Bench Name"])
