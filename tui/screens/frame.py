"""FrameScreen: what every screen has - a title above, status, command line and keys below."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Input, Static

from precision_tool.render import visible
from tui.literal import fit, width_of
from tui.widgets.command_line import CommandInput, CommandLine, History
from tui.widgets.status_line import StatusLine


class TitleBar(Static):
    """Left the title, right where the cursor stands; the title gives way."""

    def __init__(self, title: str) -> None:
        super().__init__(markup=False)
        self._title = visible(title)
        self._place = ""

    def place(self, text: str) -> None:
        """Sets the right part."""
        self._place = text
        self.refresh()

    def render(self) -> Text:
        """Both parts in one line."""
        room = max(0, self.size.width - width_of(self._place) - 1)
        return Text(fit(self._title, room) + " " + self._place, no_wrap=True, overflow="crop")


class FrameScreen(Screen[None]):
    """Base of the screens. A subclass gives the body and says which widget of it gets the keyboard.

    Args:
        title: One line on top.
        history: Command lines entered so far.

    Attributes:
        draft: A line that is being typed when the screen opens.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]  # noqa: RUF012  as Textual declares it

    VERTICAL_BREAKPOINTS = [(0, "-low"), (36, "-high")]  # noqa: RUF012

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", key_display="Esc"),
        # Priority: otherwise the key waits in the queue of the body, with all that is typed ahead behind it.
        Binding("colon", "command", "Command", key_display=":", priority=True),
        Binding("f1", "app.help", "Help", key_display="F1"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, title: str, history: History) -> None:
        super().__init__()
        self.title_bar = TitleBar(title)
        self.status = StatusLine()
        self.command_line = CommandLine(history)
        self.draft = ""

    def compose(self) -> ComposeResult:
        """Title, body, status, command line, keys."""
        yield self.title_bar
        yield from self.body()
        yield self.status
        yield self.command_line
        yield Footer(show_command_palette=False)

    def body(self) -> Iterable[Widget]:
        """The part between title and status."""
        return ()

    def take_focus(self) -> None:
        """Gives the keyboard to the body."""
        self.set_focus(None)

    def leave_inner(self) -> bool:
        """Leaves what is open inside the screen, such as the command line. True where there was something."""
        if self.command_line.input.has_focus:
            self.take_focus()
            return True
        return False

    def on_mount(self) -> None:
        """Starts with the keyboard in the body, or on the line that was being typed when the screen came up."""
        if self.draft:
            self.command_line.begin(self.draft)
        else:
            self.take_focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves ``:`` and ``/`` to a line that is being typed."""
        return action not in ("command", "filter") or not isinstance(self.focused, Input)

    def action_command(self) -> None:
        """Goes to the command line."""
        self.command_line.begin()

    @on(CommandInput.Completions)
    def show_completions(self, event: CommandInput.Completions) -> None:
        """Shows how the word may go on."""
        event.stop()
        self.status.say("  ".join(event.words))
