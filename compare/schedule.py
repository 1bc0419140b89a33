"""In which order the units of a sweep are worked on, and how many at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compare.crew import Crew, Rows, Work
    from compare.units import Unit

HEARTBEAT_SECONDS = 0.25
"""How long nothing is heard from a sweep at most; a front that was cancelled notices it then."""


def run_units(
    units: Iterable[Unit],
    crew: Crew,
    work: Work,
    *,
    memory_bytes: int,
    finished: Callable[[Unit, Rows], None],
    beat: Callable[[], None],
) -> None:
    """Has every unit done.

    The largest come first, so that none of them is left for the end, when the others have nothing to do. Only the
    calling thread keeps books, so nothing needs a lock.

    Args:
        units: The work.
        crew: Who does it; started and stopped here.
        work: Compares a unit, for those that the calling thread does itself.
        memory_bytes: Bound on the arrays in memory; a unit that is larger is done while no other is.
        finished: Gets each unit and its rows, in the calling thread, in any order.
        beat: Called in the calling thread a few times a second at least (unless the calling thread itself compares).
    """
    own: deque[Unit] = deque()
    given: deque[Unit] = deque()
    for unit in sorted(units, key=lambda unit: (-unit.size, unit.numbers)):
        (own if crew.inline and unit.small else given).append(unit)
    alone = crew.room <= 2 and crew.inline  # one thread was asked for: the caller waits while it works
    pending = in_memory = 0
    with crew:
        while own or given or pending:
            while given and pending < crew.room and (not pending or in_memory + given[0].memory <= memory_bytes):
                unit = given.popleft()
                crew.submit(unit)
                pending, in_memory = pending + 1, in_memory + unit.memory
            if own and (not pending or (not alone and in_memory + own[0].memory <= memory_bytes)):
                unit = own.popleft()
                finished(unit, work(unit))
                done = crew.collect(0) if pending else []
            else:
                done = crew.collect(HEARTBEAT_SECONDS)
            for unit, rows in done:
                pending, in_memory = pending - 1, in_memory - unit.memory
                finished(unit, rows)
            beat()
