"""Starting on a terminal and without one, as a program (field case FC26)."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from tui.terminal import missing_terminal, own_screen

START = b"What to do next"
QUIT = (START, b"q")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")


def environment(**changes: str | None) -> dict[str, str]:
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **changes}
    return {name: value for name, value in env.items() if value is not None}


def tui_in_pty(root, tmp_path, *steps, env=None):
    """Runs ``cli.py tui`` on a pseudo-terminal and types each step's keys once its text is shown."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(root / "cli.py"), "tui"], cwd=tmp_path, env=env or environment(),
        stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    waiting, shown, seen, deadline = list(steps), b"", 0, time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    chunk = os.read(leader, 65536)
                except OSError:  # the program closed its side
                    chunk = b""
                if not chunk:
                    break
                shown += chunk
            if waiting and waiting[0][0] in shown[seen:]:
                seen = len(shown)
                os.write(leader, waiting.pop(0)[1])
        assert not waiting, shown[-20000:]
        return process.wait(timeout=10), shown
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(leader)


def run_tui(root, tmp_path, **streams):
    return subprocess.run(
        [sys.executable, str(root / "cli.py"), "tui"],
        cwd=tmp_path,
        env=environment(),
        timeout=60,
        check=False,
        **streams,
    )


@pytest.mark.parametrize("stdin", [subprocess.DEVNULL, subprocess.PIPE])
def test_pipes_instead_of_a_terminal(project_root, tmp_path, stdin):
    extra = {"input": b"q"} if stdin == subprocess.PIPE else {"stdin": stdin}
    done = run_tui(project_root, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **extra)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert b"python cli.py" in done.stderr
    assert b"\x1b" not in done.stderr


def test_closed_standard_input(project_root, tmp_path):
    command = f"exec '{sys.executable}' '{project_root}/cli.py' tui <&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, timeout=60,
                          check=False)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"\x1b" not in done.stdout + done.stderr


def test_output_into_a_file_while_the_keyboard_is_a_terminal(project_root, tmp_path):
    leader, follower = pty.openpty()
    with (tmp_path / "log").open("wb") as log:
        done = run_tui(project_root, tmp_path, stdin=follower, stdout=log, stderr=follower)
    os.close(follower)
    said = os.read(leader, 4096)
    os.close(leader)
    assert done.returncode == 2
    assert b"standard output is no terminal" in said
    assert b"\x1b" not in said
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_can_do_nothing(project_root, tmp_path, term):
    code, shown = tui_in_pty(project_root, tmp_path, env=environment(TERM=term))
    assert code == 2
    assert b"TERM" in shown
    assert b"\x1b" not in shown


def test_opens_and_quits_on_a_terminal(project_root, tmp_path):
    code, shown = tui_in_pty(project_root, tmp_path, QUIT)
    assert code == 0
    assert b"\x1b[?1049h" in shown  # the other screen, and back
    assert shown.rindex(b"\x1b[?1049l") > shown.rindex(b"\x1b[?1049h")
    assert list(tmp_path.iterdir()) == []


def test_no_colour_when_not_wanted(project_root, tmp_path):
    code, shown = tui_in_pty(project_root, tmp_path, QUIT, env=environment(NO_COLOR="1"))
    assert code == 0
    colours = [tuple(map(int, part)) for part in re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", shown)]
    assert all(red == green == blue for red, green, blue in colours)


def test_a_shell_command_neither_writes_on_the_screen_nor_steals_keys(project_root, tmp_path):
    line = b":run echo caught-$((40+2)); cat; echo torn-$((40+3)) >&2\r"
    code, shown = tui_in_pty(project_root, tmp_path, (START, line), (b"torn-43", b"q"))
    assert code == 0
    assert b"caught-42" in shown
    assert b"note: torn-43" in shown  # drawn by us, as a note


def test_what_others_write_is_kept_off_the_screen(capfd):
    streams = sys.__stdin__, sys.__stdout__, sys.__stderr__
    with own_screen() as others:
        os.write(2, b"log line of a library\n")
        assert os.read(0, 10) == b""
    assert others.text == b"log line of a library\n"
    assert (sys.__stdin__, sys.__stdout__, sys.__stderr__) == streams
    assert capfd.readouterr().err == ""
    others.replay()
    assert capfd.readouterr().err == "log line of a library\n"


def test_streams_come_back_after_an_error():
    streams = sys.__stdin__, sys.__stdout__, sys.__stderr__
    with pytest.raises(KeyError), own_screen():
        raise KeyError
    assert (sys.__stdin__, sys.__stdout__, sys.__stderr__) == streams


def test_no_terminal_in_a_test_run_says_which_stream(monkeypatch):
    monkeypatch.setattr(sys, "__stdin__", None)
    reason = missing_terminal({"TERM": "xterm"})
    assert reason is not None
    assert "standard input is no terminal" in reason
