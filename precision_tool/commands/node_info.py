"""``ni``: everything about one op: graph, dumped tensors, neighbourhood."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from precision_tool.result import Panel, Result

if TYPE_CHECKING:
    from dumpers.graph import AttrValue, Graph, Op, Port
    from dumpers.records import Dump, TensorRecord
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import RunGraph, Workbench

GIVEN_GRAPH = "graph"
"""Stands for the run id when the graph was given with -g."""


class NodeInfo:
    """Show one op: inputs, outputs, dumped tensors with statistics, original ops.

    Without an exact hit, all ops whose name contains the text are listed and shown. With two runs present both are
    shown. -s N writes a picture of the ops N edges around (graphviz text, svg where the program dot is installed).
    """

    name = "ni"
    aliases: tuple[str, ...] = ()
    name_option = True

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options."""
        parser.add_argument("operand", nargs="?", metavar="NAME", help="name of the op, or a part of it")
        parser.add_argument("-n", "--name", default="", help="the same")
        parser.add_argument("-g", "--graph", default=None, help="graph file, or name of a loaded graph")
        parser.add_argument("-a", "--attr", action="store_true", help="show all attributes")
        parser.add_argument("-c", "--check", action="store_true", help="accepted and without effect")
        parser.add_argument("-s", "--save", type=int, default=0, metavar="N", help="draw the neighbourhood of depth N")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Shows the op in every run and graph that has it."""
        name = args.name or args.operand
        if not name:
            raise UsageError("ni: no name given; ni NAME shows an op, ls lists them")
        if args.save < 0:
            raise UsageError(f"ni: -s {args.save}: the depth cannot be negative")
        graphs = _graphs(args.graph, workbench)
        hits, guessed = _find(name, graphs)
        possible = tuple(dict.fromkeys(f"[{op.type}] {op.name}" for _, op in hits))
        blocks = [Panel("Possible Operators", possible)] if guessed else []
        data: list[dict[str, Any]] = []
        files: list[Path] = []
        notes: list[str] = []
        for done, (graph, op) in enumerate(hits):
            progress("reading tensors", done, len(hits))
            panel, facts = describe(graph, op, workbench, attributes=args.attr)
            blocks.append(panel)
            data.append(facts)
            if args.save:
                written, remarks = _draw(graph, op, args.save, workbench)
                files += written
                notes += remarks
        return Result(title=f"{name}: {len(hits)} found", blocks=blocks, notes=notes, data={"ops": data}, files=files)


def _graphs(asked: str | None, workbench: Workbench) -> list[RunGraph]:
    from precision_tool.workbench import RunGraph

    if asked is not None and Path(asked).is_file():
        return [RunGraph(GIVEN_GRAPH, graph) for graph in workbench.read_graphs(Path(asked))]
    graphs = list(workbench.all_graphs())
    if not graphs:
        raise DataError(f"{workbench.workspace.npu_graph()}: no graph there; give one with -g FILE, or say --root DIR")
    if asked is None:
        return graphs
    chosen = [graph for graph in graphs if graph.graph.name == asked]
    if not chosen:
        known = ", ".join(dict.fromkeys(graph.graph.name for graph in graphs))
        raise UsageError(f"ni: -g {asked}: neither a file nor a loaded graph; loaded: {known}")
    return chosen


def _find(name: str, graphs: Sequence[RunGraph]) -> tuple[list[tuple[RunGraph, Op]], bool]:
    """Returns the ops meant and whether the name was only a part of theirs."""
    from precision_tool.workbench import find_op, typed_name, unknown_op

    name = typed_name(name)
    exact = find_op(graphs, name)
    if exact:
        return exact, False
    flat = name.replace("/", "_")
    similar = [
        (graph, op) for graph in graphs for op in graph.graph if name in op.name or op.name.replace("/", "_") == flat
    ]
    if not similar:
        raise unknown_op(name, [op for graph in graphs for op in graph.graph], "the loaded graphs")
    return similar, True


def _draw(graph: RunGraph, op: Op, depth: int, workbench: Workbench) -> tuple[list[Path], list[str]]:
    from precision_tool import dot

    stem = f"{graph.run}.{graph.graph.name}.{op.type}.{op.name}.{depth}"
    return dot.write(dot.draw(graph.graph, op.name, depth), workbench.workspace.op_graph, stem)


# ------------------------------------------------------------------------------------------------------- the panel


def describe(graph: RunGraph, op: Op, workbench: Workbench, *, attributes: bool) -> tuple[Panel, dict[str, Any]]:
    """Returns the panel of one op in one graph, and the same as data."""
    from precision_tool.tensor_text import record_data

    dumped = _device_tensors(graph, op, workbench)
    reference = _reference_tensors(op, workbench)
    lines = [f"Op(Type/Name): [{op.type}] {op.name}", f"ID: {op.id}", f"KernelName: {op.kernel_name}"]
    lines.append(f"KernelLibName: {op.kernel_lib}")
    lines.append(f"GraphName: {graph.graph.name}")
    if op.pass_names:
        undone = "" if op.applied_passes else " (undone by the compiler: fusion_failed)"
        lines.append(f"PassName: {','.join(op.pass_names)}{undone}")
    if op.attrs.get("_datadump_original_op_names"):
        lines.append(f"OriginalOp: {', '.join(op.originals)}")
    if attributes:
        lines += [f"  {key}: {attribute_text(value)}" for key, value in op.attrs.items()]
    lines += _input_lines(graph.graph, op)
    lines += _output_lines(graph.graph, op)
    for heading, records in (("NpuDumpInput:", _of(dumped, "input")), ("NpuDumpOutput:", _of(dumped, "output"))):
        lines += _tensor_lines(heading, records)
    lines += _tensor_lines("TfDumpOutput:", reference)
    data = {
        "run": graph.run,
        "graph": graph.graph.name,
        "name": op.name,
        "type": op.type,
        "id": op.id,
        "kernel": op.kernel_name,
        "passes": list(op.pass_names),
        "originals": list(op.originals),
        "inputs": [_port_data(p) | {"producer": s.op, "slot": s.slot} for p, s in _pairs(op)],
        "control_inputs": list(op.control_inputs),
        "outputs": [_port_data(p) | {"consumers": _readers(graph.graph, op, i)} for i, p in enumerate(op.output_ports)],
        "npu_dump": [record_data(record) for record in dumped],
        "tf_dump": [record_data(record) for record in reference],
    }
    if attributes:
        data["attributes"] = {key: attribute_data(value) for key, value in op.attrs.items()}
    return Panel(f"({graph.run}) {graph.graph.name}", tuple(lines)), data


def _pairs(op: Op) -> list[tuple[Port, Any]]:
    from dumpers.graph import Port

    ports = [*op.input_ports, *[Port("undefined")] * (len(op.inputs) - len(op.input_ports))]
    return list(zip(ports, op.inputs, strict=False))


def _input_lines(graph: Graph, op: Op) -> list[str]:
    lines = ["Input: -[index][dtype][format]shape value_range shape_range origin_shape producer:output"]
    for index, (port, source) in enumerate(_pairs(op)):
        origin = f"{source.op}:{source.slot}" if source.op else _outer_producer(graph, op) or "(none)"
        lines.append(f" -[{index}]{_port_text(port)} {origin}")
    lines += [f" -[{i}][][][] {name}:-1" for i, name in enumerate(op.control_inputs, start=len(op.inputs))]
    return lines


def _outer_producer(graph: Graph, op: Op) -> str:
    """Says where a sub-graph's Data op gets its value: an input of the op that calls the sub-graph."""
    index = op.attrs.get("_parent_node_index")
    if op.type != "Data" or not isinstance(index, int):
        return ""
    sources = [(call, call.source_of(op.name)) for call in graph.callers]
    known = [f"{source.op}:{source.slot} (input {index} of {call.op.name})" for call, source in sources if source]
    return ", ".join(known) or f"(input {index} of the op that calls {graph.name})"


def _output_lines(graph: Graph, op: Op) -> list[str]:
    lines = ["Output: -[index][dtype][format]shape value_range shape_range origin_shape [consumers]"]
    for slot, port in enumerate(op.output_ports):
        lines.append(f" -[{slot}]{_port_text(port)} [{', '.join(_readers(graph, op, slot))}]")
    return lines + _inner_results(graph, op)


def _inner_results(graph: Graph, op: Op) -> list[str]:
    """Where the outputs of an op that calls sub-graphs come from inside them."""
    lines = []
    for call in graph.calls(op.name):
        for slot in range(max(len(op.output_ports), 1)):
            source = call.result_of(slot)
            if source is not None:
                lines.append(f" -[{slot}] from {source.op}:{source.slot} in {call.graph.name} ({call.role})")
    return lines


def _readers(graph: Graph, op: Op, slot: int) -> list[str]:
    return [name for name, _, read in graph.consumers.get(op.name, ()) if read == slot]


def _port_text(port: Port) -> str:
    shape = "?" if port.shape is None else list(port.shape)
    extra = " ".join(attribute_text(port.attrs.get(key)) for key in ("value_range", "shape_range", "origin_shape"))
    return f"[{port.dtype}][{port.format}]{shape} {extra}"


def _port_data(port: Port) -> dict[str, Any]:
    shape = None if port.shape is None else list(port.shape)
    ranges = {key: attribute_data(port.attrs.get(key)) for key in ("value_range", "shape_range", "origin_shape")}
    return {"dtype": port.dtype, "format": port.format, "shape": shape} | ranges


def attribute_text(value: AttrValue) -> str:
    """Returns an attribute on one line; long constants are cut and say so."""
    text = "[]" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else str(attribute_data(value))
    return text if len(text) <= 300 else f"{text[:280]}... ({len(text)} characters)"


def attribute_data(value: AttrValue) -> object:
    """Returns an attribute as JSON data; bytes as text with escapes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(key): attribute_data(item) for key, item in value.items()}
    return [attribute_data(item) for item in value]


# ------------------------------------------------------------------------------------------------- dumped tensors


def _device_tensors(graph: RunGraph, op: Op, workbench: Workbench) -> list[TensorRecord]:
    found: list[TensorRecord] = []
    for leaf in workbench.latest_leaves(graph.run)[0] if graph.run != GIVEN_GRAPH else _all_latest(workbench):
        if workbench.settings.net_type == "train" and not _belongs(leaf, graph.graph.name):
            continue
        found += records_of(workbench.read_dump(leaf), op)
    return sorted(found, key=lambda r: (r.io, r.slot, r.timestamp_us or 0))


def _all_latest(workbench: Workbench) -> list[Path]:
    return [leaf for run in workbench.workspace.runs() for leaf in workbench.latest_leaves(run)[0]]


def _belongs(leaf: Path, graph_name: str) -> bool:
    return bool({graph_name, f"{graph_name}_0"} & set(leaf.parts))


def records_of(dump: Dump, op: Op) -> list[TensorRecord]:
    """Returns an op's tensors in a dump: by name, else by type and flattened name."""
    from dumpers.names import flatten

    by_name = dump.by_op.get(op.name)
    if by_name is None:
        flat = dump.by_op.get(flatten(op.name), ())
        by_name = tuple(record for record in flat if record.op_type in ("", op.type))
    return list(by_name)


def _reference_tensors(op: Op, workbench: Workbench) -> list[TensorRecord]:
    """Returns the reference tensors of an op's outputs: of their origin names, else of the op's own name."""
    from dumpers.names import flatten

    folder = workbench.tf_dump_directory()
    if folder is None:
        return []
    origins = [
        str(port.attrs["_datadump_origin_name"]) for port in op.output_ports if port.attrs.get("_datadump_origin_name")
    ]
    by_op = workbench.read_dump(folder).by_op
    found: list[TensorRecord] = []
    for name in dict.fromkeys(origins or [op.name]):
        for key in dict.fromkeys((name, name.replace("/", "_"), flatten(name))):
            if key in by_op:
                found += by_op[key]
                break
    return sorted((r for r in found if r.io == "output"), key=lambda r: (r.op, r.slot, r.timestamp_us or 0))


def _of(records: Sequence[TensorRecord], io: str) -> list[TensorRecord]:
    return [record for record in records if record.io == io]


def _tensor_lines(heading: str, records: Sequence[TensorRecord]) -> list[str]:
    from precision_tool.tensor_text import record_line

    lines = [heading]
    for record in records:
        lines.append(f" -[{record.slot}] {record.path.name if record.path else record.name}")
        lines.append(f"  {record_line(record)}")
    return lines
