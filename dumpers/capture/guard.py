"""The observer guard: a ladder of hashes of what a job computes, written with the recording on and off.

``TF_DUMP_GUARD=FOLDER`` makes each hook write one; with ``TF_DUMP_GUARD_PLAIN=True`` besides, nothing is recorded,
whatever the other settings say. Two ladders that agree prove that the recording changed no bit.

A ladder is a file of JSON lines, ``ladder_<n>.jsonl`` or, where a job has several ranks, ``rank_<r>_<n>.jsonl``, a file
a session or step function in the order of their first steps. Each line has ``at``:

* ``header``: ``format`` (1), ``kind`` (of hook), ``run`` (the same in all files of a process and its children) and what
  two runs could differ in: versions, environment, seeds, rewriting of the graph, threads, devices, ``records`` (steps).
* ``start``: ``variables`` before the first step.
* the number of a step: ``count`` of steps in it, ``recorded``, ``fed``, ``fetched``, ``variables`` where they were
  read, ``graph`` (its hash, where it is new), ``added`` (ops that came into the graph while the step ran).
* ``settled``: ``variables`` after ``step``, where the step itself did not read them and the job says that it is done.
* ``end``: ``steps``; without this line the run was cut off.

Values are objects of ``[dtype, shape, bytes, hash]`` by name, null for a variable that is not initialised. The hash is
BLAKE2b with 128 bits over the row-major bytes; texts are hashed with their lengths in front.
"""

from __future__ import annotations

import abc
import atexit
import hashlib
import json
import os
import platform
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from .ranks import find_rank
from .record import make_private
from .talk import SayOnce

FORMAT = 1
RUN_VARIABLE = "TF_DUMP_GUARD_RUN"
HASH_BYTES = 16
EVERY_STEP_BELOW = 16
"""Variables are read after each of so many steps, then after eight steps each time that the number of steps doubles."""

_ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "TF_CUDNN_DETERMINISTIC",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
_LONGEST = 300

Named = Iterable[Tuple[str, Any]]
"""Names and values."""

Line = Dict[str, Any]

_live: List[Ladder] = []
_live_lock = threading.Lock()


class Rung:
    """A step that has begun.

    Attributes:
        line: What is known of it before it runs.
        version: Of the graph then.
    """

    def __init__(self, line: Line, version: int) -> None:
        self.line = line
        self.version = version


class Ladder(abc.ABC):
    """One ladder. What goes wrong with it is said once and ends the ladder, never the job.

    Args:
        folder: Where its file goes.
        records: Which steps are recorded, as text.
        kind: What hook it is.
    """

    def __init__(self, folder: Path, records: str, kind: str) -> None:
        self._folder = folder
        self._records = records
        self._kind = kind
        self._say_once = SayOnce()
        self._lock = threading.Lock()
        self._file: Optional[int] = None
        self._process = 0
        self._over = False
        self._steps = 0
        self._unread: Optional[int] = None
        self._graph = ""

    def begin(self, step: int, recorded: bool, fed: Callable[[], Named], *, count: int = 1, version: int = 0) -> Rung:
        """Notes what a step gets; before the first one also where the job starts from.

        Args:
            step: Its number.
            recorded: Whether it is going to be recorded.
            fed: Gives the values that go in.
            count: Steps in it.
            version: Of the graph, before the hook looked at it.
        """
        rung = Rung({"at": step, "recorded": recorded}, version)
        if count > 1:
            rung.line["count"] = count

        def work() -> None:
            self._open()
            rung.line["fed"] = fingerprints(fed())

        self._quietly(work)
        return rung

    def finish(self, rung: Rung, results: Callable[[], Named]) -> None:
        """Writes the rung of a step that went well.

        Args:
            rung: What :meth:`begin` returned.
            results: Gives what the job gets.
        """

        def work() -> None:
            line = rung.line
            line["fetched"] = fingerprints(results())
            last = int(line["at"]) + int(line.get("count", 1)) - 1
            self._unread = last
            if any(variables_due(step) for step in range(int(line["at"]), last + 1)):
                line["variables"] = self._read()
            self._add_graph(line)
            added = self.graph_version() - rung.version
            if added:
                line["added"] = added
            self._steps = max(self._steps, last + 1)
            self._write(line)

        self._quietly(work)

    def settle(self) -> None:
        """Writes the variables after the last step, unless that has been done."""

        def work() -> None:
            step = self._unread
            if self._file is None or step is None:
                return
            try:
                variables = self._read()
            except RuntimeError:  # the session is closed or gone; the last variables that were read have to do
                return
            self._write({"at": "settled", "step": step, "variables": variables})

        self._quietly(work)

    def end(self) -> None:
        """Ends the ladder of a process that is about to end."""
        if self._file is None or self._process != os.getpid():
            return
        self.settle()
        self._quietly(lambda: self._write({"at": "end", "steps": self._steps}))
        self._over = True

    @abc.abstractmethod
    def header(self) -> Line:
        """What two runs of the hook's kind could differ in."""

    @abc.abstractmethod
    def variables(self) -> Named:
        """Names and values of the variables; None for one without a value."""

    def graph_version(self) -> int:
        """A number that grows with the graph."""
        return 0

    def graph_hash(self) -> str:
        """The hash of the graph, empty where there is none."""
        return ""

    def _open(self) -> None:
        with self._lock:
            if self._file is not None:
                return
            self._file = _claim(self._folder)
            self._process = os.getpid()
        with _live_lock:
            if not _live:
                atexit.register(_end_all)
            _live.append(self)
        header = dict(_common_header(), at="header", kind=self._kind, records=self._records)
        self._write(dict(header, **self.header()))
        self._write({"at": "start", "variables": self._read()})

    def _read(self) -> Line:
        self._unread = None
        return fingerprints(self.variables())

    def _add_graph(self, line: Line) -> None:
        found = self.graph_hash()
        if found != self._graph:
            line["graph"] = self._graph = found

    def _write(self, line: Line) -> None:
        text = json.dumps(line, sort_keys=True, separators=(",", ":"), default=str) + "\n"
        data = text.encode("utf-8")
        with self._lock:
            if self._file is None:
                return
            while data:
                data = data[os.write(self._file, data) :]

    def _quietly(self, work: Callable[[], None]) -> None:
        if self._over:
            return
        try:
            work()
        except Exception as error:  # whatever it is: the guard must not end the job
            self._over = True
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._say_once(
                "guard",
                "the guard's ladder in {} ends here: {}; training goes on".format(self._folder, text[:_LONGEST]),
            )


def variables_due(step: int) -> bool:
    """Tells whether variables are read after a step: all of the first ones, later eight while their number doubles."""
    return step < EVERY_STEP_BELOW or step % (1 << (step.bit_length() - 4)) == 0


def leaves(value: Any, path: str = "") -> Iterator[Tuple[str, Any]]:  # noqa: ANN401 - whatever a fetch returns
    """Yields what is in a nested result, with its place there: ``[0]['loss']``."""
    if isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key], "{}[{!r}]".format(path, key))
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from leaves(part, "{}[{}]".format(path, index))
    elif hasattr(type(value), "__attrs_attrs__"):
        for field in type(value).__attrs_attrs__:
            yield from leaves(getattr(value, field.name), "{}.{}".format(path, field.name))
    elif value is not None:
        yield path, value


def fingerprints(named: Named) -> Line:
    """Returns the fingerprints of values by name; what is no array is left out, what has no value is None."""
    found: Line = {}
    for name, value in named:
        if value is None:
            found[name] = None
            continue
        mark = fingerprint(value)
        if mark is not None:
            found[name] = mark
    return found


def fingerprint(value: Any) -> Optional[List[Any]]:  # noqa: ANN401 - an array, a number or a text
    """Returns dtype, shape, bytes and hash of a value, None if it is neither array nor number nor text."""
    if not isinstance(value, (np.ndarray, np.generic, bytes, str, bool, int, float, complex)):
        return None
    # As an object, since NumPy's own texts lose zeros at their end.
    array = np.array(value, dtype=object) if isinstance(value, (bytes, str)) else np.asarray(value)
    mark = hashlib.blake2b(digest_size=HASH_BYTES)
    if array.dtype.kind in "OU":
        size = 0
        for item in array.ravel():
            if not isinstance(item, (bytes, str)):
                return None
            text = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
            mark.update(b"%d:" % len(text))
            mark.update(text)
            size += len(text)
        return ["string", list(array.shape), size, mark.hexdigest()]
    if array.size:
        mark.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return [str(array.dtype.name), list(array.shape), int(array.nbytes), mark.hexdigest()]


def _common_header() -> Line:
    import tensorflow as tf

    shown = {name: os.environ[name][:_LONGEST] for name in _ENVIRONMENT if name in os.environ}
    for name in sorted(os.environ):
        if name.startswith("TF_DUMP_") and not name.startswith("TF_DUMP_GUARD"):
            shown[name] = os.environ[name][:_LONGEST]
    return {
        "format": FORMAT,
        "run": os.environ.setdefault(RUN_VARIABLE, os.urandom(8).hex()),
        "python": platform.python_version(),
        "tensorflow": str(tf.__version__),
        "numpy": str(np.__version__),
        "environment": shown,
        "hash_randomization": bool(sys.flags.hash_randomization),
        "processors": os.cpu_count(),
    }


def _claim(folder: Path) -> int:
    """Makes the next free file of this rank and returns its number for ``os.write``."""
    make_private(folder)
    rank = find_rank(os.environ)
    prefix = "ladder" if rank is None else "rank_{}".format(rank)
    number = 0
    while True:
        path = folder / "{}_{}.jsonl".format(prefix, number)
        try:
            return os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except FileExistsError:
            number += 1


def _end_all() -> None:
    for ladder in list(_live):
        ladder.end()
