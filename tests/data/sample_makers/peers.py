"""What other tools leave behind: msprobe, torch, HDF5."""

from __future__ import annotations

import collections
import io
import json
import pickle
import sys
import types
import zipfile
from pathlib import Path

import numpy as np

from sample_makers.expect import Expected, f32, tensor


def msprobe(folder: Path) -> Expected:
    """Tensors and statistics of one forward call."""
    data = folder / "step0" / "rank" / "dump_tensor_data"
    data.mkdir(parents=True)
    x, y = f32(2, 2, start=-1), np.maximum(f32(2, 2, start=-1), 0)
    call = "Functional.relu.0.forward"
    entries = []
    for io_name, array in (("input", x), ("output", y)):
        file = f"{call}.{io_name}.0.npy"
        np.save(data / file, array)
        figures = {"Max": float(array.max()), "Min": float(array.min()), "Mean": float(array.mean())}
        figures["Norm"] = float(np.sqrt((array.astype(np.float64) ** 2).sum()))
        kind = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(array.shape)}
        entries.append({**kind, **figures, "requires_grad": False, "data_name": file})
    calls = {call: {"input_args": [entries[0]], "input_kwargs": {}, "output": [entries[1]]}}
    head = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(data.name), "data": calls}
    (data.parent / "dump.json").write_text(json.dumps(head, indent=1))
    (data.parent / "stack.json").write_text("{}")
    (data.parent / "construct.json").write_text("{}")
    return {"input": tensor(x), "output": tensor(y)}


def torch_pt(folder: Path) -> Expected:
    """A state dict as torch.save writes it: a zip with a pickle that names storages by number. Made without torch."""
    folder.mkdir(parents=True)
    weight, steps = f32(2, 3), np.array([5], np.int64)
    raw = io.BytesIO()
    _TorchPickler(raw).dump(collections.OrderedDict(weight=_Tensor("0", weight), steps=_Tensor("1", steps)))
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        for name, content in {
            "data.pkl": raw.getvalue(),
            "data/0": weight.tobytes(),
            "data/1": steps.tobytes(),
            "version": b"3\n",
        }.items():
            archive.writestr(zipfile.ZipInfo(f"model/{name}"), content)
    return {"weight:output:0": tensor(weight), "steps:output:0": tensor(steps)}


class _Named:
    """Something that a pickle only names."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Storage:
    def __init__(self, key: str, array: np.ndarray) -> None:
        self.key, self.array = key, array


class _Tensor:
    def __init__(self, key: str, array: np.ndarray) -> None:
        self.key, self.array = key, array


def _stand_in(module: str, name: str) -> type:
    """A class that pickles by a name of torch; torch itself is not needed to write what it would."""
    made = type(name, (), {"__module__": module, "__qualname__": name})
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:depth]), types.ModuleType(".".join(parts[:depth])))
    setattr(sys.modules[module], name, made)
    return made


class _TorchPickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Writes the stream of torch.save, protocol 2."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=2)
        self.rebuild = _stand_in("torch._utils", "_rebuild_tensor_v2")
        self.storages = {"float32": _stand_in("torch", "FloatStorage"), "int64": _stand_in("torch", "LongStorage")}

    def persistent_id(self, obj: object) -> object:
        if isinstance(obj, _Storage):
            return ("storage", self.storages[obj.array.dtype.name], obj.key, "cpu", obj.array.size)
        return None

    def reducer_override(self, obj: object) -> object:
        if not isinstance(obj, _Tensor):
            return NotImplemented
        strides = tuple(stride // obj.array.itemsize for stride in obj.array.strides)
        storage = _Storage(obj.key, obj.array)
        return self.rebuild, (storage, 0, obj.array.shape, strides, False, collections.OrderedDict())


def hdf5(folder: Path) -> Expected:
    """Groups of datasets as the older PyTorch tools wrote them."""
    import h5py

    folder.mkdir(parents=True)
    x, y = f32(2, 2), np.array([1, 2, 3], np.int64)
    with h5py.File(folder / "dump.h5", "w", libver="earliest", track_order=False) as file:
        for name, array in {"Conv2d/1/input_0": x, "Conv2d/1/output_0": y}.items():
            file.create_dataset(name, data=array, track_times=False)
    return {"input": tensor(x), "output": tensor(y)}
