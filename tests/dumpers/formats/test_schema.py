"""Messages built at run time: wire-compatible with TensorFlow's, and no TensorFlow needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dumpers.formats.schema import dump_data, ge_message, tf_message
from dumpers.formats.wire import WireError, fields


def test_reading_formats_loads_no_heavy_library(project_root: Path):
    code = (
        "import sys; import dumpers.formats.registry, dumpers.formats.ge_graph, dumpers.formats.tfdbg;"
        "print([m for m in ('tensorflow', 'pandas', 'google.protobuf', 'networkx', 'ml_dtypes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_wire_equals_tensorflow_s_messages():
    graph_pb2 = pytest.importorskip("tensorflow.core.framework.graph_pb2")
    event_pb2 = pytest.importorskip("tensorflow.core.util.event_pb2")
    theirs = graph_pb2.GraphDef()
    node = theirs.node.add(name="a", op="B", input=["x:1", "^c"], device="/cpu:0")
    node.attr["T"].type = 14
    node.attr["l"].list.i.extend([1, -2])
    node.attr["f"].func.name = "g"
    theirs.versions.producer = 7
    ours = tf_message("GraphDef")
    ours.ParseFromString(theirs.SerializeToString(deterministic=True))
    again = graph_pb2.GraphDef.FromString(ours.SerializeToString())
    assert again == theirs
    event = event_pb2.Event(wall_time=3.5, step=2)
    value = event.summary.value.add(tag="t", node_name="a:0:DebugIdentity")
    value.tensor.dtype = 1
    value.tensor.float_val.extend([1.0, 2.0])
    value.metadata.plugin_data.plugin_name = "debugger"
    ours = tf_message("Event")
    ours.ParseFromString(event.SerializeToString())
    assert ours.wall_time == 3.5
    assert ours.summary.value[0].node_name == b"a:0:DebugIdentity"
    assert list(ours.summary.value[0].tensor.float_val) == [1.0, 2.0]
    assert event_pb2.Event.FromString(ours.SerializeToString()) == event


def test_shapes_packed_or_not():
    packed = dump_data()
    packed.output.add().shape.dim.extend([2, 300])
    shape = bytes([0x08, 2, 0x08, 0xAC, 0x02])  # the same, one field a dimension
    output = bytes([0x1A, len(shape)]) + shape
    plain = dump_data()
    plain.ParseFromString(bytes([0x1A, len(output)]) + output)
    assert list(plain.output[0].shape.dim) == list(packed.output[0].shape.dim) == [2, 300]


def test_numbers_of_the_two_descriptors_differ():
    header = dump_data()
    header.input.add(size=1)
    header.output.add(size=1)
    raw = header.SerializeToString()
    parts = [(f.number, [(g.number, g.value) for g in fields(raw, f.start, f.end)]) for f in fields(raw, 0, len(raw))]
    assert parts == [(3, [(6, 1)]), (4, [(5, 1)])]


def test_names_that_are_no_utf8():
    model = ge_message()
    model.graph.add().op.add(name=b"\xd6\xd0")
    again = ge_message()
    again.ParseFromString(model.SerializeToString())
    assert again.graph[0].op[0].name == b"\xd6\xd0"


@pytest.mark.parametrize("raw", [b"\x0a\x05ab", b"\x0b", b"\x08", b"\x00\x01", b"\x08" + b"\xff" * 11])
def test_wire_reader_stops_at_nonsense(raw: bytes):
    with pytest.raises(WireError):
        list(fields(raw, 0, len(raw)))
