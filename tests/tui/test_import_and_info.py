"""``info`` and ``import`` in the workbench: a new user's first two lines."""

from __future__ import annotations

from precision_tool.workbench import Workbench, settings_for
from tui.app import WorkbenchApp
from tui.screens.compare import CompareScreen
from tui.widgets.blocks import BlockText


async def settled(pilot, condition):
    for _ in range(1500):
        if condition():
            await pilot.pause()
            return
        await pilot.pause(0.02)
    raise AssertionError(pilot.app.frame.status.line)


def shown_in(screen) -> str:
    text = "\n".join(str(block.render().plain) for block in screen.query(BlockText))
    return text + "\n".join(str(row) for row in screen.table.table.rows) if isinstance(screen, CompareScreen) else text


async def test_every_kind_is_told_and_placed(samples, tmp_path):
    app = WorkbenchApp(Workbench(settings_for(str(tmp_path))))
    async with app.run_test(size=(160, 50)) as pilot:
        await settled(pilot, lambda: not app.busy)
        before = app.screen
        app.frame.command_line.begin("info --limit 2 " + " ".join(f"'{path}'" for path in samples.values()))
        await pilot.press("enter")
        await settled(pilot, lambda: app.screen is not before and not app.busy)
        text = shown_in(app.screen)
        assert [kind for kind, path in samples.items() if f"Path: {path}" not in text.replace("\n", "")] == []
        assert "not recognised" not in text
        await pilot.press("escape")
        before = app.screen
        app.frame.command_line.begin(f"import '{samples['npu_dump']}' '{samples['tf_npy']}' '{samples['ge_text']}'")
        await pilot.press("enter")
        await settled(pilot, lambda: app.screen is not before and not app.busy)
        assert "NPU dump file" in shown_in(app.screen)
        assert "linked" in shown_in(app.screen)
        assert len(list((tmp_path / "precision_data/npu/debug_0/dump").rglob("MatMulV2.*"))) == 1


SIDE = {"npz": "--as tf", "torch_pt": "--as tf", "msprobe": "--as tf", "npy": "--as tf", "hdf5": "--as npu"}
"""Kinds whose files do not tell the side."""


async def test_every_kind_is_placed_by_itself(samples, tmp_path):
    app = WorkbenchApp(Workbench(settings_for(str(tmp_path))))
    async with app.run_test(size=(160, 50)) as pilot:
        await settled(pilot, lambda: not app.busy)
        for kind, path in samples.items():
            root = tmp_path / kind
            root.mkdir()
            before = app.screen
            app.frame.command_line.begin(f"import '{path}' --root '{root}' {SIDE.get(kind, '')}")
            await pilot.press("enter")
            await settled(pilot, lambda before=before: app.screen is not before and not app.busy)
            assert "linked" in shown_in(app.screen), kind
            assert any(place.is_symlink() for place in (root / "precision_data").rglob("*")), kind
            await pilot.press("escape")
