"""Settings: the documented keys, read once from the environment.

Kept to Python 3.7 and the standard library, since the capture side on a training host reads them too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

DATA_DIRECTORY = "precision_data"


@dataclass(frozen=True)
class Settings:
    """What a user can set.

    Attributes:
        tf_dump_step: Steps to dump, ``0|3-5|10``; 0 is the first training step, empty means every step.
        root_dir: Parent of ``precision_data``; the current folder by default.
        cmd_root_path: Accepted for old configurations and unused: no vendor program is called.
        net_type: ``infer`` or ``train``, see ``TF_DUMP`` documents; only used to match dump directories.
        dump_seed: Seed set by ``seed_everything``.
        op_debug_level, dump_ge_graph, dump_graph_level: Values handed to a real device.
    """

    tf_dump_step: str = "0"
    root_dir: Path = Path(".")
    cmd_root_path: str = "/usr/local/Ascend/"
    net_type: str = "infer"
    dump_seed: int = 2022
    op_debug_level: int = 4
    dump_ge_graph: str = "2"
    dump_graph_level: str = "3"

    @property
    def data_root(self) -> Path:
        """The ``precision_data`` folder."""
        return self.root_dir / DATA_DIRECTORY


def read_settings(environ: Optional[Mapping[str, str]] = None) -> Settings:
    """Returns the settings with what TF_DUMP_STEP, ROOT_DIR, CMD_ROOT_PATH and NET_TYPE in the environment say."""
    env = os.environ if environ is None else environ
    default = Settings()
    return Settings(
        tf_dump_step=env.get("TF_DUMP_STEP", default.tf_dump_step),
        root_dir=Path(env.get("ROOT_DIR") or "."),
        cmd_root_path=env.get("CMD_ROOT_PATH", default.cmd_root_path),
        net_type=env.get("NET_TYPE", default.net_type),
    )
