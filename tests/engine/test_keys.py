from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import CapacityError
from engine.keys import KEY_MASK, KeyMap, fnv1a64, hash_tokens, unique_in_order

INT64 = np.iinfo(np.int64)


class DictMap:
    """The slow truth: one Python dict, one key at a time."""

    def __init__(self):
        self.rows: dict[int, int] = {}

    def unique_rows(self, keys, *, insert):
        unique, restore = [], []
        for key in keys:
            if key not in unique:
                unique.append(key)
                if insert and key != -1:
                    self.rows.setdefault(key, len(self.rows))
            restore.append(unique.index(key))
        return unique, [self.rows.get(key, -1) for key in unique], restore


def agree(fast, slow, keys, *, insert):
    got = fast.unique_rows(np.array(keys, dtype=np.int64), insert=insert)
    want = slow.unique_rows(keys, insert=insert)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == np.int64
        assert one.tolist() == list(other)
    assert len(fast) == len(slow.rows)
    assert fast.keys().tolist() == list(slow.rows)


keys_strategy = st.lists(
    st.one_of(st.integers(-3, 12), st.integers(INT64.min, INT64.max), st.sampled_from([INT64.min, INT64.max, 0, -1])),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(keys_strategy, st.booleans()), max_size=8))
def test_map_equals_a_dict_over_any_stream(stream):
    fast, slow = KeyMap(10_000), DictMap()
    for keys, insert in stream:
        agree(fast, slow, keys, insert=insert)


@pytest.mark.parametrize("stride", [1, 1024, 2**32, -(2**40)])
def test_map_equals_a_dict_while_it_grows(stride):
    draw = np.random.default_rng(5)
    fast, slow = KeyMap(100_000), DictMap()
    for step in range(6):
        keys = (draw.zipf(1.3, size=1500) % 4000 * stride).tolist()
        agree(fast, slow, keys, insert=step != 3)
    assert len(fast) > 512, "the first table of slots must have been outgrown"


def test_keys_that_all_probe_from_the_same_slot(monkeypatch):
    monkeypatch.setattr("engine.keys._home_slots", lambda keys, mask: np.full(len(keys), mask, dtype=np.int64))
    fast, slow = KeyMap(400), DictMap()
    for keys in ([5, 9, 5, 7], list(range(100)), [9, 1000, 3, 2000, 1000]):
        agree(fast, slow, keys, insert=True)
    agree(fast, slow, [1, 77, 12345], insert=False)


def test_evaluation_inserts_nothing():
    table = KeyMap(8)
    table.unique_rows(np.array([10, 20]), insert=True)
    unique, rows, restore = table.unique_rows(np.array([[10, 99], [98, 99]]), insert=False)
    assert (unique.tolist(), rows.tolist(), restore.tolist()) == ([10, 99, 98], [0, -1, -1], [0, 1, 2, 1])
    assert table.keys().tolist() == [10, 20]


def test_the_reserved_key_never_gets_a_row():
    table = KeyMap(2)
    unique, rows, _ = table.unique_rows(np.array([-1, 4, -1, 6]), insert=True)
    assert (unique.tolist(), rows.tolist()) == ([-1, 4, 6], [-1, 0, 1])


def test_a_full_map_says_what_to_raise_and_stays_as_it_was():
    table = KeyMap(3, name="user_table")
    table.unique_rows(np.array([1, 2]), insert=True)
    with pytest.raises(CapacityError, match=r"'user_table'.*raise device_vocabulary_size to at least 5"):
        table.unique_rows(np.array([1, 7, 8, 9, 7]), insert=True)
    assert table.keys().tolist() == [1, 2]
    assert table.unique_rows(np.array([9]), insert=True)[1].tolist() == [2]


def test_no_rows_is_a_mistake():
    with pytest.raises(ValueError, match="capacity"):
        KeyMap(0)


def test_int32_and_empty_batches():
    table = KeyMap(4)
    assert table.unique_rows(np.array([7, 7], dtype=np.int32), insert=True)[1].tolist() == [0]
    assert [part.size for part in table.unique_rows(np.empty((0, 3), dtype=np.int64), insert=True)] == [0, 0, 0]


def test_threads_share_one_map():
    table = KeyMap(50_000)
    streams = [np.random.default_rng(seed).integers(0, 20_000, 4000) for seed in range(8)]
    found: dict[int, tuple] = {}

    def work(index):
        for part in np.split(streams[index], 10):
            found[index, part.tobytes()] = table.unique_rows(part, insert=True)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_row = table.keys()
    assert len(np.unique(by_row)) == len(by_row) == len(np.unique(np.concatenate(streams)))
    for unique, rows, _ in found.values():
        assert (by_row[rows] == unique).all()


def test_unique_in_order_restores_the_batch():
    keys = np.random.default_rng(0).integers(0, 50, 400)
    unique, restore = unique_in_order(keys)
    assert (unique[restore] == keys).all()
    assert unique.tolist() == list(dict.fromkeys(keys.tolist()))


# Published test vectors of FNV-1a 64.
@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_hash_is_fnv1a(data, value):
    assert fnv1a64(data) == value


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12)), st.text("aC1=", max_size=4))
def test_hashing_many_equals_hashing_one_by_one(tokens, prefix):
    want = [fnv1a64((prefix + token).encode("utf-8")) & KEY_MASK for token in tokens]
    assert hash_tokens(tokens, prefix=prefix).tolist() == want


def test_blanks_and_fields_are_keys_of_their_own():
    keys = [*hash_tokens(["", "05db9164"], prefix="C1="), *hash_tokens(["", "05db9164"], prefix="C2=")]
    assert len(set(keys)) == 4
    assert min(keys) >= 0


def test_trailing_zero_bytes_count():
    assert len(set(hash_tokens(["a", "a\0", "a\0\0"]).tolist())) == 3
