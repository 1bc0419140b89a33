"""One seed for everything random in a training process, so that two runs see the same numbers."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
from typing import List

from .talk import say

DEFAULT_SEED = 2022


def seed_everything(seed: int = DEFAULT_SEED) -> None:
    """Seeds Python, NumPy and TensorFlow and says on stderr what was done.

    ``PYTHONHASHSEED`` is set for child processes; the hash seed of a running interpreter cannot be changed. Operators
    made before the call keep their old seeds. The patch of the ``tfdeterminism`` package is applied where that
    package is installed.
    """
    done: List[str] = []
    os.environ["PYTHONHASHSEED"] = str(seed)
    done.append("PYTHONHASHSEED (child processes)")
    random.seed(seed)
    done.append("random")
    _seed_tensorflow(seed)
    done.append("tensorflow")
    _seed_numpy(seed)
    done.append("numpy")
    if importlib.util.find_spec("tfdeterminism") is not None:
        importlib.import_module("tfdeterminism").patch()
        done.append("tfdeterminism.patch()")
    say("seed {} set for {}".format(seed, ", ".join(done)))


def _seed_tensorflow(seed: int) -> None:
    import tensorflow as tf

    tf.compat.v1.set_random_seed(seed)
    # With TensorFlow 2 that seeds eager execution alone, which a script may switch off afterwards.
    tf.compat.v1.get_default_graph().seed = seed


def _seed_numpy(seed: int) -> None:
    import numpy as np

    np.random.seed(seed % 2**32)
