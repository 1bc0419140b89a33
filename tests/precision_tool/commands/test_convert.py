"""``convert`` and ``dc``: what the public converter wrote, bit for bit, and what it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.npu_dump import HeaderExtras, write_npu_dump
from dumpers.formats.registry import read_dump, read_graph

TIME = 1706168000000000
LAYOUTS = {"TransData.fmt_nc1hwc0": "NCHW", "MatMulV2.fmt_fractal_nz": "ND", "Conv2D.fmt_fractal_z": "HWCN"}


def same(expected: Path, found: Path, *, dtype: bool = True) -> None:
    one, two = np.load(expected), np.load(found)
    assert one.shape == two.shape, expected.name
    assert one.dtype == two.dtype or not dtype, expected.name
    assert one.tobytes() == two.tobytes() or np.array_equal(one, two, equal_nan=True), expected.name


def test_dc_writes_what_the_public_converter_wrote(shared_data: Path, tmp_path: Path, ask) -> None:
    derived = shared_data / "npu_samples/derived"
    result = ask(f"dc {derived}/dumps -o {tmp_path}/out", tmp_path)
    assert result.exit_code == 0
    for dump, layout in LAYOUTS.items():
        (file,) = (derived / "dumps").glob(f"{dump}.*")
        ask(f"dc {file} -f {layout} -o {tmp_path}/out", tmp_path)
    expected = sorted(path for path in (derived / "dumps_expected").iterdir() if path.suffix in (".npy", ".json"))
    assert len(expected) > 20
    for path in expected:
        found = tmp_path / "out" / path.name
        if path.suffix == ".json":
            assert found.read_bytes() == path.read_bytes()
        else:  # of an empty tensor the public converter forgets the type
            same(path, found, dtype="edge_shapes.14.3.1706168000000005.input.0" not in path.name)
    # Where the README says that the public tool is wrong:
    hif8, e5m2, e4m3 = (np.load(path) for path in sorted((tmp_path / "out").glob("Custom.odd_dtypes.*output*")))
    assert hif8[:9].tolist() == [0, 1, 1.5, 2, 0.5, 4, 16, 256, np.inf]
    assert np.isnan(hif8[9])
    assert hif8[10:].tolist() == [-np.inf, 2**-22, 2**-16, -1]
    assert e5m2[[0, 1, 2, 3, 4, 5, 7]].tolist() == [0, 1, -1, 57344, np.inf, -np.inf, 2**-16]
    assert e4m3[[0, 1, 2, 3, 6, 7]].tolist() == [0, 1, -1, 448, 2**-9, 2**-6]
    assert np.isnan([e5m2[6], e4m3[4], e4m3[5]]).all()


def test_dc_of_a_whole_run(shared_data: Path, tmp_path: Path, ask) -> None:
    vae = shared_data / "npu_samples/derived/vae_compare"
    ask(f"dc {vae}/npu -o {tmp_path}/out", tmp_path)
    expected = sorted((vae / "expected_convert").iterdir())
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [path.name for path in expected]
    for path in expected:
        same(path, tmp_path / "out" / path.name)


def test_convert_restores_the_original_layout_and_says_so(shared_data: Path, tmp_path: Path, ask) -> None:
    dumps = shared_data / "npu_samples/derived/dumps"
    result = ask(f"convert {dumps} -o {tmp_path}/out", tmp_path)
    assert sum(note.endswith("undone") for note in result.notes) == 3
    (nz,) = (tmp_path / "out").glob("MatMulV2.*.2x20x40.npy")
    assert np.load(nz).ravel().tolist() == np.arange(1600).astype(np.float16).tolist()
    (five,) = (tmp_path / "out").glob("TransData.fmt_nc1hwc0.*.output.0.2x3x4x5.npy")
    assert np.load(five).ravel().tolist() == list(range(120))
    stored = ask(f"convert {dumps} --stored -o {tmp_path}/stored", tmp_path)
    assert not any(note.endswith("undone") for note in stored.notes)
    assert [np.load(path).shape for path in (tmp_path / "stored").glob("MatMulV2.*")] == [(2, 3, 2, 16, 16)]


@pytest.mark.parametrize(("layout", "axes"), [("NCHW", (0, 1, 2, 3)), ("NHWC", (0, 2, 3, 1)), ("HWCN", (2, 3, 1, 0))])
def test_another_layout_is_a_transpose(shared_data: Path, tmp_path: Path, ask, layout: str, axes) -> None:
    """The original shape of the header is NCHW; cropping with it as if it were the wanted layout gives garbage."""
    (dump,) = (shared_data / "npu_samples/derived/dumps").glob("TransData.fmt_nc1hwc0.*")
    result = ask(f"convert {dump} -f {layout} -o {tmp_path}/out", tmp_path)
    wanted = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5).transpose(axes)
    for path in result.files:
        assert np.array_equal(np.load(path), wanted), path.name


def test_raw_bytes_have_their_type_in_the_name(shared_data: Path, tmp_path: Path, ask) -> None:
    (dump,) = (shared_data / "npu_samples/derived/dumps").glob("TransData.fmt_nc1hwc0.*")
    result = ask(f"convert {dump} --raw -o {tmp_path}/out", tmp_path)
    (file,) = [path for path in result.files if ".output." in path.name]
    assert file.name.endswith(".output.0.640.float32.NC1HWC0.bin")  # as the public converter named it
    assert np.fromfile(file, "<f4").reshape(2, 1, 4, 5, 16)[1, 0, 3, 4, :3].tolist() == [79, 99, 119]


def test_buffers_and_damage(tmp_path: Path, ask) -> None:
    source = tmp_path / "in"
    source.mkdir()
    extras = HeaderExtras(buffers=[b"12345"], spaces=[b"log"])
    path = source / f"Add.a.1.0.{TIME}"
    write_npu_dump(path, op_name="", inputs=[], outputs=[np.ones(2)], dump_time_us=0, extras=extras)
    (source / f"Add.bad.2.0.{TIME}").write_bytes(b"\xff" * 40)
    result = ask(f"convert {source} -o {tmp_path}/out", tmp_path)
    out = tmp_path / "out"
    assert result.exit_code == 3
    assert (out / f"{path.name}.l1buffer.0.bin").read_bytes().startswith(b"12345")
    assert (out / f"{path.name}.space.0.bin").read_bytes().startswith(b"log")
    assert (out / "convert_failed_file_list.txt").read_text() == f"{source}/Add.bad.2.0.{TIME}\n"
    assert "Add.bad" in result.problems[0]
    (source / f"Add.bad.2.0.{TIME}").unlink()
    assert ask(f"convert {source} -o {tmp_path}/out", tmp_path).exit_code == 0
    assert not (out / "convert_failed_file_list.txt").exists(), "an old list would accuse the new run"


def test_names_too_long_are_found_again(tmp_path: Path, ask) -> None:
    name = f"Add.{'x' * 225}.1.0.{TIME}"
    write_npu_dump(tmp_path / name, op_name="", inputs=[], outputs=[np.arange(3.0)], dump_time_us=0)
    result = ask(f"convert {tmp_path / name} -o {tmp_path}/out", tmp_path)
    (file,) = [path for path in result.files if path.suffix == ".npy"]
    assert len(file.name) == 32 + len(".npy")
    (record,) = read_dump(tmp_path / "out")
    assert (record.op, record.load().tolist()) == ("x" * 225, [0, 1, 2])


def test_newest_dump_or_all(tmp_path: Path, ask) -> None:
    for day, step in (("20240101000000", 0), ("20240102000000", 0), ("20240102000000", 1)):
        leaf = tmp_path / "in" / day / "0/g/1" / str(step)
        leaf.mkdir(parents=True)
        write_npu_dump(leaf / f"Add.a.1.0.{TIME}", op_name="", inputs=[], outputs=[np.full(1, step)], dump_time_us=0)
    one = ask(f"convert {tmp_path}/in -o {tmp_path}/one", tmp_path)
    assert [path.parent.name for path in one.files] == ["one"]
    assert sum("--all" in note for note in one.notes) == 2
    every = ask(f"convert {tmp_path}/in --all -o {tmp_path}/all", tmp_path)
    assert sorted(path.parent.relative_to(tmp_path / "all").as_posix() for path in every.files) == [
        "20240101000000/0/g/1/0", "20240102000000/0/g/1/0", "20240102000000/0/g/1/1",
    ]  # fmt: skip


def test_other_kinds_become_a_reference_dump(samples, tmp_path: Path, ask) -> None:
    for kind in ("npz", "torch_pt", "hdf5", "checkpoint_v2", "checkpoint_v1", "tfdbg", "msprobe"):
        ask(f"convert {samples[kind]} -o {tmp_path}/{kind}", tmp_path)
        before = {(r.op, r.slot): r for r in read_dump(samples[kind]) if r.source and r.dtype != "string"}
        after = {(r.op, r.slot): r for r in read_dump(tmp_path / kind)}
        assert before
        for name, record in before.items():
            assert np.array_equal(record.load(), after[name].load(), equal_nan=record.dtype.startswith("f")), (
                kind,
                name,
            )
            assert record.shape == after[name].shape


def test_graphs_become_json(shared_data: Path, tmp_path: Path, ask) -> None:
    text = shared_data / "npu_samples/derived/ge_proto_00000000_Build.txt"
    om = shared_data / "npu_samples/vae_om/hh_om.om"
    result = ask(f"convert {text} {om} -o {tmp_path}/out", tmp_path)
    assert [path.name for path in result.files] == ["ge_proto_00000000_Build.txt.json", "hh_om.om.json"]
    for path, source in zip(result.files, (text, om), strict=True):
        made, known = read_graph(path), read_graph(source)
        assert list(made.ops) == list(known.ops)
        assert all(made.ops[name].inputs == known.ops[name].inputs for name in known.ops)


def test_dc_by_op_and_by_file_name(data, ask) -> None:
    by_op = ask("dc dense/Relu", data.root)
    folder = data.data / "temp/decode/dump_convert"
    assert [path.parent for path in by_op.files] == [folder, folder]
    assert np.array_equal(np.load(next(p for p in by_op.files if "output" in p.name)), data.values["dense/Relu"] * 1.5)
    assert ask(f"dc -n {data.file('Relu').name}", data.root).files == by_op.files
    with pytest.raises(DataError, match="dense/Relu"):
        ask("dc dense/Rely", data.root)
    assert ask("pt Relu.dense_Relu", data.root).data["tensors"]


def test_wrong_use(shared_data: Path, tmp_path: Path, ask) -> None:
    with pytest.raises(UsageError, match="no layout"):
        ask(f"convert {tmp_path} -f NCDHWX", tmp_path)
    with pytest.raises(UsageError, match="contradict"):
        ask(f"convert {tmp_path} -f NCHW --stored", tmp_path)
    with pytest.raises(DataError, match="is a fusion report"):
        ask(f"convert {shared_data}/npu_samples/fusion_result/ieg.json", tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        ask(f"convert {tmp_path}/none", tmp_path)
    with pytest.raises(DataError, match="not recognised"):
        ask(f"convert {shared_data}/npu_samples/vae_om/hh.bin", tmp_path)
