"""Device graphs: text and JSON read back equal, and the facts of the real files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dumpers.errors import DataError
from dumpers.formats.enums import DEVICE_NAME_OF
from dumpers.formats.ge_graph import (
    read_ge_graphs,
    read_ge_json,
    read_ge_model,
    read_ge_text,
    write_ge_json,
    write_ge_text,
)
from dumpers.formats.schema import Message, ge_message, message_fields
from dumpers.graph import Graph, Op, Port, Source
from tests.dumpers.formats.random_messages import random_message, random_scalar

NAMES = st.one_of(
    st.text(min_size=1, max_size=12),
    st.sampled_from(
        ["a" * 300, "层" * 100, 'say "no"', "back\\slash", "two\nlines", "a:0", "a:b:1", "^a", "{", "x\x00"]
    ),
).filter(lambda text: not text.endswith(":-1"))
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32, allow_nan=False)
SCALARS = st.one_of(st.text(max_size=8), INTS, FLOATS, st.booleans(), st.binary(max_size=8), st.none())
TUPLES = st.one_of(
    *(st.lists(kind, max_size=3).map(tuple) for kind in (st.text(max_size=5), INTS, FLOATS, st.booleans(), SCALARS)),
    st.lists(st.lists(INTS, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
)
KEYS = st.text(max_size=10).filter(lambda key: key not in {"SrcT", "DstT", "dst_type", "T", "dt", "", "name"})
VALUES = st.recursive(SCALARS | TUPLES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)
ATTRS = st.dictionaries(KEYS.filter(lambda key: not key.endswith("data_type")), VALUES, max_size=3)
SUBGRAPHS = st.just({}) | st.lists(NAMES, min_size=1, max_size=3).map(lambda names: {"subgraph_name": tuple(names)})
DTYPES = st.sampled_from(sorted(DEVICE_NAME_OF))
SHAPES = st.none() | st.lists(st.integers(-1, 10**12), max_size=4).map(tuple)
PORTS = st.builds(Port, DTYPES.filter(lambda d: d != "undefined"), SHAPES, st.sampled_from(["ND", "NCHW", ""]), ATTRS)
ABSENT = st.just(Port("undefined", None, "FORMAT_RESERVED"))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    ops = {}
    for index, name in enumerate(names):
        inputs = draw(
            st.lists(st.builds(Source, st.sampled_from(names), st.integers(0, 9)) | st.just(Source("", 0)), max_size=3)
        )
        ports = [draw(PORTS if source.op else ABSENT | PORTS) for source in inputs]
        ops[name] = Op(
            name,
            draw(NAMES),
            tuple(inputs),
            tuple(draw(st.lists(st.sampled_from(names), max_size=2))),
            tuple(ports),
            tuple(draw(st.lists(PORTS, max_size=2))),
            draw(ATTRS) | draw(SUBGRAPHS),
            index,
            draw(st.integers(0, 3)),
        )
    return Graph(draw(NAMES), ops, "ge", None, draw(ATTRS))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=set(Phase) - {Phase.shrink})
@given(graphs())
def test_both_forms_read_back_equal(tmp_path: Path, graph: Graph):
    for write, read, name in ((write_ge_text, read_ge_text, "a.txt"), (write_ge_json, read_ge_json, "a.json")):
        write(graph, tmp_path / name)
        again = read(tmp_path / name)
        assert again.ops == graph.ops
        assert list(again.ops) == list(graph.ops)
        assert (again.name, again.attrs, again.kind) == (graph.name, graph.attrs, "ge")
        first = (tmp_path / name).read_bytes()
        write(again, tmp_path / name)
        assert (tmp_path / name).read_bytes() == first


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_attributes_of_every_kind_survive_both_forms(tmp_path: Path, seed: int):
    """Messages of all kinds, as a compiler could write them; what was read once is written and read again the same."""
    chance = random.Random(seed)
    model = ge_message()
    op = model.graph.add(name=b"g").op.add(name=b"a")
    for kind in ("list", "s", "i", "f", "b", "bt", "func", "td", "t", "g", "list_list_int", "dt", "list_list_float"):
        for _ in range(2):
            value = op.attr.add(key=f"{kind}{len(op.attr)}".encode()).value
            if kind == "list":
                _fill_list(chance, value.list)
            elif kind in ("s", "expression"):
                setattr(value, kind, random_scalar(chance, "ge", "bytes"))
            else:
                field = message_fields("ge", "AttrDef")[kind]
                if field.kind.islower():
                    setattr(value, kind, random_scalar(chance, "ge", field.kind))
                else:
                    getattr(value, kind).CopyFrom(random_message(chance, "ge", field.kind, 2))
                    getattr(value, kind).SetInParent()
    (tmp_path / "g.om").write_bytes(model.SerializeToString())
    (graph,) = read_ge_graphs(tmp_path / "g.om")
    for write, read, name in ((write_ge_text, read_ge_text, "a.txt"), (write_ge_json, read_ge_json, "a.json")):
        write(graph, tmp_path / name)
        assert read(tmp_path / name).ops == graph.ops, seed


def _fill_list(chance: random.Random, target: Message) -> None:
    kind = chance.choice(["s", "i", "f", "b", "bt", "td", "t", "g", "na", "dt"])
    spec = message_fields("ge", "ListValue")[kind]
    for _ in range(chance.randrange(1, 4)):
        if spec.kind.islower():
            getattr(target, kind).append(random_scalar(chance, "ge", spec.kind))
        else:
            getattr(target, kind).add().CopyFrom(random_message(chance, "ge", spec.kind, 1))


def sample() -> Graph:
    float32 = Port("float32", (2, 3), "ND", {"origin_shape": (2, 3), "origin_data_type": "float32"})
    ops = [
        Op("x", "Data", output_ports=(float32,), id=0),
        Op("w", "Const", output_ports=(float32,), id=1),
        Op(
            "fc/MatMuladd",
            "MatMulV2",
            (Source("x", 0), Source("w", 0), Source("", 0)),
            ("init",),
            (float32, float32, Port("undefined", None, "FORMAT_RESERVED")),
            (Port("float32", (2, 3), "ND", {"_datadump_origin_name": "add", "_datadump_origin_output_index": 0}),),
            {
                "_datadump_original_op_names": ("fc/MatMul", "add"),
                "transpose_x1": False,
                "pass_name": "MatMulBiasAddFusionPass",
                "SrcT": "float32",
                "T": "float16",
                "epsilon": float(np.float32(1e-7)),
            },
            2,
            1,
        ),
        Op(
            "trans_Cast_0",
            "Cast",
            (Source("fc/MatMuladd", 0),),
            (),
            (float32,),
            (),
            {"_datadump_original_op_names": ()},
            3,
        ),
        Op("out", "Relu", (Source("fc/MatMuladd", 0),), ("fc/MatMuladd",), (float32,), (float32,), {}, 4),
    ]
    return Graph("ge_default_1", {op.name: op for op in ops}, "ge", None, {"_session_graph_id": "0_1"})


def test_text_has_the_layout_of_real_files(tmp_path: Path):
    write_ge_text(sample(), tmp_path / "g.txt")
    text = (tmp_path / "g.txt").read_text()
    assert text.startswith('graph {\n  name: "ge_default_1"\n  op {\n    name: "x"\n    type: "Data"\n')
    for line in (
        '    input: "x:0"\n    input: "w:0"\n    input: ""\n    input: "init:-1"\n',
        '      key: "_datadump_original_op_names"\n      value {\n        list {\n          s: "fc/MatMul"\n',
        '      key: "SrcT"\n      value {\n        i: 0\n',
        '      key: "T"\n      value {\n        dt: 1\n',
        '      dtype: DT_FLOAT\n      shape {\n        dim: 2\n        dim: 3\n      }\n      layout: "ND"\n',
        '        key: "origin_data_type"\n        value {\n          s: "DT_FLOAT"\n',
        '    dst_name: "trans_Cast_0:out"\n',
        "    is_input_const: false\n    is_input_const: true\n",
        "      size: 64\n",
    ):
        assert line in text, line


def test_json_has_the_layout_of_real_files(tmp_path: Path):
    write_ge_json(sample(), tmp_path / "g.json")
    tree = json.loads((tmp_path / "g.json").read_text())
    op = tree["graph"][0]["op"][2]
    assert op["input"] == ["x:0", "w:0", "", "init:-1"]
    attrs = {entry["key"]: entry["value"] for entry in op["attr"]}
    assert attrs["epsilon"] == {"f": "1e-07"}
    assert attrs["transpose_x1"] == {"b": False}
    assert attrs["_datadump_original_op_names"] == {"list": {"s": ["fc/MatMul", "add"], "val_type": "VT_LIST_STRING"}}
    assert op["input_desc"][0]["dtype"] == "DT_FLOAT"
    assert "dtype" not in op["input_desc"][2]
    assert "id" not in tree["graph"][0]["op"][0]


def test_originals_and_inserted_ops(tmp_path: Path):
    write_ge_text(sample(), tmp_path / "g.txt")
    graph = read_ge_text(tmp_path / "g.txt")
    assert graph.ops["fc/MatMuladd"].originals == ("fc/MatMul", "add")
    assert graph.ops["trans_Cast_0"].originals == ()
    assert graph.ops["x"].originals == ("x",)
    assert graph.ops["fc/MatMuladd"].inputs[2] == Source("", 0)
    assert graph.ops["fc/MatMuladd"].control_inputs == ("init",)


def test_edges_split_at_the_last_colon(tmp_path: Path):
    (tmp_path / "g.txt").write_text(
        'graph { op { name: "a:b" } op { name: "c" input: "a:b:1" input: "" input: "a:b:-1" input: "a:b:0" } }'
    )
    op = read_ge_text(tmp_path / "g.txt").ops["c"]
    assert op.inputs == (Source("a:b", 1), Source("", 0), Source("a:b", 0))
    assert op.control_inputs == ("a:b",)


def test_several_graphs_and_model_attributes(tmp_path: Path):
    (tmp_path / "g.txt").write_text(
        'graph { name: "small" op { name: "a" } attr { key: "own" value { i: 1 } } }\n'
        'graph { name: "big" op { name: "a" } op { name: "b" } }\n'
        'attr { key: "precision_mode" value { s: "allow_mix_precision" } }\n'
    )
    assert [graph.name for graph in read_ge_graphs(tmp_path / "g.txt")] == ["small", "big"]
    assert read_ge_text(tmp_path / "g.txt").name == "big"
    assert read_ge_graphs(tmp_path / "g.txt")[0].attrs == {"precision_mode": "allow_mix_precision", "own": 1}


def test_text_oddities(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    raw = (
        b'op { name: "utf\xe4\xb8\xad" type: "A" new_field: 7 new_message { x: [1, 2] } '
        b'attr { key: "k" value { list { i: [1, 2] } } } attr { key: "k" value { list { i: 3 } } } }\n'
        b'op { name: "gbk\xd6\xd0" type: "\\303\\244"\n attr {\n key: "bin" value {\n bt: "'
        + b"x"
        * 9000
        + b'"\n } } }\n'
        b'op { name: "twice" id: 1 } op { name: "twice" id: 2 }'
    )
    (tmp_path / "g.txt").write_bytes(raw)
    graph = read_ge_text(tmp_path / "g.txt")
    assert {op.name: op.type for op in graph} == {"utf中": "A", "gbk中": "ä", "twice": ""}
    assert graph.ops["utf中"].attrs == {"k": (3,)}
    assert graph.ops["gbk中"].attrs == {"bin": b""}, "kernel binaries are skipped"
    assert graph.ops["twice"].id == 2
    assert "twice" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.txt", b"", "holds no device graph"),
        ("g.txt", b'graph { op { name: "a" ', "cut off"),
        ("g.txt", b"this is a readme", "not the text"),
        ("g.txt", b"graph { op { id: many } }", "line 1, byte 17: id: 'many' is no int64"),
        ("g.txt", b"graph {" * 5000, "nested more than 100 deep"),
        ("g.json", b'{"graph": [', "not JSON"),
        ("g.json", b'{"x": 1}', "holds no graph"),
        ("g.json", b'{"graph": [{"op": [{"name": "a", "id": "x"}]}]}', r"op\[a\].id: 'x'"),
        (
            "g.json",
            b'{"graph": [{"op": [{"name": "a", "output_desc": [{"dtype": 1.5}]}]}]}',
            r"output_desc\[0\].dtype: 1.5",
        ),
        ("g.json", b'{"graph": [{"op": [{"name": "a", "output_desc": [{"dtype": 4294967296}]}]}]}', "is no DataType"),
        (
            "g.json",
            b'{"graph": [{"op": [{"attr": [{"key": "k", "value": {"s": 1}}]}]}]}',
            r"attr\[k\].value.s: 1 is no bytes",
        ),
        ("g.json", b'{"graph": [{"op": [{"name": "a", "id": "' + b"9" * 5000 + b'"}]}]}', r"\.\.\. is no int64"),
        ("g.json", b'{"graph": [{"op": [{"name": "a", "id": ' + b"9" * 5000 + b"}]}]}", "not JSON"),
        ("g.json", b'{"graph": [{"op": [{"name": "a", "id": 9223372036854775808}]}]}', "is no int64"),
        (
            "g.json",
            b'{"graph": [{"op": [{"name": "a", "attr": ['
            + b'{"value":{"func":{"attr":[' * 150
            + b"]}}}" * 150
            + b"]}]}]}",
            "nested more than 100 deep",
        ),
        ("g.json", b'{"version": -1, "graph": [{"op": []}]}', "model.version: -1 is no uint32"),
        ("g.json", b'{"graph": [{"op": [7]}]}', "int instead of an object"),
        ("g.json", b'{"graph": []}', "holds no device graph"),
        ("g.json", b"[" * 100000, "not JSON"),
        ("g.om", b"IMOD" + b"\0\1\0\0" * 5, "ends at byte 24"),
        ("g.om", b"\xff\xff\xff\xff", "not a compiled model"),
    ],
)
def test_files_that_are_no_graph(tmp_path: Path, name: str, content: bytes, message: str):
    read = {"txt": read_ge_text, "json": read_ge_json, "om": read_ge_model}[name.split(".")[1]]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_missing_file(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read"):
        read_ge_text(tmp_path / "none.txt")


def test_what_a_device_graph_cannot_say(tmp_path: Path):
    op = Op("a", "A", output_ports=(Port("uint4", ()),))
    with pytest.raises(ValueError, match="uint4"):
        write_ge_text(Graph("g", {"a": op}, "ge"), tmp_path / "g.txt")
    op = Op("a", "A", attrs={"k": 1 << 70})
    with pytest.raises(ValueError, match=r"range|large"):
        write_ge_text(Graph("g", {"a": op}, "ge"), tmp_path / "g.txt")
    assert list(tmp_path.iterdir()) == []
