"""Our text reader against the protobuf runtime's: the same messages from the same text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dumpers.formats.proto_text import TextError, TextParser, unescape
from dumpers.formats.schema import ge_message, tf_message
from tests.dumpers.formats.random_messages import random_message


def read(text: bytes, package: str, kind: str):
    message = (ge_message if package == "ge" else tf_message)(kind)
    end = TextParser(text, package).message(message, kind, 0)
    assert end == len(text)
    return message


FORMS = ({}, {"as_one_line": True}, {"pointy_brackets": True}, {"use_short_repeated_primitives": True}, {"indent": 3})


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.integers(0, 2**32), st.sampled_from([("ge", "ModelDef"), ("tf", "MetaGraphDef"), ("ge", "AttrDef")]))
def test_random_messages_in_every_form(seed: int, kind: tuple[str, str]):
    message = random_message(random.Random(seed), *kind)
    for form in FORMS:
        text = text_format.MessageToString(message, **form).encode("ascii")
        assert read(text, *kind) == message, (seed, form)
        assert read(text.replace(b"\n", b"\r\n"), *kind) == message


ODD = [
    "",
    "  \n# only a comment",
    'op{name:"a"}',
    'op { name: "a" "b" \'c\' }',
    'op: { name: "a"; input: ["x", "y:1"] , input: "z" } # more\n',
    "op < id: -3 stream_id: 0x10 src_index: [1, 2] src_index: 017 >",
    "op { is_input_const: [true, false, t, f, 1, 0, True, False] }",
    'op { attr { key: "k" value { f: 1.5f } } attr { key: "l" value { f: -inf } } attr { key: "m" value { f: 1e3 } } }',
    'op { name: "\\101\\x41\\n\\\\\\"\\t\\303\\244" }',
    "op { output_desc { dtype: DT_FLOAT16 } output_desc { dtype: 27 } output_desc { dtype: 4711 } }",
    'op { unknown: 7 other { deep { x: [1, "two"] } } third < z: -2.5 > name: "kept" }',
    'op { name: "first" name: "last" }',
    "op { input_desc { shape { dim: 1 } shape { dim: 2 } } }",
    'attr { key: "k" value { list { } } }\nattr { key: "e" value { list_list_int { } } }',
    'op [ { name: "a" }, { name: "b" } ]',
    'op { attr { key: "t" value { t { desc { dtype: DT_INT8 } data: "\\377\\000" } } } }',
    'name: "no line end"',
]


@pytest.mark.parametrize("text", ODD)
def test_odd_spellings_as_the_runtime_reads_them(text: str):
    right = ge_message("GraphDef")
    text_format.Merge(text, right, allow_unknown_field=True)
    assert read(text.encode(), "ge", "GraphDef") == right


WRONG = [
    ("op {", "ends inside a message"),
    ("}", "closes nothing"),
    ("op { }\n}\n", "closes nothing"),
    ('op { name: "a', "value is missing"),
    ("op { name: 'a\n' }", "value is missing"),
    ("op { name: a }", "is no text"),
    ('op { id: "1" }', "is no int64"),
    ("op { id: 1.5 }", "is no int64"),
    ("op { id: 99999999999999999999 }", "is no int64"),
    ("op { id: " + "9" * 6000 + " }", "is no int64"),
    ("op { has_out_attr: maybe }", "is no bool"),
    ("op { id { } }", "is no int64"),
    ("op 7", "':' or '{' is missing"),
    ("op: ", "value is missing"),
    ("op { src_index: [1, 2 }", "value is missing"),
    ("op { src_index: [[1]] }", "holds a list"),
    ("= { }", "field name is missing"),
    ("\x00", "field name is missing"),
    ("op {" * 5000, "nested more than 100"),
    ("x {\n" * 5000, "nested more than 100"),
    ("x: [" * 5000, "value is missing"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG)
def test_what_makes_no_sense(text: str, reason: str):
    with pytest.raises(TextError, match=reason) as caught:
        read(text.encode(), "ge", "GraphDef")
    assert 0 <= caught.value.offset <= len(text)
    assert len(str(caught.value)) < 200


def test_unknown_lists_of_messages_are_skipped():
    text = b'op { third: [ { z: 1 }, < z: ["]", 2] > ] name: "kept" other { x: [ { y: [1] } ] } }'
    assert [op.name for op in read(text, "ge", "GraphDef").op] == [b"kept"]


def test_names_of_types_that_are_newer():
    assert read(b"op { output_desc { dtype: DT_NEW } }", "ge", "GraphDef").op[0].output_desc[0].dtype_name == b"DT_NEW"
    graph = read(b'node { attr { key: "T" value { type: DT_NEW } } }', "tf", "GraphDef")
    assert graph.node[0].attr[0].value.type_name == b"DT_NEW"
    assert read(b'op { attr { key: "a" value { list { i: 1 val_type: VT_LIST_NEW } } } }', "ge", "GraphDef").op


def test_long_bytes_are_left_out_and_short_ones_kept():
    kernel = b'op {\n  attr {\n    key: "k"\n    value {\n      bt: "%s"\n    }\n  }\n}\n'
    assert read(kernel % (b"\\377" * 8), "ge", "GraphDef").op[0].attr[0].value.bt == b"\xff" * 8
    assert read(kernel % (b"\\377" * 2000), "ge", "GraphDef").op[0].attr[0].value.bt == b""
    name = b'op {\n  name: "%s"\n}\n' % (b"n" * 9000)
    assert len(read(name, "ge", "GraphDef").op[0].name) == 9000


def test_escapes():
    assert unescape(rb"\a\b\f\n\r\t\v\?\'\"\\") == b"\a\b\f\n\r\t\v?'\"\\"
    assert unescape(rb"\0\12\1234\x4\x41\x414\u4e2d\U0001f600\q") == b"\0\nS4\x04AA4\xe4\xb8\xad\xf0\x9f\x98\x80\\q"


def test_a_sample_of_each_family(shared_data: Path):
    folder = shared_data / "npu_samples"
    for file, package, kind in (
        ("derived/ge_proto_00000000_Build.txt", "ge", "ModelDef"),
        ("tf_graph/geop.pbtxt", "tf", "GraphDef"),
        ("tf_graph/om_test_build_geop.pbtxt", "tf", "GraphDef"),
    ):
        raw = (folder / file).read_bytes()
        right = (ge_message if package == "ge" else tf_message)(kind)
        text_format.Merge(raw.decode("utf-8"), right, allow_unknown_field=True)
        assert read(raw, package, kind) == right
