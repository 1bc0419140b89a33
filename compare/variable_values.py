"""The values of one variable on both sides -> what is to say of them.

Variables with one stored checksum are expected to be equal: their bytes are compared as they lie in the files, and one
checksum of them proves both sides undamaged. Everything else is summed, in place where the bytes lie plainly, and
checksums are taken of the blocks while they are in the processor's cache. So checksums are always verified, unless the
user trusts the index: then variables with one checksum are not read at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from compare.equal_variables import Census, equal_figures, same_bytes
from compare.metrics import compare_arrays, compare_sources
from compare.variable_row import judged
from dumpers.errors import DataError
from dumpers.formats.bundle_sources import BundleSource, StringSource
from dumpers.formats.crc32c import RunningChecksum, crc32c, masked
from dumpers.formats.raw import read_into

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from compare.figures import Figures
    from compare.variable_row import VariableRow
    from dumpers.formats.extent import TensorFile
    from dumpers.records import TensorSource

BLOCK: Final = 1 << 18
"""Bytes of each side that are in hand at once; they stay in a core's cache."""

TRUSTED: Final = "equal by the checksums of both indexes; not read"


class Values:
    """Compares values; one object serves all threads.

    Attributes:
        trust: Whether one stored checksum on both sides is proof enough.
        check: Called between blocks, so that a large variable can be interrupted; raises to end the work.
    """

    def __init__(self, *, trust: bool, check: Callable[[], None]) -> None:
        self.trust = trust
        self.check = check

    def compare(self, row: VariableRow, left: TensorSource, right: TensorSource) -> VariableRow:
        """Returns the row with its verdict."""
        ones, twos = _stored(left), _stored(right)
        if ones is not None and twos is not None and _same_checksum(ones, twos):
            if self.trust:
                return replace(row, verdict="equal", reason=TRUSTED)
            if isinstance(left, BundleSource):
                try:
                    figures = self._equal_in_files(ones, twos)
                except DataError as error:
                    return replace(row, reason=str(error))
                if figures is not None:
                    return judged(row, figures)
        if ones is not None and twos is not None and ones is left and twos is right and ones.size and twos.size:
            return self._in_place(row, ones, twos)
        return self._loaded(row, left, right)

    def _loaded(self, row: VariableRow, left: TensorSource, right: TensorSource) -> VariableRow:
        arrays, errors = [], []
        for source in (left, right):
            try:
                arrays.append(source.load())
            except DataError as error:
                errors.append(str(error))
            self.check()
        if errors:
            return replace(row, reason="; ".join(errors))
        if same_bytes(*arrays):
            return judged(row, equal_figures(arrays[0]))
        return judged(row, compare_arrays(*arrays, with_divergence=False, with_relative=False))

    def _in_place(self, row: VariableRow, left: BundleSource, right: BundleSource) -> VariableRow:
        sides = (_Verified(left, self.check), _Verified(right, self.check))
        figures, errors = None, []
        try:
            figures = compare_sources(*sides, with_divergence=False, with_relative=False)
        except DataError as error:
            errors.append(str(error))
        for side in sides:
            try:
                side.verify()
            except DataError as error:
                errors.append(str(error))
        if errors or figures is None:
            return replace(row, reason="; ".join(dict.fromkeys(errors)))
        return judged(row, figures)

    def _equal_in_files(self, left: BundleSource, right: BundleSource) -> Figures | None:
        """Returns the figures of two variables whose bytes are equal and undamaged, None if they are not.

        Raises:
            DataError: a file vanished or became shorter.
        """
        census = Census(left.numbers(np.empty(0, np.uint8)).dtype, left.shape)
        rooms = np.empty((2, min(BLOCK, left.size)), np.uint8)
        crc = 0
        with left.place() as one, right.place() as two:
            for at in range(0, left.size, BLOCK):
                self.check()
                ours, theirs = rooms[:, : min(BLOCK, left.size - at)]
                read_into(one.fd, ours, one.offset + at, one.where)
                read_into(two.fd, theirs, two.offset + at, two.where)
                words = np.uint64 if ours.size % 8 == 0 else np.uint8
                if not np.array_equal(ours.view(words), theirs.view(words)):
                    return None
                crc = crc32c(ours.data, crc)
                census.add(left.numbers(ours))
        return census.figures() if masked(crc) == left.checksum else None


class _Verified:
    """A variable whose checksum is taken while its blocks are compared."""

    def __init__(self, source: BundleSource, check: Callable[[], None]) -> None:
        self._source = source
        self._checksum = RunningChecksum(check)
        self._loaded = False

    @property
    def path(self) -> Path:
        """The data file."""
        return self._source.path

    def open(self) -> TensorFile | None:
        """Opens the tensor in place, as comparisons ask for it."""
        file = self._source.in_place()
        if file is not None:
            file.checksum = self._checksum
        return file

    def load(self) -> NDArray[np.generic]:
        """Loads it, which verifies its checksum."""
        array = self._source.load()
        self._loaded = True
        return array

    def verify(self) -> None:
        """Holds the checksum against the stored one; bytes that no sweep has shown are read for it.

        Raises:
            DataError: the variable is damaged.
        """
        if self._loaded:
            return
        if self._checksum.seen == self._source.size:
            self._source.check(self._checksum.value)
        else:
            self._source.verify()


def _stored(source: TensorSource) -> BundleSource | None:
    """Returns where the bytes of a variable lie, if they have one checksum."""
    if isinstance(source, StringSource):
        return source.place
    return source if isinstance(source, BundleSource) else None


def _same_checksum(left: BundleSource, right: BundleSource) -> bool:
    """Whether two variables are equal unless a file is damaged."""
    same = (left.encoding, left.shape, left.size, left.big_endian, left.checksum)
    return same == (right.encoding, right.shape, right.size, right.big_endian, right.checksum)
