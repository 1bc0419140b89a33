"""The real commands in the workbench, on a small tree of our own making: what works in shell and batch works here."""

from __future__ import annotations

import numpy as np
import pytest

from dumpers.formats.ge_graph import write_ge_text
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.graph import Graph, Op, Port, Source
from precision_tool.workbench import Workbench, settings_for
from tui.app import WorkbenchApp
from tui.screens.compare import CompareScreen
from tui.screens.frame import FrameScreen
from tui.widgets.blocks import BlockText

GRAPH = "ge_default_1"
MATMUL = "tower/MatMul"
RELU = "tower/Relu"


def port(*shape: int) -> Port:
    return Port("float32", shape, "ND", {"origin_shape": list(shape)})


@pytest.fixture
def tree(tmp_path):
    """A device run whose Relu is wrong by a factor, its graph, and the reference."""
    random = np.random.default_rng(3)
    x, w = random.normal(size=(4, 3)).astype(np.float32), random.normal(size=(3, 2)).astype(np.float32)
    product = x @ w
    relu = np.maximum(product, 0)
    ops = [
        Op("x", "Data", output_ports=(port(4, 3),), id=0),
        Op("w", "Const", output_ports=(port(3, 2),), id=1),
        Op(MATMUL, "MatMulV2", (Source("x", 0), Source("w", 0)), (), (port(4, 3), port(3, 2)), (port(4, 2),),
           {"transpose_x1": False, "transpose_x2": False}, 2),
        Op(RELU, "Relu", (Source(MATMUL, 0),), (), (port(4, 2),), (port(4, 2),), {}, 3),
    ]  # fmt: skip
    data = tmp_path / "precision_data"
    leaf = data / "npu" / "debug_0" / "dump" / "20240101000000" / "0" / GRAPH / "1" / "0"
    graph = data / "npu" / "debug_0" / "graph" / "ge_proto_00000001_graph_1_Build.txt"
    reference = data / "tf" / "dump"
    for folder in (leaf, graph.parent, reference):
        folder.mkdir(parents=True)
    write_ge_text(Graph(GRAPH, {op.name: op for op in ops}, "ge"), graph)
    time = 1_700_000_000_000_000
    write_npu_dump(leaf / f"MatMulV2.tower_MatMul.1.0.{time}", op_name=MATMUL, inputs=[x, w], outputs=[product],
                   dump_time_us=time)  # fmt: skip
    write_npu_dump(leaf / f"Relu.tower_Relu.2.0.{time + 1}", op_name=RELU, inputs=[product],
                   outputs=[relu * np.float32(1.5) - np.float32(0.5)], dump_time_us=time + 1)  # fmt: skip
    for name, value in ((MATMUL, product), (RELU, relu)):
        write_npy(reference / f"{name.replace('/', '_')}.0.{time}.npy", value)
    return tmp_path


def paths_of(tree):
    data = tree / "precision_data"
    return {
        "L": next((data / "npu/debug_0/dump").rglob("MatMulV2.*")).parent,
        "R": data / "tf/dump",
        "G": next((data / "npu/debug_0/graph").glob("*.txt")),
        "A": next((data / "tf/dump").glob("tower_MatMul*")),
        "B": next((data / "tf/dump").glob("tower_Relu*")),
    }


def shown_in(screen: FrameScreen) -> str:
    """Returns all text of a screen, scrolled out of sight or not."""
    text = "\n".join(str(block.render().plain) for block in screen.query(BlockText))
    if isinstance(screen, CompareScreen):
        text += "\n".join(str(row) for row in screen.table.table.rows)
    return text


async def settled(pilot, condition):
    for _ in range(1500):
        if condition():
            await pilot.pause()
            return
        await pilot.pause(0.02)
    raise AssertionError(pilot.app.frame.status.line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vc", RELU),
        ("vc -lt {L} -rt {R}", RELU),
        ("vector_compare -lt {L} -rt {R} -g {G}", RELU),
        ("ni tower/Relu -g {G} -a -s 2", "wrote "),
        ("ni -n tower/Relu", "NpuDumpOutput"),
        ("ls -t MatMul", "tower/MatMul"),
        ("ls dump", "Relu.tower_Relu"),
        ("pt {A}", "float32"),
        ("cp {A} {B} -p 5 -al 1e-3 -rl 1e-3", "CosSim"),
        ("compare {A} {B}", "CosSim"),
        ("nan", ""),
        ("replay tower/Relu", "tower/Relu"),
        ("verdict", "tower/Relu"),
        ("ac", ""),
        ("run echo hello | tr a-z A-Z", "HELLO"),
    ],
)
async def test_every_command_answers_on_a_screen(tree, line, expected):
    app = WorkbenchApp(Workbench(settings_for(str(tree))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot, lambda: not app.busy and len(app.screen_stack) > 1)
        before = app.screen
        before.command_line.begin(line.format(**paths_of(tree)))
        await pilot.press("enter")
        await settled(pilot, lambda: app.screen is not before)
        assert expected in shown_in(app.screen) + str(app.frame.title_bar.render().plain)
        await pilot.press("escape")
        assert app.screen is before


async def test_the_newest_result_is_shown_at_the_start_and_its_ops_can_be_walked(tree):
    from precision_tool.dispatch import parse_line

    parse_line("vc").run(Workbench(settings_for(str(tree))))
    app = WorkbenchApp(Workbench(settings_for(str(tree))))
    async with app.run_test(size=(160, 48)) as pilot:
        await settled(pilot, lambda: isinstance(app.screen, CompareScreen))
        screen = app.screen
        assert "CosineSimilarity" in screen.table.table.columns
        assert {RELU, MATMUL} <= set(screen.table.op_names)
        await pilot.press("slash", *"relu output", "enter")
        assert screen.table.op_name == RELU
        assert screen.table.table.marks[screen.table.row] == "bad"
        await settled(pilot, lambda: "[Relu] tower/Relu" in shown_in(screen))
        assert "TfDumpOutput" in shown_in(screen)


async def test_tf_dump_without_a_recording_is_one_line(tree):
    app = WorkbenchApp(Workbench(settings_for(str(tree))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot, lambda: not app.busy and len(app.screen_stack) > 1)
        app.frame.command_line.begin("tf_dump")
        await pilot.press("enter")
        await settled(pilot, lambda: app.frame.status.line.startswith("error: "))
        assert "tf_debug" in app.frame.status.line


async def test_the_root_of_a_command_holds_for_its_ops_too(tree, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("empty")
    app = WorkbenchApp(Workbench(settings_for(str(elsewhere))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot, lambda: not app.busy)
        app.frame.command_line.begin(f"vc --root {tree}")
        await pilot.press("enter")
        await settled(pilot, lambda: isinstance(app.screen, CompareScreen))
        screen = app.screen
        await settled(pilot, lambda: "GraphName: ge_default_1" in shown_in(screen))
