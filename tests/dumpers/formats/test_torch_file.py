"""PyTorch files. There is no PyTorch here: a pickler of our own writes the same instructions under the same names.

``torch.save`` pickles with protocol 2; a tensor becomes the call ``torch._utils._rebuild_tensor_v2(storage, offset,
size, stride, requires_grad, OrderedDict())``, a storage the persistent id ``("storage", torch.FloatStorage, "0", "cpu",
count)``, and its bytes the uncompressed member ``<name>/data/0``. :class:`TorchPickler` does that for stand-ins; one
test holds the instructions of a real file byte by byte.
"""

from __future__ import annotations

import collections
import io
import pickle
import random
import time
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.kinds import identify
from dumpers.formats.torch_file import TorchFileSource, read_torch_file

KINDS = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
    "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage",
    "uint8": "ByteStorage", "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}  # fmt: skip


class Name:
    """A class or function of PyTorch, known by name only."""

    def __init__(self, name: str) -> None:
        self.module, _, self.name = name.rpartition(".")

    def __call__(self) -> None:
        raise AssertionError("nothing is ever called")


class Storage:
    def __init__(self, array: np.ndarray, kind: str = "", count: int | None = None) -> None:
        self.data = array.tobytes()
        self.kind = Name("torch." + (kind or KINDS[array.dtype.name]))
        self.count = array.size if count is None else count


class Call:
    def __init__(self, name: str, *arguments: object) -> None:
        self.name, self.arguments = Name(name), arguments


def tensor(storage: Storage, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0) -> Call:
    if strides is None:
        strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    return Call("torch._utils._rebuild_tensor_v2", storage, offset, shape, strides, False, collections.OrderedDict())


class TorchPickler(pickle._Pickler):  # type: ignore[name-defined]
    def __init__(self, file: io.BytesIO, protocol: int = 2) -> None:
        super().__init__(file, protocol)
        self.storages: list[Storage] = []

    def persistent_id(self, obj: object):
        if not isinstance(obj, Storage):
            return None
        if obj not in self.storages:
            self.storages.append(obj)
        return ("storage", obj.kind, str(self.storages.index(obj)), "cpu", obj.count)

    def reducer_override(self, obj: object):
        if isinstance(obj, Name):
            return "global"
        return (obj.name, obj.arguments) if isinstance(obj, Call) else NotImplemented

    def save_global(self, obj: object, name: str | None = None) -> None:
        if isinstance(obj, Name):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
            self.memoize(obj)
        else:
            super().save_global(obj, name)


def write(
    path: Path, value: object, protocol: int = 2, method: int = zipfile.ZIP_STORED, extra: dict | None = None
) -> Path:
    buffer = io.BytesIO()
    pickler = TorchPickler(buffer, protocol)
    pickler.dump(value)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", buffer.getvalue())
        archive.writestr("archive/byteorder", "little")
        for key, storage in enumerate(pickler.storages):
            archive.writestr(f"archive/data/{key}", storage.data)
        archive.writestr("archive/version", "3\n")
        for name, data in (extra or {}).items():
            archive.writestr(name, data)
    return path


def load(path: Path, op: str, slot: int = 0) -> np.ndarray:
    found = read_torch_file(path).tensor(op, "output", slot)
    assert found is not None
    return found.load()


@pytest.mark.parametrize("dtype", KINDS)
def test_every_dtype_bit_for_bit(tmp_path: Path, dtype: str):
    numbers = np.arange(24).reshape(2, 3, 4) % 5
    array = numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    path = write(tmp_path / "x.pt", tensor(Storage(array), array.shape))
    (record,) = read_torch_file(path)
    assert (record.name, record.dtype, record.shape) == ("x:output:0", dtype, (2, 3, 4))
    got = record.load()
    assert got.dtype == array.dtype
    assert got.tobytes() == array.tobytes()
    assert not got.flags.writeable
    assert pickle.loads(pickle.dumps(record.source)).load().tobytes() == array.tobytes()


def test_the_instructions_of_the_protocol(tmp_path: Path):
    program = (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00((X\x07\x00\x00\x00storageq\x01ctorch\nFloatStorage\nq\x02"
        b"X\x01\x00\x00\x000q\x03X\x03\x00\x00\x00cpuq\x04K\x06tq\x05QK\x00K\x02K\x03\x86q\x06K\x03K\x01\x86q\x07\x89"
        b"ccollections\nOrderedDict\nq\x08)Rq\ttq\nRq\x0b."
    )
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = io.BytesIO()
    TorchPickler(buffer).dump(tensor(Storage(array), (2, 3)))
    assert buffer.getvalue() == program  # protocol 2, the globals and the order of arguments that PyTorch documents
    path = write(tmp_path / "x.pt", tensor(Storage(array), (2, 3)))
    assert load(path, "x").tolist() == array.tolist()
    assert identify(path).kind.name == "torch"


def test_views_share_a_storage(tmp_path: Path):
    base = np.arange(20, dtype=np.int32)
    storage = Storage(base)
    views = {
        "whole": tensor(storage, (4, 5)),
        "turned": tensor(storage, (5, 4), (1, 5)),
        "part": tensor(storage, (2, 3), (5, 1), offset=6),
        "every_second": tensor(storage, (10,), (2,)),
        "spread": tensor(storage, (3, 4), (0, 1), offset=16),
        "one": tensor(storage, (), (), offset=19),
        "none": tensor(storage, (0, 4)),
    }
    path = write(tmp_path / "views.pth", views)
    table = base.reshape(4, 5)
    right = {
        "whole": table, "turned": table.T, "part": table[1:3, 1:4], "every_second": base[::2],
        "spread": np.broadcast_to(base[16:], (3, 4)), "one": base[19], "none": np.zeros((0, 4), np.int32),
    }  # fmt: skip
    assert [record.op for record in read_torch_file(path)] == list(views)
    for op, array in right.items():
        np.testing.assert_array_equal(load(path, op), array, strict=True)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_state_with_nesting_and_values_between(tmp_path: Path, protocol: int):
    weight, bias = np.float32([[1, 2]]), np.float64([3])
    parameter = Call(
        "torch._utils._rebuild_parameter", tensor(Storage(weight), (1, 2)), True, collections.OrderedDict()
    )
    model = collections.OrderedDict([("fc.weight", parameter), ("fc.bias", tensor(Storage(bias), (1,)))])
    model._metadata = {"version": 1}  # as Module.state_dict does; pickled as attributes of the dict
    state = {
        "epoch": 3, "name": "net", "lr": 0.1, "flag": True, "none": None, "size": Call("torch.Size", (1, 2)),
        "model": model, "optimizer": {"state": {0: {"m": tensor(Storage(weight + 1), (1, 2))}}, "groups": [{"lr": 1}]},
        "pair": (tensor(Storage(bias), (1,)), 7, [tensor(Storage(bias * 2), (1,))]),
    }  # fmt: skip
    path = write(tmp_path / "state.pt", state, protocol)
    dump = read_torch_file(path)
    assert [record.name for record in dump] == [
        "model.fc.weight:output:0", "model.fc.bias:output:0", "optimizer.state.0.m:output:0", "pair:output:0",
        "pair.2:output:0",
    ]  # fmt: skip
    assert [record.load().tolist() for record in dump] == [[[1, 2]], [3], [[2, 3]], [3], [6]]
    assert dump.problems == ()


def test_untyped_storages_of_newer_types(tmp_path: Path):
    values = np.array([0.5, -1, 448]).astype(ml_dtypes.float8_e4m3fn)
    exponents = np.array([127, 128, 255], np.uint8)
    tensors = {
        name: Call(
            "torch._utils._rebuild_tensor_v3",
            Storage(array, "storage.UntypedStorage", array.nbytes),
            0, (3,), (1,), False, collections.OrderedDict(), Name("torch." + name),
        )
        for name, array in {
            "float8_e4m3fn": values, "uint32": np.uint32([1, 2, 1 << 31]), "float8_e8m0fnu": exponents,
            "float4_e2m1fn_x2": exponents,
        }.items()
    }  # fmt: skip
    path = write(tmp_path / "new.pt", tensors)
    assert load(path, "float8_e4m3fn").astype(float).tolist() == [0.5, -1, 448]
    assert load(path, "uint32").tolist() == [1, 2, 1 << 31]
    np.testing.assert_array_equal(load(path, "float8_e8m0fnu"), np.float32([1, 2, np.nan]))
    record = read_torch_file(path).tensor("float4_e2m1fn_x2", "output", 0)
    assert (record.source, record.dtype) == (None, "undefined")
    assert "not read" in record.note


def test_device_tensors_of_the_old_adapter_and_unread_kinds(tmp_path: Path):
    storage = Storage(np.float16([1, 2]))
    hooks = collections.OrderedDict()
    path = write(
        tmp_path / "npu.pt",
        {
            "npu": Call("torch_npu.utils.storage._rebuild_npu_tensor", storage, 0, (2,), (1,), False, hooks, 2),
            "sparse": Call("torch._utils._rebuild_sparse_tensor", "coo", ()),
        },
    )
    assert load(path, "npu").tolist() == [1, 2]
    sparse = read_torch_file(path).tensor("sparse", "output", 0)
    assert (sparse.source, sparse.note) == (None, "sparse tensor")


def test_big_endian_files(tmp_path: Path):
    path = tmp_path / "big.pt"
    half = np.array([1.5, -2]).astype(ml_dtypes.bfloat16)
    value = [tensor(Storage(np.float32([1, -2.5])), (2,)), tensor(Storage(half), (2,))]
    buffer = io.BytesIO()
    TorchPickler(buffer).dump(value)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", buffer.getvalue())
        archive.writestr("a/byteorder", "big")
        archive.writestr("a/data/0", np.array([1, -2.5], ">f4").tobytes())
        archive.writestr("a/data/1", half.view(np.uint16).astype(">u2").tobytes())
    assert load(path, "big").tolist() == [1, -2.5]
    assert load(path, "big", 1).astype(float).tolist() == [1.5, -2]


def test_the_only_tensor_of_a_file(tmp_path: Path):
    path = write(tmp_path / "x.pt", tensor(Storage(np.float32([1, 2])), (2,)))
    assert TorchFileSource(path, "float32", (2,)).load().tolist() == [1, 2]
    for source, message in (
        (TorchFileSource(path, "float16"), "holds float32, its index says float16"),
        (TorchFileSource(path, None, (3,)), r"has shape \(2,\), its index says \(3,\)"),
        (TorchFileSource(write(tmp_path / "two.pt", [1, 2])), "holds 0 tensors instead of one"),
    ):
        with pytest.raises(DataError, match=message):
            source.load()


# hostile and damaged files


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


def test_nothing_is_executed(tmp_path: Path):
    marker = tmp_path / "executed"
    for number, value in enumerate((Evil(marker), {"a": [Evil(marker)]}, tmp_path)):
        for protocol in (2, 4):
            path = write(tmp_path / f"evil{number}.pt", value, protocol)
            with pytest.raises(DataError, match=r"holds Python objects .*byte \d+ of data.pkl") as caught:
                read_torch_file(path)
            assert str(path) in str(caught.value)
    assert not marker.exists()


def test_files_of_before_1_6(tmp_path: Path):
    path = tmp_path / "old.pt"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2))
    assert identify(path).kind.name == "torch"
    with pytest.raises(DataError, match=r"before 1\.6"):
        read_torch_file(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (tensor(Storage(np.float32([1, 2])), (3,)), "reaches to element 3 of a storage of 2"),
        (tensor(Storage(np.float32([1, 2])), (2,), offset=1), "reaches to element 3"),
        (tensor(Storage(np.float32([1, 2])), (2, 1 << 40), (1, 1 << 40)), "reaches to element"),
        (tensor(Storage(np.float32([1, 2]), count=3), (3,)), "has 8 bytes instead of 12"),
        (tensor(Storage(np.float32([1])), (1 << 30,), (0,)), "repeats 4 stored bytes"),
        (tensor(Storage(np.float32([1])), (1 << 61, 1 << 61), (0, 0)), "impossible shape"),
        (tensor(Storage(np.float32([1])), (1,) * 40, (0,) * 40), "40 dimensions"),
        (tensor(Storage(np.float32([1])), (1, 1), (0,)), "with 1 strides"),
    ],
)
def test_lies_about_a_tensor_spoil_only_that_tensor(tmp_path: Path, value: Call, message: str):
    path = write(tmp_path / "x.pt", [value, tensor(Storage(np.int8([7])), (1,))])
    dump = read_torch_file(path)
    assert message in dump.problems[0].reason
    assert dump.records[0].source is None
    assert load(path, "x", 1).tolist() == [7]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (tensor(Storage(np.float32([1])), (-1,)), "size, stride or offset -1"),
        (tensor(Storage(np.float32([1])), (1,), (-4,)), "size, stride or offset -4"),
        (tensor(Storage(np.float32([1])), (1,), offset=1 << 70), "more than 64 bits"),
        (Call("torch._utils._rebuild_tensor_v2", 1, 0, (1,), (1,), False, {}), "without storage"),
        (Call("torch._utils._rebuild_tensor_v2", Storage(np.float32([1]))), "1 arguments"),
        (Call("torch.FloatStorage", 3), "a call of torch.FloatStorage"),
        ({(1, 2): 3}, "holds a tuple as a key"),
    ],
)
def test_programs_that_make_no_sense(tmp_path: Path, value: object, message: str):
    with pytest.raises(DataError, match=message):
        read_torch_file(write(tmp_path / "x.pt", value))


def test_lists_named_again_and_again(tmp_path: Path):
    value: list = [tensor(Storage(np.float32([1])), (1,))] * 10
    for _ in range(12):
        value = [value] * 10
    path = write(tmp_path / "laughs.pt", value)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="holds more than"):
            read_torch_file(path)
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(DataError, match="deeper than"):
        read_torch_file(write(tmp_path / "deep.pt", deep))


def test_zip_tricks(tmp_path: Path):
    value = tensor(Storage(np.arange(1000, dtype=np.float32)), (1000,))
    packed = write(tmp_path / "packed.pt", value, method=zipfile.ZIP_DEFLATED)
    assert "compressed" in read_torch_file(packed).problems[0].reason
    slip = write(tmp_path / "slip.pt", value, extra={"../../evil": "x", "/etc/x": "y"})
    dump = read_torch_file(slip)
    assert [p.reason.count("named like a path out of here") for p in dump.problems] == [1, 1]
    assert "\\x2e\\x2e/\\x2e\\x2e/evil" in dump.problems[0].reason
    assert len(dump.records) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["packed.pt", "slip.pt"]
    with pytest.raises(DataError, match=r"2 members data\.pkl"):
        read_torch_file(write(tmp_path / "two.pt", value, extra={"other/data.pkl": b"N."}))
    np.savez(tmp_path / "x.npz", a=np.arange(2))
    with pytest.raises(DataError, match=r"0 members data\.pkl"):
        read_torch_file(tmp_path / "x.npz")
    (tmp_path / "cut.pt").write_bytes(slip.read_bytes()[:-10])
    with pytest.raises(DataError, match="not a whole zip file"):
        read_torch_file(tmp_path / "cut.pt")


def test_fuzz(tmp_path: Path):
    state = {"a": tensor(Storage(np.float32([[1, 2], [3, 4]])), (2, 2)), "b": [1, "x", Call("torch.Size", (2,))]}
    raw = write(tmp_path / "x.pt", state).read_bytes()
    rng = random.Random(7)
    said: list[str] = []
    path = tmp_path / "f.pt"
    ends = time.monotonic() + 1.2
    variants = [raw[:cut] for cut in range(0, len(raw), 7)]
    count = 0
    while time.monotonic() < ends:
        changed = bytearray(variants.pop() if variants else raw)
        for _ in range(rng.choice((1, 1, 2, 5)) if changed else 0):
            changed[rng.randrange(len(changed))] = rng.choice((0, 255, rng.randrange(256)))
        path.write_bytes(changed)
        count += 1
        try:
            for record in read_torch_file(path):
                if record.source:
                    assert record.load().shape == record.shape
        except DataError as error:
            said.append(str(error))
    assert count > 50
    assert said
    assert not any("\n" in text for text in said)
