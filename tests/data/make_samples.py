"""Writes ``tests/data/samples``: one small file or folder of every kind that the project reads.

``python tests/data/make_samples.py`` writes all of them, ``--only KIND...`` some, ``--out DIR`` somewhere else, and
``--without-tensorflow`` those that are the same to the byte each time. What TensorFlow writes carries the time of its
making in names and bytes. What is right about each sample stands in ``samples/expected.json``: the values that were
written, or what TensorFlow's own readers say of what TensorFlow wrote; never what the project's readers say.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from sample_makers import arrays, device, graphs, peers
from sample_makers import tensorflow_files as tf_files
from sample_makers.expect import Expected

SAMPLES = Path(__file__).resolve().parent / "samples"
EXPECTED = "expected.json"

Maker = Callable[[Path], Expected]


def _by_name(*makers: Maker) -> Mapping[str, Maker]:
    return {maker.__name__: maker for maker in makers}


PLAIN = _by_name(
    device.npu_dump,
    device.npu_old_names,
    device.npu_ffts,
    device.npu_low_precision,
    device.npu_layouts,
    device.npu_hashed,
    device.npu_statistics,
    device.overflow,
    arrays.converted,
    arrays.npy,
    arrays.npz,
    arrays.tf_npy,
    arrays.tf_record,
    peers.msprobe,
    peers.torch_pt,
    peers.hdf5,
    graphs.om,
    graphs.ge_text,
    graphs.ge_json,
    graphs.fusion_result,
    graphs.fusion_switch,
    graphs.result_csv,
)
TENSORFLOW = _by_name(
    tf_files.tfdbg,
    tf_files.checkpoint_v1,
    tf_files.checkpoint_v2,
    tf_files.checkpoint_object,
    tf_files.event_file,
    tf_files.graph_pb,
    tf_files.graph_pbtxt,
    tf_files.meta_graph,
    tf_files.saved_model,
    tf_files.tfdbg_v2,
)


def main() -> None:
    """Writes the samples that the options ask for, and what is right about them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="KIND", choices=sorted({**PLAIN, **TENSORFLOW}))
    parser.add_argument("--out", type=Path, default=SAMPLES)
    parser.add_argument("--without-tensorflow", action="store_true")
    args = parser.parse_args()
    makers = dict(PLAIN) if args.without_tensorflow else {**PLAIN, **TENSORFLOW}
    path = args.out / EXPECTED
    expected = json.loads(path.read_text()) if path.exists() else {}
    for kind in args.only or makers:
        folder = args.out / kind
        shutil.rmtree(folder, ignore_errors=True)
        expected[kind] = makers[kind](folder)
    lines = [f"{json.dumps(kind)}: {json.dumps(expected[kind], allow_nan=False)}" for kind in sorted(expected)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
