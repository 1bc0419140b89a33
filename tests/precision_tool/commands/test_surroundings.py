"""FC24 and FC26: every batch command with a hostile name, under the C locale, without colour, into a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RAW = "層[/red][b]\x1b[2J\u202e"
SHOWN = "層[/red][b]\\x1b[2J\\u202e"

LINES = {
    "ls": (["ls", "-t", "Relu"], 0, True),
    "ls_dump": (["ls", "dump"], 0, True),
    "ni": (["ni", RAW, "-a", "-s", "1"], 0, True),
    "pt": (["pt", f"{RAW}:output:0"], 0, True),
    "cp": (["cp", f"{RAW}:output:0", f"{RAW}:output:0"], 0, False),
    "vc": (["vc"], 1, False),
    "vcs": (["vcs", "--all"], 1, True),
    "nan": (["nan"], 0, False),
    "replay": (["replay", RAW], 1, True),
    "verdict": (["verdict"], 1, True),
    "report": (["report"], 1, True),
    "ac": (["ac"], 1, False),
}
"""Words, exit code, whether the name is on stdout."""

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "xterm"}


def call(words: list[str], root: Path, project: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
    return subprocess.run(
        [sys.executable, str(project / "cli.py"), "--root", str(root), *words],
        env={**environment, **env},
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", LINES)
def test_c_locale(name: str, hostile, project_root: Path, ask) -> None:  # type: ignore[no-untyped-def]
    words, code, named = LINES[name]
    if name in ("vcs", "ac"):
        ask("vc", hostile.root)
    done = call(words, hostile.root, project_root, **C_LOCALE)
    assert done.returncode == code, done.stderr
    assert (done.stdout + done.stderr).isascii()
    assert b"\x1b" not in done.stdout + done.stderr
    if named:
        assert SHOWN.encode("ascii", "backslashreplace") in done.stdout


@pytest.mark.parametrize("name", LINES)
def test_pipe_without_colour(name: str, hostile, project_root: Path, ask) -> None:  # type: ignore[no-untyped-def]
    words, code, named = LINES[name]
    if name in ("vcs", "ac"):
        ask("vc", hostile.root)
    done = call(words, hostile.root, project_root, PYTHONUTF8="1", NO_COLOR="1", TERM="xterm")
    assert done.returncode == code, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout.decode()
    if named:
        assert SHOWN in done.stdout.decode()


@pytest.mark.parametrize("name", ["ls", "ni", "verdict"])
def test_json_has_the_name_itself(name: str, hostile, project_root: Path) -> None:  # type: ignore[no-untyped-def]
    done = call([*LINES[name][0], "--json"], hostile.root, project_root, **C_LOCALE)
    document = json.loads(done.stdout)
    assert done.stdout.isascii()
    assert RAW in json.dumps(document, ensure_ascii=False).replace("\\u001b", "\x1b")
