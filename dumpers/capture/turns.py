"""Tensors of loops, which have a value each turn: which turns are kept, and where they stand in the order of time.

TensorFlow's debugger writes a file for every turn. A thread deletes the surplus while the loop goes on: all but the
first ones and the last. On a busy machine it falls behind; where room gets short, all turns are given up.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

if TYPE_CHECKING:
    from .plan import Taken

_FILE = re.compile(r"(.+)_(\d+)_DebugIdentity_(\d+)(?:-(\d+))?\Z", re.DOTALL)
_POLL_S = 0.01
_FLOOR_BYTES = 32 << 20
"""Free space below which all turns are given up: a debugger that cannot write ends the user's run."""

MEMORY_BYTES = 256 << 20
"""What the files of one run may take where nobody has set TMPDIR, since they may lie in memory."""

FULL = "no room for more; set TMPDIR to a larger folder or TF_DUMP_LOOP_TURNS to fewer turns"


@dataclass(frozen=True)
class Turns:
    """What is kept of one tensor of a loop.

    Attributes:
        of: How many turns there were.
        files: Number of each kept turn, from 0, with the debugger's file of it.
        reason: Why fewer are kept than were to be.
    """

    of: int
    files: Tuple[Tuple[int, Path], ...]
    reason: str = ""

    def note(self, turn: int) -> str:
        """What the record says about one turn; nothing where there was only one."""
        return "turn {}; {}".format(turn, self.summary) if self.of > 1 else ""

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        total = 0
        for _, path in self.files:
            with contextlib.suppress(OSError):  # somebody cleans the temporary directory
                total += path.stat().st_size
        return total

    @property
    def summary(self) -> str:
        """How many turns are kept."""
        text = "kept {} of {}".format(len(self.files), self.of)
        return "{}: {}".format(text, self.reason) if self.reason else text


class _Files:
    """The debugger's files of one tensor, all in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.count = 0
        self.held: List[Tuple[Tuple[int, int], str]] = []

    def take(self, fresh: Sequence[Tuple[Tuple[int, int], str]], keep: int) -> List[str]:
        """Adds files just found and returns those to delete: all but the first ``keep - 1`` and the last."""
        self.count += len(fresh)
        held = sorted([*self.held, *fresh])
        self.held = held[: keep - 1] + held[keep - 1 :][-1:] if keep else []
        kept = {name for _, name in self.held}
        return [name for _, name in held if name not in kept]


class TurnKeeper:
    """Deletes the files of surplus turns while a run goes on.

    Args:
        folder: The debugger's folder.
        names: ``op:slot`` of the tensors in loops.
        keep: How many turns to keep of each, at least two.
    """

    def __init__(self, folder: Path, names: Collection[str], keep: int) -> None:
        self._folder = folder
        self._names = frozenset(names)
        self._scopes = sorted({name.rsplit(":", 1)[0].rpartition("/")[0] for name in names})
        self._keep = keep
        free = _free_bytes(folder)
        self._floor = _FLOOR_BYTES if "TMPDIR" in os.environ else max(_FLOOR_BYTES, free - MEMORY_BYTES)
        self._files: Dict[str, _Files] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="precision_tool_turns", daemon=True)
        self.reason = ""

    def start(self) -> None:
        """Begins to delete."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; afterwards only the kept files are there."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._scan()

    def kept(self) -> Iterator[Tuple[str, int, List[Tuple[int, Path]]]]:
        """Yields the name of each tensor that ran, its number of turns, and the kept ones with their files."""
        for name, files in self._files.items():
            turns = [*range(len(files.held) - 1), files.count - 1]
            paths = [Path(files.folder) / file for _, file in files.held]
            yield name, files.count, list(zip(turns, paths))  # noqa: B905 - as many, or no path; Python 3.7

    def _work(self) -> None:
        pause = _POLL_S
        while not self._stop.wait(pause):
            start = time.monotonic()
            self._scan()
            # Not more than half a core, however many tensors there are.
            pause = max(_POLL_S, time.monotonic() - start)

    def _scan(self) -> None:
        if self._keep and _free_bytes(self._folder) < self._floor:
            self._keep, self.reason = 0, FULL
        for device in _names(str(self._folder)):
            for scope in self._scopes:
                self._scan_scope(scope, os.path.join(str(self._folder), device, scope))

    def _scan_scope(self, scope: str, folder: str) -> None:
        fresh: Dict[str, List[Tuple[Tuple[int, int], str]]] = {}
        for file in _names(folder):
            match = _FILE.match(file)
            if match:
                op, slot, moment, number = match.groups()
                name = "{}{}:{}".format(scope + "/" if scope else "", op, slot)
                fresh.setdefault(name, []).append(((int(moment), int(number or 0)), file))
        for name in self._names.intersection(fresh):
            files = self._files.setdefault(name, _Files(folder))
            known = {file for _, file in files.held}
            for file in files.take([item for item in fresh[name] if item[1] not in known], self._keep):
                with contextlib.suppress(OSError):  # it goes with the folder
                    os.unlink(os.path.join(folder, file))


def time_stamps(tensors: Sequence[Taken], turns: Mapping[str, Turns]) -> Iterator[Tuple[Taken, int, Optional[int]]]:
    """Yields each tensor with its place in time, in microseconds from the start, once for each kept turn.

    Outside loops the place is the op's own. The tensors of a loop come turn by turn before what leaves the loop; the
    turns of an inner loop count through all turns of the outer one.

    Yields:
        The tensor, its place, and the index of the turn among the kept ones (None for a tensor without turns).
    """
    if not any(taken.group for taken in tensors):
        for taken in tensors:
            yield taken, taken.moment, None
        return
    keyed: List[Tuple[Tuple[int, int, int, int], int, Optional[int]]] = []
    for place, taken in enumerate(tensors):
        if not taken.group:
            keyed.append(((taken.moment, 1, 0, 0), place, None))
            continue
        files = turns[taken.name].files if taken.name in turns else ()
        for index, (turn, _) in enumerate(files):
            keyed.append(((taken.group, 0, turn, taken.moment), place, index))
        if not files:
            keyed.append(((taken.group, 0, 0, taken.moment), place, None))
    keyed.sort(key=lambda item: item[:2])
    moment = -1
    former: Optional[Tuple[int, int, int, int]] = None
    for key, place, number in keyed:
        moment += key != former
        former = key
        yield tensors[place], moment, number


def _names(folder: str) -> Set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _free_bytes(folder: Path) -> int:
    try:
        space = os.statvfs(str(folder))
    except OSError:
        return 0
    return space.f_bavail * space.f_frsize
