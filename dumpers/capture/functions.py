"""Hooks for TensorFlow 2: a step function, a block of eager code, a Keras model."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Dict, FrozenSet, List, Tuple, TypeVar

from ..errors import UsageError
from .function_steps import OneStep, StepLog

Fn = TypeVar("Fn", bound=Callable[..., Any])
Model = Any

KINDS: Dict[str, Tuple[str, str]] = {
    "train": ("make_train_function", "train_function"),
    "evaluate": ("make_test_function", "test_function"),
    "predict": ("make_predict_function", "predict_function"),
}
"""For each kind of Keras step the method that makes its function, and where the model keeps that."""

_KERAS_FUNCTIONS = frozenset(
    {
        *("train_function", "test_function", "predict_function", "one_step_on_data", "multi_step_on_iterator"),
        *("one_step_on_iterator", "one_step_on_data_distributed", "multi_step_on_data"),
    }
)
_PLAIN = "_precision_tool_plain"


def record_function(function: Fn, log: StepLog) -> Fn:
    """Returns a function that does the same as another one; each call of it is a step.

    Args:
        function: A ``tf.function`` or a Python function that calls some; what it executes eagerly is recorded too.
        log: Counts the steps and records them.
    """
    import tensorflow as tf

    plain: Any = function
    python = getattr(plain, "python_function", plain)
    main = frozenset({getattr(python, "__name__", "function"), getattr(python, "__qualname__", "function")})

    @functools.wraps(python)
    def step(*args: object, **named: object) -> object:
        if not tf.executing_eagerly():
            return plain(*args, **named)
        return log.around(lambda: plain(*args, **named), main, given=[args, named])

    wrapped: Any = step
    for name in ("get_concrete_function", "python_function", "input_signature", "function_spec"):
        if hasattr(plain, name):
            setattr(wrapped, name, getattr(plain, name))
    setattr(wrapped, _PLAIN, plain)
    return wrapped  # type: ignore[no-any-return]


class EagerBlock:
    """``with block:`` each time; the n-th time is step n, from 0."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._open = threading.local()

    def __enter__(self) -> EagerBlock:
        step = self._log.begin(frozenset())
        stack: List[OneStep] = getattr(self._open, "stack", [])
        self._open.stack = [*stack, step]
        step.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:  # noqa: ANN401 - as for any context manager
        step = self._open.stack.pop()
        step.__exit__(kind, error, trace)
        if error is None:
            self._log.climb(step, ())

    def flush(self) -> None:
        """Waits until everything recorded so far is on disk."""
        self._log.flush()


def record_model(model: Model, kinds: FrozenSet[str], logs: Dict[str, StepLog]) -> None:
    """Records the steps of a Keras model, of fit, train_on_batch and their like.

    Args:
        model: A Keras 2 or Keras 3 model; one that is recorded already is left as it is.
        kinds: Of :data:`KINDS`.
        logs: For each kind what counts and records its steps.

    Raises:
        UsageError: it is no Keras model.
    """
    for kind in sorted(kinds):
        maker, kept = KINDS[kind]
        if not callable(getattr(model, maker, None)):
            raise UsageError("keras_dump: {} is no Keras model: it has no {}".format(type(model).__name__, maker))
        _hook(model, maker, kept, logs[kind])


def check_kinds(on: str) -> FrozenSet[str]:
    """Parses ``train|evaluate|predict``.

    Raises:
        UsageError: another word is in it.
    """
    words = [word.strip() for word in on.split("|")]
    if not all(word in KINDS for word in words):
        raise UsageError("keras_dump: on={!r}: use {}, or several joined by |".format(on, ", ".join(KINDS)))
    return frozenset(words)


def keras_callback(install: Callable[[Model], None], flush: Callable[[], None]) -> Any:  # noqa: ANN401
    """Returns a Keras callback that installs the recording on the model it is given to."""
    import tensorflow as tf

    class PrecisionToolDump(tf.keras.callbacks.Callback):  # type: ignore[misc]
        """Records the steps of the model that it is given to; at the end everything is on disk."""

        def set_model(self, model: Model) -> None:
            super().set_model(model)
            install(model)

        def on_train_end(self, logs: object = None) -> None:
            flush()

        def on_test_end(self, logs: object = None) -> None:
            flush()

        def on_predict_end(self, logs: object = None) -> None:
            flush()

        def flush(self) -> None:
            """Waits until everything recorded so far is on disk."""
            flush()

    return PrecisionToolDump()


def _hook(model: Model, maker: str, kept: str, log: StepLog) -> None:
    make = getattr(model, maker)
    if getattr(make, _PLAIN, None) is not None:
        return

    @functools.wraps(make)
    def make_recorded(*args: object, **named: object) -> object:
        made = make(*args, **named)
        _wrap(model, kept, log)
        return made if made is None else getattr(model, kept)

    setattr(make_recorded, _PLAIN, make)
    setattr(model, maker, make_recorded)
    _wrap(model, kept, log)


def _wrap(model: Model, kept: str, log: StepLog) -> None:
    """Puts the recording around the function that the model keeps, once it has one."""
    plain = getattr(model, kept, None)
    if plain is None or getattr(plain, _PLAIN, None) is not None:
        return
    strategy = getattr(model, "distribute_strategy", None)
    replicas = int(getattr(strategy, "num_replicas_in_sync", 1))
    if replicas > 1:
        log.say_once("replicas", "keras_dump: a strategy with {} replicas is not recorded".format(replicas))
        return

    @functools.wraps(getattr(plain, "python_function", plain))
    def step(*args: object, **named: object) -> object:
        count = _steps_per_execution(model, log)
        return log.around(lambda: plain(*args, **named), _KERAS_FUNCTIONS, count, given=[args, named])

    setattr(step, _PLAIN, plain)
    setattr(model, kept, step)


def _steps_per_execution(model: Model, log: StepLog) -> int:
    own = getattr(model, "_steps_per_execution", None)
    value = own if own is not None else getattr(model, "steps_per_execution", 1)
    count = int(value.numpy()) if hasattr(value, "numpy") else int(value or 1)
    if count > 1:
        log.say_once(
            "several",
            "steps_per_execution={}: {} steps run in one loop, whose inner tensors are not recorded; a record holds "
            "what goes in and comes out".format(count, count),
        )
    return count
