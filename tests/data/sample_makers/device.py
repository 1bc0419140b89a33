"""Device dump files, their statistics and overflow records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sample_makers import wire as sb
from sample_makers.expect import LEAF, TIME, Expected, f32, tensor


def npu_dump(folder: Path) -> Expected:
    """Current five-field names; one op with the name in its header, one without."""
    leaf = folder / LEAF
    leaf.mkdir(parents=True)
    x, w, y = f32(2, 3), f32(3, 2, start=10), np.array([[1.5, np.nan], [np.inf, -0.0]], np.float32)
    name = f"MatMulV2.net_fc_MatMul.3.1.{TIME + 3}"
    of = sb.Stored.of
    (leaf / name).write_bytes(sb.dump_file("net/fc/MatMul", [of(x), of(w)], [of(y)]))
    ids, empty = np.array([7, -1], np.int64), np.zeros((0, 4), np.float32)
    (leaf / f"Identity.ids.4.1.{TIME + 4}").write_bytes(
        sb.dump_file("", [of(ids)], [of(empty), of(np.float32(3.5).reshape(()))])
    )
    fc = "net/fc/MatMul"
    return {
        f"{fc}:input:0": tensor(x),
        f"{fc}:input:1": tensor(w),
        f"{fc}:output:0": tensor(y),
        "ids:input:0": tensor(ids),
        "ids:output:0": tensor(empty),
        "ids:output:1": tensor(np.array(3.5, np.float32)),
    }


def npu_old_names(folder: Path) -> Expected:
    """Four-field names without a stream, and the very old form with the bytes inside the message."""
    leaf = folder / LEAF
    leaf.mkdir(parents=True)
    x, y = f32(4), np.array([2, 4], np.int32)
    (leaf / f"Relu.relu_1.5.{TIME + 5}").write_bytes(sb.dump_file("", [], [sb.Stored.of(x)]))
    (leaf / f"Cast.cast_1.6.{TIME + 6}").write_bytes(sb.old_dump_file([sb.Stored.of(x)], [sb.Stored.of(y)]))
    return {"relu_1:output:0": tensor(x), "cast_1:input:0": tensor(x), "cast_1:output:0": tensor(y)}


def npu_ffts(folder: Path) -> Expected:
    """Nine-field names: two threads of one op, the rows of its output cut between them."""
    leaf = folder / LEAF
    leaf.mkdir(parents=True)
    whole = f32(4, 3)
    cuts = [[[[{"lower": low, "higher": low + 2}, {"lower": 0, "higher": 3}]] for low in (0, 2)]]
    slices = {
        "threadMode": 1,
        "slice_instance_num": 2,
        "outputCutList": [[2, 1]],
        "input_tensor_slice": [],
        "output_tensor_slice": cuts[0],
    }
    for thread in range(2):
        part = whole[2 * thread : 2 * thread + 2]
        raw = sb.dump_file("net/mm", [], [sb.Stored.of(part)], [("_sgt_json_info", json.dumps(slices))])
        (leaf / f"MatMulV2.net_mm.7.2.{TIME + 7 + thread}.4.0.{thread}.0").write_bytes(raw)
    return {"net/mm:output:0": tensor(whole)}


def npu_low_precision(folder: Path) -> Expected:
    """Types that NumPy lacks. Values by the rules of the formats, not by a library."""
    leaf = folder / LEAF
    leaf.mkdir(parents=True)
    bf16 = np.array([0x0000, 0x3F80, 0xC020, 0x7F80, 0x7FC0], np.uint16)
    packed = bytes([0x21, 0xF8])  # low nibble first: 1, 2, -8, -1
    cases = {
        "bfloat16": (bf16.tobytes(), sb.BFLOAT16, [0, 1, -2.5, np.inf, np.nan]),
        "float8_e5m2": (
            bytes([0x00, 0x3C, 0xBC, 0x7B, 0x7C, 0xFC]),
            sb.FLOAT8_E5M2,
            [0, 1, -1, 57344, np.inf, -np.inf],
        ),
        "float8_e4m3fn": (
            bytes([0x00, 0x38, 0xB8, 0x7E, 0x7F, 0x01]),
            sb.FLOAT8_E4M3FN,
            [0, 1, -1, 448, np.nan, 2**-9],
        ),
    }
    expected: Expected = {}
    outputs = []
    for slot, (dtype, (raw, number, values)) in enumerate(cases.items()):
        outputs.append(sb.Stored(raw, number, (len(values),)))
        expected[f"odd:output:{slot}"] = tensor(np.array(values, np.float64), dtype)
    outputs.append(sb.Stored(packed, sb.INT4, (4,)))
    expected["odd:output:3"] = tensor(np.array([1, 2, -8, -1], np.int8))
    hif8 = [0, 1, 1.5, 2, 0.5, 16, 256, np.inf, np.nan, -1]
    codes = bytes([0x00, 0x08, 0x0C, 0x10, 0x18, 0x40, 0x60, 0x6F, 0x80, 0x88])
    outputs.append(sb.Stored(codes, sb.HIFLOAT8, (len(codes),)))
    expected["odd:output:4"] = tensor(np.array(hif8, np.float32))
    (leaf / f"Custom.odd.8.1.{TIME + 8}").write_bytes(sb.dump_file("odd", [], outputs))
    return expected


def _nc1hwc0(nchw: np.ndarray, c0: int = 16) -> np.ndarray:
    n, c, h, w = nchw.shape
    stored = np.zeros((n, -(-c // c0), h, w, c0), nchw.dtype)
    for channel in range(c):
        stored[:, channel // c0, :, :, channel % c0] = nchw[:, channel]
    return stored


def _nz(matrix: np.ndarray) -> np.ndarray:
    rows, columns = matrix.shape
    stored = np.zeros((-(-columns // 16), -(-rows // 16), 16, 16), matrix.dtype)
    for row, column in np.ndindex(rows, columns):
        stored[column // 16, row // 16, row % 16, column % 16] = matrix[row, column]
    return stored


def _fractal_z(hwcn: np.ndarray) -> np.ndarray:
    h, w, c, n = hwcn.shape
    stored = np.zeros((-(-c // 16) * h * w, -(-n // 16), 16, 16), hwcn.dtype)
    for y, x, channel, filter_ in np.ndindex(h, w, c, n):
        stored[(channel // 16 * h + y) * w + x, filter_ // 16, filter_ % 16, channel % 16] = hwcn[
            y, x, channel, filter_
        ]
    return stored


def npu_layouts(folder: Path) -> Expected:
    """Private layouts with padding; element by element, so that no reshape trick is shared with the reader."""
    leaf = folder / LEAF
    leaf.mkdir(parents=True)
    five, matrix, kernel = f32(1, 3, 2, 5), f32(5, 20).astype(np.float16), f32(2, 1, 3, 5)
    volume = np.stack([_nc1hwc0(f32(1, 3, 2, 4, start=100 * d)) for d in range(2)], axis=1)
    of = sb.Stored.of
    outputs = {
        "five": (of(_nc1hwc0(five), sb.NC1HWC0, five.shape), five),
        "matrix": (of(_nz(matrix), sb.FRACTAL_NZ, matrix.shape), matrix),
        "kernel": (of(_fractal_z(kernel), sb.FRACTAL_Z, kernel.shape), kernel),
        "volume": (
            of(volume, sb.NDC1HWC0, (1, 3, 2, 2, 4)),
            np.stack([f32(1, 3, 2, 4, start=100 * d) for d in range(2)], axis=2),
        ),
    }
    expected: Expected = {}
    for task, (name, (stored, plain)) in enumerate(outputs.items(), 10):
        (leaf / f"TransData.{name}.{task}.1.{TIME + task}").write_bytes(sb.dump_file(name, [], [stored]))
        expected[f"{name}:output:0"] = tensor(plain, original=True)
    return expected


def npu_hashed(folder: Path) -> Expected:
    """A name too long for a file system: digits, and mapping.csv beside them."""
    leaf = folder / LEAF
    leaf.mkdir(parents=True)
    long = "tower_" + "x" * 250
    x = f32(3)
    (leaf / "12345678901234567890").write_bytes(sb.dump_file("", [], [sb.Stored.of(x)]))
    (leaf / "mapping.csv").write_text(f"12345678901234567890,Relu.{long}.9.1.{TIME + 9}\n")
    return {f"{long}:output:0": tensor(x)}


def npu_statistics(folder: Path) -> Expected:
    """The device's own statistics instead of the data."""
    leaf = folder / LEAF
    leaf.mkdir(parents=True)
    header = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
    header += "Negative Inf Count,Positive Inf Count\n"
    rows = "Input,0,24,DT_FLOAT,ND,2x3,5.5,-1,2.25,6,0,0,0\nOutput,0,8,DT_FLOAT16,ND,4,,,,4,1,0,2\n"
    (leaf / f"Relu.relu_2.3.1.{TIME}.csv").write_text(header + rows)
    first = {"count": 6, "nan": 0, "pos_inf": 0, "neg_inf": 0, "min": -1.0, "max": 5.5, "mean": 2.25}
    second = {"count": 4, "nan": 1, "pos_inf": 2, "neg_inf": 0, "min": None, "max": None, "mean": None}
    return {
        "relu_2:input:0": {"dtype": "float32", "shape": [2, 3], "statistics": first},
        "relu_2:output:0": {"dtype": "float16", "shape": [4], "statistics": second},
    }


def overflow(folder: Path) -> Expected:
    """Overflow records of both generations, and the converter's JSON of one."""
    folder.mkdir(parents=True)
    cases = {33: sb.overflow_old(0x20, 327, 8), 34: sb.overflow_new(0x20, 327, 8)}
    for task, raw in cases.items():
        stored = sb.Stored(raw, 4, (len(raw),))
        (folder / f"Opdebug.Node_OpDebug.{task}.{TIME + task}").write_bytes(sb.dump_file("", [], [stored]))
    data = {"model_id": 1, "stream_id": 8, "task_id": 327, "task_type": 0, "context_id": 65535, "thread_id": 65535}
    data |= {"pc_start": "0x1000", "para_base": "0x2000", "core_id": 3, "block_id": 0, "status": 32}
    accelerator = {"valid": 1, "acc_type": "AIV", "rsv": 0, "data_len": 88, "data": data}
    text = json.dumps({"magic": "0x5a5a5a5a", "version": 0, "acc_list": accelerator})
    (folder / f"Opdebug.Node_OpDebug.34.{TIME + 34}.output.0.json").write_text(text)
    return {"task_id": 327, "stream_id": 8, "status": 32, "units": ["AI Core", "AIV"]}
