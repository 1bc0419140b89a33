"""The batch front: one command, its answer on stdout, an exit code. Also the outermost error handling of all fronts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from dumpers.errors import PrecisionToolError
from precision_tool import render
from precision_tool.dispatch import HelpRequest, exit_code_of, find_command
from precision_tool.result import Result

if TYPE_CHECKING:
    from precision_tool.dispatch import Call
    from precision_tool.workbench import Workbench


def run(call: Call, workbench: Workbench, *, as_json: bool = False) -> int:
    """Runs one command, prints its answer and returns its exit code.

    Raises:
        PrecisionToolError: one line for the user.
    """
    as_json = as_json or call.json
    workbench.lends_terminal = not as_json
    progress = render.ProgressLine()
    try:
        result = call.run(workbench, progress)
    finally:
        progress.clear()
    if as_json:
        _print_document(render.json_document(call.command.name, result), int(result.exit_code))
    else:
        render.show(result)
    return int(result.exit_code)


def guarded(words: Sequence[str], action: Callable[[], int]) -> int:
    """Runs a front and turns what goes wrong into one line and an exit code.

    Args:
        words: The command line, to know whether the error is wanted as JSON and for which command.
        action: The front.
    """
    _open_closed_streams()
    _hear_interrupts()
    try:
        return action()
    except HelpRequest as request:
        if "--json" in words:
            result = Result(title="", data={"help": request.text})
            _print_document(render.json_document(_command_of(words), result), 0)
        else:
            render.show_text(request.text)
        return 0
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as error:
        return _stopped(words, error)
    except PrecisionToolError as error:
        return _failed(words, str(error), exit_code_of(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _failed(words, f"{where}{error.strerror or error}", exit_code_of(error))
    except MemoryError as error:
        return _failed(words, "not enough memory for this; close something or dump less", exit_code_of(error))
    except Exception as error:  # a bug of ours; 1 would mean that something was found
        if _heard or _interrupted(error):
            return _failed(words, "interrupted", exit_code_of(KeyboardInterrupt()))
        traceback.print_exc()
        return _failed(words, f"a bug: {type(error).__name__}: {error}; please report it", exit_code_of(error))


_heard: list[int] = []
"""Interrupts since the front started."""

_printed: list[int] = []
"""Exit codes of the documents that were printed since then: one at most."""


def _print_document(text: str, exit_code: int) -> None:
    """Prints the one document. An interrupt meanwhile would cut it short, and have a second one follow."""
    before = signal.getsignal(signal.SIGINT)
    held = threading.current_thread() is threading.main_thread() and before is not None
    if held:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        render.print_json(text)
        _printed.append(exit_code)
    finally:
        if held:
            signal.signal(signal.SIGINT, before)


def _hear_interrupts() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt and be remembered.

    An interrupt while a library in C is loaded comes out as whatever error the library makes of it.
    """
    _heard.clear()
    _printed.clear()
    usual = (signal.default_int_handler, signal.SIG_DFL)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) in usual:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    raise KeyboardInterrupt


def _interrupted(error: BaseException) -> bool:
    """Tells whether an interrupt is behind an error: one that comes during an import is often wrapped."""
    seen: BaseException | None = error
    for _ in range(100):
        if seen is None or isinstance(seen, KeyboardInterrupt):
            break
        seen = seen.__cause__ or seen.__context__
    return isinstance(seen, KeyboardInterrupt)


def _stopped(words: Sequence[str], error: KeyboardInterrupt) -> int:
    """Ends after Ctrl-C; where the answer is out already, whole, as if it had come too late."""
    return _printed[-1] if _printed else _failed(words, str(error) or "interrupted", exit_code_of(error))


def _failed(words: Sequence[str], message: str, exit_code: int) -> int:
    if "--json" in words:
        try:
            _print_document(render.json_error(_command_of(words), exit_code, message), exit_code)
            return exit_code
        except OSError:  # stdout is what cannot be written
            pass
    render.say(f"error: {message}")
    return exit_code


def _open_closed_streams() -> None:
    """Gives a program that was started with stdout or stderr closed one that swallows everything."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  lives as long as the program


def _command_of(words: Sequence[str]) -> str:
    """Returns the name of the first command among the words, empty without one."""
    return next((found.name for word in words if (found := find_command(word))), "")
