"""``train``: the step that ``PrecisionTfSession`` saved, once more on both devices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from precision_tool.result import Result, Table

if TYPE_CHECKING:
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench


class Train:
    """Run a saved training step again, on TensorFlow and on the device, and dump both.

    The step comes from tf/checkpoints, where precision_tool.tf_session.PrecisionTfSession saved it: graph, variables
    and fed tensors. The collection train_op runs once; constants named dropout and rate become 0; inputs that were not
    saved get random values. Actions: dump, overflow, fusion_off, fusion_switch, prof, several joined by |.
    """

    name = "train"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Takes devices and action."""
        parser.add_argument("-d", "--device", choices=("all", "npu", "cpu"), default="all", help="where to run (all)")
        parser.add_argument("-a", "--action", default="dump", help="what the device does (dump)")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Replays."""
        from precision_tool.step_replay import DEVICES, replay

        devices = DEVICES if args.device == "all" else (args.device,)
        done = replay(workbench.settings, devices, args.action, progress)
        rows = tuple(
            (device, done.files[device], "-" if folder is None else str(folder))
            for device, folder in done.folders.items()
        )
        found = [] if done.overflows is None else [f"{done.overflows} overflow records; ac shows them"]
        return Result(
            title=f"step of {done.checkpoint} replayed on {' and '.join(devices)}",
            blocks=[Table("Dumped", ("Device", "Files", "Folder"), rows)],
            notes=[*done.notes, *found],
            data={
                "checkpoint": str(done.checkpoint),
                "action": args.action,
                "random_inputs": list(done.made_up),
                "overflows": done.overflows,
                "devices": {
                    device: {"files": done.files[device], "directory": None if folder is None else str(folder)}
                    for device, folder in done.folders.items()
                },
            },
        )
