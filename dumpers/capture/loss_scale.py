"""A Keras callback that tells the loss scale of each step. Imports Keras, so it is imported when it is wanted."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np
import tensorflow as tf

from .talk import say

_SCALE = ("loss_scale", "dynamic_scale", "initial_scale")
_FINITE = ("last_step_finite", "_last_step_finite")

KerasObject = Any
"""An optimizer, tensor, variable or number; Keras 2 and 3 have no common types for them."""


class NpuPrintLossScaleCallBack(tf.keras.callbacks.Callback):  # type: ignore[misc]  # imported without types
    """Says step, loss scale and whether the last step was finite when a batch of training starts, on stderr.

    Args:
        optimizer: One that scales the loss: with ``loss_scale`` (``dynamic_scale`` in Keras 3) and, on the
            device, ``last_step_finite``; values, variables or functions without arguments.
        loss: A value, variable or function to say too.
    """

    def __init__(self, optimizer: KerasObject, loss: KerasObject = None) -> None:
        super(NpuPrintLossScaleCallBack, self).__init__()
        # Keras gives callbacks a ``model``, whose optimizer this need not be.
        self.scaled_optimizer = optimizer
        self.scaled_loss = loss

    def on_train_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Says the line of a batch."""
        optimizer = self.scaled_optimizer
        scale = _shown(optimizer, *_SCALE)
        line = "step {}: loss_scale={} last_step_finite={}".format(batch, scale, _shown(optimizer, *_FINITE))
        say(line if self.scaled_loss is None else "{} loss={}".format(line, _value(self.scaled_loss)))


def _shown(owner: KerasObject, *names: str) -> str:
    """The first of some attributes that is there, as text."""
    for name in names:
        if getattr(owner, name, None) is not None:
            return _value(getattr(owner, name))
    return "unknown"


def _value(source: KerasObject) -> str:
    value = source() if callable(source) else source
    if tf.is_tensor(value) or hasattr(value, "numpy") or hasattr(value, "read_value"):
        value = _array(value)
    return "{}".format(np.asarray(value).tolist() if isinstance(value, (np.ndarray, np.generic)) else value)


def _array(value: KerasObject) -> KerasObject:
    """The value of a tensor or variable, in eager mode or through Keras' own session."""
    if tf.executing_eagerly():
        return value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    return tf.compat.v1.keras.backend.get_value(value)
