"""npy files in every naming, npz, our raw record."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np

from sample_makers.expect import TIME, Expected, f32, tensor


def converted(folder: Path) -> Expected:
    """What the vendor's converter writes of a dump, old and new names."""
    folder.mkdir(parents=True)
    x, y = f32(2, 2), np.array([1, 2], np.float16)
    np.save(folder / f"Add.net_add.3.1.{TIME}.input.0.npy", x)
    np.save(folder / f"TransData.trans_1.4.{TIME + 1}.output.0.1x2.npy", y)
    return {"net_add:input:0": tensor(x), "trans_1:output:0": tensor(y)}


def npy(folder: Path) -> Expected:
    """Plain arrays, one of them column-major, one big-endian."""
    folder.mkdir(parents=True)
    a, b = f32(2, 3), np.array([1, -2, 3], ">i4")
    np.save(folder / "a.npy", np.asfortranarray(a))
    np.save(folder / "b.npy", b)
    return {"a:output:0": tensor(a), "b:output:0": tensor(b.astype(np.int32), "int32")}


def npz(folder: Path) -> Expected:
    """An archive with a stored and a deflated member."""
    folder.mkdir(parents=True)
    members = {"dense/kernel": f32(2, 3), "step": np.array(7, np.int64)}
    with zipfile.ZipFile(folder / "arrays.npz", "w") as archive:
        for number, (name, array) in enumerate(members.items()):
            raw = io.BytesIO()
            np.save(raw, array)
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = zipfile.ZIP_DEFLATED if number else zipfile.ZIP_STORED
            archive.writestr(info, raw.getvalue())
    return {f"{name}:output:0": tensor(array) for name, array in members.items()}


def tf_npy(folder: Path) -> Expected:
    """Reference tensors with their index of full names."""
    folder.mkdir(parents=True)
    y = f32(2, 2)
    name = f"net_fc_BiasAdd.0.{TIME}.npy"
    np.save(folder / name, y)
    header = "file,op,output,op_type,step,timestamp_us,dtype,shape,note\n"
    (folder / "index.csv").write_text(f"{header}{name},net/fc/BiasAdd,0,BiasAdd,1,{TIME},float32,2x2,\n")
    return {"net/fc/BiasAdd:output:0": tensor(y)}


def tf_record(folder: Path) -> Expected:
    """The raw record of the capture side: manifest and npy files; the graph is in other samples."""
    run = folder / f"run_{TIME}_1"
    (run / "tensors").mkdir(parents=True)
    y = f32(3)
    np.save(run / "tensors" / "0.npy", y)
    entry = {"op": "net/y", "output": 0, "op_type": "Relu", "dtype": "float32", "shape": [3]}
    entry |= {"file": "tensors/0.npy", "timestamp_us": TIME, "note": ""}
    manifest = {"format": 1, "step": 1, "complete": True, "start_us": TIME, "graph": None, "feeds": {}}
    (run / "record.json").write_text(json.dumps({**manifest, "fetches": ["net/y:0"], "tensors": [entry]}))
    return {"net/y:output:0": tensor(y)}
