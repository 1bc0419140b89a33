"""CommandLine: takes the same lines as the shell, with history and completion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from precision_tool import dispatch
from precision_tool.render import visible
from tui.literal import literal
from tui.messages import LineSubmitted


class History:
    """Lines entered so far, shared by all screens of a session; nothing twice in a row."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._back = 0
        self._draft = ""

    def add(self, line: str) -> None:
        """Notes a line and stands behind the newest again."""
        if line and (not self._lines or self._lines[-1] != line):
            self._lines.append(line)
        self.rest()

    def rest(self) -> None:
        """Stands behind the newest line again."""
        self._back = 0

    def older(self, current: str) -> str:
        """Returns the line before the one shown; what was being typed is kept."""
        if self._back == 0:
            self._draft = current
        self._back = min(self._back + 1, len(self._lines))
        return self._lines[-self._back] if self._back else current

    def newer(self, current: str) -> str:
        """Returns the line after the one shown, at last what was being typed."""
        if self._back == 0:
            return current
        self._back -= 1
        return self._lines[-self._back] if self._back else self._draft


def completions(text: str, names: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns what the last word of a line may become: a command, one of its options, a choice, or a known name.

    Args:
        text: The line up to the cursor.
        names: Names that arguments may be taken from (the ops on screen).
    """
    head, blank, word = text.rpartition(" ")
    if not blank:
        return _starting(word, dispatch.names())
    words = head.split()
    command = dispatch.find_command(words[0]) if words else None
    if command is None:
        return ()
    actions = dispatch.parser_for(command)._actions  # argparse has no public list of its options
    if word.startswith("-"):
        return _starting(word, [option for action in actions for option in action.option_strings])
    for action in actions:
        if action.choices and words[-1] in action.option_strings:
            return _starting(word, map(str, action.choices))
    positional = [str(choice) for a in actions if a.choices and not a.option_strings for choice in a.choices]
    return _starting(word, [*positional, *names])


def _common_start(words: Sequence[str]) -> str:
    first, last = min(words), max(words)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


def _starting(word: str, candidates: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in candidates if name.startswith(word) and " " not in name))


class CommandInput(Input):
    """The typing part of the command line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "older", "Older line", show=False),
        Binding("down", "newer", "Newer line", show=False),
        Binding("tab", "complete", "Complete", show=False),
    ]

    class Completions(Message):
        """Several ways to go on; the screen shows them."""

        def __init__(self, words: tuple[str, ...]) -> None:
            super().__init__()
            self.words = words

    def __init__(self, history: History) -> None:
        super().__init__(placeholder="command, as in the shell: Tab completes, Ctrl-P lists all", select_on_focus=False)
        self.cursor_blink = False  # a line that redraws itself twice a second is noise over a slow connection
        self.history = history
        self.known_names: Sequence[str] = ()

    def action_older(self) -> None:
        """Shows the line before."""
        self._show(self.history.older(self.value))

    def action_newer(self) -> None:
        """Shows the line after."""
        self._show(self.history.newer(self.value))

    def action_complete(self) -> None:
        """Completes the word before the cursor as far as it is certain; shows the choices where it is not."""
        before, after = self.value[: self.cursor_position], self.value[self.cursor_position :]
        found = completions(before, self.known_names)
        if not found:
            return
        start = before.rpartition(" ")[0]
        common = _common_start(found)
        completed = (start + " " if " " in before else "") + common + (" " if len(found) == 1 else "")
        self.value = completed + after
        self.cursor_position = len(completed)
        if len(found) > 1:
            self.post_message(self.Completions(found))

    def insert_text_at_cursor(self, text: str) -> None:
        """Inserts text; pasted control characters become visible escapes, or the terminal would obey them."""
        super().insert_text_at_cursor(visible(text))

    def replace(self, text: str, start: int, end: int) -> None:
        """Replaces a part, such as the selection by pasted text."""
        super().replace(visible(text), start, end)

    def _show(self, line: str) -> None:
        self.value = line
        self.cursor_position = len(line)


class CommandLine(Horizontal):
    """A prompt and the line typed behind it.

    Args:
        history: Lines entered before.
    """

    def __init__(self, history: History) -> None:
        super().__init__()
        self.input = CommandInput(history)

    def compose(self) -> ComposeResult:
        """The prompt and the line."""
        yield Static(literal("> "), id="prompt")
        yield self.input

    def begin(self, text: str = "") -> None:
        """Takes the keyboard, with some text already there."""
        self.input.history.rest()
        if text:
            self.input.value = text
            self.input.cursor_position = len(text)
        self.screen.set_focus(self.input)  # at once: focus() waits behind keys typed ahead, which would get lost

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Sends the line off and notes it."""
        event.stop()
        line = event.value.strip()
        if line:
            self.input.history.add(line)
            self.input.value = ""
            self.post_message(LineSubmitted(line))
