"""``info``: what a path is, and figures over the framework's layout."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.npu_dump import HeaderExtras, write_npu_dump
from dumpers.formats.npy import write_npy

TIME = 1706168000000000


def only(result):
    (path,) = result.data["paths"]
    return path


def test_a_private_layout_counts_without_padding(shared_data: Path, tmp_path: Path, ask) -> None:
    path = shared_data / "npu_samples/derived/dumps/MatMulV2.fmt_fractal_nz.11.3.1706168000000002"
    result = ask(f"info {path}", tmp_path)
    found = only(result)
    (tensor,) = found["tensors"]
    assert result.exit_code == 0
    assert (found["kind"], tensor["layout"], tensor["shape"], tensor["original_shape"]) == (
        "npu_dump", "FRACTAL_NZ", [2, 3, 2, 16, 16], [2, 20, 40],
    )  # fmt: skip
    values = np.arange(1600).astype(np.float16).astype(np.float64)
    expected = {"count": 1600, "nan": 0, "inf": 0, "min": 0.0, "max": float(values.max()), "zero_share": 1 / 1600}
    assert {key: tensor["statistics"][key] for key in expected} == expected
    assert tensor["statistics"]["mean"] == pytest.approx(values.mean(), abs=1e-9)
    header = found["header"]
    assert (header["file_name"]["task_id"], header["file_name"]["stream_id"], header["version"]) == (11, 3, "2.0")
    assert header["outputs"][0]["size"] == 6176


def test_values_against_numpy(tmp_path: Path, ask) -> None:
    random = np.random.default_rng(3)
    big = random.normal(size=(1200, 1300)).astype(np.float32)
    big[5, 7], big[9, 1], big[0, :200] = np.nan, -np.inf, 0
    arrays = {
        "big": big,
        "fortran": np.asfortranarray(big[:, :1000].astype(np.float64)),
        "ids": random.integers(-(2**62), 2**62, size=1_500_000),
        "half": np.array([1, -2.5, 0, np.inf]).astype(ml_dtypes.bfloat16),
        "flags": np.array([True, False, False]),
        "complex": np.array([1 + 2j, 0, complex(np.nan, 1)], np.complex64),
        "empty": np.zeros((0, 4), np.float32),
    }
    for name, array in arrays.items():
        write_npy(tmp_path / f"{name}.npy", array)
    (tmp_path / "half.npy").unlink()
    write_npu_dump(tmp_path / f"A.half.1.0.{TIME}", op_name="", inputs=[], outputs=[arrays["half"]], dump_time_us=0)
    for name, array in arrays.items():
        path = tmp_path / (f"A.half.1.0.{TIME}" if name == "half" else f"{name}.npy")
        facts = only(ask(f"info {path}", tmp_path))["tensors"][0]["statistics"]
        parts = array.astype(np.complex128).view(np.float64) if array.dtype.kind == "c" else array.astype(np.float64)
        finite = parts[np.isfinite(parts)]
        wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        assert facts["count"] == array.size
        assert facts["nan"] == int(np.isnan(wide).sum())
        assert facts["inf"] == int(np.isinf(wide).sum())
        if array.size:
            assert facts["mean"] == pytest.approx(finite.mean(), rel=1e-9, abs=0)
            assert facts["zero_share"] == pytest.approx(float((wide == 0).mean()), abs=1e-12)
            exact = array.dtype.kind in "iub"
            assert (facts["min"], facts["max"]) == (
                (int(array.min()), int(array.max())) if exact else (finite.min(), finite.max())
            )
        else:
            assert facts["min"] is facts["mean"] is facts["zero_share"] is None


def test_memory_does_not_grow_with_a_plain_tensor(tmp_path: Path, ask) -> None:
    path = tmp_path / "large.npy"
    count = 60_000_000
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}".ljust(117).encode() + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        file.truncate(10 + len(header) + 4 * count)  # a hole: no disk is taken
    ask(f"info {path} --no-values", tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    statistics = only(ask(f"info {path}", tmp_path))["tensors"][0]["statistics"]
    assert (statistics["count"], statistics["zero_share"]) == (count, 1.0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000, "kilobytes"


def test_headers_only(tmp_path: Path, ask) -> None:
    path = tmp_path / "a.npy"
    write_npy(path, np.arange(6, dtype=np.float32).reshape(2, 3))
    (tensor,) = only(ask(f"info {path} --no-values", tmp_path))["tensors"]
    assert "statistics" not in tensor
    assert (tensor["dtype"], tensor["shape"], tensor["bytes"]) == ("float32", [2, 3], 24)


def test_every_field_of_a_dump(tmp_path: Path, ask) -> None:
    path = tmp_path / f"Add.a_b.3.1.{TIME}"
    extras = HeaderExtras(attrs={"k": "v"}, buffers=[b"12345"], spaces=[b"log"], dfx_message="hello")
    write_npu_dump(path, op_name="a/b", inputs=[np.ones(2)], outputs=[np.zeros(3)], dump_time_us=7, extras=extras)
    header = only(ask(f"info {path}", tmp_path))["header"]
    assert (header["op_name"], header["dump_time"], header["dfx_message"]) == ("a/b", 7, "hello")
    assert header["attributes"] == {"k": "v"}
    assert [(item["name"], item["size"] >= 3) for item in header["buffers"]] == [("l1buffer", True), ("space", True)]
    assert header["inputs"][0]["dtype"] == "float64"


def test_a_compiled_model(shared_data: Path, tmp_path: Path, ask) -> None:
    found = only(ask(f"info {shared_data}/npu_samples/vae_om/hh_om.om", tmp_path))
    (graph,) = found["graphs"]
    counts = (graph["ops"], graph["data_edges"], graph["control_edges"], graph["absent_inputs"])
    assert counts == (46, 47, 5, 4)
    assert (graph["types"]["Const"], len(graph["types"]), graph["streams"]) == (17, 17, [0, 1])
    assert graph["passes"]["TbeFullyconnectionElemwiseDequantFusionPass"] == 2
    assert found["tensor_count"] == 17
    second = only(ask(f"info {shared_data}/npu_samples/ddnet_om/out_model_def_partition.bin", tmp_path))["graphs"][0]
    edges = (second["ops"], second["data_edges"], second["control_edges"], second["absent_inputs"])
    assert (edges, second["fusion_failed"]) == ((194, 194, 4, 37), 30)


def test_a_folder_counts_kinds_and_names_the_rest(tmp_path: Path, ask) -> None:
    leaf = tmp_path / "in/20240102000000/0/g/1/0"
    leaf.mkdir(parents=True)
    write_npu_dump(leaf / f"Add.a.1.0.{TIME}", op_name="", inputs=[], outputs=[np.ones(2)], dump_time_us=0)
    (leaf / f"Add.bad.2.0.{TIME}").write_bytes(b"\xff" * 50)
    (leaf / "readme.txt").write_text("x")
    result = ask(f"info {tmp_path}/in", tmp_path)
    found = only(result)
    assert result.exit_code == 3
    assert found["census"] == {"NPU dump file": 2, "not recognised": 1}
    assert found["tensor_count"] == 1
    assert any("Add.bad" in problem for problem in result.problems)
    assert any("readme.txt" in note for note in result.notes)


def test_lists_are_cut_with_their_number(tmp_path: Path, ask) -> None:
    for index in range(30):
        write_npy(tmp_path / f"op_{index}.0.{TIME}.npy", np.zeros(1))
    result = ask(f"info {tmp_path} --limit 4", tmp_path)
    assert (only(result)["tensor_count"], len(only(result)["tensors"])) == (30, 4)
    assert "30 tensors, the first 4 shown" in next(block.title for block in result.blocks if "tensors" in block.title)
    assert len(only(ask(f"info {tmp_path} --limit 0", tmp_path))["tensors"]) == 30


def test_unknown_and_missing(shared_data: Path, tmp_path: Path, ask) -> None:
    result = ask(f"info {shared_data}/npu_samples/vae_om/hh.bin", tmp_path)
    assert result.exit_code == 3
    assert "78400 of float32" in only(result)["guess"]
    (tmp_path / "empty").touch()
    assert "empty" in only(ask(f"info {tmp_path}/empty", tmp_path))["guess"]
    csv = ask(f"info {shared_data}/npu_samples/other_csv/compare_result_20230703104808.csv", tmp_path)
    assert "some other program" in only(csv)["guess"]
    with pytest.raises(DataError, match="no such file or folder"):
        ask(f"info {tmp_path}/none", tmp_path)
    with pytest.raises(UsageError, match="no path"):
        ask("info", tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="not opened"):
        ask(f"info {tmp_path}/pipe", tmp_path)


def test_a_pickle_is_never_opened(shared_data: Path, tmp_path: Path, ask) -> None:
    result = ask(f"info {shared_data}/npu_samples/npy/det1.npy", tmp_path)
    assert result.exit_code == 3
    assert "holds Python objects" in result.problems[0]


def test_fc31_each_is_refused_with_what_it_claims(shared_data: Path, tmp_path: Path, ask) -> None:
    folder = shared_data / "field_cases/FC31"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in sorted(folder.iterdir()):
        result = ask(f"info {path}", tmp_path)
        assert result.exit_code == 3
        assert path.name in result.problems[0]
        assert "claims" in result.problems[0]
    whole = ask(f"info {folder}", tmp_path)
    assert (whole.exit_code, len(whole.problems)) == (3, 4)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kilobytes"


def test_fc14_raw_data_are_what_the_user_says(shared_data: Path, tmp_path: Path, ask) -> None:
    path = shared_data / "field_cases/FC14/bf16_void.npy"
    unknown = only(ask(f"info {path}", tmp_path))["tensors"][0]
    assert (unknown["dtype"], unknown["note"]) == ("undefined", "two-byte data of unknown type")
    known = only(ask(f"info {path} --dtype bfloat16", tmp_path))["tensors"][0]
    assert (known["dtype"], known["statistics"]["min"], known["statistics"]["max"]) == ("bfloat16", -2.5, 65536)
    wrong = ask(f"info {path} --dtype float32", tmp_path)
    assert (wrong.exit_code, "not float32" in wrong.problems[0]) == (3, True)
    assert ask(f"info {path} --dtype nonsense", tmp_path).exit_code == 3


def test_fc02_names_that_begin_alike_on_disk_are_two_tensors(tmp_path: Path, ask) -> None:
    """``tower/out`` and ``tower_out`` have the same flattened name; the index tells them apart, and so does ``pt``."""
    folder = tmp_path / "precision_data/tf/dump"
    folder.mkdir(parents=True)
    index = "file,op,output,op_type,step,timestamp_us,dtype,shape,note\n"
    for number, op in enumerate(("tower/out", "tower_out")):
        file = f"tower_out.0.{TIME + number}.npy"
        write_npy(folder / file, np.full(2, number + 2, np.float32))
        index += f"{file},{op},0,Identity,0,{TIME + number},float32,2,\n"
    (folder / "index.csv").write_text(index)
    listed = {t["op"]: t["statistics"]["min"] for t in only(ask(f"info {folder}", tmp_path))["tensors"]}
    assert listed == {"tower/out": 2, "tower_out": 3}
    for op, value in listed.items():
        (shown,) = ask(f"pt {op}", tmp_path).data["tensors"]
        assert (shown["tensor"], shown["max"]) == (f"{op}:output:0", value)


def test_a_member_that_cannot_be_read_is_named(tmp_path: Path, ask) -> None:
    np.savez(tmp_path / "a.npz", good=np.arange(3.0), bad=np.array([{}], dtype=object))
    result = ask(f"info {tmp_path}/a.npz", tmp_path)
    assert result.exit_code == 3
    assert [tensor["op"] for tensor in only(result)["tensors"]] == ["good"]
    (problem,) = result.problems
    assert "bad.npy" in problem
    assert "Python objects" in problem


def test_the_folder_of_one_time_is_a_dump(tmp_path: Path, ask) -> None:
    leaf = tmp_path / "20240102000000/0/g/1/0"
    leaf.mkdir(parents=True)
    array = np.ones((2, 3), np.float32)
    write_npu_dump(leaf / f"Add.a.1.0.{TIME}", op_name="", inputs=[], outputs=[array], dump_time_us=TIME)
    found = only(ask(f"info {tmp_path}/20240102000000", tmp_path))
    assert (found["kind"], found["tensor_count"]) == ("npu_tree", 1)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that cannot be read from its start")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, ask) -> None:
    with pytest.raises(DataError, match=r"/proc/self/mem: cannot be read"):
        ask("info /proc/self/mem", tmp_path)
