"""Checkpoints: what TensorFlow saved and what TensorFlow reads from them, and what no program would save."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.checkpoint import (
    UNREADABLE,
    check_values,
    find_checkpoint,
    locate_checkpoint,
    read_checkpoint,
)
from dumpers.formats.object_graph import OBJECT_GRAPH, read_object_graph
from dumpers.formats.tensor_slices import slice_key
from tests.table_files import crc, entry, field, header, masked_crc, shape_message, table_of, varint, write_bundle

ROOT = Path(__file__).resolve().parents[3]

NUMBERS = (
    *("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("uint64", "bool", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn"),
)
QUANTISED = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}


def by_name(dump):
    return {record.op: record for record in dump}


def same(array, truth):
    truth = np.asarray(truth, dtype=object) if isinstance(truth, bytes) else truth
    return array.shape == truth.shape and array.dtype == truth.dtype and array.tolist() == truth.tolist()


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


# --------------------------------------------------------------------------------------------- what TensorFlow saves


def test_every_dtype(tf, tmp_path):
    chance = np.random.default_rng(0)
    values = {"strings": tf.constant([[b"a", b"", b"x" * 300], [b"\xff\x00", "λ".encode(), b"zz"]])}
    values |= {"scalar": tf.constant(7, tf.int64), "empty": tf.zeros((0, 4)), "text": tf.constant(b"one")}
    for name in NUMBERS:
        dtype = getattr(tf, name, None) or getattr(tf.dtypes.experimental, name)
        values[name] = tf.cast(tf.constant(chance.integers(-7, 8, (2, 3)).astype(np.float32)), dtype)
    for name, plain in QUANTISED.items():
        values[name] = tf.bitcast(tf.constant(chance.integers(0, 100, (2, 3)).astype(plain)), getattr(tf, name))
    prefix = str(tmp_path / "all-1")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(values), shape_and_slices=[""] * len(values), tensors=list(values.values())
    )
    truth = tf.train.load_checkpoint(prefix)
    records = by_name(read_checkpoint(tmp_path))
    assert records.keys() == values.keys() == truth.get_variable_to_shape_map().keys()
    for name, record in records.items():
        array, right = record.load(), truth.get_tensor(name)
        right = right.view(QUANTISED[name]) if name in QUANTISED else right
        assert same(array, right), name
        assert not array.flags.writeable
        assert record.shape == array.shape
        assert record.dtype == ("string" if array.dtype == object else array.dtype.name)
        assert (record.io, record.slot, record.device) == ("output", 0, "tf")
    assert pickle.loads(pickle.dumps(records["float32"])).load().tolist() == records["float32"].load().tolist()


@pytest.fixture(scope="module")
def saved(tf, tmp_path_factory):
    """A model with partitioned variables, saved by name in both versions, in one piece and by two devices."""
    v1 = tf.compat.v1
    folder = tmp_path_factory.mktemp("saved")
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            parts = [_partitioned(v1, "emb", [10, 4], 3, 0), _partitioned(v1, "wide", [3, 200], 2, 1)]
            step = v1.get_variable("step", [], tf.int64, initializer=v1.constant_initializer(7))
        with tf.device("/cpu:1"):
            zeros = v1.get_variable("zeros", [100, 50], initializer=v1.zeros_initializer())
            names = v1.get_variable("names", initializer=tf.constant([b"a", b"bb"]), use_resource=False)
            half = v1.get_variable("half", [3], tf.float16, initializer=v1.ones_initializer())
            odd = v1.get_variable("odd", initializer=tf.constant([True, False]))
            pair = v1.get_variable("pair", initializer=tf.constant([1 + 2j, 3j], tf.complex64))
            many = v1.get_variable("many", initializer=tf.constant([-1, 2**40], tf.int64))
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(v1.global_variables_initializer())
            plain = {"step": step, "zeros": zeros, "names": names, "half": half, "odd": odd, "pair": pair, "many": many}
            values = session.run(plain)
            for variable, axis in zip(parts, (0, 1), strict=True):
                values[variable.name] = np.concatenate(session.run(list(variable)), axis=axis)
            for version in (1, 2):
                for sharded in (False, True):
                    place = folder / f"v{version}{'s' if sharded else ''}"
                    place.mkdir()
                    saver = v1.train.Saver(write_version=version, sharded=sharded)
                    saver.save(session, str(place / "model.ckpt"), global_step=5)
    values["names"] = values["names"].astype(object)
    return folder, {name: np.asarray(value) for name, value in values.items()}


def _partitioned(v1, scope, shape, count, axis):
    with v1.variable_scope(scope, partitioner=v1.fixed_size_partitioner(count, axis=axis)):
        return v1.get_variable("w", shape, initializer=v1.random_normal_initializer(seed=1), use_resource=axis == 1)


@pytest.mark.parametrize("place", ["v1", "v1s", "v2", "v2s"])
def test_savers_of_both_versions_with_partitioned_variables(saved, place):
    folder, values = saved
    found = locate_checkpoint(folder / place)
    dump = read_checkpoint(found)
    assert (found.prefix.name, found.version, found.notes) == ("model.ckpt-5", int(place[1]), ())
    assert dump.problems == ()
    assert [record.op for record in dump] == sorted(values)
    for record in dump:
        assert same(record.load(), values[record.op]), record.op
    assert check_values(dump) == ()
    files = {path.name for path in (folder / place).iterdir()}
    assert len([name for name in files if "00001-of-00002" in name]) == (1 if place.endswith("s") else 0)


@pytest.mark.parametrize("place", ["v1", "v1s"])
def test_tensorflow_reads_the_same_from_version_1(tf, saved, place):
    folder, _ = saved
    prefix = folder / place / "model.ckpt-5"
    truth = tf.train.load_checkpoint(f"{prefix}-?????-of-00002" if place == "v1s" else str(prefix))
    records = by_name(read_checkpoint(prefix))
    assert {name: list(r.shape) for name, r in records.items()} == truth.get_variable_to_shape_map()
    for name in ("step", "zeros", "names", "many"):  # slices and the other types it reads only into a graph
        assert same(records[name].load(), truth.get_tensor(name))


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("v2", "model.ckpt-5"),
        ("v2", "model.ckpt-5.index"),
        ("v2", "model.ckpt-5.meta"),
        ("v2s", "model.ckpt-5.data-00001-of-00002"),
        ("v2", "checkpoint"),
        ("v2", ""),
        ("v1", "model.ckpt-5"),
        ("v1", ""),
        ("v1s", "model.ckpt-5"),
        ("v1s", "model.ckpt-5-00001-of-00002"),
        ("v1s", "model.ckpt-5-?????-of-00002"),
        ("v1s", "checkpoint"),
    ],
)
def test_every_way_to_name_one(saved, place, name):
    folder = saved[0] / place
    assert find_checkpoint(folder / name) == folder / "model.ckpt-5"


def test_objects_with_optimizer_slots(tf, tmp_path):
    dense = tf.Module(name="dense")
    dense.kernel = tf.Variable([[1.0, 2.0]], name="dense/kernel")
    dense.bias = tf.Variable([0.5], name="dense/bias")
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    optimizer.minimize(lambda: tf.reduce_sum(dense.kernel * dense.bias), var_list=[dense.kernel, dense.bias])
    prefix = tf.train.Checkpoint(model=dense, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    truth, records = tf.train.load_checkpoint(prefix), by_name(read_checkpoint(tmp_path))
    assert records.keys() == truth.get_variable_to_shape_map().keys()
    assert all(same(record.load(), truth.get_tensor(name)) for name, record in records.items())
    end = ".ATTRIBUTES/VARIABLE_VALUE"
    assert records[f"model/kernel/{end}"].note == "full name dense/kernel"
    slot = records[f"model/kernel/.OPTIMIZER_SLOT/optimizer/m/{end}"]
    assert slot.note == "full name dense/kernel/Adam; slot m of dense/kernel"
    names = read_object_graph(records[OBJECT_GRAPH])
    assert names[f"model/bias/.OPTIMIZER_SLOT/optimizer/v/{end}"].slot == "v"


def test_keras_models_and_saved_models(tf, tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(1, name="score")])
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
    model.train_on_batch(np.ones((4, 2), np.float32), np.ones((4, 1), np.float32))
    prefix = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    truth, records = tf.train.load_checkpoint(prefix), by_name(read_checkpoint(Path(prefix)))
    assert records.keys() == truth.get_variable_to_shape_map().keys()
    assert all(same(record.load(), truth.get_tensor(name)) for name, record in records.items())
    moments = [record for record in records.values() if record.shape == (3, 1) and "optimizer/_variables" in record.op]
    assert len(moments) == 2
    assert all("full name" in record.note and "score" in record.note for record in moments)
    tf.saved_model.save(tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])), str(tmp_path / "exported"))
    for given in (tmp_path / "exported", tmp_path / "exported" / "variables"):
        found = locate_checkpoint(given)
        assert found.prefix.name == "variables"
        assert [1.0, 2.0] in [record.load().tolist() for record in read_checkpoint(found)]


def test_big_endian_bundles(tf, tmp_path):
    numbers = {"float": (1, ">f4"), "wide": (9, ">i8"), "half": (19, ">f2"), "pair": (8, ">c8"), "byte": (4, ">u1")}
    data, entries = b"", {}
    for name, (number, dtype) in numbers.items():
        raw = np.array([1.5, 2, 100]).astype(dtype).tobytes()
        entries[name] = entry(number, (3,), raw, len(data))
        data += raw
    entries["brain"] = entry(14, (2,), b"\x3f\x80\xc0\x00", len(data))
    data += b"\x3f\x80\xc0\x00"
    prefix = write_bundle(tmp_path / "big-1", entries, data, head=header(big_endian=True))
    truth = tf.train.load_checkpoint(str(prefix))
    records = by_name(read_checkpoint(prefix))
    for name, record in records.items():
        assert same(record.load(), truth.get_tensor(name)), name
    assert records["brain"].load().tolist() == [1.0, -2.0]
    assert records["pair"].load().tolist() == [1.5, 2, 100]


def test_big_endian_strings(tmp_path):
    texts = [b"one", b"", b"three"]
    lengths = b"".join(struct.pack(">I", len(text)) for text in texts)
    check = struct.pack(">I", masked_crc(lengths))
    raw = b"".join(varint(len(text)) for text in texts) + check + b"".join(texts)
    whole = masked_crc(lengths + check + b"".join(texts))
    entries = {"s": entry(7, (3,), raw, 0, checksum=whole)}
    (record,) = read_checkpoint(write_bundle(tmp_path / "big-1", entries, raw, head=header(big_endian=True)))
    assert record.load().tolist() == texts


def test_narrow_integers(tmp_path):
    raw = bytes([0x07, 0xF8, 0x0F, 0x81])
    entries = {"i4": entry(29, (4,), raw, 0), "u4": entry(30, (4,), raw, 0), "i2": entry(31, (4,), raw, 0)}
    records = by_name(read_checkpoint(write_bundle(tmp_path / "n-1", entries, raw)))
    assert records["i4"].load().tolist() == [7, -8, -1, 1]
    assert records["u4"].load().tolist() == [7, 8, 15, 1]
    assert records["i2"].load().tolist() == [-1, 0, -1, 1]
    assert (records["i4"].dtype, records["u4"].dtype, records["i4"].note) == ("int8", "uint8", "stored as int4")


def test_types_without_values_are_listed(tmp_path):
    entries = {"table": entry(20, (), b"abc", 0), "what": entry(99, (), b"abc", 0), "w": entry(4, (3,), b"abc", 0)}
    dump = read_checkpoint(write_bundle(tmp_path / "n-1", entries, b"abc"))
    records = by_name(dump)
    assert dump.problems == ()
    assert records["table"].source is None
    assert records["table"].note == "no value: resource"
    assert "type_99" in records["what"].note
    assert records["w"].load().tolist() == list(b"abc")


# ---------------------------------------------------------------------------------------------------------- damage

F4 = np.arange(6, dtype=np.float32).tobytes()


def slices(*extents):
    out = b""
    for extent in extents:
        parts = b"".join(
            field(1, b"" if length < 0 else (field(1, start) if start else b"") + field(2, length))
            for start, length in extent
        )
        out += field(7, parts)
    return out


def whole(shape, *extents):
    return field(1, 1) + field(2, shape_message(shape)) + slices(*extents)


def part(name, extents, shape, offset):
    return {
        slice_key(name.encode(), extents).decode("latin-1"): entry(1, shape, F4[offset : offset + 4 * shape[0]], offset)
    }


LIES = {
    "beyond the data file": entry(1, (6,), F4, 100),
    "negative offset": entry(1, (6,), F4, -8),
    "negative size": entry(1, (6,), F4, 0, size=-24),
    "offset wraps": entry(1, (6,), F4, (1 << 63) - 1),
    "size that is not the shape's": entry(1, (5,), F4, 0),
    "shape of 2^64 elements": entry(1, (1 << 32, 1 << 32), F4, 0),
    "shape that wraps to 24 bytes": entry(1, (1 << 62, 4, 6), F4, 0),
    "negative dimension": entry(1, (-1, 6), F4, 0),
    "seventy dimensions": entry(1, (1,) * 70, F4[:4], 0),
    "another data file": entry(1, (6,), F4, 0, shard=1),
    "negative data file": entry(1, (6,), F4, 0, shard=-1),
    "no message": b"\xff\xff\xff",
    "huge strings": entry(7, (1 << 40,), F4, 0),
    "slice that is not there": whole((6,), [(0, 6)]),
    "slice beyond the whole": whole((6,), [(3, 9)]),
    "slice of negative length": whole((6,), [(-3, 3)]),
    "slice with other dimensions": whole((6,), [(0, 3), (0, 3)]),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_entry_that_lies_spoils_its_variable_only(tmp_path, lie):
    prefix = write_bundle(tmp_path / "x-1", {"bad": LIES[lie], "good": entry(1, (6,), F4, 0)}, F4)
    dump = read_checkpoint(prefix)
    records = by_name(dump)
    assert records["bad"].source is None
    assert records["bad"].note.startswith(UNREADABLE)
    (problem,) = dump.problems
    assert problem.reason.startswith("bad: ")
    assert "\n" not in problem.reason
    assert records["good"].load().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(DataError):
        records["bad"].load()


def sliced(tmp_path, shape, parts):
    extents = [[extent] for extent, _, _ in parts]
    entries = {"w": whole(shape, *extents)}
    for extent, size, offset in parts:
        entries |= {slice_key(b"w", [extent]): entry(1, (size,), F4[offset : offset + 4 * size], offset)}
    items = [(b"", header()), *sorted((k.encode() if isinstance(k, str) else k, v) for k, v in entries.items())]
    (tmp_path / "x-1.index").write_bytes(table_of(items))
    (tmp_path / "x-1.data-00000-of-00001").write_bytes(F4)
    return read_checkpoint(tmp_path / "x-1")


def test_slices_in_any_order(tmp_path):
    (record,) = sliced(tmp_path, (6,), [((4, 2), 2, 0), ((0, 1), 1, 20), ((1, 3), 3, 8)])
    assert record.load().tolist() == [5, 2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([((0, 3), 3, 0), ((2, 3), 3, 0)], "overlaps"),
        ([((0, 3), 3, 0), ((3, 2), 2, 0)], "5 of 6"),
        ([((0, 3), 3, 0), ((3, 3), 2, 0)], "another type or shape"),
    ],
)
def test_slices_that_do_not_fit(tmp_path, parts, said):
    dump = sliced(tmp_path, (6,), parts)
    assert said in dump.problems[0].reason
    assert dump.records[0].source is None


@pytest.mark.parametrize(
    "head", [b"\xff", header(0), header(-5), header(1 << 31), header(min_consumer=9), field(2, 7), None]
)
def test_headers_that_lie(tmp_path, head):
    items = [(b"w", entry(1, (6,), F4, 0))]
    (tmp_path / "x-1.index").write_bytes(table_of(items if head is None else [(b"", head), *items]))
    with pytest.raises(DataError) as caught:
        read_checkpoint(tmp_path / "x-1")
    assert str(caught.value).startswith(str(tmp_path / "x-1.index"))


def test_a_missing_data_file_is_named_for_each_variable_in_it(saved, tmp_path):
    for path in (saved[0] / "v2s").glob("model.ckpt-5.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    lost = tmp_path / "model.ckpt-5.data-00001-of-00002"
    lost.unlink()
    dump = read_checkpoint(tmp_path)
    assert {problem.path for problem in dump.problems} == {lost}
    readable = [record.op for record in dump if record.source]
    assert readable == ["emb/w", "step", "wide/w"]
    assert all(same(record.load(), saved[1][record.op]) for record in dump if record.source)
    assert len(dump.problems) + len(readable) == len(dump)


def test_a_flipped_byte_is_found_when_the_variable_is_loaded(tmp_path):
    data = bytearray(F4 * 2)
    entries = {"a": entry(1, (6,), F4, 0), "b": entry(1, (6,), F4, 24)}
    prefix = write_bundle(tmp_path / "x-1", entries, bytes(data))
    assert check_values(read_checkpoint(prefix)) == ()
    data[30] ^= 1
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    records = by_name(read_checkpoint(prefix))
    assert records["a"].load().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(DataError, match=r"data-00000-of-00001: b at byte 24: checksum") as caught:
        records["b"].load()
    assert f"instead of {crc(F4):08x}" in str(caught.value)
    (problem,) = check_values(read_checkpoint(prefix))
    assert problem.reason.startswith("b at byte 24")


def test_a_data_file_that_shrinks_after_the_listing(tmp_path):
    prefix = write_bundle(tmp_path / "x-1", {"a": entry(1, (6,), F4, 0)}, F4)
    (record,) = read_checkpoint(prefix)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(F4[:10])
    with pytest.raises(DataError, match="ends after 10 of the 24 bytes of a"):
        record.load()


def test_strings_that_lie(tmp_path):
    lengths = struct.pack("<II", 2, 3)
    check = struct.pack("<I", masked_crc(lengths))
    right = b"\x02\x03" + check + b"abcde"
    checksum = masked_crc(lengths + check + b"abcde")
    wrong = {
        "length": b"\x02\x04" + right[2:],
        "huge length": b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[:11].ljust(11, b"\0"),
        "their checksum": right[:3] + b"\0" + right[4:],
        "text": right[:-1] + b"f",
        "too short": b"\x02\x03\x00\x00\x00\x00",
    }
    good = write_bundle(tmp_path / "good-1", {"s": entry(7, (2,), right, 0, checksum=checksum)}, right)
    assert read_checkpoint(good).records[0].load().tolist() == [b"ab", b"cde"]
    for name, raw in wrong.items():
        prefix = write_bundle(tmp_path / "bad-1", {"s": entry(7, (2,), raw, 0, checksum=checksum)}, raw)
        (record,) = read_checkpoint(prefix)
        try:
            found = record.load().tolist()
        except DataError as error:
            found = str(error)
        assert ": s at byte 0: " in found, name


@pytest.mark.parametrize("case", ["cut_data", "flipped_byte", "cut_index", "no_data"])
def test_damage_of_the_field(shared_data, case):
    folder = shared_data / "field_cases" / "FC23" / case
    if case == "cut_index":
        with pytest.raises(DataError, match=r"model-7\.index"):
            read_checkpoint(folder)
        return
    dump = read_checkpoint(folder)
    damaged = {problem.reason.split(":")[0].split(" ")[0] for problem in (*dump.problems, *check_values(dump))}
    assert damaged == {"cut_data": {"z"}, "flipped_byte": {"b"}, "no_data": {"a", "b", "z"}}[case]
    good = by_name(read_checkpoint(shared_data / "field_cases" / "FC23" / "good"))
    for record in dump:
        if record.op not in damaged:
            assert same(record.load(), good[record.op].load())


def read_all(prefix):
    """Reads everything that is readable; returns the arrays by name."""
    found = {}
    for record in read_checkpoint(prefix):
        try:
            found[record.op] = record.load().tolist()
        except DataError as error:
            one_line(error)
    return found


def one_line(error):
    assert "\n" not in str(error)


def test_an_index_cut_anywhere_is_one_error(tmp_path):
    prefix = write_bundle(tmp_path / "x-1", {"a": entry(1, (6,), F4, 0), "b": entry(1, (2,), F4[:8], 0)}, F4)
    index = Path(f"{prefix}.index")
    raw = index.read_bytes()
    for size in range(len(raw)):
        index.write_bytes(raw[:size])
        with pytest.raises(DataError, match=r"x-1\.index"):
            read_checkpoint(prefix)


@pytest.mark.parametrize("version", [1, 2])
def test_flipped_bits_never_give_other_values(saved, tmp_path, version):
    folder, values = saved
    for path in (folder / f"v{version}").glob("model.ckpt-5*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    files = [tmp_path / ("model.ckpt-5.index" if version == 2 else "model.ckpt-5")]
    files += [tmp_path / "model.ckpt-5.data-00000-of-00001"] if version == 2 else []
    chance = random.Random(version)
    for _ in range(60):
        path = chance.choice(files)
        raw = path.read_bytes()
        data = bytearray(raw)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data if chance.random() < 0.7 else data[: chance.randrange(len(data))])
        try:
            found = read_all(tmp_path / "model.ckpt-5")
            assert all(values[name].tolist() == value for name, value in found.items())
        except DataError as error:
            one_line(error)
        path.write_bytes(raw)


def test_entries_of_random_bytes_with_right_checksums(tmp_path):
    """Behind the checksums the reader stands by itself."""
    chance = random.Random(3)
    good = entry(1, (2, 3), F4, 0)
    for _ in range(300):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        found = read_all(write_bundle(tmp_path / "x-1", {"bad": bytes(data), "good": good}, F4))
        assert found["good"] == [[0, 1, 2], [3, 4, 5]]


def v1_table(tmp_path, shape, values, *, name=b"w", number=1, kept=2, key=True):
    meta = field(1, name) + field(2, shape_message(shape)) + field(3, number)
    meta += field(4, b"".join(field(1, b"") for _ in shape))
    tensor = field(5, values) if kept == 2 else field(kept, values)
    data = field(2, field(1, name) + field(3, tensor))
    extents = [(0, -1)] * len(shape)
    items = [(b"", field(1, field(1, meta))), *([(slice_key(name, extents), data)] if key else [])]
    (tmp_path / "old-1").write_bytes(table_of(items))
    return tmp_path / "old-1"


def test_version_1_made_by_hand(tmp_path):
    (record,) = read_checkpoint(v1_table(tmp_path, (2, 3), F4))
    assert record.load().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": (7,)},
        {"shape": (5,)},
        {"shape": (1 << 40,)},
        {"shape": (1 << 32, 1 << 32)},
        {"shape": (-6,)},
        {"shape": (6,), "kept": 10},
        {"shape": (6,), "key": False},
        {"shape": (6,), "number": 3},
    ],
)
def test_version_1_that_lies(tmp_path, lie):
    dump = read_checkpoint(v1_table(tmp_path, lie.pop("shape"), F4, **lie))
    (record,) = dump
    with pytest.raises(DataError) as caught:
        record.load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [0, 1, 63, 64, -1, -64, -65, 8191, 8192, 1 << 62, (1 << 63) - 1, -(1 << 63)])
def test_slice_keys_sort_as_their_numbers(number):
    numbers = sorted({number, -70, 0, 70, 9000})
    keys = [slice_key(b"w", [(n, 1)]) for n in numbers]
    assert keys == sorted(keys)
    assert slice_key(b"a\x00b\xffc", []) == b"\x00a\x00\xffb\xff\x00c\x00\x01\x00"


PROGRAM = """
import re, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from dumpers.errors import DataError
from dumpers.formats.checkpoint import read_checkpoint
for name in sys.argv[2:]:
    try:
        for record in read_checkpoint(Path(name)):
            try:
                record.load()
            except DataError:
                pass
    except DataError as error:
        assert "\\n" not in str(error)
peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss begins with the parent's
print(int(peak[1]) // 1024, "tensorflow" in sys.modules)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_hostile_checkpoints_take_little_memory_and_no_tensorflow(tmp_path):
    names = []
    for number, lie in enumerate(LIES.values()):
        names.append(str(write_bundle(tmp_path / f"x-{number}", {"bad": lie}, F4)))
    deep = b"\x0a\x00" * 400  # an object graph of empty nodes
    lengths = struct.pack("<I", len(deep))
    check = struct.pack("<I", masked_crc(lengths))
    raw = varint(len(deep)) + check + deep
    graph = entry(7, (), raw, 0, checksum=masked_crc(lengths + check + deep))
    names.append(str(write_bundle(tmp_path / "graph-1", {OBJECT_GRAPH: graph}, raw)))
    for number, shape in enumerate([(1 << 40,), (7,), (1 << 31,)]):
        place = tmp_path / str(number)
        place.mkdir()
        names.append(str(v1_table(place, shape, F4)))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT), *names], capture_output=True, text=True, check=True, timeout=60
    )
    peak, imported = done.stdout.split()
    assert int(peak) < 200
    assert imported == "False"


def test_listing_reads_no_data(tmp_path, monkeypatch):
    entries = {f"layer/{n:04d}/kernel": entry(1, (6,), F4, 0) for n in range(500)}
    prefix = write_bundle(tmp_path / "x-1", entries, F4)
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: opened.append(os.fspath(path)) or real(path, *rest, **more)
    )
    assert len(read_checkpoint(prefix)) == 500
    assert {Path(path).name for path in opened} == {"x-1.index"}
