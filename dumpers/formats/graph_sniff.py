"""Sniffers of graph files; see :mod:`dumpers.formats.sniff`.

Which protobuf message a binary file holds is told from its first bytes. All of them begin with field 1: in a GraphDef a
node (name, then type, both text), in a MetaGraphDef a message whose field 2 is a list of op definitions, in a device
model a plain name followed by a version number, in a SavedModel a number.
"""

from __future__ import annotations

import re
from typing import Final

from dumpers.formats.sniff import Look
from dumpers.formats.wire import Field, WireError, fields

_GE_TEXT: Final = re.compile(rb"\A\s*(?:#[^\n]*\n\s*)*(?:graph|op)\s*[:{<]")
_GE_KEYS: Final = frozenset({"graph", "op", "attr", "custom_version", "platform_version", "attr_groups"})
_TYPE: Final = re.compile(rb"[A-Za-z_>][A-Za-z0-9_>./-]*\Z")


def model_def(look: Look) -> str:
    """A bare device model: a name, a version number, then graphs in field 7."""
    found = _start(look, 4)
    if not found or not _binary(look.head):
        return ""
    numbers = [field.number for field in found]
    kinds = {field.number: field.kind for field in found}
    plain = kinds.get(1, 2) == 2 and kinds.get(2, 0) == 0 and kinds.get(3, 2) == 2
    if not plain or 7 not in numbers or numbers != sorted(numbers) or set(numbers) - {1, 2, 3, 7}:
        return ""
    graph = next(field for field in found if field.number == 7)
    first = next(iter(_walk(look.head, graph.start, graph.end)), None)
    return "begins like a device model (name, version, graph)" if first and first.kind == 2 else ""


def meta_graph(look: Look) -> str:
    """A MetaGraphDef: what training programs write beside a checkpoint."""
    found = _start(look, 2)
    if not found or found[0].number != 1 or found[0].kind != 2 or not _binary(look.head):
        return ""
    parts = {field.number: field for field in _walk(look.head, found[0].start, found[0].end)}
    if 2 in parts and parts[2].kind == 2 and look.head[parts[2].start : parts[2].start + 1] == b"\n":
        return "begins like a MetaGraphDef (meta information, then a graph)"
    later = len(found) > 1 and found[1].number == 2 and found[1].kind == 2
    named = look.name.endswith(".meta") and 2 not in parts
    return "named .meta, with a graph in field 2" if named and (later or found[0].end > len(look.head)) else ""


def graph_def(look: Look) -> str:
    """A GraphDef: nodes, or a library of functions."""
    found = _start(look, 2)
    if not found or found[0].kind != 2 or found[0].number not in (1, 2) or not _binary(look.head):
        return ""
    parts = {field.number: field for field in _walk(look.head, found[0].start, found[0].end)}
    if found[0].number == 2:
        function = parts.get(1)
        return "begins like a GraphDef with a library of functions" if function and function.kind == 2 else ""
    kind = parts.get(2)
    if 1 not in parts or parts[1].kind != 2 or kind is None or kind.kind != 2:
        return ""
    if _TYPE.match(look.head[kind.start : kind.end]):
        return "begins like a GraphDef (a node with a name and a type)"
    return ""


def om(look: Look) -> str:
    """A compiled model."""
    return "starts with the mark IMOD" if look.head[:4] == b"IMOD" else ""


def ge_json(look: Look) -> str:
    """A device graph as JSON."""
    found = [key for key in look.json_keys if key in _GE_KEYS]
    named = look.json_keys[:1] == ("name",) and "version" in look.json_keys
    return f"a JSON object with {', '.join(found[:3]) or 'name, version'}" if found or named else ""


def ge_text(look: Look) -> str:
    """A device graph as the compiler prints it."""
    return "text that begins with graph { or op {" if _GE_TEXT.match(look.head) else ""


def graph_text(look: Look) -> str:
    """A TensorFlow graph as text."""
    from dumpers.formats.tf_graph import looks_like_graph_text

    return "text that begins like a TensorFlow graph" if looks_like_graph_text(look.head) else ""


def saved_model_file(look: Look) -> str:
    """The graph file of a SavedModel."""
    return f"named {look.name}" if look.name in ("saved_model.pb", "saved_model.pbtxt") else ""


def _start(look: Look, count: int) -> list[Field]:
    return _walk(look.head, 0, look.size)[:count]


def _walk(head: bytes, start: int, end: int) -> list[Field]:
    """Fields that begin within the first bytes; the last one may reach beyond them."""
    found: list[Field] = []
    try:
        for field in fields(head, start, end):
            if field.start > len(head):
                break
            found.append(field)
    except (WireError, IndexError):  # nonsense, or the end of the first bytes
        pass
    return found


def _binary(head: bytes) -> bool:
    return any(byte < 9 or 13 < byte < 32 for byte in head[:512])
