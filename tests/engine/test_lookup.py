from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import CapacityError, EngineError
from engine.lookup import KEYS_ATTR, TABLE_ATTR, sparse_lookup
from engine.table import Constant, TableConfig, create_table

BOTH = pytest.mark.parametrize("use_resource", [True, False])


class Graph:
    """A table of 20 rows and whatever lookups a test adds."""

    def __init__(self, *, use_resource=True, key_dtype="int64", rows=20, initializer=None):
        self.graph = tf.Graph()
        config = TableConfig("user_table", 3, rows, **({"initializer": initializer} if initializer else {}))
        if key_dtype != "int64":
            config = TableConfig("user_table", 3, rows, key_dtype=key_dtype)
        with self.graph.as_default():
            self.table = create_table(config, use_resource=use_resource)
            self.ids = tf.compat.v1.placeholder(key_dtype, [None, None], name="ids")
            self.init = tf.compat.v1.global_variables_initializer()

    def session(self):
        session = tf.compat.v1.Session(graph=self.graph)
        session.run(self.init)
        return session

    def lookup(self, **options):
        with self.graph.as_default():
            return sparse_lookup(self.table, self.ids, **options)


@BOTH
def test_result_is_the_row_of_each_position(use_resource):
    g = Graph(use_resource=use_resource)
    result = g.lookup()
    with g.session() as session:
        rows = session.run(g.table.variable)
        first = session.run(result, {g.ids: [[7, 9, 7], [-5, 9, 2**40]]})
        second = session.run(result, {g.ids: [[2**40, 11]]})
    assert (first == rows[[[0, 1, 0], [2, 1, 3]]]).all()
    assert (second == rows[[[3, 4]]]).all()
    assert g.table.keys.keys().tolist() == [7, 9, -5, 2**40, 11]


@BOTH
def test_gradient_is_the_sum_over_the_occurrences_of_a_key(use_resource):
    g = Graph(use_resource=use_resource)
    draw = np.random.default_rng(1)
    ids, factors = draw.integers(0, 9, (5, 4)), draw.integers(-8, 9, (5, 4, 3)).astype(np.float32)
    with g.graph.as_default(), warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = tf.reduce_sum(g.lookup() * factors)
        gradient = tf.gradients(loss, g.table.variable)[0]
    assert isinstance(gradient, tf.IndexedSlices)
    with g.session() as session:
        values, rows = session.run([gradient.values, gradient.indices], {g.ids: ids})
    assert len(set(rows.tolist())) == len(rows) == len(np.unique(ids))
    for row, value in zip(rows, values, strict=True):
        key = g.table.keys.keys()[row]
        assert value.tolist() == factors[ids == key].sum(axis=0).tolist()
    sums = [op for op in g.graph.get_operations() if op.type == "UnsortedSegmentSum"]
    assert len(sums) == 1


@BOTH
def test_the_table_read_says_which_table_and_keys(use_resource):
    g = Graph(use_resource=use_resource)
    g.lookup(name="user_lookup")
    marked = [op for op in g.graph.get_operations() if TABLE_ATTR in op.node_def.attr]
    assert [op.type for op in marked] == ["ResourceGather" if use_resource else "GatherV2"]
    assert marked[0].name == "user_lookup/gather"
    assert marked[0].get_attr(TABLE_ATTR) == b"user_table"
    keys = marked[0].get_attr(KEYS_ATTR).decode()
    with g.session() as session:
        unique, rows = session.run([keys, marked[0].inputs[1]], {g.ids: [[4, 8, 4, 6]]})
    assert (unique.tolist(), rows.tolist()) == ([4, 8, 6], [0, 1, 2])


def test_evaluation_reads_zeros_for_unknown_keys_and_changes_nothing():
    g = Graph()
    train, evaluate = g.lookup(), g.lookup(is_train=False)
    with g.session() as session:
        session.run(train, {g.ids: [[10, 20]]})
        before = session.run(g.table.variable)
        values = session.run(evaluate, {g.ids: [[99, 20, -1], [98, 10, 99]]})
        after = session.run(g.table.variable)
    assert (values == [[[0] * 3, before[1], [0] * 3], [[0] * 3, before[0], [0] * 3]]).all()
    assert g.table.keys.keys().tolist() == [10, 20]
    assert (before == after).all()


def test_default_row_and_padding():
    g = Graph(initializer=Constant(0.5))
    padded = g.lookup(padded=True, default=[1.0, 2.0, 3.0])
    with g.graph.as_default():
        gradient = tf.gradients(tf.reduce_sum(padded), g.table.variable)[0]
    with g.session() as session:
        fetches = [padded, gradient.values, gradient.indices]
        value, slices, rows = session.run(fetches, {g.ids: [[-1, 4], [4, -1], [6, -1]]})
    assert value[0].tolist() == [[1, 2, 3], [0.5] * 3]
    assert value[2].tolist() == [[0.5] * 3, [1, 2, 3]]
    assert (rows.tolist(), slices.tolist()) == ([0, 1], [[2.0] * 3, [1.0] * 3])


def test_all_padding_is_no_row_at_all():
    g = Graph()
    padded = g.lookup(padded=True)
    with g.session() as session:
        assert not session.run(padded, {g.ids: [[-1, -1]]}).any()
    assert g.table.size() == 0


def test_the_reserved_key_in_training_data_is_an_error():
    g = Graph()
    result = g.lookup()
    with g.session() as session, pytest.raises(tf.errors.OpError, match="reserved"):
        session.run(result, {g.ids: [[3, -1]]})
    assert isinstance(g.table.failure, EngineError)


def test_a_full_table_leaves_its_error_with_the_table():
    g = Graph(rows=2)
    result = g.lookup()
    with g.session() as session:
        with pytest.raises(tf.errors.OpError, match="device_vocabulary_size"):
            session.run(result, {g.ids: [[1, 2, 3]]})
        assert isinstance(g.table.failure, CapacityError)
        session.run(result, {g.ids: [[1, 2]]})
    assert g.table.failure is None


def test_several_lookups_share_keys_and_have_names_of_their_own():
    g = Graph()
    one, two = g.lookup(), g.lookup()
    assert [one.op.name, two.op.name] == [f"user_table/sparse_lookup_{n}/restore" for n in (0, 1)]
    with g.session() as session:
        first, second = session.run([one, two], {g.ids: [[5, 6]]})
    assert (first == second).all()
    assert g.table.size() == 2


def test_int32_keys_and_wrong_ids():
    g = Graph(key_dtype="int32")
    result = g.lookup()
    with g.session() as session:
        assert session.run(result, {g.ids: [[1, 1]]}).shape == (1, 2, 3)
    with g.graph.as_default():
        with pytest.raises(ValueError, match="key_dtype 'int32'"):
            sparse_lookup(g.table, tf.constant([1], tf.int64))
        with pytest.raises(ValueError, match="dense"):
            sparse_lookup(g.table, tf.sparse.from_dense([[1]]))


def test_two_graphs_do_not_share_a_map():
    graphs = [Graph(), Graph()]
    for number, g in enumerate(graphs):
        result = g.lookup()
        with g.session() as session:
            session.run(result, {g.ids: [[number + 5]]})
    assert [g.table.keys.keys().tolist() for g in graphs] == [[5], [6]]
