"""The shell: same commands, history, completion; unknown lines go to the system's shell."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from dumpers.settings import Settings
from precision_tool.commands import COMMANDS
from precision_tool.shell import DROPPED, PROMPT, PrecisionShell, banner
from precision_tool.workbench import Workbench


@pytest.fixture
def shell(data) -> PrecisionShell:  # type: ignore[no-untyped-def]
    return PrecisionShell(Workbench(Settings(root_dir=data.root)), stdin=io.StringIO(), stdout=io.StringIO())


def typed(shell: PrecisionShell, line: str) -> tuple[str, bool]:
    """Types a line and returns what stands on stdout and whether the shell ends."""
    shell.stdout.seek(0)
    shell.stdout.truncate()
    ended = shell.onecmd_plus_hooks(line)
    return shell.stdout.getvalue(), bool(ended)


def test_prompt_and_banner(shell: PrecisionShell) -> None:
    assert shell.prompt == PROMPT == "PrecisionTool > "
    assert "Enjoy!" in banner()


def test_all_commands_are_there_and_the_unwanted_built_ins_are_not(shell: PrecisionShell) -> None:
    visible = set(shell.get_visible_commands())
    assert {name for command in COMMANDS for name in (command.name, *command.aliases)} <= visible
    assert not visible & set(DROPPED)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ls -t MatMul", "[MatMulV2][MatMulBiasAddFusionPass] dense/MatMuldense/BiasAdd"),
        ("ni dense/Relu", "Op(Type/Name): [Relu] dense/Relu"),
        ("ni -n 'dense/Relu' -a", "Op(Type/Name): [Relu] dense/Relu"),
        ("pt dense_Relu.0", "TxtFile:"),
        ("cp Relu.dense_Relu dense_Relu.0 -p 5 -al 1e-3 -rl 1e-3", "AllClose: "),
        ("vc", "== Outputs below 0.98"),
        ("verdict", "Verdict: operator: dense/Relu [Relu]"),
    ],
)
def test_commands_answer(line: str, expected: str, shell: PrecisionShell) -> None:
    out, ended = typed(shell, line)
    assert expected in out
    assert not ended


def test_json_in_the_shell_is_one_document(shell: PrecisionShell) -> None:
    out, _ = typed(shell, "ls --json")
    assert json.loads(out)["command"] == "ls"
    out, _ = typed(shell, "ni nothing_like_it --json")
    assert json.loads(out)["exit_code"] == 2


def test_a_mistake_is_one_line_and_the_shell_goes_on(shell: PrecisionShell, capsys: pytest.CaptureFixture[str]) -> None:
    out, ended = typed(shell, "ni dense/Rleu_x")
    assert (out, ended) == ("", False)
    assert capsys.readouterr().err == "error: no op named dense/Rleu_x in the loaded graphs; did you mean dense/Relu?\n"
    out, ended = typed(shell, "vc -x")
    assert not ended
    assert "-x" in capsys.readouterr().err


def test_unknown_line_is_a_shell_command(shell: PrecisionShell, capfd: pytest.CaptureFixture[str]) -> None:
    typed(shell, "echo 'a  b' ; echo c")
    assert capfd.readouterr().out == "a  b\nc\n"


def test_unknown_program_offers_the_nearest_command(shell: PrecisionShell, capfd: pytest.CaptureFixture[str]) -> None:
    typed(shell, "verdikt")
    assert "did you mean verdict?" in capfd.readouterr().err


def test_run_takes_the_line_as_it_stands(shell: PrecisionShell, capfd: pytest.CaptureFixture[str]) -> None:
    typed(shell, 'run echo "a  b"; exit 4')
    captured = capfd.readouterr()
    assert captured.out == "a  b\n"
    assert "exit code 4" in captured.err


def test_answer_can_go_into_a_file(shell: PrecisionShell, tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    typed(shell, f"ls -t Relu > {target}")
    assert "[Relu][] dense/Relu" in target.read_text()
    typed(shell, f"run echo hello > {target}")
    assert target.read_text() == "hello\n"


def test_end_of_input_leaves(shell: PrecisionShell) -> None:
    assert typed(shell, "_eof")[1]
    assert typed(shell, "quit")[1]


def test_help_lists_and_explains(shell: PrecisionShell) -> None:
    assert "verdict" in typed(shell, "help")[0]
    assert "LEFT is the device under test" in typed(shell, "help verdict")[0]


def test_completion_of_commands_options_and_ops(shell: PrecisionShell) -> None:
    def texts(line: str, text: str) -> list[str]:
        begin = len(line) - len(text)
        return [item.text for item in shell.complete(text, line, begin, len(line))]

    assert "verdict" in texts("ver", "ver")
    assert "dense/Relu" in texts("ni dense/Re", "dense/Re")
    assert "--cos_sim" in texts("vcs --cos", "--cos")


def test_history_is_kept(data, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = str(tmp_path / "history")
    workbench = Workbench(Settings(root_dir=data.root))
    first = PrecisionShell(workbench, history_file=file, stdin=io.StringIO(), stdout=io.StringIO())
    typed(first, "ls -t Relu")
    first._persist_history()
    second = PrecisionShell(workbench, history_file=file, stdin=io.StringIO(), stdout=io.StringIO())
    assert [item.raw for item in second.history] == ["ls -t Relu"]
