"""Hostile npy files, archives, torch files, records and what other tools leave."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.fuzzing.hostile_basics import MANY, ODD_NAMES, Cases, json_texts, put


def _npy_bytes(header: str, version: int = 1) -> bytes:
    raw = header.encode("latin-1") + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes([version, 0]) + length + raw + b"\0" * 64


def _npy_contents() -> Iterator[tuple[str, bytes]]:
    pickled = pickle.dumps(_Evil())
    object_header = _npy_bytes("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")
    yield "pickle", object_header[:-64] + pickled
    for shape_text in (
        "(4611686018427387904, 4)",
        "(-1,)",
        "(4294967296, 4294967296)",
        "(0, 9223372036854775807)",
        "9" * 500,
    ):
        yield (
            f"shape {shape_text[:30]}",
            _npy_bytes(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape_text}, }}"),
        )
    for descr in (
        "'|V2147483647'",
        "'<U536870911'",
        "[('a', '<f4')]",
        "'|S0'",
        "'<M8[ns]'",
        "'<f8, (2,2)f4'",
        "'<f17'",
        "7",
    ):
        yield f"type {descr}", _npy_bytes(f"{{'descr': {descr}, 'fortran_order': False, 'shape': (0,), }}")
    yield "nested header", _npy_bytes("(" * 800)
    yield "code in the header", _npy_bytes("__import__('os').system('touch /tmp/precision_tool_pwned')")
    yield "version 9", _npy_bytes("{}", 9)
    yield "long header", b"\x93NUMPY\x02\0" + struct.pack("<I", (1 << 32) - 1) + b"{" * 64


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/precision_tool_pwned",)


PWNED = Path("/tmp/precision_tool_pwned")
"""Exists if anything in a file was ever executed."""


def _zip(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    result = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(result, "w") as archive:
        warnings.simplefilter("ignore")  # two names may become one: the module cuts them at a zero byte
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return result.getvalue()


def npz_cases() -> Cases:
    plain = _npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (16,), }")
    for name in ODD_NAMES:
        yield f"member {name[:9]!r}", put("arrays.npz", _zip({f"{name}.npy": plain, "good.npy": plain}))
    for name, content in _npy_contents():
        yield f"member with {name}", put("arrays.npz", _zip({"x.npy": content[:600]}))
    yield "bomb", put("arrays.npz", _zip({"x.npy": b"\0" * 700_000}, zipfile.ZIP_DEFLATED))
    raw = _zip({"x.npy": plain})
    directory = raw.index(b"PK\x01\x02")
    for offset, size in ((20, 4), (24, 4), (42, 4), (28, 2), (10, 2), (8, 2)):
        damaged = bytearray(raw)
        damaged[directory + offset : directory + offset + size] = b"\xff" * size
        yield f"directory field {offset}", put("arrays.npz", bytes(damaged))


def npy_cases() -> Cases:
    for name, content in _npy_contents():
        yield name, put("a.npy", content)


def tf_record_cases() -> Cases:
    entry = {"op": "a", "output": 0, "op_type": "", "dtype": "float32", "shape": [3], "file": "tensors/0.npy"}
    head = {"format": 1, "step": 1, "complete": True, "graph": None, "feeds": {}}
    changes: list[dict[str, object]] = [{"file": name} for name in (*ODD_NAMES, 5, [], {})]
    changes += [
        {"shape": [1 << 70]},
        {"shape": [-1]},
        {"shape": "x"},
        {"dtype": "no"},
        {"dtype": "object"},
        {"output": 1 << 70},
    ]
    changes += [{"op": 7}, {"output": -1}, {"timestamp_us": 1 << 90}, {"note": ["x"]}]
    run = "run_1706168000000000_1/record.json"
    manifests: list[object] = [{**head, "tensors": [{**entry, **change}]} for change in changes]
    manifests += [
        {**head, "tensors": 5},
        {**head, "tensors": [5]},
        {**head, "graph": "../../../etc/passwd", "tensors": []},
    ]
    manifests += [
        {**head, "graph": 5, "tensors": []},
        {**head, "feeds": {"a:x": "../x"}, "tensors": []},
        {**head, "format": []},
    ]
    yield from json_texts(run, *manifests)


def tf_npy_cases() -> Cases:
    header = "file,op,output,op_type,step,timestamp_us,dtype,shape,note\n"
    rows = [f'"{name}",a,0,,1,5,float32,2x2,' for name in ODD_NAMES]
    rows += [
        ",a,0,,x,y,float32,axb,",
        ",a,-1,,,,,,",
        ",a,99999999999999999999999,,,,,9x9999999999999999999999,",
        ",,,,,,,,",
        '"',
    ]
    rows += [f",a,{'9' * 900},,,,,,", ",a,\u0663,,\u0663,\u0663,,\u0663,", ",a,²,,²,²,,²,", f",a,0,,{'9' * 800},,,,"]
    for number, row in enumerate(rows):
        yield f"row {number}", put("index.csv", (header + row + "\n").encode())


def msprobe_cases() -> Cases:
    tensor = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2, 2],
        "Max": 1,
        "Min": 0,
        "Mean": 0.5,
        "Norm": 1,
    }
    head = {"task": "tensor", "level": "L1", "dump_data_dir": "dump_tensor_data"}
    changes: list[dict[str, object]] = [{"data_name": name} for name in (*ODD_NAMES, 5, [], None)]
    changes += [
        {"shape": [MANY, 4]},
        {"shape": [-1]},
        {"shape": "x"},
        {"shape": [1 << 80]},
        {"dtype": 5},
        {"dtype": "torch.no"},
    ]
    changes += [{"Max": "x"}, {"Max": [1]}, {"Max": float("inf")}, {"type": None}, {"Norm": 1 << 2000}]
    calls: list[object] = [{"input_args": [{**tensor, **change}], "output": [tensor]} for change in changes]
    calls += [5, None, [], {"input_args": 5}, {"output": {"a": 1}}, {"input_kwargs": [1]}, {"input_args": [[[[[[]]]]]]}]
    trees: list[object] = [{**head, "data": {"a.0.forward": call}} for call in calls]
    trees += [{**head, "data": {name: calls[0]}} for name in ODD_NAMES]
    trees += [
        {**head, "data": 5},
        {**head, "dump_data_dir": "/etc", "data": {"a": calls[0]}},
        {**head, "dump_data_dir": 5, "data": {}},
    ]
    yield from json_texts("step0/rank/dump.json", *(tree for tree in trees if len(json.dumps(tree)) < 1024))


def torch_cases() -> Cases:
    for name, stream in _pickles():
        yield name, put("model.pt", _zip({"m/data.pkl": stream, "m/data/0": b"\1" * 16, "m/version": b"3\n"}))
        yield f"{name}, bare", put("model.pt", stream)
    for name in ODD_NAMES:
        yield f"member {name[:9]!r}", put("model.pt", _zip({name: b"x", f"{name}/data.pkl": b"\x80\x02}."}))


def _pickles() -> Iterator[tuple[str, bytes]]:
    yield "code", pickle.dumps(_Evil(), protocol=2)
    yield "deep", b"\x80\x02" + b"(" * 900 + b"."
    yield "nested lists", b"\x80\x02" + b"]" * 400 + b"a" * 399 + b"."
    yield "doubling", b"\x80\x02]" + b"q\x00h\x00h\x00\x86" * 120 + b"."
    yield "itself", b"\x80\x02]q\x00h\x00a."
    yield "huge text", b"\x80\x02X" + struct.pack("<I", (1 << 32) - 1) + b"abc."
    yield "huge bytes", b"\x80\x04\x8e" + struct.pack("<Q", (1 << 63) - 1) + b"abc."
    yield "huge memo", b"\x80\x02Nr" + struct.pack("<I", (1 << 32) - 1) + b"."
    yield "huge number", b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"1."
    for number, (sizes, strides, offset, length) in enumerate(
        (
            ((1 << 31,), (0,), 0, 4),
            ((2, 2), (-1, -2), 3, 4),
            ((2, 2), (1 << 40, 1), 0, 4),
            ((2, 2), (2, 1), 1 << 40, 4),
            ((2, 2), (2, 1), -1, 4),
            ((MANY, 4), (4, 1), 0, 4),
            ((-1,), (1,), 0, 4),
            ((2, 2), (2,), 0, 4),
            ((4,), (1,), 0, 1 << 40),
            ((0, MANY), (1, 1), 0, 4),
        )
    ):
        yield f"view {number}", _torch_tensor(sizes, strides, offset, length)
    for key in ("../../../etc/passwd", "/etc/passwd", "", "1", "data.pkl"):
        yield f"storage {key}", _torch_tensor((4,), (1,), 0, 4, key)


def _torch_tensor(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int, length: int, key: str = "0") -> bytes:
    """A dict of one tensor, opcode by opcode."""
    text = b"X" + struct.pack("<I", len(key)) + key.encode()
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\n" + text + b"X\3\0\0\0cpu" + _int(length) + b"tQ"
    views = b"".join(b"(" + b"".join(map(_int, numbers)) + b"t" for numbers in (sizes, strides))
    call = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + _int(offset)
        + views
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )
    return b"\x80\x02}X\1\0\0\0a" + call + b"s."


def _int(number: int) -> bytes:
    raw = number.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw
