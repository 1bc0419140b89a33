"""Hostile device files, device graphs and reports."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from tests.data.sample_makers.wire import FLOAT, Stored, attr, dump_file, field, message, om_container, shape
from tests.fuzzing.hostile_basics import MANY, NESTED_JSON, ODD_NAMES, Cases, Place, csv_rows, json_texts, put

LEAF = "20240125153144/0/ge_default_20240125153144_1/1/0"
NAME = "Relu.evil.9.1.1706168000000099"
_FILE_NAMES = (
    "Relu.a\nb.9.1.1706168000000099",
    "Relu.\x1b[2J.9.1.1706168000000099",
    os.fsdecode(b"Relu.\xff\xfe.9.1.1706168000000099"),
    f"Relu.{'x' * 220}.9.1.1706168000000099",
    f"Relu.a.{'9' * 200}.1.1706168000000099",
    f"Relu.a.9.1.{'9' * 240}",
    "Relu.a.².1.1706168000000099",
    "9" * 250,
    "Relu.a.9.1.1706168000000099.input.99999999999999999999.npy",
    ".9.1.1706168000000099",
    "Relu..9.1.1706168000000099",
    "-rf",
)


def _dump(tensor: Stored, attrs: tuple[tuple[str, str], ...] = (), name: str = "evil") -> Place:
    return put(f"{LEAF}/{NAME}", dump_file(name, [], [tensor], attrs))


def _stored(dims: tuple[int, ...], dtype: int = FLOAT, **more: object) -> Stored:
    return Stored(b"\1" * 64, dtype, dims, **more)  # type: ignore[arg-type]


def npu_cases() -> Cases:
    for length in (0, 1 << 31, (1 << 63) - 1, (1 << 64) - 1):
        yield f"header of {length} bytes", put(f"{LEAF}/{NAME}", struct.pack("<Q", length) + b"\x0a\x032.0" * 20)
    shapes = {
        "negative": ((1 << 64) - 1, 4),
        "product that wraps to 0": (1 << 32, 1 << 32),
        "bytes that wrap to 0": (MANY, 4),
        "empty and huge": (0, (1 << 63) - 1),
        "too many dimensions": (1,) * 200,
        "huge": (1 << 40,),
    }
    for text, dims in shapes.items():
        for dtype in (FLOAT, 28, 29, 32, 33, 0):
            yield f"shape {text}, type {dtype}", _dump(_stored(dims, dtype))
    for size in (1, 1 << 31, 1 << 62, (1 << 64) - 1):
        yield f"size {size}", _dump(_stored((16,), size=size))
        yield f"undefined of size {size}", _dump(_stored((16,), 0, size=size))
    for number in (13, 23, 42, 99, 1 << 31, (1 << 64) - 1):
        yield f"type {number}", _dump(_stored((16,), number))
    yield from _layout_cases()
    for name in _FILE_NAMES:
        yield f"file {name[:30]!r}", put(f"{LEAF}/{name}", dump_file("", [], [_stored((16,))]))
    for name in ODD_NAMES:
        yield f"op named {name[:9]!r}", _dump(_stored((16,)), name=name)
        yield f"mapping to {name[:9]!r}", _mapping(name)


def _layout_cases() -> Cases:
    for layout in (3, 4, 25, 29, 32, 33, 39, 77, 255, 3 | 255 << 8, 4 | 7 << 20):
        for dims in ((1, 1, 1, 1, 16), (1, 1, 4, 4), (1, 1, 1, 1, 1, 16), (0, 0, 0, 0, 0)):
            for original in ((1, 1, 1, 16), (1 << 33, 1 << 33), (0, 0, 0, 0), (16,), ((1 << 64) - 1,) * 4):
                yield f"layout {layout} {dims} of {original}", _dump(_stored(dims, format=layout, original=original))


def _mapping(full: str) -> Place:
    def place(folder: Path) -> Path:
        path = folder / LEAF / "mapping.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'77777777777777,"{full}"\n')
        (path.parent / "77777777777777").write_bytes(dump_file("", [], [_stored((16,))]))
        return path

    return place


def slices_cases() -> Cases:
    plain = {"threadMode": 1, "slice_instance_num": 2, "outputCutList": [[2, 1]]}
    bounds = [
        [[[{"lower": 0, "higher": 1 << 60}]]] * 2,
        [[[{"lower": -5, "higher": -9}]]],
        [[]],
        [],
        {},
        None,
        "x",
        [[[5]]],
    ]
    texts = [json.dumps({**plain, "output_tensor_slice": bound, "input_tensor_slice": bound}) for bound in bounds]
    texts += [json.dumps({**plain, "slice_instance_num": 1 << 40}), "[" * 900, "{", "null", '{"threadMode":1e999}']
    for number, text in enumerate(texts):
        for thread in (0, 1 << 40):
            content = dump_file("net/mm", [], [_stored((4, 4))], [("_sgt_json_info", text)])
            name = f"MatMulV2.net_mm.7.2.1706168000000009.4.0.{thread}.0"
            yield f"slices {number} of thread {thread}", put(f"{LEAF}/{name}", content)


def ge_json_cases() -> Cases:
    ops: list[object] = [{"name": name, "type": "Relu", "input": [name]} for name in ODD_NAMES]
    ops += [
        {"name": 5},
        None,
        "x",
        [],
        {"name": "a", "input": 7},
        {"name": "b", "output_desc": [{"shape": {"dim": ["x"]}}]},
    ]
    ops += [{"name": "c", "output_desc": [{"shape": {"dim": [1 << 70]}, "dtype": "DT_NO"}]}, {"name": "d", "attr": [5]}]
    ops += [{"name": "e", "attr": [{"key": "k", "value": {"f": "1e999", "i": 1 << 80, "list": {"val_type": "VT_NO"}}}]}]
    for number, op in enumerate(ops):
        text = json.dumps({"name": "m", "graph": [{"name": "g", "op": [op]}]}).encode()
        yield f"op {number}", put("model.json", text)
    for number, text in enumerate(
        (NESTED_JSON, b'{"graph":' * 110, b'{"graph":[{"op":' * 60, b"1e999", b'"x"', b"\xff\xfe", b"{}")
    ):
        yield f"text {number}", put("model.json", text)


def om_cases() -> Cases:
    for count in (0, 64, 65, (1 << 32) - 1):
        yield f"{count} partitions", put("sample.om", b"IMOD" + struct.pack("<I", 8) + struct.pack("<I", count) * 40)
    for header in (0, 255, (1 << 32) - 1):
        yield f"header at {header}", put("sample.om", b"IMOD" + struct.pack("<I", header) + b"\1" * 300)
    for offset, size in ((-1, 8), (0, MANY), (1 << 40, 8), (0, -8), (4, 8), ((1 << 63) - 1, (1 << 63) - 1)):
        for dims in ((2,), (MANY, 4), (-2,), (0, MANY)):
            descriptor = message((2, FLOAT), (3, shape(dims)), (4, "ND"), (11, size), (18, offset))
            const = message((1, "c"), (2, "Const"), attr("value", field(12, field(1, descriptor))))
            model = message((1, "m"), (7, message((1, "g"), (6, const))))
            yield f"weights at {offset}, {size} bytes, {dims}", put("sample.om", om_container(model, b"\1" * 8)[:1024])


def statistics_cases() -> Cases:
    header = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count"
    rows = (
        "Input,-1,24,DT_FLOAT,ND,2x3,5,1,2,6,0",
        "Neither,0,24,DT_FLOAT,ND,2x3,5,1,2,6,0",
        "Input,0,24,DT_NO,NO,-2x3,x,y,z,1e999,-1",
        f"Input,0,24,DT_FLOAT,ND,{'9' * 500},1e999,-inf,nan,{'9' * 90},0",
        f"Output,{'9' * 700},24,DT_FLOAT,ND,-,,,,,",
        "Output,²,²,DT_FLOAT,ND,²x²,²,²,²,²,²",
    )
    yield from csv_rows(f"{LEAF}/Relu.relu_2.3.1.1706168000000000.csv", header, rows)


def result_csv_cases() -> Cases:
    header = "Index,LeftOp,RightOp,TensorIndex,CosineSimilarity,MaxAbsoluteError"
    rows = (
        "x,a,b,c,d,e",
        "-1,a,b,a:output:0,nan,inf",
        f"{'9' * 500},a,b,a:output:0,1e999,-1e999",
        "1,a,b,:::::,0.5,0.5",
    )
    yield from csv_rows("result_20210101000000.csv", header, rows)
    yield "no header", put("result_20210101000000.csv", b"\0\1\2\3" * 100)


def fusion_cases() -> Cases:
    times: list[object] = ["x", "-1", "1e999", "9" * 500, 5, None, [], {}]
    yield from json_texts(
        "fusion_result_1.json",
        *(
            {"graphId": "1", "sessionId": "0", "graph_fusion": {"P": {"effect_times": time, "match_times": time}}}
            for time in times
        ),
        {"graphId": [], "graph_fusion": 5},
        {"session_and_graph_id": 7, "ub_fusion": {"P": 5}},
        {"session_and_graph_id_0_21": [1]},
    )
    yield "objects without end", put("fusion_result_1.json", b"{}" * 400 + b"{")


def switches_cases() -> Cases:
    trees = (
        {"Switch": 5},
        {"Switch": {"GraphFusion": 5}},
        {"Switch": {"GraphFusion": {"A": "maybe", "B": 1, "C": None}}},
        {"a": 1},
    )
    yield from json_texts("fusion_switch.cfg", *trees)


def overflow_cases() -> Cases:
    data: dict[str, object] = {"task_id": "x", "stream_id": -1, "status": 1 << 80}
    trees: list[object] = [
        {"magic": "x", "version": "y", "acc_list": {"data": data, "acc_type": "NO"}},
        {"AI Core": data},
    ]
    trees += [{"AI Core": 5}, {"acc_list": []}, {"AI Core": {"status": "0xzz", "task_id": 1e300, "stream_id": None}}]
    yield from json_texts("Opdebug.Node_OpDebug.34.1706168000000034.output.0.json", *trees)
    for count, version in ((0, 0), ((1 << 32) - 1, 1), (88, 7)):
        raw = struct.pack("<6I", 0x5A5A5A5A, version, 1, count % 9, 0, count) + b"\1" * 120
        content = dump_file("", [], [Stored(raw, 4, (len(raw),))])
        yield f"record of {count} bytes", put("Opdebug.Node_OpDebug.34.1706168000000034", content)
