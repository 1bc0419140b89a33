"""Peak memory of a process that opens hostile files of about a kilobyte, reader by reader."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.dumpers.formats.test_torch_file import Storage, tensor, write

CHILD = """
import re, sys
from pathlib import Path
from dumpers.errors import DataError
from dumpers.formats import hdf5, msprobe, npy_dir, npz, torch_file
READ = {".npz": npz.read_npz, ".pt": torch_file.read_torch_file, ".h5": hdf5.read_hdf5, ".json": msprobe.read_msprobe,
        ".npy": lambda path: npy_dir.read_plain_dir(path.parent, [path])}
refused = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        dump = READ[path.suffix](path)
        records = [record for record in dump if record.source]
        refused += len(dump.problems)
    except DataError:
        refused, records = refused + 1, []
    for record in records:
        try:
            record.load()
        except DataError:
            refused += 1
print(refused, int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc; what getrusage says includes the parent's memory")
def test_peak_stays_below_200_megabytes(tmp_path: Path, project_root: Path):
    folder = tmp_path / "hostile"
    folder.mkdir()
    fields = "'descr': '|u1', 'fortran_order': False, 'shape': (10737418240,)"
    header = ("{" + fields + "}").encode()
    bomb = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (folder / "claims.npy").write_bytes(bomb)
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bomb + b"\0" * 900_000)
    one = Storage(np.float32([1]))
    write(folder / "stretched.pt", [tensor(one, (1 << 30,), (0,)), tensor(one, (1 << 20, 1 << 12), (0, 0))])
    nested: list = [tensor(one, (1,))] * 10
    for _ in range(12):
        nested = [nested] * 10
    write(folder / "laughs.pt", nested)
    with h5py.File(folder / "bomb.h5", "w") as file:
        file.create_dataset("a", (1 << 15, 1 << 15), "f8", chunks=(1 << 9, 1 << 9), compression="gzip", fillvalue=1.0)
    leaf = {"dtype": "torch.float32", "shape": [1 << 40, 1 << 15]}
    tree = {"task": "t", "dump_data_dir": "", "data": {"a": {"output": [leaf] * 8}, "b": {"output": [[[[[0]]]]]}}}
    (folder / "dump.json").write_text(json.dumps(tree))
    assert max(path.stat().st_size for path in folder.iterdir()) < 4096
    out = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)], cwd=project_root, capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(out[0]) == 6
    assert int(out[1]) < 200
