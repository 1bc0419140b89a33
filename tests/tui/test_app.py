"""The workbench as a user drives it: keys in, screens out."""

from __future__ import annotations

import pytest

from dumpers.errors import DataError
from precision_tool.result import Panel, Result, Table
from tui.screens.compare import CompareScreen
from tui.screens.node import NodeScreen
from tui.screens.row import RowScreen

SIZES = [(80, 24), (120, 40), (200, 60)]


# --- what is shown first


@pytest.mark.parametrize("size", SIZES)
async def test_starts_with_the_newest_result(desk, size):
    async with desk.app().run_test(size=size) as pilot:
        await desk.started(pilot)
        shown = desk.screen_text(pilot.app)
        assert "newest result" in shown
        assert "row 1/40" in shown
        assert "layer_0/MatMul" in shown
        assert max(map(len, shown.split("\n"))) <= size[0]


async def test_without_a_result_shows_the_ops(desk):
    desk.summary = DataError("no result")
    desk.listing = Result("Ops by type", [Table("debug_0", ("OpType", "Count"), (("MatMulV2", 3), ("Cast", 4)))])
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        assert screen.table.table.title == "debug_0"
        assert "error" not in desk.screen_text(pilot.app)


async def test_without_anything_says_what_to_do(desk):
    desk.summary = DataError("no result")
    async with desk.app().run_test() as pilot:
        await desk.settled(pilot, lambda: not pilot.app.busy)
        shown = desk.screen_text(pilot.app)
        assert "What to do next" in shown
        assert "vc -lt LEFT -rt RIGHT" in shown
        assert "error" not in shown


# --- the op under the cursor


@pytest.mark.parametrize("size", SIZES)
async def test_the_op_under_the_cursor_is_shown_beside(desk, size):
    async with desk.app().run_test(size=size) as pilot:
        screen = await desk.started(pilot)
        await pilot.press("down", "down")
        await desk.settled(pilot, lambda: "Name: layer_2/MatMul" in desk.block_text(screen.node))
        assert "Name: layer_2/MatMul" in desk.screen_text(pilot.app)


async def test_passing_rows_reads_nothing(desk):
    desk.rest_seconds = 1.0
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await desk.settled(pilot, lambda: "Name: layer_0" in desk.block_text(screen.node))
        await pilot.press(*["down"] * 10)
        await desk.settled(pilot, lambda: "Name: layer_10/" in desk.block_text(screen.node))
        assert desk.node.asked == ["layer_0/MatMul", "layer_10/MatMul"]


async def test_an_op_that_cannot_be_shown_gives_its_reason(desk):
    desk.names = ("unknown", "known")
    desk.summary = Result("r", [Table("t", ("Op",), (("unknown",), ("known",)))])
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await desk.settled(pilot, lambda: "no op named unknown" in desk.block_text(screen.node))
        await pilot.press("down")
        await desk.settled(pilot, lambda: "Name: known" in desk.block_text(screen.node))
        assert isinstance(pilot.app.screen, CompareScreen)


async def test_a_row_without_an_op_says_so(desk):
    desk.summary = Result("r", [Table("t", ("Op", "Cosine"), ((None, 1.0),))])
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await desk.settled(pilot, lambda: "names no op" in desk.block_text(screen.node))
        assert desk.node.asked == []


async def test_enter_opens_the_op_and_escape_returns_to_the_row(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("down", "enter")
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        assert "Name: layer_1/MatMul" in desk.screen_text(pilot.app)
        await pilot.press("escape")
        assert pilot.app.screen is screen
        assert screen.table.row == 1


async def test_a_name_like_an_option_is_still_a_name(desk):
    desk.summary = Result("r", [Table("t", ("Op",), (("-c [/x]",),))])
    async with desk.app().run_test() as pilot:
        await desk.started(pilot)
        await pilot.press("enter")
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        assert desk.node.asked[-1] == "-c [/x]"


async def test_enter_on_an_op_type_lists_its_ops(desk, make_answer):
    desk.summary = Result("Ops", [Table("debug_0", ("OpType", "Count"), (("MatMulV2", 3),))])
    async with desk.app().run_test() as pilot:
        await desk.started(pilot)
        asked = []
        pilot.app._start = lambda parse, line: asked.append(line)
        await pilot.press("enter")
        await pilot.pause()
        assert asked == ["ls --type=MatMulV2"]


async def test_n_hides_the_op_and_brings_it_back(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("n")
        assert not screen.node.display
        await pilot.press("down", "down", "n")
        await desk.settled(pilot, lambda: "Name: layer_2/MatMul" in desk.block_text(screen.node))


async def test_v_shows_the_row_in_full(desk):
    name = "scope/" * 50 + "MatMul"
    desk.summary = Result("r", [Table("rows", ("Op", "Cosine"), ((name, 0.5),))])
    async with desk.app().run_test(size=(80, 24)) as pilot:
        await desk.started(pilot)
        assert name not in desk.screen_text(pilot.app).replace("\n", "")
        await pilot.press("v")
        assert isinstance(pilot.app.screen, RowScreen)
        assert name in "".join(desk.block_text(pilot.app.screen).split("\n"))
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, CompareScreen)


# --- filter, sort, copy


async def test_filter_narrows_while_typing_and_escape_shows_all(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("slash", *"layer_3/")
        await desk.settled(pilot, desk.shows(pilot.app, "row 1/1 of 40"))
        await pilot.press("enter")
        assert screen.table.has_focus
        assert screen.table.op_name == "layer_3/MatMul"
        await pilot.press("escape")
        await desk.settled(pilot, desk.shows(pilot.app, "/40"))
        assert pilot.app.screen is screen
        assert screen.table.op_name == "layer_3/MatMul"


async def test_a_filter_that_nothing_passes_says_so(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("slash", *"zzz", "enter", "enter", "c", "v", "down")
        assert "no row holds the filter's words" in desk.screen_text(pilot.app)
        assert screen.table.row is None


async def test_sort_keeps_the_cursor_on_its_tensor(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("down", "down", "down", "right", "right", "right", "right", "s")
        cosines = [screen.table.table.rows[row][4] for row in screen.table.view.order]
        known = [value for value in cosines if value is not None]
        assert known == sorted(known)
        assert cosines[len(known) :] == [None] * (40 - len(known))
        assert screen.table.row == 3
        assert "▲" in desk.screen_text(pilot.app)
        await pilot.press("s")
        assert "▼" in desk.screen_text(pilot.app)
        assert screen.table.row == 3
        await pilot.press("s")
        assert list(screen.table.view.order) == list(range(40))


async def test_copy_gives_the_original_name(desk, make_table, odd_names):
    desk.summary = Result("r", [make_table(odd_names)])
    async with desk.app().run_test(size=(120, 40)) as pilot:
        await desk.started(pilot)
        for name in odd_names:
            await pilot.press("c")
            assert pilot.app.clipboard == name
            await pilot.press("down")
        await pilot.press("home", "right", "right", "right", "C")
        assert pilot.app.clipboard == "grads[/red]:output:0"


# --- command line


async def test_the_command_line_takes_the_options_of_the_shell(desk, make_answer):
    desk.extra = [make_answer("vc", Result("compared", [Panel("Summary", ("one op",))]), aliases=("vector_compare",))]
    async with desk.app().run_test() as pilot:
        await desk.started(pilot)
        await desk.type_line(pilot, "vector_compare -c 0.5 --kind left")
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        assert "compared" in desk.screen_text(pilot.app)
        assert "one op" in desk.screen_text(pilot.app)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "unknown command nonsense"),
        ("vcs -c x", "invalid float value"),
        ("vcs --wrong", "--wrong"),
        ("vcs 'open", "close the quote"),
        ("ni -n unknown", "no op named unknown"),
    ],
)
async def test_a_mistake_is_one_line(desk, line, said):
    async with desk.app().run_test(size=(120, 40)) as pilot:
        screen = await desk.started(pilot)
        await desk.type_line(pilot, line)
        await desk.settled(pilot, lambda: screen.status.line.startswith("error: "))
        assert said in screen.status.line
        assert "error: " in desk.screen_text(pilot.app)
        assert pilot.app.screen is screen


async def test_a_bug_shows_its_traceback_and_the_session_goes_on(desk, make_answer):
    desk.extra = [make_answer("broken", ZeroDivisionError("1/0 [/red]"))]
    async with desk.app().run_test(size=(120, 40)) as pilot:
        await desk.started(pilot)
        await desk.type_line(pilot, "broken")
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        assert "ZeroDivisionError: 1/0 [/red]" in desk.screen_text(pilot.app)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, CompareScreen)


async def test_an_unreadable_file_is_one_line(desk, make_answer):
    desk.extra = [make_answer("vc", PermissionError(13, "Permission denied", "/data/x.npy"))]
    async with desk.app().run_test(size=(120, 40)) as pilot:
        screen = await desk.started(pilot)
        await desk.type_line(pilot, "vc")
        await desk.settled(pilot, lambda: screen.status.line == "error: /data/x.npy: Permission denied")


@pytest.mark.parametrize("line", ["vcs -h", "help vcs"])
async def test_help_of_one_command(desk, line):
    async with desk.app().run_test() as pilot:
        await desk.started(pilot)
        await desk.type_line(pilot, line)
        await desk.settled(pilot, desk.shows(pilot.app, "--cos_sim"))


async def test_json_is_shown_as_one_document(desk, make_answer):
    desk.extra = [make_answer("vc", Result("compared", data={"cosine": 0.25}))]
    async with desk.app().run_test() as pilot:
        await desk.started(pilot)
        await desk.type_line(pilot, "vc --json")
        await desk.settled(pilot, desk.shows(pilot.app, '"cosine": 0.25'))


async def test_answers_stack_and_escape_goes_back_one_by_one(desk):
    async with desk.app().run_test() as pilot:
        first = await desk.started(pilot)
        await desk.type_line(pilot, "ni -n a")
        await desk.settled(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
        second = pilot.app.screen
        await desk.type_line(pilot, "ni -n b")
        await desk.settled(pilot, lambda: pilot.app.screen not in (first, second))
        await pilot.press("escape")
        assert pilot.app.screen is second
        await pilot.press("escape")
        assert pilot.app.screen is first
        await pilot.press("escape")
        assert "What to do next" in desk.screen_text(pilot.app)
        await pilot.press("escape")
        assert "q quits" in desk.screen_text(pilot.app)


async def test_escape_leaves_the_command_line_first(desk):
    async with desk.app().run_test() as pilot:
        screen = await desk.started(pilot)
        await pilot.press("colon", "v", "escape")
        assert pilot.app.screen is screen
        assert screen.table.has_focus
        assert screen.command_line.input.value == "v"
