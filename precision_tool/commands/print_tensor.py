"""``pt``: print a tensor."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpers.errors import DataError, UsageError
from precision_tool.result import ExitCode, Panel, Result, Table

if TYPE_CHECKING:
    from dumpers.records import TensorRecord
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench

MAX_HITS = 50
"""More tensors than that are listed, not printed."""


class PrintTensor:
    """Print a tensor: first values, statistics, and the whole of it as a text file.

    NAME is a file (npy, device dump), or the beginning of the name of a file or op in the dumps; NAME:output:0 is one
    tensor of an op or dump file. The text goes to precision_data/temp/decode/text and is made again when the tensor's
    file is newer.
    """

    name = "pt"
    aliases: tuple[str, ...] = ()
    name_option = True

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the name."""
        parser.add_argument("operand", nargs="?", metavar="NAME", help="file, or beginning of a file or op name")
        parser.add_argument("-n", "--name", default=None, help="the same")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Prints every tensor the name fits; exit code 3 when one of them cannot be read."""
        from dumpers.dtypes import WITHOUT_VALUE

        name = args.name or args.operand
        if not name:
            raise UsageError("pt: no name given; pt NAME prints a file or the tensors of an op")
        records = find_tensors(name, workbench)
        blocks: list[Table | Panel] = []
        data: list[dict[str, Any]] = []
        files: list[Path] = []
        problems: list[str] = []
        for done, record in enumerate(records[:MAX_HITS]):
            progress("reading", done, len(records))
            shown, facts, written = _show(record, workbench)
            blocks += shown
            data.append(facts)
            files += written
            if "reason" in facts and record.dtype not in WITHOUT_VALUE:
                problems.append(f"{record.path or name}: {record.name}: {facts['reason']}")
        notes = [f"{r.name}: not printed, more than {MAX_HITS} fit" for r in records[MAX_HITS:]]
        return Result(
            title=f"{name}: {len(records)} tensors",
            blocks=blocks,
            notes=notes,
            data={"tensors": data},
            files=files,
            exit_code=ExitCode.DATA if problems else ExitCode.CLEAN,
            problems=problems,
        )


def find_tensors(name: str, workbench: Workbench) -> list[TensorRecord]:
    """Returns the tensors that a name means: a file, else what begins with it in the decoded files and the dumps.

    Raises:
        DataError: nothing fits; the nearest name is offered.
    """
    from dumpers.formats.registry import read_tensor
    from precision_tool.workbench import typed_name

    base, chosen = _split(name)
    if Path(name).is_file():
        return read_tensor(Path(name))
    if Path(base).is_file():
        return [record for record in read_tensor(Path(base)) if record.name.endswith(chosen)]
    names, found, meant = [], [], typed_name(name)
    for path in sorted(workbench.workspace.decode.rglob("*.npy")):
        names.append(path.name)
        if path.name.startswith(name):
            found += read_tensor(path)
    for record in _dumped(workbench):
        if record.name == meant:
            return [record]
        file_name = record.path.name if record.path else ""
        names.append(record.op)
        if record.op.startswith(meant) or file_name.startswith((name, name.replace("/", "_"))):
            found.append(record)
    if not found:
        from precision_tool.workbench import did_you_mean

        hint = did_you_mean(name, names) or "no dump holds a name like it"
        raise DataError(f"{name}: no such file, and no tensor of that name in {workbench.workspace.root}; {hint}")
    return _exact(found, meant)


def _exact(found: list[TensorRecord], name: str) -> list[TensorRecord]:
    """Leaves out what only begins alike on disk (``tower_out`` for ``tower/out``) where a dump has the very name."""
    known = {record.path.parent for record in found if record.op == name and record.path}
    return [record for record in found if record.op == name or not record.path or record.path.parent not in known]


def _split(name: str) -> tuple[str, str]:
    """Splits ``FILE:output:0`` into the file and the tensor in it."""
    match = re.fullmatch(r"(.+?)(:(?:input|output):\d+)", name, re.DOTALL)
    return (match[1], match[2]) if match else (name, "")


def _dumped(workbench: Workbench) -> list[TensorRecord]:
    folders = [leaf for run in workbench.workspace.runs() for leaf in workbench.latest_leaves(run)[0]]
    reference = workbench.tf_dump_directory()
    if reference:
        folders.append(reference)
    return [record for folder in folders for record in workbench.read_dump(folder)]


def _show(record: TensorRecord, workbench: Workbench) -> tuple[list[Table | Panel], dict[str, Any], list[Path]]:
    from precision_tool import tensor_text as text

    data = text.record_data(record)
    if record.path is None or "reason" in data:
        where = (f"Path: {record.path}",) if record.path is not None else ()
        return [Panel(record.name, (text.record_line(record), *where))], data, []
    array, _ = text.load_plain(record)
    lines = [text.record_line(record), f"Path: {record.path}"]
    if array.dtype.kind in "OSU":
        lines.append("TxtFile: none, the tensor has no numbers")
        return [text.values_table(record.name, array), Panel("", tuple(lines))], data, []
    suffix = "" if record.path.suffix == ".npy" else f".{record.io}.{record.slot}"
    target = text.text_file(workbench.workspace.decode, record.path, suffix)
    written = [target] if text.write_text(array, target, record.path) else []
    lines.append(f"TxtFile: {target}")
    return [text.values_table(record.name, array), Panel("", tuple(lines))], data | {"txt_file": target}, written
