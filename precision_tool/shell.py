"""The ``PrecisionTool > `` shell: the commands of the registry with history and completion.

A line that matches no command is run as a shell command, as it has always been. Ctrl-D or ``quit`` leaves.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import cmd2

from dumpers.errors import PrecisionToolError
from precision_tool import dispatch, render
from precision_tool.commands import COMMANDS
from precision_tool.commands.run import run_line

if TYPE_CHECKING:
    from precision_tool.commands.base import Command
    from precision_tool.result import Result
    from precision_tool.workbench import Workbench

PROMPT = "PrecisionTool > "
DROPPED = ("py", "ipy", "macro", "edit", "run_pyscript", "shortcuts", "alias", "set")
"""Built-ins of the line framework that are no business of this shell; the names then reach the system's shell."""

NOT_FOUND = 127
"""What a POSIX shell answers for a program that does not exist."""

_OPERANDS = frozenset({"operand", "operands", "op"})
_PATHS = frozenset({"left", "right", "graph", "file", "directory", "data", "out", "root", "paths", "thresholds"})


class PrecisionShell(cmd2.Cmd):  # type: ignore[misc]  # cmd2 is imported without its types
    """The line loop.

    Args:
        workbench: What the commands work on.
        history_file: Where typed lines are kept; empty for nowhere.
    """

    DEFAULT_CATEGORY = "Commands"

    def __init__(
        self, workbench: Workbench, *, history_file: str = "", stdin: TextIO | None = None, stdout: TextIO | None = None
    ) -> None:
        super().__init__(
            stdin=stdin,
            stdout=stdout,
            allow_cli_args=False,
            persistent_history_file=history_file,
            terminators=[],
            intro=banner(),
        )
        for name in DROPPED:  # after the start: cmd2 registers sub-commands of some of them there
            setattr(self, f"do_{name}", None)
        self.workbench = workbench
        self.prompt = PROMPT
        self.debug = True  # what reaches cmd2's own handler is a bug, and bugs show a traceback
        self.hidden_commands += ["run_script", "shell"]
        self._own_stdout = self.stdout

    # -------------------------------------------------------------------------------------------------- lines

    def answer(self, produce: Callable[[], Result], *, as_json: str = "") -> None:
        """Prints what a command answers, or its error as one line.

        Args:
            produce: Runs the command.
            as_json: Name of the command if its answer is wanted as JSON.
        """
        self.workbench.lends_terminal = self.stdout is self._own_stdout and not as_json
        try:
            result = produce()
        except (PrecisionToolError, OSError, KeyboardInterrupt) as error:
            message = str(error) or "interrupted"
            if as_json:
                document = render.json_error(as_json, dispatch.exit_code_of(error), message)
                render.print_json(document, out=self.stdout)
            else:
                render.say(f"error: {message}")
            return
        if as_json:
            render.print_json(render.json_document(as_json, result), out=self.stdout)
        else:
            render.show(result, out=self.stdout)

    def do_run(self, statement: cmd2.Statement) -> None:
        """Run a shell command: the rest of the line as it stands."""
        line = str(statement.args).strip()
        if line in ("-h", "--help"):
            self.poutput(self.do_run.__doc__)
        elif line:
            self.answer(lambda: self._run_line(line))
        else:
            render.say("error: run: no shell command given; for example: run ls -l")

    def default(self, statement: cmd2.Statement) -> None:
        """Runs a line that matches no command as a shell command."""
        line = str(statement.command_and_args)
        known = dispatch.unknown_command(statement.command)

        def produce() -> Result:
            result = self._run_line(line)
            if result.exit_code == NOT_FOUND:
                render.say(known)
            return result

        self.answer(produce)

    def _run_line(self, line: str) -> Result:
        # Into a pipe or file goes what the shell command wrote, and nothing of ours.
        return replace(run_line(line, lend_terminal=self.workbench.lends_terminal), title="")

    def emptyline(self) -> bool:
        """Does nothing for an empty line."""
        return False

    def dumped_names(self) -> cmd2.Choices:
        """Completes names of ops, as far as graphs are there."""
        names: list[str] = []
        with contextlib.suppress(PrecisionToolError, OSError):
            names = [op.name for graph in self.workbench.all_graphs() for op in graph.graph]
        return cmd2.Choices.from_values(names)


def _parser(command: Command) -> cmd2.Cmd2ArgumentParser:
    parser = cmd2.Cmd2ArgumentParser(prog=command.name, description=dispatch.describe(command), allow_abbrev=False)
    dispatch.configure(parser, command)
    for action in parser._actions:  # argparse has no public list of its options
        if action.dest in _OPERANDS or (action.dest == "name" and command.name_option):
            action.set_choices_provider(PrecisionShell.dumped_names)
        elif action.dest in _PATHS:
            action.set_completer(cmd2.Cmd.path_complete)
    return parser


def _method(command: Command, name: str) -> Callable[..., None]:
    def run_command(self: PrecisionShell, args: argparse.Namespace) -> None:
        progress = render.ProgressLine()

        def produce() -> Result:
            try:
                return dispatch.Call(command, args).run(self.workbench, progress)
            finally:
                progress.clear()

        self.answer(produce, as_json=command.name if args.json else "")

    run_command.__name__ = f"do_{name}"
    run_command.__qualname__ = f"PrecisionShell.do_{name}"  # cmd2 knows a command's parser by this name
    run_command.__doc__ = dispatch.describe(command)
    method: Callable[..., None] = cmd2.with_argparser(_parser(command))(run_command)
    return method


def _add_commands() -> None:
    for command in COMMANDS:
        for name in (command.name, *command.aliases):
            if name != dispatch.RAW_COMMAND:
                setattr(PrecisionShell, f"do_{name}", _method(command, name))


_add_commands()


def banner() -> str:
    """Returns what the shell says at start."""
    try:
        version = metadata.version("precision-tool")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    return f"PrecisionTool {version}\nhelp lists the commands, COMMAND -h its options, Ctrl-D leaves. Enjoy!"


def history_file() -> str:
    """Returns where typed lines are kept, empty when that place cannot be written."""
    import platformdirs

    folder = Path(platformdirs.user_state_dir("precision-tool"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder / "history")


def run(workbench: Workbench) -> int:
    """Runs the shell until the user leaves.

    Returns:
        0; what a command found stands in its answer, not in the exit code of the shell.
    """
    shell = PrecisionShell(workbench, history_file=history_file())
    return int(shell.cmdloop() or 0)
