"""The checks of ``ac`` that look at reports and graphs: fusions, overflows, casts, likeness of two runs' graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError
from dumpers.workspace import DEFAULT_RUN, EARLIER_RUN, newest
from precision_tool.result import Block, ExitCode, Panel, Result, Table
from precision_tool.tensor_text import record_line

if TYPE_CHECKING:
    from dumpers.formats.overflow import OverflowEvent, OverflowRecord
    from dumpers.graph import Graph, Op, Port
    from dumpers.records import Dump, TensorRecord
    from dumpers.workspace import Workspace
    from precision_tool.workbench import Workbench

FUSION_FILE = "fusion_result.json"
SHOWN = 20

IGNORED_TYPES = frozenset(
    ("TransData", "Cast", "Recv", "Send", "Variable", "NetOutput", "NoOp", "Assign", "Constant", "StreamActive")
)
"""Ops that two compilations of one network may place differently."""


def fusion(workspace: Workspace) -> Result:
    """Lists the fusion rules that took effect, one pair of tables a graph.

    Raises:
        DataError: there is no report, or it cannot be read.
    """
    from dumpers.formats.fusion import read_fusion_result

    kept = workspace.fusion / FUSION_FILE
    place = kept if kept.is_file() else Path(FUSION_FILE)
    if not place.is_file():
        raise DataError(f"{kept}: no fusion report; copy the compiler's {FUSION_FILE} there")
    blocks: list[Block] = []
    data = []
    for report in read_fusion_result(place):
        for title, rules in (("Graph Fusion", report.graph_fusion), ("UB Fusion", report.ub_fusion)):
            rows = tuple((name, times) for name, times in rules.items())
            blocks.append(Table(f"{title} [GraphID: {report.graph_id}]", ("Fusion Name", "Effect times"), rows))
        rules_data = {"graph_fusion": dict(report.graph_fusion), "ub_fusion": dict(report.ub_fusion)}
        data.append({"graph_id": report.graph_id, "session_id": report.session_id, **rules_data})
    return Result(title=f"{len(data)} graphs in {place}", blocks=blocks, data={"file": str(place), "graphs": data})


# -------------------------------------------------------------------------------------------------------- overflow


def overflow(workspace: Workspace, limit: int) -> Result:
    """Shows the first overflow records by time, each with the op behind it.

    Raises:
        DataError: there are no overflow records.
    """
    from dumpers.formats.overflow import find_overflow_files, read_overflow
    from precision_tool.workbench import leaf_directories

    top = newest(workspace.overflow)
    folders = list(leaf_directories(top)) if top else []
    files = sorted((path for folder in folders for path in find_overflow_files(folder)), key=_time_of)
    if not files:
        raise DataError(f"{workspace.overflow}: no overflow records; nothing was recorded, or nothing overflowed")
    blocks: list[Block] = []
    notes, data = [], []
    dumps: dict[Path, Dump | None] = {}
    for path in files[: max(limit, 0)]:
        try:
            records = read_overflow(path)
        except DataError as error:
            notes.append(str(error))
            continue
        dump = dumps.setdefault(path.parent, _dump_of(path.parent))
        for record in records:
            lines, facts = _overflow_lines(record, dump)
            blocks.append(Panel(f"Overflow: {path.name}", tuple(lines)))
            data.append(facts)
    found = any(facts["events"] for facts in data)
    return Result(
        title=f"{len(files)} overflow records, {len(blocks)} shown",
        blocks=blocks,
        notes=notes,
        data={"total": len(files), "records": data},
        exit_code=ExitCode.DATA if notes else ExitCode.FOUND if found else ExitCode.CLEAN,
        problems=notes,
    )


def _time_of(path: Path) -> tuple[int, str]:
    from dumpers.formats.dump_names import parse_dump_name

    name = parse_dump_name(path.name)
    return (name.timestamp_us if name else 0, path.name)


def _dump_of(folder: Path) -> Dump | None:
    from dumpers.formats.registry import read_dump

    try:
        return read_dump(folder)
    except DataError:
        return None  # the folder holds overflow records only


def _overflow_lines(record: OverflowRecord, dump: Dump | None) -> tuple[list[str], dict[str, Any]]:
    from dumpers.formats.overflow import find_op

    lines: list[str] = []
    events = []
    for event in record.events:
        tensors = find_op(event, dump) if dump is not None else ()
        lines += [_event_line(event), *_op_lines(tensors)]
        behind = {"op": tensors[0].op, "op_type": tensors[0].op_type} if tensors else {}
        events.append(
            {
                "unit": event.unit,
                "task_id": event.task_id,
                "stream_id": event.stream_id,
                "status": list(event.status),
                "meanings": list(event.meanings),
                **behind,
            }
        )
    if not events:
        lines.append("no unit reports an overflow")
    lines.append(f"First overflow file timestamp [{record.timestamp_us}]")
    return lines, {"file": str(record.path), "timestamp_us": record.timestamp_us, "events": events}


def _event_line(event: OverflowEvent) -> str:
    status = ",".join(map(str, event.status))
    return f"[{event.unit}][Status:{status}][TaskId:{event.task_id}] {', '.join(event.meanings)}"


def _op_lines(tensors: Sequence[TensorRecord]) -> list[str]:
    if not tensors:
        return ["the op behind it was not dumped"]
    lines = [f"[{tensors[0].op_type}][{tensors[0].task_id}] {tensors[0].op}"]
    return lines + [f" -[{record.io} {record.slot}] {record_line(record)}" for record in tensors]


# ----------------------------------------------------------------------------------------------------------- casts


def casts(workbench: Workbench) -> Result:
    """Lists the casts from float32 to int32, which lose what is behind the point and above 2**31.

    Raises:
        DataError: no graph is loaded.
    """
    graphs = workbench.all_graphs()
    if not graphs:
        raise DataError(f"{workbench.workspace.npu_graph()}: no graph")
    names = [op.name for graph in graphs for op in graph.graph if _float_to_int(op)]
    line = f"[Cast][DT_FLOAT -> DT_INT32] {', '.join(names)}"
    return Result(
        title=f"{len(names)} casts from float32 to int32",
        blocks=[Panel("Cast", (line,))] if names else [],
        data={"float32_to_int32": names},
    )


def _float_to_int(op: Op) -> bool:
    return op.type == "Cast" and _dtype(op.input_ports) == "float32" and _dtype(op.output_ports) == "int32"


def _dtype(ports: Iterable[Port]) -> str:
    known = [port.dtype for port in ports if port.dtype != "undefined"]
    return known[-1] if known else ""


# ------------------------------------------------------------------------------------------------ likeness of runs


def similarity(workbench: Workbench) -> Result:
    """Compares the graphs of ``debug_0`` and ``debug_1`` op by op: dtypes and formats of inputs and outputs.

    Raises:
        DataError: one of the two runs has no graphs.
    """
    sides = [workbench.run_graphs(run) for run in (DEFAULT_RUN, EARLIER_RUN)]
    for run, graphs in zip((DEFAULT_RUN, EARLIER_RUN), sides, strict=True):
        if not graphs:
            raise DataError(f"{workbench.workspace.npu_graph(run)}: no graph; likeness needs both runs")
    others = {_graph_key(graph.graph): graph.graph for graph in sides[1]}
    blocks: list[Block] = []
    notes: list[str] = []
    alike = compared = 0
    different: list[str] = []
    for left in sides[0]:
        right = others.get(_graph_key(left.graph))
        if right is None:
            notes.append(f"{left.graph.name}: no graph with the same id in {EARLIER_RUN}")
            continue
        for name in _relevant(left.graph, right):
            if name not in left.graph.ops or name not in right.ops:
                notes.append(f"{name}: only in {DEFAULT_RUN if name in left.graph.ops else EARLIER_RUN}")
                continue
            compared += 1
            lines = _differences(left.graph.ops[name], right.ops[name])
            alike += not lines
            if lines:
                different.append(name)
                blocks.append(Panel(f"[{left.graph.ops[name].type}] {name}", tuple(lines)))
    if not compared:
        raise DataError("no graph of the two runs has the same id and an op in common")
    return Result(
        title=f"similarity is [{alike} / {compared}]",
        blocks=blocks[:SHOWN],
        notes=[*notes[:SHOWN], *([f"{len(notes) - SHOWN} more"] if len(notes) > SHOWN else [])],
        data={"alike": alike, "compared": compared, "different": different},
    )


def _graph_key(graph: Graph) -> str:
    return str(graph.attrs.get("_session_graph_id", graph.name))


def _relevant(left: Graph, right: Graph) -> list[str]:
    names = [op.name for op in left if op.type not in IGNORED_TYPES]
    return names + [op.name for op in right if op.type not in IGNORED_TYPES and op.name not in left.ops]


def _differences(left: Op, right: Op) -> list[str]:
    lines: list[str] = []
    changed = False
    for what, ours, theirs in (
        ("Input", left.input_ports, right.input_ports),
        ("Output", left.output_ports, right.output_ports),
    ):
        if len(ours) != len(theirs):
            lines.append(f"{what}: {len(ours)} against {len(theirs)}")
        for index, (one, two) in enumerate(zip(ours, theirs, strict=False)):
            differs = (one.dtype, one.format) != (two.dtype, two.format)
            changed = changed or differs
            lines.append(f"{what} {index}: {_port(one)} {'against' if differs else 'as'} {_port(two)}")
    return lines if changed else []


def _port(port: Port) -> str:
    return f"[{port.dtype}][{port.format}]{None if port.shape is None else list(port.shape)}"
