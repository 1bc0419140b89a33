"""Packs: every dtype comes back bit by bit, and memory that is shared is written once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dumpers.capture import pack
from dumpers.capture.pack import ALIGNMENT, lay_out, memory_of
from dumpers.capture.plan import How, Taken
from dumpers.capture.record import FORMAT, GraphFile, Item, RunRecord
from dumpers.capture.talk import SayOnce
from dumpers.capture.worker import BoundedWorker

tf = pytest.importorskip("tensorflow")


def write(folder, arrays, layout="pack"):
    header = {"format": FORMAT, "run": 1, "step": 0, "start_us": 1000, "graph": None, "fetches": []}
    record = RunRecord(folder, header, SayOnce(), layout)
    items = [
        Item(Taken(f"op{at}:0", f"op{at}", 0, "Const", "", None, at, How.FETCH), at, a, dtype_of(a))
        for at, a in enumerate(arrays)
    ]
    worker = BoundedWorker()
    size = record.submit(worker, GraphFile(graph().SerializeToString()), items)
    worker.flush()
    manifest = dict(json.loads((record.folder / "record.json").read_text()), path=record.folder)
    return manifest, size


def graph():
    definition = tf.compat.v1.GraphDef()
    definition.node.add(name="op0", op="Const")
    return definition


def dtype_of(array):
    return "string" if array.dtype.kind == "S" else array.dtype.name


def arrays_of_every_kind():
    random = np.random.RandomState(3)
    numbers = random.standard_normal(1000) * 100
    kinds = ("float64", "float32", "float16", "int8", "uint16", "int64", "complex64", "bool")
    found = [numbers.astype(kind) for kind in kinds]
    found += [np.float32(3.5).reshape(()), np.zeros((0, 4), np.float32), np.array([b"a", b"", b"abc"])]
    found += [np.arange(12.0).reshape(3, 4).T, np.arange(20)[::3], np.arange(5, dtype=">i4")]
    return found


@pytest.mark.parametrize("layout", ["pack", "npy"])
@pytest.mark.parametrize("group_bytes", [1, 3000, 1 << 20])
def test_every_kind_of_array_comes_back(tmp_path, values, monkeypatch, layout, group_bytes):
    monkeypatch.setattr(pack, "GROUP_BYTES", group_bytes)
    arrays = arrays_of_every_kind()
    manifest, _ = write(tmp_path, arrays, layout)
    assert manifest["complete"]
    found = values(manifest)
    assert len(found) == len(arrays)
    for at, array in enumerate(arrays):
        got = found[f"op{at}:0"]
        assert got.shape == array.shape
        assert got.tobytes() == np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def test_shared_memory_is_written_once(tmp_path, values):
    base = np.arange(1000.0)
    manifest, size = write(tmp_path, [base, base.reshape(10, 100), base[:10], base.copy()])
    assert size == 8000 + 80 + 8000
    (file,) = manifest["path"].glob("*.pack")
    assert file.stat().st_size == sum(-(-n // ALIGNMENT) * ALIGNMENT for n in (8000, 80, 8000))
    first, second, third, fourth = manifest["tensors"]
    assert first["offset"] == second["offset"]
    assert len({first["offset"], third["offset"], fourth["offset"]}) == 3
    found = values(manifest)
    assert found["op1:0"].tolist() == base.reshape(10, 100).tolist()
    assert found["op2:0"].tolist() == base[:10].tolist()


def test_npy_files_of_shared_memory_have_shapes_of_their_own(tmp_path, values):
    base = np.arange(6.0)
    manifest, _ = write(tmp_path, [base, base.reshape(2, 3)], "npy")
    assert [v.shape for v in values(manifest).values()] == [(6,), (2, 3)]


def test_places_do_not_overlap_and_begin_at_multiples():
    random = np.random.RandomState(5)
    arrays = [np.zeros(n, np.uint8) for n in random.randint(0, 3000, size=500)]
    places, groups = lay_out(arrays, memory_of)
    ends = {}
    for array, place in zip(arrays, places):  # noqa: B905
        assert place.offset % ALIGNMENT == 0
        if array.nbytes:
            assert place.offset >= ends.get(place.lane, 0)
            ends[place.lane] = place.offset + array.nbytes
    assert sum(group.size_bytes for group in groups) == sum(array.nbytes for array in arrays)


def test_the_same_step_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "GROUP_BYTES", 5000)
    one, _ = write(tmp_path / "one", arrays_of_every_kind())
    two, _ = write(tmp_path / "two", arrays_of_every_kind())
    names = sorted(path.name for path in one["path"].iterdir())
    assert names == ["graph.pb", "record.json", "tensors.0.pack", "tensors.1.pack"]
    for name in names:
        assert (one["path"] / name).read_bytes() == (two["path"] / name).read_bytes()
