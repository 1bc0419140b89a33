"""Calling a command the way every front does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dumpers.settings import Settings
from precision_tool import dispatch
from precision_tool.result import Result
from precision_tool.workbench import Workbench

Ask = Callable[..., Result]


@pytest.fixture
def ask() -> Ask:
    """Runs a line on the data below a folder: ``ask("vc", data.root)``."""

    def run(line: str, root: Path) -> Result:
        return dispatch.parse_line(line).run(Workbench(Settings(root_dir=root)))

    return run
