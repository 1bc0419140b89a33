"""Two checkpoints -> what differs, variable by variable, the worst first.

Variables are paired by name; what is left on both sides is paired by the full name that the object graph of a
checkpoint tells, so that a checkpoint saved by name and one saved from objects meet. One pair of arrays is in memory at
a time. A pair that is equal byte for byte needs no sums, which is much of what two checkpoints of one run hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from compare.blocks import element_kind
from compare.figures import BOTH_EMPTY, BOTH_ZERO, COLUMNS, Figures, shape_text
from compare.metrics import compare_arrays
from dumpers.errors import DataError
from dumpers.formats.checkpoint import UNREADABLE
from dumpers.formats.object_graph import OBJECT_GRAPH, read_object_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dumpers.records import Dump, Problem, TensorRecord

    Array = NDArray[np.generic]

THRESHOLD: Final = 0.98
"""A cosine below it is suspicious."""

Verdict = Literal[
    "equal",
    "values differ",
    "dtypes differ",
    "shapes differ",
    "missing on the left",
    "missing on the right",
    "not comparable",
    "unreadable",
    "skipped",
]

DIFFERENCES: Final = frozenset(
    {"values differ", "dtypes differ", "shapes differ", "missing on the left", "missing on the right"}
)

Progress = Callable[[int, int], None]
"""Called with (variables done, variables in all)."""

_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class VariableRow:
    """One variable.

    Attributes:
        name: On the left side; on the right one where the left has none.
        left, right: Records; None on the side that does not have it.
        verdict: The answer in words.
        figures: None where nothing could be held against each other.
        reason: What the verdict does not say: counts, shapes, why there is no figure.
        note: How the pair was found, where not by its name.
    """

    name: str
    left: TensorRecord | None
    right: TensorRecord | None
    verdict: Verdict
    figures: Figures | None = None
    reason: str = ""
    note: str = ""

    @property
    def cosine(self) -> float | None:
        """Cosine of the flattened values, None where there is none."""
        return self.figures.cosine if self.figures else None

    def below(self, threshold: float = THRESHOLD) -> bool:
        """Tells whether the cosine exists and is strictly below the threshold."""
        return self.cosine is not None and self.cosine < threshold

    @property
    def flagged(self) -> bool:
        """Whether it differs in a way that no cosine tells: one-sided NaN or zero, ids, text, a single number."""
        figures = self.figures
        if figures is None or not figures.differing:
            return False
        return bool(figures.non_finite_mismatches) or figures.cosine is None or figures.exact_kind

    @property
    def rank(self) -> tuple[float, ...]:
        """Key that sorts the worst first: what no cosine can tell, then by cosine, then what is equal without one."""
        groups = {"unreadable": 0, "missing on the right": 1, "missing on the left": 2, "shapes differ": 3}
        groups |= {"not comparable": 4, "dtypes differ": 5}
        if self.verdict in groups:
            return (groups[self.verdict],)
        if self.flagged and self.figures is not None:
            return (6, *self.figures.rank)
        if self.cosine is not None:
            return (7, self.cosine, self.verdict == "equal")
        return (8,)


@dataclass(frozen=True)
class CheckpointDiff:
    """Two checkpoints held against each other.

    Attributes:
        left, right: Prefixes; left is under test.
        rows: Every variable of both sides, the worst first.
        problems: Damage met while the indexes were read, of both sides.
    """

    left: Path
    right: Path
    rows: tuple[VariableRow, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Number of variables by verdict."""
        return Counter(row.verdict for row in self.rows)

    @property
    def unreadable(self) -> bool:
        """Whether data of either side were lost or damaged."""
        return bool(self.problems) or "unreadable" in self.counts

    @property
    def different(self) -> bool:
        """Whether any variable differs or is missing."""
        return not DIFFERENCES.isdisjoint(self.counts)

    def below(self, threshold: float = THRESHOLD) -> tuple[VariableRow, ...]:
        """Variables whose cosine is below the threshold, the lowest first."""
        return tuple(row for row in self.rows if row.below(threshold) and not row.flagged)


def compare_checkpoints(left: Dump, right: Dump, *, progress: Progress | None = None) -> CheckpointDiff:
    """Compares two checkpoints variable by variable; a damaged variable spoils its own row only.

    Args:
        left: Under test.
        right: Reference.
        progress: Told after each variable.

    Raises:
        DataError: a side holds no variables at all.
    """
    for dump in (left, right):
        if not dump.records and not dump.problems:
            raise DataError(f"{dump.path}: a checkpoint without variables; give another one")
    pairs = list(_pairs(left, right))
    rows = []
    for done, (one, two) in enumerate(pairs, 1):
        rows.append(_row(one, two))
        if progress is not None:
            progress(done, len(pairs))
    rows.sort(key=lambda row: (row.rank, row.name))
    return CheckpointDiff(left.path, right.path, tuple(rows), left.problems + right.problems)


# ------------------------------------------------------------------------------------------------------------ pairing


def _pairs(left: Dump, right: Dump) -> Iterator[tuple[TensorRecord | None, TensorRecord | None]]:
    ones, twos = ({record.op: record for record in dump} for dump in (left, right))
    partners = {name: name for name in ones if name in twos}
    partners |= _by_full_name([n for n in ones if n not in twos], [n for n in twos if n not in ones], left, right)
    for name, record in ones.items():
        yield record, twos.get(partners.get(name, ""))
    taken = set(partners.values())
    yield from ((None, record) for name, record in twos.items() if name not in taken)


def _by_full_name(ones: Sequence[str], twos: Sequence[str], left: Dump, right: Dump) -> dict[str, str]:
    """Pairs what has one full name, where on neither side a second variable has it."""
    if not ones or not twos:
        return {}
    left_names, right_names = _unique(ones, _full_names(left)), _unique(twos, _full_names(right))
    return {one: right_names[full] for full, one in left_names.items() if full in right_names}


def _unique(names: Sequence[str], full_names: Mapping[str, str]) -> dict[str, str]:
    """Full name -> name; a variable of a checkpoint that was saved by name is its own full name."""
    counts = Counter(full_names.get(name) or name for name in names)
    return {full: name for name in names if counts[full := full_names.get(name) or name] == 1}


def _full_names(dump: Dump) -> dict[str, str]:
    graph = dump.tensor(OBJECT_GRAPH, "output", 0)
    if graph is None or graph.source is None:
        return {}
    try:
        return {key: variable.full_name for key, variable in read_object_graph(graph).items()}
    except DataError:  # no object graph in that string: there are no full names then
        return {}


# ---------------------------------------------------------------------------------------------------------- comparing


def _row(left: TensorRecord | None, right: TensorRecord | None) -> VariableRow:
    if left is None or right is None:
        return _one_sided(left, right)
    note = "" if left.op == right.op else f"paired by full name with {right.op}"
    row = VariableRow(left.op, left, right, "unreadable", note=note)
    lost = [record.note.removeprefix(UNREADABLE) for record in (left, right) if record.note.startswith(UNREADABLE)]
    if lost:
        return replace(row, reason="; ".join(lost))
    if left.source is None or right.source is None:
        return replace(row, verdict="not comparable", reason=left.note if left.source is None else right.note)
    arrays, errors = [], []
    for record in (left, right):
        try:
            arrays.append(record.load())
        except DataError as error:
            errors.append(str(error))
    if errors:
        return replace(row, reason="; ".join(errors))
    return _compared(row, arrays[0], arrays[1])


def _one_sided(left: TensorRecord | None, right: TensorRecord | None) -> VariableRow:
    found = left or right
    name = found.op if found else ""
    if name == OBJECT_GRAPH:
        where = "left" if left else "right"
        return VariableRow(name, left, right, "skipped", reason=f"only the {where} side was saved from objects")
    return VariableRow(name, left, right, "missing on the right" if left else "missing on the left")


def _compared(row: VariableRow, left: Array, right: Array) -> VariableRow:
    if _same_bytes(left, right):
        figures = equal_figures(left)
    else:
        figures = compare_arrays(left, right, with_divergence=False)
    if not figures.same_shape:
        return replace(row, verdict="shapes differ", figures=figures, reason=_shapes_reason(figures))
    types = (row.left.dtype if row.left else "", row.right.dtype if row.right else "")
    differing = figures.differing
    if differing is None:
        verdict: Verdict = "dtypes differ" if types[0] != types[1] else "not comparable"
        return replace(row, verdict=verdict, figures=figures, reason=figures.reasons["CosineSimilarity"])
    values = f"{differing} of {figures.elements} differ" if differing else "values equal"
    if types[0] != types[1]:
        return replace(row, verdict="dtypes differ", figures=figures, reason=f"{types[0]} against {types[1]}, {values}")
    if differing:
        return replace(row, verdict="values differ", figures=figures, reason=_values_reason(figures, values))
    return replace(row, verdict="equal", figures=figures, reason=_equal_reason(figures))


def _shapes_reason(figures: Figures) -> str:
    shapes = f"{shape_text(figures.left_shape)} against {shape_text(figures.right_shape)}"
    types = (figures.left_dtype, figures.right_dtype)
    dtypes = f", {types[0]} against {types[1]}" if types[0] != types[1] else ""
    flattened = figures.flattened.differing if figures.flattened else None
    flat = "" if flattened is None else f"; {flattened} of {figures.elements} differ in flat order"
    return f"{shapes}{dtypes}{flat}"


def _values_reason(figures: Figures, values: str) -> str:
    told = [values]
    if figures.non_finite_mismatches:
        told.append(
            f"{figures.non_finite_mismatches} not finite on one side (NaN {figures.nan_left} left, "
            f"{figures.nan_right} right; infinite {figures.inf_left} left, {figures.inf_right} right)"
        )
    if figures.cosine is None:
        told.append(f"no cosine: {figures.reasons['CosineSimilarity']}")
    if figures.pattern:
        told.append(figures.pattern)
    return "; ".join(told)


def _equal_reason(figures: Figures) -> str:
    told = [] if figures.cosine is not None else [figures.reasons["CosineSimilarity"]]
    if figures.nan_left or figures.inf_left:
        told.append(f"NaN {figures.nan_left}, infinite {figures.inf_left} on both sides")
    return "; ".join(told)


def _same_bytes(left: Array, right: Array) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape or left.dtype.hasobject:
        return False
    if not (left.flags.c_contiguous and right.flags.c_contiguous):
        return False
    one, two = left.reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8)
    return all(
        np.array_equal(one[at : at + _CHUNK], two[at : at + _CHUNK]) for at in range(0, max(one.size, 1), _CHUNK)
    )


def equal_figures(array: Array) -> Figures:
    """Returns the figures of an array against one with the same bytes, without the sums that need both."""
    counts = _Census(array)
    reason = ""
    if array.size == 0:
        reason = BOTH_EMPTY
    elif not counts.finite:
        reason = "no element is finite on both sides"
    elif array.size == 1:
        reason = "scalar"
    elif counts.zero:
        reason = BOTH_ZERO
    has_errors = bool(counts.finite)
    missing = "equal byte for byte" if has_errors else reason
    reasons = dict.fromkeys(COLUMNS, missing)
    reasons["CosineSimilarity"] = reason
    defined = ["MaxAbsoluteError"] if has_errors else []
    defined += ["RelativeEuclideanDistance"] if has_errors and not counts.zero else []
    defined += [] if reason else ["CosineSimilarity"]
    return Figures(
        array.shape,
        array.shape,
        array.dtype.name,
        array.dtype.name,
        array.size,
        differing=0,
        finite=counts.finite,
        nan_left=counts.nan,
        nan_right=counts.nan,
        inf_left=counts.inf,
        inf_right=counts.inf,
        cosine=None if reason else 1.0,
        max_abs_error=0.0 if has_errors else None,
        relative_distance=0.0 if has_errors and not counts.zero else None,
        reasons={column: text for column, text in reasons.items() if column not in defined},
    )


class _Census:
    """Counts of one array: elements that are finite, NaN, infinite; whether all finite ones are zero."""

    def __init__(self, array: Array) -> None:
        self.finite = array.size
        self.nan = self.inf = 0
        self.zero = True
        flat = array.reshape(-1)
        floating = element_kind(array.dtype) in ("float", "complex")
        for start in range(0, array.size, _CHUNK):
            block = flat[start : start + _CHUNK]
            if floating and not np.isfinite(block).all():
                nan = np.isnan(block)
                self.nan += int(nan.sum())
                self.inf += int((np.isinf(block) & ~nan).sum())
                block = block[np.isfinite(block)]
            self.zero = self.zero and not block.astype(bool).any()
        self.finite -= self.nan + self.inf
