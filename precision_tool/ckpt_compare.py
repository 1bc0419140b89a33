"""Documented path ``python precision_tool/ckpt_compare.py A B``: the command ``ckpt``, started by itself."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Puts the tree's root in place of this folder on the module search path, then runs the command."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    sys.path.insert(0, str(here.parent))
    from precision_tool import batch
    from precision_tool.dispatch import parse_words
    from precision_tool.workbench import Workbench

    words = ["ckpt", *sys.argv[1:]]
    return batch.guarded(words, lambda: batch.run(parse_words(words), Workbench()))


if __name__ == "__main__":
    sys.exit(main())
