"""HDF5 files made to hurt; the library writes what it itself would follow out of the file or fill without limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from tests.fuzzing.hostile_basics import Cases, Place


def hdf5_cases() -> Cases:
    """Every file below, by name."""
    for build in _BUILDS:
        yield build.__name__.strip("_").replace("_", " "), _made(build)


def _made(build: Callable[[h5py.File], None]) -> Place:
    def place(folder: Path) -> Path:
        path = folder / "dump.h5"
        path.unlink()
        with h5py.File(path, "w", libver="earliest") as file:
            build(file)
        return path

    return place


def _huge(file: h5py.File) -> None:
    file.create_dataset("x", shape=(1 << 40,), dtype="f4", chunks=(1 << 10,))


def _wide(file: h5py.File) -> None:
    file.create_dataset("x", shape=(1 << 20, 1 << 20, 1 << 10), dtype="f8", chunks=(1, 1, 16))


def _filled(file: h5py.File) -> None:
    """A gigabyte of the fill value, nothing of it stored."""
    file.create_dataset("x", shape=(1 << 28,), dtype="f4", chunks=(1 << 10,))


def _bomb(file: h5py.File) -> None:
    """A chunk of 128 KB that inflates to 128 MB."""
    dataset = file.create_dataset("x", shape=(1 << 27,), dtype="u1", chunks=(1 << 27,), compression="gzip")
    dataset.id.write_direct_chunk((0,), _deflated(1 << 27))


def _deflated(size: int) -> bytes:
    import zlib

    packer = zlib.compressobj()
    return b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(size >> 20)) + packer.flush()


def _external(file: h5py.File) -> None:
    file.create_dataset("x", shape=(64,), dtype="u1", external=[("/etc/passwd", 0, 64)])


def _external_beside(file: h5py.File) -> None:
    file.create_dataset("x", shape=(8,), dtype="u1", external=[("../../secret.bin", 0, 8)])


def _link_out(file: h5py.File) -> None:
    file["x"] = h5py.ExternalLink("../secret.h5", "/x")


def _link_to_itself(file: h5py.File) -> None:
    file["x"] = h5py.SoftLink("/x")


def _group_in_itself(file: h5py.File) -> None:
    file.create_group("a")
    file["a/a"] = file["a"]


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="f4")
    layout[:] = h5py.VirtualSource("../secret.h5", "x", shape=(4,))
    file.create_virtual_dataset("x", layout)


def _odd_types(file: h5py.File) -> None:
    file.create_dataset("text", data="abc")
    file.create_dataset("compound", data=np.zeros(2, [("a", "f4"), ("b", "i4")]))
    file.create_dataset("reference", data=file["text"].ref, dtype=h5py.ref_dtype)
    file.create_dataset("ragged", (2,), dtype=h5py.vlen_dtype(np.int32))
    file.create_dataset("null", data=h5py.Empty("f4"))
    file["type"] = np.dtype("f4")


def _deep(file: h5py.File) -> None:
    file.create_group("/".join("a" * 300))


def _names(file: h5py.File) -> None:
    for name in (b"..", b"a\nb\x1b[2J", b"\xff\xfe", b"x" * 300):
        file.create_dataset(name, data=1.0)


_BUILDS = (
    _huge,
    _wide,
    _filled,
    _bomb,
    _external,
    _external_beside,
    _link_out,
    _link_to_itself,
    _group_in_itself,
    _virtual,
    _odd_types,
    _deep,
    _names,
)
