"""A map by threads: in order, with every thread at work, errors raised, and no thread left."""

from __future__ import annotations

import threading

import pytest

from compare.parallel import threaded_map


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_results_are_in_order(threads: int, count: int) -> None:
    assert threaded_map(threads)(lambda number: number**2, range(count)) == [number**2 for number in range(count)]


def test_all_threads_work_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=30)
    assert len(threaded_map(3)(lambda _: together.wait(), range(3))) == 3


def test_an_error_ends_the_work_and_is_raised() -> None:
    done = []

    def work(number: int) -> None:
        done.append(number)
        if number == 5:
            raise ValueError("five")

    before = threading.active_count()
    with pytest.raises(ValueError, match="five"):
        threaded_map(2)(work, range(10_000))
    assert len(done) < 10_000
    assert threading.active_count() == before
