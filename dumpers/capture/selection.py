"""Which tensors of a recorded step are wanted: by op, type, dtype, scope, size, or named one by one in a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Optional, Pattern, Sequence, Tuple

from ..errors import UsageError
from ..settings import Settings
from .plan import Plan, Taken

if TYPE_CHECKING:
    from .record import Item

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15})([KMG]?)")
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True)
class Selection:
    """What is wanted; a tensor is recorded if everything that is set agrees.

    Attributes:
        ops: Found somewhere in the op's name.
        types: Matches the whole op type.
        dtypes: Names of dtypes.
        scopes: Name scopes: the op itself or whatever lies in it.
        smallest: Least bytes of a tensor.
        largest: Most bytes of a tensor; None for no limit.
        tensors: Names ``op:slot``.
        budget: Most bytes of values that a step may write; None for no limit.
        texts: How the user said it, by setting.
    """

    ops: Optional[Pattern[str]] = None
    types: Optional[Pattern[str]] = None
    dtypes: FrozenSet[str] = frozenset()
    scopes: Tuple[str, ...] = ()
    smallest: int = 0
    largest: Optional[int] = None
    tensors: Optional[FrozenSet[str]] = None
    budget: Optional[int] = None
    texts: Tuple[Tuple[str, str], ...] = ()

    def takes(self, taken: Taken) -> bool:
        """Tells whether a tensor is wanted, as far as that is known before the run."""
        if self.tensors is not None and taken.name not in self.tensors:
            return False
        if self.ops is not None and not self.ops.search(taken.op):
            return False
        if self.types is not None and not self.types.fullmatch(taken.op_type):
            return False
        if self.dtypes and taken.dtype not in self.dtypes:
            return False
        return not self.scopes or any((taken.op + "/").startswith(scope) for scope in self.scopes)

    def chosen(self, plan: Plan) -> Plan:
        """Returns the plan with the wanted tensors only."""
        kept = tuple(taken for taken in plan.tensors if self.takes(taken))
        if len(kept) == len(plan.tensors):
            return plan
        return replace(plan, tensors=kept, copied=plan.copied & {taken.name for taken in kept})

    def sized(self, items: Sequence[Item]) -> List[Item]:
        """Returns the items whose size is wanted, and those without a value; sizes are known after the run."""
        return [item for item in items if item.value is None or self._fits(item.value.nbytes)]

    def _fits(self, size_bytes: int) -> bool:
        return size_bytes >= self.smallest and (self.largest is None or size_bytes <= self.largest)


EVERYTHING = Selection()


def read_selection(settings: Settings) -> Selection:
    """Returns what the settings choose.

    Raises:
        UsageError: one of them cannot be read.
    """
    smallest, largest = _sizes(settings.dump_sizes)
    texts: Dict[str, str] = {
        "TF_DUMP_OPS": settings.dump_ops,
        "TF_DUMP_OP_TYPES": settings.dump_op_types,
        "TF_DUMP_DTYPES": settings.dump_dtypes,
        "TF_DUMP_SCOPES": settings.dump_scopes,
        "TF_DUMP_SIZES": settings.dump_sizes,
        "TF_DUMP_TENSORS": settings.dump_tensors,
        "TF_DUMP_BUDGET": settings.dump_budget,
    }
    return Selection(
        ops=_pattern("TF_DUMP_OPS", settings.dump_ops),
        types=_pattern("TF_DUMP_OP_TYPES", settings.dump_op_types),
        dtypes=_dtypes(settings.dump_dtypes),
        scopes=tuple(scope.rstrip("/") + "/" for scope in _items(settings.dump_scopes)),
        smallest=smallest,
        largest=largest,
        tensors=_tensors(settings.dump_tensors),
        budget=parse_bytes("TF_DUMP_BUDGET", settings.dump_budget) if settings.dump_budget.strip() else None,
        texts=tuple((name, text) for name, text in texts.items() if text.strip()),
    )


def parse_bytes(name: str, text: str) -> int:
    """Parses ``4096``, ``64K``, ``100M`` or ``2G`` (of 1,024).

    Args:
        name: What it is, for the error.
        text: The text.

    Raises:
        UsageError: it is none of these.
    """
    match = _SIZE.fullmatch(text.strip().upper())
    if match is None:
        raise UsageError("{} {!r}: give bytes as 4096, 64K, 100M or 2G".format(name, text[:60]))
    return int(match.group(1)) * _UNITS[match.group(2)]


def _sizes(text: str) -> Tuple[int, Optional[int]]:
    if not text.strip():
        return 0, None
    first, dash, last = text.partition("-")
    if not dash or not (first.strip() or last.strip()):
        raise UsageError("TF_DUMP_SIZES {!r}: give a range of bytes as 1K-64M, -64M or 1K-".format(text[:60]))
    smallest = parse_bytes("TF_DUMP_SIZES", first) if first.strip() else 0
    largest = parse_bytes("TF_DUMP_SIZES", last) if last.strip() else None
    if largest is not None and largest < smallest:
        raise UsageError("TF_DUMP_SIZES {!r}: the range runs backwards".format(text[:60]))
    return smallest, largest


def _pattern(name: str, text: str) -> Optional[Pattern[str]]:
    if not text.strip():
        return None
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError("{} {!r}: is no regular expression: {}".format(name, text[:60], error)) from error


def _dtypes(text: str) -> FrozenSet[str]:
    names = _items(text)
    if not names:
        return frozenset()
    import tensorflow as tf

    for name in names:
        try:
            known = tf.as_dtype(name).name == name
        except TypeError:
            known = False
        if not known:
            raise UsageError("TF_DUMP_DTYPES {!r}: {!r} is no dtype of TensorFlow".format(text[:60], name[:60]))
    return frozenset(names)


def _tensors(text: str) -> Optional[FrozenSet[str]]:
    """The names in a file, one a line; those without a slot are of output 0."""
    if not text.strip():
        return None
    path = Path(text)
    try:
        with open(str(path), "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError("TF_DUMP_TENSORS {}: cannot be read: {}".format(path, error.strerror or error)) from error
    if len(content) > _MAX_FILE_BYTES:
        raise UsageError("TF_DUMP_TENSORS {}: has more than {} bytes".format(path, _MAX_FILE_BYTES))
    try:
        lines = [line.strip() for line in content.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise UsageError("TF_DUMP_TENSORS {}: is no text; give one tensor name a line".format(path)) from error
    names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise UsageError("TF_DUMP_TENSORS {}: names no tensor; give one a line, as dense/MatMul:0".format(path))
    return frozenset(name if re.search(r":[0-9]+\Z", name) else name + ":0" for name in names)


def _items(text: str) -> List[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
