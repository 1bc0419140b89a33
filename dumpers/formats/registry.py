"""The one place that knows all formats: it asks :mod:`dumpers.formats.kinds` and imports only the reader that fits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.dump_names import (
    full_name,
    is_alias,
    parse_converted_name,
    parse_dump_name,
    parse_stored_reference,
    parse_tf_name,
    read_mapping,
)
from dumpers.formats.kinds import Identified, identify
from dumpers.formats.raw import regular_only
from dumpers.formats.sniff import RUN_NAME, full_names, name_sort
from dumpers.formats.walk import choose_leaf, walk_folders
from dumpers.graph import Graph
from dumpers.records import Dump, TensorRecord

_LOG = logging.getLogger(__name__)

_SHOWN: Final = 3

DUMP_FILES: Final = frozenset({"npz", "torch", "hdf5", "checkpoint_v2", "checkpoint_v1", "msprobe_json", "record_json"})
"""Kinds of single files that are a whole dump, so that they can be a side of a comparison."""

_WHOLE_FOLDERS: Final = frozenset({"tf_record", "tfdbg_run", "tfdbg_v2", "checkpoint_folder", "msprobe"})
_DEVICE_GRAPHS: Final = frozenset({"ge_text", "ge_json", "om", "model_def"})
_FRAMEWORK_GRAPHS: Final = frozenset({"graph_text", "graph_def", "meta_graph"})


def is_dump_file(path: Path) -> bool:
    """Tells whether a path that is no folder can be given where a dump is wanted (an npz, a checkpoint's prefix)."""
    found = identify(path)
    return found is not None and found.kind.name in DUMP_FILES


def is_whole_folder(path: Path) -> bool:
    """Tells whether a folder is one dump with everything below it (a debugger's runs, msprobe, a SavedModel)."""
    found = identify(path)
    return found is not None and found.kind.name in _WHOLE_FOLDERS | {"tf_runs", "saved_model"}


def read_dump(path: Path, *, graph: Graph | None = None) -> Dump:
    """Reads a dump of any kind.

    Folders: device dump files or their statistics, converted device tensors (npy), reference tensors (npy in TensorFlow
    naming, with or without ``index.csv``), a run of TensorFlow's debugger (first version, or all runs of a folder; or
    Debugger V2), one raw record of ours, checkpoints (the newest), a SavedModel's variables, an msprobe dump, or any
    folder of npy files. Files: npz, HDF5, PyTorch, a checkpoint (also by its prefix).

    A folder of device files may be given by any of its parents. Different models, steps and devices are never merged:
    of several time folders (14 digits) the newest is taken, then the folder with most dump files, then the one with the
    lowest numbers in its path; the other folders are listed in ``Dump.ignored``. Reference tensors and plain npy files
    are read from all sub-folders. Where a folder holds device files and npy files, the device files are read.

    Args:
        path: The folder or file.
        graph: The graph that belongs to it: gives full op names, original layouts and the dtype of raw data.

    Raises:
        DataError: no such path, an empty folder, or nothing that is a dump; the message says which.
    """
    path = Path(path)
    found = identify(path)
    if found is not None and found.kind.name in DUMP_FILES | _WHOLE_FOLDERS:
        return _whole(found, path)
    _check_folder(path)
    special = _read_special(path, found)
    if special is not None:
        return special
    try:
        folders = dict(walk_folders(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _read_files(path, folders, graph)


def _whole(found: Identified, path: Path) -> Dump:
    dump = found.kind.read(path)
    if not isinstance(dump, Dump):
        raise TypeError(f"{found.kind.reader} returned {type(dump).__name__}, not a Dump")
    return dump


def _check_folder(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such folder; check the path, or dump first")
    if not path.is_dir():
        raise DataError(f"{path}: is a file, not a dump folder; give the folder that holds it")


def _read_special(path: Path, found: Identified | None) -> Dump | None:
    """Folders that hold runs, or a SavedModel."""
    if found is None:
        return None
    if found.kind.name == "saved_model":
        return read_dump(path / "variables" / "variables")
    if found.kind.name != "tf_runs":
        return None
    runs = sorted(entry.name for entry in path.iterdir() if RUN_NAME.match(entry.name) and entry.is_dir())
    kinds = {run: inner.kind.name for run in runs if (inner := identify(path / run)) is not None}
    if kinds and set(kinds.values()) == {"tfdbg_run"}:
        from dumpers.formats.tfdbg import read_tfdbg_runs

        return read_tfdbg_runs(path)
    known = [run for run, kind in kinds.items() if kind in ("tf_record", "tfdbg_run")]
    if len(known) == 1:
        return read_dump(path / known[0])
    if known:
        raise DataError(
            f"{path}: holds {len(known)} recorded runs, not one dump; give one of them, the last is {known[-1]}"
        )
    return None


def _read_files(path: Path, folders: dict[Path, list[str]], graph: Graph | None) -> Dump:
    counts: dict[str, dict[Path, int]] = {}
    for folder, names in folders.items():
        for name in full_names(folder, names):
            sort = name_sort(name) or ("alias" if is_alias(name) else "")
            by_folder = counts.setdefault(sort, {})
            by_folder[folder] = by_folder.get(folder, 0) + 1
    device = counts.get("npu") or counts.get("statistics")
    if device:
        return _read_device(path, folders, device, graph)
    from dumpers.formats import npy_dir

    if "converted" in counts:
        leaf, others = choose_leaf(path, counts["converted"])
        return _with_ignored(npy_dir.read_converted_dir(leaf, folders[leaf], graph=graph), others)
    indexed = any(
        npy_dir.INDEX_FILE in names and npy_dir.is_index(f / npy_dir.INDEX_FILE) for f, names in folders.items()
    )
    if "tf" in counts or indexed:
        return npy_dir.read_tf_dir(path, _files(folders), graph=graph)
    if "npy" in counts:
        return npy_dir.read_plain_dir(path, _files(folders))
    if "alias" in counts:  # the mapping was lost: each file is named with what is wrong
        return _read_device(path, folders, counts["alias"], graph)
    inner = _single_dump(folders)
    if inner is not None:
        return inner
    raise DataError(_nothing(path, folders))


def _read_device(path: Path, folders: dict[Path, list[str]], counts: dict[Path, int], graph: Graph | None) -> Dump:
    from dumpers.formats.npu_dir import read_npu_dir

    leaf, others = choose_leaf(path, counts)
    return _with_ignored(read_npu_dir(leaf, folders[leaf], graph=graph), others)


def _single_dump(folders: dict[Path, list[str]]) -> Dump | None:
    """A folder around one npz, HDF5 file or dump of another tool: that dump, everything else ignored."""
    found: list[Identified] = []
    others: list[Path] = []
    for folder, names in folders.items():
        inner = identify(folder)
        if inner is not None and inner.kind.name in _WHOLE_FOLDERS:
            found.append(inner)
            continue
        for name in names:
            known = identify(folder / name)
            if known is not None and known.kind.name in DUMP_FILES:
                found.append(known)
            else:
                others.append(folder / name)
    if len(found) != 1:
        return None
    return _with_ignored(_whole(found[0], found[0].path), tuple(others))


def _files(folders: dict[Path, list[str]]) -> list[Path]:
    return [folder / name for folder, names in folders.items() for name in names]


def _with_ignored(dump: Dump, others: tuple[Path, ...]) -> Dump:
    return Dump(dump.path, dump.records, dump.problems, (*dump.ignored, *others), dump.graph)


def _nothing(path: Path, folders: dict[Path, list[str]]) -> str:
    names = [name for found in folders.values() for name in found]
    if not names:
        return f"{path}: is empty; dump first, or give the folder that holds the dump files"
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{path}: holds no dump files (found {shown}); give the folder of a dump"


def read_graph(path: Path) -> Graph:
    """Reads a graph of any kind: device text or JSON, a compiled model, a TensorFlow GraphDef or ``.meta`` file.

    Of a folder: the main graph of a SavedModel, or the graph inside a run of TensorFlow's debugger or a raw record.

    Raises:
        DataError: no such path, or no graph.
    """
    path = Path(path)
    if path.is_dir():
        return _folder_graph(path)
    try:
        with open(path, "rb", opener=regular_only) as file:
            start = file.read(4096)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    if not start.strip():
        raise DataError(f"{path}: is empty; compile or dump the graph again")
    found = identify(path)
    kind = found.kind.name if found else ""
    if kind == "saved_model_file":
        return _saved_model(path)
    if found and found.kind.content == "facts":
        raise DataError(f"{path}: is a {found.kind.title} ({found.why}), not a graph")
    if kind in _FRAMEWORK_GRAPHS or (kind not in _DEVICE_GRAPHS and _is_binary(start)):
        from dumpers.formats.tf_graph import read_graph_def

        return read_graph_def(path)
    from dumpers.formats.ge_convert import computing_graph
    from dumpers.formats.ge_graph import read_ge_graphs

    return computing_graph(read_ge_graphs(path))


def _folder_graph(path: Path) -> Graph:
    found = identify(path)
    if found is not None and found.kind.name == "saved_model":
        return _saved_model(path)
    if found is not None and found.kind.name in ("tf_record", "tfdbg_run", "tfdbg_v2"):
        graph = read_dump(path).graph
        if graph is not None:
            return graph
        raise DataError(f"{path}: this {found.kind.title} holds no graph")
    raise DataError(f"{path}: is a folder; give a graph file, for example a ge_proto_*_Build.txt")


def _saved_model(path: Path) -> Graph:
    from dumpers.formats.saved_model import read_saved_model

    return read_saved_model(path)[0]


def _is_binary(start: bytes) -> bool:
    return start.lstrip()[:1] not in (b"{", b"[") and any(byte < 9 or 13 < byte < 32 for byte in start)


def read_tensor(path: Path, *, dtype: str | None = None) -> list[TensorRecord]:
    """Reads one file: npy, npz, HDF5, PyTorch, a device dump or its statistics, a tensor of TensorFlow's debugger.

    Of a checkpoint (also by its prefix) all variables, of a compiled model (``.om``) its constants.

    Args:
        path: The file.
        dtype: What raw two-byte data are (``bfloat16``).

    Returns:
        The tensors in it, inputs before outputs.

    Raises:
        DataError: no such file, or none of these; of a damaged dump file at least one tensor must be whole. What else
            is damaged in a file of several tensors is a logged warning.
    """
    path = Path(path)
    found = identify(path)
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a tensor file")
    kind = found.kind.name if found else ""
    if kind in DUMP_FILES and found is not None:
        whole = _whole(found, path)
        for problem in whole.problems:
            _LOG.warning("%s: %s", problem.path, problem.reason)
        return list(whole)
    if kind == "tf_npy" and parse_stored_reference(path.name):
        return _stored_reference(path)
    if kind in ("npy", "tf_npy", "npu_converted_npy"):
        return [_npy_record(path, dtype)]
    if kind == "tfdbg_tensor":
        from dumpers.formats.tfdbg import read_tfdbg_tensor

        return [read_tfdbg_tensor(path)]
    if kind == "npu_statistics":
        from dumpers.formats.npu_statistics import read_statistics

        return list(read_statistics(path))
    if kind == "om":
        from dumpers.formats.ge_model import om_constants

        return list(om_constants(path))
    if found is not None and found.kind.content != "tensors" and kind != "overflow_record":
        raise DataError(f"{path}: is a {found.kind.title} ({found.why}), not a tensor file; info shows what is in it")
    return _npu_records(path)


def _stored_reference(path: Path) -> list[TensorRecord]:
    from dumpers.formats.npy_dir import read_tf_dir

    dump = read_tf_dir(path.parent, [path])
    if dump.problems:
        raise DataError(f"{path}: {dump.problems[0].reason}")
    return list(dump)


def _npu_records(path: Path) -> list[TensorRecord]:
    from dumpers.formats.npu_dump import read_npu_dump

    if path.exists() and not path.is_file():
        raise DataError(f"{path}: is neither a file nor a folder (a pipe or a device); it is not opened")
    try:
        with open(path, "rb", opener=regular_only):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    name = parse_dump_name(full_name(path.name, read_mapping(path.parent)) or "")
    found = read_npu_dump(path, name=name)
    records = [*found.inputs, *found.outputs]
    if found.problems and not any(record.source for record in records):
        raise DataError(f"{path}: {found.problems[0].reason}")
    return records


def _npy_record(path: Path, dtype: str | None) -> TensorRecord:
    from dumpers.formats.npy import NpySource, read_npy_header

    header = read_npy_header(path)
    known = parse_converted_name(path.name)
    reference = None if known else parse_tf_name(path.name)
    shown = dtype or header.dtype
    source = None if shown == "undefined" else NpySource(path, dtype)
    return TensorRecord(
        op=known.op_name if known else reference.op_name if reference else path.stem,
        op_type=known.op_type if known else "",
        io=known.io if known and known.io else "output",
        slot=known.slot if known else reference.slot if reference else 0,
        dtype=shown,
        shape=header.shape,
        source=source,
        timestamp_us=known.timestamp_us if known else reference.timestamp_us if reference else None,
        device="npu" if known else "tf",
        note=header.unknown if source is None else "",
        task_id=known.task_id if known else None,
        stream_id=known.stream_id if known else None,
    )
