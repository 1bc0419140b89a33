"""Which checkpoint a folder, a prefix or a state file means."""

from __future__ import annotations

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.checkpoint import locate_checkpoint, read_checkpoint
from dumpers.formats.checkpoint_files import list_checkpoints, read_checkpoint_state
from tests.table_files import entry, write_bundle


@pytest.fixture
def run(tmp_path):
    """A run folder with steps 9, 10 and 100 (``w`` holds the step) and a function that writes its state file."""
    folder = tmp_path / "run"
    folder.mkdir()
    for step in (9, 10, 100):
        raw = np.float32([step]).tobytes()
        write_bundle(folder / f"model.ckpt-{step}", {"w": entry(1, (1,), raw, 0)}, raw)

    def state(named):
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "{named}"\nall_model_checkpoint_paths: "x"\n')
        return locate_checkpoint(folder)

    return folder, state


def test_newest_by_number_and_in_order_of_number(run):
    folder, _ = run
    assert [path.name for path in list_checkpoints(folder)] == ["model.ckpt-9", "model.ckpt-10", "model.ckpt-100"]
    found = locate_checkpoint(folder)
    assert found.prefix.name == "model.ckpt-100"
    assert found.all == list_checkpoints(folder)
    assert "highest step number" in found.notes[0]


@pytest.mark.parametrize(
    "named", ["model.ckpt-10", "./model.ckpt-10", "{folder}/model.ckpt-10", "../run/model.ckpt-10"]
)
def test_the_state_file_is_followed_inside_its_folder(run, named):
    folder, state = run
    found = state(named.format(folder=folder))
    assert found.prefix == folder / "model.ckpt-10"
    assert found.notes == (f"{folder}: took model.ckpt-10 (its state file names it; 3 there)",)


@pytest.mark.parametrize(
    "named", ["/srv/old/model.ckpt-9", "../other/model.ckpt-9", "link/model.ckpt-9", "{root}/other/model.ckpt-9"]
)
def test_a_state_file_that_leads_elsewhere_is_not_followed(run, named, tmp_path):
    folder, state = run
    other = tmp_path / "other"
    other.mkdir()
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    (folder / "link").symlink_to(other)
    named = named.format(root=tmp_path)
    found = state(named)
    assert found.prefix == folder / "model.ckpt-100"
    assert named in found.notes[0]
    assert "not opened" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'model_checkpoint_path: "model.ckpt-11"', "names model.ckpt-11, which is not there"),
        (b"", "names no checkpoint"),
        (b"\xff\xfe\x00", "is no state file"),
        (b"model_checkpoint_path: {{{{", "is no state file"),
        (b'model_checkpoint_path: "a\\000b"', "names no checkpoint"),
        (b'model_checkpoint_path: "' + b"x" * 5000 + b'"', "which is not there"),
        (b"a" * 2_000_000, "too long"),
    ],
)
def test_a_useless_state_file_is_told_and_does_no_harm(run, text, said):
    folder, _ = run
    (folder / "checkpoint").write_bytes(text)
    found = locate_checkpoint(folder)
    assert found.prefix.name == "model.ckpt-100"
    assert said in found.notes[0]


def test_a_moved_run_of_the_field(shared_data):
    folder = shared_data / "field_cases" / "FC22" / "copied_run"
    found = locate_checkpoint(folder)
    assert found.prefix == folder / "model.ckpt-100"
    assert "/srv/train/old_run/model.ckpt-100" in found.notes[0]
    assert [path.name for path in found.all] == ["model.ckpt-9", "model.ckpt-10", "model.ckpt-100"]
    (record,) = read_checkpoint(found)
    assert record.load().tolist() == [100]


@pytest.mark.parametrize("name", ["nothing", "model.ckpt-8", "model.ckpt-8.index", "n" * 300, "model\x00", "notes.txt"])
def test_no_checkpoint_there(run, name):
    folder, _ = run
    (folder / "notes.txt").write_text("hello")
    with pytest.raises(DataError) as caught:
        read_checkpoint(folder / name)
    assert "\n" not in str(caught.value)


def test_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match="holds no checkpoint"):
        read_checkpoint(tmp_path)


def test_a_state_file_lists_each_checkpoint_once_the_newest_first(tmp_path):
    state = tmp_path / "checkpoint"
    state.write_text(
        'all_model_checkpoint_paths: "a-1"\nmodel_checkpoint_path: "a-2"\nall_model_checkpoint_paths: "a-2"\n'
    )
    assert read_checkpoint_state(state) == ("a-2", "a-1")
    state.write_text('all_model_checkpoint_paths: "a-1"\n')
    with pytest.raises(DataError, match="names no checkpoint"):
        read_checkpoint_state(state)
