"""Relations that hold element by element, exactly: one side is what a simple function makes of the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compare.blocks import element_kind, to_float64
from compare.difference.ulp import digits, float_type, narrower
from dumpers.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from compare.difference.measure import Measured, Side
    from compare.difference.pair import Array, Pair

    Values = NDArray[np.float64]

_CASTS = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_CUTS = {7: "bfloat16", 10: "tf32", 11: "hf32"}
_LIMITS = {
    65504.0,
    448.0,
    57344.0,
    240.0,
    float(np.finfo(np.float32).max),
    *(2.0**n - 1 for n in (7, 8, 15, 16, 31, 32)),
}
_LEAST = 2
"""Elements that must differ: one alone can agree with anything by chance."""
_LEAST_CUT = 4


@dataclass(frozen=True)
class Rule:
    """What one side may be of the other.

    Attributes:
        text: With ``{target}`` and ``{source}``.
        apply: Block of the source -> what the target then holds.
        sides: The targets to try, ``left`` or ``right`` or both.
    """

    text: str
    apply: Callable[[Array], Array]
    sides: tuple[str, ...] = ("left", "right")


def elementwise(pair: Pair, found: Measured) -> str:
    """Returns the first rule that holds for all elements, empty if none does."""
    if found.differing < _LEAST:
        return ""
    positions = pair.around(found.first)
    samples = {"left": pair.a[positions], "right": pair.b[positions]}
    for rule in _rules(pair, found, samples):
        for target in rule.sides:
            source = "right" if target == "left" else "left"
            if pair.same(samples[target], rule.apply(samples[source])).all() and _holds(pair, rule, target):
                return rule.text.format(target=target, source=source)
    return ""


def _holds(pair: Pair, rule: Rule, target: str) -> bool:
    for _, one, two in pair.blocks():
        to, of = (one, two) if target == "left" else (two, one)
        if not pair.same(to, rule.apply(of)).all():
            return False
    return True


def _rules(pair: Pair, found: Measured, samples: dict[str, Array]) -> Iterator[Rule]:
    yield from _byte_order(pair)
    if pair.complex:
        yield Rule("sign flipped (left = -right)", lambda block: -block.astype(np.complex128), ("left",))
        yield Rule("conjugated (left = conj(right))", lambda block: np.conj(block.astype(np.complex128)), ("left",))
    elif pair.integers:
        yield from _integer_rules(pair)
    else:
        yield Rule("sign flipped (left = -right)", lambda block: -to_float64(block), ("left",))
        yield Rule("sign lost ({target} = |{source}|)", lambda block: np.abs(to_float64(block)))
        yield Rule(
            "negative values are zero ({target} = max({source}, 0))", lambda block: np.maximum(to_float64(block), 0.0)
        )
        if found.differing - found.mismatches >= _LEAST:
            yield from _casts(pair)
            yield from _cuts(pair, found, samples)
        yield Rule("fraction lost ({target} = {source} cut to a whole number)", lambda b: np.trunc(to_float64(b)))
        yield Rule("rounded to whole numbers ({target} = rint({source}))", lambda b: np.rint(to_float64(b)))
        for name, least in (("float32", 2.0**-126), ("float16", 2.0**-14)):
            yield Rule(f"{name}'s subnormal numbers are zero in {{target}}", _flush(least))
    if not pair.complex:
        yield from _limits(found)


def _byte_order(pair: Pair) -> Iterator[Rule]:
    dtype = pair.left.dtype
    if dtype == pair.right.dtype and dtype.itemsize > 1 and dtype.kind in "fiuc":
        yield Rule("byte-swapped", lambda block: block.byteswap(), ("left",))
    elif dtype == pair.right.dtype and dtype.itemsize == 2:
        # What NumPy lacks has no byte order there.
        yield Rule(
            "byte-swapped", lambda b: np.ascontiguousarray(b).view(np.uint16).byteswap().view(b.dtype), ("left",)
        )


def _integer_rules(pair: Pair) -> Iterator[Rule]:
    kinds = {element_kind(pair.left.dtype), element_kind(pair.right.dtype)}
    if kinds == {"boolean"}:
        yield Rule("inverted (left = not right)", np.logical_not, ("left",))
        return
    if pair.left.dtype.kind == "i":
        yield Rule("sign flipped (left = -right)", lambda block: -block.astype(np.int64), ("left",))
        yield Rule("sign lost ({target} = |{source}|)", lambda block: np.abs(block.astype(np.int64)))
    for bits in (32, 16, 8):
        for name in (f"int{bits}", f"uint{bits}"):
            if bits // 8 <= max(pair.left.dtype.itemsize, pair.right.dtype.itemsize):
                yield Rule(f"wrapped to {name} ({{target}} = {name}({{source}}))", _through(name))
    for name in ("float32", "float16", "float64"):
        yield Rule(f"rounded through {name} ({{target}} = {{source}} as {name} and back)", _through(name))


def _through(name: str) -> Callable[[Array], Array]:
    dtype = np.dtype(name)

    def apply(block: Array) -> Array:
        there = block.astype(dtype)
        if dtype.kind != "f":
            return there
        back = there.astype(block.dtype)
        # Beyond the range the way back is undefined; the number is left as it is, so the rule fails there.
        return np.where(np.abs(there.astype(np.float64)) < 2.0 ** (8 * block.dtype.itemsize - 1), back, block)

    return apply


def _casts(pair: Pair) -> Iterator[Rule]:
    precision = {
        side: digits(dtype) if dtype is not None else 64
        for side, dtype in (("left", float_type(pair.left.dtype)), ("right", float_type(pair.right.dtype)))
    }
    for name in _CASTS:
        dtype = numpy_dtype(name)
        sides = tuple(
            target for target, source in (("left", "right"), ("right", "left")) if precision[source] > digits(dtype)
        )
        yield Rule(f"rounded to {name} ({{target}} = {name}({{source}}))", _cast(dtype), sides)


def _cast(dtype: np.dtype[np.generic]) -> Callable[[Array], Array]:
    return lambda block: to_float64(to_float64(block).astype(dtype))  # eight-bit types of old ml_dtypes know no others


def _cuts(pair: Pair, found: Measured, samples: dict[str, Array]) -> Iterator[Rule]:
    dtype = narrower(pair.left.dtype, pair.right.dtype)
    if found.differing - found.mismatches < _LEAST_CUT or dtype is None:
        return
    for side in ("left", "right"):
        own = _stored_bits(samples[side])
        for bits in sorted({own, 7, 10, 11} if own <= 11 else {own}):
            if not max(own, 3) <= bits < digits(dtype):
                continue
            like = f" like {_CUTS[bits]}" if bits in _CUTS else ""
            for way, name in (("even", "rounded"), ("away", "rounded, ties away from zero"), ("cut", "truncated")):
                text = f"mantissa cut to {bits} bits{like} ({{target}} = {{source}} {name})"
                yield Rule(text, _cut(bits, way), (side,))


def _stored_bits(block: Array) -> int:
    """Returns how many fraction bits the values of a block use."""
    values = to_float64(block)
    raw = values[np.isfinite(values) & (values != 0)].view(np.uint64)
    if not raw.size:
        return 0
    used = int(np.bitwise_or.reduce(raw)) & ((1 << 52) - 1)
    return 52 - ((used & -used).bit_length() - 1) if used else 0


def _cut(bits: int, way: str) -> Callable[[Array], Array]:
    drop = np.uint64(52 - bits)
    mask = ~np.uint64((1 << (52 - bits)) - 1)
    half = np.uint64(1 << (51 - bits))

    def apply(block: Array) -> Array:
        values = to_float64(block)
        raw = values.view(np.uint64)
        if way == "away":
            raw = raw + half
        elif way == "even":
            raw = raw + (half - np.uint64(1)) + ((raw >> drop) & np.uint64(1))
        cut: Values = (raw & mask).view(np.float64)
        return np.where(np.isfinite(values), cut, values)

    return apply


def _flush(least: float) -> Callable[[Array], Array]:
    def apply(block: Array) -> Array:
        values = to_float64(block)
        return np.where(np.abs(values) < least, 0.0, values)

    return apply


def _limits(found: Measured) -> Iterator[Rule]:
    for target, to, of in (("left", found.left, found.right), ("right", found.right, found.left)):
        above, below = of.high > to.high, of.low < to.low
        known = all(abs(limit) in _LIMITS for limit, used in ((to.high, above), (to.low, below)) if used)
        if not (above or below) or (found.differing <= _LEAST and not known):
            continue
        yield Rule(_limit_text(to, above, below), _limit(to, above, below), (target,))


def _limit_text(side: Side, above: bool, below: bool) -> str:
    limits = [f"{limit:.9g}" for limit, used in ((side.low, below), (side.high, above)) if used]
    return f"saturated at {' and '.join(limits)} ({{target}} = {{source}} limited there)"


def _limit(side: Side, above: bool, below: bool) -> Callable[[Array], Array]:
    low, high = side.low if below else -math.inf, side.high if above else math.inf
    return lambda block: _clipped(block, low, high)


def _clipped(block: Array, low: float, high: float) -> Array:
    if element_kind(block.dtype) not in ("integer", "boolean"):
        return np.clip(to_float64(block), low, high)
    values = to_float64(block)
    outside = (values < low) | (values > high)
    if not outside.any():
        return block
    # Only what is outside comes from float64, which would round the rest.
    return np.where(outside, np.clip(values, low, high).astype(np.int64), block.astype(np.int64))
