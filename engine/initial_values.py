"""Initial values that are a function of (seed, name, position) only.

A counter-based generator (Philox, key and counter given as constants) makes them in one stateless op, so every device,
session and thread count starts from the same bits, and a longer table begins with the rows of a shorter one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from engine.keys import fnv1a64

_PHILOX = 1
"""The generator's number in TensorFlow's random ops."""


def truncated_normal(
    shape: Sequence[int], *, seed: int, name: str, mean: float = 0.0, stddev: float = 1.0
) -> tf.Tensor:
    """Returns float32 values of a normal law, redrawn where further than two deviations from the mean."""
    unit = tf.raw_ops.StatelessTruncatedNormalV2(**_arguments(shape, seed, name))
    return _shifted(unit, stddev, mean)


def uniform(shape: Sequence[int], *, seed: int, name: str, low: float, high: float) -> tf.Tensor:
    """Returns float32 values, uniform in [low, high)."""
    unit = tf.raw_ops.StatelessRandomUniformV2(**_arguments(shape, seed, name))
    return _shifted(unit, high - low, low)


def _arguments(shape: Sequence[int], seed: int, name: str) -> dict[str, Any]:
    """Returns the inputs of a stateless random op: the key is a hash of seed and name, the counter starts at 0."""
    key = fnv1a64(f"{seed}/{name}".encode())
    return {
        "shape": tf.constant([int(size) for size in shape], tf.int32),
        "key": tf.constant([key], tf.uint64),
        "counter": tf.constant([0, 0], tf.uint64),
        "alg": tf.constant(_PHILOX, tf.int32),
        "dtype": tf.float32,
    }


def _shifted(unit: tf.Tensor, factor: float, offset: float) -> tf.Tensor:
    scaled = unit if factor == 1.0 else unit * tf.constant(factor, tf.float32)
    return scaled if offset == 0.0 else scaled + tf.constant(offset, tf.float32)
