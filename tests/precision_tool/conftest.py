"""A small precision_data tree, written by the project's own writers: two device runs and a reference."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dumpers.formats.ge_graph import write_ge_text
from dumpers.formats.npu_dump import write_npu_dump
from dumpers.formats.npy import write_npy
from dumpers.graph import Graph, Op, Port, Source
from dumpers.names import flatten, flatten_tf

FUSED = "dense/MatMuldense/BiasAdd"
RELU = "dense/Relu"
GRAPH_NAME = "ge_default_1"
FACTOR = np.float32(1.5)

Array = NDArray[np.generic]


def _port(dtype: str, shape: tuple[int, ...], origin: tuple[str, int] | None = None) -> Port:
    attrs = {} if origin is None else {"_datadump_origin_name": origin[0], "_datadump_origin_output_index": origin[1]}
    return Port(dtype, shape, "ND", {"origin_shape": list(shape), **attrs})


def device_graph(relu: str = RELU) -> Graph:
    """x, w, b -> matmul with bias (fused) -> relu -> cast."""
    x, w, b = _port("float32", (4, 3)), _port("float32", (3, 2)), _port("float32", (2,))
    y = _port("float32", (4, 2))
    fused = {
        "_datadump_original_op_names": ["dense/MatMul", "dense/BiasAdd"],
        "_datadump_original_op_types": ["MatMul", "BiasAdd"],
        "pass_name": "MatMulBiasAddFusionPass",
        "transpose_x1": False,
        "transpose_x2": False,
        f"{FUSED}_kernelname": "te_matmul_1__kernel0",
        "_ge_attr_op_kernel_lib_name": "AIcoreEngine",
    }
    ops = [
        Op("x", "Data", output_ports=(x,), id=0),
        Op("w", "Const", output_ports=(w,), id=1),
        Op("b", "Const", output_ports=(b,), id=2),
        Op(
            FUSED,
            "MatMulV2",
            (Source("x", 0), Source("w", 0), Source("b", 0)),
            (),
            (x, w, b),
            (_port("float32", (4, 2), ("dense/BiasAdd", 0)),),
            fused,
            3,
        ),
        Op(relu, "Relu", (Source(FUSED, 0),), (), (y,), (_port("float32", (4, 2), (relu, 0)),), {}, 4),
        Op("to_int", "Cast", (Source(relu, 0),), ("b",), (y,), (_port("int32", (4, 2), ("to_int", 0)),), {}, 5),
    ]
    return Graph(GRAPH_NAME, {op.name: op for op in ops}, "ge")


def _file_part(name: str) -> str:
    """The flattened name; a device writes no other characters than these, the header has the full name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", flatten(name))


@dataclass(frozen=True)
class Data:
    """A tree.

    Attributes:
        root: Folder that holds ``precision_data``.
        values: The right value of each original output.
        relu: Name of the op that is wrong.
    """

    root: Path
    values: dict[str, Array]
    relu: str = RELU

    @property
    def data(self) -> Path:
        return self.root / "precision_data"

    @property
    def reference(self) -> Path:
        return self.data / "tf" / "dump"

    def leaf(self, run: str = "debug_0") -> Path:
        return self.data / "npu" / run / "dump" / "20240101000000" / "0" / GRAPH_NAME / "1" / "0"

    def graph(self, run: str = "debug_0") -> Path:
        return self.data / "npu" / run / "graph" / "ge_proto_00000001_graph_1_Build.txt"

    def file(self, op_type: str, run: str = "debug_0") -> Path:
        return next(self.leaf(run).glob(f"{op_type}.*"))


def write_run(data: Data, run: str, *, factor: np.float32 = FACTOR) -> None:
    """Writes one device run; its relu multiplies by ``factor``."""
    leaf, graph = data.leaf(run), data.graph(run)
    leaf.mkdir(parents=True)
    graph.parent.mkdir(parents=True)
    write_ge_text(device_graph(data.relu), graph)
    v = data.values
    relu = np.asarray(v[data.relu] * factor)
    steps = [
        ("MatMulV2", FUSED, [v["x"], v["w"], v["b"]], [v["dense/BiasAdd"]]),
        ("Relu", data.relu, [v["dense/BiasAdd"]], [relu]),
        ("Cast", "to_int", [relu], [relu.astype(np.int32)]),
    ]
    for task, (op_type, name, inputs, outputs) in enumerate(steps, 1):
        time = 1_700_000_000_000_000 + task
        path = leaf / f"{op_type}.{_file_part(name)}.{task}.0.{time}"
        write_npu_dump(path, op_name=name, inputs=inputs, outputs=outputs, dump_time_us=time)


def make_values(relu: str = RELU) -> dict[str, Array]:
    """Returns inputs and every original op's output, computed by NumPy."""
    random = np.random.default_rng(7)
    x, w = random.normal(size=(4, 3)).astype(np.float32), random.normal(size=(3, 2)).astype(np.float32)
    b = np.array([0.25, 0.5], np.float32)
    product = x @ w
    biased = product + b
    return {"x": x, "w": w, "b": b, "dense/MatMul": product, "dense/BiasAdd": biased, relu: np.maximum(biased, 0)}


def make_data(root: Path, *, reference: bool = True, runs: tuple[str, ...] = ("debug_0",), relu: str = RELU) -> Data:
    """Writes a tree below ``root``; the device's relu is wrong by a factor in ``debug_0`` only."""
    data = Data(root, make_values(relu), relu)
    for run in runs:
        write_run(data, run, factor=FACTOR if run == "debug_0" else np.float32(1))
    if reference:
        data.reference.mkdir(parents=True)
        outputs = {name: data.values[name] for name in ("x", "dense/MatMul", "dense/BiasAdd", relu)}
        outputs["to_int"] = data.values[relu].astype(np.int32)
        for number, (name, value) in enumerate(outputs.items()):
            write_npy(data.reference / f"{flatten_tf(name)}.0.{1_700_000_000_000_100 + number}.npy", value)
    return data


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """One device run with a wrong relu, and the reference."""
    return make_data(tmp_path)


@pytest.fixture
def two_runs(tmp_path: Path) -> Data:
    """Two device runs, no reference; the relu of ``debug_0`` is wrong."""
    return make_data(tmp_path, reference=False, runs=("debug_0", "debug_1"))


@pytest.fixture
def hostile(tmp_path: Path) -> Data:
    """As ``data``, the wrong op with a name that a terminal, a markup reader and an ASCII locale stumble over."""
    return make_data(tmp_path, relu="層[/red][b]\x1b[2J\u202e")
