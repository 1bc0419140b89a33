"""A registry of small commands: the workbench is tested without files; the real commands have tests of their own."""

from __future__ import annotations

import argparse
import threading
from dataclasses import dataclass, field

import pytest

from dumpers.errors import DataError, UsageError
from dumpers.settings import Settings
from precision_tool.result import ExitCode, Panel, Result, Table
from precision_tool.workbench import Workbench
from tui.app import WorkbenchApp
from tui.screens.compare import CompareScreen
from tui.widgets.blocks import BlockText

COLUMNS = ("Index", "OpType", "Op", "Tensor", "Cosine", "MaxAbsError", "Note")

ODD_NAMES = (
    "grads[/red]",
    "w[bold]",
    "[@click=app.quit]go[/]",
    "open [b + 3",
    "[/",
    "x\x1b[2J",
    "clip\x1b]52;c;QQ==\x07",
    "c1\x9b2J",
    "right\u202eleft",
    "two\nlines",
)


def comparison(names: tuple[str, ...]) -> Table:
    """Rows whose figures differ, in an order that is not that of the figures."""
    rows = tuple(
        (i, "MatMulV2" if i % 3 else "Cast", name, f"{name}:output:0", None if i % 7 == 6 else 1 - (i * 37 % 101) / 1e3,
         float(i * 53 % 97), "" if i % 7 != 6 else "no reference")
        for i, name in enumerate(names)
    )  # fmt: skip
    return Table("comparison", COLUMNS, rows, {1: "bad", 2: "warn", 3: "good"})


@dataclass
class Answer:
    """Answers with a fixed result or error."""

    name: str
    answer: Result | Exception
    aliases: tuple[str, ...] = ()
    name_option: bool = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """-c and a choice, for parsing and completion."""
        parser.add_argument("-c", "--cos_sim", type=float, default=0.98)
        parser.add_argument("-a", "--all", action="store_true")
        parser.add_argument("-k", "--kind", choices=("left", "right"))

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: object) -> Result:
        """Answers."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Node:
    """Shows an op by name and notes what was asked for."""

    asked: list[str] = field(default_factory=list)
    name: str = "ni"
    aliases: tuple[str, ...] = ()
    name_option: bool = True

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The name."""
        parser.add_argument("-n", "--name", required=True)

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: object) -> Result:
        """Answers with a panel that has the name in title and text."""
        self.asked.append(args.name)
        if args.name == "unknown":
            raise UsageError("no op named unknown")
        return Result(f"op {args.name}", [Panel(args.name, (f"Name: {args.name}", "Input: [0] x", "tail"))])


@dataclass
class Slow:
    """Works until it is told to end or cancelled."""

    started: threading.Event = field(default_factory=threading.Event)
    end: threading.Event = field(default_factory=threading.Event)
    interrupted: threading.Event = field(default_factory=threading.Event)
    name: str = "slow"
    aliases: tuple[str, ...] = ("long_work",)
    name_option: bool = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Takes nothing."""

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: object) -> Result:
        """Tells progress a hundred times a second."""
        assert callable(progress)
        done = 0
        try:
            while not self.end.wait(0.01):
                done += 1
                progress("pairs [/x]", min(done, 50), 100)
                self.started.set()
        except KeyboardInterrupt:
            self.interrupted.set()
            raise
        return Result("slow is done", [Panel("", ("all pairs",))])


class Desk:
    """The commands of one test and an app on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workbench: Workbench) -> None:
        self._monkeypatch = monkeypatch
        self._workbench = workbench
        self.rest_seconds = 0.03
        self.node = Node()
        self.slow = Slow()
        self.names = tuple(f"layer_{i}/MatMul" for i in range(40))
        self.summary: Result | Exception = Result("newest result", [comparison(self.names)], exit_code=ExitCode.FOUND)
        self.listing: Result | Exception = DataError("no graph")
        self.extra: list[Answer] = []

    def start_slowly(self) -> None:
        """Makes the first command of the start the slow one."""
        self._monkeypatch.setattr("tui.app.START", ("slow", "ls"))

    def app(self) -> WorkbenchApp:
        """Returns the app, not running yet."""
        commands = (Answer("vcs", self.summary), Answer("ls", self.listing), self.node, self.slow, *self.extra)
        self._monkeypatch.setattr("tui.screens.compare.REST_SECONDS", self.rest_seconds)
        self._monkeypatch.setattr("precision_tool.commands.COMMANDS", commands)
        self._monkeypatch.setattr("precision_tool.dispatch.COMMANDS", commands)
        return WorkbenchApp(self._workbench)

    # --- driving it

    @staticmethod
    async def settled(pilot, condition, seconds=10.0):
        """Waits until a condition holds; fails with what is on screen when it never does."""
        for _ in range(int(seconds / 0.02)):
            if condition():
                await pilot.pause()
                return
            await pilot.pause(0.02)
        raise AssertionError(Desk.screen_text(pilot.app))

    @staticmethod
    def screen_text(app):
        """Returns what the terminal shows."""
        return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

    @staticmethod
    def shows(app, text):
        """Returns a condition: the text is on screen."""
        return lambda: text in Desk.screen_text(app)

    @staticmethod
    def block_text(widget):
        """Returns the text of all blocks in a widget, scrolled out of sight or not."""
        return "\n".join(block.render().plain for block in widget.query(BlockText))

    @staticmethod
    async def started(pilot):
        """Waits for the newest result and returns its screen."""
        await Desk.settled(pilot, lambda: isinstance(pilot.app.screen, CompareScreen))
        return pilot.app.screen

    @staticmethod
    async def type_line(pilot, line):
        """Types a command line and enters it."""
        await pilot.press("colon")
        pilot.app.frame.command_line.input.value = line
        await pilot.press("enter")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Desk:
    """An app on small commands."""
    return Desk(monkeypatch, Workbench(Settings(root_dir=tmp_path)))


@pytest.fixture
def odd_names() -> tuple[str, ...]:
    """The names of field case FC24."""
    return ODD_NAMES


@pytest.fixture
def make_table():
    """Makes a comparison table of some names."""
    return comparison


@pytest.fixture
def make_answer():
    """Makes a command that answers with a result or an error."""
    return Answer
