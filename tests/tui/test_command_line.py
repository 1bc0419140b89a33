"""History and completion of the command line."""

from __future__ import annotations

import pytest
from textual import events

from tui.screens.compare import CompareScreen
from tui.widgets.command_line import History, completions


def test_history_walks_back_and_returns_to_the_draft():
    history = History()
    for line in ("vc", "ls -t MatMul", "ls -t MatMul", "nan"):
        history.add(line)
    assert history.older("dra") == "nan"
    assert history.older("nan") == "ls -t MatMul"
    assert history.older("") == "vc"
    assert history.older("vc") == "vc"
    assert history.newer("vc") == "ls -t MatMul"
    assert history.newer("") == "nan"
    assert history.newer("nan") == "dra"
    assert history.newer("dra") == "dra"


def test_an_empty_history_changes_nothing():
    history = History()
    assert history.older("x") == "x"
    assert history.newer("x") == "x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s", ("slow",)),
        ("", ("vcs", "ls", "ni", "slow", "long_work")),
        ("l", ("ls", "long_work")),
        ("vcs --c", ("--cos_sim",)),
        ("vcs -k ", ("left", "right")),
        ("vcs --kind r", ("right",)),
        ("ni tower/a", ("tower/ab", "tower/ac")),
        ("ni -n tower/ab", ("tower/ab",)),
        ("nonsense x", ()),
        (" ", ()),
        ("zzz", ()),
    ],
)
def test_completions(desk, text, words):
    desk.app()
    assert completions(text, ["tower/ab", "tower/ac", "two words", "other"]) == words


async def screen_of(pilot):
    for _ in range(200):
        if isinstance(pilot.app.screen, CompareScreen):
            return pilot.app.screen
        await pilot.pause(0.02)
    raise AssertionError("no table came up")


async def test_tab_completes_and_shows_the_choices(desk):
    async with desk.app().run_test() as pilot:
        screen = await screen_of(pilot)
        line = screen.command_line.input
        await pilot.press("colon", "s", "l", "tab")
        assert line.value == "slow "
        line.value = ""
        await pilot.press(*"ni layer_1", "tab")
        assert line.value == "ni layer_1"
        assert "layer_10/MatMul" in screen.status.line
        await pilot.press("2", "tab")
        assert line.value == "ni layer_12/MatMul "
        assert line.cursor_position == len(line.value)
        await pilot.press("z", "tab")
        assert line.value == "ni layer_12/MatMul z"
        assert line.has_focus


async def test_up_and_down_bring_earlier_lines_on_any_screen(desk):
    async with desk.app().run_test() as pilot:
        screen = await screen_of(pilot)
        line = screen.command_line.input
        await pilot.press("colon")
        for text in ("wrong_one", "wrong_two"):
            line.value = text
            await pilot.press("enter")
            assert line.value == ""
        await pilot.press("up", "up")
        assert line.value == "wrong_one"
        await pilot.press("down")
        assert line.value == "wrong_two"
        await pilot.press("escape", "f1")
        await pilot.pause()
        await pilot.press("colon", "up")
        assert pilot.app.screen is not screen
        assert pilot.app.screen.command_line.input.value == "wrong_two"


async def test_pasted_controls_become_visible(desk):
    async with desk.app().run_test() as pilot:
        screen = await screen_of(pilot)
        line = screen.command_line.input
        await pilot.press("colon")
        line.post_message(events.Paste("x\x1b[2J[/red]\nsecond"))
        await pilot.pause()
        assert line.value == "x\\x1b[2J[/red]"
        line.select_all()
        line.post_message(events.Paste("a\x07b"))
        await pilot.pause()
        assert line.value == "a\\x07b"


async def test_an_empty_line_runs_nothing(desk):
    async with desk.app().run_test() as pilot:
        screen = await screen_of(pilot)
        await pilot.press("colon", "space", "enter")
        assert pilot.app.screen is screen
        assert screen.status.line == ""
