"""Curves in event files: against TensorFlow's own iterator, and TensorBoard's rules for restarts."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError
from dumpers.formats.crc32c import crc32c, masked
from dumpers.formats.event_file import read_scalar_log, read_scalars
from dumpers.formats.kinds import identify
from dumpers.formats.schema import Message, tf_message

tf = pytest.importorskip("tensorflow")

NUMBERS = (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e-45, 3.4e38)


@pytest.fixture(scope="module", autouse=True)
def eager() -> Iterator[None]:
    from tensorflow.python.eager import context

    with context.eager_mode():
        yield


def frame(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked(crc32c(head))) + data + struct.pack("<I", masked(crc32c(data)))


def event(
    step: int = 0, wall_time: float = 100.0, *, version: bytes = b"", start: bool = False, **scalars: float
) -> Message:
    message = tf_message("Event")
    message.step, message.wall_time = step, wall_time
    if version:
        message.file_version = version
    if start:
        message.session_log.status = 1
    for tag, number in scalars.items():
        message.summary.value.add(tag=tag.encode(), simple_value=number)
    return message


def write_events(path: Path, *events: Message) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(frame(message.SerializeToString()) for message in events))
    return path


def truth_of(path: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Scalars as TensorFlow's iterator has them."""
    curves: dict[str, list[tuple[int, float, float]]] = {}
    for item in tf.compat.v1.train.summary_iterator(str(path)):
        for value in item.summary.value:
            if value.WhichOneof("value") == "simple_value":
                number = value.simple_value
            elif value.metadata.plugin_data.plugin_name == "scalars":
                number = float(tf.make_ndarray(value.tensor).astype(np.float64))
            else:
                continue
            curves.setdefault(value.tag, []).append((item.step, item.wall_time, number))
    return curves


def same(left: list[tuple[int, float, float]], right: list[tuple[int, float, float]]) -> bool:
    return np.array(left, dtype=np.float64).tobytes() == np.array(right, dtype=np.float64).tobytes()


def curves_of(path: Path) -> dict[str, list[tuple[int, float, float]]]:
    return {
        series.tag: list(zip(series.steps.tolist(), series.wall_times.tolist(), series.values.tolist(), strict=True))
        for series in read_scalars(path)
    }


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scalars of many types among images, texts and histograms, as tf.summary writes them (that needs TensorBoard)."""

    def write(tag: str, plugin: str, value: object, step: int) -> None:
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = plugin
        tf.summary.write(tag, value, step=step, metadata=metadata)

    root = tmp_path_factory.mktemp("modern")
    with tf.summary.create_file_writer(str(root)).as_default():
        for step, number in enumerate(NUMBERS):
            write("loss", "scalars", tf.constant(number, tf.float32), step)
            write("double", "scalars", tf.constant(number * 1.1, tf.float64), step)
            write("half", "scalars", tf.cast(number, tf.bfloat16), step * 2)
            write("count", "scalars", tf.constant(step * 3 - 5, tf.int64), (1 << 40) + step)
            write("picture", "images", tf.constant([b"9", b"9", bytes(90_000)]), step)
            write("spread", "histograms", tf.zeros([30, 3]), step)
            write("words", "text", tf.constant(b"scalars"), step)
    return next(root.iterdir())


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the writer of TensorFlow 1: scalar and image in one event, a graph in front."""
    from tensorflow.python.eager import context

    root = tmp_path_factory.mktemp("old")
    tf1 = tf.compat.v1
    with context.graph_mode(), tf.Graph().as_default() as graph:
        number = tf1.placeholder(tf.float32, ())
        noise = tf.random.uniform([1, 300, 300, 3], seed=1)  # beyond 64 KB even when compressed
        merged = tf1.summary.merge([tf1.summary.image("noise", noise), tf1.summary.scalar("loss", number)])
        writer = tf1.summary.FileWriter(str(root), graph)
        with tf1.Session() as session:
            for step, value in enumerate(NUMBERS):
                writer.add_summary(session.run(merged, {number: value}), step)
        writer.close()
    return next(root.iterdir())


@pytest.mark.parametrize("which", ["modern", "old"])
def test_equals_tensorflow_s_iterator(which: str, request: pytest.FixtureRequest):
    path = request.getfixturevalue(which)
    ours, theirs = curves_of(path), truth_of(path)
    assert set(ours) == set(theirs) == ({"loss", "double", "half", "count"} if which == "modern" else {"loss"})
    for tag, points in theirs.items():
        assert len(points) == len(NUMBERS)
        assert same(ours[tag], points)
    assert read_scalar_log(path).problems == ()
    assert identify(path).kind.name == "events"


def test_large_images_are_neither_parsed_nor_held(tmp_path: Path, old: Path):
    import tracemalloc

    blob = tf_message("Event")
    value = blob.summary.value.add(tag=b"image")
    value.tensor.dtype, value.tensor.tensor_content = 4, bytes(30_000_000)
    path = write_events(
        tmp_path / "a.tfevents.1.h", event(version=b"brain.Event:2"), event(1, loss=1.0), blob, event(2, loss=2.0)
    )
    tracemalloc.start()
    curves = curves_of(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [point[2] for point in curves["loss"]] == [1.0, 2.0]
    assert peak < 2_000_000
    assert max(len(r) for r in tf.compat.v1.io.tf_record_iterator(str(old))) > 65536


def test_scalar_beside_a_damaged_image_is_not_trusted(tmp_path: Path, old: Path):
    raw = bytearray(old.read_bytes())
    raw[-50_000] ^= 1
    path = tmp_path / old.name
    path.write_bytes(raw)
    log = read_scalar_log(path)
    (curve,) = log.series
    assert len(curve) == len(NUMBERS) - 1
    assert "wrong checksum" in log.problems[0].reason


def test_damage_keeps_what_comes_before(modern: Path, tmp_path: Path):
    raw = bytearray(modern.read_bytes())
    place = len(raw) // 2
    raw[place] ^= 8
    path = tmp_path / modern.name
    path.write_bytes(raw)
    items: list[bytes] = []
    with pytest.raises(tf.errors.DataLossError):
        items.extend(tf.compat.v1.io.tf_record_iterator(str(path)))
    cut = tmp_path / "cut"
    cut.write_bytes(b"".join(map(frame, items)))
    theirs = truth_of(cut)
    ours = curves_of(path)
    assert {tag: len(points) for tag, points in ours.items()} == {tag: len(points) for tag, points in theirs.items()}
    (problem,) = read_scalar_log(path).problems
    offset = sum(len(frame(item)) for item in items)
    assert f"record at byte {offset}" in problem.reason
    assert f"the {len(items)} records before it are read" in problem.reason


def test_series_of_a_folder_in_order_of_time(tmp_path: Path):
    head = event(version=b"brain.Event:2")
    write_events(tmp_path / "events.out.tfevents.1000.host.9.v2", head, event(3, 13, loss=3), event(3, 14, loss=4))
    write_events(tmp_path / "events.out.tfevents.999.host.1.v2", head, event(1, 11, loss=1), event(2, 12, loss=2))
    write_events(tmp_path / "eval" / "events.out.tfevents.5.host", head, event(7, 17, loss=7))
    (tmp_path / "checkpoint").write_text("x")
    log = read_scalar_log(tmp_path)
    assert [(s.run, s.tag, s.steps.tolist(), s.values.tolist()) for s in log.series] == [
        ("", "loss", [1, 2, 3, 3], [1, 2, 3, 4]),
        ("eval", "loss", [7], [7]),
    ]
    assert [path.name.split(".")[3] for path in log.files] == ["999", "1000", "5"]
    assert log.series[0].steps.dtype == np.int64
    assert log.series[0].values.dtype == log.series[0].wall_times.dtype == np.float64


def restarts(folder: Path, version: bytes) -> None:
    """Three sessions: the second goes back to step 3, the third to step 4."""
    head = [event(version=version)] if version else []
    first = [event(0, start=True), *(event(step, 100 + step, loss=step, other=-step) for step in range(6))]
    second = [event(3, 200, start=True), *(event(step, 200 + step, loss=10 + step) for step in range(3, 5))]
    third = [event(4, 300, start=True), *(event(step, 300 + step, loss=20 + step, other=step) for step in range(4, 8))]
    write_events(folder / "events.out.tfevents.1.h", *head, *first, *second)
    write_events(folder / "events.out.tfevents.2.h", *head, *third)


@pytest.mark.parametrize("version", [b"brain.Event:2", b"brain.Event:1", b""])
def test_restart_supersedes_what_tensorboard_drops(tmp_path: Path, version: bytes):
    module = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")
    restarts(tmp_path, version)
    accumulator = module.EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    accumulator.Reload()
    theirs = {
        tag: [(p.step, p.wall_time, float(tf.make_ndarray(p.tensor_proto))) for p in accumulator.Tensors(tag)]
        for tag in accumulator.Tags()["tensors"]
    }
    assert curves_of(tmp_path) == theirs
    log = read_scalar_log(tmp_path)
    everything = read_scalar_log(tmp_path, keep_superseded=True)
    assert log.superseded > 0
    assert everything.superseded == 0
    assert sum(map(len, everything.series)) == sum(map(len, log.series)) + log.superseded == 6 + 6 + 2 + 4 + 4


def test_plugin_may_be_named_with_the_first_point_only(tmp_path: Path):
    messages = []
    for step in range(3):
        message = event(step)
        value = message.summary.value.add(tag=b"loss")
        value.tensor.dtype = 1
        value.tensor.float_val.append(step + 0.5)
        if step == 0:
            value.metadata.plugin_data.plugin_name = b"scalars"
        messages.append(message)
    other = event(9)
    other.summary.value.add(tag=b"unmarked").tensor.dtype = 1
    path = write_events(tmp_path / "a.tfevents.1.h", *messages, other)
    assert {tag: [p[2] for p in points] for tag, points in curves_of(path).items()} == {"loss": [0.5, 1.5, 2.5]}


def test_negative_step_and_name_that_is_no_text(tmp_path: Path):
    message = event(-4, loss=1.0)
    message.summary.value.add(tag=b"\xff", simple_value=2.0)
    (bad, loss) = sorted(read_scalars(write_events(tmp_path / "x", message)), key=lambda s: s.tag)
    assert bad.tag == "\\xff"
    assert loss.steps.tolist() == [-4]


def test_nothing_to_read(tmp_path: Path):
    with pytest.raises(DataError, match="holds no event files"):
        read_scalars(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_scalars(tmp_path / "none")
    other = tmp_path / "photo.jpg"
    other.write_bytes(b"\xff\xd8" * 60)
    with pytest.raises(DataError, match=r"photo\.jpg: length of the record at byte 0 has a wrong checksum"):
        read_scalars(other)
    empty = tmp_path / "a.tfevents.1.h"
    empty.write_bytes(b"")
    assert read_scalars(empty) == ()


def test_fuzz(tmp_path: Path):
    """Right checksums around damaged events."""
    rng = random.Random(6)
    tensor = event(4, start=True, version=b"brain.Event:2")
    value = tensor.summary.value.add(tag=b"t")
    value.metadata.plugin_data.plugin_name = b"scalars"
    value.tensor.dtype = 2
    value.tensor.tensor_shape.dim.add(size=1)
    value.tensor.tensor_content = struct.pack("<d", 2.5)
    whole = [event(1, loss=2.0, acc=0.5).SerializeToString(), tensor.SerializeToString()]
    path = tmp_path / "a.tfevents.1.h"
    for _ in range(500):
        raw = bytearray(rng.choice(whole))
        for _ in range(rng.choice((1, 1, 2, 5))):
            place = rng.randrange(len(raw))
            raw[place] = rng.choice((raw[place] ^ (1 << rng.randrange(8)), 0xFF, 0x80, 0, rng.randrange(256)))
        path.write_bytes(frame(whole[0]) + frame(bytes(raw)[: rng.randrange(len(raw) + 1)]) + frame(whole[0]))
        log = read_scalar_log(path)
        loss = next(series for series in log.series if series.tag == "loss")
        assert loss.values[0] == 2.0
        assert all("\n" not in problem.reason for problem in log.problems)
