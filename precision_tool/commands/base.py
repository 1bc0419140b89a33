"""What a command is: a name, a parser, and a run that answers with a Result."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from precision_tool.result import Result
    from precision_tool.workbench import Workbench

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done and of how much; fronts draw it."""


def silent(what: str, done: int, total: int) -> None:
    """A Progress that draws nothing."""


class Command(Protocol):
    """One command of all fronts. Its help text is the class docstring.

    Attributes:
        name: What the user types.
        aliases: Long names (``vector_compare`` for ``vc``).
        name_option: True where ``-n`` may be left out in front of the first argument (``ni pt cp``).
    """

    name: str
    aliases: tuple[str, ...]
    name_option: bool

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options. Must import nothing heavy: every front calls it at start."""

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Does the work. Prints nothing.

        Raises:
            PrecisionToolError: the user's mistake or unusable data; fronts print one line and use its exit code.
        """
