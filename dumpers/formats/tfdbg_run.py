"""What a run directory of TensorFlow's debugger says beside its tensors: graphs, feeds, fetches, step counters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.damage import broken_at
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.tf_graph import read_ops
from dumpers.formats.tfdbg_event import read_event_bytes
from dumpers.graph import Graph, Op, Source
from dumpers.records import Problem

_CORE: Final = "_tfdbg_core_metadata_"
_FEEDS: Final = "_tfdbg_feed_keys_info_"
_FETCHES: Final = "_tfdbg_fetches_info_"
_COPY: Final = "__copy_"
_INSERTED: Final = (b"__copy_", b"__dbg_")
"""How the debugger names the ops that it puts behind each watched output; the consumers then read the copy."""


@dataclass(frozen=True)
class RunFacts:
    """What ``session.run`` was called with, and which of its calls it was.

    Attributes:
        global_step: As the caller gave it, -1 if not at all.
        session_run_index: Number of the ``run`` call within the session, -1 if unknown.
        executor_step_index: Number of the call with the same feeds and fetches, -1 if unknown.
        inputs: Names of the fed tensors.
        outputs: Names of the fetched tensors.
        targets: Names of ops that were run for no value.
        feeds: Text of the feed keys as Python printed it.
        fetches: Text of the fetches as Python printed it.
    """

    global_step: int = -1
    session_run_index: int = -1
    executor_step_index: int = -1
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    feeds: str = ""
    fetches: str = ""


def read_run_facts(run: Path) -> RunFacts:
    """Reads the step counters, feeds and fetches of a run; what a run does not have stays unknown.

    Raises:
        DataError: no such folder, or one of the files is damaged.
    """
    try:
        names = sorted(os.listdir(run))
    except OSError as error:
        raise DataError(f"{run}: cannot be read: {error.strerror or error}") from error
    texts = {prefix: _text(run, names, prefix) for prefix in (_CORE, _FEEDS, _FETCHES)}
    core = _core(run, texts[_CORE])
    return RunFacts(
        global_step=_number(core.get("global_step")),
        session_run_index=_number(core.get("session_run_index")),
        executor_step_index=_number(core.get("executor_step_index")),
        inputs=_strings(core.get("input_names")),
        outputs=_strings(core.get("output_names")),
        targets=_strings(core.get("target_nodes")),
        feeds=texts[_FEEDS],
        fetches=texts[_FETCHES],
    )


def _text(run: Path, names: list[str], prefix: str) -> str:
    name = next((name for name in names if name.startswith(prefix)), None)
    return read_event_bytes(run / name, "log_message").decode("utf-8", "backslashreplace") if name else ""


def _core(run: Path, text: str) -> Mapping[str, object]:
    if not text:
        return {}
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{run}: core metadata is no JSON: {error}") from error
    return tree if isinstance(tree, dict) else {}


def _number(value: object) -> int:
    return value if type(value) is int and -1 <= value < 1 << 63 else -1


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


class _LazyOps(Mapping[str, Op]):
    """Ops of the graph parts by name, made from the messages when somebody looks at them."""

    def __init__(self, parts: tuple[bytes, ...], names: tuple[str, ...]) -> None:
        self._parts = parts
        self._names = names

    @cached_property
    def _ops(self) -> dict[str, Op]:
        found: dict[str, Op] = {}
        for part in self._parts:
            nodes = [node for node in _graph_def(part).node if not _inserted(node.name)]
            found.update((name, _without_copies(op)) for name, op in read_ops(nodes).items())
        return {name: found[name] for name in self._names}

    def __getitem__(self, name: str) -> Op:
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class RunGraph:
    """The graph of a run.

    Attributes:
        graph: All device parts together.
        types: Op types by name, at hand without building the ops.
    """

    graph: Graph
    types: Mapping[str, str]


def read_graphs(run: Path, files: list[Path], problems: list[Problem]) -> RunGraph | None:
    """Reads and merges the graphs of a run's devices; a damaged one becomes a problem.

    Args:
        run: The run directory.
        files: Its ``_tfdbg_graph_*`` files.
        problems: What is wrong is added here.
    """
    parts: list[tuple[int, bytes, dict[str, str]]] = []
    for file in sorted(files):
        try:
            raw = read_event_bytes(file, "graph_def")
            nodes = _graph_def(raw).node
        except DataError as error:
            problems.append(Problem.of(file, error))
            continue
        parts.append(
            (len(nodes), raw, {_name(name): _name(node.op) for node in nodes if not _inserted(name := node.name)})
        )
    if not parts:
        return None
    parts.sort(key=lambda part: part[0])
    types = {name: kind for _, _, part in parts for name, kind in part.items()}
    ops = _LazyOps(tuple(raw for _, raw, _ in parts), tuple(types))
    return RunGraph(Graph(name=run.name, ops=ops, kind="tf", path=run), types)


def _inserted(name: bytes) -> bool:
    return name.startswith(_INSERTED)


def _without_copies(op: Op) -> Op:
    """An op that reads the watched ops themselves again, not the debugger's copies ``__copy_<op>_<slot>``."""
    inputs = tuple(_original(source) for source in op.inputs)
    controls = tuple(_original(Source(name, 0)).op for name in op.control_inputs)
    return (
        op
        if (inputs, controls) == (op.inputs, op.control_inputs)
        else replace(op, inputs=inputs, control_inputs=controls)
    )


def _original(source: Source) -> Source:
    if not source.op.startswith(_COPY):
        return source
    name, _, slot = source.op[len(_COPY) :].rpartition("_")
    return Source(name, int(slot)) if name and slot.isascii() and slot.isdigit() else source


def _graph_def(raw: bytes) -> Message:
    message = tf_message("GraphDef")
    try:
        message.ParseFromString(raw)
    except decode_error() as error:
        raise DataError(f"is no graph, or was cut off ({broken_at(raw, len(raw), message)} of the graph)") from error
    return message


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
