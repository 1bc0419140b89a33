"""``replay``: one op again on the CPU, from its dumped inputs."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from precision_tool.result import Block, ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from compare.evaluation import Replay as Replayed
    from compare.local_error import LocalError
    from dumpers.graph import Graph, Op
    from dumpers.records import Dump
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

    Array = NDArray[np.generic]

OUTPUT_COLUMNS = (
    *("Output", "Dtype", "Shape", "LocalError", "Bound", "Ratio", "BeyondBound", "NotFinite", "DiffersFromOwn"),
    "Reason",
)
ELEMENT_COLUMNS = ("Output", "Index", "Dumped", "Float64", "OwnDtype", "Error", "Bound", "Ratio")


class Replay:
    """Run one op again from its dumped inputs, in its own dtype and in float64.

    The local error is what the op did wrong itself: its dumped output against the float64 result of its own dumped
    inputs. The bound is what rounding may explain. A ratio far above 1 makes the op a source of error; a small one says
    that it only carried what it was given.
    """

    name = "replay"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the op and where to find it."""
        parser.add_argument("op", metavar="OP", help="name of the op in the graph of the dump")
        parser.add_argument("-lt", "--left", default=None, help="dump directory (default: the newest of debug_0)")
        parser.add_argument("-g", "--graph", default=None, help="graph file of the dump")
        parser.add_argument("-p", "--print", type=int, default=5, metavar="N", help="worst elements to show (5)")
        parser.add_argument(
            "--export", default=None, metavar="DIR", help="write a script and its data that show the fault without us"
        )
        parser.add_argument("--overwrite", action="store_true", help="replace files that --export finds there")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Replays; exit code 1 when the op is beyond its bound, 3 when it cannot be replayed for want of data."""
        if args.print < 0:
            raise UsageError(f"replay: -p {args.print}: the number of elements cannot be negative")
        if args.overwrite and not args.export:
            raise UsageError("replay: --overwrite goes with --export DIR")
        case = _find(args, workbench)
        result = _replay(case, args.print)
        return _exported(case, result, Path(args.export), overwrite=args.overwrite) if args.export else result


@dataclass(frozen=True)
class Case:
    """One op in its graph and dump."""

    op: Op
    graph: Graph
    dump: Dump


def _find(args: argparse.Namespace, workbench: Workbench) -> Case:
    """Returns the op in the dump that has its tensors.

    Raises:
        UsageError: no graph has the op.
        DataError: there is no dump or no graph.
    """
    from precision_tool.commands.vector_compare import leaf_of
    from precision_tool.commands.verdict import graph_of_dump
    from precision_tool.workbench import typed_name, unknown_op

    leaves = [leaf_of(Path(args.left))] if args.left else list(workbench.latest_leaves()[0])
    if not leaves:
        raise DataError(f"{workbench.workspace.npu_dump()}: no dump; dump a step first, or give -lt DIRECTORY")
    known: list[Op] = []
    name = typed_name(args.op)
    for leaf in leaves:
        graph = workbench.graph_of(Path(args.graph), leaf) if args.graph else graph_of_dump(leaf, workbench)
        if graph is None:
            continue
        if name in graph.ops:
            return Case(graph.ops[name], graph, workbench.read_dump(leaf))
        known += graph
    if not known:
        raise DataError(f"{leaves[0]}: no graph beside this dump, and replay needs one; give it with -g FILE")
    raise unknown_op(name, known, "the graph of the dump")


def _exported(case: Case, result: Result, folder: Path, *, overwrite: bool) -> Result:
    """Adds the files of the reproduction to the answer."""
    from compare.isolation import input_records, load_values, output_records
    from precision_tool.repro import LARGE, export

    inputs = load_values(input_records(case.dump, case.graph, case.op)[0])
    done = export(case.op, inputs, load_values(output_records(case.dump, case.op)), folder, overwrite=overwrite)
    notes = [f"exported {done.why}; {done.size} bytes", f"run it anywhere: python {done.script}"]
    if done.size > LARGE:
        notes.append(f"{done.size} bytes are more than {LARGE}: too much for most mail")
    facts = {
        "script": str(done.script),
        "data": str(done.data),
        "rows_kept": None if done.rows is None else list(done.rows),
        "cut": done.rows is not None,
        "why": done.why,
        "bytes": done.size,
    }
    files = [*result.files, done.script, done.data]
    return replace(result, notes=[*result.notes, *notes], files=files, data={**result.data, "export": facts})


def _replay(case: Case, shown: int) -> Result:
    from compare.isolation import input_records, load_values, output_records
    from compare.replay import local_error, replay_op
    from precision_tool.tensor_text import record_data, record_line

    records, assumed = input_records(case.dump, case.graph, case.op)
    inputs = load_values(records)
    outputs = load_values(output_records(case.dump, case.op))
    replayed = replay_op(case.op, inputs)
    errors = local_error(case.op, inputs, outputs)
    lines = [f"Op(Type/Name): [{case.op.type}] {case.op.name}", f"Dump: {case.dump.path}"]
    for index, record in enumerate(records):
        lines.append(f"Input {index}: {record_line(record)}" if record else f"Input {index}: not dumped")
    notes = ["inputs were not dumped; outputs of their producers were taken instead"] if assumed else []
    lines.append(f"Answer: {_answer(errors, replayed)}")
    blocks: list[Block] = [Panel("Replay", tuple(lines)), _outputs_table(errors, outputs, replayed)]
    elements = [row for error in errors for row in _worst(error, outputs, replayed, shown)]
    if elements:
        blocks.append(Table("Worst elements", ELEMENT_COLUMNS, tuple(elements)))
    return Result(
        title=f"{case.op.name}: {_answer(errors, replayed)}",
        blocks=blocks,
        notes=notes,
        data={
            "op": case.op.name,
            "op_type": case.op.type,
            "assumed_inputs": assumed,
            "reason": replayed.reason or None,
            "outputs": [_error_data(error) for error in errors],
            "inputs": [record_data(record) if record else None for record in records],
            "worst": [dict(zip(ELEMENT_COLUMNS, row, strict=True)) for row in elements],
        },
        exit_code=_exit_code(errors, replayed),
    )


def _answer(errors: Sequence[LocalError], replayed: Replayed) -> str:
    if replayed.reason:
        return replayed.reason
    ratios = [error.ratio for error in errors if error.ratio is not None]
    if not ratios:
        return "; ".join(error.reason for error in errors) or "no output of the op is in the dump"
    ratio = max(ratios)
    if any(error.faulty for error in errors):
        if math.isinf(ratio):
            return "differs where nothing may differ: this op is wrong itself"
        return f"beyond what rounding explains ({ratio:.6g} times the bound): this op is wrong itself"
    return f"within what rounding explains ({ratio:.6g} of the bound)"


def _exit_code(errors: Sequence[LocalError], replayed: Replayed) -> ExitCode:
    if any(error.faulty for error in errors):
        return ExitCode.FOUND
    return ExitCode.DATA if replayed.reason or all(error.reason for error in errors) else ExitCode.CLEAN


def _outputs_table(errors: Sequence[LocalError], outputs: Sequence[Array | None], replayed: Replayed) -> Table:
    rows, marks = [], {}
    for error in errors:
        array = outputs[error.slot]
        kind = (array.dtype.name, str(list(array.shape))) if array is not None else (None, None)
        if error.reason:
            rows.append((error.slot, *kind, None, None, None, None, None, None, error.reason))
            continue
        figures = (error.max_error, error.bound, error.ratio, error.differing, error.non_finite)
        rows.append((error.slot, *kind, *figures, _own_differing(error.slot, array, replayed), None))
        marks[len(rows) - 1] = "bad" if error.faulty else "good"
    return Table("Outputs", OUTPUT_COLUMNS, tuple(rows), marks)


def _own_differing(slot: int, array: Array | None, replayed: Replayed) -> int | None:
    """Returns how many elements differ in their bits from the replay in the op's own dtype."""
    from compare.metrics import compare_arrays

    if array is None or slot >= len(replayed.own):
        return None
    return compare_arrays(array, replayed.own[slot].astype(array.dtype), with_divergence=False).differing


def _worst(error: LocalError, outputs: Sequence[Array | None], replayed: Replayed, shown: int) -> list[tuple[Any, ...]]:
    """Returns the elements that are furthest beyond their bound, the worst first."""
    import numpy as np

    array = outputs[error.slot]
    if error.reason or array is None or error.index is None:
        return []
    exact, own, bound = (np.asarray(part[error.slot]) for part in (replayed.exact, replayed.own, replayed.bound))
    got = np.asarray(array, dtype=np.float64)
    right = np.asarray(exact, dtype=np.float64)
    limit = np.broadcast_to(bound, got.shape)
    with np.errstate(all="ignore"):
        distance = np.abs(got - right)
        same = (got == right) | (np.isnan(got) & np.isnan(right))
        distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
        ratio = np.where(distance > 0, distance / limit, 0.0)
    places = np.lexsort((-distance.reshape(-1), -np.nan_to_num(ratio.reshape(-1), nan=0.0)))[:shown]
    rows = []
    for place in places[ratio.reshape(-1)[places] > 0].tolist():
        index = tuple(int(k) for k in np.unravel_index(place, got.shape))
        values = (float(got[index]), float(right[index]), float(np.asarray(own)[index]))
        rows.append((error.slot, str(list(index)), *values, *(float(x[index]) for x in (distance, limit, ratio))))
    return rows


def _error_data(error: LocalError) -> dict[str, Any]:
    return {
        "slot": error.slot,
        "local_error": error.max_error,
        "bound": error.bound,
        "ratio": error.ratio,
        "faulty": error.faulty,
        "index": None if error.index is None else list(error.index),
        "got": error.got,
        "expected": error.expected,
        "differing": error.differing,
        "not_finite": error.non_finite,
        "not_judged": error.unjudged,
        "count": error.count,
        "reason": error.reason or None,
    }
