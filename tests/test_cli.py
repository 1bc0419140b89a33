"""The program as users call it: exit codes, one JSON document, one line for a mistake, any locale, any terminal."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cli
from precision_tool import batch

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = {"root": ROOT / "cli.py", "documented": ROOT / "precision_tool" / "cli.py"}
FC11 = "field_cases/FC11/result_20240101000000.csv"
OLD_CSV = (
    "Index,LeftOp,RightOp,TensorIndex,CosineSimilarity,MaxAbsoluteError\r\n"
    "1,a,a,a:input:0,1.000000,0\r\n1,a,a,a:output:0,0.5,1\r\n2,層,層,層:output:0,0.9,1\r\n"
)


def run(*words: str, cwd: Path, entry: str = "root", **env: str | None) -> subprocess.CompletedProcess[bytes]:
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM", "ROOT_DIR", "LC_ALL")}
    environment |= {k: v for k, v in env.items() if v is not None}
    return subprocess.run(
        [sys.executable, str(ENTRIES[entry]), *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    path = tmp_path / "result_20240101000000.csv"
    path.write_text(OLD_CSV, encoding="utf-8")
    return path


@pytest.mark.parametrize("entry", ENTRIES)
def test_help_and_exit_codes(entry: str, tmp_path: Path, csv_file: Path) -> None:
    done = run("--help", cwd=tmp_path, entry=entry)
    assert done.returncode == 0
    assert b"verdict" in done.stdout
    done = run("vcs", "-f", str(csv_file), "--json", cwd=tmp_path, entry=entry)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["command"] == "vcs"
    assert document["ok"] is True
    assert done.stderr == b""


def test_documented_path_works_from_inside_its_folder(csv_file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "cli.py", "vcs", "-f", str(csv_file)],
        cwd=ROOT / "precision_tool",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["vcs", "-f", "missing.csv"], 3, "missing.csv"),
        (["vcs", "-f", "empty"], 3, "empty"),
        (["vc", "-lt", "missing", "-rt", "empty"], 3, "missing"),
        (["vc", "-lt", "empty", "-rt", "empty"], 3, "empty"),
        (["vc", "-lt", "empty"], 2, "-rt is missing"),
        (["vc"], 3, "no dump"),
        (["verdict"], 3, "no dump"),
        (["verdict", "missing", "empty"], 3, "missing"),
        (["ls"], 3, "ge_proto"),
        (["ls", "dump"], 3, "no dump"),
        (["ni", "x"], 3, "no graph"),
        (["ni", "x", "-g", "bad.txt"], 3, "bad.txt"),
        (["ni"], 2, "no name given"),
        (["pt", "nothing"], 3, "nothing"),
        (["pt", "bad.npy"], 3, "bad.npy"),
        (["cp", "a"], 2, "two names"),
        (["cp", "bad.npy", "bad.npy"], 3, "bad.npy"),
        (["nan"], 3, "no dump"),
        (["nan", "empty"], 3, "empty"),
        (["replay", "x"], 3, "no dump"),
        (["tf_dump"], 3, "tf_debug"),
        (["run"], 2, "no shell command"),
        (["vcs", "-c", "2"], 2, "cosine"),
        (["vcs", "--wrong"], 2, "--wrong"),
        (["verdikt"], 2, "did you mean verdict"),
        (["demo", "--out", "taken"], 2, "exists"),
        (["demo", "--model", "nothing"], 2, "nothing"),
        (["--root", "missing", "ls"], 3, "missing"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line_and_an_exit_code(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import cli

    (tmp_path / "empty").mkdir()
    (tmp_path / "taken" / "precision_data").mkdir(parents=True)
    (tmp_path / "bad.npy").write_bytes(b"no array")
    (tmp_path / "bad.txt").write_bytes(b"no graph")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOT_DIR", raising=False)
    assert cli.main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert said in err
    assert cli.main(["--json", *words]) == code
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert (document["ok"], document["exit_code"]) == (False, code)
    assert said in document["error"]


def test_json_option_works_before_and_behind_the_command(csv_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import cli

    for words in (["--json", "vcs", "-f", str(csv_file)], ["vcs", "--json", "-f", str(csv_file)]):
        assert cli.main(words) == 1
        out, err = capsys.readouterr()
        assert json.loads(out)["result"]["files"][0]["found"] == 2
        assert err == ""


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, csv_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import cli
    from precision_tool.commands import summary

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(summary, "summarise_path", interrupted)
    assert cli.main(["vcs", "-f", str(csv_file)]) == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")
    assert cli.main(["vcs", "-f", str(csv_file), "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"] == "interrupted"


@pytest.mark.parametrize("code", [0, 1, 2, 3, 7, 130])
def test_run_hands_on_the_exit_code(code: int, tmp_path: Path) -> None:
    done = run("run", f"echo out; echo err >&2; exit {code}", cwd=tmp_path)
    assert done.returncode == code
    assert done.stdout == b"out\n"
    assert done.stderr.startswith(b"err\n")


def test_run_as_json_catches_the_output(tmp_path: Path) -> None:
    done = run("--json", "run", "echo", "a  b", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["result"]["stdout"] == "a  b\n"
    assert done.returncode == 0


def test_run_reports_a_signal_as_shells_do(tmp_path: Path) -> None:
    assert run("run", "kill -9 $$", cwd=tmp_path).returncode == 137


def test_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    rows = "".join(f"{i},a{i},a{i},a{i}:output:0,0.5,1\r\n" for i in range(20_000))
    path = tmp_path / "result_20240101000000.csv"
    path.write_text(OLD_CSV.splitlines()[0] + "\r\n" + rows)
    line = f"{sys.executable} {ENTRIES['root']} vcs -f {path} -l 20000 | head -1"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=120, check=False, cwd=tmp_path)
    assert done.stdout.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr


# ------------------------------------------------------------------------------------- FC26: locale, colour, terminal

SURROUNDINGS: dict[str, dict[str, str | None]] = {
    "c_locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "no_color": {"NO_COLOR": "1", "TERM": "xterm-256color"},
    "pipe": {"TERM": "xterm-256color"},
    "dumb": {"TERM": "dumb"},
    "no_term": {"TERM": None},
}


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_batch_output_is_plain_everywhere(surrounding: str, tmp_path: Path, csv_file: Path) -> None:
    done = run("vcs", "-f", str(csv_file), cwd=tmp_path, **SURROUNDINGS[surrounding])
    assert done.returncode == 1
    assert b"\x1b" not in done.stdout + done.stderr
    name = b"\\u5c64" if surrounding == "c_locale" else "層".encode()
    assert b"== [2] " + name + b" ==" in done.stdout
    assert b"Find 2 ops less then 0.98" in done.stderr


def test_output_into_a_file_is_plain(tmp_path: Path, csv_file: Path) -> None:
    target = tmp_path / "out.txt"
    with target.open("wb") as out:
        subprocess.run(
            [sys.executable, str(ENTRIES["root"]), "vcs", "-f", str(csv_file)],
            stdout=out,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
    assert b"[1] a" in target.read_bytes()
    assert b"\x1b" not in target.read_bytes()


def test_closed_standard_input_does_not_matter(csv_file: Path) -> None:
    line = f"exec <&-; {sys.executable} {ENTRIES['root']} vcs -f {csv_file}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"[1] a" in done.stdout


@pytest.mark.skipif(shutil.which("script") is None, reason="needs the program script for a terminal")
@pytest.mark.parametrize(
    ("environment", "colour"), [("TERM=xterm", True), ("NO_COLOR=1 TERM=xterm", False), ("TERM=dumb", False)]
)
def test_colour_only_on_a_terminal_that_wants_it(environment: str, colour: bool, csv_file: Path) -> None:
    line = f"env -u NO_COLOR {environment} {sys.executable} {ENTRIES['root']} vcs -f {csv_file}"
    done = subprocess.run(
        ["script", "-qec", line, os.devnull], capture_output=True, timeout=120, stdin=subprocess.DEVNULL, check=False
    )
    assert (b"\x1b" in done.stdout) is colour
    assert b"[1] a" in done.stdout


def test_field_case_11_through_the_program(shared_data: Path, tmp_path: Path) -> None:
    for number in (0, 1):
        file = shared_data / f"field_cases/FC11/result_2024010100000{number}.csv"
        done = run("vcs", "-f", str(file), "-c", "0.98", "-l", "20", "--json", cwd=tmp_path)
        assert done.returncode == 1
        (summary,) = json.loads(done.stdout)["result"]["files"]
        assert [op["name"] for op in summary["suspects"]] == ["MatMul_9", "Sum_13"]
        first = summary["suspects"][0]
        assert first["outputs"] == {"0": 0.806927}
        assert all(value >= 0.98 for value in first["inputs"].values())
        assert summary["consequences"] == ["Relu_10", "Split_11"]
        assert summary["at_threshold"] == ["GatherV2_12"]
        assert [op["name"] for op in summary["undetermined"]] == ["MaskedFill_3"]
        assert "MaskedFill_3" in summary["warnings"][0]
        split = next(op for op in summary["listed"] if op["name"] == "Split_11")
        assert list(split["outputs"]) == [str(i) for i in range(12)]
        assert (split["outputs"]["10"], split["outputs"]["2"]) == (0.8, 0.64)
        assert summary["no_partner"]


@pytest.mark.parametrize("words", [["--json"], ["--json", "tui"]])
def test_json_without_an_answer_is_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    import cli

    assert cli.main(words) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize(("words", "command"), [(["--json", "-h"], ""), (["vc", "--json", "-h"], "vc")])
def test_help_is_a_document_too(words: list[str], command: str, capsys: pytest.CaptureFixture[str]) -> None:
    import cli

    assert cli.main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["ok"]) == (command, True)
    assert "usage:" in document["result"]["help"]


def test_a_bug_is_not_taken_for_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    from precision_tool import batch

    def broken() -> int:
        raise ValueError("unforeseen")

    assert batch.guarded(["--json", "vc"], broken) == 3
    out, err = capsys.readouterr()
    assert "unforeseen" in json.loads(out)["error"]
    assert "Traceback" in err
    assert batch.guarded([], broken) == 3
    assert "error: a bug: ValueError: unforeseen" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_stdout_that_takes_nothing_is_one_line(csv_file: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, str(ENTRIES["root"]), "vcs", "--json", "-f", str(csv_file)],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1


def test_an_independent_suspect_beyond_the_limit_is_still_named(shared_data: Path, tmp_path: Path) -> None:
    done = run("vcs", "-f", str(shared_data / FC11), "-c", "0.98", cwd=tmp_path)
    panels, _, further = done.stdout.decode().partition("Further suspects")
    assert "[9] MatMul_9" in panels
    assert "Sum_13" not in panels
    assert "Sum_13" in further


def test_an_interrupt_that_a_library_turned_into_another_error(capsys, monkeypatch):
    def broken(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("numpy.core.multiarray failed to import")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(batch, "run", broken)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert cli.main(["ls"]) == 130
        assert capsys.readouterr().err == "error: interrupted\n"
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_modules_load_prints_nothing(project_root):
    program = (
        "import sys, signal, runpy\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'dumpers.errors': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        f"sys.path.insert(0, {str(project_root)!r})\n"
        f"sys.argv = ['cli.py', 'ls']; runpy.run_path({str(project_root / 'cli.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
