"""The workbench app. It only wires: lines go to the commands of the registry, what they answer goes to a screen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import ClassVar

from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.screen import Screen
from textual.worker import Worker

from dumpers.errors import UsageError
from precision_tool import dispatch
from precision_tool.dispatch import Call
from precision_tool.render import json_document, say
from precision_tool.result import ExitCode, Panel, Result, Table
from precision_tool.workbench import Workbench
from tui.commands import CommandProvider
from tui.messages import Broke, CallRequested, Failed, Finished, LineSubmitted, Progressed, Stopped, Task
from tui.runner import Runner
from tui.screens.compare import CompareScreen
from tui.screens.frame import FrameScreen
from tui.screens.help import first_steps, help_blocks
from tui.screens.node import NodeScreen
from tui.terminal import missing_terminal, own_screen
from tui.widgets.blocks import notes_of
from tui.widgets.command_line import History

START = ("vcs --all", "ls")
"""What is shown first: the newest result; without one the ops of the graphs; without those the first steps."""


class WorkbenchApp(App[int]):
    """The full-screen front.

    Args:
        workbench: What the commands work on.
    """

    TITLE = "PrecisionTool"
    CSS_PATH = PurePath("workbench.tcss")
    COMMANDS: ClassVar[set[type[Provider]]] = {CommandProvider}  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", "Cancel", show=False, priority=True),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, workbench: Workbench) -> None:
        super().__init__()
        workbench.lends_terminal = False  # the screen is ours: what a shell command writes is caught and shown
        self.history = History()
        self._runner = Runner(workbench)
        self._worker: Worker[None] | None = None
        self._awaited: Task | None = None
        self._starting: list[str] = []

    @property
    def frame(self) -> FrameScreen:
        """The topmost screen of ours, below any dialog."""
        return next(screen for screen in reversed(self.screen_stack) if isinstance(screen, FrameScreen))

    def get_default_screen(self) -> Screen[None]:
        """The screen below all others: what to do next."""
        return NodeScreen("PrecisionTool", first_steps(), self.history)

    def on_mount(self) -> None:
        """Looks for something to show."""
        self._starting = [line for line in START if dispatch.find_command(line.split()[0]) is not None]
        self._try_next_start()

    # --- running commands

    @on(LineSubmitted)
    def run_line(self, event: LineSubmitted) -> None:
        """Runs a line of the command line."""
        words = event.line.split()
        if words[0] in ("quit", "exit"):
            self.exit(0)
        elif words == ["help"]:
            self.action_help()
        elif words[0] == "run" and len(words) > 1:  # the shell gets the rest as it stands, quotes and pipes included
            rest = event.line.strip().partition(" ")[2]
            self._start(partial(dispatch.parse_words, ["run", rest]), event.line)
        else:
            line = " ".join([*words[1:], "-h"]) if words[0] == "help" else event.line
            self._start(partial(dispatch.parse_line, line), event.line)

    @on(CallRequested)
    def run_words(self, event: CallRequested) -> None:
        """Runs a command that a screen asks for."""
        self._start(partial(dispatch.parse_words, event.words), " ".join(event.words))

    def _start(self, parse: Callable[[], Call], line: str) -> None:
        """Parses and starts a command; what is wrong with the line is said in one."""
        if self._starting:  # the user knows what to look at: no need to go on looking for something
            self._starting.clear()
            self.cancel()
            self._awaited = None
        if self._awaited is not None:
            self.frame.status.error(f"{self._awaited.line} is still running; Esc cancels it")
            return
        try:
            self._run(Task(line, parse()))
        except dispatch.HelpRequest as request:
            self.push_screen(NodeScreen(line, (Panel("", tuple(request.text.splitlines())),), self.history))
        except UsageError as error:
            self.frame.status.error(str(error))

    def _run(self, task: Task) -> None:
        self.frame.status.progress(task.line, "started", 0, 0)
        self._awaited = task
        work = partial(self._runner.run, task, self.post_message)
        self._worker = self.run_worker(work, group="command", thread=True)

    @property
    def busy(self) -> bool:
        """True while a command runs whose answer is waited for."""
        return self._awaited is not None

    @on(Progressed)
    def show_progress(self, event: Progressed) -> None:
        """Draws how far the command is."""
        if event.task is self._awaited:
            self.frame.status.progress(event.task.line, event.what, event.done, event.total)

    @on(Finished)
    def show_result(self, event: Finished) -> None:
        """Shows an answer on a screen of its own."""
        if self._ended(event.task):
            self._starting.clear()
            self._show(self._screen_for(event.task, event.result))

    @on(Failed)
    def show_error(self, event: Failed) -> None:
        """Shows a mistake as one line; at the start the next thing to show is tried instead."""
        if not self._ended(event.task):
            return
        if self._starting:
            self._starting.pop(0)
            self._try_next_start()
        else:
            self.frame.status.error(event.error)

    @on(Broke)
    def show_bug(self, event: Broke) -> None:
        """Shows the traceback of a bug; the session goes on."""
        if self._ended(event.task):
            self._starting.clear()
            panel = Panel(f"A bug in {event.task.line}: please report these lines", event.traceback)
            self._show(NodeScreen(event.task.line, (panel,), self.history))

    @on(Stopped)
    def tell_stop(self, event: Stopped) -> None:
        """Says that a command was cancelled."""
        if self._ended(event.task):
            self._starting.clear()
            self.frame.status.say(f"cancelled: {event.task.line}")

    def _ended(self, task: Task) -> bool:
        """Notes the end of a task; False where nobody waits for it any more."""
        if task is not self._awaited:
            return False
        self._awaited = None
        self.frame.status.say("")
        return True

    def _try_next_start(self) -> None:
        if self._starting:
            line = self._starting[0]
            self._run(Task(line, dispatch.parse_line(line)))

    def _show(self, screen: FrameScreen) -> None:
        """Opens a screen. A line that is being typed goes along, and Esc will lead back to the rows below."""
        below = self.frame
        if below.command_line.input.has_focus:
            screen.draft = below.command_line.input.value
            below.command_line.input.value = ""
            below.take_focus()
        self.push_screen(screen)

    def _screen_for(self, task: Task, result: Result) -> FrameScreen:
        title = f"{task.line}  {result.title}"
        if task.call.json:
            lines = json_document(task.call.command.name, result).splitlines()
            return NodeScreen(title, (Panel("", tuple(lines)),), self.history)
        if any(isinstance(block, Table) and block.rows for block in result.blocks):
            return CompareScreen(title, result, task.call, self.history, self._runner)
        return NodeScreen(title, (*result.blocks, *notes_of(result)), self.history)

    # --- keys

    async def action_back(self) -> None:
        """Esc: cancels what runs, else leaves what is open, else the screen."""
        frame = self.frame
        if self.cancel() or frame.leave_inner():
            return
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            frame.status.say("this is the first screen; q quits")

    def action_interrupt(self) -> None:
        """Ctrl-C: cancels what runs."""
        if not self.cancel():
            self.frame.status.say("nothing runs; q quits")

    def cancel(self) -> bool:
        """Cancels what runs. True where something ran."""
        if self._awaited is None or self._worker is None:
            return False
        self._worker.cancel()
        self.frame.status.say(f"cancelling {self._awaited.line} ...")
        return True

    def action_help(self) -> None:
        """F1: keys and commands."""
        self.push_screen(NodeScreen("Help", help_blocks(), self.history))


def run(workbench: Workbench) -> int:
    """Opens the workbench on the terminal.

    Returns:
        0; 2 after one line on stderr where there is no terminal; 1 after a traceback when the workbench itself broke.
    """
    reason = missing_terminal()
    if reason is not None:
        say(reason)
        return int(ExitCode.USAGE)
    app = WorkbenchApp(workbench)
    with own_screen() as others:
        app.run()
    if app.return_code:  # Textual has written the traceback
        others.replay()
    return app.return_code or 0
