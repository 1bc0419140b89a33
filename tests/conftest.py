"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

hypothesis.settings.register_profile("suite", derandomize=True)
hypothesis.settings.load_profile("suite")  # the same cases each time; --hypothesis-profile=default looks for new ones

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder that holds cli.py."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real device files and field cases; not part of the project, so tests that need them skip without."""
    folder = Path(os.environ.get("PRECISION_TOOL_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"shared data not found at {folder} (set PRECISION_TOOL_SHARED_DATA)")
    return folder


@pytest.fixture(scope="session")
def samples() -> dict[str, Path]:
    """Small files and folders of every kind that is read, by kind; ``tests/data/samples/README.md`` describes them."""
    return {
        folder.name: folder for folder in sorted((ROOT / "tests" / "data" / "samples").iterdir()) if folder.is_dir()
    }
