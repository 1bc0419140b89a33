"""Device graphs: the compiler's text (``ge_proto_*_Build.txt``), its JSON form, and binary models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.formats.ge_convert import computing_graph, graphs_of, model_of
from dumpers.formats.ge_json import model_from_json, model_to_json
from dumpers.formats.ge_model import is_model_container, model_bytes
from dumpers.formats.schema import Message, decode_error, ge_message
from dumpers.graph import Graph

# Kernel binaries and weights: one very long line each. Nobody reads them, and parsing them costs minutes.
_BULK: Final = re.compile(rb'(?m)^(\s*(?:bt|data|cmps_tab): ")[^\n]{4096,}"[ \t\r]*$')
_BARE_GRAPH: Final = re.compile(rb"(?m)^op\s*[:{<]")
_MODEL: Final = re.compile(rb"(?m)^graph\s*[:{<]")


def read_ge_text(path: Path) -> Graph:
    """Reads a graph in text form; of several graphs in the file the one with most ops.

    Fields that are not known are skipped, and so is the content of kernel binaries and weights over 4 KiB.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return computing_graph(_graphs(Path(path), _parse_text))


def read_ge_json(path: Path) -> Graph:
    """Reads a graph in JSON form; of several graphs in the file the one with most ops.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return computing_graph(_graphs(Path(path), model_from_json))


def read_ge_model(path: Path) -> Graph:
    """Reads the graph of a compiled model (``.om``) or of a bare binary ``ModelDef``.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return computing_graph(_graphs(Path(path), _parse_binary))


def read_ge_graphs(path: Path) -> list[Graph]:
    """Reads all graphs of a file in any of the three forms, in the order of the file.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return _graphs(Path(path), _parse_any)


def write_ge_text(graph: Graph, path: Path) -> None:
    """Writes a graph as the compiler prints it; the same graph always gives the same bytes.

    Raises:
        ValueError: a dtype or an attribute that device graphs cannot express.
        OSError: as for :func:`dumpers.formats.atomic.atomic_file`.
    """
    from google.protobuf import text_format

    text = text_format.MessageToString(model_of(graph))
    with atomic_file(Path(path)) as file:
        file.write(text.encode("ascii"))


def write_ge_json(graph: Graph, path: Path) -> None:
    """Writes a graph in the JSON form of the model converter.

    Raises:
        ValueError: a dtype or an attribute that device graphs cannot express.
        OSError: as for :func:`dumpers.formats.atomic.atomic_file`.
    """
    content = model_to_json(model_of(graph))
    with atomic_file(Path(path)) as file:
        file.write(content)


def _graphs(path: Path, parse: Callable[[bytes], Message]) -> list[Graph]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        model = parse(raw)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    graphs = graphs_of(model, path)
    if not any(len(graph) for graph in graphs):
        raise DataError(f"{path}: holds no device graph; give a ge_proto_*_Build.txt or its .json")
    return graphs


def _parse_any(raw: bytes) -> Message:
    start = raw[:256].lstrip()
    if start[:1] in (b"{", b"["):
        return model_from_json(raw)
    if is_model_container(raw) or b"\0" in raw[:4096]:
        return _parse_binary(raw)
    return _parse_text(raw)


def _parse_text(raw: bytes) -> Message:
    from google.protobuf import text_format

    text = _BULK.sub(rb'\1"', raw)
    if not text.isascii():  # inside strings only; octal escapes keep the bytes whatever their encoding
        text = re.sub(rb"[\x80-\xff]", lambda match: f"\\{match[0][0]:03o}".encode(), text)
    model = ge_message()
    target = model.graph.add() if _BARE_GRAPH.search(text) and not _MODEL.search(text) else model
    try:
        text_format.Merge(text.decode("ascii"), target, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise DataError(f"is not the text of a device graph, or was cut off: line {error}") from error
    return model


def _parse_binary(raw: bytes) -> Message:
    model = ge_message()
    try:
        model.ParseFromString(model_bytes(raw))
    except decode_error() as error:
        raise DataError("is not a compiled model, or was cut off") from error
    return model
