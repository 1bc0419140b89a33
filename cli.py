"""Entry point: ``python cli.py COMMAND ...``; without a command the shell, ``tui`` the full-screen workbench."""

from __future__ import annotations

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules load ends the program without a traceback

import argparse
import gc
import sys
from collections.abc import Sequence

from dumpers.errors import UsageError
from precision_tool import batch
from precision_tool.commands import COMMANDS
from precision_tool.dispatch import CommandParser, Help, parse_words, summary
from precision_tool.workbench import Workbench, settings_for


def build_parser() -> CommandParser:
    """Returns the parser of what stands before a command; each command parses its own words."""
    rows = [f"  {', '.join((command.name, *command.aliases)):<20}{summary(command)}" for command in COMMANDS]
    rows.append(f"  {'tui':<20}The same in a full-screen workbench.")
    parser = CommandParser(
        prog="precision-tool",
        description="Finds what makes a model train differently on two devices. No command opens the shell.",
        epilog="commands (COMMAND -h lists the options of one):\n" + "\n".join(rows),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action=Help, nargs=0, help="show this help")
    parser.add_argument("--root", metavar="DIR", help="folder that holds precision_data (default: ROOT_DIR, or here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("command", nargs="?", metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return batch.guarded(words, lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    args = build_parser().parse_args(words)
    workbench = Workbench(settings_for(args.root))
    if args.json and args.command in (None, "tui"):
        raise UsageError("--json needs a command that answers, for example: python cli.py --json ls")
    if args.command is None:
        from precision_tool import shell

        return shell.run(workbench)
    if args.command == "tui":
        from tui import app

        return app.run(workbench)
    return batch.run(parse_words([args.command, *args.arguments]), workbench, as_json=args.json)


if __name__ == "__main__":
    gc.set_threshold(100_000, 20, 20)  # the many objects of a dump are no garbage; looking for some took a tenth
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer is out; an interrupt of the last clean-up is no news
    sys.exit(code)
