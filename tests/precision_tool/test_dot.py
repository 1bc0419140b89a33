"""dot: FC15, names that would break the picture, and graphs that are too big for one."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from dumpers.graph import Graph, Op, Port, Source
from precision_tool import dot

NAMES = ["a:b", 'say "hi"', "back\\slash", "<b>x</b>", "-Tpng", "x;y", "trail\\", "new\nline", "\\N", "esc\x1b[2J"]


def chain(names: list[str], types: dict[str, str] | None = None) -> Graph:
    ops = {}
    for index, name in enumerate(names):
        inputs = (Source(names[index - 1], 0),) if index else ()
        port = Port("float32", (2, 3), "ND")
        ops[name] = Op(name, (types or {}).get(name, "Relu"), inputs, (), (port,) * len(inputs), (port,))
    return Graph("g", ops, "ge")


def nodes(source: str) -> list[str]:
    return re.findall(r"^\t(n\d+) \[", source, re.MULTILINE)


def test_hostile_names_are_labels_only() -> None:
    drawing = dot.draw(chain(NAMES), NAMES[0], len(NAMES))
    assert nodes(drawing.source) == [f"n{i}" for i in range(len(NAMES))]
    edges = re.findall(r"^\t(\S+) -> (\S+) \[", drawing.source, re.MULTILINE)
    assert edges == [(f"n{i}", f"n{i + 1}") for i in range(len(NAMES) - 1)]
    assert "label=<" not in drawing.source  # no HTML
    assert "\x1b" not in drawing.source
    for name in (
        "a:b",
        'say \\"hi\\"',
        "back\\\\slash",
        "<b>x</b>",
        "-Tpng",
        "x;y",
        "trail\\\\",
        "new\\\\nline",
        "\\\\N",
    ):
        assert f"[Relu] {name}\\n" in drawing.source, name
    # Every quoted string ends: an odd number of quotes would swallow the rest of the file.
    assert len(re.findall(r'(?<!\\)(?:\\\\)*"', drawing.source)) % 2 == 0


def test_only_the_neighbourhood_is_drawn_and_the_root_is_red() -> None:
    names = [f"op{i}" for i in range(20_000)]
    started = time.monotonic()
    drawing = dot.draw(chain(names), "op10000", 2)
    assert time.monotonic() - started < 10
    assert drawing.nodes == 5
    assert len(re.findall(r" color=red", drawing.source)) == 1


def test_a_crowded_neighbourhood_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = {"hub": Op("hub", "Split")}
    ops |= {f"leaf{i}": Op(f"leaf{i}", "Relu", (Source("hub", 0),)) for i in range(1000)}
    drawing = dot.draw(Graph("g", ops, "ge"), "hub", 1)
    assert (drawing.nodes, drawing.cut) == (dot.MAX_NODES, 1001 - dot.MAX_NODES)
    monkeypatch.setenv("PATH", "")
    _, notes = dot.write(drawing, tmp_path, "hub")
    assert "601 more ops" in notes[0]


def test_walk_stops_at_ops_that_touch_everything() -> None:
    graph = chain(["a", "clean", "b"], {"clean": "AtomicAddrClean"})
    assert dot.neighbourhood(graph, "a", 5) == ["a", "clean"]
    assert dot.neighbourhood(graph, "clean", 1) == ["clean", "a", "b"]


def test_control_edges_are_dashed() -> None:
    graph = Graph("g", {"a": Op("a", "NoOp"), "b": Op("b", "Relu", (), ("a",))}, "ge")
    assert "n1 -> n0 [style=dashed]" in dot.draw(graph, "b", 1).source


def test_without_dot_the_text_is_written_and_a_line_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    files, notes = dot.write(dot.draw(chain(["a", "b"]), "a", 1), tmp_path / "out", "pic;touch owned.png")
    assert [path.name for path in files] == ["pic_touch_owned.png.gv"]
    assert files[0].read_text().startswith("digraph")
    assert len(notes) == 1
    assert "dot -Tsvg pic_touch_owned.png.gv" in notes[0]
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_svg_is_made_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "dot"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$#:$1"\ncat >/dev/null\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    files, notes = dot.write(dot.draw(chain(NAMES), "a:b", 3), tmp_path / "out", "x$(touch owned)")
    assert notes == []
    assert files[1].read_text() == "1:-Tsvg\n"
    assert not (tmp_path / "owned").exists()


def test_failing_dot_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "dot"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    files, notes = dot.write(dot.draw(chain(["a"]), "a", 1), tmp_path / "out", "a")
    assert len(files) == 1
    assert "broken" in notes[0]


@pytest.mark.parametrize(("stem", "safe"), [("../x/y", "_._x_y"), ("-Tpng", "_Tpng"), ("a b", "a_b"), ("é", "_")])
def test_safe_file_name(stem: str, safe: str) -> None:
    assert dot.safe_file_name(stem, room=100) == safe


def test_long_file_name_is_shortened() -> None:
    assert len(dot.safe_file_name("x" * 400, room=100)) <= 100
