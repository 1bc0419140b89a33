"""Operators that ran in slices: threads (FFTS+) and ops of the graph, whole tensors and what does not fit."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.layouts import from_original, load_original
from dumpers.formats.npu_dump import HeaderExtras, TensorSpec, read_npu_dump, write_npu_dump
from dumpers.formats.npu_slice_info import slice_info, without_slice, without_sub_graph
from dumpers.formats.registry import read_dump
from dumpers.graph import Graph, Op
from dumpers.records import Dump

TIME = 1670205069987340
SUB_GRAPH = "partition0_rank2_new_sub_graph15_sgt_graph_0_"
WHOLE = np.arange(2 * 12 * 5, dtype=np.float32).reshape(12, 2, 5)


def ranges(*boxes: list[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"lower": low, "higher": high} for low, high in boxes]


def attributes(threads: bool, count: int, **more: object) -> HeaderExtras:
    facts = {"threadMode": threads, "slice_instance_num": count, "thread_scopeId": 2, **more}
    return HeaderExtras({"_sgt_json_info": json.dumps(facts)})


def slice_op(
    folder: Path, index: int, outputs: list, *, op: str = "net/conv", inputs: list | None = None, **more: object
):
    """One ``_lxslice`` op of two, outputs cut as ``outputCutList`` says."""
    facts = {"outputCutList": [[2, 1, 1]], **more}
    name = f"{op}_lxslice{index}"
    path = folder / f"Conv2D.{name.replace('/', '_')}.2.9.{TIME + index}.4.330.0.0"
    write_npu_dump(
        path,
        op_name=name,
        inputs=inputs or [],
        outputs=outputs,
        dump_time_us=TIME,
        extras=attributes(False, 2, **facts),
    )
    return path


def thread(
    folder: Path, index: int, array: np.ndarray | TensorSpec, boxes: list, *, time: int = TIME, op_name: str = ""
):
    """One thread of ``len(boxes)``; boxes of the only output, one a thread."""
    facts = attributes(True, len(boxes), output_tensor_slice=[[ranges(*box)] for box in boxes], outputCutList=[])
    path = folder / f"Conv2D.{SUB_GRAPH}net_conv.7.3.{time + index}.4.11.{index}.0"
    write_npu_dump(path, op_name=op_name, inputs=[], outputs=[array], dump_time_us=TIME, extras=facts)
    return path


def only(dump: Dump) -> object:
    (record,) = dump.records
    return record


# ops of the graph


def test_slices_are_joined_along_the_cut_axis(tmp_path: Path):
    slice_op(tmp_path, 1, [WHOLE[6:]])
    slice_op(tmp_path, 0, [WHOLE[:6]])
    found = read_dump(tmp_path)
    record = only(found)
    assert (record.op, record.op_type, record.shape, found.problems) == ("net/conv", "Conv2D", WHOLE.shape, ())
    assert (record.timestamp_us, record.task_id, record.stream_id) == (TIME + 1, 2, 9)
    assert record.note == "joined from 2 slices along axis 0"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(record)).load(), WHOLE, strict=True)


def test_uncut_tensors_and_inputs(tmp_path: Path):
    small = np.array([[[7.0]]])
    for index, part in enumerate((WHOLE[:, :, :2], WHOLE[:, :, 2:])):
        slice_op(
            tmp_path,
            index,
            [part, small],
            inputs=[part, small, small],
            outputCutList=[[1, 1, 2], [1, 1, 1]],
            inputCutList=[[1, 1, 2], [1, 1, 1]],
        )
    found = read_dump(tmp_path)
    assert found.problems == ()
    assert [(r.name, r.shape) for r in found] == [
        ("net/conv_lxslice0:input:2", (1, 1, 1)),  # the header does not say how it was cut
        ("net/conv:input:0", WHOLE.shape),
        ("net/conv:input:1", (1, 1, 1)),
        ("net/conv:output:0", WHOLE.shape),
        ("net/conv:output:1", (1, 1, 1)),
        ("net/conv_lxslice1:input:2", (1, 1, 1)),
    ]
    np.testing.assert_array_equal(found.tensor("net/conv", "input", 0).load(), WHOLE)
    assert "the same in 2 slices" in found.tensor("net/conv", "output", 1).note
    assert found.tensor("net/conv_lxslice1", "input", 2).note.startswith("slice 1 of 2")


@pytest.mark.parametrize(
    ("parts", "more", "text"),
    [
        ([WHOLE[:6]], {}, "slice(s) 1 of 2 are missing"),
        ([WHOLE[:6], WHOLE[6:, :1]], {}, "do not fit along axis 0"),
        ([WHOLE[:6], WHOLE[6:].astype(np.float16)], {}, "differ in dtype"),
        ([WHOLE[:6], WHOLE[6:]], {"outputCutList": [[3, 1, 1]]}, "cut 3 times along axis 0 into 2 slices"),
        ([WHOLE[:6], WHOLE[6:]], {"outputCutList": [[2, 2, 1]]}, "cut along 2 axes"),
        ([WHOLE[:6], WHOLE[6:]], {"outputCutList": []}, "does not say how it was cut"),
        ([WHOLE[:6], WHOLE[5:]], {"outputCutList": [[1, 1, 1]]}, "differ in shape"),
        ([WHOLE[:6], TensorSpec(WHOLE[6:], size=0)], {}, "a slice has no value"),
    ],
)
def test_what_does_not_fit_stays_single(tmp_path: Path, parts: list, more: dict, text: str):
    for index, part in enumerate(parts):
        slice_op(tmp_path, index, [part], **more)
    found = read_dump(tmp_path)
    assert [record.op for record in found] == [f"net/conv_lxslice{index}" for index in range(len(parts))]
    assert len(found.problems) == 1
    assert text in found.problems[0].reason
    np.testing.assert_array_equal(found.records[0].load(), WHOLE[:6])


def test_list_and_ranges_that_disagree(tmp_path: Path):
    boxes = [[ranges((6, 12), (0, 2), (0, 5))], [ranges((0, 6), (0, 2), (0, 5))]]
    for index in range(2):
        slice_op(tmp_path, index, [WHOLE[6 * index : 6 * index + 6]], output_tensor_slice=boxes)
    assert "disagree" in read_dump(tmp_path).problems[0].reason


def test_several_runs_of_one_op(tmp_path: Path):
    for run in (1, 2):
        for index in range(2):
            path = slice_op(tmp_path, index, [WHOLE[6 * index : 6 * index + 6] + 100 * run])
            path.rename(tmp_path / f"Conv2D.net_conv_lxslice{index}.2.9.{TIME + 10 * run + index}.4.330.0.0")
    found = read_dump(tmp_path)
    assert [record.timestamp_us - TIME for record in found] == [11, 21]
    np.testing.assert_array_equal(found.records[1].load(), WHOLE + 200)
    next(tmp_path.glob("*lxslice1*")).unlink()
    found = read_dump(tmp_path)
    assert (len(found), found.problems[0].reason.split(":")[1]) == (
        3,
        " some of its 2 slices are there 2 times, others 1; its slices are listed singly",
    )


# threads


THREADS = [[(0, 5), (0, 2), (0, 5)], [(5, 10), (0, 2), (0, 5)], [(10, 12), (0, 2), (0, 5)]]


def test_threads_are_joined_by_their_ranges(tmp_path: Path):
    for index, ((low, high), *_) in enumerate(THREADS):
        thread(tmp_path, index, WHOLE[low:high], THREADS)
    found = read_dump(tmp_path)
    record = only(found)
    assert (record.op, record.shape, found.problems) == ("net_conv", WHOLE.shape, ())
    np.testing.assert_array_equal(record.load(), WHOLE, strict=True)


def test_header_that_states_the_whole_shape(tmp_path: Path):
    for index, ((low, high), *_) in enumerate(THREADS):
        path = thread(
            tmp_path, index, TensorSpec(WHOLE[low:high], shape=WHOLE.shape, original_shape=WHOLE.shape), THREADS
        )
        single = read_npu_dump(path)
        assert (single.problems, single.outputs[0].shape) == ((), (high - low, 2, 5))
    np.testing.assert_array_equal(only(read_dump(tmp_path)).load(), WHOLE, strict=True)


def test_two_cut_axes_and_a_packed_type(tmp_path: Path):
    bits = (np.arange(4 * 16).reshape(4, 16) % 3 == 0).astype(np.uint8)
    boxes = [[(r, r + 2), (c, c + 8)] for r in (0, 2) for c in (0, 8)]
    for index, ((top, down), (left, right)) in enumerate(boxes):
        thread(tmp_path, index, TensorSpec(bits[top:down, left:right], "uint1"), boxes)
    record = only(read_dump(tmp_path))
    assert "along axis 0, 1" in record.note
    np.testing.assert_array_equal(record.load(), bits, strict=True)


def test_private_layout_of_the_whole(tmp_path: Path):
    image = np.arange(4 * 3 * 2 * 2, dtype=np.float16).reshape(4, 3, 2, 2)
    stored = from_original(image, "NC1HWC0", original_format="NCHW")
    boxes = [[(n, n + 2), *((0, size) for size in stored.shape[1:])] for n in (0, 2)]
    for index, ((low, high), *_) in enumerate(boxes):
        spec = TensorSpec(stored[low:high], format="NC1HWC0", original_shape=image[low:high].shape)
        thread(tmp_path, index, spec, boxes)
    record = only(read_dump(tmp_path))
    assert (record.format, record.shape, record.original_shape) == ("NC1HWC0", stored.shape, image.shape)
    np.testing.assert_array_equal(load_original(record), image, strict=True)


@pytest.mark.parametrize(
    ("boxes", "text"),
    [
        ([[(0, 6), (0, 2), (0, 5)], [(5, 11), (0, 2), (0, 5)]], "overlap"),
        ([[(0, 6), (0, 2), (0, 5)], [(7, 13), (0, 2), (0, 5)]], "leave gaps"),
        ([[(0, 6), (0, 2), (0, 5)], [(6, 12), (0, 2), (0, 4)]], "not those of its slices"),
    ],
)
def test_ranges_that_do_not_fit(tmp_path: Path, boxes: list, text: str):
    for index in range(2):
        thread(tmp_path, index, WHOLE[6 * index : 6 * index + 6], boxes)
    found = read_dump(tmp_path)
    assert [record.shape for record in found] == [(6, 2, 5)] * 2
    assert text in found.problems[0].reason


def test_name_of_the_graph(tmp_path: Path):
    for index, ((low, high), *_) in enumerate(THREADS):
        thread(tmp_path, index, WHOLE[low:high], THREADS)
    for name in ("net/conv", SUB_GRAPH + "net/conv"):
        graph = Graph("g", {name: Op(name, "Conv2D")}, "ge")
        assert only(read_dump(tmp_path, graph=graph)).op == name


# headers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"threadMode":true,"slice_instance_num":', "no JSON"),
        ("[" * 10_000 + '"threadMode""slice_instance_num"', "no JSON"),
        ('{"threadMode":true,"slice_instance_num":-1}', "slice_instance_num -1"),
        ('{"threadMode":true,"slice_instance_num":99999999999}', "slice_instance_num 99999"),
        ('{"threadMode":true,"slice_instance_num":2,"outputCutList":7}', "where a list belongs"),
        ('{"threadMode":true,"slice_instance_num":2,"outputCutList":[["x"]]}', "a number that is none"),
        ('{"threadMode":true,"slice_instance_num":2,"output_tensor_slice":[[[1]]]}', "a range that is none"),
        (
            '{"threadMode":true,"slice_instance_num":2,"output_tensor_slice":[[[{"lower":5,"higher":1}]]]}',
            "range 5 to 1",
        ),
        ('{"threadMode":false,"slice_instance_num":2}', "is slice 5"),
    ],
)
def test_attributes_that_make_no_sense_are_a_problem_of_the_file(tmp_path: Path, text: str, message: str):
    path = tmp_path / f"Conv2D.net_conv_lxslice5.2.9.{TIME}"
    extras = HeaderExtras({"info": text})
    write_npu_dump(path, op_name="", inputs=[], outputs=[WHOLE], dump_time_us=TIME, extras=extras)
    found = read_npu_dump(path)
    assert message in found.problems[0].reason
    np.testing.assert_array_equal(found.outputs[0].load(), WHOLE)


def test_ops_that_were_not_cut():
    assert slice_info({"a": "text", "b": '{"slice_instance_num":1,"threadMode":true}'}, "x", None) is None
    assert slice_info({}, "x", None) is None


def test_names():
    assert without_slice("a_lxslice12") == "a"
    assert without_slice("a_lxslice12_tail") == "a_tail"
    assert without_slice("a_lxslice") == "a_lxslice"
    assert without_sub_graph(SUB_GRAPH + "b") == "b"
    assert without_sub_graph("x/sgt_graph_3/y/sgt_graph_4/z") == "z"
    assert without_sub_graph("sgt_graph_3") == "sgt_graph_3"
    assert without_sub_graph("a_" * 200_000) == "a_" * 200_000  # linear


def test_slice_that_vanishes(tmp_path: Path):
    slice_op(tmp_path, 0, [WHOLE[:6]])
    second = slice_op(tmp_path, 1, [WHOLE[6:]])
    record = only(read_dump(tmp_path))
    second.unlink()
    with pytest.raises(DataError, match="lxslice1"):
        record.load()
