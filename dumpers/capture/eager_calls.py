"""Sees what a thread executes eagerly, functions and single ops, through two doors that TensorFlow itself uses.

``tensorflow.python.eager.execute`` runs every function and the ops that miss the fast path; the callbacks of the eager
context (Debugger V2 uses them) tell of the ops on the fast path. Both are private, but the same from 2.6 to 2.21.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Callable, List, Optional, Sequence, Type

_INSTALL = threading.Lock()

Run = Callable[[str, int], Any]
"""Runs a function of the given name with the inputs of the call; takes the number of outputs."""


class Listener:
    """What is told about a thread's execution; this one changes nothing."""

    sees_ops = False

    def call(self, name: str, inputs: Sequence[Any], outputs: int, run: Run) -> Any:  # noqa: ANN401 - tensors
        """Runs a function in place of TensorFlow and returns its outputs."""
        return run(name, outputs)

    def op(self, op_type: str, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Hears of an op that ran."""


class Listening:
    """While the ``with`` block runs, what its thread executes is told to a listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._door = _door()

    def __enter__(self) -> None:
        from tensorflow.python.eager import context

        self._door.local.listener = self._listener
        if self._listener.sees_ops:
            context.context().add_op_callback(self._heard)

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        from tensorflow.python.eager import context

        self._door.local.listener = None
        if self._listener.sees_ops:
            context.context().remove_op_callback(self._heard)

    def _heard(
        self,
        op_type: Any,  # noqa: ANN401 - text or bytes
        inputs: Sequence[Any],
        attrs: Sequence[Any],
        outputs: Sequence[Any],
        op_name: Optional[str] = None,
        graph: Any = None,  # noqa: ANN401 - a tf.Graph
    ) -> None:
        """Has the signature that TensorFlow wants; None leaves the outputs as they are."""
        if graph is None and outputs is not self._door.local.last:
            self._listener.op(_text(op_type), inputs, attrs, outputs)


def is_listening() -> bool:
    """Whether this thread is inside a ``with Listening`` block."""
    return getattr(_door().local, "listener", None) is not None


class _Door(threading.local):
    """What one thread sees."""

    listener: Optional[Listener] = None
    last: Any = None
    """Outputs that were told already; with other callbacks in place TensorFlow tells of them once more."""


class _Execute:
    """Stands in for ``execute.quick_execute`` and ``execute.execute_with_cancellation``."""

    def __init__(self, plain: Callable[..., Any], local: _Door) -> None:
        self._plain = plain
        self.local = local

    def __call__(
        self,
        op_name: Any,  # noqa: ANN401 - text or bytes
        num_outputs: int,
        inputs: Any,  # noqa: ANN401
        attrs: Any,  # noqa: ANN401
        ctx: Any,  # noqa: ANN401
        *more: object,
        **named: object,
    ) -> Any:  # noqa: ANN401 - tensors
        listener = self.local.listener
        if listener is None:
            return self._plain(op_name, num_outputs, inputs, attrs, ctx, *more, **named)
        name = _text(op_name)
        if ctx.has_function(name):

            def run(function: str, outputs: int) -> Any:  # noqa: ANN401 - tensors
                return self._plain(function, outputs, inputs, attrs, ctx, *more, **named)

            result = listener.call(name, inputs, num_outputs, run)
        else:
            result = self._plain(op_name, num_outputs, inputs, attrs, ctx, *more, **named)
            if listener.sees_ops:
                listener.op(name, inputs, attrs, result)
        self.local.last = result
        return result


def _door() -> _Execute:
    """Returns what stands in for TensorFlow's execution, put there once in a process.

    It stays: without a listener it costs less than a microsecond for each call of a function.
    """
    from tensorflow.python.eager import execute

    with _INSTALL:
        if not isinstance(execute.quick_execute, _Execute):
            local = _Door()
            plain: List[Callable[..., Any]] = [execute.quick_execute]
            stand_in = _Execute(plain[0], local)
            if execute.execute is plain[0]:
                execute.execute = stand_in
            execute.quick_execute = stand_in
            execute.execute_with_cancellation = _Execute(execute.execute_with_cancellation, local)
        door: _Execute = execute.quick_execute
        return door


def _text(name: "str | bytes") -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else name
