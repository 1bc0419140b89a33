"""Tables by key against brute force over dictionaries: any order, any ranks, any number of parts and threads."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.key_join import join_keys
from compare.sparse_tables import WORST, compare_trees
from dumpers.formats.sparse_tree import read_sparse_tree
from tests.sparse_files import write_column, write_table

SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -2.5, 3.4e38, 1e-45]


def table_values(rng, keys, width, special=0.0):
    rows = rng.standard_normal((len(keys), width)).astype(np.float32)
    pick = rng.random(rows.shape) < special
    rows[pick] = rng.choice(np.float32(SPECIAL), pick.sum())
    return rows


def brute(left, right):
    """Figures of two dictionaries key -> row, by Python's own floats and exact sums."""
    shared = [key for key in left if key in right]
    pairs = [(float(x), float(y)) for key in shared for x, y in zip(left[key], right[key], strict=True)]
    finite = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    differs = lambda x, y: not (x == y or (math.isnan(x) and math.isnan(y)))  # noqa: E731
    dot, one, two, distance = (
        (math.fsum(part) for part in zip(*((x * y, x * x, y * y, (x - y) ** 2) for x, y in finite), strict=True))
        if finite
        else (0.0, 0.0, 0.0, 0.0)
    )
    return {
        "shared": len(shared),
        "rows": sum(any(map(differs, map(float, left[key]), map(float, right[key]))) for key in shared),
        "differing": sum(differs(x, y) for x, y in pairs),
        "mismatches": sum(differs(x, y) for x, y in pairs if not (math.isfinite(x) and math.isfinite(y))),
        "finite": len(finite),
        "cosine": dot / math.sqrt(one * two) if one and two and len(pairs) > 1 else None,
        "distance": math.sqrt(distance / two) if two else None,
        "largest": max((abs(x - y) for x, y in finite), default=None),
    }


def check(column, expected):
    figures = column.figures
    assert (figures.differing, column.rows) == (expected["differing"], expected["rows"])
    assert (figures.non_finite_mismatches, figures.finite) == (expected["mismatches"], expected["finite"])
    assert figures.max_abs_error == expected["largest"]
    for found, right in ((figures.cosine, expected["cosine"]), (figures.relative_distance, expected["distance"])):
        assert found is None if right is None else found == pytest.approx(right, rel=1e-12, abs=1e-12)
    assert (column.verdict == "equal") == (expected["differing"] == 0)


def diff(left, right, **options):
    return compare_trees(read_sparse_tree(left), read_sparse_tree(right), **options)


def test_rows_in_another_order_are_equal(tmp_path):
    rng = np.random.default_rng(0)
    keys = rng.choice(10**12, 5000, replace=False) - 5 * 10**11
    rows = table_values(rng, keys, 8, special=0.02).clip(-1e38, 1e38)
    order = rng.permutation(len(keys))
    write_table(tmp_path / "a/t", keys, embedding=rows, Adagrad_accumulator=rows * 2)
    write_table(tmp_path / "b/t", keys[order], slices=3, embedding=rows[order], Adagrad_accumulator=rows[order] * 2)
    found = diff(tmp_path / "a", tmp_path / "b")
    (table,) = found.tables
    assert (table.verdict, table.shared, table.only_left, table.only_right) == ("equal", 5000, 0, 0)
    assert [column.verdict for column in table.columns] == ["equal", "equal"]
    assert not found.different
    assert not found.unreadable


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    width=st.integers(1, 9),
    special=st.sampled_from([0.0, 0.1, 0.9]),
    ranks=st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from([0, 2])),
    memory=st.sampled_from([1 << 28, 1500]),
)
def test_against_brute_force(tmp_path_factory, seed, sizes, width, special, ranks, memory):
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("tables")
    sides = []
    base = {}
    for name, size, slices in zip("ab", sizes, ranks, strict=True):
        keys = rng.choice(90, size, replace=False) - 45
        rows = table_values(rng, keys, width, special)
        for at, key in enumerate(keys):  # about half of what both have is equal
            if rng.random() < 0.5:
                rows[at] = base.setdefault(int(key), rows[at].copy())
        write_table(folder / name / "t", keys, slices=slices, embedding=rows, LazyAdam_velocity=np.abs(rows))
        sides.append(dict(zip(keys.tolist(), rows, strict=True)))
    found = diff(folder / "a", folder / "b", memory=memory, threads=2)
    (table,) = found.tables
    left, right = sides
    expected = brute(left, right)
    assert table.shared == expected["shared"]
    assert table.left_examples == tuple(sorted(left.keys() - right.keys())[:WORST])
    assert table.right_examples == tuple(sorted(right.keys() - left.keys())[:WORST])
    assert (table.only_left, table.only_right) == (len(left.keys() - right.keys()), len(right.keys() - left.keys()))
    check(table.columns[0], expected)
    check(table.columns[1], brute(*({k: np.abs(v) for k, v in side.items()} for side in sides)))
    worst = table.columns[0].worst
    assert [key.rank for key in worst] == sorted(key.rank for key in worst)
    assert len(worst) == min(WORST, expected["rows"])
    for key in worst:
        one = brute({key.key: left[key.key]}, {key.key: right[key.key]})
        assert (key.differing, key.mismatches, key.largest) == (
            one["differing"],
            one["mismatches"],
            one["largest"] or 0.0,
        )


def test_the_answer_does_not_depend_on_threads_or_blocks(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    keys = rng.choice(10**6, 20000, replace=False)
    rows = table_values(rng, keys, 16, special=0.001)
    other = rows + (rng.random(rows.shape) < 0.01) * np.float32(0.1)
    order = rng.permutation(len(keys))
    write_table(tmp_path / "a/t", keys, embedding=rows)
    write_table(tmp_path / "b/t", keys[order], embedding=other[order])
    answers = [diff(tmp_path / "a", tmp_path / "b", threads=threads).tables for threads in (1, 2, 8)]
    assert answers[0] == answers[1] == answers[2]
    split = diff(tmp_path / "a", tmp_path / "b", memory=100_000).tables[0]
    whole = answers[0][0]
    assert split.columns[0].worst == whole.columns[0].worst
    assert split.columns[0].figures.differing == whole.columns[0].figures.differing
    assert split.columns[0].figures.cosine == pytest.approx(whole.columns[0].figures.cosine, abs=1e-15)


def test_parts_hold_every_key_once_and_the_last_row_of_a_repeated_key(tmp_path):
    keys = np.array([5, 7, 5, -9, 2**63 - 1, -(2**63), 7, 5])
    write_table(tmp_path / "a/t", keys, embedding=np.arange(8)[:, None])
    write_table(tmp_path / "b/t", [5, 6, -(2**63)], embedding=[[7.0], [0.0], [5.0]])
    left, right = (read_sparse_tree(tmp_path / name).tables[0].key for name in "ab")
    with left.open() as one, right.open() as two:
        parts = list(join_keys(one, two, memory=64))
    assert len(parts) == 11
    assert sorted(key for part in parts for key in part.keys.tolist()) == [-(2**63), 5]
    assert sorted(key for part in parts for key in part.only_left.tolist()) == [-9, 7, 2**63 - 1]
    assert sum(part.left_repeats for part in parts) == 3
    assert {k: r for part in parts for k, r in zip(part.keys.tolist(), part.left_rows.tolist(), strict=True)}[5] == 7
    (table,) = diff(tmp_path / "a", tmp_path / "b").tables
    assert table.columns[0].verdict == "equal"
    assert "3 rows of the left have a key that comes again" in table.reason
    assert table.verdict == "keys differ"


def test_one_sided_tables_columns_and_widths(tmp_path):
    one = np.ones((2, 4))
    write_table(tmp_path / "a/both", [1, 2], embedding=one, Adagrad_accumulator=one, slot_a=one)
    write_table(tmp_path / "a/left_only", [1, 2], embedding=one)
    write_table(tmp_path / "b/both", [1, 2], embedding=np.ones((2, 8)), Adagrad_accumulator=one, slot_b=one)
    write_table(tmp_path / "b/right_only", [1, 2], embedding=one)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert [(table.name, table.verdict) for table in found.tables] == [
        ("left_only", "missing on the right"),
        ("right_only", "missing on the left"),
        ("both", "columns differ"),
    ]
    assert [(column.name, column.verdict) for column in found.tables[-1].columns] == [
        ("embedding", "columns differ"),
        ("Adagrad_accumulator", "equal"),
        ("slot_a", "missing on the right"),
        ("slot_b", "missing on the left"),
    ]
    assert found.tables[-1].columns[0].reason == "rows of 4 against 8 values"
    assert found.different


def test_damage_spoils_its_own_column(tmp_path):
    one = np.ones((3, 4))
    for name in "ab":
        write_table(tmp_path / name / "t", [1, 2, 3], embedding=one, LazyAdam_momentum=one)
        write_table(tmp_path / name / "u", [1, 2, 3], embedding=one)
    os.truncate(tmp_path / "a/t/embedding/slice.data", 40)
    os.truncate(tmp_path / "b/u/key/slice.data", 16)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert {table.name: table.verdict for table in found.tables} == {"t": "unreadable", "u": "unreadable"}
    table = next(table for table in found.tables if table.name == "t")
    assert [(column.name, column.verdict) for column in table.columns] == [
        ("embedding", "unreadable"),
        ("LazyAdam_momentum", "equal"),
    ]
    assert found.unreadable
    assert not found.different


def test_progress_and_an_interrupt(tmp_path):
    for name in "ab":
        for table in "tu":
            write_table(tmp_path / name / table, [1, 2, 3], embedding=np.ones((3, 2)))
    told = []
    diff(tmp_path / "a", tmp_path / "b", progress=lambda done, total: told.append((done, total)))
    assert told == [(3, 6), (6, 6)]

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        diff(tmp_path / "a", tmp_path / "b", progress=interrupt)


def test_what_admission_remembers_is_compared_in_any_order(tmp_path):
    records = [(1, 3, 100), (2, 5, 101), (9, 1, 90)]
    for name, order, time in (("a", (0, 1, 2), 7), ("b", (2, 0, 1), 7), ("c", (2, 0), 8)):
        table = write_table(tmp_path / name / "t", [1, 2], embedding=np.ones((2, 2)))
        history = np.array([time, *(number for at in order for number in records[at])])
        write_column(table / "history_record", history)
        write_column(table / "table_2_threshold", np.array([3, 4, 1]))
    assert [c.verdict for c in diff(tmp_path / "a", tmp_path / "b").tables[0].columns] == ["equal"] * 3
    found = {c.name: c for c in diff(tmp_path / "a", tmp_path / "c").tables[0].columns}
    assert found["history_record"].verdict == "values differ"
    assert found["history_record"].reason == (
        "table time 7 against 8; 1 of 3 records are only on the left, 0 only on the right"
    )
    os.truncate(tmp_path / "c/t/history_record/slice.data", 30)
    found = {c.name: c for c in diff(tmp_path / "a", tmp_path / "c").tables[0].columns}
    assert found["history_record"].verdict == "unreadable"
    assert "no time and whole records" in found["history_record"].reason
    (tmp_path / "c/t/table_2_threshold/slice.data").write_bytes(bytes(12))
    (tmp_path / "a/t/history_record/slice.data").unlink()
    found = {c.name: c.verdict for c in diff(tmp_path / "a", tmp_path / "c").tables[0].columns}
    assert found == {
        "embedding": "equal",
        "history_record": "missing on the left",
        "table_2_threshold": "values differ",
    }


def test_many_keys_of_several_ranks(tmp_path):
    """More rows than a block, from slices whose borders fall inside blocks."""
    rng = np.random.default_rng(5)
    keys = rng.choice(10**9, 200_000, replace=False)
    rows = rng.standard_normal((len(keys), 4)).astype(np.float32)
    other = rows.copy()
    changed = np.sort(rng.choice(len(keys), 37, replace=False))
    other[changed, 2] += 1
    order = rng.permutation(len(keys))
    write_table(tmp_path / "a/t", keys, slices=7, embedding=rows)
    write_table(tmp_path / "b/t", keys[order][100:], slices=3, embedding=other[order][100:])
    (table,) = diff(tmp_path / "a", tmp_path / "b", threads=2, memory=4 << 20).tables
    kept = set(keys[order][100:].tolist())
    expected = {int(keys[at]) for at in changed if int(keys[at]) in kept}
    assert (table.shared, table.only_left, table.only_right) == (199_900, 100, 0)
    assert table.columns[0].rows == len(expected)
    assert {key.key for key in table.columns[0].worst} <= expected
    one = rows[np.isin(keys, list(kept))].astype(np.longdouble)
    two = other[np.isin(keys, list(kept))].astype(np.longdouble)
    assert table.columns[0].figures.cosine == pytest.approx(
        float((one * two).sum() / np.sqrt((one * one).sum() * (two * two).sum())), abs=1e-12
    )
