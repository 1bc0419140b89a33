from __future__ import annotations

import subprocess
import sys

import pytest

import engine

CHECK = "import engine, precision_tool.training, sys; engine.KeyMap; print('tensorflow' in sys.modules)"


def test_importing_the_engine_loads_no_tensorflow(project_root):
    answer = subprocess.run([sys.executable, "-c", CHECK], cwd=project_root, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize("name", engine.__all__)
def test_public_names_resolve(name):
    assert getattr(engine, name).__name__ == name
    assert name in dir(engine)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_thing"):
        engine.no_such_thing  # noqa: B018
