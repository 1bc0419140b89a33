"""NodePanel: what ``ni`` says about the op under the cursor."""

from __future__ import annotations

from textual.reactive import reactive

from precision_tool.result import Panel, Result
from tui.widgets.blocks import BlockList, notes_of


class NodePanel(BlockList):
    """Shows one op, or why it cannot be shown. Filled by its screen; reads nothing itself."""

    op: reactive[str | None] = reactive(None)

    async def wait_for(self, op: str) -> None:
        """Says which op is being read."""
        self.op = op
        await self.show([Panel(op, ("reading ...",))])

    async def show_result(self, op: str, result: Result) -> None:
        """Shows what ``ni`` answered, unless the cursor went on meanwhile."""
        if op == self.op:
            await self.show([*result.blocks, *notes_of(result)])

    async def show_error(self, op: str, error: str) -> None:
        """Shows the one line of an error, unless the cursor went on meanwhile."""
        if op == self.op:
            await self.show([Panel(op, (error,))])

    async def clear(self, why: str) -> None:
        """Says why there is no op to show."""
        self.op = None
        await self.show([Panel("", (why,))])
