"""The one folder that works alone on a training host: which files it has, what they become there, how it is written.

The facade modules (``tf_*.py``) stay where users import them from; all of ``dumpers`` that they need moves below them,
to ``_capture``, and their imports of it become relative ones. So the folder neither needs nor shadows a package
``dumpers`` of the host.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import dumpers
import precision_tool
from dumpers.errors import DataError

NAME: Final = "precision_tool"
"""Name of the folder: what users import."""

_PLACES: Final = {"precision_tool": (), "dumpers": ("_capture",)}
"""Package here -> where its modules go below the folder."""

_ROOTS: Final = {
    "precision_tool": Path(precision_tool.__file__).resolve().parent,
    "dumpers": Path(dumpers.__file__).resolve().parent,
}
_FACADE: Final = "tf_*.py"
_CAPTURE: Final = "capture"
_NOT_ON_A_HOST: Final = frozenset(
    {"npu.py", "overflow.py"}
)  # writes what the emulated device reports, which runs in the workbench only
_CONFIG: Final = "capture/config"
_ABSOLUTE: Final = re.compile(rb"from(\s+)(?:precision_tool|dumpers)\b\.?")

README: Final = """\
Capture side of PrecisionTool for a training host: Python 3.7 and up, TensorFlow 1.15 and up, nothing else to install.

1. Put this folder, precision_tool, beside your training script.
2. Add: import precision_tool.tf_config as npu_tf_config
3. Wrap the session: sess = npu_tf_config.sess_dump(sess=sess), or on the device side take
   config=npu_tf_config.session_dump_config(config, action="dump").
4. Train. TF_DUMP_STEP="0|3-5" chooses the steps; the records go to precision_data in ROOT_DIR, or where you started.
5. Bring precision_data back to the workbench: python cli.py tf_dump, then python cli.py verdict.
"sha256sum -c KIT" in this folder tells whether every file is as it was written.
"""

Module = tuple[str, tuple[str, ...]]
"""Package and the parts of the path below it without suffix: ``("dumpers", ("capture", "session"))``."""


def kit_files() -> dict[str, bytes]:
    """Returns what the folder holds, by path below it with ``/``: always the same bytes for the same sources.

    Every facade module, every module of ``dumpers/capture`` and whatever of ours they import, followed to the end;
    imports under ``if TYPE_CHECKING`` do not count.

    Raises:
        DataError: a module cannot be read, or imports ours in a form that cannot be placed elsewhere.
    """
    waiting: list[Module] = [("precision_tool", (path.stem,)) for path in _ROOTS["precision_tool"].glob(_FACADE)]
    for path in (_ROOTS["dumpers"] / _CAPTURE).rglob("*.py"):
        if path.name not in _NOT_ON_A_HOST:
            waiting.append(("dumpers", path.relative_to(_ROOTS["dumpers"]).with_suffix("").parts))
    found: dict[str, bytes] = {"README.txt": README.encode()}
    seen: set[Module] = set()
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            place, content, imported = _placed(*module)
            found[place] = content
            waiting += imported
    for path in (_ROOTS["dumpers"] / _CONFIG).iterdir():
        if path.is_file() and not path.name.startswith("."):
            found["/".join((*_PLACES["dumpers"], _CONFIG, path.name))] = _read(path)
    return dict(sorted(found.items()))


def _placed(package: str, parts: tuple[str, ...]) -> tuple[str, bytes, list[Module]]:
    """Returns the place of a module in the kit, what it is there, and the modules of ours that it imports."""
    path = _ROOTS[package].joinpath(*parts).with_suffix(".py")
    content = _read(path)
    tree = ast.parse(content, str(path))
    depth = len(_PLACES[package]) + len(parts)
    imported = [found for node in _at_run_time(tree) for found in _modules_of(node, path, package, parts)]
    imported += [(package, (*parts[:end], "__init__")) for end in range(len(parts))]
    return "/".join((*_PLACES[package], *parts)) + ".py", _relative(content, tree, depth, path), imported


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror or error}; the kit needs the tool's sources"
        ) from error


def _at_run_time(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yields the imports that are carried out: those under ``if TYPE_CHECKING`` are not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _at_run_time(other)
        else:
            yield from _at_run_time(child)


def _modules_of(
    node: ast.Import | ast.ImportFrom, path: Path, package: str, parts: tuple[str, ...]
) -> Iterator[Module]:
    """Yields our modules that one import loads."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] in _PLACES:
                raise DataError(f"{path}:{node.lineno}: import {alias.name}: the kit places only 'from ... import'")
        return
    below = tuple(node.module.split(".")) if node.module else ()
    if node.level:
        base = parts[: len(parts) - node.level] + below
    elif below and below[0] in _PLACES:
        package, base = below[0], below[1:]
    else:
        return
    for choice in (base, *((*base, alias.name) for alias in node.names)):
        folder = _ROOTS[package].joinpath(*choice)
        if folder.is_dir():
            yield package, (*choice, "__init__")
        elif folder.with_suffix(".py").is_file():
            yield package, choice


def _relative(content: bytes, tree: ast.AST, depth: int, path: Path) -> bytes:
    """Returns a module with its absolute imports of ours turned into relative ones; every other byte stays.

    Args:
        content: The source.
        tree: The same, parsed.
        depth: Parts of the module's place below the kit's folder, its own name included; one dot each.
        path: For errors.
    """
    lines = content.splitlines(keepends=True)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
            continue
        package = node.module.split(".")[0]
        if package not in _PLACES:
            continue
        line, column = lines[node.lineno - 1], node.col_offset
        match = _ABSOLUTE.match(line, column)
        if match is None:
            raise DataError(f"{path}:{node.lineno}: an import of {package} that the kit cannot place")
        name = ".".join(_PLACES[package])
        if name and match.group().endswith(b"."):
            name += "."
        head = b"from" + match.group(1) + ("." * depth + name).encode()
        lines[node.lineno - 1] = line[:column] + head + line[match.end() :]
    return b"".join(lines)


def total_bytes(files: Mapping[str, bytes]) -> int:
    """Returns the size of the files together, in bytes."""
    return sum(map(len, files.values()))
