"""The command palette: every command of the registry, found by name or by what it does."""

from __future__ import annotations

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from precision_tool import commands as registry
from precision_tool import dispatch
from precision_tool.commands.base import Command
from tui.literal import literal
from tui.widgets.command_line import CommandLine


class CommandProvider(Provider):
    """Offers the commands; choosing one puts its name on the command line, ready for options."""

    async def discover(self) -> Hits:
        """Lists all commands."""
        for command in registry.COMMANDS:
            yield DiscoveryHit(_shown(command), lambda name=command.name: self._take(name), text=command.name)

    async def search(self, query: str) -> Hits:
        """Lists the commands that the query fits."""
        matcher = self.matcher(query)
        for command in registry.COMMANDS:
            score = max(matcher.match(command.name), matcher.match(dispatch.summary(command)))
            if score > 0:
                yield Hit(score, _shown(command), lambda name=command.name: self._take(name), text=command.name)

    def _take(self, name: str) -> None:
        self.screen.query_one(CommandLine).begin(name + " ")


def _shown(command: Command) -> Text:
    """Returns name and summary as Text, since Textual takes strings here for markup."""
    names = ", ".join((command.name, *command.aliases))
    return literal(f"{names}  {dispatch.summary(command)}")
