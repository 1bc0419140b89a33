"""A picture of the neighbourhood of one op: graphviz text, and svg where the ``dot`` program exists.

Names come from foreign files. Nodes are numbered and names are labels only, so a colon makes no port and nothing is
taken for HTML; no shell is involved; ``dot`` reads its standard input.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.formats.atomic import atomic_file
from dumpers.names import MAX_FILE_NAME_BYTES, shorten
from precision_tool.render import visible

if TYPE_CHECKING:
    import graphviz

    from dumpers.graph import Graph, Op, Port

STOP_TYPES = frozenset({"AtomicAddrClean", "NetOutput"})
"""Ops that touch everything: shown, but not walked through."""

MAX_NODES = 400
"""More than that is no picture any more, and ``dot`` would not finish."""

DOT_SECONDS = 30


@dataclass(frozen=True)
class Drawing:
    """What was drawn.

    Attributes:
        source: The graphviz text.
        nodes: Number of ops in it.
        cut: Number of ops of the asked neighbourhood that are left out.
    """

    source: str
    nodes: int
    cut: int


def neighbourhood(graph: Graph, root: str, depth: int) -> list[str]:
    """Returns the ops at most ``depth`` edges from the root, in both directions, nearest first."""
    walks = graph.networkx
    distance = {root: 0}
    waiting = deque([root])
    while waiting:
        name = waiting.popleft()
        if distance[name] == depth or (name != root and graph.ops[name].type in STOP_TYPES):
            continue
        for other in (*walks.predecessors(name), *walks.successors(name)):
            if other not in distance:
                distance[other] = distance[name] + 1
                waiting.append(other)
    return list(distance)


def draw(graph: Graph, root: str, depth: int, *, max_nodes: int = MAX_NODES) -> Drawing:
    """Returns the picture of an op's neighbourhood.

    Args:
        graph: The graph.
        root: Name of an op in it; it is drawn red.
        depth: How many edges far, in both directions.
        max_nodes: The nearest ops up to this number are drawn.
    """
    import graphviz

    reached = neighbourhood(graph, root, depth)
    kept = reached[:max_nodes]
    number = {name: f"n{index}" for index, name in enumerate(kept)}
    picture = graphviz.Digraph("ops", node_attr={"shape": "box", "fontname": "Helvetica"})
    for name, node in number.items():
        colour = {"color": "red", "fontcolor": "red"} if name == root else {}
        picture.node(node, label=_label(graph.ops[name]), **colour)
    for name, node in number.items():
        _draw_edges(picture, graph.ops[name], node, number)
    return Drawing(picture.source, len(kept), len(reached) - len(kept))


def _draw_edges(picture: graphviz.Digraph, op: Op, node: str, number: Mapping[str, str]) -> None:
    for index, source in enumerate(op.inputs):
        if source.op in number:
            picture.edge(number[source.op], node, label=f"{source.slot} > {index}")
    for name in op.control_inputs:
        if name in number:
            picture.edge(number[name], node, style="dashed")


def _label(op: Op) -> str:
    import graphviz

    lines = [*(f"in {i}: {_port(port)}" for i, port in enumerate(op.input_ports)), f"[{op.type}] {op.name}"]
    lines += [f"out {i}: {_port(port)}" for i, port in enumerate(op.output_ports)]
    # escape() keeps backslashes of a name literal; nohtml() keeps a label in angle brackets from being HTML.
    label: str = graphviz.nohtml("\\n".join(graphviz.escape(visible(line)) for line in lines))
    return label


def _port(port: Port) -> str:
    shape = "?" if port.shape is None else ",".join(map(str, port.shape))
    return f"{port.dtype} [{shape}] {port.format}".rstrip()


def write(drawing: Drawing, folder: Path, stem: str) -> tuple[list[Path], list[str]]:
    """Writes the text, and the svg where ``dot`` is installed.

    Args:
        drawing: The picture.
        folder: Where to; it is created.
        stem: File name without suffix, made safe here.

    Returns:
        The files written, and lines that say what was not done and why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text_file = folder / (safe_file_name(stem, room=MAX_FILE_NAME_BYTES - 16) + ".gv")
    with atomic_file(text_file) as out:
        out.write(drawing.source.encode("utf-8"))
    notes = []
    if drawing.cut:
        notes.append(f"{drawing.cut} more ops lie that near; the picture shows the nearest {drawing.nodes}")
    svg, note = _svg(drawing.source)
    if svg is None:
        drawn = text_file.with_suffix(".svg").name
        return [text_file], [*notes, f"{note}; to draw it elsewhere: dot -Tsvg {text_file.name} -o {drawn}"]
    picture = text_file.with_suffix(".svg")
    with atomic_file(picture) as out:
        out.write(svg)
    return [text_file, picture], notes


def safe_file_name(stem: str, *, room: int) -> str:
    """Returns a name that is only letters, digits, ``_``, ``.`` and ``-``, and does not begin with a dash or dot."""
    return shorten(re.sub(r"[^\w.-]|^[-.]", "_", stem, flags=re.ASCII), room)


def _svg(source: str) -> tuple[bytes | None, str]:
    program = shutil.which("dot")
    if program is None:
        return None, "no svg: the program dot is not installed"
    try:
        done = subprocess.run(
            [program, "-Tsvg"], input=source.encode("utf-8"), capture_output=True, check=True, timeout=DOT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None, f"no svg: dot did not finish in {DOT_SECONDS} seconds"
    except (subprocess.CalledProcessError, OSError) as error:
        detail = (
            error.stderr.decode(errors="replace").strip() if isinstance(error, subprocess.CalledProcessError) else error
        )
        return None, f"no svg: dot failed ({detail})"
    return done.stdout, ""
