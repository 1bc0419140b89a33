"""The ladder of TensorFlow 2 steps: what a step function takes and returns, and all variables there are."""

from __future__ import annotations

import gc
import threading
from typing import Any, Dict, Iterator, List, Tuple

from .guard import Ladder, Line, Named, leaves
from .variables import living_variables

_WITHOUT_VALUE = ("resource", "variant")
_DEPTH = threading.local()


class EagerLadder(Ladder):
    """The ladder of a step function, a Keras model's step or an eager block.

    TensorFlow 2 keeps no list of variables. The garbage collector knows them, once those are gone that nobody holds:
    so it is run first, at the few steps after which variables are read.
    """

    def header(self) -> Line:
        """The state of TensorFlow's eager context."""
        import tensorflow as tf
        from tensorflow.python.eager import context

        options = tf.config.optimizer.get_experimental_options()
        return {
            "seed": context.global_seed(),
            "rewriting": dict(
                {str(k): str(v) for k, v in options.items()}, on=not options.get("disable_meta_optimizer")
            ),
            "jit": "ON" if tf.config.optimizer.get_jit() else "OFF",
            "threads": {
                "intra": tf.config.threading.get_intra_op_parallelism_threads(),
                "inter": tf.config.threading.get_inter_op_parallelism_threads(),
            },
            "devices": [str(device.name) for device in tf.config.list_logical_devices()],
        }

    def variables(self) -> Named:
        """All living variables, by name; those of the same name are numbered in the order in which they were made."""
        found: Dict[str, List[Tuple[int, Any]]] = {}
        for name, born, variable in _living():
            found.setdefault(name, []).append((born, variable))
        for name in sorted(found):
            same = sorted(found[name], key=lambda one: one[0])
            for number, (_, variable) in enumerate(same, start=1):
                yield name if len(same) == 1 else "{}#{}".format(name, number), _value(variable)


class Nested:
    """While the ``with`` block runs, this thread is inside a step of the guard: hooks in it have no ladder."""

    def __enter__(self) -> None:
        _DEPTH.value = getattr(_DEPTH, "value", 0) + 1

    def __exit__(self, *what: object) -> None:
        _DEPTH.value -= 1


def is_nested() -> bool:
    """Whether this thread is inside a step of the guard."""
    return getattr(_DEPTH, "value", 0) > 0


def tensors_in(value: Any, name: str) -> Iterator[Tuple[str, Any]]:  # noqa: ANN401 - arguments or results
    """Yields the tensors and arrays in arguments or results, as arrays, with their places."""
    import tensorflow as tf

    for place, leaf in leaves(value, name):
        try:
            parts = tf.nest.flatten(leaf, expand_composites=True)
        except (TypeError, ValueError):
            continue
        for number, part in enumerate(parts):
            shown = place if len(parts) == 1 else "{}.{}".format(place, number)
            if not isinstance(part, tf.Tensor):
                yield shown, part
            elif part.dtype.name not in _WITHOUT_VALUE and hasattr(part, "numpy"):
                yield shown, part.numpy()


def _living() -> Iterator[Tuple[str, int, Any]]:
    """Yields name, number of birth and variable of all variables that somebody holds."""
    gc.collect()
    for name, variable in living_variables():
        if hasattr(variable._handle, "numpy"):
            number = str(getattr(variable, "_unique_id", "")).rsplit("_", 1)[-1]
            yield name, int(number) if number.isdigit() else 0, variable


def _value(variable: Any) -> Any:  # noqa: ANN401 - an array
    import tensorflow as tf

    try:
        return variable.numpy()
    except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
        return None
