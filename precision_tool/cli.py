"""Documented path ``python3 precision_tool/cli.py``: the same program as ``cli.py`` in the tree's root."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Puts the tree's root in place of this folder on the module search path, then calls the real program."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    sys.path.insert(0, str(here.parent))
    import cli

    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
