"""Like ``map``, by several threads that die with the program: the chunks of one large tensor."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


def threaded_map(threads: int) -> Callable[[Callable[[Item], Found], Iterable[Item]], list[Found]]:
    """Returns a ``map`` by so many threads, the calling one among them; results are in order.

    Not an executor of the standard library, which keeps the program alive until all that was handed to it is done: an
    interrupt during a tensor of 60 GB would not be heard.

    Args:
        threads: At least 1.
    """

    def mapped(work: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
        wanted = list(items)
        found: dict[int, Found] = {}
        errors: list[BaseException] = []
        numbers = itertools.count()  # taking the next number is one step of the interpreter

        def serve() -> None:
            while not errors and (number := next(numbers)) < len(wanted):
                try:
                    found[number] = work(wanted[number])
                except BaseException as error:
                    errors.append(error)

        others = [threading.Thread(target=serve, daemon=True) for _ in range(min(threads, len(wanted)) - 1)]
        for thread in others:
            thread.start()
        serve()
        for thread in others:
            thread.join()
        if errors:
            raise errors[0]
        return [found[number] for number in range(len(wanted))]

    return mapped
