"""Two checkpoints held against each other: verdicts, order, pairing by full names, the field cases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from compare.checkpoints import compare_checkpoints
from compare.equal_variables import equal_figures
from compare.metrics import compare_arrays
from dumpers.errors import DataError
from dumpers.formats.checkpoint import read_checkpoint
from dumpers.formats.crc32c import crc32c, masked
from dumpers.formats.object_graph import OBJECT_GRAPH
from tests.table_files import entry, field, masked_crc, varint, write_bundle

NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10, "float16": 19, "complex64": 8}


def strings(texts, shape):
    lengths = b"".join(len(text).to_bytes(4, "little") for text in texts)
    check = masked_crc(lengths).to_bytes(4, "little")
    raw = b"".join(varint(len(text)) for text in texts) + check + b"".join(texts)
    return raw, {"checksum": masked_crc(lengths + check + b"".join(texts))}


def checkpoint(prefix, values):
    """Writes arrays, lists of bytes and single bytes as a checkpoint, without TensorFlow."""
    data, entries = b"", {}
    for name, value in values.items():
        if isinstance(value, (bytes, list)):
            texts, shape = ([value], ()) if isinstance(value, bytes) else (value, (len(value),))
            raw, lies = strings(texts, shape)
            entries[name] = entry(7, shape, raw, len(data), **lies)
        else:
            raw = value.tobytes()
            lies = {"checksum": masked(crc32c(raw))} if len(raw) > 10_000 else {}  # bit by bit is slow
            entries[name] = entry(NUMBERS[value.dtype.name], value.shape, raw, len(data), **lies)
        data += raw
    return read_checkpoint(write_bundle(prefix, entries, data))


@pytest.fixture
def diff(tmp_path):
    def run(left, right, **options):
        return compare_checkpoints(
            checkpoint(tmp_path / "left-1", left), checkpoint(tmp_path / "right-1", right), **options
        )

    return run


def rows_of(found):
    return {row.name: row for row in found.rows}


@pytest.fixture(scope="module")
def cases(shared_data):
    return shared_data / "field_cases"


def test_fc20_ranking_with_undefined_cosines(cases):
    expected = json.loads((cases / "expected.json").read_text())["FC20"]
    found = compare_checkpoints(
        read_checkpoint(cases / "FC20/abnormal/model-200"), read_checkpoint(cases / "FC20/normal/model-200")
    )
    names = [row.name for row in found.rows]
    assert set(names[:2]) == {"emb/m", "head/bias"}
    assert names[2:] == ["head/kernel", "emb/w", "tower/kernel", "dense/kernel", "dense/bias", "emb/v"]
    assert [row.name for row in found.below()] == ["head/kernel", "emb/w", "tower/kernel"]
    assert [row.name for row in found.rows if row.flagged] == names[:2]
    for name, row in rows_of(found).items():
        right = expected[name]
        assert row.cosine == (
            None
            if right["cosine_of_jointly_finite"] is None
            else pytest.approx(right["cosine_of_jointly_finite"], abs=1e-12)
        )
        assert row.figures.differing == right["differing"]
        assert row.figures.nan_left == right["nan_left"]
        assert row.figures.non_finite_mismatches == right["non_finite_mismatches"]
        assert row.figures.max_abs_error == pytest.approx(right["max_abs_error_of_jointly_finite"], rel=1e-12, abs=0)
    assert (rows_of(found)["emb/v"].verdict, rows_of(found)["emb/v"].reason) == ("equal", "both sides are zero")
    assert found.different
    assert not found.unreadable


def test_fc21_odd_tensors_and_one_sided_keys(cases):
    found = compare_checkpoints(read_checkpoint(cases / "FC21/left"), read_checkpoint(cases / "FC21/right"))
    rows = rows_of(found)
    assert {name: row.verdict for name, row in rows.items()} == {
        "w": "equal",
        "ids": "values differ",
        "flag": "values differ",
        "global_step": "values differ",
        "vocab/words": "values differ",
        "recast": "dtypes differ",
        "reshaped": "shapes differ",
        "empty/table": "equal",
        "only_left": "missing on the right",
        "only_right": "missing on the left",
        OBJECT_GRAPH: "equal",
    }
    assert (rows["ids"].figures.differing, rows["ids"].figures.elements) == (1, 3)
    assert rows["ids"].reason.startswith("1 of 3 differ")
    assert rows["ids"].figures.max_abs_error == 1
    assert rows["flag"].reason.startswith("1 of 2 differ")
    assert rows["vocab/words"].reason.startswith("1 of 2 differ")
    assert (rows["global_step"].left.load().item(), rows["global_step"].right.load().item()) == (200, 205)
    assert rows["recast"].reason == "float32 against float64, values equal"
    assert rows["reshaped"].reason == "[2,3] against [3,2]; 0 of 6 differ in flat order"
    assert rows["empty/table"].reason == "both sides are empty"
    assert all(rows[name].cosine is None for name in (OBJECT_GRAPH, "vocab/words", "global_step"))
    assert found.below() == ()
    assert found.different


@pytest.mark.parametrize(
    ("case", "lost", "said"),
    [
        ("cut_data", {"z"}, "the data file ends at byte 668"),
        ("flipped_byte", {"b"}, "checksum"),
        ("no_data", {"a", "b", "z"}, "model-7.data-00000-of-00001: no such data file"),
    ],
)
def test_fc23_damaged_checkpoints(cases, case, lost, said):
    good, bad = read_checkpoint(cases / "FC23/good"), read_checkpoint(cases / "FC23" / case)
    for left, right in ((bad, good), (good, bad)):
        found = compare_checkpoints(left, right)
        assert {row.name: row.verdict for row in found.rows} == {
            name: "unreadable" if name in lost else "equal" for name in "abz"
        }
        assert all(said in row.reason for row in found.rows if row.name in lost)
        assert [row.name for row in found.rows][: len(lost)] == sorted(lost)
        assert found.unreadable
        assert not found.different


# ------------------------------------------------------------------------------------------------------------ verdicts


def test_everything_equal(diff):
    values = {"w": np.float32([1, 2]), "n": np.int64([1 << 60, 5]), "s": [b"a", b""], "one": np.float32(3)}
    found = diff(values, values)
    assert dict(found.counts) == {"equal": 4}
    assert not found.different
    assert not found.unreadable


def test_negative_zero_and_nan_in_one_place_are_equal(diff):
    found = diff({"w": np.float32([0.0, np.nan, 1])}, {"w": np.float32([-0.0, np.nan, 1])})
    (row,) = found.rows
    assert (row.verdict, row.cosine, row.figures.nan_left) == ("equal", 1.0, 1)
    assert row.reason == "NaN 1, infinite 0 on both sides"


def test_the_worst_comes_first(diff):
    noise = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    left = {
        "a_equal": noise,
        "b_close": noise,
        "c_far": noise,
        "d_nan": noise,
        "e_ids": np.int64([1, 2, 3]),
        "f_shape": noise,
        "g_missing": noise,
        "h_zeros": np.zeros(3, np.float32),
    }
    right = dict(left) | {
        "b_close": noise + np.float32(0.01),
        "c_far": np.abs(noise),
        "d_nan": np.where(np.arange(50) == 3, np.float32(np.nan), noise),
        "e_ids": np.int64([1, 2, 4]),
        "f_shape": noise[:40],
    }
    del right["g_missing"]
    found = diff(left, right)
    assert [row.name[0] for row in found.rows] == list("gfdecbah")
    assert [row.name for row in found.below()] == ["c_far"]
    cosines = [row.cosine for row in found.rows if row.name[0] in "cba"]
    assert cosines == sorted(cosines)
    exact = float(
        np.dot(noise.astype(float), np.abs(noise).astype(float)) / np.dot(noise.astype(float), noise.astype(float))
    )
    assert rows_of(found)["c_far"].cosine == pytest.approx(exact, abs=1e-12)


def test_a_string_against_a_number(diff):
    (row,) = diff({"x": [b"a", b"b"]}, {"x": np.int32([1, 2])}).rows
    assert row.verdict == "dtypes differ"
    assert "cannot be compared" in row.reason


def test_a_checkpoint_without_variables_is_no_answer(diff):
    with pytest.raises(DataError, match="without variables"):
        diff({}, {"w": np.float32([1])})


def test_progress_is_told_and_an_interrupt_ends_it(diff):
    values = {f"w{n}": np.float32([n]) for n in range(5)}
    told = []
    diff(values, values, progress=lambda done, total: told.append((done, total)))
    assert told == [(n, 5) for n in range(1, 6)]

    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        diff(values, values, progress=interrupt)


@pytest.mark.parametrize(
    "array",
    [
        np.float32([1, -2, 3]),
        np.float32([0, 0]),
        np.float32([np.nan, np.inf, -np.inf, 2, 2]),
        np.float32([np.nan, np.nan]),
        np.float32([np.nan, 0, 0]),
        np.float64([1e200, -1e-200]),
        np.float16([65504] * 9),
        np.float32(5),
        np.zeros((), np.int64),
        np.int64([1 << 62, -5]),
        np.array([True, False]),
        np.array([[False]]),
        np.complex64([1j, complex(np.nan, np.inf), complex(2, np.inf)]),
        np.zeros((0, 4), np.float32),
        np.uint8([0, 255]),
    ],
    ids=lambda array: f"{array.dtype}-{array.tolist()}"[:40],
)
def test_the_short_cut_for_equal_bytes_tells_what_the_long_way_tells(array):
    short, long = equal_figures(array), compare_arrays(array, array.copy(), with_divergence=False)
    for name in (
        *("left_shape", "right_shape", "left_dtype", "elements", "differing", "finite", "nan_left", "nan_right"),
        *("inf_left", "inf_right", "non_finite_mismatches", "cosine", "max_abs_error", "relative_distance", "rank"),
        *("verdict", "equal"),
    ):
        assert getattr(short, name) == getattr(long, name), name
    assert short.reasons.get("CosineSimilarity") == long.reasons.get("CosineSimilarity")
    assert [name for name in short.reasons if short.column(name) is not None] == []


# ------------------------------------------------------------------------------------------------------------- names


def graph(names):
    return b"".join(
        field(1, field(2, field(1, b"VARIABLE_VALUE") + field(2, full.encode()) + field(3, key.encode())))
        for key, full in names.items()
    )


def test_names_and_objects_meet_by_full_names(diff):
    keys = {
        "model/kernel/.ATTRIBUTES/VARIABLE_VALUE": "dense/kernel",
        "model/bias/.ATTRIBUTES/VARIABLE_VALUE": "dense/bias",
    }
    kernel, bias = np.float32([1, 2, 3]), np.float32([4, 5])
    objects = dict(zip(keys, (kernel, bias), strict=True)) | {OBJECT_GRAPH: graph(keys)}
    names = {"dense/kernel": kernel, "dense/bias": bias * 2}
    for left, right in ((objects, names), (names, objects)):
        found = diff(left, right)
        assert len(found.rows) == 3
        verdicts = {row.name.split("/")[1]: row.verdict for row in found.rows if row.name != OBJECT_GRAPH}
        assert verdicts == {"kernel": "equal", "bias": "values differ"}
        assert all(row.note.startswith("paired by full name with ") for row in found.rows if row.name != OBJECT_GRAPH)
        assert rows_of(found)[OBJECT_GRAPH].verdict == "skipped"
    assert not diff(objects, {"dense/kernel": kernel, "dense/bias": bias}).different


def test_objects_with_other_paths_meet_too(diff):
    one = {"model/w/.ATTRIBUTES/VARIABLE_VALUE": "dense/kernel"}
    two = {"net/w/.ATTRIBUTES/VARIABLE_VALUE": "dense/kernel"}
    value = np.float32([1, 2])
    sides = [{next(iter(keys)): value, OBJECT_GRAPH: graph(keys)} for keys in (one, two)]
    found = diff(*sides)
    assert {row.verdict for row in found.rows if row.name != OBJECT_GRAPH} == {"equal"}


def test_an_ambiguous_full_name_pairs_nothing(diff):
    keys = {"a/.ATTRIBUTES/VARIABLE_VALUE": "kernel", "b/.ATTRIBUTES/VARIABLE_VALUE": "kernel"}
    value = np.float32([1, 2])
    found = diff(dict.fromkeys(keys, value) | {OBJECT_GRAPH: graph(keys)}, {"kernel": value})
    assert found.counts["missing on the right"] == 2
    assert found.counts["missing on the left"] == 1


def test_a_string_that_is_no_object_graph_is_compared_as_bytes(diff):
    found = diff(
        {OBJECT_GRAPH: b"\x0a\x02ab", "a": np.float32([1, 2])}, {OBJECT_GRAPH: b"\x0a\x02ac", "b": np.float32([1, 2])}
    )
    row = rows_of(found)[OBJECT_GRAPH]
    assert (row.verdict, row.figures.differing, row.cosine) == ("values differ", 1, None)
    assert found.counts["missing on the right"] == 1


def test_tensorflow_saver_against_objects(tmp_path):
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("dense/kernel", initializer=tf.constant([[1.0, 2.0]]), use_resource=True)
        session.run(w.initializer)
        by_name = v1.train.Saver().save(session, str(tmp_path / "names"))
        old = v1.train.Saver(write_version=1).save(session, str(tmp_path / "old"))
    module = tf.Module()
    module.w = tf.Variable([[1.0, 2.0]], name="dense/kernel")
    objects = tf.train.Checkpoint(model=module).write(str(tmp_path / "objects"))
    dumps = [read_checkpoint(Path(path)) for path in (by_name, old, objects)]
    for other in dumps[1:]:
        found = compare_checkpoints(dumps[0], other)
        assert found.counts["equal"] == 1
        assert not found.different
