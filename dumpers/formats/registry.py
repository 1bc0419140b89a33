"""The one place that knows all formats: it looks at a path and imports only the reader that fits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dumpers.errors import DataError
from dumpers.formats.dump_names import (
    full_name,
    is_alias,
    parse_converted_name,
    parse_dump_name,
    parse_tf_name,
    read_mapping,
)
from dumpers.formats.walk import choose_leaf, walk_folders
from dumpers.graph import Graph
from dumpers.records import Dump, TensorRecord

_SHOWN: Final = 3


def read_dump(path: Path, *, graph: Graph | None = None) -> Dump:
    """Reads a dump folder of any kind.

    Kinds: device dump files, converted device tensors (npy), reference tensors (npy in TensorFlow naming, with or
    without ``index.csv``), one run of TensorFlow's debugger, one raw record of ours, or any folder of npy files.

    A folder of device files may be given by any of its parents. Different models, steps and devices are never merged:
    of several time folders (14 digits) the newest is taken, then the folder with most dump files, then the one with the
    lowest numbers in its path; the other folders are listed in ``Dump.ignored``. Reference tensors and plain npy files
    are read from all sub-folders. Where a folder holds device files and npy files, the device files are read.

    Args:
        path: The folder.
        graph: The graph that belongs to it: gives full op names, original layouts and the dtype of raw data.

    Raises:
        DataError: no such folder, an empty one, or one that holds no dump; the message says which.
    """
    path = Path(path)
    _check_folder(path)
    special = _read_special(path)
    if special is not None:
        return special
    try:
        folders = dict(walk_folders(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _read_files(path, folders, graph)


def _check_folder(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such folder; check the path, or dump first")
    if not path.is_dir():
        raise DataError(f"{path}: is a file, not a dump folder; give the folder that holds it")


def _read_special(path: Path) -> Dump | None:
    """Folders that are one run of the golden side, known by what lies at their top."""
    from dumpers.formats.tf_record import is_tf_record
    from dumpers.formats.tfdbg import is_tfdbg_run

    if is_tf_record(path):
        from dumpers.formats.tf_record import read_tf_record

        return read_tf_record(path)
    if is_tfdbg_run(path):
        from dumpers.formats.tfdbg import read_tfdbg_run

        return read_tfdbg_run(path)
    runs = sorted(entry.name for entry in path.glob("run_*") if is_tf_record(entry) or is_tfdbg_run(entry))
    if runs:
        raise DataError(
            f"{path}: holds {len(runs)} recorded runs, not one dump; give one of them, the last is {runs[-1]}"
        )
    return None


def _read_files(path: Path, folders: dict[Path, list[str]], graph: Graph | None) -> Dump:
    npu: dict[Path, int] = {}
    converted: dict[Path, int] = {}
    reference, arrays = 0, 0
    for folder, names in folders.items():
        kinds = [_kind(name) for name in _full_names(folder, names)]
        if count := kinds.count("npu"):
            npu[folder] = count
        if count := kinds.count("converted"):
            converted[folder] = count
        reference += kinds.count("tf")
        arrays += kinds.count("npy")
    if npu:
        from dumpers.formats.npu_dir import read_npu_dir

        leaf, others = choose_leaf(path, npu)
        return _with_ignored(read_npu_dir(leaf, folders[leaf], graph=graph), others)
    from dumpers.formats import npy_dir

    if converted:
        leaf, others = choose_leaf(path, converted)
        return _with_ignored(npy_dir.read_converted_dir(leaf, folders[leaf], graph=graph), others)
    indexed = any(
        npy_dir.INDEX_FILE in names and npy_dir.is_index(f / npy_dir.INDEX_FILE) for f, names in folders.items()
    )
    if reference or indexed:
        return npy_dir.read_tf_dir(path, _files(folders), graph=graph)
    if arrays:
        return npy_dir.read_plain_dir(path, _files(folders))
    raise DataError(_nothing(path, folders))


def _full_names(folder: Path, names: list[str]) -> Iterator[str]:
    """Names as they are meant: short ones looked up, those that no ``mapping.csv`` has as they are."""
    mapping = read_mapping(folder) if any(is_alias(name) for name in names) else {}
    for name in names:
        yield full_name(name, mapping) or name


def _kind(name: str) -> str:
    if name.endswith(".npy"):
        if parse_converted_name(name):
            return "converted"
        return "tf" if parse_tf_name(name) else "npy"
    parsed = parse_dump_name(name)
    return "npu" if parsed and not parsed.is_overflow and not parsed.statistics else ""


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
    """Reads a graph file of any kind: device text or JSON, a compiled model, a TensorFlow GraphDef or ``.meta`` file.

    Raises:
        DataError: no such file, or no graph.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            start = file.read(4096)
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder; give a graph file, for example a ge_proto_*_Build.txt") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    if not start.strip():
        raise DataError(f"{path}: is empty; compile or dump the graph again")
    from dumpers.formats.tf_graph import looks_like_graph_text, read_graph_def

    if looks_like_graph_text(start) or (_is_binary(start) and not _is_device_binary(path, start)):
        return read_graph_def(path)
    from dumpers.formats.ge_convert import computing_graph
    from dumpers.formats.ge_graph import read_ge_graphs

    return computing_graph(read_ge_graphs(path))


def _is_binary(start: bytes) -> bool:
    return start.lstrip()[:1] not in (b"{", b"[") and any(byte < 9 or 13 < byte < 32 for byte in start)


def _is_device_binary(path: Path, start: bytes) -> bool:
    """Device models have their graphs in field 7 and a name in field 1; a GraphDef has nodes in field 1."""
    from dumpers.formats.ge_model import is_model_container
    from dumpers.formats.wire import WireError, fields

    if is_model_container(start):
        return True
    raw = path.read_bytes()
    try:
        return any(field.number == 7 and field.kind == 2 for field in fields(raw, 0, len(raw))) and not _has_graph_def(
            raw
        )
    except WireError:
        return False


def _has_graph_def(raw: bytes) -> bool:
    """A MetaGraphDef may have a field 7 too, but its graph is in field 2; a device model has a number there."""
    from dumpers.formats.wire import fields

    return any(field.number == 2 and field.kind == 2 for field in fields(raw, 0, len(raw)))


def read_tensor(path: Path, *, dtype: str | None = None) -> list[TensorRecord]:
    """Reads one file: an npy file, a device dump file, or a tensor file of TensorFlow's debugger.

    Args:
        path: The file.
        dtype: What raw two-byte data are (``bfloat16``).

    Returns:
        The tensors in it, inputs before outputs.

    Raises:
        DataError: no such file, or none of these; of a damaged dump file at least one tensor must be whole.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            start = file.read(6)
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder, not a tensor file") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    if start == b"\x93NUMPY" or path.suffix == ".npy":
        return [_npy_record(path, dtype)]
    if "_DebugIdentity_" in path.name:
        from dumpers.formats.tfdbg import read_tfdbg_tensor

        return [read_tfdbg_tensor(path)]
    from dumpers.formats.npu_dump import read_npu_dump

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
