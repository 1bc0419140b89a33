"""Dumps and graphs made in memory, for tests that need no files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.graph import Graph, Op, Port, Source
from dumpers.records import Dump, TensorRecord, execution_order


@dataclass(frozen=True)
class MemorySource:
    """An array, or a text that says why it cannot be read."""

    array: np.ndarray | str
    path: Path

    def load(self) -> np.ndarray:
        if isinstance(self.array, str):
            raise DataError(self.array)
        return self.array.copy()


def make_record(name: str, array, **fields) -> TensorRecord:
    """``name`` is ``op:output:0``; ``array`` None for a tensor without a value."""
    op, io, slot = name.rsplit(":", 2)
    device = fields.get("device", "npu")
    suffix = ".npy" if device == "tf" else ""
    source = None if array is None else MemorySource(array, Path(f"/dump/{op.replace('/', '_')}.{io}.{slot}{suffix}"))
    known = isinstance(array, np.ndarray)
    defaults = {
        "op_type": "",
        "dtype": array.dtype.name if known else "float32",
        "shape": array.shape if known else None,
        "timestamp_us": 0,
    }
    return TensorRecord(op=op, io=io, slot=int(slot), source=source, **{**defaults, **fields})


def make_dump(*records: TensorRecord, path: str = "/dump", **fields) -> Dump:
    return Dump(path=Path(path), records=execution_order(records), **fields)


def make_graph(*ops: Op, kind: str = "ge") -> Graph:
    return Graph(name="g", ops={op.name: op for op in ops}, kind=kind)


def make_op(name: str, kind: str, inputs=(), outputs=({},), originals=None, **attrs) -> Op:
    """``inputs`` are ``op:slot`` texts, ``""`` for an absent one; ``outputs`` the attributes of each output."""
    if originals is not None:
        attrs["_datadump_original_op_names"] = tuple(originals)
    pairs = [text.rsplit(":", 1) if text else ("", "0") for text in inputs]
    sources = tuple(Source(op, int(slot)) for op, slot in pairs)
    return Op(name, kind, sources, output_ports=tuple(Port("float32", attrs=a) for a in outputs), attrs=attrs)


class Make:
    """Factories of records, dumps, graphs and ops."""

    record = staticmethod(make_record)
    dump = staticmethod(make_dump)
    graph = staticmethod(make_graph)
    op = staticmethod(make_op)


@pytest.fixture(scope="session")
def make() -> Make:
    """Factories of records, dumps, graphs and ops."""
    return Make()
