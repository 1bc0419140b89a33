"""Long work and its end, help, palette, and names that would like to be markup (field case FC24)."""

from __future__ import annotations

import pytest

from dumpers.errors import DataError, UsageError
from precision_tool.render import visible
from precision_tool.result import Panel, Result
from tui.commands import CommandProvider
from tui.screens.node import NodeScreen

SIZES = [(80, 24), (120, 40), (200, 60)]


# --- long work


async def test_progress_is_shown_and_escape_cancels(desk):
    async with desk.app().run_test(size=(120, 40)) as pilot:
        screen = await desk.started(pilot)
        await desk.type_line(pilot, "slow")
        await desk.settled(pilot, desk.shows(pilot.app, "/100 pairs [/x]"))
        await pilot.press("escape")
        await desk.settled(pilot, lambda: not pilot.app.busy)
        assert desk.slow.interrupted.is_set()
        assert "cancelled: slow" in desk.screen_text(pilot.app)
        assert pilot.app.screen is screen


async def test_ctrl_c_cancels_from_the_command_line_too(desk):
    async with desk.app().run_test() as pilot:
        await desk.started(pilot)
        await desk.type_line(pilot, "long_work")
        await desk.settled(pilot, desk.slow.started.is_set)
        assert pilot.app.focused is pilot.app.frame.command_line.input
        await pilot.press("ctrl+c")
        await desk.settled(pilot, desk.slow.interrupted.is_set)


async def test_keys_answer_while_a_command_runs_and_a_second_one_waits(desk):
    async with desk.app().run_test(size=(120, 40)) as pilot:
        screen = await desk.started(pilot)
        await desk.type_line(pilot, "slow")
        await desk.settled(pilot, desk.slow.started.is_set)
        await desk.type_line(pilot, "vcs")
        assert "slow is still running" in screen.status.line
        screen.take_focus()
        await pilot.press("down", "down")
        assert screen.table.row == 2
        desk.slow.end.set()
        await desk.settled(pilot, desk.shows(pilot.app, "slow is done"))


async def test_the_op_is_read_after_the_command_that_runs(desk):
    async with desk.app().run_test(size=(120, 40)) as pilot:
        screen = await desk.started(pilot)
        await desk.type_line(pilot, "slow")
        await desk.settled(pilot, desk.slow.started.is_set)
        screen.take_focus()
        await pilot.press("down")
        await desk.settled(pilot, lambda: "reading" in desk.block_text(screen.node))
        assert desk.node.asked in ([], ["layer_0/MatMul"])
        await pilot.press("escape")
        await desk.settled(pilot, lambda: "Name: layer_1/MatMul" in desk.block_text(screen.node))


async def test_quitting_cancels_what_runs(desk):
    async with desk.app().run_test() as pilot:
        await desk.started(pilot)
        await desk.type_line(pilot, "slow")
        await desk.settled(pilot, desk.slow.started.is_set)
        pilot.app.frame.take_focus()
        await pilot.press("q")
    assert desk.slow.interrupted.wait(5)


async def test_a_line_typed_during_the_start_is_not_refused(desk):
    desk.summary = DataError("no result")
    desk.start_slowly()
    async with desk.app().run_test(size=(120, 40)) as pilot:
        await desk.settled(pilot, desk.slow.started.is_set)
        await desk.type_line(pilot, "ni -n wanted")
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen) and len(pilot.app.screen_stack) == 2)
        assert "Name: wanted" in desk.screen_text(pilot.app)
        assert desk.slow.interrupted.is_set()


async def test_an_answer_does_not_swallow_the_line_being_typed(desk):
    async with desk.app().run_test(size=(120, 40)) as pilot:
        screen = await desk.started(pilot)
        await desk.type_line(pilot, "slow")
        await desk.settled(pilot, desk.slow.started.is_set)
        await pilot.press(*"ni lay")
        desk.slow.end.set()
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        assert pilot.app.screen.command_line.input.value == "ni lay"
        assert pilot.app.screen.command_line.input.has_focus
        assert screen.command_line.input.value == ""


# --- help, palette, end


async def test_f1_lists_keys_and_commands(desk):
    async with desk.app().run_test(size=(120, 40)) as pilot:
        await desk.started(pilot)
        await pilot.press("f1")
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        text = desk.block_text(pilot.app.screen)
        assert "filter" in text
        assert "slow, long_work" in text
        assert "Works until it is told to end or cancelled." in text


async def test_the_palette_offers_every_command_and_begins_the_line(desk):
    async with desk.app().run_test(size=(120, 40)) as pilot:
        screen = await desk.started(pilot)
        provider = CommandProvider(screen)
        hits = [hit async for hit in provider.discover()]
        assert [hit.text for hit in hits] == ["vcs", "ls", "ni", "slow"]
        found = [hit async for hit in provider.search("slow")]
        assert [hit.text for hit in found] == ["slow"]
        await pilot.press("ctrl+p")
        await pilot.press(*"slow")
        await desk.settled(pilot, desk.shows(pilot.app, "slow, long_work"))
        await pilot.press("enter")
        await desk.settled(pilot, lambda: screen.command_line.input.value == "slow ")
        assert screen.command_line.input.has_focus


@pytest.mark.parametrize("leave", ["q", "ctrl+q"])
async def test_quit(desk, leave):
    app = desk.app()
    async with app.run_test() as pilot:
        await desk.started(pilot)
        await pilot.press(leave)
    assert app.return_code == 0


async def test_q_on_the_command_line_is_a_letter(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("colon", "q")
        assert screen.command_line.input.value == "q"
        assert pilot.app.is_running


# --- names


@pytest.mark.parametrize("size", SIZES)
async def test_odd_names_are_literal_everywhere(desk, make_table, make_answer, odd_names, size):
    everything = Panel("[/title]\x1b", odd_names)
    desk.summary = Result("title [/red]\x1b[2J", [make_table(odd_names), everything], notes=["note [/x]\x07"])
    desk.extra = [make_answer("odd", UsageError("no op [/red]\x1b[2J [@click=app.quit]x"))]
    async with desk.app().run_test(size=size) as pilot:
        screen = await desk.started(pilot)
        for name in odd_names:
            await desk.settled(pilot, lambda name=name: f"Name: {visible(name)}" in desk.block_text(screen.node))
            shown = desk.screen_text(pilot.app)
            assert not set(shown) & set("\x1b\x07\x9b\u202e")
            assert "title [/red]\\x1b[2J" in shown
            await pilot.press("down")
        await desk.type_line(pilot, "odd")
        await desk.settled(pilot, lambda: "no op [/red]" in screen.status.line)
        assert "[/red]\\x1b[2J [@click=app.quit]x" in desk.screen_text(pilot.app)
        metas = [segment.style.meta for strip in screen._compositor.render_strips() for segment in strip
                 if segment.style is not None and segment.style._meta]  # fmt: skip
        assert not any("click" in key for meta in metas for key in meta)


async def test_colon_and_slash_are_letters_while_typing(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("colon", "a", "slash", "b", "colon")
        assert screen.command_line.input.value == "a/b:"
        assert not screen.filter_bar.display
        await pilot.press("escape", "slash", "c", "slash", "colon")
        assert screen.filter_line.value == "c/:"
