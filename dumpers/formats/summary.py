"""Summaries of tensors in a raw record (:mod:`dumpers.capture.summaries` has the format), checked field by field."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dumpers.records import RecordedStatistics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VERSION: Final = 1
PROJECTED: Final = 32
"""Numbers of a projection."""

_MODES: Final = ("stats", "sketch", "hash")
_MOST: Final = 1 << 63
_DIMENSIONS: Final = 64
_EXPONENTS: Final = 2200
_DTYPE: Final = re.compile(r"[A-Za-z0-9_]{1,40}\Z")


@dataclass(frozen=True)
class Exponents:
    """Binary exponents of a tensor's finite numbers.

    Attributes:
        of: Numbers that were looked at; of large tensors a part.
        zero, subnormal: Zeros, and numbers below the smallest normal one of the type, which have no exponent here.
        first: Exponent that ``counts`` begins with, None if it is empty.
        counts: ``counts[i]`` numbers x with 2^e <= |x| < 2^(e + 1) for e = ``first`` + i.
    """

    of: int
    zero: int
    subnormal: int
    first: int | None
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Summary:
    """What a record keeps of a tensor instead of its values.

    Attributes:
        mode: ``stats``, ``sketch`` or ``hash``.
        dtype, shape, count: Of the tensor.
        statistics: Its figures; empty but for the count in mode ``hash`` and for strings.
        exponents: None in mode ``hash`` and where no number is finite.
        projection: 32 numbers; None in other modes than ``sketch``, for strings, and beyond float64.
        order_free: Hash of the multiset of elements, empty in mode ``stats``.
        positional: Hash of the elements in their order, of dtype and shape; empty but in mode ``hash``.
    """

    mode: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    statistics: RecordedStatistics
    exponents: Exponents | None = None
    projection: tuple[float, ...] | None = None
    order_free: str = ""
    positional: str = ""


def read_summary(value: object) -> Summary | None:
    """Returns the summary in a tensor's entry, None if there is none.

    Args:
        value: What the entry has under ``summary``; any JSON.

    Raises:
        ValueError: it is no summary; the message goes on after "a summary that".
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError("is no object")
    if value.get("version") != VERSION or isinstance(value.get("version"), bool):
        raise ValueError(f"has version {_shown(value.get('version'))} (this version reads {VERSION})")
    mode, dtype = value.get("mode"), value.get("dtype")
    if mode not in _MODES:
        raise ValueError(f"has mode {_shown(mode)}")
    if not isinstance(dtype, str) or not _DTYPE.match(dtype):
        raise ValueError(f"has dtype {_shown(dtype)}")
    count, shape = _count(value, "count"), _shape(value.get("shape"))
    if count is None or math.prod(shape) != count:
        raise ValueError(f"has {_shown(count)} elements of shape {_shown(list(shape))}")
    return Summary(
        mode=mode,
        dtype=dtype,
        shape=shape,
        count=count,
        statistics=_statistics(value, count),
        exponents=_exponents(value.get("exponents")),
        projection=_projection(value.get("projection")),
        order_free=_digest(value, "order_free", 16),
        positional=_digest(value, "positional", 32),
    )


def summary_of(array: NDArray[np.generic], dtype: str, mode: str) -> Summary:
    """Summarises a whole tensor as the capture does, to hold it against a summary.

    Raises:
        ValueError: no such mode.
    """
    from dumpers.capture.summaries import summarise

    found = read_summary(summarise(array, dtype, mode))
    if found is None:
        raise ValueError(f"no summary in mode {mode!r}")
    return found


def _statistics(value: Mapping[str, object], count: int) -> RecordedStatistics:
    finite, nan = _count(value, "finite"), _count(value, "nan")
    high, low = _count(value, "pos_inf"), _count(value, "neg_inf")
    if finite is not None and finite + (nan or 0) + (high or 0) + (low or 0) != count:
        raise ValueError("has counts that do not add up")
    share = _figure(value, "zero_share")
    if share is not None and not 0 <= share <= 1:
        raise ValueError(f"has zero_share {_shown(share)}")
    return RecordedStatistics(
        count=count,
        nan=nan,
        pos_inf=high,
        neg_inf=low,
        min=_figure(value, "min"),
        max=_figure(value, "max"),
        mean=_figure(value, "mean"),
        l1=_figure(value, "l1"),
        l2=_figure(value, "l2"),
        zero_share=share,
    )


def _count(value: Mapping[str, object], key: str) -> int | None:
    found = value.get(key)
    if found is None:
        return None
    if type(found) is not int or not 0 <= found < _MOST:
        raise ValueError(f"has {key} {_shown(found)}")
    return found


def _figure(value: Mapping[str, object], key: str) -> float | None:
    found = value.get(key)
    if found is None:
        return None
    if type(found) is int and abs(found) < 2 * _MOST:
        return found
    if type(found) is not float or not math.isfinite(found):
        raise ValueError(f"has {key} {_shown(found)}")
    return found


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _DIMENSIONS:
        raise ValueError(f"has shape {_shown(value)}")
    if not all(type(size) is int and 0 <= size < _MOST for size in value):
        raise ValueError(f"has shape {_shown(value)}")
    return tuple(value)


def _exponents(value: object) -> Exponents | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError("has exponents that are no object")
    counts, first = value.get("counts"), value.get("first")
    if not isinstance(counts, list) or len(counts) > _EXPONENTS or not all(type(n) is int and n >= 0 for n in counts):
        raise ValueError("has exponents without counts")
    if first is not None and (type(first) is not int or abs(first) > _EXPONENTS):
        raise ValueError(f"has exponents from {_shown(first)}")
    known = [_count(value, key) for key in ("of", "zero", "subnormal")]
    of, zero, subnormal = (number or 0 for number in known)
    if None in known or zero + subnormal + sum(counts) != of or (first is None) != (not counts):
        raise ValueError("has exponents that do not add up")
    return Exponents(of, zero, subnormal, first, tuple(counts))


def _projection(value: object) -> tuple[float, ...] | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str) or len(value) > 16 * PROJECTED:
            raise ValueError("length")
        numbers: tuple[float, ...] = struct.unpack(f"<{PROJECTED}d", base64.b64decode(value, validate=True))
    except (ValueError, binascii.Error, struct.error) as error:
        raise ValueError("has a projection that is no base64 of 32 numbers") from error
    if not all(map(math.isfinite, numbers)):
        raise ValueError("has a projection that is not finite")
    return numbers


def _digest(value: Mapping[str, object], key: str, digits: int) -> str:
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str) or not re.fullmatch(f"[0-9a-f]{{{digits}}}", found):
        raise ValueError(f"has {key} {_shown(found)}")
    return found


def _shown(value: object) -> str:
    """A value for a message: a hostile one may be long."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of too many digits
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
