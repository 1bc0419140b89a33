"""Recognising: every kind of file and folder, cheaply, safely, the same every time."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from dumpers.formats import sniff
from dumpers.formats.kinds import KINDS, identify, kind_named

FILES = {
    "checkpoint_object/ckpt-1.index": "checkpoint_v2",
    "checkpoint_v1/model.ckpt-7": "checkpoint_v1",
    "checkpoint_v1/checkpoint": "checkpoint_state",
    "checkpoint_v2/model.ckpt-7.data-00000-of-00001": "checkpoint_v2",
    "converted/Add.net_add.3.1.1706168000000000.input.0.npy": "npu_converted_npy",
    "event_file/v1/*": "events",
    "event_file/v2/*": "events",
    "fusion_result/fusion_result_1.json": "fusion_result",
    "fusion_result/fusion_result_3.json": "fusion_result",
    "fusion_switch/fusion_switch.cfg": "fusion_switch",
    "ge_json/model.json": "ge_json",
    "ge_text/*.txt": "ge_text",
    "graph_pb/graph.pb": "graph_def",
    "graph_pbtxt/graph.pbtxt": "graph_text",
    "hdf5/dump.h5": "hdf5",
    "meta_graph/model.meta": "meta_graph",
    "msprobe/step0/rank/dump.json": "msprobe_json",
    "msprobe/step0/rank/stack.json": "msprobe_part",
    "npu_dump/*/0/*/1/0/MatMulV2.*": "npu_dump",
    "npu_hashed/*/0/*/1/0/[0-9]*": "npu_dump",
    "npu_hashed/*/0/*/1/0/mapping.csv": "mapping_csv",
    "npu_statistics/*/0/*/1/0/*.csv": "npu_statistics",
    "npy/a.npy": "npy",
    "npz/arrays.npz": "npz",
    "om/sample.om": "om",
    "overflow/Opdebug.Node_OpDebug.33.*": "overflow_record",
    "overflow/*.json": "overflow_json",
    "result_csv/result_20210101000000.csv": "result_csv",
    "saved_model/saved_model.pb": "saved_model_file",
    "tf_npy/net_fc_BiasAdd.0.1706168000000000.npy": "tf_npy",
    "tf_npy/index.csv": "tensor_index",
    "tf_record/run_*/record.json": "record_json",
    "tfdbg/run_*/_tfdbg_feed_keys_info_": "tfdbg_part",
    "tfdbg/run_*/_tfdbg_device_*/net/Add_0_DebugIdentity_*": "tfdbg_tensor",
    "tfdbg_v2/*.metadata": "tfdbg_v2_file",
    "torch_pt/model.pt": "torch",
}
FOLDERS = {
    "checkpoint_v2": "checkpoint_folder",
    "checkpoint_v1": "checkpoint_folder",
    "converted": "converted_folder",
    "msprobe/step0/rank": "msprobe",
    "npu_dump": "npu_tree",
    "npu_dump/*/0/*/1/0": "npu_folder",
    "npu_statistics/*/0/*/1/0": "statistics_folder",
    "npy": "npy_folder",
    "overflow": "overflow_folder",
    "saved_model": "saved_model",
    "tf_npy": "tf_folder",
    "tf_record": "tf_runs",
    "tf_record/run_*": "tf_record",
    "tfdbg": "tf_runs",
    "tfdbg/run_*": "tfdbg_run",
    "tfdbg_v2": "tfdbg_v2",
}


def sample(samples: dict[str, Path], pattern: str) -> Path:
    folder, _, rest = pattern.partition("/")
    return next(iter(sorted(samples[folder].glob(rest)))) if rest else samples[folder]


@pytest.mark.parametrize(("pattern", "kind"), [*FILES.items(), *FOLDERS.items()])
def test_every_sample_is_recognised(samples, pattern: str, kind: str):
    found = identify(sample(samples, pattern))
    assert found is not None
    assert found.kind.name == kind
    assert found.why
    assert found.kind.container == ("folder" if pattern in FOLDERS else "file")


def test_no_kind_goes_untested(tmp_path: Path):
    tested = {*FILES.values(), *FOLDERS.values()}
    assert {kind.name for kind in KINDS} - tested == {"model_def", "data_tree"}
    (tmp_path / "npu").mkdir()
    (tmp_path / "tf").mkdir()
    assert identify(tmp_path).kind.name == "data_tree"


def test_a_bare_device_model(samples, tmp_path: Path):
    from dumpers.formats.ge_convert import model_of
    from dumpers.graph import Graph, Op

    path = tmp_path / "model.bin"
    path.write_bytes(model_of(Graph("g", {"a": Op("a", "Add")}, "ge")).SerializeToString())
    assert identify(path).kind.name == "model_def"


def test_real_device_files(shared_data: Path):
    root = shared_data / "npu_samples"
    expected = {
        "vae_om/hh.pb": "graph_def", "vae_om/hh_om.om": "om", "ddnet_om/out_model_def_partition.bin": "model_def",
        "ge_json/model.json": "ge_json", "ge_json/test.om.json": "ge_json", "tf_graph/geop.pbtxt": "graph_text",
        "fusion_result/ieg.json": "fusion_result", "fusion_switch/swin_fusion_off_layer.cfg": "fusion_switch",
        "derived/ge_proto_00000000_Build.txt": "ge_text", "npy/det1.npy": "npy",
        "derived/vae_compare/result_20240125160000.csv": "result_csv",
    }  # fmt: skip
    assert {name: identify(root / name).kind.name for name in expected} == expected
    assert identify(root / "other_csv/compare_result_20230703104808.csv") is None
    assert identify(root / "vae_om/hh.bin") is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_readers_are_there(kind):
    assert callable(kind.load_reader())
    assert kind_named(kind.name) is kind


def test_a_checkpoint_by_its_prefix(samples):
    found = identify(samples["checkpoint_v2"] / "model.ckpt-7")
    assert found.kind.name == "checkpoint_v2"
    assert identify(samples["checkpoint_v2"] / "model.ckpt-8") is None


# cheap and safe


def test_at_most_4_kb_are_read(samples, monkeypatch, tmp_path: Path):
    asked: list[int] = []
    original = sniff.Look._bytes

    def counted(self, offset, count):
        asked.append(count)
        return original(self, offset, count)

    monkeypatch.setattr(sniff.Look, "_bytes", counted)
    big = tmp_path / "big"
    big.write_bytes(b"\x01" * 100_000)
    assert identify(big) is None
    assert sum(asked) <= sniff.HEAD + 8
    for pattern in FILES:
        asked.clear()
        identify(sample(samples, pattern))
        assert sum(asked) <= sniff.HEAD + 8, pattern


def test_names_of_dumps_are_enough(tmp_path: Path, monkeypatch):
    for index in range(300):
        (tmp_path / f"Add.op_{index}.1.0.{1706168000000000 + index}").touch()
    monkeypatch.setattr(sniff.Look, "_bytes", lambda *args: pytest.fail("a file was opened"))
    assert identify(tmp_path).kind.name == "npu_folder"
    assert all(identify(path).kind.name == "npu_dump" for path in tmp_path.iterdir())


def test_a_pipe_is_never_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "Add.a.1.0.1706168000000000")
    assert identify(tmp_path / "Add.a.1.0.1706168000000000") is None
    assert identify(tmp_path / "none") is None
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    assert identify(tmp_path / "loop") is None
    assert identify(Path("bad\0name")) is None


def test_damaged_beginnings_never_raise(samples, tmp_path: Path):
    random_ = random.Random(5)
    sources = [sample(samples, pattern) for pattern in FILES]
    for number in range(600):
        source = random_.choice(sources)
        raw = bytearray(source.read_bytes()[:6000])
        for _ in range(random_.randrange(4)):
            if raw:
                raw[random_.randrange(len(raw))] = random_.randrange(256)
        del raw[random_.randrange(len(raw) + 1) :]
        path = tmp_path / random_.choice((source.name, "x", f"{number}"))
        path.write_bytes(bytes(raw))
        first = identify(path)
        assert identify(path) == first
        path.unlink()


def test_short_names_are_looked_up(tmp_path: Path):
    np.save(tmp_path / "123.npy", np.zeros(3))
    os.rename(tmp_path / "123.npy", tmp_path / "123")
    assert identify(tmp_path / "123").kind.name == "npy"
    (tmp_path / "mapping.csv").write_text("123,net_add.0.1706168000000000.npy\n")
    assert identify(tmp_path / "123").kind.name == "tf_npy"
    assert identify(tmp_path / "123", mapping={}).kind.name == "npy"


# what the documentation says


def test_the_reference_page_has_one_row_a_kind(project_root: Path):
    text = (project_root / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    by_name = {row[0].strip("`"): row for row in rows}
    assert len(by_name) == len(rows)
    assert list(by_name) == [kind.name for kind in KINDS]
    for kind in KINDS:
        row = by_name[kind.name]
        assert row[1].startswith(kind.title), kind.name
        assert row[4] == (f"`{kind.place}`" if kind.place else "-"), kind.name
        assert row[5], f"{kind.name}: no limits given"
