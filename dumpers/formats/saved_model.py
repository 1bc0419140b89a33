"""TensorFlow SavedModels: a folder with ``saved_model.pb`` (or ``.pbtxt``), one graph for each set of tags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.damage import broken_at
from dumpers.formats.file_view import mapped
from dumpers.formats.proto_text import Buffer
from dumpers.formats.schema import Message, decode_error, tf_message
from dumpers.formats.tf_graph import meta_graph, parse_text
from dumpers.formats.wire import WireError, fields
from dumpers.graph import Graph

_FILES: Final = ("saved_model.pb", "saved_model.pbtxt")
_PARTS: Final = frozenset({(1, 0), (2, 2)})
"""Fields and wire types: the schema's version, the graphs."""

_TEXT: Final = re.compile(rb"\A\s*(?:#[^\n]*\n\s*)*(?:saved_model_schema_version\s*:|meta_graphs\s*[:{<])")


def read_saved_model(path: Path) -> tuple[Graph, ...]:
    """Reads all graphs of a SavedModel, in the order of the file; each is named by its tags (``serve``, ``train``).

    Each graph has its functions in its ``library``, and the attributes of :func:`dumpers.formats.tf_graph.meta_graph`.

    Args:
        path: The folder, or the file in it.

    Raises:
        DataError: no such folder or file, or no graph in it.
    """
    path = Path(path)
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if not found:
            raise DataError(f"{path}: holds no saved_model.pb; give the folder of a SavedModel")
        path = found[0]
    with mapped(path) as data:
        try:
            if not is_saved_model_data(data):
                raise DataError(_no_model(data))
            return saved_graphs(data, path)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error


def is_saved_model_data(data: Buffer) -> bool:
    """Tells whether bytes are those of a SavedModel: a version number in field 1, graphs in field 2."""
    if _TEXT.match(data[:4096]):
        return True
    seen: set[tuple[int, int]] = set()
    try:
        for field in fields(data, 0, len(data)):
            if (field.number, field.kind) not in _PARTS:
                return False
            seen.add((field.number, field.kind))
    except WireError:
        return False
    return seen == _PARTS


def saved_graphs(data: Buffer, path: Path) -> tuple[Graph, ...]:
    """Returns the graphs of a SavedModel's bytes.

    Raises:
        DataError: they are none, or hold no graph.
    """
    model = parse_text(data, "SavedModel") if _TEXT.match(data[:4096]) else _parse_binary(data[:])
    graphs = tuple(meta_graph(meta, path, _name(meta, path)) for meta in model.meta_graphs)
    if not any(len(graph) or graph.attrs["functions"] for graph in graphs):
        raise DataError("holds no TensorFlow graph")
    return graphs


def _parse_binary(raw: bytes) -> Message:
    message = tf_message("SavedModel")
    try:
        message.ParseFromString(raw)
    except decode_error() as error:
        raise DataError(_no_model(raw)) from error
    return message


def _no_model(data: Buffer) -> str:
    return f"is not a SavedModel, or was cut off {broken_at(data, len(data), tf_message('SavedModel'))}; save it again"


def _name(meta: Message, path: Path) -> str:
    tags = [tag.decode("utf-8", "backslashreplace") for tag in meta.meta_info_def.tags]
    return ",".join(tags) or path.parent.name
