"""``kit``: the folder works alone, holds what is needed and nothing else, and never harms what is there already."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.tf_record import read_tf_record
from precision_tool import kit, kit_folder
from precision_tool.kit import kit_files
from precision_tool.kit_folder import MARKER, write_kit

ROOT = Path(__file__).resolve().parents[3]
HOST = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {"__init__.py": b"", "tf_config.py": b"one = 1\n", "_capture/__init__.py": b""}

TRAIN = """
import os, sys
script_folder = os.path.dirname(os.path.abspath(sys.argv[0]))
assert not [p for p in sys.path if os.path.isdir(os.path.join(p, "dumpers"))], sys.path
import numpy as np
import tensorflow as tf
import precision_tool.tf_config as npu_tf_config
ours = {n: m for n, m in sys.modules.items() if n.split(".")[0] in ("precision_tool", "dumpers")}
assert all(os.path.dirname(m.__file__).startswith(script_folder) for m in ours.values()), ours
assert not [name for name in ours if name.startswith("dumpers")], ours
tf1 = tf.compat.v1
tf1.disable_eager_execution()
x = tf1.placeholder(tf.float32, [2, 3], name="x")
w = tf1.get_variable("w", initializer=np.full([3, 1], 0.5, np.float32))
y = tf.matmul(x, w, name="y")
train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y))
sess = npu_tf_config.sess_dump(sess=tf1.Session(config=npu_tf_config.session_dump_config(action="fusion_off")))
with sess:
    sess.run(tf1.global_variables_initializer())
    sess.run([train, y], {x: np.arange(6, dtype=np.float32).reshape(2, 3)})
"""


def tree(folder):
    """Everything below a folder: its content, or where a link leads."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def script(folder, text):
    """Runs a script as a user does, in a Python that is told nothing of this project."""
    (folder / "train.py").write_text(textwrap.dedent(text), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ROOT_DIR", "TF_DUMP_STEP")}
    words = [sys.executable, "train.py"]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_folder_works_alone_and_its_dump_opens_here(tmp_path, ask):
    upload = tmp_path / "upload 層 á"
    result = ask(f"kit '{upload}'", tmp_path)
    assert result.exit_code == 0
    assert result.files == [upload / "precision_tool"]
    done = script(upload, TRAIN)
    assert done.returncode == 0, done.stderr
    extracted = ask("tf_dump", upload)
    assert extracted.data["tensors"] > 3
    (folder,) = (upload / "precision_data" / "tf" / "tf_debug").glob("run_*")
    (record,) = [found for found in read_tf_record(folder) if found.op == "y"]
    assert record.load().tolist() == [[1.5], [6.0]]


def test_the_snippet_of_the_page_runs_beside_the_kit(tmp_path):
    (snippet,) = HOST.findall((ROOT / "docs" / "how-to" / "capture-hosts.md").read_text(encoding="utf-8"))
    write_kit(tmp_path, kit_files())
    done = script(tmp_path, snippet)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "precision_data" / "tf" / "tf_debug").glob("run_*/record.json"))) == 1


def test_every_module_of_the_kit_loads(tmp_path):
    write_kit(tmp_path, kit_files())
    done = script(
        tmp_path,
        """
        import pkgutil, importlib, precision_tool
        for found in pkgutil.walk_packages(precision_tool.__path__, "precision_tool."):
            importlib.import_module(found.name)
            print(found.name)
        """,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"precision_tool.tf_config", "precision_tool._capture.capture.session"} <= loaded
    modules = [name for name in kit_files() if name.endswith(".py")]
    assert len(loaded) == len(modules) - 1  # the package itself


def test_a_package_dumpers_of_the_user_is_neither_used_nor_hidden(tmp_path):
    write_kit(tmp_path, kit_files())
    (tmp_path / "dumpers").mkdir()
    (tmp_path / "dumpers" / "__init__.py").write_text("mine = 7\n")
    done = script(
        tmp_path,
        """
        import sys
        import precision_tool.tf_config
        assert "dumpers" not in sys.modules
        import dumpers
        print(dumpers.mine)
        """,
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_the_same_sources_make_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_kit(tmp_path / name, kit_files())
    one, two = tree(tmp_path / "one"), tree(tmp_path / "two")
    assert one == two
    assert not [name for name in one if name.endswith((".pyc", ".part"))]
    assert set(one) == {f"precision_tool/{name}" for name in [*kit_files(), MARKER]}
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["precision_tool"]


def test_it_holds_the_whole_capture_side_and_nothing_of_the_workbench():
    files = kit_files()
    here = {path.relative_to(ROOT / "dumpers").as_posix() for path in (ROOT / "dumpers" / "capture").rglob("*.py")}
    there = {name.removeprefix("_capture/") for name in files if name.startswith("_capture/capture/")}
    # both write what the emulated device reports, and that runs in the workbench only
    assert {name for name in there if name.endswith(".py")} == here - {"capture/npu.py", "capture/overflow.py"}
    assert {"capture/config/fusion_off.cfg", "capture/config/fusion_switch.cfg"} <= there
    facade = {path.name for path in (ROOT / "precision_tool").glob("tf_*.py")}
    assert {name for name in files if "/" not in name and name.endswith(".py")} == {"__init__.py", *facade}
    assert len(files["README.txt"].splitlines()) <= 10


def test_it_needs_python_37_tensorflow_and_numpy_only():
    ours = {"precision_tool", "dumpers", "compare", "engine", "tui", "cli", "tests"}
    given = {"tensorflow", "numpy", "google"}  # protobuf comes with TensorFlow
    for name, content in kit_files().items():
        if name.endswith(".py"):
            module = ast.parse(content, name, feature_version=(3, 7))
            for node in kit._at_run_time(module):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                if isinstance(node, ast.Import) or not node.level:
                    roots = {found.split(".")[0] for found in names}
                    assert not roots & ours, f"{name}:{node.lineno}"
                    assert roots <= set(sys.stdlib_module_names) | given | {"ml_dtypes"}, f"{name}:{node.lineno}"


def test_only_imports_change():
    for name, content in kit_files().items():
        if name.startswith("tf_"):
            source = (ROOT / "precision_tool" / name).read_bytes().splitlines()
            for old, new in zip(source, content.splitlines(), strict=True):
                if old != new:
                    assert old.lstrip().startswith((b"from dumpers", b"from precision_tool"))
                    assert new.lstrip().startswith(b"from .")


@pytest.mark.parametrize(
    ("line", "placed"),
    [
        ("from dumpers.a.b import c as d", "from ._capture.a.b import c as d"),
        ("from dumpers import names", "from ._capture import names"),
        (
            "if 1: x = 'é'; from   dumpers.a import (\n    b,\n)",
            "if 1: x = 'é'; from   ._capture.a import (\n    b,\n)",
        ),
        ("from precision_tool.x import y", "from .x import y"),
        ("from precision_tool import x", "from . import x"),
        ("text = 'from dumpers import x'  # from dumpers import x", None),
        ("from dumpers_of_mine import x", None),
    ],
)
def test_imports_are_placed(line, placed):
    content = (line + "\n").encode()
    assert kit._relative(content, ast.parse(content), 1, Path("x.py")) == ((placed or line) + "\n").encode()


def test_an_import_that_cannot_be_placed_is_refused(tmp_path, monkeypatch):
    (tmp_path / "tf_new.py").write_text("import dumpers.errors\n")
    monkeypatch.setitem(kit._ROOTS, "precision_tool", tmp_path)
    with pytest.raises(DataError, match=r"tf_new.py:1: import dumpers.errors"):
        kit_files()


def test_sha256sum_reads_the_marker(tmp_path):
    write_kit(tmp_path, kit_files())
    words = ["sha256sum", "--check", "--strict", "--quiet", MARKER]
    assert subprocess.run(words, cwd=tmp_path / "precision_tool", check=False).returncode == 0
    with open(tmp_path / "precision_tool" / "tf_config.py", "ab") as file:
        file.write(b"\n")
    assert subprocess.run(words, cwd=tmp_path / "precision_tool", capture_output=True, check=False).returncode == 1


# ------------------------------------------------------------------------------------------- what is there already


def test_an_earlier_kit_is_replaced_whole(tmp_path):
    write_kit(tmp_path, {**FILES, "gone.py": b""})
    cache = tmp_path / "precision_tool" / "__pycache__"
    cache.mkdir()
    (cache / "gone.cpython-37.pyc").write_bytes(b"compiled")
    folder, replaced = write_kit(tmp_path, FILES)
    assert replaced
    assert set(tree(folder)) == {*FILES, MARKER}


@pytest.mark.parametrize("make", ["file", "link", "empty", "other", "marker of something else"])
def test_what_is_no_kit_is_left_alone(tmp_path, make):
    folder, elsewhere = tmp_path / "precision_tool", tmp_path / "elsewhere"
    write_kit(elsewhere, FILES)
    if make == "file":
        folder.write_text("mine")
    elif make == "link":
        folder.symlink_to(elsewhere / "precision_tool")
    else:
        folder.mkdir()
        if make != "empty":
            (folder / {"other": "mine.py"}.get(make, MARKER)).write_text("mine")
    before = tree(tmp_path)
    if make == "empty":
        assert write_kit(tmp_path, FILES)[1] is False
        assert set(tree(folder)) == {*FILES, MARKER}
        return
    with pytest.raises(UsageError, match=r"precision_tool: is (no kit|in the way)"):
        write_kit(tmp_path, FILES)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("change", ["added", "added link", "added below", "edited", "marker names it wrongly"])
def test_a_kit_with_files_of_the_user_is_left_alone(tmp_path, change):
    folder, _ = write_kit(tmp_path, FILES)
    name = {"added": "mine.py", "added link": "mine", "added below": "_capture/__pycache__/mine.txt"}.get(
        change, "tf_config.py"
    )
    if change == "added link":
        (folder / name).symlink_to(tmp_path)
    elif change == "marker names it wrongly":
        (folder / MARKER).write_text((folder / MARKER).read_text().replace("tf_config.py", "../tf_config.py"))
    else:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=f"added or changed since the kit was written: {name};"):
        write_kit(tmp_path, FILES)
    assert tree(tmp_path) == before


def test_where_a_kit_cannot_go(tmp_path, ask):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(UsageError, match="is no folder"):
            ask(f"kit {tmp_path / place}", tmp_path)
    with pytest.raises(DataError, match=r"/proc/self/x.*cannot be written"):
        ask("kit /proc/self/x", tmp_path)
    with pytest.raises(UsageError, match=r"precision_tool: is no kit"):
        ask(f"kit {ROOT}", tmp_path)
    for inside in ("dumpers", "precision_tool/commands"):
        with pytest.raises(UsageError, match="the tool's own package"):
            ask(f"kit {ROOT / inside}", tmp_path)
    assert not (ROOT / "dumpers" / "precision_tool").exists()


@pytest.mark.parametrize("earlier", [False, True])
def test_a_full_disk_leaves_what_was_there(tmp_path, earlier):
    """The operating system itself refuses: no file may have more than 600 bytes."""
    if earlier:
        write_kit(tmp_path, FILES)
    before = tree(tmp_path)
    program = (
        "import resource, sys, cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))\n"
        "sys.exit(cli.main(['kit', sys.argv[1]]))"
    )
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "cannot be written: File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert tree(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == (["precision_tool"] if earlier else [])


def test_two_at_once(tmp_path):
    failures = []

    def write():
        try:
            for _ in range(10):
                write_kit(tmp_path, FILES)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(tree(tmp_path)) == {f"precision_tool/{name}" for name in [*FILES, MARKER]}


def test_a_lock_that_is_not_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(kit_folder, "_PATIENCE_S", 0.2)
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another kit has been writing"):
            write_kit(tmp_path, FILES)
    finally:
        os.close(held)


def test_killed_at_any_moment(tmp_path):
    """Whatever is there after SIGKILL is a whole kit or none, and the next kit clears up."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom precision_tool.kit import kit_files\n"
        "from precision_tool.kit_folder import write_kit\nfiles = kit_files()\nprint('go', flush=True)\n"
        "while True:\n    write_kit(Path(sys.argv[1]), files)"
    )
    right = {f"precision_tool/{name}": content for name, content in kit_files().items()}
    for moment in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        child.stdout.readline()
        time.sleep(0.003 * moment)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        found = {k: v for k, v in tree(tmp_path).items() if k.startswith("precision_tool/")}
        found.pop(f"precision_tool/{MARKER}", None)
        assert found in (right, {})
    write_kit(tmp_path, kit_files())
    assert [path.name for path in tmp_path.iterdir()] == ["precision_tool"]


def test_what_a_killed_kit_was_replacing_comes_back_first(tmp_path):
    write_kit(tmp_path, FILES)
    staging = tmp_path / kit_folder._STAGING
    staging.mkdir()
    (tmp_path / "precision_tool").rename(staging / "replaced")
    with contextlib.suppress(DataError):
        write_kit(tmp_path, {"x" * 300: b""})  # a name no file system takes
    assert set(tree(tmp_path)) == {f"precision_tool/{name}" for name in [*FILES, MARKER]}
    staging.mkdir()
    (staging / "mine").write_text("")
    with pytest.raises(UsageError, match="is in the way"):
        write_kit(tmp_path, FILES)
    assert (staging / "mine").exists()
