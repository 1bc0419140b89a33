"""How each kind of sample is opened, down to the last value, and what may come out of it.

Allowed is a result, whose tensors load or raise DataError, or a DataError; its message is one line and names the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dumpers.errors import DataError
from dumpers.graph import Graph
from dumpers.records import Dump, TensorRecord

Opener = Callable[[Path, Path], None]
"""Gets the sample's folder and the file of it that was damaged."""


class Broken(Exception):  # noqa: N818  a finding, not an error of the program under test
    """A reader broke a rule without raising anything forbidden."""


def check_error(error: DataError, *places: Path) -> None:
    """Checks a message.

    Raises:
        Broken: it has several lines, or names no file.
    """
    text = str(error)
    if "\n" in text or "\r" in text:
        raise Broken(f"message of several lines: {text!r}")
    if not any(str(place) in text for place in places):
        raise Broken(f"message that names no file: {text!r}")


def load_records(records: Iterable[TensorRecord], folder: Path) -> None:
    """Loads every tensor as it is stored and in its original layout."""
    from dumpers.formats.layouts import load_original

    for record in records:
        str(record.name)
        if record.source is None:
            if not record.note:
                raise Broken(f"{record.name} has no value and no reason")
            continue
        for load in (TensorRecord.load, load_original):
            try:
                array = load(record)
            except DataError as error:
                check_error(error, folder)
                break
            if load is TensorRecord.load and record.shape is not None and array.shape != record.shape:
                raise Broken(f"{record.name}: shape {array.shape}, its record says {record.shape}")


def use_dump(dump: Dump, folder: Path) -> None:
    """Looks at everything in a dump."""
    load_records(dump, folder)
    for problem in dump.problems:
        if "\n" in problem.reason or not problem.reason:
            raise Broken(f"problem of several lines: {problem.reason!r}")
    if dump.graph is not None:
        use_graph(dump.graph)


def use_graph(graph: Graph) -> None:
    """Walks over a graph."""
    for op in graph.ops.values():
        for source in op.inputs:
            str(source)
        for port in (*op.input_ports, *op.output_ports):
            str((port.dtype, port.shape, port.format))
        str(op.attrs)


def tried(action: Callable[[], object], *places: Path) -> object:
    """Runs one reader; a DataError is checked and swallowed."""
    try:
        return action()
    except DataError as error:
        check_error(error, *places)
        return None


def folder_dump(folder: Path, file: Path) -> None:
    """Any folder that is a dump."""
    from dumpers.formats.registry import read_dump

    tried(lambda: use_dump(read_dump(folder), folder), folder)


def tensor_file(folder: Path, file: Path) -> None:
    """A dump folder, and its damaged file by itself."""
    from dumpers.formats.registry import read_tensor

    folder_dump(folder, file)
    tried(lambda: load_records(read_tensor(file), folder), file)


def graph_file(folder: Path, file: Path) -> None:
    """A graph in a file."""
    from dumpers.formats.registry import read_graph

    tried(lambda: use_graph(read_graph(file)), file)


def compiled_model(folder: Path, file: Path) -> None:
    """A compiled model: its graph and its constants."""
    from dumpers.formats.ge_model import om_constants

    graph_file(folder, file)
    tried(lambda: load_records(om_constants(file), folder), file)


def saved_model(folder: Path, file: Path) -> None:
    """A SavedModel."""
    from dumpers.formats.saved_model import read_saved_model

    def use() -> None:
        for graph in read_saved_model(folder):
            use_graph(graph)

    tried(use, folder)


def statistics(folder: Path, file: Path) -> None:
    """Statistics of the device."""
    from dumpers.formats.npu_statistics import read_statistics

    tried(lambda: [str(record.statistics) for record in read_statistics(file)], file)
    folder_dump(folder, file)


def overflow(folder: Path, file: Path) -> None:
    """Overflow records and their JSON form."""
    from dumpers.formats.overflow import find_overflow_files, read_overflow, read_overflow_json

    reader = read_overflow_json if file.suffix == ".json" else read_overflow
    tried(lambda: str(reader(file)), file)
    tried(lambda: find_overflow_files(folder), folder)


def tfdbg(folder: Path, file: Path) -> None:
    """Runs of TensorFlow's debugger."""
    from dumpers.formats.registry import read_tensor
    from dumpers.formats.tfdbg import read_tfdbg_run, read_tfdbg_runs

    run = next(folder.iterdir())
    tried(lambda: use_dump(read_tfdbg_run(run), folder), folder)
    tried(lambda: use_dump(read_tfdbg_runs(folder), folder), folder)
    if "_DebugIdentity_" in file.name:
        tried(lambda: load_records(read_tensor(file), folder), file)


def tfdbg_v2(folder: Path, file: Path) -> None:
    """A log of Debugger V2."""
    from dumpers.formats.tfdbg_v2 import read_tfdbg_v2

    tried(lambda: use_dump(read_tfdbg_v2(folder), folder), folder)


def checkpoint(folder: Path, file: Path) -> None:
    """A checkpoint of any version."""
    from dumpers.formats.checkpoint import find_checkpoint, read_checkpoint

    tried(lambda: use_dump(read_checkpoint(find_checkpoint(folder)), folder), folder)


def event_file(folder: Path, file: Path) -> None:
    """Scalars."""
    from dumpers.formats.event_file import read_scalars

    tried(lambda: str(read_scalars(file)), file)


def msprobe(folder: Path, file: Path) -> None:
    """msprobe's folder."""
    from dumpers.formats.msprobe import read_msprobe

    tried(lambda: use_dump(read_msprobe(folder), folder), folder)


def torch_file(folder: Path, file: Path) -> None:
    """A file of torch.save."""
    from dumpers.formats.torch_file import read_torch_file

    tried(lambda: use_dump(read_torch_file(file), folder), file)


def npz(folder: Path, file: Path) -> None:
    """An archive of arrays."""
    from dumpers.formats.npz import read_npz

    tried(lambda: use_dump(read_npz(file), folder), file)


def hdf5(folder: Path, file: Path) -> None:
    """An HDF5 file."""
    from dumpers.formats.hdf5 import read_hdf5

    tried(lambda: use_dump(read_hdf5(file), folder), file)


def fusion_result(folder: Path, file: Path) -> None:
    """A fusion report."""
    from dumpers.formats.fusion import read_fusion_result

    tried(lambda: str(read_fusion_result(file)), file)


def fusion_switch(folder: Path, file: Path) -> None:
    """A fusion switch file."""
    from dumpers.formats.fusion_switch import read_fusion_switch

    tried(lambda: str(read_fusion_switch(file)), file)


def result_csv(folder: Path, file: Path) -> None:
    """A result file of the vendor's comparison."""
    from compare.result_file import read_csv

    tried(lambda: str(read_csv(file)), file)


def identified(folder: Path, file: Path) -> None:
    """What every path goes through first."""
    from dumpers.formats.kinds import identify

    for path in (folder, file):
        tried(lambda path=path: identify(path), folder)  # type: ignore[misc]


OPENERS: Mapping[str, Opener] = {
    "npu_dump": tensor_file,
    "npu_old_names": tensor_file,
    "npu_ffts": tensor_file,
    "npu_low_precision": tensor_file,
    "npu_layouts": tensor_file,
    "npu_hashed": tensor_file,
    "npu_statistics": statistics,
    "overflow": overflow,
    "converted": tensor_file,
    "npy": tensor_file,
    "npz": npz,
    "tf_npy": folder_dump,
    "tf_record": folder_dump,
    "tfdbg": tfdbg,
    "tfdbg_v2": tfdbg_v2,
    "checkpoint_v1": checkpoint,
    "checkpoint_v2": checkpoint,
    "checkpoint_object": checkpoint,
    "event_file": event_file,
    "graph_pb": graph_file,
    "graph_pbtxt": graph_file,
    "meta_graph": graph_file,
    "saved_model": saved_model,
    "ge_text": graph_file,
    "ge_json": graph_file,
    "om": compiled_model,
    "msprobe": msprobe,
    "torch_pt": torch_file,
    "hdf5": hdf5,
    "fusion_result": fusion_result,
    "fusion_switch": fusion_switch,
    "result_csv": result_csv,
}
"""Opener of each kind in ``tests/data/samples``."""


def open_sample(kind: str, folder: Path, file: Path) -> None:
    """Opens a sample in every way that its kind has.

    Raises:
        Broken: a rule was broken; anything else that comes out is a finding as well.
    """
    identified(folder, file)
    OPENERS[kind](folder, file)
