"""Every kind of file and folder that is read: how it is recognised, what reads it, where it belongs.

``info``, ``import``, ``convert`` and the registry all work from this one table, and ``docs/reference/formats.md`` is
held against it by a test. A reader is named by its dotted path and imported when something is read, never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from dumpers.formats import folder_sniff, graph_sniff, sniff
from dumpers.formats.folder_sniff import holds
from dumpers.formats.sniff import Look, Sniffer, by_name, look_at

Container = Literal["file", "folder"]
Content = Literal["tensors", "graph", "facts"]
Side = Literal["npu", "tf", ""]

LEAF: Final = "npu/<name>/dump/<time>/<device>/<graph>/<model>/<step>/"
GRAPHS: Final = "npu/<name>/graph/"
REFERENCE: Final = "tf/dump/"
RAW_RUNS: Final = "tf/tf_debug/"
TF_GRAPHS: Final = "tf/graph/"
CHECKPOINTS: Final = "tf/checkpoints/"
EVENTS: Final = "tf/events/"
OVERFLOW: Final = "overflow/dump/<time>/"
FUSION: Final = "fusion/"
RESULTS: Final = "temp/vector_compare/<time>/"
HDF5_PLACE: Final = "pt/npu/ or pt/gpu/"


@dataclass(frozen=True)
class Kind:
    """One kind of file or folder.

    Attributes:
        name: Short, for JSON and tests.
        title: What a user reads.
        container: Whether it is a file or a folder.
        sniff: Says why a path is of this kind, an empty text if it is not.
        content: ``tensors``, ``graph`` or ``facts`` (reports, indexes, scalars).
        reader: ``module:function`` that takes the path.
        place: Where ``import`` puts it below ``precision_data``; empty if it stays where it is.
        side: Which side it comes from; empty if the files do not tell, then ``import --as`` has to.
    """

    name: str
    title: str
    container: Container
    sniff: Sniffer = field(repr=False)
    content: Content
    reader: str
    place: str = ""
    side: Side = ""

    def read(self, path: Path) -> object:
        """Reads a path of this kind with its reader.

        Raises:
            DataError: it cannot be read.
        """
        return self.load_reader()(path)

    def load_reader(self) -> Callable[[Path], object]:
        """Imports and returns the reader."""
        module, _, function = self.reader.partition(":")
        found: Callable[[Path], object] = getattr(importlib.import_module(f"dumpers.formats.{module}"), function)
        return found


@dataclass(frozen=True)
class Identified:
    """What a path was recognised as, and why."""

    path: Path
    kind: Kind
    why: str


def _folder(name: str, title: str, found: Sniffer, content: Content, reader: str, place: str, side: Side) -> Kind:
    return Kind(name, title, "folder", found, content, reader, place, side)


def _file(name: str, title: str, found: Sniffer, content: Content, reader: str, place: str, side: Side) -> Kind:
    return Kind(name, title, "file", found, content, reader, place, side)


_DUMP = "registry:read_dump"
_TENSOR = "registry:read_tensor"

_FOLDERS: Final = (
    _folder("data_tree", "precision_data folder", folder_sniff.data_tree, "tensors", _DUMP, "", ""),
    _folder("tf_record", "raw record of a reference step", folder_sniff.tf_record, "tensors",
            "tf_record:read_tf_record", RAW_RUNS, "tf"),
    _folder("tfdbg_run", "run of TensorFlow's debugger", folder_sniff.tfdbg_run, "tensors",
            "tfdbg:read_tfdbg_run", RAW_RUNS, "tf"),
    _folder("tfdbg_v2", "Debugger V2 run", folder_sniff.tfdbg_v2, "tensors", "tfdbg_v2:read_tfdbg_v2", REFERENCE, "tf"),
    _folder("tf_runs", "recorded reference runs", folder_sniff.tfdbg_runs, "tensors", _DUMP, RAW_RUNS, "tf"),
    _folder("saved_model", "SavedModel", folder_sniff.saved_model, "graph",
            "saved_model:read_saved_model", TF_GRAPHS, "tf"),
    _folder("checkpoint_folder", "folder of TensorFlow checkpoints", folder_sniff.checkpoint_folder, "tensors",
            "checkpoint:read_checkpoint", CHECKPOINTS, "tf"),
    _folder("msprobe", "msprobe dump", folder_sniff.msprobe, "tensors", "msprobe:read_msprobe",
            f"{REFERENCE} or {LEAF}", ""),
    _folder("overflow_folder", "NPU overflow records with their ops", holds("overflow", "overflow records"), "tensors",
            _DUMP, OVERFLOW, "npu"),
    _folder("npu_folder", "NPU dump of one step", holds("npu", "dump files"), "tensors", _DUMP, LEAF, "npu"),
    _folder("statistics_folder", "NPU statistics dump of one step", holds("statistics", "statistics files"), "tensors",
            _DUMP, LEAF, "npu"),
    _folder("converted_folder", "converted NPU tensors", holds("converted", "converted npy files"), "tensors", _DUMP,
            LEAF, "npu"),
    _folder("tf_folder", "reference tensors", holds("tf", "reference npy files"), "tensors", _DUMP, REFERENCE, "tf"),
    _folder("npu_tree", "NPU dumps by time", folder_sniff.npu_tree, "tensors", _DUMP, LEAF, "npu"),
    _folder("npy_folder", "npy files", holds("npy", "npy files"), "tensors", _DUMP, REFERENCE, ""),
)  # fmt: skip
"""Special folders before plain ones; of a mixed folder the device's files decide."""

_FILES: Final = (
    _file("npu_converted_npy", "converted NPU tensor", by_name("converted", "named <dump>.<input|output>.<slot>.npy"),
          "tensors", _TENSOR, LEAF, "npu"),
    _file("tf_npy", "reference tensor", by_name("tf", "named <op>.<output>.<time>.npy or .pb, .quant"), "tensors",
          _TENSOR, REFERENCE, "tf"),
    _file("npy", "npy array", sniff.npy, "tensors", _TENSOR, REFERENCE, ""),
    _file("torch", "PyTorch file", sniff.torch, "tensors", "torch_file:read_torch_file", REFERENCE, ""),
    _file("npz", "npz archive of arrays", sniff.npz, "tensors", "npz:read_npz", REFERENCE, ""),
    _file("hdf5", "HDF5 file", sniff.hdf5, "tensors", "hdf5:read_hdf5", HDF5_PLACE, ""),
    _file("overflow_record", "NPU overflow record", by_name("overflow", "named Opdebug.Node_OpDebug.<task>..."),
          "facts", "overflow:read_overflow", OVERFLOW, "npu"),
    _file("npu_statistics", "NPU statistics of an op", sniff.statistics, "tensors", _TENSOR, LEAF, "npu"),
    _file("tfdbg_tensor", "tensor of TensorFlow's debugger", sniff.tfdbg_tensor, "tensors", _TENSOR, "", "tf"),
    _file("tfdbg_part", "part of a run of TensorFlow's debugger", sniff.tfdbg_part, "facts",
          "side_files:read_tfdbg_part", "", "tf"),
    _file("tfdbg_v2_file", "part of a Debugger V2 run", sniff.tfdbg_v2_file, "facts",
          "side_files:read_v2_part", "", "tf"),
    _file("om", "compiled model (.om)", graph_sniff.om, "graph", "ge_graph:read_ge_graphs", GRAPHS, "npu"),
    _file("saved_model_file", "graph of a SavedModel", graph_sniff.saved_model_file, "graph",
          "saved_model:read_saved_model", TF_GRAPHS, "tf"),
    _file("checkpoint_state", "name of the newest checkpoint", sniff.checkpoint_state, "facts",
          "checkpoint_files:read_checkpoint_state", CHECKPOINTS, "tf"),
    _file("checkpoint_v2", "TensorFlow checkpoint", sniff.checkpoint_v2, "tensors", "checkpoint:read_checkpoint",
          CHECKPOINTS, "tf"),
    _file("checkpoint_v1", "TensorFlow checkpoint, first version", sniff.checkpoint_v1, "tensors",
          "checkpoint:read_checkpoint", CHECKPOINTS, "tf"),
    _file("events", "TensorFlow event file", sniff.event_file, "facts", "event_file:read_scalars", EVENTS, "tf"),
    _file("result_csv", "whole-network comparison result", sniff.result_csv, "facts", "side_files:read_table",
          RESULTS, ""),
    _file("tensor_index", "index of reference tensors", sniff.tensor_index, "facts", "side_files:read_table",
          REFERENCE, "tf"),
    _file("mapping_csv", "mapping of short names", sniff.mapping_csv, "facts", "side_files:read_mapping_file", "", ""),
    _file("fusion_result", "fusion report", sniff.fusion_result, "facts", "fusion:read_fusion_result", FUSION, "npu"),
    _file("fusion_switch", "fusion switch file", sniff.fusion_switch, "facts", "fusion_switch:read_fusion_switch",
          FUSION, "npu"),
    _file("overflow_json", "decoded overflow record", sniff.overflow_json, "facts", "overflow:read_overflow_json",
          "", "npu"),
    _file("msprobe_json", "index of an msprobe dump", sniff.msprobe_json, "tensors", "msprobe:read_msprobe",
          "", ""),
    _file("msprobe_part", "part of an msprobe dump", sniff.msprobe_part, "facts", "side_files:read_msprobe_part",
          "", ""),
    _file("record_json", "manifest of a raw record", sniff.record_json, "tensors", "side_files:read_record", "", "tf"),
    _file("ge_json", "NPU graph, JSON", graph_sniff.ge_json, "graph", "ge_graph:read_ge_graphs", GRAPHS, "npu"),
    _file("ge_text", "NPU graph, text", graph_sniff.ge_text, "graph", "ge_graph:read_ge_graphs", GRAPHS, "npu"),
    _file("graph_text", "TensorFlow graph, text", graph_sniff.graph_text, "graph", "tf_graph:read_graph_def", TF_GRAPHS,
          "tf"),
    _file("npu_dump", "NPU dump file", sniff.npu_dump, "tensors", "npu_dump:read_npu_dump", LEAF, "npu"),
    _file("model_def", "NPU graph, binary", graph_sniff.model_def, "graph", "ge_graph:read_ge_graphs", GRAPHS, "npu"),
    _file("meta_graph", "TensorFlow graph, .meta", graph_sniff.meta_graph, "graph", "tf_graph:read_graph_def",
          TF_GRAPHS, "tf"),
    _file("graph_def", "TensorFlow graph, binary", graph_sniff.graph_def, "graph", "tf_graph:read_graph_def",
          TF_GRAPHS, "tf"),
)  # fmt: skip
"""What its name settles first, then marks at the start of the bytes, then texts, then what is only likely."""

KINDS: Final = (*_FOLDERS, *_FILES)
"""All kinds, in the order of sniffing."""

_BY_NAME: Final[Mapping[str, str]] = {
    "npu": "npu_dump",
    "overflow": "overflow_record",
    "statistics": "npu_statistics",
    "converted": "npu_converted_npy",
    "tf": "tf_npy",
    "npy": "npy",
}


def kind_named(name: str) -> Kind:
    """Returns the kind of a short name.

    Raises:
        KeyError: there is none of that name.
    """
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise KeyError(name)


def identify(path: Path, *, mapping: Mapping[str, str] | None = None) -> Identified | None:
    """Recognises a path: at most 4 KB of a file are read, or one listing of a folder (and a small file in it).

    Args:
        path: A file, a folder, or the prefix of a checkpoint (``model-100``, which is no file by itself).
        mapping: Short file names and what they stand for, where the caller has read the folder's ``mapping.csv``.

    Returns:
        The first kind of :data:`KINDS` that fits, None for nothing, for what is neither file nor folder, and for what
        no sniffer knows.
    """
    path = Path(path)
    look = look_at(path, mapping)
    if look is None:
        index = path.with_name(path.name + ".index") if path.name else path
        return Identified(path, kind_named("checkpoint_v2"), f"{index.name} is there") if index.is_file() else None
    if look.is_folder:
        return _first(look, _FOLDERS)
    quick = _BY_NAME.get(sniff.name_sort(look.meaning))
    if quick is not None:
        kind = kind_named(quick)
        why = kind.sniff(look)
        return Identified(path, kind, why) if why else None
    return _first(look, _FILES)


def _first(look: Look, kinds: tuple[Kind, ...]) -> Identified | None:
    for kind in kinds:
        why = kind.sniff(look)
        if why:
            return Identified(look.path, kind, why)
    return None
