"""Workspace: the ``precision_data`` tree, where everything lies.

Paths only; nothing is created until a writer asks. Kept to Python 3.7, since the capture side writes here.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import List, Optional

DEFAULT_RUN = "debug_0"
EARLIER_RUN = "debug_1"


class Workspace:
    """Knows the layout below ``precision_data``.

    Args:
        root: The ``precision_data`` folder itself.
    """

    def __init__(self, root: "os.PathLike[str]") -> None:
        self.root = Path(root)

    def __repr__(self) -> str:
        return "Workspace({!r})".format(str(self.root))

    def npu_run(self, run: str = DEFAULT_RUN) -> Path:
        """Folder of one device run."""
        return self.root / "npu" / run

    def npu_dump(self, run: str = DEFAULT_RUN) -> Path:
        """Root of a run's dump files (``<time>/<device>/<graph>/<model id>/<step>/`` below it)."""
        return self.npu_run(run) / "dump"

    def npu_graph(self, run: str = DEFAULT_RUN) -> Path:
        """Folder of a run's ``ge_proto_*`` graphs."""
        return self.npu_run(run) / "graph"

    @property
    def tf_dump(self) -> Path:
        """Reference tensors, one npy each."""
        return self.root / "tf" / "dump"

    @property
    def tf_debug(self) -> Path:
        """Raw records of the reference run, ``run_*`` each."""
        return self.root / "tf" / "tf_debug"

    @property
    def tf_checkpoints(self) -> Path:
        """The step that ``PrecisionTfSession`` saved: ``ckpt.*`` and ``input/*.npy``."""
        return self.root / "tf" / "checkpoints"

    @property
    def overflow(self) -> Path:
        """Overflow records of the device."""
        return self.root / "overflow" / "dump"

    @property
    def fusion(self) -> Path:
        """Folder of ``fusion_result.json``."""
        return self.root / "fusion"

    @property
    def op_graph(self) -> Path:
        """Pictures of sub-graphs."""
        return self.root / "temp" / "op_graph"

    @property
    def decode(self) -> Path:
        """Decoded device tensors."""
        return self.root / "temp" / "decode"

    @property
    def report(self) -> Path:
        """Verdicts as HTML files."""
        return self.root / "temp" / "report"

    @property
    def vector_compare(self) -> Path:
        """Results of whole-network comparisons."""
        return self.root / "temp" / "vector_compare"

    def runs(self) -> List[str]:
        """Names of the device runs, ``debug_0`` first, then in order of name."""
        names = _directories(self.root / "npu")
        return sorted(names, key=lambda name: (name != DEFAULT_RUN, name))

    def new_result(self, now: Optional[float] = None) -> Path:
        """Creates and returns ``temp/vector_compare/<YYYYmmddHHMMSS>``; the next free second if that one is taken."""
        moment = time.time() if now is None else now
        while True:
            folder = self.vector_compare / time.strftime("%Y%m%d%H%M%S", time.localtime(moment))
            try:
                folder.mkdir(parents=True, mode=0o700)
                return folder
            except FileExistsError:
                moment += 1


def newest(folder: Path) -> Optional[Path]:
    """Returns the sub-folder with the greatest all-digit name, compared as a number (so ``9_old`` is none)."""
    names = [name for name in _directories(folder) if name.isdigit()]
    return folder / max(names, key=int) if names else None


def _directories(folder: Path) -> List[str]:
    try:
        return [entry.name for entry in os.scandir(str(folder)) if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
