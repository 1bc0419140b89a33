"""Device graphs: the compiler's text (``ge_proto_*_Build.txt``), its JSON form, and binary models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.atomic import atomic_file
from dumpers.formats.file_view import mapped
from dumpers.formats.ge_convert import GraphParts, computing_graph, graphs_of, model_of, parts_of
from dumpers.formats.ge_json import model_to_json, read_json_graphs
from dumpers.formats.ge_model import is_model_container, read_model
from dumpers.formats.ge_text import read_text_graphs
from dumpers.formats.proto_text import Buffer
from dumpers.graph import Graph

_CONTROL: Final = re.compile(rb"[\0-\x08\x0e-\x1f]")
"""Bytes that text has in escaped form only, and that every message has among its field tags."""


def read_ge_text(path: Path) -> Graph:
    """Reads a graph in text form; of several graphs in the file the one with most ops.

    Fields that are not known are skipped, and so is the content of kernel binaries and weights over 4 KiB.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return computing_graph(_graphs(Path(path), read_text_graphs))


def read_ge_json(path: Path) -> Graph:
    """Reads a graph in JSON form; of several graphs in the file the one with most ops.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return computing_graph(_graphs(Path(path), _json_graphs))


def read_ge_model(path: Path) -> Graph:
    """Reads the graph of a compiled model (``.om``) or of a bare binary ``ModelDef``.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return computing_graph(_graphs(Path(path), _binary_graphs))


def read_ge_graphs(path: Path) -> list[Graph]:
    """Reads all graphs of a file in any of the three forms, in the order of the file.

    Graphs of the same name are all kept; ops that call this name call the last.

    Raises:
        DataError: no such file, or no graph in it.
    """
    return _graphs(Path(path), _any_graphs)


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


def _graphs(path: Path, read: Callable[[Buffer], list[GraphParts]]) -> list[Graph]:
    with mapped(path) as data:
        try:
            graphs = graphs_of(read(data), path)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
    if not any(len(graph) for graph in graphs):
        raise DataError(f"{path}: holds no device graph; give a ge_proto_*_Build.txt or its .json")
    return graphs


def _any_graphs(data: Buffer) -> list[GraphParts]:
    if data[:256].lstrip()[:1] in (b"{", b"["):
        return _json_graphs(data)
    if is_model_container(data) or _CONTROL.search(data[:4096]):
        return _binary_graphs(data)
    return read_text_graphs(data)


def _json_graphs(data: Buffer) -> list[GraphParts]:
    return read_json_graphs(data[:])


def _binary_graphs(data: Buffer) -> list[GraphParts]:
    return parts_of(read_model(data))
