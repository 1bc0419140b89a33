"""Compiled models: the container's table in both forms, damaged ones, and the constants against the original graph."""

from __future__ import annotations

import pickle
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.ge_graph import read_ge_graphs, read_ge_model
from dumpers.formats.ge_model import om_constants, partitions, weight_bytes
from dumpers.formats.layouts import load_original
from dumpers.formats.schema import ge_message
from dumpers.formats.tf_graph import graph_from_bytes
from dumpers.formats.tf_tensor import proto_array

CONSTANTS = {
    # name: layout, stored shape, original layout and shape, offset and bytes in the partition, constant of hh.pb
    "dynamic_const_5478_34": ("FRACTAL_Z", (25, 1, 16, 16), "HWCN", (5, 5, 1, 16), 512, 12800, "recognition/d_h1/w"),
    "dynamic_const_5478_33": ("FRACTAL_Z", (25, 2, 16, 16), "HWCN", (5, 5, 16, 32), 13312, 25600, "recognition/d_h2/w"),
    "dynamic_const_5478_32": (
        "FRACTAL_NZ", (2, 98, 16, 16), "ND", (1568, 20), 38912, 100352, "recognition/w_mean/Matrix",
    ),
    "dynamic_const_5478_31": (
        "FRACTAL_NZ", (2, 98, 16, 16), "ND", (1568, 20), 139264, 100352, "recognition/w_stddev/Matrix",
    ),
    "dynamic_const_5478_30": (
        "FRACTAL_NZ", (98, 2, 16, 16), "ND", (20, 1568), 239616, 100352, "generation/z_matrix/Matrix",
    ),
    "dynamic_const_5478_29": ("FRACTAL_Z", (25, 2, 16, 16), "HWCN", (5, 5, 16, 32), 339968, 25600, "generation/g_h1/w"),
    "dynamic_const_5478_28": ("FRACTAL_Z", (25, 1, 16, 16), "HWCN", (5, 5, 1, 16), 365568, 12800, "generation/g_h2/w"),
    "dynamic_const_5478_22": ("NHWC", (16,), "NHWC", (16,), 380416, 32, "recognition/d_h1/b"),
    "dynamic_const_5478_14": ("ND", (1568,), "ND", (1568,), 382464, 3136, "generation/z_matrix/bias"),
}  # fmt: skip


def test_constants_are_those_of_the_original_graph(shared_data: Path):
    folder = shared_data / "npu_samples/vae_om"
    nodes = {node.name.decode(): node for node in graph_from_bytes((folder / "hh.pb").read_bytes()).node}
    records = {record.op: record for record in om_constants(folder / "hh_om.om")}
    assert len(records) == 17
    for name, (layout, stored, original_layout, shape, offset, size, of) in CONSTANTS.items():
        record = records[name]
        assert (record.format, record.shape, record.original_shape) == (layout, stored, shape)
        assert (record.dtype, record.io, record.slot, record.device, record.op_type) == (
            "float16", "output", 0, "npu", "Const",
        )  # fmt: skip
        assert (record.source.layout, record.source.offset) == (original_layout, 308 + 154630 + offset)
        assert record.load().nbytes == size
        value = next(entry.value.tensor for entry in nodes[of].attr if entry.key == b"value")
        wanted = proto_array(value).astype(np.float16)
        assert load_original(record).tobytes() == wanted.tobytes(), name
        assert load_original(record).shape == wanted.shape
    assert records["random_normal/shape"].load().tolist() == [100, 20]
    assert records["dynamic_const_5478_27"].load().shape == ()


def test_records_hold_no_array(shared_data: Path):
    records = om_constants(shared_data / "npu_samples/vae_om/hh_om.om")
    assert len(pickle.dumps(records)) < 20_000


def test_partitions_of_the_real_model(shared_data: Path):
    raw = (shared_data / "npu_samples/vae_om/hh_om.om").read_bytes()
    found = [(part.kind, part.start - 308, part.end - part.start) for part in partitions(raw)]
    assert found == [(0, 0, 154630), (1, 154630, 386560), (3, 541190, 64667), (2, 605857, 12828)]
    assert len(weight_bytes(raw)) == 386560


def model(offset: int = 0, size: int = 8, data: bytes = b"", *, shape: tuple[int, ...] = (2,), dtype: int = 1) -> bytes:
    message = ge_message()
    graph = message.graph.add(name=b"g")
    constant = graph.op.add(name=b"w", type=b"Const")
    value = constant.attr.add(key=b"value").value.t
    value.desc.dtype, value.desc.layout = dtype, b"ND"
    value.desc.shape.dim.extend(shape)
    value.desc.weight_size, value.desc.data_offset = size, offset
    value.data = data
    graph.op.add(name=b"empty", type=b"Const")
    graph.op.add(name=b"f", type=b"FileConstant")
    graph.op.add(name=b"x", type=b"Data").attr.add(key=b"value").value.i = 3
    return message.SerializeToString()


def container(graph: bytes, weights: bytes, *, wide: bool, header: int = 256, table: bytes | None = None) -> bytes:
    entry = "<I4xQQ" if wide else "<III"
    rows = struct.pack(entry, 0, 0, len(graph)) + struct.pack(entry, 1, len(graph), len(weights))
    content = struct.pack("<I4x" if wide else "<I", 2) + rows if table is None else table
    payload = content + graph + weights
    start = b"IMOD" + struct.pack("<II", header, 0x10000000)
    return (start.ljust(76, b"\0") + struct.pack("<I", len(payload))).ljust(header, b"\0") + payload


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("header", [256, 320])
def test_both_forms_of_the_table(tmp_path: Path, wide: bool, header: int):
    weights = np.array([1.5, -2, 7], np.float32).tobytes()
    (tmp_path / "m.om").write_bytes(container(model(offset=4), weights, wide=wide, header=header))
    assert list(read_ge_model(tmp_path / "m.om").ops) == ["w", "empty", "f", "x"]
    records = om_constants(tmp_path / "m.om")
    assert [record.op for record in records] == ["w", "empty", "f"]
    assert records[0].load().tolist() == [-2, 7]
    assert [record.note for record in records] == [
        "", "the graph has no value for it", "its value lies in a file of its own",
    ]  # fmt: skip
    with pytest.raises(DataError, match="empty:output:0 has no value: the graph has no value for it"):
        records[1].load()


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ({"offset": 5}, "bytes 5 to 13 of a weights partition of 12"),
        ({"offset": -1}, "bytes -1 to 7 of a weights partition of 12"),
        ({"offset": 1 << 62, "size": 1 << 62}, "of a weights partition of 12"),
        ({"size": 7}, "8 bytes of float32 [2] in a constant of 7"),
        ({"shape": (1 << 40, 1 << 40), "size": 12}, "impossible shape"),
        ({"shape": (-1,)}, "negative dimension"),
        ({"dtype": 13}, "type string has no values to read"),
        ({"dtype": 4711}, "type type_4711 has no values to read"),
        ({"data": b"12345678"}, "its bytes stand in the graph"),
    ],
)
def test_constants_that_cannot_be_read(tmp_path: Path, arguments: dict, note: str):  # type: ignore[type-arg]
    (tmp_path / "m.om").write_bytes(container(model(**arguments), bytes(12), wide=False))
    record = om_constants(tmp_path / "m.om")[0]
    assert record.source is None
    assert note in record.note


def _table(count: int, *entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", count) + b"".join(struct.pack("<III", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"IMOD", "ends at byte 4, inside the .om header"),
        (b"IMOD".ljust(300, b"\xff"), "states a header of 4294967295 bytes at byte 4 of 300"),
        (container(b"", b"", wide=False, table=struct.pack("<I", 0xFFFFFFFF)), "a table of 4294967295 partitions"),
        (container(b"", b"", wide=False, table=struct.pack("<I", 0)), "a table of 0 partitions"),
        (container(b"", b"", wide=False, table=struct.pack("<I", 60)), "does not fit the file of 260 bytes"),
        (container(b"", b"", wide=False, table=_table(1, (0, 0, 1 << 31))), "partition 0 reaches to byte .* of 272"),
        (container(b"", b"", wide=False, table=_table(1, (0, 0xFFFFFFFF, 0xFFFFFFFF))), "reaches to byte|does not fit"),
        (container(b"", b"", wide=False, table=_table(2, (0, 0, 0), (0, 0, 0))), "does not fit"),
        (container(b"", b"", wide=False, table=_table(1, (2, 0, 0))), "has no partition 0"),
        (container(b"\xff\xff\xff", b"", wide=False), "no graph at byte 284"),
    ],
)
def test_hostile_tables(tmp_path: Path, raw: bytes, message: str):
    if "reaches" in message:  # the header promises more than there is
        raw = raw[:76] + struct.pack("<I", 1 << 31) + raw[80:]
    (tmp_path / "m.om").write_bytes(raw)
    for read in (read_ge_graphs, read_ge_model):
        with pytest.raises(DataError, match=message) as caught:
            read(tmp_path / "m.om")
        assert str(tmp_path / "m.om") in str(caught.value)
        assert "\n" not in str(caught.value)


def test_no_container_has_no_constants(tmp_path: Path):
    (tmp_path / "m.om").write_bytes(model())
    with pytest.raises(DataError, match="does not begin with IMOD"):
        om_constants(tmp_path / "m.om")
    with pytest.raises(DataError, match="cannot be read"):
        om_constants(tmp_path / "none.om")
    with pytest.raises(DataError, match="cannot be read"):
        read_ge_graphs(tmp_path)


def test_damaged_models(tmp_path: Path):
    raw = container(model(), bytes(12), wide=False)
    chance = random.Random(11)
    samples = [raw[:end] for end in range(len(raw))]
    for _ in range(200):
        damaged = bytearray(raw)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(raw))] = chance.randrange(256)
        samples.append(bytes(damaged))
    path, whole = tmp_path / "m.om", 0
    for sample in samples:
        path.write_bytes(sample)
        for read in (read_ge_graphs, om_constants):
            try:
                found = read(path)
            except DataError as error:
                assert "\n" not in str(error)  # noqa: PT017 - some are refused, some read
            else:
                whole += bool(found)
    assert whole > 50
