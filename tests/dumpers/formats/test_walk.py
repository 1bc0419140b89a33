"""Walking, ordering and choosing folders."""

from __future__ import annotations

import os
from pathlib import Path

from dumpers.formats.walk import choose_leaf, natural, step_of, walk_folders


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_links_are_followed_and_loops_end(tmp_path: Path):
    real = tmp_path / "elsewhere"
    touch(real, "x", "deep/y")
    root = tmp_path / "root"
    touch(root, "a")
    os.symlink(real, root / "link")
    os.symlink(root, root / "loop")
    os.symlink(real, root / "second_link")
    os.symlink(tmp_path / "nowhere", root / "dangling")
    names = sorted(
        (folder / name).relative_to(root).as_posix() for folder, files in walk_folders(root) for name in files
    )
    assert names == ["a", "dangling", "link/deep/y", "link/x"]


def test_order_is_by_name(tmp_path: Path):
    touch(tmp_path, "b/2", "b/1", "a/9", "c")
    assert [(folder.name, files) for folder, files in walk_folders(tmp_path)][1:] == [("a", ["9"]), ("b", ["1", "2"])]
    assert [folder.name for folder, _ in walk_folders(tmp_path)] == [tmp_path.name, "a", "b"]


def test_natural_order():
    assert sorted(["a10", "a2", "a", "b1", "10", "9"], key=natural) == ["9", "10", "a", "a2", "a10", "b1"]


def choose(tmp_path: Path, counts: dict[str, int]) -> str:
    chosen, others = choose_leaf(tmp_path, {tmp_path / name: count for name, count in counts.items()})
    assert {chosen, *others} == {tmp_path / name for name in counts}
    return chosen.relative_to(tmp_path).as_posix()


def test_leaf_is_newest_then_fullest_then_lowest(tmp_path: Path):
    assert choose(tmp_path, {"20240101000000/0/g/1/0": 9, "20240102000000/0/g/1/0": 1}) == "20240102000000/0/g/1/0"
    assert choose(tmp_path, {"20240101000000/0/g/1/0": 1, "9_old/0/g/1/0": 5}) == "20240101000000/0/g/1/0"
    assert choose(tmp_path, {"0/a/1/0": 3, "0/b/2/0": 7}) == "0/b/2/0"
    assert choose(tmp_path, {"0/g/1/10": 5, "0/g/1/9": 5, "1/g/1/2": 5}) == "0/g/1/9"


def test_step_is_the_leaf_below_a_model_id():
    assert step_of(Path("/d/20240125153144/0/graph/1/7")) == 7
    assert step_of(Path("/d/20240125153144/0")) is None
    assert step_of(Path("/d/graph/1")) is None
    assert step_of(Path("/d/graph/1/x")) is None
