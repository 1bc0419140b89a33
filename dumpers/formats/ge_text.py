"""The text of device graphs (``ge_proto_*.txt``), op by op: the text stays in the file, messages live for one op only.

The blocks of a graph repeat themselves: most attributes and many descriptors of a network are the same text in a
thousand ops. Blocks that are laid out as compilers print them (one field a line, two blanks a level) are looked up by
their text and read only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dumpers.errors import DataError
from dumpers.formats.ge_attrs import decode_text, named_value, read_attrs, text_value
from dumpers.formats.ge_convert import KNOWN_BYTES, GraphParts, make_room, model_attrs, op_of, port_of
from dumpers.formats.proto_text import Buffer, TextError, TextParser, line_number
from dumpers.formats.schema import Message, ge_message
from dumpers.graph import AttrValue, Op, Port

# From the line behind "attr {" to the brace below it; every line between is deeper.
_BLOCK: Final = re.compile(rb"( *)  (?! )[^\n]*+\n(?:\1  [^\n]*+\n)*+\1\}")

# One attribute with a plain value, the most frequent block that is not the same text everywhere.
_PLAIN_ATTR: Final = re.compile(
    rb" *+key: \"([^\"\\\n]*+)\"\n *+value \{\n"
    rb" *+(?:s: \"([^\"\\\n]*+)\"|i: (0|-?[1-9]\d{0,17})|b: (true|false))\n *+\}\n *+\}[ \t\r]*+\n"
)

_Value = TypeVar("_Value")


def read_text_graphs(data: Buffer) -> list[GraphParts]:
    """Returns the graphs of a ``ModelDef`` text, or the one of a bare ``GraphDef`` text.

    Raises:
        DataError: it is no such text, or was cut off; the message says where.
    """
    reader = _Reader(data)
    try:
        return reader.graphs()
    except TextError as error:
        place = f"line {line_number(data, error.offset)}, byte {error.offset}"
        raise DataError(f"is not the text of a device graph, or was cut off: {place}: {error.reason}") from error


@dataclass
class _Reader:
    data: Buffer
    ports: dict[bytes, Port] = field(default_factory=dict)
    attrs: dict[bytes, dict[str, AttrValue]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = TextParser(self.data, "ge")
        self.found: list[GraphParts] = []

    def graphs(self) -> list[GraphParts]:
        model, bare = ge_message(), GraphParts()
        self.text.message(
            model, "ModelDef", 0, on={b"graph": self._graph, b"op": lambda position: self._op(position, bare, 1)}
        )
        if bare.ops:
            bare.name, model.name = model.name, b""
            self.found.insert(0, bare)
        shared = model_attrs(model)
        for graph in self.found:
            graph.attrs = {**shared, **graph.attrs}
        return self.found

    def _graph(self, position: int) -> int:
        graph, header = GraphParts(), ge_message("GraphDef")
        position = self.text.message(
            header, "GraphDef", position, depth=1, on={b"op": lambda place: self._op(place, graph, 2)}
        )
        graph.name, graph.attrs = header.name, read_attrs(header.attr)
        self.found.append(graph)
        return position

    def _op(self, position: int, graph: GraphParts, depth: int) -> int:
        message = ge_message("OpDef")
        attrs: dict[str, AttrValue] = {}
        inputs: list[Port] = []
        outputs: list[Port] = []

        def attr(place: int) -> int:
            value, place = self._block(place, self.attrs, lambda at: self._attr(at, depth + 1))
            attrs.update(value)
            return place

        def port(ports: list[Port]) -> Callable[[int], int]:
            def read(place: int) -> int:
                value, place = self._block(place, self.ports, lambda at: self._port(at, depth + 1))
                ports.append(value)
                return place

            return read

        on = {b"attr": attr, b"input_desc": port(inputs), b"output_desc": port(outputs)}
        position = self.text.message(message, "OpDef", position, depth=depth, on=on)
        graph.ops.append(self._finish(message, attrs, inputs, outputs))
        return position

    def _finish(self, message: Message, attrs: dict[str, AttrValue], inputs: list[Port], outputs: list[Port]) -> Op:
        return op_of(message, attrs=attrs, input_ports=tuple(inputs), output_ports=tuple(outputs))

    def _block(
        self, position: int, known: dict[bytes, _Value], read: Callable[[int], tuple[_Value, int]]
    ) -> tuple[_Value, int]:
        """Reads one block; the same text again gives the same value."""
        match = _BLOCK.match(self.data, position)
        if match is None or match.end() - position > KNOWN_BYTES:
            return read(position)
        block = match[0]
        value = known.get(block)
        if value is not None:
            return value, match.end()
        value, end = read(position)
        # Where the brace below is not the one that closes the block, its text alone does not tell what it means. The
        # fast reader takes the line's end with the brace.
        if not self.data[match.end() : end].strip() and end >= match.end():
            make_room(known)
            known[block] = value
        return value, end

    def _attr(self, position: int, depth: int) -> tuple[dict[str, AttrValue], int]:
        match = _PLAIN_ATTR.match(self.data, position)
        if match is not None:
            key, text, number, flag = match.groups()
            key = decode_text(key)
            value = text_value(text) if text is not None else flag == b"true" if number is None else int(number)
            return {key: named_value(key, value)}, match.end()
        entry = ge_message("AttrEntry")
        entry.value.SetInParent()
        position = self.text.message(entry, "AttrEntry", position, depth=depth)
        return read_attrs([entry]), position

    def _port(self, position: int, depth: int) -> tuple[Port, int]:
        message = ge_message("TensorDescriptor")
        position = self.text.message(message, "TensorDescriptor", position, depth=depth)
        return port_of(message), position
