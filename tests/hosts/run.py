"""``make test-hosts``: the capture side on the Pythons and TensorFlows of training hosts, from a kit, read back here.

For each host: its environment is built where its interpreter exists (kept while its requirements stay the same), the
capture tests run in it against a fresh kit and nothing else of ours, and every record they left is opened with the
workbench. An interpreter that is missing is said in one line.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from precision_tool.kit import kit_files  # noqa: E402
from precision_tool.kit_folder import write_kit  # noqa: E402
from tests.hosts.read_dumps import open_all  # noqa: E402

CAPTURE = "tests/dumpers/capture"
FACADE = "tests/precision_tool"
LEAST_COMPARED = 150
OURS = ("dumpers", "precision_tool", "compare", "engine", "tui", "cli")


@dataclass(frozen=True)
class Host:
    """One kind of training host.

    Attributes:
        name: Of its environment and its file of requirements.
        minor: Its Python, 3.minor.
    """

    name: str
    minor: int

    @property
    def requirements(self) -> Path:
        return HERE / f"requirements-{self.name}.txt"


HOSTS = (Host("py37", 7), Host("py39", 9))


class HostError(Exception):
    """What failed, with the end of its output."""


def call(words: Sequence[str | Path], **options: object) -> str:
    """Runs a program and returns its output.

    Raises:
        HostError: it failed.
    """
    texts = [str(word) for word in words]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    done = subprocess.run(texts, text=True, check=False, **both, **options)
    if done.returncode:
        raise HostError(f"{' '.join(texts[:6])} ...: exit code {done.returncode}\n{done.stdout[-6000:]}")
    return done.stdout


def interpreter(host: Host) -> str | None:
    """The host's Python, None where it is not installed."""
    words = ["sh", str(ROOT / ".ci" / "find_python.sh"), "--host", str(host.minor)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def environment(host: Host, python: str, folder: Path) -> Path:
    """Builds the host's environment unless it is there already, and returns its interpreter.

    Raises:
        HostError: it cannot be built.
    """
    place = folder / host.name
    stamp, wanted = place / "installed", f"{python}\n{host.requirements.read_text(encoding='utf-8')}"
    inside = place / "bin" / "python"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted and inside.exists():
        return inside
    shutil.rmtree(place, ignore_errors=True)
    call([python, "-m", "venv", place])
    pip = [inside, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    call([*pip, "install", "wheel"])
    call([*pip, "install", "--no-deps", "-r", host.requirements])
    call([*pip, "check"])
    stamp.write_text(wanted, encoding="utf-8")
    return inside


def placed_modules(files: Sequence[str]) -> set[str]:
    """Names that the tests may import: the kit's modules, and those below ``_capture`` as ``dumpers``."""
    names = set()
    for file in files:
        if file.endswith(".py"):
            parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
            parts = [] if parts == ["__init__"] else parts
            names.add(".".join(["dumpers", *parts[1:]] if parts[:1] == ["_capture"] else ["precision_tool", *parts]))
    return names


def workbench_needs(test: Path, placed: set[str]) -> list[str]:
    """Modules of ours that a test file loads at its top and the kit does not have: it tests the workbench then."""
    missing = []
    for node in ast.parse(test.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in below if (ROOT / name.replace(".", "/")).with_suffix(".py").exists()] or [
                node.module
            ]
        missing += [name for name in names if name.split(".")[0] in OURS and name not in placed]
    return missing


def suite(host: Host, python: Path, kit: Path, placed: set[str], dumps: Path) -> list[str]:
    """Runs the capture tests of the host against a kit and returns what to say; their records stay in ``dumps``.

    Raises:
        HostError: a test failed, or the modules under test are not the kit's.
    """
    variables = {k: v for k, v in os.environ.items() if k not in ("ROOT_DIR", "TF_DUMP_STEP", "PYTHONHOME")}
    variables |= {
        "PYTHONPATH": os.pathsep.join([str(HERE / "shim"), str(kit)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    dumps.mkdir(parents=True)
    which = (
        "import sys, numpy, tensorflow, dumpers.capture.session as session, precision_tool.tf_config as facade\n"
        "files = [session.__file__, facade.__file__]\n"
        "assert all(file.startswith(sys.argv[1]) for file in files), files\n"
        "print('Python', sys.version.split()[0], 'TensorFlow', tensorflow.__version__, 'NumPy', numpy.__version__)"
    )
    versions = call([python, "-c", which, kit], env=variables, cwd=dumps).splitlines()[-1]
    said = [versions]
    capture = sorted((ROOT / CAPTURE).rglob("test_*.py"))
    facade = sorted((ROOT / FACADE).glob("test_tf_*.py"))
    for path in [*capture, *facade]:
        needs = workbench_needs(path, placed)
        if needs:
            said.append(
                f"{path.name}: a test of the workbench, not run here (it needs {', '.join(sorted(set(needs)))})"
            )
            (capture if path in capture else facade).remove(path)
    pytest = [python, "-m", "pytest", "-q", "-rs", "-c", HERE / "pytest.ini", f"--rootdir={ROOT}"]
    runs = {"capture": [f"--confcutdir={ROOT / CAPTURE}", *capture], "facade": ["--noconftest", *facade]}
    for name, words in runs.items():
        output = call([*pytest, f"--basetemp={dumps / name}", *words], env=variables, cwd=dumps)
        lines = [line for line in output.splitlines() if line.startswith("SKIPPED") or " passed" in line]
        said += [f"{name}: {line}" for line in lines]
    return said


def check(host: Host, folder: Path, kit: Path, placed: set[str], work: Path) -> tuple[bool, list[str]]:
    """Does all that is to be done for a host; returns whether it is well, and what to say."""
    python = interpreter(host)
    if python is None:
        return True, [f"SKIPPED: no Python 3.{host.minor} on PATH or under pyenv, nothing was tested on it"]
    start = time.monotonic()
    try:
        inside = environment(host, python, folder)
        built = time.monotonic()
        said = suite(host, inside, kit, placed, work / host.name)
    except HostError as error:
        return False, [str(error)]
    ran = time.monotonic()
    tally = open_all(work / host.name)
    said += tally.wrong[:50]
    said.append(
        f"{tally.records} records opened here, {tally.tensors} tensors loaded, {tally.compared} compared bit for bit, "
        f"{len(tally.wrong)} wrong"
    )
    well = not tally.wrong and tally.compared >= LEAST_COMPARED
    if tally.compared < LEAST_COMPARED:
        said.append(f"at least {LEAST_COMPARED} tensors should have been compared: test_host_dumps.py did not run")
    said.append(f"{built - start:.0f} s environment, {ran - built:.0f} s tests, {time.monotonic() - ran:.0f} s reading")
    return well, said


def main() -> int:
    """Checks every host, two at a time; exit code 1 if one that is there is not well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-hosts", help="where they are kept")
    parser.add_argument("--keep", type=Path, help="new folder that keeps the kit and the records")
    args = parser.parse_args()
    if args.keep and args.keep.exists():
        parser.error(f"--keep {args.keep}: is there already; give a new folder")
    with tempfile.TemporaryDirectory(prefix="hosts-") as temporary:
        work = args.keep or Path(temporary)
        files = kit_files()
        write_kit(work / "kit", files)
        placed, all_well = placed_modules(list(files)), True
        with ThreadPoolExecutor(2) as pool:
            jobs = [
                (host, pool.submit(check, host, args.environments.resolve(), (work / "kit").resolve(), placed, work))
                for host in HOSTS
            ]
            for host, job in jobs:
                well, said = job.result()
                all_well = all_well and well
                sys.stdout.write("\n".join([f"== {host.name}: {'ok' if well else 'FAILED'}", *said, ""]))
                sys.stdout.flush()
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
