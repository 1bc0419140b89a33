"""Call and Kernel: one op with its inputs, and how to compute and bound it. No TensorFlow here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.bounds import Bounded
from dumpers.dtypes import WITHOUT_VALUE, numpy_dtype

if TYPE_CHECKING:
    from compare.bounds import Array, Operand, Real
    from dumpers.graph import AttrValue

MAX_ELEMENTS = 2**31
"""No result larger than this is built: shapes come from files, and a damaged one must not eat the memory."""

MAX_SCRATCH = 2**24
"""No more elements than this are laid out beside a result: 128 MB, and the bounds make several of them."""


class KernelError(ValueError):
    """The inputs or attributes do not fit the op. Never leaves this package's callers: it becomes a reason."""


@dataclass(frozen=True)
class Call:
    """One op to evaluate.

    Attributes:
        type: Op type as in the graph.
        inputs: Arrays; None for an absent optional input.
        dtypes: Declared dtype of each output, empty text where unknown.
        u: Unit roundoff of the arithmetic inside the op (used by bounds).
        own_u: Unit roundoff with which each step of an element-wise formula may be rounded.
    """

    type: str
    inputs: tuple[Array | None, ...]
    attrs: Mapping[str, AttrValue]
    dtypes: tuple[str, ...] = ()
    u: float = 2.0**-24
    own_u: float = 2.0**-24

    def array(self, index: int) -> Array:
        """Returns input ``index``.

        Raises:
            KernelError: it is missing.
        """
        if index >= len(self.inputs):
            raise KernelError(f"input {index} missing")
        found = self.inputs[index]
        if found is None:
            raise KernelError(f"input {index} missing")
        return found

    def arrays(self) -> tuple[Array, ...]:
        """Returns all inputs; raises KernelError if one is missing."""
        return tuple(self.array(index) for index in range(len(self.inputs)))

    def flag(self, *names: str) -> bool:
        """Returns the first of these boolean attributes that is present, else False."""
        for name in names:
            if name in self.attrs:
                return bool(self.attrs[name])
        return False

    def integer(self, name: str, default: int = 0) -> int:
        """Returns an integer attribute."""
        value = self.attrs.get(name)
        return default if value is None or not isinstance(value, (int, float)) else int(value)

    def number(self, name: str, default: float) -> float:
        """Returns a number attribute in single precision, which is what graph files hold.

        Raises:
            KernelError: it is no number, or not finite.
        """
        value = self.attrs.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
            raise KernelError(f"attribute {name} is {value!r}, wanted a number")
        return float(np.float32(value))

    def text(self, name: str, default: str) -> str:
        """Returns a text attribute."""
        value = self.attrs.get(name, default)
        return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)

    def integers(self, index: int, *names: str) -> list[int]:
        """Returns a small integer tensor: input ``index``, or the attribute that device types carry in its place."""
        if index < len(self.inputs) and self.inputs[index] is not None:
            found = np.asarray(self.inputs[index]).reshape(-1)
        else:
            value = next((self.attrs[name] for name in names if name in self.attrs), None)
            if value is None:
                raise KernelError(f"input {index} missing")
            found = np.asarray(value).reshape(-1)
        if found.size and found.dtype.kind not in "iu":
            raise KernelError(f"input {index} must be integer, is {found.dtype}")
        return [int(number) for number in found]

    def dtype(self, slot: int) -> np.dtype[Any] | None:
        """Returns the declared dtype of an output, None if it is unknown or without value."""
        name = self.dtypes[slot] if slot < len(self.dtypes) else ""
        return None if not name or name in WITHOUT_VALUE else numpy_dtype(name)

    def with_inputs(self, inputs: Sequence[Array | None]) -> Call:
        """Returns the same call on other inputs."""
        return replace(self, inputs=tuple(inputs))

    def bounded(self, index: int) -> Bounded:
        """Returns input ``index`` as a value without error."""
        value = np.asarray(self.array(index), dtype=np.float64)
        return Bounded(value, np.zeros_like(value), self.own_u, 2.0 if self.own_u <= 2.0**-24 else 1.0)


Run = Callable[[Call], "Sequence[Array]"]
Bound = Callable[[Call, "Sequence[Array]"], "Sequence[Real]"]


@dataclass(frozen=True)
class Kernel:
    """How to evaluate an op type.

    Attributes:
        run: Outputs, computed in the dtype of the inputs.
        bound: Error bound per output from float64 inputs and exact outputs; None when nothing may be rounded.
        inputs: Least and greatest number of inputs, -1 for any.
        moves: It only moves or converts data, so that not even subnormal numbers may change.
        nan_free: With a NaN among its operands implementations differ (max, relu): such elements are not judged.
        unsure: Where implementations differ for another reason, as a mask that broadcasts to the outputs: not judged.
        accumulates: Its inner arithmetic is wider than a 16-bit output, which is rounded once at the end.
        rest: Why further outputs than those it computes are not judged.
        formula: The element-wise function on arrays and Bounded operands alike, where the kernel is one.
    """

    run: Run
    bound: Bound | None = None
    inputs: tuple[int, int] = (1, 1)
    moves: bool = False
    nan_free: bool = False
    unsure: Callable[[Call], Array] | None = None
    accumulates: bool = False
    rest: str = "not replayable: the kernel has no such output"
    formula: Callable[..., Operand] | None = None


def moving(run: Run, least: int = 1, most: int | None = None) -> Kernel:
    """Kernel of an op that moves data or computes shapes: bound 0, bit for bit."""
    return Kernel(run, None, (least, least if most is None else most), moves=True)


def formula(function: Callable[..., Operand], arity: int) -> Kernel:
    """Kernel of an element-wise formula; its bound is the running error of the same formula on Bounded operands."""
    return replace(attributed(lambda call, *operands: function(*operands), arity), formula=function)


def attributed(function: Callable[..., Operand], arity: int, *, nan_free: bool = False) -> Kernel:
    """The same for a formula that reads attributes: it gets the call before the operands."""

    def run(call: Call) -> list[Array]:
        arrays = [call.array(index) for index in range(arity)]
        # NumPy 1.x computes 0-d arrays with Python numbers in float64; one axis keeps the arrays' own dtype.
        result = np.asarray(function(call, *(np.atleast_1d(part) for part in arrays)))
        return [result.reshape(np.broadcast_shapes(*(part.shape for part in arrays)))]

    def bound(call: Call, exact: Sequence[Array]) -> list[Real]:
        result = function(call, *(call.bounded(index) for index in range(arity)))
        if not isinstance(result, Bounded):
            raise KernelError("formula without an error bound")
        return [np.broadcast_to(result.error, np.shape(exact[0]))]

    return Kernel(run, bound, (arity, arity), nan_free=nan_free)


def checked_shape(dims: Sequence[int]) -> tuple[int, ...]:
    """Returns a shape that can be allocated.

    Raises:
        KernelError: a dimension is negative or the product is beyond :data:`MAX_ELEMENTS`.
    """
    total = 1
    for size in dims:
        if size < 0:
            raise KernelError(f"shape {list(dims)} has a negative dimension")
        total *= max(size, 1)
    if total > MAX_ELEMENTS:
        raise KernelError(f"shape {list(dims)} is too large to replay")
    return tuple(dims)


def checked_scratch(elements: int, what: str) -> None:
    """Refuses a replay that would lay out far more than it reads.

    Raises:
        KernelError: there are more than :data:`MAX_SCRATCH` elements.
    """
    if elements > MAX_SCRATCH:
        raise KernelError(f"{what} would take {elements} elements at once, too many to replay")


def checked_axis(axis: int, rank: int) -> int:
    """Returns a non-negative axis; raises KernelError when it lies outside ``rank``."""
    if not -rank <= axis < rank:
        raise KernelError(f"axis {axis} outside rank {rank}")
    return axis % rank


def checked_indices(indices: Array, limit: int) -> Array:
    """Returns indices as int64; raises KernelError when one lies outside ``[0, limit)``."""
    if indices.dtype.kind not in "iu":
        raise KernelError(f"indices must be integer, are {indices.dtype}")
    result = indices.astype(np.int64)
    if result.size and (result.min() < 0 or result.max() >= limit):
        bad = int(result.min()) if result.min() < 0 else int(result.max())
        raise KernelError(f"index {bad} outside 0..{limit - 1}")
    return result
