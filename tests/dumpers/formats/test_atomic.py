"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dumpers.formats.atomic import atomic_file


def test_a_failed_write_names_the_target_and_leaves_nothing(tmp_path: Path):
    target = tmp_path / "a.npy"

    def fill() -> None:
        with atomic_file(target) as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught:
        fill()
    assert caught.value.filename == str(target)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named_by_the_target(tmp_path: Path):
    target = tmp_path / "none" / "a.npy"
    with pytest.raises(FileNotFoundError) as caught, atomic_file(target):
        pass
    assert caught.value.filename == str(target)


def test_an_error_of_the_block_keeps_its_own_file(tmp_path: Path):
    with pytest.raises(OSError, match="gone") as caught, atomic_file(tmp_path / "a.npy"):
        raise OSError(errno.EIO, "gone", "source.bin")
    assert caught.value.filename == "source.bin"
