"""Two tensors held against a tolerance, as ``cp`` does: what is not close, and where.

An element is close when ``|left - right| <= atol + rtol * |right|``; equal infinities are close, a NaN never is, and an
infinity against a number is not (the bare formula would call it close). Nothing is ever padded: tensors with different
element counts are not comparable, those with equal counts and different shapes are compared in flat order, and both is
said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.blocks import BLOCK, absolute_difference, element_kind, flat
from compare.figures import Figures
from compare.metrics import compare_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

Number = int | float | complex


@dataclass(frozen=True)
class Element:
    """One element of both tensors.

    Attributes:
        index: Flat C-order index.
        difference: ``|left - right|``, exact for integers; NaN where a side is NaN.
    """

    index: int
    left: Number
    right: Number
    difference: float | int


@dataclass(frozen=True)
class CloseFigures:
    """What ``cp`` shows.

    Attributes:
        count: Elements compared, 0 when not comparable.
        errors: Elements that are not close, those with a NaN or infinity included.
        non_finite_errors: How many of them have one.
        error_items: The first ``limit`` of them.
        top_items: The first ``limit`` elements.
        figures: All other figures, of the flat data where only the shapes differ.
        reason: Why nothing could be compared, or that the shapes differ; empty if all is plain.
    """

    count: int
    errors: int
    non_finite_errors: int
    error_items: tuple[Element, ...]
    top_items: tuple[Element, ...]
    figures: Figures
    atol: float
    rtol: float
    reason: str = ""

    @property
    def comparable(self) -> bool:
        """Whether elements could be held against each other."""
        return self.figures.comparable

    @property
    def all_close(self) -> bool:
        """Whether every element is close; False for what is not comparable, True for two empty tensors."""
        return self.comparable and not self.errors

    @property
    def cosine(self) -> float | None:
        """Cosine over the elements finite on both sides; the reason for None stands in ``figures.reasons``."""
        return self.figures.cosine

    @property
    def error_share(self) -> float | None:
        """Share of elements that are not close, None without elements."""
        return self.errors / self.count if self.count else None


def close_figures(
    left: NDArray[np.generic],
    right: NDArray[np.generic],
    *,
    atol: float = 1e-3,
    rtol: float = 1e-3,
    limit: int = 20,
) -> CloseFigures:
    """Compares two tensors against a tolerance.

    Args:
        left: Under test.
        right: Reference, the side that ``rtol`` refers to.
        atol: Absolute tolerance, not negative.
        rtol: Relative tolerance, not negative.
        limit: How many elements to list.
    """
    whole = compare_arrays(left, right)
    figures, reason = whole, ""
    if not whole.same_shape:
        reason = whole.reasons["CosineSimilarity"]
        figures = whole.flattened or whole
    elif not whole.comparable or not _numeric(left, right):
        reason = whole.reasons["CosineSimilarity"]
    search = _Search(atol, rtol, limit)
    if figures.comparable and _numeric(left, right):
        with np.errstate(all="ignore"):
            search.run(left, right)
    elif figures.comparable:
        search.errors = figures.differing or 0
    return CloseFigures(
        count=left.size if figures.comparable else 0,
        errors=search.errors,
        non_finite_errors=search.non_finite,
        error_items=tuple(search.items),
        top_items=tuple(search.top),
        figures=figures,
        atol=atol,
        rtol=rtol,
        reason=reason,
    )


@dataclass
class _Search:
    atol: float
    rtol: float
    limit: int
    errors: int = 0
    non_finite: int = 0
    items: list[Element] = field(default_factory=list)
    top: list[Element] = field(default_factory=list)

    def run(self, left: NDArray[np.generic], right: NDArray[np.generic]) -> None:
        a, b = flat(left), flat(right)
        for start in range(0, left.size, BLOCK):
            x, y = a[start : start + BLOCK], b[start : start + BLOCK]
            self._add(start, x, y)

    def _add(self, start: int, x: NDArray[np.generic], y: NDArray[np.generic]) -> None:
        distance = _distance(x, y)
        one, two = _wide(x), _wide(y)
        finite = np.isfinite(one) & np.isfinite(two)
        close = np.where(finite, distance <= self.atol + self.rtol * np.abs(two), one == two)
        bad = np.flatnonzero(~close)
        self.errors += bad.size
        self.non_finite += int(np.count_nonzero(~finite[bad]))
        self.items += _elements(start, bad[: max(0, self.limit - len(self.items))], x, y, distance)
        self.top += _elements(start, np.arange(min(x.size, max(0, self.limit - len(self.top)))), x, y, distance)


def _elements(
    start: int,
    positions: NDArray[np.intp],
    x: NDArray[np.generic],
    y: NDArray[np.generic],
    distance: NDArray[Any],
) -> Iterator[Element]:
    for position in positions.tolist():
        yield Element(start + position, _number(x[position]), _number(y[position]), _real(distance[position]))


def _number(value: np.generic) -> Number:
    item = value.item()
    return item if isinstance(item, int | float | complex) else float(item)


def _real(value: object) -> float | int:
    return int(value) if isinstance(value, int | np.integer) else float(value)  # type: ignore[arg-type]


def _numeric(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    return not {element_kind(left.dtype), element_kind(right.dtype)} & {"text", "opaque"}


def _wide(block: NDArray[np.generic]) -> NDArray[Any]:
    return block.astype(np.complex128 if block.dtype.kind == "c" else np.float64)


def _distance(x: NDArray[np.generic], y: NDArray[np.generic]) -> NDArray[Any]:
    if {element_kind(x.dtype), element_kind(y.dtype)} <= {"integer", "boolean"}:
        return absolute_difference(x, y)
    one, two = _wide(x), _wide(y)
    return np.where(one == two, 0.0, np.abs(one - two))
