"""``import``: everything into its place, nothing overwritten or mixed, and nothing half done."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.importing import place

TIME = 1706168000000000


def tree(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir() or path.is_symlink()
    )


def dump(folder: Path, name: str, value: float = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    array = np.full((2, 3), value, np.float32)
    write_npu_dump(folder / name, op_name="", inputs=[array], outputs=[array], dump_time_us=TIME)
    return folder / name


@pytest.fixture
def vae(shared_data: Path) -> Path:
    return shared_data / "npu_samples/derived/vae_compare"


def test_loose_pieces_make_a_whole_tree(vae: Path, tmp_path: Path, ask) -> None:
    """A real comparison handed over in pieces: afterwards no command needs a path, and the known culprit is found."""
    dumps = " ".join(str(path) for path in sorted((vae / "npu/20240125153144/0/hh_om_0/1/0").iterdir()))
    result = ask(f"import {dumps} {vae}/tf_dump {vae}/hh_om_graph.json {vae}/result_20240125160000.csv", tmp_path)
    assert result.exit_code == 0
    assert {(item["kind"], item["files"]) for item in result.data["placed"]} == {
        ("npu_dump", 6), ("tf_npy", 7), ("ge_json", 2), ("result_csv", 1),
    }  # fmt: skip
    data = tmp_path / "precision_data"
    assert len(list((data / "npu/debug_0/dump/20240125153144/0/hh_om_0/1/0").iterdir())) == 6
    assert (data / "temp/vector_compare/20240125160000/result_20240125160000.csv").is_symlink()
    compared = ask("vc", tmp_path)
    assert compared.exit_code == 1
    assert [row[2] for row in compared.blocks[0].rows] == ["recognition/w_mean/MatMuladd"]
    assert "te_fused_op_mat_mul_add" in "\n".join(ask("ni recognition/w_mean/MatMuladd", tmp_path).blocks[0].lines)
    assert len(ask("ls dump", tmp_path).data["runs"]["debug_0"]["files"]) == 6
    assert "recognition/w_mean/MatMuladd" in ask("verdict", tmp_path).title
    assert ask("vcs -f " + str(data / "temp/vector_compare/20240125160000"), tmp_path).exit_code == 1


def test_a_mixed_tree_takes_one_run_and_names_the_rest(vae: Path, tmp_path: Path, ask) -> None:
    result = ask(f"import {vae}", tmp_path)
    assert result.exit_code == 0
    refused = {Path(item["path"]).relative_to(vae).parts[0]: item["reason"] for item in result.data["not_placed"]}
    assert set(refused) == {"npu_debug_1", "expected_convert"}
    assert all("never mixed" in reason and "--name" in reason for reason in refused.values())
    second = ask(f"import {vae}/npu_debug_1 --name debug_1", tmp_path)
    assert second.data["placed"][0]["to"].endswith("npu/debug_1/dump/20240124110000/0/hh_om_0/1/0")
    assert ask("ls dump", tmp_path).data["runs"].keys() == {"debug_0", "debug_1"}


def test_again_changes_nothing(tmp_path: Path, ask) -> None:
    source = dump(tmp_path / "in/20240102000000/0/g/1/0", f"Add.a.1.0.{TIME}").parent
    write_npy(tmp_path / f"in/a.0.{TIME}.npy", np.zeros(3))
    for option in ("", " --copy"):
        root = tmp_path / f"root{option.strip()}"
        root.mkdir()
        first = ask(f"import {tmp_path}/in{option}", root)
        before = tree(root)
        stamps = {name: os.lstat(root / name).st_mtime_ns for name in before}
        again = ask(f"import {tmp_path}/in{option}", root)
        assert (first.data["made"], again.data["made"], again.exit_code) == (2, 0, 0)
        assert {item["how"] for item in again.data["placed"]} == {"there already"}
        assert {name: os.lstat(root / name).st_mtime_ns for name in tree(root)} == stamps
        target = root / f"precision_data/npu/debug_0/dump/20240102000000/0/g/1/0/Add.a.1.0.{TIME}"
        assert target.is_symlink() == (not option)
        assert target.read_bytes() == (source / target.name).read_bytes()


def test_pieces_of_one_dump_may_come_one_by_one(tmp_path: Path, ask) -> None:
    one, two = (dump(tmp_path / "in", f"Add.{op}.1.0.{TIME + index}") for index, op in enumerate("ab"))
    ask(f"import {two}", tmp_path)
    result = ask(f"import {one}", tmp_path)
    assert result.exit_code == 0
    leaf = tmp_path / "precision_data/npu/debug_0/dump/20240125073320/0/graph/1/0"
    assert sorted(os.listdir(leaf)) == [one.name, two.name]
    assert [row["name"] for row in ask("ls dump", tmp_path).data["runs"]["debug_0"]["files"]] == ["a", "b"]


def test_other_data_are_never_overwritten_or_mixed(tmp_path: Path, ask) -> None:
    dump(tmp_path / "one/20240102000000/0/g/1/0", f"Add.a.1.0.{TIME}", 1)
    dump(tmp_path / "two/20240102000000/0/g/1/0", f"Add.a.1.0.{TIME}", 2)
    dump(tmp_path / "three/20240103000000/0/g/1/0", f"Add.b.1.0.{TIME}", 3)
    ask(f"import {tmp_path}/one", tmp_path)
    before = tree(tmp_path / "precision_data")
    for other, said in (("two", "holds other data"), ("three", "already holds another dump")):
        result = ask(f"import {tmp_path}/{other}", tmp_path)
        assert result.exit_code == 3
        (refused,) = result.data["not_placed"]
        assert said in refused["reason"]
        assert "--name" in refused["reason"]
        assert tree(tmp_path / "precision_data") == before
    assert ask(f"import {tmp_path}/two --name debug_1", tmp_path).exit_code == 0
    reference = tmp_path / "ref"
    reference.mkdir()
    write_npy(reference / f"x.0.{TIME}.npy", np.zeros(2))
    other = tmp_path / "ref2"
    other.mkdir()
    write_npy(other / f"y.0.{TIME}.npy", np.zeros(2))
    both = ask(f"import {reference} {other}", tmp_path)
    assert [Path(item["path"]).parent.name for item in both.data["not_placed"]] == ["ref2"]
    assert "already holds another dump" in ask(f"import {other}", tmp_path).data["not_placed"][0]["reason"]


def test_what_has_no_place_is_said(samples, tmp_path: Path, ask) -> None:
    (tmp_path / "readme.txt").write_text("x")
    graph = next(samples["tfdbg"].rglob("_tfdbg_graph_*"))
    result = ask(f"import {tmp_path}/readme.txt {tmp_path}/none '{graph}'", tmp_path)
    assert result.exit_code == 3
    reasons = [item["reason"] for item in result.data["not_placed"]]
    assert [reason.split(";")[0] for reason in reasons[:1]] == ["no such file or folder"]
    assert sum("not recognised" in reason for reason in reasons) == 1
    assert sum("give the folder run_*" in reason for reason in reasons) == 1
    assert not (tmp_path / "precision_data").exists()
    assert result.problems


def test_sides_that_files_do_not_tell(samples, tmp_path: Path, ask) -> None:
    for kind in ("npz", "torch_pt", "msprobe", "npy", "hdf5"):
        silent = ask(f"import {samples[kind]}", tmp_path / kind)
        assert silent.exit_code == 3
        assert "--as npu or --as tf" in silent.data["not_placed"][0]["reason"], kind
    for kind in ("npz", "torch_pt", "msprobe", "npy"):
        root = tmp_path / f"tf_{kind}"
        assert ask(f"import {samples[kind]} --as tf", root).exit_code == 0, kind
        assert ask("nan", root).data["dumps"][0]["scanned"] > 0
    assert ask(f"import {samples['hdf5']} --as npu", tmp_path / "h").data["placed"][0]["to"].endswith("pt/npu")
    assert ask(f"import {samples['msprobe']} --as npu --name other", tmp_path / "m").exit_code == 0
    assert "npu/other/dump" in "\n".join(tree(tmp_path / "m"))


def test_a_whole_precision_data_keeps_its_runs(two_runs, tmp_path: Path, ask) -> None:
    root = tmp_path / "new"
    root.mkdir()
    result = ask(f"import {two_runs.data}", root)
    assert result.exit_code == 0
    assert not result.data["not_placed"]
    runs = ask("ls dump", root).data["runs"]
    assert {name: len(run["files"]) for name, run in runs.items()} == {"debug_0": 3, "debug_1": 3}
    assert ask("vc", root).exit_code == 1
    again = ask(f"import {root}/precision_data", root)
    assert again.exit_code == 3
    assert "already" in again.data["not_placed"][0]["reason"]


# what goes wrong on the way


def test_an_interruption_leaves_nothing(tmp_path: Path, ask, monkeypatch) -> None:
    for index in range(5):
        dump(tmp_path / "in", f"Add.a{index}.1.0.{TIME}")
    calls = []

    def interrupted(step, *, copy):
        calls.append(step)
        if len(calls) == 4:
            raise KeyboardInterrupt
        original(step, copy=copy)

    original = place._put
    monkeypatch.setattr(place, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(f"import {tmp_path}/in", tmp_path)
    assert not (tmp_path / "precision_data").exists()
    monkeypatch.undo()
    assert ask(f"import {tmp_path}/in", tmp_path).data["made"] == 5


def test_a_system_without_links_says_so(tmp_path: Path, ask, monkeypatch) -> None:
    dump(tmp_path / "in", f"Add.a.1.0.{TIME}")

    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted", str(source), None, str(target))

    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(DataError, match=r"cannot be linked: Operation not permitted; nothing was imported, --copy"):
        ask(f"import {tmp_path}/in", tmp_path)
    assert not (tmp_path / "precision_data").exists()
    assert ask(f"import {tmp_path}/in --copy", tmp_path).exit_code == 0


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", "x\n", "n" * 300, "../../etc", " x"])
def test_hostile_run_names(tmp_path: Path, ask, name: str) -> None:
    dump(tmp_path / "in", f"Add.a.1.0.{TIME}")
    with pytest.raises(UsageError, match="no name for a folder"):
        ask(f"import {tmp_path}/in --name '{name}'", tmp_path)


def test_hostile_file_names_stay_in_the_tree(tmp_path: Path, ask) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    graph = '{"name": "g", "version": 1, "graph": [{"name": "g", "op": [{"name": "a", "type": "Add"}]}]}'
    names = ["..json", "a" * 240 + ".json", "\x1b[2J.json", "層.json", "-rf.json"]
    for name in names:
        (folder / name).write_text(graph)
    (folder / f"Add.{'x' * 235}.1.0.{TIME}"[:255]).write_bytes(b"")
    os.symlink("/etc/passwd", folder / "passwd")
    result = ask(f"import {folder}", tmp_path)
    placed = tree(tmp_path / "precision_data")
    assert all(path.startswith("npu/debug_0/") for path in placed)
    assert all(len(Path(path).name.encode()) <= 255 for path in placed)
    assert [Path(item["path"]).name for item in result.data["not_placed"] if "not recognised" in item["reason"]] == [
        "passwd"
    ]


def test_a_copied_run_takes_no_links_out_of_it(samples, tmp_path: Path, ask) -> None:
    run = tmp_path / "in/run_1706168000000000_1"
    shutil.copytree(next(samples["tfdbg"].glob("run_*")), run)
    secret = tmp_path / "secret"
    secret.write_text("x")
    os.symlink(secret, run / "leak")
    os.mkfifo(run / "pipe")
    assert ask(f"import {run} --copy", tmp_path).exit_code == 0
    copied = tmp_path / "precision_data/tf/tf_debug" / run.name
    assert not copied.is_symlink()
    assert not (copied / "leak").exists()
    assert not (copied / "pipe").exists()
    assert ask(f"nan {copied}", tmp_path).data["dumps"][0]["scanned"] > 0


def test_rings_of_links_end(tmp_path: Path, ask) -> None:
    dump(tmp_path / "in/20240102000000/0/g/1/0", f"Add.a.1.0.{TIME}")
    os.symlink(tmp_path / "in", tmp_path / "in/20240102000000/loop")
    assert ask(f"import {tmp_path}/in", tmp_path).data["made"] == 1


def test_many_files_are_placed_in_proportion(tmp_path: Path, ask) -> None:
    import time

    first = dump(tmp_path / "in", f"Add.op_0.1.0.{TIME}")
    for index in range(1, 2000):
        os.link(first, first.with_name(f"Add.op_{index}.1.0.{TIME}"))
    start = time.process_time()
    assert ask(f"import {tmp_path}/in", tmp_path).data["made"] == 2000
    assert time.process_time() - start < 3


def test_an_archive_beside_plain_files_is_a_dump_of_its_own(tmp_path: Path, ask) -> None:
    source = tmp_path / "in"
    source.mkdir()
    write_npy(source / "a.npy", np.zeros(3))
    np.savez(source / "z.npz", b=np.ones(2))
    result = ask(f"import {source} --as tf", tmp_path)
    assert [item["kind"] for item in result.data["placed"]] == ["npy"]
    (refused,) = result.data["not_placed"]
    assert refused["path"].endswith("z.npz")
    assert "never mixed" in refused["reason"]


def test_an_empty_folder_is_said_to_be_one(tmp_path: Path, ask) -> None:
    (tmp_path / "in").mkdir()
    result = ask(f"import {tmp_path}/in", tmp_path)
    assert result.exit_code == 3
    assert (
        list(result.problems)
        == list(result.notes)
        == [f"{tmp_path}/in: holds no file; give the folder that the dump was written to"]
    )
