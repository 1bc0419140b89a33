"""Files made to hurt, by kind: a name, and what replaces one file of the kind's sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.fuzzing import hostile_arrays, hostile_device, hostile_hdf5, hostile_tensorflow
from tests.fuzzing.hostile_basics import Cases

HOSTILE: Mapping[str, Callable[[], Cases]] = {
    "npu_dump": hostile_device.npu_cases,
    "npu_ffts": hostile_device.slices_cases,
    "npu_statistics": hostile_device.statistics_cases,
    "overflow": hostile_device.overflow_cases,
    "npy": hostile_arrays.npy_cases,
    "npz": hostile_arrays.npz_cases,
    "tf_npy": hostile_arrays.tf_npy_cases,
    "tf_record": hostile_arrays.tf_record_cases,
    "tfdbg": hostile_tensorflow.tfdbg_cases,
    "tfdbg_v2": hostile_tensorflow.debug_events_cases,
    "event_file": hostile_tensorflow.events_cases,
    "checkpoint_v1": hostile_tensorflow.checkpoints_cases,
    "checkpoint_v2": hostile_tensorflow.checkpoints_cases,
    "graph_pb": hostile_tensorflow.graph_pb_cases,
    "graph_pbtxt": lambda: hostile_tensorflow.graph_text_cases("graph.pbtxt"),
    "ge_text": lambda: hostile_tensorflow.graph_text_cases("ge_proto_00000001_graph_1_Build.txt"),
    "ge_json": hostile_device.ge_json_cases,
    "om": hostile_device.om_cases,
    "msprobe": hostile_arrays.msprobe_cases,
    "torch_pt": hostile_arrays.torch_cases,
    "fusion_result": hostile_device.fusion_cases,
    "fusion_switch": hostile_device.switches_cases,
    "result_csv": hostile_device.result_csv_cases,
    "hdf5": hostile_hdf5.hdf5_cases,
}
