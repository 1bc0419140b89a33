from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from engine.table import Constant, TableConfig, TruncatedNormal, create_table


def initial_rows(config, *, seed=0, use_resource=True, threads=1):
    graph = tf.Graph()
    with graph.as_default():
        table = create_table(config, seed=seed, use_resource=use_resource)
        init = tf.compat.v1.global_variables_initializer()
    session_config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
    with tf.compat.v1.Session(graph=graph, config=session_config) as session:
        session.run(init)
        return session.run(table.variable)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", ""),
        ("name", "a" * 101),
        ("name", "a/b"),
        ("name", "tab le"),
        ("name", 7),
        ("dim", 0),
        ("dim", 8193),
        ("dim", True),
        ("dim", 8.0),
        ("device_vocabulary_size", 0),
        ("device_vocabulary_size", 1_000_000_001),
        ("device_vocabulary_size", "10"),
        ("initializer", 0.5),
        ("key_dtype", "float32"),
        ("init_param", 1),
        ("init_param", 10.5),
        ("init_param", float("nan")),
    ],
)
def test_each_argument_is_checked_and_named(name, value):
    arguments = {"name": "user_table", "dim": 8, name: value}
    with pytest.raises(ValueError, match=name):
        TableConfig(**arguments)


def test_a_dot_in_a_name_stays():
    graph = tf.Graph()
    with graph.as_default():
        dotted, plain = create_table(TableConfig("a.b", 2)), create_table(TableConfig("ab", 2))
    assert {dotted.variable.name, plain.variable.name} == {"a.b/a.b:0", "ab/ab:0"}


def test_two_tables_of_one_name():
    with tf.Graph().as_default():
        create_table(TableConfig("item_table", 4))
        with pytest.raises(ValueError, match="'item_table' is taken"):
            create_table(TableConfig("item_table", 4))
    with tf.Graph().as_default():
        assert create_table(TableConfig("item_table", 4)).size() == 0


def test_initial_rows_depend_on_seed_table_row_and_column_only():
    short = initial_rows(TableConfig("t", 6, 300))
    assert short.dtype == np.float32
    assert (short == initial_rows(TableConfig("t", 6, 20_000), threads=2)[:300]).all()
    assert (short == initial_rows(TableConfig("t", 6, 300), use_resource=False)).all()
    assert not (short == initial_rows(TableConfig("u", 6, 300))).any()
    assert not (short == initial_rows(TableConfig("t", 6, 300), seed=1)).any()


def test_initial_rows_are_a_truncated_normal():
    rows = initial_rows(TableConfig("t", 32, 4000)).astype(np.float64)
    assert np.abs(rows).max() <= 2.0
    assert abs(rows.mean()) < 0.01
    # Variance of a standard normal cut at two deviations: 1 - 4*phi(2)/(2*Phi(2)-1) = 0.7737.
    assert abs(rows.var() - 0.7737) < 0.01


def test_init_param_multiplies():
    plain = initial_rows(TableConfig("t", 3, 9, TruncatedNormal(1.0, 0.5)))
    scaled = initial_rows(TableConfig("t", 3, 9, TruncatedNormal(1.0, 0.5), init_param=-2.0))
    np.testing.assert_allclose(scaled, -2.0 * plain, rtol=1e-6)
    assert (initial_rows(TableConfig("t", 3, 9, Constant(0.1), init_param=3.0)) == np.float32(0.3)).all()


def test_table_reports_size_and_capacity():
    with tf.Graph().as_default():
        table = create_table(TableConfig("user_table", 4, 50))
        assert tf.compat.v1.trainable_variables() == []
    table.keys.unique_rows(np.array([5, 6, 5]), insert=True)
    assert (table.size(), table.capacity(), table.table_name, table.is_resource) == (2, 50, "user_table", True)
