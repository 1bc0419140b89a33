"""Options of a comparison of dumps, the same for every command that makes one."""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.errors import UsageError

if TYPE_CHECKING:
    from compare.journal import Journal
    from compare.limits import Limits
    from compare.selection import Selection
    from compare.units import Look

_MOST = 256
"""Threads or workers; more is a mistake."""

_DEFAULTS = {
    "metrics": None,
    "ops": None,
    "since": None,
    "threads": None,
    "workers": None,
    "thresholds": None,
    "out": None,
    "details": "suspicious",
    "fresh": False,
}


@dataclass(frozen=True)
class CompareOptions:
    """What the options say, checked.

    Attributes:
        metrics: Columns of the result in their order, None for all.
        ops, since: As in :class:`compare.selection.Selection`.
        threads: None for as many as there are processors, at most 8.
        workers: Processes instead of threads, 0 for none.
        thresholds: File of limits.
        details: Which outputs that differ get a second look.
        out: Files to write besides the result file.
        fresh: Whether to start over where a comparison was interrupted.
    """

    metrics: tuple[str, ...] | None = None
    ops: re.Pattern[str] | None = None
    since: str = ""
    threads: int | None = None
    workers: int = 0
    thresholds: Path | None = None
    details: Look = "suspicious"
    out: tuple[Path, ...] = ()
    fresh: bool = False

    def columns(self) -> tuple[str, ...]:
        """Columns of the result."""
        from compare.figures import COLUMNS

        return self.metrics or COLUMNS

    def selection(self) -> Selection | None:
        """The rows that are wanted, None for all."""
        from compare.selection import Selection

        return Selection(self.ops, self.since) if self.ops is not None or self.since else None

    def limits(self) -> Limits:
        """The limits that the outputs are held against.

        Raises:
            UsageError: the file of thresholds cannot be used.
        """
        from compare.limits import Limits, read_limits

        return Limits() if self.thresholds is None else read_limits(self.thresholds)

    def check_files(self, sides: Sequence[Path]) -> None:
        """Checks the files to write before anything is compared.

        Args:
            sides: The dumps; what is written must not come to lie in one.

        Raises:
            UsageError: one cannot be written there.
        """
        from compare.exports import check_suffix

        for path in self.out:
            check_suffix(path)
            if path.is_dir() or not path.parent.is_dir():
                raise UsageError(f"--out {path}: no file can be made there; give a name in a folder that exists")
            inside = [
                side for side in sides if path.resolve() == side.resolve() or side.resolve() in path.resolve().parents
            ]
            if inside:
                raise UsageError(
                    f"--out {path}: lies in the dump {inside[0]}, which would read it; give another folder"
                )

    def journal(self, folder: Path, left: Path, right: Path, graph: Path | None) -> Journal:
        """Returns the journal of a comparison: the same one when the same command is given again.

        Args:
            folder: Where results go.
            left: One side.
            right: The other.
            graph: Graph that names the originals.
        """
        from compare.journal import Journal

        words = [str(path and path.resolve()) for path in (left, right, graph)]
        words += [" ".join(self.metrics or ()), self.ops.pattern if self.ops else "", self.since]
        name = hashlib.blake2b("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
        journal = Journal(folder / f"unfinished_{name}.journal", about=f"{left} against {right}")
        if self.fresh:
            journal.remove()
        return journal


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options. Imports nothing heavy."""
    group = parser.add_argument_group("comparison")
    group.add_argument("--metrics", metavar="NAMES", help="columns of the result, comma-separated names or numbers 0-9")
    group.add_argument("--ops", metavar="REGEX", help="only ops with a name that the expression is found in")
    group.add_argument("--since", metavar="OP", help="only from this op on, in order of execution")
    group.add_argument("--threads", type=int, metavar="N", help="threads (as many as processors, at most 8)")
    group.add_argument("--workers", type=int, metavar="N", help="processes instead of threads")
    group.add_argument("--thresholds", metavar="FILE", help="limits by dtype and op type (TOML)")
    group.add_argument(
        "--out", action="append", metavar="FILE", help="write the result here too: .csv, .parquet or .json"
    )
    group.add_argument(
        "--details",
        choices=("suspicious", "all", "none"),
        default="suspicious",
        help="which tensors that differ get a second look: ULP, tolerance, what explains the difference (suspicious)",
    )
    group.add_argument("--fresh", action="store_true", help="start over instead of going on where it was interrupted")


def given(args: argparse.Namespace) -> list[str]:
    """Returns the options of a comparison that were given."""
    return [f"--{name}" for name, default in _DEFAULTS.items() if getattr(args, name) != default]


def options_of(args: argparse.Namespace) -> CompareOptions:
    """Returns what the options say.

    Raises:
        UsageError: one cannot be meant.
    """
    for name in ("threads", "workers"):
        number = getattr(args, name)
        if number is not None and not 1 <= number <= _MOST:
            raise UsageError(f"--{name} {number}: has to be between 1 and {_MOST}")
    if args.threads is not None and args.workers is not None:
        raise UsageError("--threads and --workers: a worker is a process with one thread; give one of the two")
    return CompareOptions(
        metrics=None if args.metrics is None else metric_names(args.metrics),
        ops=None if args.ops is None else _expression(args.ops),
        since=args.since or "",
        threads=args.threads,
        workers=args.workers or 0,
        thresholds=None if args.thresholds is None else Path(args.thresholds),
        details=args.details,
        out=tuple(Path(path) for path in args.out or ()),
        fresh=args.fresh,
    )


def metric_names(text: str) -> tuple[str, ...]:
    """Returns the columns that a list of names or numbers means, in the order of a result file.

    Raises:
        UsageError: there is no such column, or none is named.
    """
    from difflib import get_close_matches

    from compare.figures import COLUMNS, FIELDS

    known = {column.lower(): column for column in COLUMNS}
    known |= {field: column for column, field in FIELDS.items()}
    known |= {str(number): column for number, column in enumerate(COLUMNS)}
    wanted = set()
    for word in text.replace(",", " ").split():
        column = known.get(word.lower())
        if column is None:
            close = get_close_matches(word.lower(), known, n=1)
            hint = f"did you mean {known[close[0]]}?" if close else f"known are {', '.join(COLUMNS)}"
            raise UsageError(f"--metrics {word}: no such column; {hint}")
        wanted.add(column)
    if not wanted:
        raise UsageError(f"--metrics: names no column; known are {', '.join(COLUMNS)}")
    return tuple(column for column in COLUMNS if column in wanted)


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--ops {text}: no regular expression: {error}") from error
