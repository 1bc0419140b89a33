"""From words to a Result: parsing and running a command, the same way for shell, batch CLI and TUI."""

from __future__ import annotations

import argparse
import inspect
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from dumpers.errors import PrecisionToolError, UsageError
from precision_tool.commands import COMMANDS
from precision_tool.commands.base import Command, Progress, silent
from precision_tool.result import ExitCode, Result

if TYPE_CHECKING:
    from precision_tool.workbench import Workbench


RAW_COMMAND = "run"
"""The command that gets the rest of a typed line as it stands, quotes and all."""


class CommandParser(argparse.ArgumentParser):
    """An argparse parser that raises instead of leaving the program."""

    def error(self, message: str) -> NoReturn:
        """Turns what argparse found wrong into an error of ours.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self.prog}: {message} (options: {self.prog} -h)")


class HelpRequest(Exception):  # noqa: N818  not an error: the user asked for help
    """The words ask for a command's help."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Help(argparse.Action):
    """The ``-h`` option: hands the help text to the front instead of printing it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        """Hands it over by raising HelpRequest."""
        raise HelpRequest(parser.format_help())


@dataclass(frozen=True)
class Call:
    """One command with its arguments."""

    command: Command
    args: argparse.Namespace

    @property
    def json(self) -> bool:
        """Whether the answer is wanted as one JSON document."""
        return bool(self.args.json)

    def run(self, workbench: Workbench, progress: Progress = silent) -> Result:
        """Runs the command. Graph files that were damaged and passed over stand in the result, with exit code 3.

        Raises:
            PrecisionToolError: one line for the user.
        """
        if self.args.root is not None:
            from precision_tool.workbench import Workbench, settings_for

            workbench = Workbench(settings_for(self.args.root))
        workbench.take_damaged()  # of what was looked up between commands (completion)
        return _with_damage(self.command.run(self.args, workbench, progress), workbench.take_damaged())


def _with_damage(result: Result, damaged: Sequence[str]) -> Result:
    new = [line for line in damaged if line not in result.problems]
    if not new:
        return result
    return replace(result, notes=[*result.notes, *new], problems=[*result.problems, *new], exit_code=int(ExitCode.DATA))


def names() -> list[str]:
    """All command names, long ones included."""
    return [name for command in COMMANDS for name in (command.name, *command.aliases)]


def find_command(name: str) -> Command | None:
    """Returns the command of a name or alias."""
    return next((command for command in COMMANDS if name == command.name or name in command.aliases), None)


def describe(command: Command) -> str:
    """Returns the command's help text, its class docstring."""
    return inspect.cleandoc(type(command).__doc__ or "")


def summary(command: Command) -> str:
    """Returns the first line of the help text."""
    return describe(command).split("\n", 1)[0]


def configure(parser: argparse.ArgumentParser, command: Command) -> None:
    """Gives a parser the options of a command and those all commands have."""
    command.configure(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--root", metavar="DIR", help="folder that holds precision_data, for this command only")


def parser_for(command: Command) -> CommandParser:
    """Returns the parser of a command."""
    parser = CommandParser(
        prog=command.name,
        description=describe(command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action=Help, nargs=0, help="show this help")
    configure(parser, command)
    return parser


def parse_words(words: Sequence[str]) -> Call:
    """Returns the call that the words of a line mean.

    Raises:
        UsageError: unknown command (with the nearest one) or wrong options.
        HelpRequest: the words ask for help.
    """
    command = find_command(words[0])
    if command is None:
        raise UsageError(unknown_command(words[0]))
    return Call(command, parser_for(command).parse_args(list(words[1:])))


def parse_line(line: str) -> Call:
    """Returns the call that a typed line means; quotes work as in a POSIX shell.

    Raises:
        UsageError: nothing typed, an unclosed quote, unknown command, wrong options.
        HelpRequest: the line asks for help.
    """
    head, _, rest = line.strip().partition(" ")
    if head == RAW_COMMAND and not rest.lstrip().startswith("-"):
        return parse_words([head, *([rest.strip()] if rest.strip() else [])])
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line}: {error}; close the quote") from error
    if not words:
        raise UsageError("nothing typed; help lists the commands")
    return parse_words(words)


def unknown_command(name: str) -> str:
    """Returns the message for a command that does not exist, with the nearest one."""
    import difflib

    close = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
    hint = f"did you mean {close[0]}?" if close else "-h lists the commands"
    return f"unknown command {name}; {hint}"


def exit_code_of(error: BaseException) -> int:
    """Returns the exit code of an error that a front shows as one line."""
    if isinstance(error, KeyboardInterrupt):
        return int(ExitCode.INTERRUPTED)
    return error.exit_code if isinstance(error, PrecisionToolError) else int(ExitCode.DATA)
