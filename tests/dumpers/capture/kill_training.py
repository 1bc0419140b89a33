"""Trains and records in processes that end by SIGKILL, at moments spread over the life of a few records.

``python kill_training.py FOLDER KILLS``: folder ``<way>_<keep>`` gets what all processes left that recorded so, one
after the other as after a restart, the last one not killed; ``whole_<way>_<keep>`` the same steps of one that was
alone. TensorFlow is loaded once: up to the first session or eager op it can be forked.

``start(folder, keep)`` begins to record in a folder and returns what does one step, and what ends it well.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from dumpers.capture.steps import parse_steps

MOST_STEPS = 200
"""Of a process that its killer comes late to."""

tf1 = tf.compat.v1
random = np.random.RandomState(3)
BATCH = random.standard_normal((32, 64)).astype(np.float32)
FIRST = random.standard_normal((64, 128)).astype(np.float32) / 8
SECOND = random.standard_normal((128, 1)).astype(np.float32) / 8


def session_start() -> Callable[[Path, str], Any]:
    from dumpers.capture.session import record_session

    tf1.disable_eager_execution()
    x = tf1.placeholder(tf.float32, [32, 64], name="x")
    first, second = tf1.get_variable("w0", initializer=FIRST), tf1.get_variable("w1", initializer=SECOND)
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.matmul(x, first)), second) - 1), name="loss")
    train = tf1.train.AdamOptimizer(0.01).minimize(loss)
    init = tf1.global_variables_initializer()

    def start(folder: Path, keep: str) -> Any:
        config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = record_session(tf1.Session(config=config), folder, parse_steps(""), keep=keep)
        session.run(init)
        return lambda: session.run([loss, train], {x: BATCH}), session.close

    return start


def function_start() -> Callable[[Path, str], Any]:
    from dumpers.capture.function_steps import StepLog
    from dumpers.capture.functions import record_function

    def start(folder: Path, keep: str) -> Any:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        first, second = tf.Variable(FIRST, name="w0"), tf.Variable(SECOND, name="w1")

        @tf.function
        def step(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.matmul(batch, first)), second) - 1))
            for variable, gradient in zip((first, second), tape.gradient(loss, (first, second))):  # noqa: B905
                variable.assign_sub(0.1 * gradient)
            return loss

        log = StepLog(folder, parse_steps(""), keep=keep)
        recorded, batch = record_function(step, log), tf.constant(BATCH)
        return lambda: recorded(batch), log.flush

    return start


def train(start: Callable[[Path, str], Any], folder: Path, keep: str, steps: int) -> None:
    step, end = start(folder, keep)
    for _ in range(steps):
        step()
    end()


def train_until_killed(start: Callable[[Path, str], Any], folder: Path, keep: str, pipe: int) -> None:
    step, end = start(folder, keep)
    step()
    os.write(pipe, b"started")
    for _ in range(MOST_STEPS - 1):
        step()
    end()
    time.sleep(600)


def measure(start: Callable[[Path, str], Any], folder: Path, pipe: int) -> None:
    step, end = start(folder, "pack")
    step()
    began = time.time()
    for _ in range(5):
        step()
    end()
    os.write(pipe, repr((time.time() - began) / 5).encode())


def forked(action: Any, *given: Any) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action(*given)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def ended_well(pid: int) -> None:
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status


def last_step(folder: Path) -> int:
    steps: list[int] = [json.loads(path.read_text())["step"] for path in folder.glob("run_*/record.json")]
    return max([0, *steps])


def main(folder: Path, kills: int, start: Callable[[Path, str], Any], way: str, keeps: list[str]) -> None:
    reading, writing = os.pipe()
    ended_well(forked(measure, start, folder / "measured", writing))
    record_s = float(os.read(reading, 100))
    for number in range(kills):
        keep = keeps[number % len(keeps)]
        pid = forked(train_until_killed, start, folder / f"{way}_{keep}", keep, writing)
        assert os.read(reading, 100) == b"started"
        time.sleep(4 * record_s * number / kills)
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        assert status == signal.SIGKILL, status
    for keep in keeps:
        left, whole = folder / f"{way}_{keep}", folder / f"whole_{way}_{keep}"
        ended_well(forked(train, start, left, keep, 2))
        ended_well(forked(train, start, whole, keep, last_step(left) + 1))


if __name__ == "__main__":
    if int(tf.__version__.split(".")[0]) > 1:
        main(Path(sys.argv[1]), 3, function_start(), "function", ["pack"])
    main(Path(sys.argv[1]), int(sys.argv[2]), session_start(), "session", ["pack", "npy", "stats"])
