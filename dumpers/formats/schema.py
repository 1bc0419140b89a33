"""The few protobuf messages we read and write, declared once and built at run time.

Generated modules do not span the protobuf runtimes in use (3.20 on training hosts to 7), descriptors do. All messages
live in a pool of their own, so they never meet TensorFlow's. Two liberties, neither visible on the wire:

* text fields of device graphs are declared as bytes, since real files also hold GBK, which a ``string`` refuses;
* maps are declared as what they are on the wire, repeated entries, so that a key that occurs twice is not an error.

The fields ``dtype_name`` and ``type_name`` are ours and never written: readers of text put a type's name there that the
numbered list does not have.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dumpers.formats.enums import DUMP_TYPES, tf_enum_names

Message: TypeAlias = Any
"""A protobuf message; the runtimes have no common static type."""

# One line a field: name, number, type; ``*`` in front of the type means repeated, ``|`` a member of the oneof "value".
# A capitalised type is another message of the same package, ``enum:X`` an enum.
_DUMP: Final = {
    "DumpData": (
        "version 1 bytes, dump_time 2 uint64, output 3 *OpOutput, input 4 *OpInput, buffer 5 *OpBuffer, "
        "op_name 6 bytes, attr 7 *OpAttr, space 8 *Workspace, dfx_message 9 bytes"
    ),
    "OpOutput": (
        "data_type 1 int32, format 2 int32, shape 3 Shape, original_op 4 OriginalOp, data 5 bytes, size 6 uint64, "
        "original_shape 7 Shape, sub_format 8 int32, address 9 uint64, dim_range 10 *DimRange, offset 11 uint64"
    ),
    "OpInput": (
        "data_type 1 int32, format 2 int32, shape 3 Shape, data 4 bytes, size 5 uint64, original_shape 6 Shape, "
        "sub_format 7 int32, address 8 uint64, offset 9 uint64, arg_index 10 uint64, input_type 11 int32"
    ),
    "OriginalOp": "name 1 bytes, output_index 2 uint32, data_type 3 int32, format 4 int32",
    "Shape": "dim 1 *uint64",
    "DimRange": "start 1 uint64, end 2 uint64",
    "OpBuffer": "buffer_type 1 int32, data 2 bytes, size 3 uint64",
    "OpAttr": "name 1 bytes, value 2 bytes",
    "Workspace": "type 1 int32, data 2 bytes, size 3 uint64, arg_index 4 uint64",
}

_GE: Final = {
    "ModelDef": "name 1 bytes, version 2 uint32, custom_version 3 bytes, graph 7 *GraphDef, attr 11 *AttrEntry",
    "GraphDef": "name 1 bytes, input 4 *bytes, output 5 *bytes, op 6 *OpDef, attr 11 *AttrEntry",
    "OpDef": (
        "name 1 bytes, type 2 bytes, input 5 *bytes, attr 10 *AttrEntry, has_out_attr 20 bool, id 21 int64, "
        "stream_id 22 int64, input_name 23 *bytes, src_name 24 *bytes, src_index 25 *int64, dst_name 26 *bytes, "
        "dst_index 27 *int64, input_i 28 *int64, output_i 29 *int64, workspace 30 *int64, "
        "workspace_bytes 31 *int64, is_input_const 32 *bool, input_desc 33 *TensorDescriptor, "
        "output_desc 34 *TensorDescriptor, subgraph_name 35 *bytes"
    ),
    "TensorDescriptor": (
        "name 1 bytes, dtype 2 enum:DataType, shape 3 ShapeDef, layout 4 bytes, attr 5 *AttrEntry, "
        "has_out_attr 9 bool, size 10 int64, weight_size 11 int64, reuse_input 12 bool, output_tensor 13 bool, "
        "device_type 14 bytes, input_tensor 15 bool, real_dim_cnt 16 int64, reuse_input_index 17 int64, "
        "data_offset 18 int64, cmps_size 19 int64, cmps_tab 20 bytes, cmps_tab_offset 21 int64, dtype_name 100000 bytes"
    ),
    "ShapeDef": "dim 1 *int64",
    "TensorDef": "desc 1 TensorDescriptor, data 2 bytes",
    "AttrEntry": "key 1 bytes, value 2 AttrDef",
    "AttrDef": (
        "list 1 |ListValue, s 2 |bytes, i 3 |int64, f 4 |float, b 5 |bool, bt 7 |bytes, func 10 |NamedAttrs, "
        "td 11 |TensorDescriptor, t 12 |TensorDef, g 13 |GraphDef, list_list_int 14 |ListListInt, dt 15 |int64, "
        "list_list_float 16 |ListListFloat, expression 17 |bytes"
    ),
    "ListValue": (
        "s 2 *bytes, i 3 *int64, f 4 *float, b 5 *bool, bt 7 *bytes, td 8 *TensorDescriptor, t 9 *TensorDef, "
        "g 10 *GraphDef, na 11 *NamedAttrs, dt 12 *int64, val_type 20 enum:ListValueType"
    ),
    "NamedAttrs": "name 1 bytes, attr 2 *AttrEntry",
    "ListListInt": "list_list_i 1 *ListInt",
    "ListInt": "list_i 1 *int64",
    "ListListFloat": "list_list_f 1 *ListFloat",
    "ListFloat": "list_f 1 *float",
}

_TF: Final = {
    "GraphDef": "node 1 *NodeDef, library 2 FunctionDefLibrary, version 3 int32, versions 4 VersionDef",
    "SavedModel": "saved_model_schema_version 1 int64, meta_graphs 2 *MetaGraphDef",
    "MetaGraphDef": (
        "meta_info_def 1 MetaInfoDef, graph_def 2 GraphDef, saver_def 3 SaverDef, collection_def 4 *CollectionEntry, "
        "signature_def 5 *SignatureEntry"
    ),
    "MetaInfoDef": "meta_graph_version 1 bytes, stripped_op_list 2 OpList, tags 4 *bytes, tensorflow_version 5 bytes",
    "OpList": "op 1 *OpDef",
    "SaverDef": "filename_tensor_name 1 bytes, save_tensor_name 2 bytes, restore_op_name 3 bytes",
    "CollectionEntry": "key 1 bytes, value 2 CollectionDef",
    "CollectionDef": "node_list 1 |NodeList",
    "NodeList": "value 1 *bytes",
    "SignatureEntry": "key 1 bytes, value 2 SignatureDef",
    "SignatureDef": "inputs 1 *TensorInfoEntry, outputs 2 *TensorInfoEntry, method_name 3 bytes",
    "TensorInfoEntry": "key 1 bytes, value 2 TensorInfo",
    "TensorInfo": "name 1 bytes, dtype 2 enum:DataType, tensor_shape 3 TensorShapeProto",
    "VersionDef": "producer 1 int32, min_consumer 2 int32",
    "NodeDef": "name 1 bytes, op 2 bytes, input 3 *bytes, device 4 bytes, attr 5 *AttrEntry",
    "AttrEntry": "key 1 bytes, value 2 AttrValue",
    "AttrValue": (
        "list 1 |ListValue, s 2 |bytes, i 3 |int64, f 4 |float, b 5 |bool, type 6 |enum:DataType, "
        "shape 7 |TensorShapeProto, tensor 8 |TensorProto, placeholder 9 |bytes, func 10 |NameAttrList, "
        "type_name 100000 |bytes"
    ),
    "ListValue": (
        "s 2 *bytes, i 3 *int64, f 4 *float, b 5 *bool, type 6 *enum:DataType, shape 7 *TensorShapeProto, "
        "tensor 8 *TensorProto, func 9 *NameAttrList"
    ),
    "NameAttrList": "name 1 bytes, attr 2 *AttrEntry",
    "TensorShapeProto": "dim 2 *Dim, unknown_rank 3 bool",
    "Dim": "size 1 int64, name 2 bytes",
    "TensorProto": (
        "dtype 1 enum:DataType, tensor_shape 2 TensorShapeProto, version_number 3 int32, tensor_content 4 bytes, "
        "float_val 5 *float, double_val 6 *double, int_val 7 *int32, string_val 8 *bytes, scomplex_val 9 *float, "
        "int64_val 10 *int64, bool_val 11 *bool, dcomplex_val 12 *double, half_val 13 *int32, uint32_val 16 *uint32, "
        "uint64_val 17 *uint64, float8_val 18 bytes"
    ),
    "FunctionDefLibrary": "function 1 *FunctionDef",
    "FunctionDef": "signature 1 OpDef, node_def 3 *NodeDef, ret 4 *TextEntry, control_ret 6 *TextEntry",
    "TextEntry": "key 1 bytes, value 2 bytes",
    "OpDef": "name 1 bytes, input_arg 2 *ArgDef, output_arg 3 *ArgDef",
    "ArgDef": "name 1 bytes, type 3 enum:DataType, type_attr 4 bytes, number_attr 5 bytes, type_list_attr 6 bytes",
    "Event": (
        "wall_time 1 double, step 2 int64, file_version 3 bytes, graph_def 4 bytes, summary 5 Summary, "
        "log_message 6 LogMessage, session_log 7 SessionLog"
    ),
    "LogMessage": "level 1 int32, message 2 bytes",
    "SessionLog": "status 1 int32, checkpoint_path 2 bytes, msg 3 bytes",
    "Summary": "value 1 *SummaryValue",
    "SummaryValue": (
        "tag 1 bytes, simple_value 2 |float, node_name 7 bytes, tensor 8 |TensorProto, metadata 9 SummaryMetadata"
    ),
    "SummaryMetadata": "plugin_data 1 PluginData",
    "PluginData": "plugin_name 1 bytes, content 2 bytes",
    "DebugEvent": (
        "wall_time 1 double, step 2 int64, debug_metadata 3 DebugMetadata, graph_op_creation 7 GraphOpCreation, "
        "debugged_graph 8 DebuggedGraph, execution 9 Execution, graph_execution_trace 10 GraphExecutionTrace, "
        "debugged_device 12 DebuggedDevice"
    ),
    "DebugMetadata": "tensorflow_version 1 bytes, file_version 2 bytes, tfdbg_run_id 3 bytes",
    "GraphOpCreation": (
        "op_type 1 bytes, op_name 2 bytes, graph_name 3 bytes, graph_id 4 bytes, device_name 5 bytes, "
        "input_names 6 *bytes, num_outputs 7 int32, output_tensor_ids 9 *int32"
    ),
    "DebuggedGraph": "graph_id 1 bytes, graph_name 2 bytes, outer_context_id 6 bytes",
    "DebuggedDevice": "device_name 1 bytes, device_id 2 int32",
    "Execution": (
        "op_type 1 bytes, num_outputs 2 int32, graph_id 3 bytes, input_tensor_ids 4 *int64, "
        "output_tensor_ids 5 *int64, tensor_debug_mode 6 int32, tensor_protos 7 *TensorProto, "
        "output_tensor_device_ids 9 *int32"
    ),
    "GraphExecutionTrace": (
        "tfdbg_context_id 1 bytes, op_name 2 bytes, output_slot 3 int32, tensor_debug_mode 4 int32, "
        "tensor_proto 5 TensorProto, device_name 6 bytes"
    ),
    "BundleHeaderProto": "num_shards 1 int32, endianness 2 int32, version 3 VersionDef",
    "BundleEntryProto": (
        "dtype 1 int32, shape 2 TensorShapeProto, shard_id 3 int32, offset 4 int64, size 5 int64, crc32c 6 fixed32, "
        "slices 7 *TensorSliceProto"
    ),
    "TensorSliceProto": "extent 1 *SliceExtent",
    "SliceExtent": "start 1 int64, length 2 |int64",
    "SavedTensorSlices": "meta 1 SavedTensorSliceMeta, data 2 SavedSlice",
    "SavedTensorSliceMeta": "tensor 1 *SavedSliceMeta, versions 2 VersionDef",
    "SavedSliceMeta": "name 1 bytes, shape 2 TensorShapeProto, type 3 int32, slice 4 *TensorSliceProto",
    "SavedSlice": "name 1 bytes, slice 2 TensorSliceProto, data 3 TensorProto",
    "TrackableObjectGraph": "nodes 1 *TrackableObject",
    "TrackableObject": "attributes 2 *SerializedTensor, slot_variables 3 *SlotVariable",
    "SerializedTensor": "name 1 bytes, full_name 2 bytes, checkpoint_key 3 bytes",
    "SlotVariable": "original_variable_node_id 1 int32, slot_name 2 bytes, slot_variable_node_id 3 int32",
    "CheckpointState": "model_checkpoint_path 1 bytes, all_model_checkpoint_paths 2 *bytes",
}

_LIST_TYPES: Final = "NONE,STRING,INT,FLOAT,BOOL,BYTES,TENSOR_DESC,TENSOR,GRAPH,NAMED_ATTRS,DATA_TYPE"
"""Names behind ``VT_LIST_``, numbered from 0."""

_SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed32": 7,
    "bool": 8,
    "bytes": 12,
    "uint32": 13,
}


def dump_data() -> Message:
    """Returns an empty header of a device dump file (``DumpData``)."""
    return _message_classes("dump")["DumpData"]()


def ge_message(name: str = "ModelDef") -> Message:
    """Returns an empty message of the device graph family."""
    return _message_classes("ge")[name]()


def tf_message(name: str) -> Message:
    """Returns an empty TensorFlow message (``GraphDef``, ``Event``, ``TensorProto``, ...)."""
    return _message_classes("tf")[name]()


class FieldSpec(NamedTuple):
    """How a field is declared: repeated or not, and its type (``bytes``, ``enum:DataType``, ``OpDef``)."""

    repeated: bool
    kind: str


@functools.cache
def message_fields(package: str, message: str) -> Mapping[str, FieldSpec]:
    """Returns the fields of a message by name; the family is ``dump``, ``ge`` or ``tf``."""
    specs = (text.split() for text in _package(package)[0][message].split(", "))
    return {name: FieldSpec(kind.startswith("*"), kind.lstrip("*|")) for name, _, kind in specs}


@functools.cache
def enum_numbers(package: str, name: str) -> Mapping[str, int]:
    """Returns the values of an enum (``DataType``, ``ListValueType``) by name."""
    return _package(package)[1][name]


def decode_error() -> type[Exception]:
    """Returns what the protobuf runtime raises for bytes that are no such message."""
    from google.protobuf.message import DecodeError

    result: type[Exception] = DecodeError
    return result


@functools.cache
def _message_classes(package: str) -> Mapping[str, Message]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    tables, enums = _package(package)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"precision_tool/{package}.proto", package=f"precision_tool.{package}", syntax="proto3"
    )
    for enum_name, numbers in enums.items():
        enum = file.enum_type.add(name=enum_name)
        for value_name, number in numbers.items():
            enum.value.add(name=value_name, number=number)
    for message_name, fields in tables.items():
        _declare(file.message_type.add(name=message_name), fields, f".precision_tool.{package}.")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    factory: Message = message_factory
    if hasattr(factory, "GetMessageClass"):
        get_class = factory.GetMessageClass
    else:  # protobuf before 4.22
        get_class = factory.MessageFactory(pool).GetPrototype
    return {name: get_class(pool.FindMessageTypeByName(f"precision_tool.{package}.{name}")) for name in tables}


def _package(package: str) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, int]]]:
    if package == "dump":
        return _DUMP, {}
    if package == "ge":
        data_types = {f"DT_{name}": number for number, name in DUMP_TYPES.items()}
        list_types = {f"VT_LIST_{name}": number for number, name in enumerate(_LIST_TYPES.split(","))}
        return _GE, {"DataType": data_types, "ListValueType": list_types}
    return _TF, {"DataType": tf_enum_names()}


def _declare(message: Message, fields: str, prefix: str) -> None:
    for text in fields.split(", "):
        name, number, kind = text.split()
        field = message.field.add(name=name, number=int(number), label=3 if kind.startswith("*") else 1)
        if kind.startswith("|"):
            if not message.oneof_decl:
                message.oneof_decl.add(name="value")
            field.oneof_index = 0
        kind = kind.lstrip("*|")
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind.startswith("enum:"):
            field.type, field.type_name = 14, prefix + kind.removeprefix("enum:")
        else:
            field.type, field.type_name = 11, prefix + kind
