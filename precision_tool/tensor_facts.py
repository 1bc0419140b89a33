"""What ``info`` says about tensors: header facts of each, and figures over its values in the framework's layout.

Values of plain layouts are read in blocks, so memory does not grow with the tensor; a private layout has to be undone
as a whole, which holds the tensor twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dumpers.dtypes import WITHOUT_VALUE
from dumpers.errors import DataError
from precision_tool.result import Cell, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.formats.raw import RawSource
    from dumpers.records import RecordedStatistics, TensorRecord

CHUNK = 1 << 20
"""Elements that are read at once of a tensor that can be read in pieces."""

_HEADER = ("Tensor", "Dtype", "Layout", "Shape", "Original", "Bytes", "Note")
_VALUES = ("Tensor", "Count", "NaN", "Inf", "Min", "Max", "Mean", "Zero %")


@dataclass(frozen=True)
class TensorTables:
    """Tables of some tensors, the same as data, and what could not be read."""

    blocks: list[Table]
    data: list[dict[str, Any]]
    problems: list[str]


def tensor_tables(records: Sequence[TensorRecord], *, limit: int, values: bool) -> TensorTables:
    """Describes the first tensors of a file or dump.

    Args:
        records: All of them; titles say how many there are.
        limit: How many are shown; 0 for all.
        values: Whether to read the values for their figures.
    """
    shown = records[:limit] if limit else records
    data = [tensor_data(record, values=values) for record in shown]
    more = f", the first {len(shown)} shown (--limit N)" if len(shown) < len(records) else ""
    blocks = [Table(f"{len(records)} tensors{more}", _HEADER, tuple(_header_row(facts) for facts in data))]
    rows = tuple(_value_row(facts) for facts in data if "count" in facts.get("statistics", {}))
    if rows:
        blocks.append(Table("Values in the original layout", _VALUES, rows))
    problems = [f"{facts['file']}: {facts['tensor']}: {facts['reason']}" for facts in data if "reason" in facts]
    return TensorTables(blocks, data, problems)


def tensor_data(record: TensorRecord, *, values: bool) -> dict[str, Any]:
    """Returns what is known of one tensor; ``statistics`` where values or figures exist, ``reason`` where damaged."""
    facts: dict[str, Any] = {
        "tensor": record.name,
        "op": record.op,
        "op_type": record.op_type,
        "io": record.io,
        "slot": record.slot,
        "file": str(record.path) if record.path else None,
        "dtype": record.dtype,
        "layout": record.format or None,
        "shape": None if record.shape is None else list(record.shape),
        "original_shape": None if record.original_shape is None else list(record.original_shape),
        "bytes": _size(record),
        "step": record.step,
        "timestamp_us": record.timestamp_us,
        "task_id": record.task_id,
        "stream_id": record.stream_id,
        "note": record.note,
    }
    if record.statistics is not None:
        facts["statistics"] = _recorded(record.statistics)
    if values and record.source is not None and record.dtype not in WITHOUT_VALUE:
        try:
            facts["statistics"], note = value_facts(record)
        except DataError as error:
            return facts | {"reason": str(error).removeprefix(f"{record.path}: ")}
        facts["note"] = "; ".join(filter(None, (record.note, note)))
    return facts


def value_facts(record: TensorRecord) -> tuple[dict[str, Any], str]:
    """Returns count, nan, inf, min, max, mean and zero share of a tensor, and what was done to its layout.

    Raises:
        DataError: the file is damaged.
    """
    from compare.statistics import NonFinite
    from compare.sums import Moments

    scan, moments, zeros, count = NonFinite(), Moments(), 0, 0
    low: int | None = None
    high: int | None = None
    blocks, note = _blocks(record)
    for block, width, exact in blocks:
        with np.errstate(all="ignore"):
            if exact is not None and exact.size:
                least, most = int(exact[np.argmin(exact)].item()), int(exact[np.argmax(exact)].item())
                low = least if low is None else min(low, least)
                high = most if high is None else max(high, most)
            finite = scan.add(count, block, width)
            zeros += int(np.count_nonzero((block.reshape(-1, width) == 0).all(axis=1)))
        count += block.size // width
        if finite.size:
            moments.add(finite)
    some = moments.count > 0
    return {
        "count": count,
        "nan": scan.nan,
        "inf": scan.positive + scan.negative,
        "min": low if low is not None else moments.low if some else None,
        "max": high if high is not None else moments.high if some else None,
        "mean": moments.mean if some and np.isfinite(moments.mean) else None,
        "zero_share": zeros / count if count else None,
    }, note


Piece = tuple["NDArray[np.float64]", int, "NDArray[np.generic] | None"]
"""Values as float64, numbers an element, the elements themselves where they are integers."""


def _blocks(record: TensorRecord) -> tuple[Iterable[Piece], str]:
    from precision_tool.tensor_text import load_plain

    pieces = _in_pieces(record)
    if pieces is not None:
        return (piece for array in pieces for piece in _converted(array)), ""
    array, note = load_plain(record)
    return _converted(array), note


def _in_pieces(record: TensorRecord) -> Iterator[NDArray[np.generic]] | None:
    """Reads a large tensor of a plain layout piece by piece; None where it has to be read as a whole."""
    from dumpers.formats.layouts import is_private
    from dumpers.formats.npy import NpySource, read_npy_header
    from dumpers.formats.raw import RawSource, element_count

    source = record.source
    if record.shape is None or is_private(record.format) or element_count(record.shape) <= CHUNK:
        return None
    if isinstance(source, NpySource):
        header = read_npy_header(source.path)
        dtype = source.dtype or header.dtype
        if dtype in WITHOUT_VALUE or header.descr[:1] == ">":
            return None
        source = RawSource(source.path, header.offset, dtype, header.shape)
    if not isinstance(source, RawSource):
        return None
    size = _whole_bytes(source)
    return None if size is None else _raw_pieces(source, element_count(source.shape), size)


def _whole_bytes(source: RawSource) -> int | None:
    """Bytes an element, None for encodings that put several elements into one byte."""
    from dumpers.formats.lowfloat import stored_bytes

    one = stored_bytes(source.encoding, 1)
    return one if stored_bytes(source.encoding, 16) == 16 * one else None


def _raw_pieces(source: RawSource, count: int, size: int) -> Iterator[NDArray[np.generic]]:
    for start in range(0, count, CHUNK):
        length = min(CHUNK, count - start)
        yield replace(source, offset=source.offset + start * size, shape=(length,)).load()


def _converted(array: NDArray[np.generic]) -> Iterator[Piece]:
    from compare.blocks import BLOCK, element_kind, flat, to_float64

    kind = element_kind(array.dtype)
    if kind in ("text", "opaque"):
        return
    width = 2 if kind == "complex" else 1
    elements = flat(array)
    for start in range(0, array.size, BLOCK):
        block = elements[start : start + BLOCK]
        exact = block if kind in ("integer", "boolean") and block.dtype.kind in "iub" else None
        with np.errstate(invalid="ignore"):  # a signalling NaN
            values = to_float64(block, width)
        yield values, width, exact


def _size(record: TensorRecord) -> int | None:
    """Bytes of the elements as they are stored, None where that is not known."""
    from dumpers.formats.lowfloat import stored_bytes
    from dumpers.formats.raw import element_count

    if record.shape is None:
        return None
    try:
        return stored_bytes(getattr(record.source, "encoding", record.dtype), element_count(record.shape))
    except (ValueError, DataError):
        return None


def _recorded(found: RecordedStatistics) -> dict[str, Any]:
    inf = None if found.pos_inf is None and found.neg_inf is None else (found.pos_inf or 0) + (found.neg_inf or 0)
    return {
        "recorded": True,
        "count": found.count,
        "nan": found.nan,
        "inf": inf,
        "min": _finite(found.min),
        "max": _finite(found.max),
        "mean": _finite(found.mean),
        "zero_share": found.zero_share,
    }


def _finite(value: float | None) -> float | str | None:
    return value if value is None or np.isfinite(value) else str(value)


def _header_row(facts: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        facts["tensor"],
        facts["dtype"],
        facts["layout"],
        _shape(facts["shape"]),
        _shape(facts["original_shape"]),
        facts["bytes"],
        facts.get("reason") or facts["note"] or None,
    )


def _value_row(facts: dict[str, Any]) -> tuple[Cell, ...]:
    found = facts["statistics"]
    share = found["zero_share"]
    figures = (found["count"], found["nan"], found["inf"], found["min"], found["max"], found["mean"])
    return (facts["tensor"], *figures, None if share is None else share * 100)


def _shape(shape: list[int] | None) -> str | None:
    return None if shape is None else str(tuple(shape))
