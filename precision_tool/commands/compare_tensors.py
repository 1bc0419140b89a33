"""``cp``: compare two tensor files element by element."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from precision_tool.result import ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compare.closeness import CloseFigures, Element
    from compare.difference.details import Details
    from dumpers.records import TensorRecord
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench


class CompareTensors:
    """Compare two tensors element by element.

    LEFT is under test, RIGHT is the reference; each is a file, or the beginning of a name in the dumps. Two elements
    are close when the absolute difference is at most atol + rtol * |right|; a NaN is close to nothing, equal infinities
    are close. Nothing is padded: of tensors with different shapes the report says so and the exit code is 1. Where
    elements differ it also says by how many ULP, with which tolerance they would pass, and what explains it.
    """

    name = "cp"
    aliases: tuple[str, ...] = ("compare",)
    name_option = True

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds names, tolerances and what to show."""
        parser.add_argument("operands", nargs="*", metavar="NAME", help="LEFT and RIGHT")
        parser.add_argument("-n", "--name", nargs=2, metavar=("LEFT", "RIGHT"), help="the same")
        parser.add_argument("-p", "--print", type=int, default=20, metavar="N", help="elements to show (20)")
        parser.add_argument("-s", "--save", action="store_true", help="write both tensors as text files")
        parser.add_argument("-al", "--atol", type=float, default=0.001, help="absolute tolerance (0.001)")
        parser.add_argument("-rl", "--rtol", type=float, default=0.001, help="relative tolerance (0.001)")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Compares; exit code 1 when not all elements are close."""
        names = args.name or args.operands
        if len(names) != 2:
            raise UsageError(f"cp: two names needed, LEFT and RIGHT; got {len(names)}")
        if args.print < 0:
            raise UsageError(f"cp: -p {args.print}: the number of elements cannot be negative")
        left, right = (_one(name, workbench) for name in names)
        return compare(left, right, args, workbench)


def _one(name: str, workbench: Workbench) -> TensorRecord:
    from precision_tool.commands.print_tensor import find_tensors

    found = find_tensors(name, workbench)
    if len(found) > 1 and Path(name).is_file():
        choice = ", ".join(f"{name}:{record.io}:{record.slot}" for record in found[:4])
        raise UsageError(f"{name} holds {len(found)} tensors; name one of them: {choice}")
    if not found:
        raise DataError(f"{name}: the file holds no such tensor; pt lists what it holds")
    return found[0]


# ---------------------------------------------------------------------------------------------------------- results


def compare(left: TensorRecord, right: TensorRecord, args: argparse.Namespace, workbench: Workbench) -> Result:
    """Returns the comparison of two tensors."""
    from compare.closeness import close_figures
    from compare.second_look import look
    from precision_tool import tensor_text as text

    arrays = (text.load_plain(left)[0], text.load_plain(right)[0])
    found = close_figures(*arrays, atol=args.atol, rtol=args.rtol, limit=args.print)
    details = look(*arrays, found.figures)
    same_shape = arrays[0].shape == arrays[1].shape
    files, lines = [], []
    for title, record, array in (("Left", left, arrays[0]), ("Right", right, arrays[1])):
        lines += [f"{title}:", f"  NpyFile: {record.path}"]
        if args.save and record.path is not None:
            target = text.text_file(workbench.workspace.decode, record.path, _suffix(record))
            files += [target] if text.write_text(array, target, record.path) else []
            lines.append(f"  TxtFile: {target}")
        lines.append(f"  NpySpec: {text.statistics_line(array)}")
    blocks: list[Table | Panel] = []
    if found.comparable:
        blocks = [_table("Error Item Table", found.error_items), _table("Top Item Table", found.top_items)]
    blocks.append(Panel("", (*lines, *_summary(found), *(_details(details) if details is not None else ()))))
    data = {"left": text.record_data(left), "right": text.record_data(right)}
    return Result(
        title=f"{left.name} against {right.name}" if left.path == right.path else f"{left.path} against {right.path}",
        blocks=blocks,
        data=_data(found, details) | data,
        files=files,
        exit_code=ExitCode.CLEAN if found.all_close and same_shape else ExitCode.FOUND,
    )


def _suffix(record: TensorRecord) -> str:
    return "" if record.path is None or record.path.suffix == ".npy" else f".{record.io}.{record.slot}"


def _table(title: str, elements: Sequence[Element]) -> Table:
    from precision_tool.tensor_text import element

    rows = tuple((e.index, element(e.left), element(e.right), element(e.difference)) for e in elements)
    return Table(title, ("Index", "Left", "Right", "Diff"), rows)


def _summary(found: CloseFigures) -> list[str]:
    figures = found.figures
    reason = found.reason or figures.reasons.get("CosineSimilarity", "")
    lines = [f"NumCnt: {found.count}", f"AllClose: {found.all_close}"]
    if found.reason:
        lines.append(f"Note: {found.reason}")
    lines.append(f"CosSim: NaN ({reason})" if found.cosine is None else f"CosSim: {found.cosine:.6f}")
    share = "NaN" if found.error_share is None else f"{found.error_share:.6g}"
    counted = f"{found.errors} elements, {found.non_finite_errors} of them not finite"
    lines.append(f"ErrorPer: {share} ({counted}; rl: {found.rtol:g}, al: {found.atol:g})")
    lines.append(
        f"NaN: {figures.nan_left} left, {figures.nan_right} right; Inf: {figures.inf_left} left, {figures.inf_right} "
        f"right; on one side only: {figures.non_finite_mismatches}"
    )
    if figures.relative_distance is not None:
        lines.append(f"RelativeEuclideanDistance: {figures.relative_distance:.6g}")
    if figures.differing is not None:
        lines.append(f"Differing: {figures.differing} elements ({figures.verdict})")
    return lines


def _details(details: Details) -> list[str]:
    """What the second look found, one line a figure; one that does not exist with its reason."""
    reasons, needed = details.reasons, details.tolerance
    lines = []
    if details.max_ulp is None:
        lines.append(f"MaxUlp: NaN ({reasons['max_ulp']})")
    else:
        share = f"{details.within_one_ulp:.6g} of the elements within 1"
        lines.append(f"MaxUlp: {details.max_ulp} steps of {details.ulp_dtype} at {details.max_ulp_index}; {share}")
    if details.sign_flips is not None:
        lines.append(f"SignFlips: {details.sign_flips}")
    if details.non_finite:
        lines.append(f"NonFinite: {_counts(details.non_finite)}")
    if details.histogram:
        lines.append(f"ErrorByDecade: {_counts(details.histogram)}")
    if "tolerance" not in reasons:
        both = f"al with rl {needed.usual_rtol:g}"
        for title, name, value in (
            ("al alone", "atol", needed.atol),
            ("rl alone", "rtol", needed.rtol),
            (both, "atol_with_usual", needed.atol_with_usual),
        ):
            shown = f"NaN ({reasons[f'tolerance.{name}']})" if value is None else f"{value!r}"
            lines.append(f"RequiredTolerance, {title}: {shown}")
    lines += [f"Explanation: {details.explanation}"] if details.explanation else []
    return lines + [f"Not looked for: {text}" for text in details.skipped]


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in found.items())


def _data(found: CloseFigures, details: Details | None) -> dict[str, Any]:
    from precision_tool.plain_data import plain

    figures = found.figures
    return {
        "all_close": found.all_close,
        "count": found.count,
        "errors": found.errors,
        "non_finite_errors": found.non_finite_errors,
        "error_share": found.error_share,
        "error_items": [
            {"index": e.index, "left": element_data(e.left), "right": element_data(e.right), "difference": e.difference}
            for e in found.error_items
        ],
        "atol": found.atol,
        "rtol": found.rtol,
        "reason": found.reason,
        "verdict": figures.verdict,
        "differing": figures.differing,
        "non_finite_mismatches": figures.non_finite_mismatches,
        "nan": [figures.nan_left, figures.nan_right],
        "inf": [figures.inf_left, figures.inf_right],
        "figures": figures.columns(),
        "reasons": dict(figures.reasons),
        "pattern": figures.pattern if details is None else details.explanation,
        "details": plain(details),
    }


def element_data(value: complex) -> float | int | str:
    """Returns an element as JSON data; a complex one as text."""
    return str(value) if isinstance(value, complex) else value
