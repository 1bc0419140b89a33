"""``bench``: the published benchmarks."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dumpers.errors import UsageError
from precision_tool.result import Cell, Panel, Result, Table

if TYPE_CHECKING:
    from precision_tool.bench.measure import Plain, Report, Row
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

BENCHES: Final = {
    "compare": "the comparison of two dumps, against only reading and against the script anybody would write",
    "formats": "listing and reading of files, and the way back from the device's layouts",
    "dump": "what recording costs a training job, in plain steps, and against TensorFlow's dumping session",
    "ckpt": "two checkpoints, against only reading and against the guides' script",
    "faults": "how often the verdict names a planted fault, and accuses the innocent, against the rules in use",
    "nan": "the search for NaN and infinities, against only reading and against the guides' script",
}
"""What there is to measure, by name."""

_COLUMNS: Final = ("Measure", "Case", "Amount", "Median s", "A second", "Against", "Ratio")


class Bench:
    """Measure the tool itself and print the published figures; without a name, list the benches.

    Everything is measured as a ratio within one run, in turns, against plain work on the same data. --out writes the
    figures as JSON too. --small takes seconds and only shows that it works.
    """

    name = "bench"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the name, size, seed and file."""
        parser.add_argument("bench", nargs="?", default=None, metavar="NAME", help=", ".join(BENCHES))
        parser.add_argument("--small", action="store_true", help="sizes that take seconds")
        parser.add_argument("--seed", type=int, default=0, help="of the values (0)")
        parser.add_argument("--out", default=None, metavar="FILE", help="write the figures there as JSON")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Measures; the exit code is 0 whatever the figures are."""
        if args.bench is None:
            return _list_benches()
        if args.bench not in BENCHES:
            raise UsageError(f"bench {args.bench}: there is no such bench; there is {', '.join(BENCHES)}")
        if args.seed < 0:
            raise UsageError(f"bench: --seed {args.seed}: a seed is 0 or more")
        out = _target(args.out)
        module = importlib.import_module(f"precision_tool.bench.{args.bench}")
        report: Report = module.run(small=args.small, seed=args.seed, progress=progress)
        return _result(args.bench, report, out)


def _list_benches() -> Result:
    return Result(
        title="benches",
        blocks=[Table("Benches", ("Name", "Measures"), tuple(BENCHES.items()))],
        data={"benches": dict(BENCHES)},
    )


def _target(asked: str | None) -> Path | None:
    """Checks before minutes of measuring that the figures can be written."""
    if asked is None:
        return None
    path = Path(asked)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"bench: --out {asked}: give a file in a folder that exists")
    return path


def _result(name: str, report: Report, out: Path | None) -> Result:
    data: dict[str, Plain] = {
        "bench": name,
        "setup": dict(report.setup),
        "rows": [row.as_dict() for row in report.rows],
        "summary": dict(report.summary),
    }
    if out is not None:
        from dumpers.formats.atomic import atomic_file

        with atomic_file(out) as file:
            file.write(json.dumps(data, indent=2).encode() + b"\n")
    lines = [f"{key}: {value}" for key, value in report.setup.items()]
    return Result(
        title=f"bench {name}",
        blocks=[
            Table("Measurements", _COLUMNS, tuple(_cells(row) for row in report.rows)),
            Panel("Summary", tuple(_summary_lines(report.summary))),
            Panel("Setup", tuple(lines)),
        ],
        data=data,
        files=[out] if out else [],
    )


def _cells(row: Row) -> tuple[Cell, ...]:
    rate = f"{row.per_s / 1e9:.2f} GB" if row.unit == "bytes" else f"{row.per_s:.0f}"
    amount = f"{row.amount / 1e6:.1f} MB" if row.unit == "bytes" else f"{row.amount} {row.unit}"
    ratio = None if row.ratio is None else f"{row.ratio:.2f}"
    return (row.measure, row.case, amount, f"{row.seconds:.4g}", rate, row.baseline or None, ratio)


def _summary_lines(summary: object, prefix: str = "") -> list[str]:
    if not isinstance(summary, dict):
        shown = f"{summary:.3g}" if isinstance(summary, float) and summary < 1000 else summary
        return [f"{prefix}: {shown:.0f}" if isinstance(shown, float) else f"{prefix}: {shown}"]
    return [line for key, value in summary.items() for line in _summary_lines(value, f"{prefix} {key}".strip())]
