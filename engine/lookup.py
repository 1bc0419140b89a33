"""sparse_lookup: from ids to their embeddings, inside a graph.

    ids [B, n] -> host: unique keys, their rows, restore index -> gather the U rows -> gather back to [B, n, D]

The table is read once per distinct key, and the gradient of the second gather sums all occurrences of a key
(UnsortedSegmentSum) before it reaches the table, so optimizers see each row once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from engine.errors import EngineError
from engine.keys import INVALID_KEY, INVALID_ROW
from engine.table import EmbeddingTable

TABLE_ATTR = "_embedding_table"
"""On the op that reads a table: the table's name."""
KEYS_ATTR = "_embedding_keys"
"""On the same op: the tensor (``op:slot``) with the unique keys, aligned to the op's indices."""
UNIQUE_ROWS_ATTR = "_embedding_unique_rows"
"""On the host op of a lookup: its output 1 has no row twice. Optimizers then need not merge repeats again."""

_COUNT_COLLECTION = "engine_lookups_of_"


def sparse_lookup(
    table: EmbeddingTable,
    ids: tf.Tensor,
    *,
    name: str | None = None,
    is_train: bool = True,
    padded: bool = False,
    default: tf.Tensor | Sequence[float] | None = None,
) -> tf.Tensor:
    """Returns the embedding of each id.

    Args:
        table: A table of the graph that ``ids`` belongs to.
        ids: Integer tensor of the table's key dtype, any shape.
        name: Scope of the ops; ``sparse_lookup_<n>`` within the table's name by default.
        is_train: True: an unknown key gets a row. False: it gets the default row and the table is not changed.
        padded: Whether -1 may occur among training ids: it stands for "no key", reads the default row and takes no
            update. Where it may not, one is an error rather than a key of its own. Evaluation always takes -1.
        default: float32 [D], the row of "no key" and of keys that evaluation does not know; zeros if None.

    Returns:
        float32 tensor of shape ``shape(ids) + [D]``. ``tf.gradients`` of it with respect to ``table.variable`` is an
        IndexedSlices with every row at most once.

    Raises:
        ValueError: ``ids`` is no dense tensor of the table's key dtype.
    """
    ids = _checked_ids(table, ids)
    has_default = padded or not is_train
    with tf.compat.v1.name_scope(name or _next_name(table)):
        unique_keys, rows, restore = _host_lookup(table, ids, is_train=is_train, has_default=has_default)
        embeddings = _gather_rows(table, unique_keys, rows)
        # For the gradient only: Reshape turns the slices that come back from the gather below into a dense sum per
        # unique row. Without it TensorFlow does the same, but warns about memory at every model build.
        embeddings = tf.reshape(embeddings, [-1, table.config.dim], name="unique_embeddings")
        if has_default:
            embeddings = tf.concat([embeddings, _default_row(table, default)], axis=0, name="with_default")
        return tf.gather(embeddings, restore, name="restore")


def _checked_ids(table: EmbeddingTable, ids: tf.Tensor) -> tf.Tensor:
    """Returns ids if they are what a lookup takes."""
    if not isinstance(ids, tf.Tensor):
        raise ValueError(f"ids for table {table.table_name!r} must be a dense tf.Tensor, got {type(ids).__name__}")
    if ids.dtype.name != table.config.key_dtype:
        raise ValueError(
            f"ids for table {table.table_name!r} are {ids.dtype.name}; the table was created with key_dtype"
            f" {table.config.key_dtype!r}"
        )
    return ids


def _next_name(table: EmbeddingTable) -> str:
    """Returns the next free default scope; counted in the graph, not in the process."""
    counter: list[int] = tf.compat.v1.get_collection_ref(_COUNT_COLLECTION + table.table_name)
    counter.append(len(counter))
    return f"{table.table_name}/sparse_lookup_{counter[-1]}"


def _host_lookup(
    table: EmbeddingTable, ids: tf.Tensor, *, is_train: bool, has_default: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Adds the one host op of a lookup: unique keys, rows, restore index."""

    def unique(
        batch: NDArray[np.int64] | NDArray[np.int32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        table.failure = None
        try:
            return lookup_batch(table, batch, is_train=is_train, has_default=has_default)
        except EngineError as error:
            table.failure = error
            raise

    outputs = tf.numpy_function(unique, [ids], [tf.int64, tf.int64, tf.int64], name="unique")
    unique_keys, rows, restore = outputs
    unique_keys.set_shape([None])
    rows.set_shape([None])
    restore.set_shape(ids.shape)
    _set_text_attr(rows.op, UNIQUE_ROWS_ATTR, table.table_name)
    return unique_keys, rows, restore


def lookup_batch(
    table: EmbeddingTable, batch: NDArray[np.int64] | NDArray[np.int32], *, is_train: bool, has_default: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns what the graph gathers by: the keys that have a row, their rows, and the restore index.

    Args:
        table: Whose keys they are.
        batch: Ids of any shape.
        is_train: Whether unknown keys get a row.
        has_default: Whether a default row stands behind the gathered ones; ids without a row restore to that place.

    Returns:
        int64 [U], int64 [U], and int64 of the batch's shape with values in 0 .. U-1, or U for the default row.

    Raises:
        EngineError: An id is -1 where there is no default row for it.
        CapacityError: The table is full.
    """
    unique_keys, rows, restore = table.keys.unique_rows(batch, insert=is_train)
    known = rows != INVALID_ROW
    if not known.all():
        if not has_default:
            raise EngineError(
                f"a batch for table {table.table_name!r} has the key {INVALID_KEY}, which is reserved for 'no key':"
                " clean the data, or say sparse_lookup(..., padded=True) if it marks padding"
            )
        places = np.where(known, np.cumsum(known) - 1, np.count_nonzero(known))
        unique_keys, rows, restore = unique_keys[known], rows[known], places[restore]
    return unique_keys, rows, restore.reshape(batch.shape)


def _gather_rows(table: EmbeddingTable, unique_keys: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Adds the op that reads the table, and says on it which table and which keys it reads."""
    if table.is_resource:
        gathered = tf.raw_ops.ResourceGather(
            resource=table.variable.handle, indices=rows, dtype=tf.float32, validate_indices=True, name="gather"
        )
    else:
        gathered = tf.gather(table.variable, rows, name="gather")
    _set_text_attr(gathered.op, TABLE_ATTR, table.table_name)
    _set_text_attr(gathered.op, KEYS_ATTR, unique_keys.name)
    return gathered


def _default_row(table: EmbeddingTable, default: tf.Tensor | Sequence[float] | None) -> tf.Tensor:
    """Returns the row of ids that have none, float32 [1, D]."""
    if default is None:
        return tf.zeros([1, table.config.dim])
    return tf.broadcast_to(tf.convert_to_tensor(default, tf.float32), [1, table.config.dim])


def _set_text_attr(op: tf.Operation, attr: str, text: str) -> None:
    """Sets a string attribute of an op; has an effect only before a session has run the op."""
    op._set_attr(attr, tf.compat.v1.AttrValue(s=text.encode("utf-8")))
