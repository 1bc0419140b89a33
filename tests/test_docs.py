"""What the documentation tells a user to type works: every command of README and the how-to pages is run here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from precision_tool.commands import COMMANDS
from precision_tool.dispatch import describe

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page):
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]


def run(words, folder):
    environment = {k: v for k, v in os.environ.items() if k not in ("TF_DUMP_STEP", "ROOT_DIR")}
    environment["PYTHONPATH"] = str(ROOT)  # as a user's script that imports precision_tool has it
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_work_in_their_order(page, tmp_path):
    typed = [words for words in commands(page) if words[:2] == ["python", "cli.py"]]
    assert typed, "a page without a command tells nobody what to do"
    examples = blocks(page, "python") if page.parent.name == "how-to" else []  # what a page wants made first
    for example in examples:
        if named := re.match(r"# (\w+\.py)\n", example):  # a script that the commands run
            (tmp_path / named[1]).write_text(example, encoding="utf-8")
        done = run([sys.executable, "-c", example], tmp_path)
        assert done.returncode == 0, done.stderr
    for words in typed:
        done = run([sys.executable, str(ROOT / "cli.py"), *words[2:]], tmp_path)
        assert done.returncode in (0, 1), f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        assert done.stdout.strip()


def test_make_demo_succeeds_and_names_the_fault(tmp_path):
    assert ["make", "demo"] in commands(ROOT / "README.md")
    # The environment that runs this test is the one make would install: -o install leaves it as it is.
    words = ["make", "-C", str(ROOT), "-o", "install", "demo", f"VENV={sys.prefix}", f"DEMO=--out {tmp_path / 'demo'}"]
    done = run(words, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("Golden", "NPU", "0.98 rule", "table_lookup", "item_table_lookup/gather"):
        assert expected in done.stdout
    assert "sees nothing of the fault" in done.stdout


def test_make_test_runs_this_suite():
    assert ["make", "test"] in commands(ROOT / "README.md")
    done = run(["make", "-C", str(ROOT), "-n", "-o", "install", "test", f"VENV={sys.prefix}"], ROOT)
    assert done.returncode == 0
    assert "-m pytest" in done.stdout
    assert done.stdout.strip().splitlines()[-1].split()[-1] == "tests" or "tests" in done.stdout


def test_the_python_example_of_the_readme_runs(tmp_path):
    (example,) = blocks(ROOT / "README.md", "python")
    done = run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{example}"], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert any((page.parent / target).exists() or list((page.parent).glob(target + "*")) for _ in (0,)), target


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_says_what_it_does(command):
    text = describe(command)
    assert text.splitlines()[0].endswith(".")
    assert len(text.splitlines()[0]) <= 120
