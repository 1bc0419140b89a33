"""render: what users see, and what a name from a file must not be able to do."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest

from precision_tool import render
from precision_tool.result import ExitCode, Panel, Result, Table

HOSTILE = {
    "grads[/red]": "grads[/red]",
    "w[bold]": "w[bold]",
    "[@click=app.quit]go[/]": "[@click=app.quit]go[/]",
    "open [b + 3": "open [b + 3",
    "[/": "[/",
    "x\x1b[2J": "x\\x1b[2J",
    "clip\x1b]52;c;QQ==\x07": "clip\\x1b]52;c;QQ==\\x07",
    "c1\x9b2J": "c1\\x9b2J",
    "right\u202eleft": "right\\u202eleft",
    "two\nlines": "two\\nlines",
    "tab\there": "tab\\there",
    "raw\udcff": "raw\\xff",
    "sep\u2028end": "sep\\u2028end",
}
"""FC24: name -> what stands on the screen."""


class Terminal(io.StringIO):
    """Text stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return True


def hostile_result() -> Result:
    rows = tuple((name, 1) for name in HOSTILE)
    return Result(
        title="t[bold]",
        blocks=[Table("tab[red]le", ("Op[/]", "N"), rows), Panel("pa[b]nel", tuple(HOSTILE))],
        notes=["n\x1b"],
    )


@pytest.mark.parametrize(("name", "shown"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_visible_shows_names_literally(name: str, shown: str) -> None:
    assert render.visible(name) == shown


def test_visible_keeps_letters_of_any_script() -> None:
    assert render.visible("層/卷积_ß_é") == "層/卷积_ß_é"


def test_plain_output_has_one_row_per_name_and_no_escape() -> None:
    out, err = io.StringIO(), io.StringIO()
    render.show(hostile_result(), out=out, err=err)
    lines = out.getvalue().split("\n")
    assert "\x1b" not in out.getvalue() + err.getvalue()
    for shown in HOSTILE.values():
        assert sum(line.startswith(shown + " ") for line in lines) == 1, shown
    assert err.getvalue() == "n\\x1b\n"


def test_rich_output_shows_names_literally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    render.show(hostile_result(), out=out, err=io.StringIO())
    text = out.getvalue()
    assert "\u256d" in text  # boxes: this is the rich path
    for name, shown in HOSTILE.items():
        if "\t" not in name:
            assert text.count(shown) >= 2, shown
    for danger in ("\x1b[2J", "\x1b]52", "\x9b", "\u202e", "\x07"):
        assert danger not in text


@pytest.mark.parametrize(
    ("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", None)], ids=["no_color", "dumb", "unset"]
)
def test_terminal_without_colour_gets_plain_lines(
    variable: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if value is None:
        monkeypatch.delenv(variable)
    else:
        monkeypatch.setenv(variable, value)
    out = Terminal()
    render.show(Result(title="t", blocks=[Table("", ("A",), ((1,),))]), out=out, err=io.StringIO())
    assert out.getvalue() == "t\n\nA\n-\n1\n"


def test_ascii_stream_escapes_instead_of_failing() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    render.show(Result(title="層"), out=out, err=io.StringIO())
    assert out.buffer.getvalue() == b"\\u5c64\n"  # type: ignore[attr-defined]


def test_ascii_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert render.is_plain(Terminal("ascii"))
    assert not render.is_plain(Terminal("utf-8"))


def test_plain_table_aligns_and_marks() -> None:
    table = Table("T", ("Op", "Cos"), (("a", 0.5), ("longer", None), ("c", math.nan)), {0: "bad", 2: "warn"})
    assert render.plain_lines(Result(title="x", blocks=[table])) == [
        "x",
        "",
        "== T ==",
        "  Op      Cos",
        "  ------  ---",
        "! a       0.5",
        "  longer  -",
        "? c       nan",
    ]


def test_paged_table_is_one_line() -> None:
    table = Table("T[b]", ("N",), tuple((n,) for n in range(25)), paged=True)
    lines = render.plain_lines(Result(title="x", blocks=[table]))
    assert lines == ["x", "", "T[b]: 25 rows, not shown here (the tui shows them)"]


def test_unpaged_table_is_whole() -> None:
    table = Table("T", ("N",), tuple((n,) for n in range(25)))
    assert render.plain_lines(Result(title="x", blocks=[table]))[-1] == "24"


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, "-"), (0.123456789, "0.123457"), (7, "7"), (True, "True"), ("a\nb", "a\\nb"), (1e-12, "1e-12")],
)
def test_cell_text(cell: object, text: str) -> None:
    assert render.cell_text(cell) == text  # type: ignore[arg-type]


def test_json_document_is_strict_and_complete(tmp_path) -> None:  # type: ignore[no-untyped-def]
    data = {
        "nan": math.nan,
        "inf": [np.float32("inf"), -np.inf],
        "array": np.arange(3),
        "scalar": np.int64(5),
        "path": tmp_path,
        "none": None,
        "exit": ExitCode.FOUND,
        "name": "\udcff層",
    }
    text = render.json_document("vc", Result(title="", data=data, files=[tmp_path / "f"], exit_code=ExitCode.FOUND))
    assert text.isascii()

    def refuse(token: str) -> float:
        raise AssertionError(token)

    document = json.loads(text, parse_constant=refuse)
    assert list(document) == ["command", "ok", "exit_code", "result", "files"]
    assert document["ok"] is True
    assert document["exit_code"] == 1
    assert document["files"] == [str(tmp_path / "f")]
    assert document["result"]["nan"] == "nan"
    assert document["result"]["inf"] == ["inf", "-inf"]
    assert document["result"]["array"] == [0, 1, 2]
    assert document["result"]["name"] == "\udcff層"


def test_json_error_is_not_ok() -> None:
    document = json.loads(render.json_error("vc", 3, "gone"))
    assert document == {"command": "vc", "ok": False, "exit_code": 3, "result": {}, "files": [], "error": "gone"}


def test_plain_data_refuses_what_is_no_data() -> None:
    with pytest.raises(TypeError, match="object"):
        render.plain_data({"x": object()})


def test_progress_line_draws_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    pipe = io.StringIO()
    render.ProgressLine(pipe)("work", 1, 1)
    assert pipe.getvalue() == ""
    terminal = Terminal()
    line = render.ProgressLine(terminal)
    line("work\x1b", 1, 1)
    line.clear()
    assert terminal.getvalue() == "\rwork\\x1b 1/1\r" + " " * 12 + "\r"


def test_an_answer_that_is_not_whole_says_why() -> None:
    def error(**fields: object) -> object:
        return json.loads(render.json_document("vc", Result(title="t", **fields))).get("error")  # type: ignore[arg-type]

    assert error(exit_code=ExitCode.FOUND, problems=["x"]) is None
    assert error(exit_code=ExitCode.DATA, problems=["a: cut off", "b: cut off"]) == "a: cut off; b: cut off"
    assert str(error(exit_code=ExitCode.DATA, problems=list("abcdefg"))).endswith("; 2 more")
    assert error(exit_code=7) == "t"
