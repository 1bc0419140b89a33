"""msprobe dumps: layouts and field names of its documentation, in both frameworks and both modes."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.msprobe import is_msprobe, msprobe_indexes, read_msprobe
from dumpers.formats.npy import write_npy
from dumpers.records import RecordedStatistics
from tests.dumpers.formats.test_torch_file import Storage, tensor, write

X = np.float32([[1, -2, 3], [4, 5, 6]])
GRAD = np.float32([[0.5, 0.25, 0]])


def leaf(array: np.ndarray | None = None, name: str = "", **fields: object) -> dict:
    made = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]}
    if array is not None:
        made |= {
            "dtype": f"torch.{array.dtype}", "shape": list(array.shape), "Max": float(array.max()),
            "Min": float(array.min()), "Mean": float(array.mean()), "Norm": float(np.linalg.norm(array)),
        }  # fmt: skip
    return made | {"requires_grad": True} | ({"data_name": name} if name else {}) | fields


def scalar(value: object) -> dict:
    return {"type": type(value).__name__, "value": value}


def save(folder: Path, data: dict, task: str = "statistics", **fields: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tree = {"task": task, "level": "mix", "framework": "pytorch", "dump_data_dir": "/elsewhere/dump"} | fields
    (folder / "dump.json").write_text(json.dumps(tree | {"data": data}, indent=1))
    (folder / "stack.json").write_text("{}")
    (folder / "construct.json").write_text("{}")
    return folder / "dump.json"


CALLS = {
    "Functional.conv2d.0.forward": {
        "input_args": [leaf(X), leaf(X + 1), None, [scalar(2), scalar(2)], scalar(1)],
        "input_kwargs": {"mask": leaf(X * 2), "inplace": scalar(True)},
        "is_recompute": False,
        "output": [leaf(X * 3)],
    },
    "Module.conv1.Conv2d.forward.0": {
        "input_args": [[leaf(X), [leaf(X)]]],
        "input_kwargs": {},
        "output": [leaf(X), {"aux": leaf(X)}],
        "parameters": {"weight": leaf(X), "bias": leaf(X)},
        "is_recompute": False,
    },
    "Module.conv1.Conv2d.parameters_grad.0": {"weight": [leaf(GRAD)], "bias": [leaf(GRAD)]},
    "Module.conv1.Conv2d.backward.0": {"input": [leaf(GRAD)], "output": [None, leaf(X)]},
}


def test_statistics_mode(tmp_path: Path):
    dump = read_msprobe(save(tmp_path / "step3" / "rank0", CALLS))
    assert list(dump.by_op) == list(CALLS)
    assert dump.problems == ()
    first = dump.records[0]
    assert (first.name, first.op_type, first.dtype, first.shape, first.step) == (
        "Functional.conv2d.0.forward:input:0", "conv2d", "float32", (2, 3), 3,
    )  # fmt: skip
    assert (first.source, first.note) == (None, "statistics only")
    assert first.statistics == RecordedStatistics(count=6, min=-2, max=6, mean=17 / 6, l2=math.sqrt(91)) or (
        first.statistics.min == -2 and first.statistics.l2 == pytest.approx(math.sqrt(91), rel=1e-6, abs=0)
    )
    with pytest.raises(DataError, match="statistics only"):
        first.load()


def test_slots_are_positions_and_the_note_has_the_way(tmp_path: Path):
    dump = read_msprobe(save(tmp_path, CALLS))
    places = [(r.name.removeprefix("Functional.conv2d.0.forward:"), r.note) for r in dump.records[:4]]
    assert places == [
        ("input:0", "statistics only"),
        ("input:1", "statistics only"),
        ("input:6", "input_kwargs.mask; statistics only"),
        ("output:0", "statistics only"),
    ]
    module = dump.by_op["Module.conv1.Conv2d.forward.0"]
    assert [(r.io, r.slot, r.note.split(";")[0]) for r in module] == [
        ("input", 0, "input_args[0][0]"), ("input", 1, "input_args[0][1][0]"), ("input", 2, "parameters.weight"),
        ("input", 3, "parameters.bias"), ("output", 0, "statistics only"), ("output", 1, "output[1].aux"),
    ]  # fmt: skip
    assert {r.op_type for r in module} == {"Conv2d"}
    grads = dump.by_op["Module.conv1.Conv2d.parameters_grad.0"]
    assert [(r.slot, r.note.split(";")[0]) for r in grads] == [(0, "weight[0]"), (1, "bias[0]")]
    assert {r.io for r in grads} == {"output"}
    backward = dump.by_op["Module.conv1.Conv2d.backward.0"]
    assert [(r.io, r.slot) for r in backward] == [("input", 0), ("output", 1)]


def test_tensor_mode_of_pytorch(tmp_path: Path):
    name = "Functional.relu.0.forward.input.0.pt"
    save(tmp_path, {"Functional.relu.0.forward": {"input_args": [leaf(X, name)], "output": [leaf(X)]}}, "tensor")
    (tmp_path / "dump_tensor_data").mkdir()
    write(tmp_path / "dump_tensor_data" / name, tensor(Storage(X), (2, 3)))
    (tmp_path / "dump_tensor_data" / "left_over.pt").write_bytes(b"")
    dump = read_msprobe(tmp_path)
    np.testing.assert_array_equal(dump.records[0].load(), X, strict=True)
    assert dump.records[0].statistics.max == 6
    assert [path.name for path in dump.ignored] == ["left_over.pt"]
    write(tmp_path / "dump_tensor_data" / name, tensor(Storage(X), (3, 2)))
    with pytest.raises(DataError, match=r"has shape \(3, 2\), its index says \(2, 3\)"):
        read_msprobe(tmp_path).records[0].load()


def test_tensor_mode_of_mindspore(tmp_path: Path):
    half = {"type": "mindspore.Tensor", "dtype": "BFloat16", "shape": [2, 3], "Max": 6, "md5": "0d5e51ab"}
    call = {
        "input_args": [half | {"data_name": "c.forward.0.input.0.npy"}],
        "output": [
            {"type": "mindspore.Tensor", "dtype": "Int64", "shape": [3], "data_name": "c.forward.0.output.0.npy"},
            {"type": "numpy.ndarray", "dtype": "float32", "shape": [2, 3], "Max": 1.0},
        ],
    }
    save(tmp_path, {"Cell.relu.ReLU.forward.0": call}, "tensor", framework="mindspore")
    (tmp_path / "dump_tensor_data").mkdir()
    write_npy(tmp_path / "dump_tensor_data/c.forward.0.input.0.npy", X)
    write_npy(tmp_path / "dump_tensor_data/c.forward.0.output.0.npy", np.arange(3))
    first, second, third = read_msprobe(tmp_path)
    assert (first.op_type, first.dtype) == ("ReLU", "float32")
    assert first.note == "crc32 0d5e51ab; was BFloat16 in the run, saved as float32"
    assert first.load().tolist() == X.tolist()
    assert (second.dtype, second.load().tolist()) == ("int64", [0, 1, 2])
    assert (third.slot, third.statistics.max, third.source) == (1, 1.0, None)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("torch.bfloat16", "bfloat16"), ("Float32", "float32"), ("Bool", "bool"), ("torch.half", "float16"),
        ("<dtype: 'float32'>", "float32"), ("<class 'numpy.int64'>", "int64"), ("mindspore.uint8", "uint8"),
        ("torch.complex64", "complex64"), ("object", "undefined"), ("torch.quint8", "undefined"), ("", "undefined"),
        ("x" * 5000, "undefined"), ("torch.bool_", "bool"),
    ],
)  # fmt: skip
def test_names_of_dtypes(tmp_path: Path, text: str, dtype: str):
    (record,) = read_msprobe(save(tmp_path, {"a": {"output": [leaf(dtype=text)]}}))
    assert record.dtype == dtype
    assert ("dtype" in record.note) == (dtype == "undefined")


@pytest.mark.parametrize(
    ("written", "value"),
    [(1, 1.0), (True, 1.0), ("1.5", 1.5), (float("nan"), math.nan), ("nan", math.nan), ("N/A", None), (None, None),
     (10**400, math.inf), (-(10**400), -math.inf), ([1], None)],
)  # fmt: skip
def test_figures_as_they_are_written(tmp_path: Path, written: object, value: float | None):
    (record,) = read_msprobe(save(tmp_path, {"a": {"output": [leaf(Max=written, Min=0)]}}))
    assert record.statistics.min == 0
    np.testing.assert_equal(record.statistics.max, value)


def test_steps_and_ranks_are_told_apart(tmp_path: Path):
    for step in (10, 2):
        for rank in ("rank0", "rank1"):
            save(tmp_path / f"step{step}" / rank, {f"call_{step}_{rank}": {"output": [leaf(X)]}})
    dump = read_msprobe(tmp_path)
    assert [record.op for record in dump] == ["call_2_rank0"]
    assert dump.records[0].step == 2
    assert dump.path == tmp_path / "step2" / "rank0"
    assert [path.parent.relative_to(tmp_path).as_posix() for path in dump.ignored] == [
        "step2/rank1", "step10/rank0", "step10/rank1",
    ]  # fmt: skip
    assert len(msprobe_indexes(tmp_path)) == 4
    assert read_msprobe(tmp_path / "step10" / "rank1").records[0].op == "call_10_rank1"
    assert all(is_msprobe(path) for path in (tmp_path, tmp_path / "step2/rank0", tmp_path / "step2/rank0/dump.json"))
    assert not is_msprobe(tmp_path / "step2/rank0/stack.json")
    assert not is_msprobe(tmp_path / "nowhere")


def test_single_values_of_debug_json(tmp_path: Path):
    tree = {"task": "statistics", "level": "debug", "dump_data_dir": None, "data": {"loss.0.debug": leaf(X)}}
    (tmp_path / "debug.json").write_text(json.dumps(tree))
    (record,) = read_msprobe(tmp_path)
    assert (record.name, record.note) == ("loss.0.debug:output:0", "statistics only")


def test_names_of_files_are_not_trusted(tmp_path: Path):
    outside = tmp_path / "secret.npy"
    write_npy(outside, X)
    folder = tmp_path / "dump"
    names = ["../../secret.npy", str(outside), "..", "a\\b.npy", "gone.npy", "link.npy", "x.txt", "bad.npy", 7, ""]
    save(folder, {"call": {"output": [leaf(X, data_name=name) for name in names]}}, "tensor")
    tensors = folder / "dump_tensor_data"
    tensors.mkdir()
    (tensors / "link.npy").symlink_to(outside)
    (tensors / "x.txt").write_text("")
    (tensors / "bad.npy").write_bytes(b"\x93NUMPY")
    dump = read_msprobe(folder)
    assert [record.source for record in dump] == [None] * len(names)
    reasons = [problem.reason for problem in dump.problems]
    assert len(reasons) == len(names)
    assert [sum(word in reason for reason in reasons) for word in ("no plain file name", "not in dump_", "leads out")] \
        == [6, 1, 1]  # fmt: skip
    assert "neither .pt nor .npy" in reasons[6]
    assert "bad.npy: is not an npy file" in reasons[7]
    inside = tensors / "real.npy"
    write_npy(inside, X)
    (tensors / "link.npy").unlink()
    (tensors / "link.npy").symlink_to(inside)
    assert read_msprobe(folder).records[5].load().tolist() == X.tolist()


def test_one_bad_leaf_spoils_only_itself(tmp_path: Path):
    deep: object = leaf(X)
    for _ in range(300):
        deep = [deep]
    shapes = [[-1], [True], "x", ["2"], [1 << 62, 1 << 62], [1] * 40, {"a": 1}]
    data = {
        "bad": {"output": [leaf(shape=shape) for shape in shapes]},
        "deep": {"output": deep},
        "odd": 7,
        "none": None,
    }
    dump = read_msprobe(save(tmp_path, data | {"good": {"output": [leaf(X)]}}))
    assert [record.op for record in dump if record.op != "bad"] == ["good"]
    assert len(dump.problems) == len(shapes)  # "x" gives an empty shape; the deep call is one problem
    assert any("nested deeper" in problem.reason for problem in dump.problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not whole JSON"), ("[1]", "holds a list"), ("{}", "has no data"), ('{"data": []}', "has no data"),
        ("[" * 100_000, "not whole JSON"), ('{"data": {"a": ' + "9" * 5000 + "}}", "not whole JSON"),
        ("\ufeff{", "not whole JSON"),
    ],
)  # fmt: skip
def test_files_that_are_no_dump(tmp_path: Path, text: str, message: str):
    (tmp_path / "dump.json").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_msprobe(tmp_path)
    assert str(tmp_path / "dump.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_without_one(tmp_path: Path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError):
            read_msprobe(path)


def test_fuzz(tmp_path: Path):
    raw = save(tmp_path, CALLS).read_bytes()
    rng = random.Random(5)
    said: list[str] = []
    ends = time.monotonic() + 1
    cuts = list(range(0, len(raw), 37))
    while time.monotonic() < ends:
        changed = bytearray(raw[: cuts.pop()] if cuts else raw)
        for _ in range(rng.choice((1, 2, 6)) if changed else 0):
            changed[rng.randrange(len(changed))] = rng.choice(b'0123456789-{}[]",:xe. ')
        (tmp_path / "dump.json").write_bytes(changed)
        try:
            assert all(record.source is None for record in read_msprobe(tmp_path))
        except DataError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in text for text in said)
