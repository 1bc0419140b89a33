"""The queue is bounded in bytes, keeps its order and loses nothing."""

from __future__ import annotations

import threading
import time

import pytest

from dumpers.capture.worker import BoundedWorker


def test_order_and_bound():
    worker, done = BoundedWorker(queue_bytes=1000), []

    def slow(number):
        time.sleep(0.002)
        done.append(number)

    for number in range(50):
        worker.admit(300)
        worker.submit(300, slow, number)
    worker.flush()
    assert done == list(range(50))
    assert worker.most_bytes == 900


def test_each_lane_keeps_its_order_and_waits_for_no_other():
    worker, done, gate = BoundedWorker(), ([], []), threading.Event()
    worker.submit(0, gate.wait, lane=0)
    for number in range(50):
        for lane in (0, 1):
            worker.submit(0, done[lane].append, number, lane=lane)
    deadline = time.time() + 5
    while len(done[1]) < 50 and time.time() < deadline:
        time.sleep(0.001)
    assert done == ([], list(range(50)))
    gate.set()
    worker.flush()
    assert done[0] == list(range(50))


def test_one_amount_above_the_bound_goes_alone():
    worker, done = BoundedWorker(queue_bytes=10), []
    for number in range(3):
        worker.admit(1000)
        worker.submit(1000, done.append, number)
    worker.flush()
    assert done == [0, 1, 2]
    assert worker.most_bytes == 1000


def test_the_caller_waits_while_the_queue_is_full():
    worker, gate = BoundedWorker(queue_bytes=10), threading.Event()
    worker.submit(10, gate.wait)
    passed = threading.Event()

    def submit():
        worker.admit(5)
        passed.set()

    thread = threading.Thread(target=submit)
    thread.start()
    assert not passed.wait(0.05)
    gate.set()
    assert passed.wait(5)
    thread.join()
    worker.flush()


def test_an_error_of_an_action_comes_out_of_flush_and_the_rest_is_done():
    worker, done = BoundedWorker(queue_bytes=10), []

    def fail():
        raise ValueError("broken")

    worker.submit(8, fail)
    worker.submit(8, done.append, 1)
    with pytest.raises(ValueError, match="broken"):
        worker.flush()
    worker.flush()
    assert done == [1]
