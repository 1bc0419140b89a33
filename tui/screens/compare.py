"""CompareScreen: a result with tables - the longest as a table to walk through, the op under its cursor beside it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from dumpers.errors import UsageError
from precision_tool import dispatch
from precision_tool.dispatch import Call
from precision_tool.result import Result, Table
from tui.literal import literal
from tui.messages import Broke, CallRequested, Failed, Finished, Task, TaskMessage
from tui.runner import Runner
from tui.screens.frame import FrameScreen
from tui.screens.row import RowScreen
from tui.widgets.blocks import BlockList, notes_of
from tui.widgets.command_line import History
from tui.widgets.node_panel import NodePanel
from tui.widgets.result_table import ResultTable, row_in_full

REST_SECONDS = 0.15
"""How long the cursor rests on a row before its op is read: holding a key down reads nothing."""


SHORT_ROWS = 8
"""A table of at most so many rows gets no more lines than it has rows."""


class FilterLine(Input):
    """Takes the words of the filter; hidden until ``/``."""

    def __init__(self) -> None:
        super().__init__(placeholder="words that a row must hold; Enter keeps, Esc shows all", select_on_focus=False)


class CompareScreen(FrameScreen):
    """Shows one result that has a table.

    Args:
        title: One line on top.
        result: What a command answered.
        call: The call that answered; the op under the cursor is read from where this one read.
        history: Command lines entered so far.
        runner: Runs ``ni`` for the row under the cursor.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("n", "toggle_node", "Op panel", show=False),
    ]

    def __init__(self, title: str, result: Result, call: Call, history: History, runner: Runner) -> None:
        super().__init__(title, history)
        self._root = [] if call.args.root is None else ["--root", str(call.args.root)]
        self._runner = runner
        self._rest: Timer | None = None
        main = longest_table(result)
        self.table = ResultTable(main, id="main")
        others = [block for block in result.blocks if block is not main]
        others += notes_of(result)
        self.others = BlockList(others, id="others")
        self.others.display = bool(others)
        self.filter_line = FilterLine()
        self.filter_bar = Horizontal(Static(literal("filter"), id="filter-label"), self.filter_line, id="filter")
        self.filter_bar.display = False
        self.set_class(len(main.rows) <= SHORT_ROWS, "-short")
        self.node = NodePanel(id="node")
        self.node.display = self.table.names_ops
        self.command_line.input.known_names = self.table.op_names

    def body(self) -> Iterable[Widget]:
        """Other blocks, the table, the op."""
        yield self.others
        yield Container(Vertical(self.table, self.filter_bar, id="left"), self.node, id="split")

    def take_focus(self) -> None:
        """Keys move through the table."""
        self.set_focus(self.table)

    def leave_inner(self) -> bool:
        """Leaves the command line, then the filter."""
        if super().leave_inner():
            return True
        if not self.filter_bar.display:
            return False
        self.filter_line.value = ""
        self.table.filter("")
        self.filter_bar.display = False
        self.take_focus()
        return True

    def action_filter(self) -> None:
        """Opens the filter."""
        self.filter_bar.display = True
        self.set_focus(self.filter_line)

    def action_toggle_node(self) -> None:
        """Shows or hides the panel of the op."""
        self.node.display = not self.node.display and self.table.names_ops
        if self.node.display:
            self._look_up_soon()

    @on(Input.Changed)
    def narrow(self, event: Input.Changed) -> None:
        """Filters while the words are typed."""
        if event.input is self.filter_line:
            event.stop()
            self.table.filter(event.value)
            self._show_place()

    @on(Input.Submitted)
    def keep_filter(self, event: Input.Submitted) -> None:
        """Goes back to the rows that are left."""
        if event.input is self.filter_line:
            event.stop()
            self.take_focus()

    @on(ResultTable.Highlighted)
    def follow_cursor(self, event: ResultTable.Highlighted) -> None:
        """Shows where the cursor is, and its op once it rests."""
        event.stop()
        self._show_place()
        self._look_up_soon()

    @on(ResultTable.Opened)
    def open_op(self, event: ResultTable.Opened) -> None:
        """Opens the op over the whole screen; the ops of a type; else the row in full."""
        event.stop()
        name, op_type = event.table.op_name, event.table.op_type
        if name is not None:
            self.post_message(CallRequested("ni", f"--name={name}", *self._root))
        elif op_type is not None:
            self.post_message(CallRequested("ls", f"--type={op_type}", *self._root))
        else:
            self._view(event.table)

    @on(ResultTable.Viewed)
    def view_row(self, event: ResultTable.Viewed) -> None:
        """Shows the row with nothing cut."""
        event.stop()
        self._view(event.table)

    @on(ResultTable.Copied)
    def tell_copy(self, event: ResultTable.Copied) -> None:
        """Says what the clipboard holds."""
        event.stop()
        self.status.say(f"copied: {event.text}")

    @on(Finished)
    async def show_node(self, event: Finished) -> None:
        """Shows the op that was read."""
        event.stop()
        await self.node.show_result(event.task.line, event.result)

    @on(Failed)
    async def show_failure(self, event: Failed) -> None:
        """Shows why the op could not be read."""
        event.stop()
        await self.node.show_error(event.task.line, event.error)

    @on(Broke)
    async def show_bug(self, event: Broke) -> None:
        """Shows the last line of a bug; Enter on the row shows all of it."""
        event.stop()
        await self.node.show_error(event.task.line, f"bug: {event.traceback[-1]}")

    def on_task_message(self, event: TaskMessage) -> None:
        """Lets nothing about the reading of an op reach the app, which shows its own tasks."""
        event.stop()

    def _view(self, table: ResultTable) -> None:
        if table.row is not None:
            self.app.push_screen(RowScreen(table.table.title or "row", row_in_full(table.table, table.row)))

    def _show_place(self) -> None:
        shown, total = len(self.table.view.order), len(self.table.table.rows)
        of = f"{shown}" if shown == total else f"{shown} of {total}"
        self.title_bar.place(f"row {self.table.position + 1 if shown else 0}/{of}")

    def _look_up_soon(self) -> None:
        if self._rest is not None:
            self._rest.stop()
        if self.node.display:
            self._rest = self.set_timer(REST_SECONDS, self._look_up)

    async def _look_up(self) -> None:
        name = self.table.op_name
        if name == self.node.op and name is not None:
            return
        if name is None:
            await self.node.clear("this row names no op")
            return
        await self.node.wait_for(name)
        try:
            call = dispatch.parse_words(["ni", f"--name={name}", *self._root])  # one word: a name may begin with -
        except UsageError as error:
            await self.node.show_error(name, str(error))
            return
        work = partial(self._runner.run, Task(name, call), self.post_message)
        self.run_worker(work, group="node", exclusive=True, thread=True)


def longest_table(result: Result) -> Table:
    """Returns the table to walk through: one made for that before others, then the one with the most rows.

    Raises:
        ValueError: the result has no table.
    """
    tables = (block for block in result.blocks if isinstance(block, Table))
    return max(tables, key=lambda table: (table.paged and bool(table.rows), len(table.rows)))
