"""The embedding training engine: tables, lookups, sparse optimizers, batches, reference models, an emulated device.

Importing this package loads no TensorFlow: a public name brings its module in when it is first asked for.

    import engine

    table = engine.create_table(engine.TableConfig("user_table", dim=32, device_vocabulary_size=16384))
    embedding = engine.sparse_lookup(table, ids)          # float32 [B, n, 32], inside a tf.Graph
    optimizer = engine.LazyAdam(0.01)                     # updates only the rows that a batch touched

A table belongs to the ``tf.Graph`` it was made in; the engine keeps no state of its own between graphs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.errors import CapacityError, EngineError
    from engine.keys import KeyMap, hash_tokens
    from engine.lookup import sparse_lookup
    from engine.optimizers.lazy_adam import LazyAdam
    from engine.pipeline import Batch, BatchFileError, criteo_batches, random_batches
    from engine.table import Constant, EmbeddingTable, TableConfig, TruncatedNormal, create_table

__all__ = [
    "Batch",
    "BatchFileError",
    "CapacityError",
    "Constant",
    "EmbeddingTable",
    "EngineError",
    "KeyMap",
    "LazyAdam",
    "TableConfig",
    "TruncatedNormal",
    "create_table",
    "criteo_batches",
    "hash_tokens",
    "random_batches",
    "sparse_lookup",
]

_HOMES = {
    "engine.errors": ("EngineError", "CapacityError"),
    "engine.keys": ("KeyMap", "hash_tokens"),
    "engine.lookup": ("sparse_lookup",),
    "engine.optimizers.lazy_adam": ("LazyAdam",),
    "engine.pipeline": ("Batch", "BatchFileError", "criteo_batches", "random_batches"),
    "engine.table": ("Constant", "EmbeddingTable", "TableConfig", "TruncatedNormal", "create_table"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
