"""Pairing by the user's names and scopes, and which variable a slot belongs to; TensorFlow names them itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compare.checkpoints import compare_checkpoints
from compare.variable_pairs import Side, without_scope
from compare.variable_slots import find_slots
from dumpers.formats.checkpoint import read_checkpoint
from dumpers.formats.object_graph import SavedVariable
from dumpers.records import Dump, TensorRecord
from tests.compare.test_checkpoints import checkpoint


def slots_of(names, shape=(2,), graph=None):
    records = {
        name: TensorRecord(name, "", "output", 0, "float32", shape if isinstance(names, list) else names[name], None)
        for name in names
    }
    return {name: tuple(slot) for name, slot in find_slots(records, graph or {}).items()}


def test_slots_by_name():
    assert slots_of(["net/w", "net/w/Adam", "net/w/Adam_1", "beta1_power"]) == {
        "net/w/Adam": ("Adam", "net/w"),
        "net/w/Adam_1": ("Adam_1", "net/w"),
    }
    assert slots_of(["dense/kernel", "training/Adam/dense/kernel/m", "Adam/v/dense/kernel"]) == {
        "training/Adam/dense/kernel/m": ("m", "dense/kernel"),
        "Adam/v/dense/kernel": ("v", "dense/kernel"),
    }
    assert slots_of(["seq/dense/kernel", "adam/seq_dense_kernel_velocity_hat", "adam/seq_dense_kernel_momentum"]) == {
        "adam/seq_dense_kernel_velocity_hat": ("velocity_hat", "seq/dense/kernel"),
        "adam/seq_dense_kernel_momentum": ("momentum", "seq/dense/kernel"),
    }
    variable = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert slots_of([f"model/w{variable}", f"model/w/.OPTIMIZER_SLOT/opt/m{variable}"]) == {
        f"model/w/.OPTIMIZER_SLOT/opt/m{variable}": ("m", f"model/w{variable}")
    }


def test_what_is_no_slot():
    assert slots_of(["m", "v", "w", "net/m", "a/b", "x_m"]) == {}
    assert slots_of({"w": (2, 3), "w/scale": (3,)}) == {}
    assert slots_of(["w/.OPTIMIZER_SLOT/opt/m/.ATTRIBUTES/VARIABLE_VALUE"]) == {}
    assert slots_of(["w", "w/a", "w/a/b"]) == {"w/a": ("a", "w")}


def test_the_object_graph_has_the_last_word():
    graph = {"a": SavedVariable("net/w"), "b": SavedVariable("x", "m", "net/w"), "c": SavedVariable("y", "v", "gone")}
    assert slots_of(["a", "b", "c"], graph=graph) == {"b": ("m", "a")}


def test_scopes_are_whole_words():
    assert without_scope("tower/w", ["tower"]) == "w"
    assert without_scope("tower/w", ["tower/"]) == "w"
    assert without_scope("tower_1/w", ["tower"]) == "tower_1/w"
    assert without_scope("tower", ["tower"]) == "tower"
    assert without_scope("b/w", ["a", "b", "b/w"]) == "w"


@pytest.fixture
def diff(tmp_path):
    def run(left, right, **options):
        sides = (checkpoint(tmp_path / "left-1", left), checkpoint(tmp_path / "right-1", right))
        return compare_checkpoints(*sides, **options)

    return run


def test_a_scope_on_one_side(diff):
    value = np.float32([1, 2])
    left = {"npu/dense/w": value, "npu/dense/b": value, "step": np.int64(3)}
    right = {"dense/w": value, "dense/b": value * 2, "step": np.int64(3)}
    without = diff(left, right)
    assert without.counts["missing on the right"] == without.counts["missing on the left"] == 2
    assert without.notes == ("2 names would meet without the scope npu: --strip npu",)
    found = diff(left, right, scopes=["npu"])
    assert found.notes == ()
    rows = {row.name: row for row in found.rows}
    assert (rows["npu/dense/w"].verdict, rows["npu/dense/b"].verdict) == ("equal", "values differ")
    assert rows["npu/dense/w"].note == "paired with dense/w, a scope taken away"
    assert not diff({"a/w": value}, {"b/w": value}, scopes=["a", "b"]).different


def test_an_equal_name_goes_before_a_scope_and_ambiguity_pairs_nothing(diff):
    value = np.float32([1, 2])
    found = diff({"s/w": value, "w": value * 2}, {"w": value * 2}, scopes=["s"])
    assert found.counts == {"equal": 1, "missing on the right": 1}
    found = diff({"a/w": value, "b/w": value}, {"w": value}, scopes=["a", "b"])
    assert found.counts == {"missing on the right": 2, "missing on the left": 1}


def test_the_users_pairs_go_first(diff):
    value = np.float32([1, 2])
    found = diff({"old": value, "w": value * 3}, {"w": value, "v": value * 3}, targets={"old": "w", "w": "v"})
    assert found.counts == {"equal": 2}
    found = diff({"old": value}, {"w": value}, targets={"old": "nowhere"})
    assert found.counts == {"missing on the right": 1, "missing on the left": 1}


def test_suspicion_sees_a_factor_that_the_cosine_does_not(diff):
    rng = np.random.default_rng(0)
    left = {f"w{n}": rng.standard_normal(100).astype(np.float32) for n in range(8)}
    right = {name: value + rng.standard_normal(100).astype(np.float32) * 0.01 for name, value in left.items()}
    left["w3"] = right["w3"] * np.float32(1.5)
    left["w5"] = right["w5"] + rng.standard_normal(100).astype(np.float32)
    left["w6"], right["w6"] = np.float32([1, np.nan]), np.float32([1, 2])
    found = diff(left, right)
    names = [row.name for row, _ in found.suspects]
    assert names[:3] == ["w6", "w3", "w5"]
    times = {row.name: value for row, value in found.suspects}
    assert times["w6"] is None
    assert times["w3"] > 20
    assert times["w5"] > 20
    assert all(0.5 < times[f"w{n}"] < 2 for n in (0, 1, 2, 4, 7))
    assert next(row for row in found.rows if row.name == "w3").cosine > 0.999999


def test_any_number_of_threads_gives_one_answer(diff):
    rng = np.random.default_rng(1)
    left = {f"w{n}": rng.standard_normal(50 * n + 1).astype(np.float32) for n in range(12)}
    right = {name: value + np.float32(0.1) for name, value in left.items()} | {"w3": left["w3"]}
    assert diff(left, right, threads=1).rows == diff(left, right, threads=2).rows == diff(left, right, threads=8).rows


def test_trusting_the_index_reads_nothing_that_is_equal(tmp_path):
    values = {"w": np.float32([1, 2, 3]), "words": [b"a", b"bc"], "v": np.float32([1, 2])}
    left = checkpoint(tmp_path / "left-1", values)
    right = checkpoint(tmp_path / "right-1", values | {"v": np.float32([1, 3])})
    data = Path(f"{tmp_path / 'left-1'}.data-00000-of-00001")
    data.write_bytes(b"\xff" * 4 + data.read_bytes()[4:])
    damaged = {row.name: row.verdict for row in compare_checkpoints(left, right).rows}
    assert damaged == {"w": "unreadable", "words": "equal", "v": "values differ"}
    trusted = {row.name: row for row in compare_checkpoints(left, right, trust_index=True).rows}
    assert {name: row.verdict for name, row in trusted.items()} == {
        "w": "equal",
        "words": "equal",
        "v": "values differ",
    }
    assert trusted["w"].reason == "equal by the checksums of both indexes; not read"
    assert trusted["w"].cosine is None


def test_damage_that_both_sides_share_is_found(tmp_path):
    """Both were copied from one damaged file: equal byte for byte, and still not what was saved."""
    values = {"w": np.arange(100_000, dtype=np.float32)}
    dumps = []
    for name in ("left-1", "right-1"):
        dumps.append(checkpoint(tmp_path / name, values))
        data = Path(f"{tmp_path / name}.data-00000-of-00001")
        data.write_bytes(data.read_bytes()[:-1] + b"\x7f")
    (row,) = compare_checkpoints(*dumps).rows
    assert row.verdict == "unreadable"
    assert row.reason.count("checksum") == 2


def test_tensorflow_names_its_slots(tmp_path):
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("net", partitioner=v1.fixed_size_partitioner(2)):
            w = v1.get_variable("w", [6, 2], initializer=v1.random_normal_initializer(seed=1))
        loss = v1.reduce_sum(tf.convert_to_tensor(w) ** 2)
        optimizers = (v1.train.AdamOptimizer(), v1.train.FtrlOptimizer(0.1), v1.train.MomentumOptimizer(0.1, 0.9))
        train = [optimizer.minimize(loss) for optimizer in optimizers]
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        first = saver.save(session, str(tmp_path / "model"), 0)
        session.run(train)
        second = saver.save(session, str(tmp_path / "model"), 1)
    dumps = [read_checkpoint(Path(path)) for path in (first, second)]
    found = compare_checkpoints(*dumps)
    rows = {row.name: row for row in found.rows}
    names = [f"net/w/{slot}" for slot in ("Adam", "Adam_1", "Ftrl", "Ftrl_1", "Momentum")]
    assert [row.name for row in found.slots["net/w"]] == names
    assert all(rows[name].slot_of == "net/w" for name in names)
    assert rows["beta1_power"].slot_of == rows["net/w"].slot_of == ""
    reader = [tf.train.load_checkpoint(path) for path in (first, second)]
    one, two = (side.get_tensor("net/w").astype(np.longdouble).ravel() for side in reader)
    assert rows["net/w"].cosine == pytest.approx(float(one @ two / np.sqrt((one @ one) * (two @ two))), abs=1e-12)
    assert rows["net/w"].left.shape == (6, 2)


def test_tensorflow_keras_slots(tmp_path):
    tf = pytest.importorskip("tensorflow")
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2, name="dense")])
    model.compile(tf.keras.optimizers.Adam(), "mse")
    model.train_on_batch(np.ones((4, 3)), np.ones((4, 2)))
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "keras"))
    side = Side(read_checkpoint(Path(path)))
    found = find_slots(side.records, side.graph)
    owners = {}
    for slot in found.values():
        owners.setdefault(side.full_name(slot.owner).rsplit("/", 1)[-1], set()).add(slot.name)
    assert owners in (
        {"kernel": {"m", "v"}, "bias": {"m", "v"}},
        {"kernel": {"momentum", "velocity"}, "bias": {"momentum", "velocity"}},
    )


def test_a_dump_without_records_has_no_slots():
    assert find_slots(Side(Dump(Path("x"), ())).records, {}) == {}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("size", [2, 70_000, 200_001])
def test_a_damaged_byte_is_found_wherever_it_is_and_whatever_differs(tmp_path, dtype, size):
    """Stored checksums of the two sides differ, so the values are summed; the damage must still be seen."""
    rng = np.random.default_rng(size)
    value = rng.integers(0, 2 if dtype == "bool" else 100, size).astype(dtype)
    other = value.copy()
    other[0] = 1 - value[0]
    right = checkpoint(tmp_path / "right-1", {"w": other})
    checkpoint(tmp_path / "left-1", {"w": value})
    data = Path(f"{tmp_path / 'left-1'}.data-00000-of-00001")
    good = data.read_bytes()
    found = compare_checkpoints(read_checkpoint(tmp_path / "left-1"), right)
    assert (found.rows[0].verdict, found.rows[0].figures.differing) == ("values differ", 1)
    for at in (0, len(good) // 2, len(good) - 1):
        data.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        for sides in ((read_checkpoint(tmp_path / "left-1"), right), (right, read_checkpoint(tmp_path / "left-1"))):
            (row,) = compare_checkpoints(*sides).rows
            assert row.verdict == "unreadable"
            assert row.reason.count("checksum") == 1


def test_an_interrupt_ends_a_large_variable(tmp_path):
    value = np.zeros(3_000_000, np.float32)
    value[0] = 1
    left = checkpoint(tmp_path / "left-1", {"a": np.float32([1]), "w": value})
    right = checkpoint(tmp_path / "right-1", {"a": np.float32([2]), "w": value * 2})

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_checkpoints(left, right, threads=2, progress=interrupt)
