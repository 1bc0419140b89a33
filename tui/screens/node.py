"""NodeScreen: text over the whole screen - the ``ni`` panels of one op, and any other answer without a long table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.widget import Widget

from precision_tool.result import Block
from tui.screens.frame import FrameScreen
from tui.widgets.blocks import BlockList
from tui.widgets.command_line import History


class NodeScreen(FrameScreen):
    """Shows panels and short tables, scrolled together.

    Args:
        title: One line on top.
        blocks: What to show.
        history: Command lines entered so far.
    """

    def __init__(self, title: str, blocks: Sequence[Block], history: History) -> None:
        super().__init__(title, history)
        self.blocks = BlockList(blocks)

    def body(self) -> Iterable[Widget]:
        """The blocks."""
        yield self.blocks

    def take_focus(self) -> None:
        """Arrow keys scroll the text."""
        self.set_focus(self.blocks)
