"""What the thread that runs commands tells the app. Messages carry finished values; nobody shares state."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from precision_tool.dispatch import Call
from precision_tool.result import Result


@dataclass(frozen=True)
class Task:
    """One command to run.

    Attributes:
        line: What the user reads about it: the line typed, or one like it.
        call: The parsed command.
    """

    line: str
    call: Call


class TaskMessage(Message):
    """About one task.

    Attributes:
        task: The task.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task


class Progressed(TaskMessage):
    """A task got on: ``done`` of ``total`` steps of ``what``; a total of 0 means not known."""

    def __init__(self, task: Task, what: str, done: int, total: int) -> None:
        super().__init__(task)
        self.what = what
        self.done = done
        self.total = total


class Finished(TaskMessage):
    """A task answered."""

    def __init__(self, task: Task, result: Result) -> None:
        super().__init__(task)
        self.result = result


class Failed(TaskMessage):
    """A task ended with a mistake of the user or unusable data: one line."""

    def __init__(self, task: Task, error: str) -> None:
        super().__init__(task)
        self.error = error


class Broke(TaskMessage):
    """A task ended with an exception that is a bug of ours: its traceback."""

    def __init__(self, task: Task, traceback: tuple[str, ...]) -> None:
        super().__init__(task)
        self.traceback = traceback


class Stopped(TaskMessage):
    """A task was cancelled."""


class LineSubmitted(Message):
    """A command line was entered."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line = line


class CallRequested(Message):
    """A screen wants a command run whose words are known, so nothing needs quoting."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words
