"""``kit``: the capture side as one folder for a training host."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from precision_tool.result import Panel, Result

if TYPE_CHECKING:
    from precision_tool.commands.base import Progress
    from precision_tool.workbench import Workbench


class Kit:
    """Write DIR/precision_tool, the one folder that a training host needs to record.

    It works alone with Python 3.7 and up and TensorFlow 1.15 and up: upload it beside the training script and import
    precision_tool.tf_config there. An earlier kit is replaced, all of it or nothing; a folder that is no kit, or that
    has files which the kit did not write, is left alone.
    """

    name = "kit"
    aliases: tuple[str, ...] = ()
    name_option = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Takes the folder."""
        parser.add_argument("directory", metavar="DIR", help="folder to write precision_tool into; made if missing")

    def run(self, args: argparse.Namespace, workbench: Workbench, progress: Progress) -> Result:
        """Writes the kit."""
        from precision_tool.kit import kit_files, total_bytes
        from precision_tool.kit_folder import write_kit

        files = kit_files()
        folder, replaced = write_kit(Path(args.directory), files)
        return Result(
            title=f"{folder}: {len(files)} files, {total_bytes(files):,} bytes{', replaced' if replaced else ''}",
            blocks=[Panel("Written", tuple(files))],
            notes=[
                f"upload {folder} beside the training script; there: import precision_tool.tf_config as npu_tf_config"
            ],
            data={"directory": str(folder), "files": list(files), "replaced": replaced},
            files=[folder],
        )
