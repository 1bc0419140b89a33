"""A folder of device dump files: one device, graph, model and step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.dump_names import (
    INCOMPLETE_FILE,
    MAPPING_FILE,
    DumpName,
    full_name,
    is_alias,
    parse_dump_name,
    read_mapping,
)
from dumpers.formats.npu_dump import read_npu_dump
from dumpers.formats.op_names import OpNames
from dumpers.formats.raw import RawSource
from dumpers.formats.walk import step_of
from dumpers.graph import Graph
from dumpers.records import Dump, Problem, TensorRecord, execution_order

_REASON_CHARACTERS: Final = 500


def is_dump_file(name: str) -> bool:
    """Tells whether a file name can be that of a device dump: the usual fields, or digits only (an alias)."""
    return parse_dump_name(name) is not None or (is_alias(name) and not name.endswith(".npy"))


def read_npu_dir(folder: Path, names: list[str], *, graph: Graph | None = None) -> Dump:
    """Reads the headers of all dump files of one folder.

    The op name comes from the header where the device filled it, else from the graph by the flattened name, else it is
    the flattened name. Names that a device shortened to digits are looked up in ``mapping.csv``, in memory only.
    Overflow records and statistics files are no tensors of an op: they are listed in ``ignored``. A mark that the step
    was not written to its end is a problem, the first one.

    Args:
        folder: The folder.
        names: Its file names.
        graph: The device graph that belongs to it.

    Raises:
        DataError: ``mapping.csv`` cannot be read.
    """
    mapping = read_mapping(folder)
    resolver = OpNames(graph)
    step = step_of(folder)
    records: list[TensorRecord] = []
    problems = _incomplete(folder, names)
    ignored: list[Path] = []
    for name in names:
        path = folder / name
        parsed = _meaning(path, mapping, problems)
        if parsed is None or parsed.is_overflow or parsed.statistics:
            if parsed is not None or not is_alias(name):
                ignored.append(path)
            continue
        try:
            found = read_npu_dump(path, name=parsed, step=step, op_name=resolver.full)
        except DataError as error:
            problems.append(Problem(path, _without_path(error, path)))
            continue
        records.extend(_with_graph(record, graph) for record in (*found.inputs, *found.outputs))
        problems.extend(found.problems)
    ignored = [path for path in ignored if path.name not in (MAPPING_FILE, INCOMPLETE_FILE)]
    return Dump(folder, execution_order(records), tuple(problems), tuple(ignored), graph)


def _incomplete(folder: Path, names: list[str]) -> list[Problem]:
    """Returns what the mark of an unfinished step says; an empty list for a whole one."""
    if INCOMPLETE_FILE not in names:
        return []
    mark = folder / INCOMPLETE_FILE
    try:
        with open(mark, encoding="utf-8", errors="replace") as file:
            reason = " ".join(file.read(_REASON_CHARACTERS).split())
    except OSError as error:
        reason = f"its mark cannot be read: {error.strerror or error}"
    return [Problem(mark, f"dump is incomplete: {reason or 'this step was not written to its end'}")]


def _meaning(path: Path, mapping: Mapping[str, str], problems: list[Problem]) -> DumpName | None:
    full = full_name(path.name, mapping)
    if full is None:
        problems.append(Problem(path, f"name of digits only that {MAPPING_FILE} does not have; its op is not known"))
        return None
    return parse_dump_name(full)


def _with_graph(record: TensorRecord, graph: Graph | None) -> TensorRecord:
    """Adds what only the graph knows: the original shape of a private layout, and which layout that shape is in."""
    op = graph.ops.get(record.op) if graph else None
    if op is None:
        return record
    ports = op.output_ports if record.io == "output" else op.input_ports
    if record.slot >= len(ports):
        return record
    attrs = ports[record.slot].attrs
    original, layout = attrs.get("origin_shape"), attrs.get("origin_format")
    source = record.source
    if isinstance(source, RawSource) and isinstance(layout, str):
        source = replace(source, layout=layout)
    shape = record.original_shape
    if shape is None and record.shape is not None and isinstance(original, tuple):
        dims = tuple(dim for dim in original if isinstance(dim, int) and dim >= 0)
        shape = dims if len(dims) == len(original) and dims != record.shape else None
    return replace(record, source=source, original_shape=shape)


def _without_path(error: Exception, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")
