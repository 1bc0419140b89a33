"""Small files made to hurt: each graph reader refuses them in one line, or reads them, in bounded memory and time."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from dumpers.errors import DataError
from dumpers.formats.ge_graph import read_ge_graphs, read_ge_json, read_ge_text, write_ge_json
from dumpers.formats.ge_model import om_constants
from dumpers.formats.saved_model import read_saved_model
from dumpers.formats.tf_graph import read_graph_def
from dumpers.graph import Graph, Op, Port, Source

KIB_200 = 200 * 1024


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def nested(*path: int, depth: int) -> bytes:
    content = b""
    for level in range(depth):
        content = field(path[level % len(path)], content)
    return content


def bombs() -> dict[str, bytes]:
    op = field(1, b"a") + field(2, b"A")
    const = field(1, b"c") + field(2, b"Const")
    shape = field(2, varint(8) + varint(1 << 40)) * 3
    tensor = varint(8) + varint(1) + field(2, shape) + field(5, struct.pack("<f", 1))
    node = const + field(5, field(1, b"value") + field(2, field(8, tensor)))
    few = field(2, field(2, varint(8) + varint(1024)))
    strings = varint(8) + varint(7) + few + field(8, b"x" * 100)
    om = b"IMOD" + struct.pack("<II", 256, 1) + bytes(244)
    return {
        "empty_ops.bin": field(7, field(1, b"g") + field(6, b"") * 480),
        "empty_ports.bin": field(7, field(6, op + field(33, b"") * 300)),
        "nested_ge.bin": field(7, field(6, op + field(10, nested(2, 10, 2, depth=9_999)))),
        "groups.bin": field(7, field(6, op)) + b"\xab\x01" * 10_000,
        "groups.pb": field(1, node) + b"\x0b" * 10_000,
        "lying_length.bin": field(7, field(6, op)) + varint(7 << 3 | 2) + varint(1 << 40),
        "lying_packed.bin": field(7, field(6, op + field(33, field(3, varint(1 << 3 | 2) + varint(1 << 31))))),
        "packed_dims.bin": field(7, field(6, op + field(33, field(3, field(1, b"\x7f" * 900))))),
        "huge_constant.pb": field(1, node),
        "strings.pb": field(1, const + field(5, field(1, b"value") + field(2, field(8, strings)))),
        "nested_tf.pb": field(1, const + field(5, nested(2, 10, 2, depth=9_999))),
        "many_nodes.pb": field(1, field(1, b"") + field(2, b"A")) * 160,
        "functions.pb": field(2, field(1, field(1, field(1, b"f"))) * 100),
        "saved_model.pb": varint(8) + varint(1) + field(2, field(2, field(1, const))) * 60,
        "count.om": om + struct.pack("<I", 0xFFFFFFFF),
        "offsets.om": om + struct.pack("<I6I", 2, 0, 0, 0xFFFFFFF0, 1, 0xFFFFFFFF, 0xFFFFFFFF) + bytes(700),
        "wide.om": om + struct.pack("<I4xI4xQQ", 1, 0, 1 << 63, 1 << 63) + bytes(700),
        "deep.txt": b"graph{" * 170,
        "deep_unknown.txt": b"a{" * 5000,
        "open.txt": b'graph { op { name: "' + b"x" * 900,
        "quotes.txt": b'op { name: "' + b'\\"' * 450,
        "list.txt": b"op { src_index: [" + b"1," * 450,
        "spaces.txt": b" \n;,#" * 200,
        "number.txt": b"op { id: " + b"9" * 1000 + b" }",
        "deep.json": b'{"graph":' * 5000,
        "deep_list.json": b'{"graph":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        "keys.json": b'{"graph":[{"op":[' + b'{"name":"a","name":"b"},' * 40 + b'{"name":"c"}]}]}',
        "float.json": b'{"graph":[{"op":[{"name":"a","attr":[{"key":"f","value":{"f":"1e999999"}}]}]}]}',
        "int.json": b'{"graph":[{"op":[{"name":"a","id":' + b"7" * 900 + b"}]}]}",
        "deep.pbtxt": b'node { name: "a" op: "A" attr { key: "k" value { ' + b"func { attr { value { " * 400,
        "dims.pbtxt": b'node { name: "a" op: "Const" attr { key: "value" value { tensor { dtype: DT_FLOAT '
        + b"tensor_shape { "
        + b"dim { size: 9223372036854775807 } " * 20 + b"} float_val: 1 } } } }",
    }  # fmt: skip


SCRIPT = """
import re, resource, sys
from pathlib import Path
from dumpers.errors import DataError
from dumpers.formats.ge_graph import read_ge_graphs
from dumpers.formats.ge_model import om_constants
from dumpers.formats.saved_model import read_saved_model
from dumpers.formats.tf_graph import read_graph_def
for path in sorted(Path(sys.argv[1]).iterdir()):
    for read in (read_ge_graphs, read_graph_def, read_saved_model, om_constants):
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            read(path)
            said = "read"
        except DataError as error:
            said = str(error)
            assert "\\n" not in said and len(said) < 600, said
        after = resource.getrusage(resource.RUSAGE_SELF)
        # not ru_maxrss, which begins with that of the process that started this one
        peak = re.search("VmHWM:\\\\s*(\\\\d+) kB", Path("/proc/self/status").read_text())[1]
        print(path.name, read.__name__, peak, round(after.ru_utime - before.ru_utime, 2), said, sep="\\t")
"""


def test_small_files_in_bounded_memory_and_time(tmp_path: Path):
    for name, content in bombs().items():
        (tmp_path / name).write_bytes(content)
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == 4 * len(bombs())
    assert max(int(row[2]) for row in rows) < KIB_200
    assert max(float(row[3]) for row in rows) < 2
    said = {(row[0], row[1]): row[4] for row in rows}
    for name in ("empty_ops.bin", "packed_dims.bin", "keys.json", "float.json"):
        assert said[name, "read_ge_graphs"] == "read", said[name, "read_ge_graphs"]
    assert said["nested_tf.pb", "read_graph_def"] != "read"
    for name in ("huge_constant.pb", "functions.pb", "many_nodes.pb", "saved_model.pb", "dims.pbtxt"):
        assert said[name, "read_graph_def"] == "read", said[name, "read_graph_def"]
    refused = "nested_ge.bin lying_length.bin lying_packed.bin count.om offsets.om wide.om deep.txt deep_unknown.txt"
    refused += " open.txt list.txt number.txt deep.json deep_list.json int.json"
    for name in refused.split():
        assert said[name, "read_ge_graphs"] != "read", name


def small_graph() -> Graph:
    port = Port("float16", (2, 3), "NHWC", {"origin_shape": (2, 3), "origin_format": "NHWC"})
    ops = [
        Op("x", "Data", output_ports=(port,)),
        Op("y", "Relu", (Source("x", 0), Source("", 0)), ("x",), (port, port), (port,), {"alpha": 0.5, "l": (1, 2)}, 1),
    ]
    return Graph("g", {op.name: op for op in ops}, "ge", attrs={"_session_graph_id": "0_1"})


@pytest.mark.parametrize("form", ["json", "bin", "pb", "pbtxt"])
def test_cut_and_flipped(tmp_path: Path, form: str):
    """Truncated at every byte, and bits and bytes changed: a clean result or the one-line error."""
    path = tmp_path / f"g.{form}"
    if form == "json":
        write_ge_json(small_graph(), path)
        read = read_ge_json
    elif form == "bin":
        from dumpers.formats.ge_convert import model_of

        path.write_bytes(model_of(small_graph()).SerializeToString())
        read = read_ge_graphs  # type: ignore[assignment]
    else:
        value = "value { tensor { dtype: DT_INT32 int_val: 3 } }"
        text = f'node {{ name: "a" op: "Const" input: "^b" attr {{ key: "value" {value} }} }}'
        text += (
            'library { function { signature { name: "f" output_arg { name: "o" } } ret { key: "o" value: "a:y" } } }'
        )
        raw = text.encode()
        if form == "pb":
            from dumpers.formats.tf_graph import parse_text

            raw = parse_text(raw, "MetaGraphDef").graph_def.SerializeToString()
        path.write_bytes(raw)
        read = read_graph_def
    whole, chance = path.read_bytes(), random.Random(form)
    samples = [whole[:end] for end in range(0, len(whole), max(1, len(whole) // 250))]
    for _ in range(250):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(whole))
            damaged[place] = chance.choice((damaged[place] ^ 1 << chance.randrange(8), chance.randrange(256)))
        samples.append(bytes(damaged))
    refused = 0
    for sample in samples:
        path.write_bytes(sample)
        try:
            read(path)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017 - some are refused, some read
            refused += 1
    assert refused > 0


def test_names_of_any_kind_stay_names(tmp_path: Path):
    names = ["../../etc/passwd", "a\x00b", "x" * 300, "层" * 100, "line\nbreak", "\x1b[2J", "", "C:\\x"]
    graph = Graph("g", {name: Op(name, "A") for name in names}, "ge")
    write_ge_json(graph, tmp_path / "g.json")
    assert list(read_ge_graphs(tmp_path / "g.json")[0].ops) == names
    (tmp_path / "g.txt").write_text('graph { op { name: "a\\nb" } op { name: "a\\nb" } op { id: x } }')
    with pytest.raises(DataError) as caught:
        read_ge_text(tmp_path / "g.txt")
    assert "\n" not in str(caught.value)


def test_readers_of_folders_and_missing_files(tmp_path: Path):
    for read in (read_ge_graphs, read_graph_def, om_constants):
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path)
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path / "none")
    with pytest.raises(DataError, match="no saved_model"):
        read_saved_model(tmp_path)
