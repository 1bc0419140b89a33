"""The picture of the tree: layers, light fronts, one printing module."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dumpers", "compare", "engine", "precision_tool", "tui")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
HEAVY = ("tensorflow", "pandas", "numba", "textual", "networkx", "google.protobuf", "graphviz")
FRONT = ("cmd2", "rich", "prompt_toolkit")


def modules_after(code: str, *words: str) -> set[str]:
    """Runs code in a fresh interpreter and returns the modules it loaded."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = {['cli.py', *words]!r}\n{code}\n"
    program += "print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return set(done.stderr.split("\n"))


def loaded(modules: set[str], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in modules]


def test_help_loads_nothing_heavy() -> None:
    modules = modules_after("import cli; cli.main(['--help'])")
    assert "precision_tool.batch" in modules
    assert loaded(modules, (*HEAVY, *FRONT, "numpy", "dumpers.formats.registry")) == []


@pytest.mark.parametrize("command", ["vc", "verdict", "demo", "ni"])
def test_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    modules = modules_after(f"import cli; cli.main(['{command}', '-h'])")
    assert loaded(modules, (*HEAVY, *FRONT, "numpy")) == []


def test_shell_start_loads_nothing_heavy() -> None:
    code = "from precision_tool import shell, workbench; shell.PrecisionShell(workbench.Workbench())"
    modules = modules_after(code)
    assert "cmd2" in modules
    assert loaded(modules, (*HEAVY, "numpy")) == []


def test_whole_shell_without_a_command_loads_no_tensorflow(tmp_path: Path) -> None:
    code = f"import os; os.environ['XDG_STATE_HOME'] = {str(tmp_path)!r}; import cli; cli.main([])"
    assert loaded(modules_after(code), HEAVY) == []


def test_batch_command_loads_no_front_and_no_tensorflow(tmp_path: Path) -> None:
    path = tmp_path / "result_20240101000000.csv"
    path.write_text("Index,LeftOp,RightOp,TensorIndex,CosineSimilarity,MaxAbsoluteError\r\n")
    modules = modules_after(f"import cli; cli.main(['vcs', '-f', {str(path)!r}])")
    assert loaded(modules, ("tensorflow", "textual", "pandas", *FRONT)) == []


@pytest.mark.parametrize("package", ["dumpers", "compare", "precision_tool", "tui"])
def test_packages_load_without_tensorflow_or_textual(package: str) -> None:
    assert loaded(modules_after(f"import {package}"), ("tensorflow", "textual")) == []


def test_layers_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([str(program)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_nobody_imports_cli_but_its_documented_twin() -> None:
    importers = {path.relative_to(ROOT).as_posix() for path in SOURCES if "cli" in imports_of(path)}
    assert importers <= {"precision_tool/cli.py"}
    assert not [path for path in SOURCES if {"precision_tool.cli", "precision_tool.cli.main"} & imports_of(path)]


def test_cli_is_short_and_has_no_logic() -> None:
    assert len((ROOT / "cli.py").read_text().splitlines()) <= 70
    assert len((ROOT / "precision_tool" / "cli.py").read_text().splitlines()) <= 30


def test_only_what_runs_steps_meets_the_engine() -> None:
    allowed = {"device.py", "training.py", "experiment.py", "step_replay.py"}
    allowed |= {"fault_modules.py", "fault_several.py", "fault_sides.py", "fault_trials.py"}  # of bench faults
    met = {
        p.name
        for p in (ROOT / "precision_tool").rglob("*.py")
        if any(i.split(".")[0] == "engine" for i in imports_of(p))
    }
    assert met <= allowed


def test_only_render_prints() -> None:
    printing = []
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "print" for n in ast.walk(tree)
        ):
            printing.append(path.relative_to(ROOT).as_posix())
    assert set(printing) <= {"precision_tool/render.py"}


def test_package_inits_are_light() -> None:
    for package in ("dumpers", "compare", "precision_tool", "tui", "dumpers/formats", "dumpers/capture"):
        assert imports_of(ROOT / package / "__init__.py") == set(), package


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_unpickling_and_no_shell_strings(path: Path) -> None:
    assert "pickle" not in imports_of(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_run_time_dependencies_are_few_and_explained() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dependencies = tomllib.loads(text)["project"]["dependencies"]
    assert len({item.split(";")[0].split("=")[0].split(">")[0] for item in dependencies}) <= 15
