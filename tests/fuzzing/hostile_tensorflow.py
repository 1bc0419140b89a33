"""Hostile TensorFlow artefacts."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.data.sample_makers.wire import field, message, varint
from tests.fuzzing.hostile_basics import MANY, ODD_NAMES, Cases, Place, put
from tests.fuzzing.mutations import framed


def _tensor_proto(dims: tuple[int, ...], dtype: int = 1, **values: bytes) -> bytes:
    shape_proto = message(*((2, field(1, dim)) for dim in dims))
    return message((1, dtype), (2, shape_proto)) + b"".join(values.values())


def _event(tensor: bytes) -> bytes:
    value = message((1, "evil"), (7, "evil:0:DebugIdentity"), (8, tensor))
    return message((5, field(1, value)))


def _tensor_protos() -> Iterator[tuple[str, bytes]]:
    one = field(5, struct.pack("<f", 1.5))
    shapes = ((1 << 31,), (1 << 28,), (MANY, 4), (-1,), (-(1 << 63),), (1 << 32, 1 << 32), (0, MANY), (1,) * 60)
    for dims in shapes:
        yield f"one value for {dims[:3]}", _tensor_proto(dims, values=one)
        yield f"no value for {dims[:3]}", _tensor_proto(dims)
        yield f"text for {dims[:3]}", _tensor_proto(dims, 7, values=field(8, "abc"))
        yield f"content for {dims[:3]}", _tensor_proto(dims, values=field(4, b"\0" * 16))
    for dtype in (0, 20, 21, 30, 77, 101, 1 << 31, (1 << 64) - 1):
        yield f"type {dtype}", _tensor_proto((2,), dtype, values=one)
    for dtype, number in ((19, 13), (14, 13), (3, 7), (4, 7), (10, 11), (9, 10), (8, 9), (18, 12)):
        yield f"odd values of type {dtype}", _tensor_proto((1,), dtype, values=field(number, varint((1 << 64) - 7)))


def tfdbg_cases() -> Cases:
    def place(content: bytes) -> Place:
        def put(folder: Path) -> Path:
            device = next(next(folder.iterdir()).glob("_tfdbg_device_*"))
            path = device / "net" / "evil_0_DebugIdentity_1796176588475999"
            path.write_bytes(content)
            return path

        return put

    for name, tensor in _tensor_protos():
        yield name, place(_event(tensor))
    yield "nested", place(_event(_nested(8)))


def _nested(number: int, size: int = 900) -> bytes:
    """Messages in messages, as deep as the bytes allow."""
    raw = b""
    while len(raw) < size:
        raw = field(number, raw)
    return raw


def graph_pb_cases() -> Cases:
    yield from ((f"nested field {n}", put("graph.pb", _nested(n))) for n in (1, 2, 5, 7, 10))
    inner = b""
    while len(inner) < 900:
        inner = field(10, message((2, message((1, "a"), (2, inner)))))
    yield "nested function", put("graph.pb", field(1, message((1, "a"), (2, "b"), (5, message((1, "f"), (2, inner))))))
    for name, tensor in _tensor_protos():
        node = message((1, "evil"), (2, "Const"), (5, message((1, "value"), (2, field(8, tensor)))))
        yield f"constant: {name}", put("graph.pb", field(1, node))
    for name in (*ODD_NAMES, "^", "^^a", "a:b:c", "a:-1", "a:99999999999999999999", ":0"):
        node = message((1, name), (2, "Relu"), (3, name))
        yield f"node {name[:9]!r}", put("graph.pb", field(1, node) + field(1, node))


def graph_text_cases(file: str) -> Cases:
    for word in ("node", "op", "graph", "attr", "value", "func"):
        yield f"nested {word}", put(file, f"{word} {{ ".encode() * 120)
        yield f"nested {word} in a graph", put(file, b"graph { op { " + f"{word} {{ ".encode() * 100)
    yield "open string", put(file, b'graph { op { name: "' + b"a" * 900)
    yield "huge number", put(file, b"graph { op { id: " + b"9" * 900 + b" } }")
    yield "list of lists", put(file, b"graph { op { input: " + b"[" * 900)


def _records(file: str) -> Cases:
    for length in (0, 1 << 31, (1 << 64) - 1):
        yield f"record of {length} bytes", put(file, framed(b"x")[:0] + struct.pack("<Q", length) + b"\0" * 40)
    for name, tensor in _tensor_protos():
        yield name, put(file, framed(message((5, field(1, message((1, "loss"), (8, tensor)))))))
    yield "nested", put(file, framed(_nested(5)))


def events_cases() -> Cases:
    yield from _records("v2/events.out.tfevents.1706168000.vm.1.0.v2")


def debug_events_cases() -> Cases:
    yield from _records("tfdbg_events.1706168000.vm.execution")
    for tag in range(1, 14):
        nested = framed(message((tag, _nested(tag, 300))))
        yield f"nested event {tag}", put("tfdbg_events.1706168000.vm.graphs", nested)


def checkpoints_cases() -> Cases:
    for name in (*ODD_NAMES, "model.ckpt-8", "/dev/zero"):
        escaped = json.dumps(name)
        text = f"model_checkpoint_path: {escaped}\nall_model_checkpoint_paths: {escaped}\n".encode()
        yield f"state names {name[:9]!r}", put("checkpoint", text)
    yield "nested state", put("checkpoint", b"a { " * 200)
