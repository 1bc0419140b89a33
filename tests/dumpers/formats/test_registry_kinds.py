"""Every kind that holds tensors is a dump: by its folder or file, for a whole comparison and a NaN search."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.kinds import identify
from dumpers.formats.layouts import load_original
from dumpers.formats.npy import write_npy
from dumpers.formats.registry import is_dump_file, read_dump, read_graph, read_tensor
from dumpers.formats.schema import dump_data
from dumpers.records import Dump

FILES = {"npz": "arrays.npz", "torch_pt": "model.pt", "hdf5": "dump.h5", "checkpoint_v2": "model.ckpt-7"}
DUMPS = (
    *("checkpoint_object", "checkpoint_v1", "checkpoint_v2", "converted", "hdf5", "msprobe", "npu_dump", "npu_ffts"),
    *("npu_hashed", "npu_layouts", "npu_low_precision", "npu_old_names", "npu_statistics", "npy", "npz", "tf_npy"),
    *("tf_record", "tfdbg", "tfdbg_v2", "torch_pt"),
)


def expected(samples: dict[str, Path], kind: str) -> dict:
    return json.loads((samples["npy"].parent / "expected.json").read_text())[kind]


def listed(values: np.ndarray) -> list:
    """Values as the samples' own list has them: exact, NaN and infinities as text."""
    wide = values if values.dtype.kind in "biuc" else values.astype(np.float64)
    return [repr(v) if isinstance(v, float) and not np.isfinite(v) else v for v in wide.ravel().tolist()]


def tensors(dump: Dump) -> dict[str, tuple[str, list[int], list]]:
    """All tensors with values, in the original layout."""
    found = {}
    for record in dump:
        if record.source is not None and record.dtype != "string":
            values = load_original(record)
            found[record.name] = (record.dtype, list(values.shape), listed(values))
    return found


@pytest.mark.parametrize("kind", DUMPS)
def test_folders(samples, kind: str):
    """Each is a dump without problems, with the values that the sample's maker wrote down."""
    dump = read_dump(samples[kind])
    assert len(dump) > 0
    assert dump.problems == ()
    known = tensors(dump)
    facts = {name: f for name, f in expected(samples, kind).items() if isinstance(f, dict) and "values" in f}
    facts = {name: f for name, f in facts.items() if f["dtype"] != "string"}
    assert facts or kind in ("npu_statistics", "tfdbg_v2"), "these two have no list of that form"
    for name, right in facts.items():
        (full,) = [n for n in known if n in (name, f"{name}:output:0") or n.endswith(f":{name}:0")]
        assert known[full] == (right["dtype"], right["shape"], right["values"]), name


@pytest.mark.parametrize(("kind", "name"), FILES.items())
def test_single_files_and_prefixes(samples, kind: str, name: str):
    path = samples[kind] / name
    assert is_dump_file(path)
    assert tensors(read_dump(path)) == tensors(read_dump(samples[kind]))
    assert {record.name for record in read_tensor(path)} == {record.name for record in read_dump(path)}


def test_the_variables_of_a_saved_model(samples):
    assert len(read_dump(samples["saved_model"])) > 0
    assert len(read_graph(samples["saved_model"])) > 0
    assert read_graph(samples["saved_model"] / "saved_model.pb").kind == "tf"


def test_graphs_inside_runs(samples):
    (run,) = samples["tfdbg"].glob("run_*")
    assert "net/Add" in read_graph(run).ops
    with pytest.raises(DataError, match="is a folder"):
        read_graph(samples["npy"])
    with pytest.raises(DataError, match=r"is a fusion report \(.*\), not a graph"):
        read_graph(samples["fusion_result"] / "fusion_result_1.json")
    with pytest.raises(DataError, match="is a fusion switch file"):
        read_tensor(samples["fusion_switch"] / "fusion_switch.cfg")


def test_constants_of_a_compiled_model(samples):
    assert all(record.op_type for record in read_tensor(samples["om"] / "sample.om"))


def test_runs_of_a_folder(samples, tmp_path: Path):
    (run,) = samples["tf_record"].glob("run_*")
    shutil.copytree(run, tmp_path / run.name)
    assert tensors(read_dump(tmp_path)) == tensors(read_dump(run))
    shutil.copytree(run, tmp_path / "run_1706168000000001_2")
    with pytest.raises(DataError, match=r"holds 2 recorded runs, not one dump.*last is run_1706168000000001_2"):
        read_dump(tmp_path)


def test_lost_mapping_is_said_file_by_file(tmp_path: Path):
    (tmp_path / "12345").write_bytes(b"x" * 20)
    dump = read_dump(tmp_path)
    assert dump.records == ()
    assert "mapping.csv does not have" in dump.problems[0].reason


def test_two_archives_in_a_folder_are_not_guessed(samples, tmp_path: Path):
    for name in ("a.npz", "b.npz"):
        shutil.copy(samples["npz"] / "arrays.npz", tmp_path / name)
    with pytest.raises(DataError, match="holds no dump files"):
        read_dump(tmp_path)


def test_a_pipe_is_no_tensor(tmp_path: Path):
    os.mkfifo(tmp_path / "x")
    with pytest.raises(DataError, match="not opened"):
        read_tensor(tmp_path / "x")


def test_commands_take_them(samples, tmp_path: Path):
    from dumpers.settings import Settings
    from precision_tool import dispatch
    from precision_tool.workbench import Workbench

    def ask(line: str):
        return dispatch.parse_line(line).run(Workbench(Settings(root_dir=tmp_path)))

    with np.load(samples["npz"] / "arrays.npz") as archive:
        changed = {name: archive[name] for name in archive.files}
    name, first = next(
        (n, a) for n, a in changed.items() if a.dtype.kind == "f" and np.isfinite(a).all() and a.size > 1
    )
    changed[name] = first[::-1] * -3 + 7
    np.savez(tmp_path / "other.npz", **changed)
    same = ask(f"vc -lt {samples['npz']}/arrays.npz -rt {samples['npz']}/arrays.npz")
    assert same.exit_code == 0
    assert ask(f"vc -lt {tmp_path}/other.npz -rt {samples['npz']}/arrays.npz").exit_code == 1
    prefix = samples["checkpoint_v2"] / "model.ckpt-7"
    assert ask(f"nan {prefix}").data["dumps"][0]["origin"]["op"] == "bias"
    assert ask(f"vc -lt {prefix} -rt {samples['checkpoint_v1']}").exit_code in (0, 1)
    assert ask(f"pt {samples['torch_pt']}/model.pt").data["tensors"]
    (run,) = samples["tfdbg"].glob("run_*")
    assert ask(f"nan {run}").data["dumps"][0]["scanned"] > 0
    assert ask(f"nan {samples['tfdbg_v2']}").data["dumps"][0]["scanned"] > 0
    write_npy(tmp_path / "x.npy", np.zeros(2))
    with pytest.raises(DataError, match="a file that is no dump of its own"):
        ask(f"nan {tmp_path}/x.npy")


@pytest.mark.parametrize("suffix", ["pb", "quant"])
def test_reference_tensors_in_the_very_old_form(tmp_path: Path, suffix: str):
    """``<op>.<output>.<time>.pb``: what the vendor's comparison also takes as a reference."""
    message = dump_data()
    for values in ([1.0, 2.0], [3.0]):
        output = message.output.add(data_type=1, format=2, size=4 * len(values), data=np.float32(values).tobytes())
        output.shape.dim.append(len(values))
    both = message.SerializeToString()
    del message.output[0]
    (tmp_path / f"net_a.1.1706168000000002.{suffix}").write_bytes(both)
    (tmp_path / f"net_b.4.1706168000000003.{suffix}").write_bytes(message.SerializeToString())
    (tmp_path / f"net_c.5.1706168000000004.{suffix}").write_bytes(both)
    (tmp_path / f"net_d.0.1706168000000005.{suffix}").write_bytes(b"\x0a\x02")
    dump = read_dump(tmp_path)
    assert [(r.op, r.io, r.slot, r.device, r.timestamp_us, r.load().tolist()) for r in dump] == [
        ("net_a", "output", 1, "tf", 1706168000000002, [3.0]),
        ("net_b", "output", 4, "tf", 1706168000000003, [3.0]),
    ]
    assert {problem.path.name.partition(".")[0] for problem in dump.problems} == {"net_c", "net_d"}
    assert "holds 2 outputs, its name says output 5" in {problem.reason for problem in dump.problems}
    file = tmp_path / f"net_b.4.1706168000000003.{suffix}"
    assert identify(file).kind.name == "tf_npy"
    (record,) = read_tensor(file)
    assert (record.op, record.slot, record.load().tolist()) == ("net_b", 4, [3.0])
    with pytest.raises(DataError, match=rf"net_d.*{suffix}: is not a dump file"):
        read_tensor(tmp_path / f"net_d.0.1706168000000005.{suffix}")


def test_a_damaged_member_is_told_beside_the_whole_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bad.npy", b"\x93NUMPY\x01\x00 no header")
        np.save(good := io.BytesIO(), np.arange(3))
        archive.writestr("good.npy", good.getvalue())
    (record,) = read_tensor(path)
    assert record.load().tolist() == [0, 1, 2]
    assert "a.npz" in caplog.text
    assert "bad" in caplog.text
