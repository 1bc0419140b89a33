"""Feature keys: hashing of strings and the map from a key to its row.

Both work on whole arrays; nothing here runs a Python loop over keys.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.errors import CapacityError

INVALID_KEY = -1
"""Reserved everywhere for "no key": padding, not admitted. It never gets a row."""

INVALID_ROW = -1
"""The row of a key that has none."""

KEY_MASK = 0x7FFF_FFFF_FFFF_FFFF
"""Hashes are cut to 63 bits, so that a hashed key is never negative and never :data:`INVALID_KEY`."""

_FNV_OFFSET = 0xCBF2_9CE4_8422_2325
_FNV_PRIME = 0x0000_0100_0000_01B3
_FIRST_SLOTS = 1024


def fnv1a64(data: bytes) -> int:
    """Returns the 64-bit FNV-1a hash of a byte string (offset basis ``cbf29ce484222325``, prime ``100000001b3``)."""
    state = _FNV_OFFSET
    for byte in data:
        state = ((state ^ byte) * _FNV_PRIME) & 0xFFFF_FFFF_FFFF_FFFF
    return state


def hash_tokens(tokens: Sequence[str], *, prefix: str = "") -> NDArray[np.int64]:
    """Returns one key per string, the same on every machine and in every version.

    The key is ``fnv1a64(utf8(prefix + token)) & 0x7fff_ffff_ffff_ffff``. The prefix keeps equal strings of different
    fields apart (``C3=05db9164`` and ``C7=05db9164`` are two keys); an empty string is a key like any other.

    Args:
        tokens: T strings.
        prefix: Put in front of each of them.

    Returns:
        int64 [T], each in 0 .. 2**63-1.
    """
    encoded = [token.encode("utf-8") for token in tokens]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    width = max(map(len, encoded), default=0)
    state = np.full(len(encoded), fnv1a64(prefix.encode("utf-8")), dtype=np.uint64)
    if width:
        letters = np.array(encoded, dtype=f"S{width}").view(np.uint8).reshape(len(encoded), width)
        prime = np.uint64(_FNV_PRIME)
        for column in range(width):
            stepped = (state ^ letters[:, column]) * prime
            state = np.where(column < lengths, stepped, state)
    return (state & np.uint64(KEY_MASK)).astype(np.int64)


class KeyMap:
    """Which row of a table each key has. Safe to call from several threads.

    Rows are handed out 0, 1, 2, ... in order of first appearance in training. Inside it is an open-addressing hash
    table on arrays, kept at most half full, whose probes run for all keys of a batch at once.

    Attributes:
        capacity: Rows there are; one key more raises CapacityError.
        name: The table's name, for messages.
    """

    def __init__(self, capacity: int, *, name: str = "table") -> None:
        if capacity < 1:
            raise ValueError(f"capacity of {name!r} must be at least 1, got {capacity}")
        self.capacity = capacity
        self.name = name
        self._lock = threading.Lock()
        self._count = 0
        self._keys_by_row = np.empty(_FIRST_SLOTS, dtype=np.int64)
        self._slot_keys = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self._slot_rows = np.full(_FIRST_SLOTS, INVALID_ROW, dtype=np.int64)

    def __len__(self) -> int:
        return self._count

    def keys(self) -> NDArray[np.int64]:
        """Returns a copy of all keys, int64 [N], the key of row r at position r."""
        with self._lock:
            return self._keys_by_row[: self._count].copy()

    def unique_rows(
        self, keys: NDArray[np.int64] | NDArray[np.int32], *, insert: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Returns a batch's distinct keys, their rows, and how to get back to the batch.

        Args:
            keys: Integers of any shape, K in all, in reading order.
            insert: True in training: an unknown key gets the next row. False in evaluation: it stays unknown and the
                map is left as it is.

        Returns:
            ``(unique_keys, rows, restore)``: int64 [U] in order of first appearance; int64 [U], -1 where a key has no
            row (unknown in evaluation, and :data:`INVALID_KEY` always); int64 [K] so that ``unique_keys[restore]`` is
            the flat batch.

        Raises:
            CapacityError: The batch has more new keys than there are free rows; the map is then unchanged.
        """
        unique_keys, restore = unique_in_order(np.asarray(keys, dtype=np.int64).ravel())
        with self._lock:
            rows = self._find(unique_keys)
            if insert:
                is_new = (rows == INVALID_ROW) & (unique_keys != INVALID_KEY)
                rows[is_new] = self._insert(unique_keys[is_new])
        return unique_keys, rows, restore

    def _find(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the row of each key, int64 [K], -1 where it has none."""
        mask = len(self._slot_keys) - 1
        rows = np.full(len(keys), INVALID_ROW, dtype=np.int64)
        pending = np.arange(len(keys))
        slots = _home_slots(keys, mask)
        while len(pending):
            found_rows = self._slot_rows[slots]
            hit = (found_rows != INVALID_ROW) & (self._slot_keys[slots] == keys[pending])
            rows[pending[hit]] = found_rows[hit]
            go_on = (found_rows != INVALID_ROW) & ~hit
            pending, slots = pending[go_on], (slots[go_on] + 1) & mask
        return rows

    def _insert(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Gives the next rows to keys that are distinct and have none yet; returns those rows."""
        total = self._count + len(keys)
        if total > self.capacity:
            raise CapacityError(
                f"table {self.name!r} is full: its {self.capacity} rows hold {self._count} keys and this batch brings"
                f" {len(keys)} new ones; raise device_vocabulary_size to at least {total}"
            )
        rows = np.arange(self._count, total, dtype=np.int64)
        self._grow(total)
        self._keys_by_row[self._count : total] = keys
        self._place(keys, rows)
        self._count = total
        return rows

    def _grow(self, total: int) -> None:
        """Makes room for ``total`` keys: twice as many slots as keys at least, so that probes stay short."""
        slots = len(self._slot_keys)
        if 2 * total <= slots:
            return
        while 2 * total > slots:
            slots *= 2
        old = self._keys_by_row[: self._count]
        self._keys_by_row = np.empty(slots // 2, dtype=np.int64)
        self._keys_by_row[: self._count] = old
        self._slot_keys = np.zeros(slots, dtype=np.int64)
        self._slot_rows = np.full(slots, INVALID_ROW, dtype=np.int64)
        self._place(self._keys_by_row[: self._count], np.arange(self._count, dtype=np.int64))

    def _place(self, keys: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Writes distinct keys that are not in the table into free slots.

        Several keys may claim one free slot in the same round: all write, the one that is read back stays, the others
        probe on.
        """
        mask = len(self._slot_keys) - 1
        pending = np.arange(len(keys))
        slots = _home_slots(keys, mask)
        while len(pending):
            free = self._slot_rows[slots] == INVALID_ROW
            claimed = slots[free]
            self._slot_rows[claimed] = rows[pending[free]]
            won = np.zeros(len(pending), dtype=np.bool_)
            won[free] = self._slot_rows[claimed] == rows[pending[free]]
            self._slot_keys[slots[won]] = keys[pending[won]]
            pending, slots = pending[~won], (slots[~won] + 1) & mask


def unique_in_order(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the distinct keys in order of first appearance and the position of each key among them.

    Args:
        keys: int64 [K].

    Returns:
        int64 [U] and int64 [K].
    """
    in_value_order, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order), dtype=np.int64)
    return in_value_order[order], place[inverse.reshape(-1)]


def _home_slots(keys: NDArray[np.int64], mask: int) -> NDArray[np.int64]:
    """Returns where each key's probing starts: the low bits of its 64-bit mix (the splitmix64 finaliser)."""
    mixed = keys.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return ((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask)).astype(np.int64)
