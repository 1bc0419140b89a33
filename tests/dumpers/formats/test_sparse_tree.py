"""Sparse trees: whole, in slices, of the older generation, and everything that can be wrong with them."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.sparse_tree import is_sparse_tree, newest_sparse_tree, read_sparse_tree, sparse_tree_of
from tests.sparse_files import write_column, write_table


@pytest.fixture
def rows():
    return np.arange(24, dtype=np.float32).reshape(6, 4)


@pytest.fixture
def tree(tmp_path, rows):
    table = tmp_path / "sparse-model-100" / "user"
    write_table(table, range(10, 16), embedding=rows, LazyAdam_momentum=rows * 2, LazyAdam_velocity=rows * 3)
    return tmp_path / "sparse-model-100"


def only(tree):
    found = read_sparse_tree(tree)
    (table,) = found.tables
    return table, found.problems


def test_a_whole_tree(tree, rows):
    table, problems = only(tree)
    assert problems == ()
    assert (table.name, table.rows) == ("user", 6)
    assert [column.name for column in table.columns] == ["embedding", "LazyAdam_momentum", "LazyAdam_velocity"]
    with table.key.open() as keys:
        assert keys.read(0, 6).tolist() == list(range(10, 16))
    for column, factor in zip(table.columns, (1, 2, 3), strict=True):
        assert (column.width, column.rows, column.row_bytes) == (4, 6, 16)
        with column.open() as opened:
            assert np.array_equal(opened.read(0, 6), rows * factor)
            assert np.array_equal(opened.read(2, 3), rows[2:5] * factor)
            assert opened.read(6, 0).shape == (0, 4)


def test_slices_are_joined_in_the_order_of_their_names(tmp_path, rows):
    table = write_table(tmp_path / "t", range(24), slices=12, embedding=np.arange(96).reshape(24, 4))
    found = read_sparse_tree(table)
    (only_table,) = found.tables
    names = [part.path.name for part in only_table.key.slices]
    assert names[:4] == ["slice_0.data", "slice_1.data", "slice_10.data", "slice_11.data"]
    with only_table.key.open() as keys, only_table.columns[0].open() as values:
        assert keys.read(0, 24).tolist() == list(range(24))
        assert np.array_equal(values.read(1, 22), np.arange(96).reshape(24, 4)[1:23])
    assert only_table.name == "t"
    assert not found.problems


def test_a_table_whose_attribute_begins_like_json(tmp_path):
    """123 rows: the first byte of the attribute is a brace."""
    write_table(tmp_path / "t", range(123), embedding=np.ones((123, 2)))
    table, problems = only(tmp_path)
    assert (table.rows, table.columns[0].width, problems) == (123, 2, ())


def test_the_older_generation(tmp_path, rows):
    home = tmp_path / "HashTable" / "HBM" / "user"
    for rank, part in enumerate((slice(0, 2), slice(2, 6))):
        for name, array in (("key", np.arange(10, 16)[part]), ("embedding", rows[part])):
            (home / name).mkdir(parents=True, exist_ok=True)
            (home / name / f"slice_{rank}.data").write_bytes(array.tobytes())
            attribute = {"data_type": array.dtype.name, "shape": array.shape}
            (home / name / f"slice_{rank}.attribute").write_text(json.dumps(attribute))
    (tmp_path / "HashTable" / "DDR" / "item").mkdir(parents=True)
    table, problems = only(tmp_path)
    assert (table.rows, [column.name for column in table.columns]) == (6, ["embedding"])
    assert [problem.reason for problem in problems] == ["tables of an older generation in host memory are not read"]


def test_empty_tables_and_what_admission_remembers(tmp_path):
    table = write_table(tmp_path / "t", [], embedding=np.empty((0, 8)))
    write_column(table / "history_record", np.arange(7))
    found, problems = only(tmp_path)
    assert problems == ()
    assert (found.rows, found.columns[0].width) == (0, 8)
    assert list(found.other) == ["history_record"]


@pytest.mark.parametrize(
    ("file", "damage", "column", "said"),
    [
        ("key/slice.data", lambda raw: raw[:-1], "key", "47 bytes do not fit keys of 8 bytes"),
        ("key/slice.data", lambda raw: raw[:-8], "key", "40 bytes do not fit keys of 8 bytes, its attribute claims 6"),
        ("embedding/slice.data", lambda raw: raw[:-4], "embedding", "92 bytes do not fit 6 keys"),
        ("embedding/slice.data", lambda raw: raw + bytes(16), "embedding", "112 bytes do not fit 6 keys"),
        ("embedding/slice.attribute", lambda raw: raw[:-8], "embedding", "16 bytes, an attribute here has 24"),
        (
            "embedding/slice.attribute",
            lambda raw: raw[:16] + bytes([8]) + bytes(7),
            "embedding",
            "claims 8 bytes a value",
        ),
        ("embedding/slice.attribute", lambda raw: b"\xff" * 24, "embedding", "claims -1 rows of -1"),
        ("embedding/slice.attribute", lambda raw: raw[:7] + b"\x40" + raw[8:], "embedding", "damaged"),
        ("embedding/slice.attribute", lambda raw: b"{" * 5000, "embedding", "is no attribute"),
        ("embedding/slice.attribute", lambda raw: b'{"data_type": "float32", "shape": [6, 4.5]}', "embedding", "shape"),
        ("embedding/slice.attribute", lambda raw: b'{"data_type": "object", "shape": [6, 4]}', "embedding", "0 bytes"),
        ("key/slice.attribute", lambda raw: b"", "key", "0 bytes, an attribute here has 16"),
        ("embedding/slice.attribute", None, "embedding", "no such file"),
        ("embedding/slice.data", None, "embedding", "has keys but no embedding/slice.data"),
    ],
)
def test_damage_spoils_its_own_column(tree, file, damage, column, said):
    path = tree / "user" / file
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    table, problems = only(tree)
    assert list(table.damaged) == [column]
    assert said in table.damaged[column]
    assert "\n" not in table.damaged[column]
    assert len(problems) == 1
    if column != "key":
        assert table.rows == 6
        assert [c.name for c in table.columns] == ["LazyAdam_momentum", "LazyAdam_velocity"]


def test_slices_that_do_not_belong_together(tree, tmp_path, rows):
    column = tree / "user" / "embedding"
    (column / "slice_0.data").write_bytes(rows.tobytes())
    assert "interrupted save" in only(tree)[0].damaged["embedding"]
    (column / "slice.data").unlink()
    assert "other slices than the keys" in only(tree)[0].damaged["embedding"]
    table = write_table(tmp_path / "mixed" / "t", range(4), slices=2, embedding=np.ones((4, 2)))
    (table / "embedding" / "slice_1.data").write_bytes(bytes(2 * 12))
    assert "slices with rows of [2, 3] values" in only(tmp_path / "mixed")[0].damaged["embedding"]


def test_a_pipe_and_a_folder_are_no_slices(tree):
    path = tree / "user" / "embedding" / "slice.data"
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in only(tree)[0].damaged["embedding"]
    path.unlink()
    path.mkdir()
    assert "cannot be read" in only(tree)[0].damaged["embedding"]


def test_a_file_that_shrinks_while_it_is_open(tree):
    table, _ = only(tree)
    path = tree / "user" / "embedding" / "slice.data"
    with table.columns[0].open() as opened:
        os.truncate(path, 20)
        with pytest.raises(DataError, match="ends at byte 20"):
            opened.read(0, 6)
    with pytest.raises(DataError, match="ends after 20 of 96 bytes"):
        table.columns[0].open()
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        table.columns[0].open()


def test_finding(tree, tmp_path, rows):
    assert is_sparse_tree(tree)
    assert is_sparse_tree(tree / "user")
    assert not is_sparse_tree(tmp_path)
    assert not is_sparse_tree(tmp_path / "nothing")
    assert sparse_tree_of(tmp_path / "model-100") == tree
    assert sparse_tree_of(tmp_path / "model-99") is None
    write_table(tmp_path / "sparse-model-9" / "user", [1], embedding=[[1.0]])
    write_table(tmp_path / "delta-sparse-model-100" / "user", [1], embedding=[[1.0]])
    assert newest_sparse_tree(tmp_path) == tree
    write_table(tmp_path / "delta-sparse-model-101" / "user", [1], embedding=[[1.0]])
    assert newest_sparse_tree(tmp_path).name == "delta-sparse-model-101"
    assert sparse_tree_of(tmp_path / "model-101").name == "delta-sparse-model-101"
    assert newest_sparse_tree(tmp_path / "nothing") is None
    with pytest.raises(DataError, match="holds no embedding table"):
        read_sparse_tree(tmp_path)
