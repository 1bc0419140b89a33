"""EmbeddingTable: the rows of one sparse embedding table in a graph, and which key has which row."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import tensorflow as tf

from engine.errors import EngineError
from engine.initial_values import truncated_normal
from engine.keys import KeyMap

MAX_DIM = 8192
MAX_VOCABULARY = 1_000_000_000
MAX_NAME = 100
TABLES_COLLECTION = "engine_embedding_tables"
"""Graph collection with the EmbeddingTable objects of a graph."""

_NAME = re.compile(r"[A-Za-z0-9_.]+")


@dataclass(frozen=True)
class TruncatedNormal:
    """Initial values: normal, redrawn where further than two deviations from the mean."""

    mean: float = 0.0
    stddev: float = 1.0


@dataclass(frozen=True)
class Constant:
    """Initial values: all the same."""

    value: float = 0.0


Initializer = TruncatedNormal | Constant


@dataclass(frozen=True)
class TableConfig:
    """What a table is made of; checked when it is constructed.

    Attributes:
        name: 1 to 100 letters, digits, ``_`` or ``.``; unique in its graph. A dot stays: ``a.b`` and ``ab`` are two
            tables.
        dim: Width D of a row, 1 to 8192.
        device_vocabulary_size: Rows N, 1 to 1e9. One key more than this is an error.
        initializer: Where a row starts.
        key_dtype: ``int64`` or ``int32``; keys are int64 inside.
        init_param: Multiplies the initial values, -10 to 10.

    Raises:
        ValueError: An argument is out of its range; the message names it.
    """

    name: str
    dim: int
    device_vocabulary_size: int = 1
    initializer: Initializer = field(default_factory=TruncatedNormal)
    key_dtype: str = "int64"
    init_param: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or len(self.name) > MAX_NAME or not _NAME.fullmatch(self.name):
            raise ValueError(f"name must be 1 to {MAX_NAME} letters, digits, '_' or '.', got {self.name!r}")
        _check_int("dim", self.dim, 1, MAX_DIM)
        _check_int("device_vocabulary_size", self.device_vocabulary_size, 1, MAX_VOCABULARY)
        if not isinstance(self.initializer, TruncatedNormal | Constant):
            raise ValueError(f"initializer must be a TruncatedNormal or a Constant, got {self.initializer!r}")
        if self.key_dtype not in ("int64", "int32"):
            raise ValueError(f"key_dtype must be 'int64' or 'int32', got {self.key_dtype!r}")
        if not isinstance(self.init_param, float) or not -10.0 <= self.init_param <= 10.0:
            raise ValueError(f"init_param must be a float in [-10, 10], got {self.init_param!r}")


class EmbeddingTable:
    """One table of one graph. Made by :func:`create_table`.

    Attributes:
        config: What it is made of.
        variable: float32 [N, D] in the graph, named ``<table>/<table>``, not trainable: its gradients are sparse.
        keys: Which key has which row; shared by all lookups of the table.
        failure: What stopped the last lookup, None if nothing did. TensorFlow hands an error of a host function on as
            text only; whoever runs the session finds the real one here.
    """

    def __init__(self, config: TableConfig, variable: tf.Variable) -> None:
        self.config = config
        self.variable = variable
        self.keys = KeyMap(config.device_vocabulary_size, name=config.name)
        self.failure: EngineError | None = None

    @property
    def table_name(self) -> str:
        """The table's name."""
        return self.config.name

    @property
    def is_resource(self) -> bool:
        """Whether the rows are a resource variable (the default) or a reference variable of old graphs."""
        return bool(self.variable.dtype.base_dtype == self.variable.dtype)

    def size(self) -> int:
        """Returns the rows in use."""
        return len(self.keys)

    def capacity(self) -> int:
        """Returns the rows there are."""
        return self.config.device_vocabulary_size


def create_table(config: TableConfig, *, seed: int = 0, use_resource: bool = True) -> EmbeddingTable:
    """Adds a table to the current default graph.

    The initial value of an element is a function of (seed, table name, row, column) and nothing else, so every device,
    thread count and session starts from the same bits.

    Args:
        config: What it is made of.
        seed: Of the initial values.
        use_resource: False makes a reference variable, as old graphs have.

    Raises:
        ValueError: The graph has a table of this name already.
    """
    tables: list[EmbeddingTable] = tf.compat.v1.get_collection_ref(TABLES_COLLECTION)
    if any(table.table_name == config.name for table in tables):
        raise ValueError(f"name {config.name!r} is taken: this graph has a table of that name already")
    with tf.compat.v1.variable_scope(config.name):
        variable = tf.compat.v1.get_variable(
            config.name,
            shape=[config.device_vocabulary_size, config.dim],
            dtype=tf.float32,
            initializer=lambda shape, dtype, partition_info=None: _initial_values(config, shape, dtype, seed),
            trainable=False,
            use_resource=use_resource,
        )
    table = EmbeddingTable(config, variable)
    tables.append(table)
    return table


def _initial_values(config: TableConfig, shape: tf.TensorShape, dtype: tf.DType, seed: int) -> tf.Tensor:
    """Returns the tensor with the initial rows, [N, D]."""
    initializer = config.initializer
    if isinstance(initializer, Constant):
        return tf.fill(shape, tf.constant(initializer.value * config.init_param, dtype))
    return truncated_normal(
        shape,
        seed=seed,
        name=config.name,
        mean=initializer.mean * config.init_param,
        stddev=initializer.stddev * config.init_param,
    )


def _check_int(name: str, value: object, low: int, high: int) -> None:
    """Raises ValueError unless the value is an integer (not a bool) in the range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer in [{low}, {high}], got {value!r}")
