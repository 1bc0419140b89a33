"""Children that are real processes: exit codes, output, an end from here, an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dumpers.errors import DataError, UsageError
from precision_tool.job import job_environment, run_job, script_words, shown_words

ROOT = Path(__file__).resolve().parents[2]


def python(text):
    return [sys.executable, "-c", text]


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("text", "code"),
    [("print('x')", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("1/0", 1)],
)
def test_exit_codes_are_those_of_a_shell(text, code):
    assert run_job(python(text), os.environ, lend_terminal=False).exit_code == code


def test_the_last_lines_of_both_streams_are_kept_and_no_more():
    text = "import sys\nfor n in range(200000): print('line', n)\nsys.stdout.flush()\nsys.stderr.write('last \\xff\\n')"
    end = run_job(python(text), {**os.environ, "PYTHONIOENCODING": "latin-1"}, lend_terminal=False)
    assert end.tail[-1] == "last \\xff"
    assert end.tail[-2] == "line 199999"
    assert len(end.tail) == 20


def test_it_is_ended_with_its_children_when_what_was_awaited_is_there(tmp_path):
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids) + '.part'!r}, 'w').write('%d %d' % (os.getpid(), child.pid))\n"
        f"os.rename({str(pids) + '.part'!r}, {str(pids)!r})\n"
        "time.sleep(600)"
    )
    end = run_job(python(text), os.environ, lend_terminal=False, until=pids.exists)
    assert end.stopped
    assert end.exit_code == 128 + signal.SIGTERM
    deadline = time.monotonic() + 10
    while any(alive(int(pid)) for pid in pids.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(int(pid)) for pid in pids.read_text().split())


def test_a_script_that_ignores_the_request_to_end_is_killed(tmp_path):
    text = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "time.sleep(600)"
    )
    end = run_job(python(text), os.environ, lend_terminal=False, until=(tmp_path / "ready").exists)
    assert end.exit_code == 128 + signal.SIGKILL


def test_an_interrupt_reaches_the_script_which_may_finish(tmp_path):
    text = (
        "import time\n"
        "try:\n"
        f"    open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(0.5)\n"
        f"    open({str(tmp_path / 'finished')!r}, 'w').close()\n"
    )

    def interrupt():
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_job(python(text), os.environ, lend_terminal=False)
    thread.join()
    assert (tmp_path / "finished").exists()


def test_no_interpreter_there():
    with pytest.raises(DataError, match="nothing/python: cannot be started: No such file"):
        run_job(["/nothing/python", "x.py"], os.environ, lend_terminal=False)


def test_words(tmp_path):
    script = tmp_path / "my train.py"
    script.write_text("")
    assert script_words([str(script), "-x"], python="py") == ["py", str(script), "-x"]
    assert script_words(["-x"], module="pkg.train") == [sys.executable, "-m", "pkg.train", "-x"]
    assert shown_words(["py", "my train.py", "-x"]) == "'my train.py' -x"
    with pytest.raises(UsageError, match="no such script"):
        script_words([str(tmp_path)])
    with pytest.raises(UsageError, match="give the training script"):
        script_words([])


def test_the_package_is_found_behind_what_the_script_has_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    environment = job_environment({"TF_DUMP_MODE": "hash"})
    assert environment["TF_DUMP_MODE"] == "hash"
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), str(ROOT)]
    (tmp_path / "dumpers.py").write_text("mine = True")
    text = "import dumpers, precision_tool; print(dumpers.mine, precision_tool.__name__)"
    done = subprocess.run(python(text), env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "precision_tool"]
