"""Numbers and names of element types and layouts in device files and TensorFlow messages."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

DUMP_TYPES: Final = MappingProxyType(
    {
        0: "UNDEFINED",
        1: "FLOAT",
        2: "FLOAT16",
        3: "INT8",
        4: "UINT8",
        5: "INT16",
        6: "UINT16",
        7: "INT32",
        8: "INT64",
        9: "UINT32",
        10: "UINT64",
        11: "BOOL",
        12: "DOUBLE",
        13: "STRING",
        14: "DUAL_SUB_INT8",
        15: "DUAL_SUB_UINT8",
        16: "COMPLEX64",
        17: "COMPLEX128",
        18: "QINT8",
        19: "QINT16",
        20: "QINT32",
        21: "QUINT8",
        22: "QUINT16",
        23: "RESOURCE",
        24: "STRING_REF",
        25: "DUAL",
        26: "VARIANT",
        27: "BF16",
        28: "INT4",
        29: "UINT1",
        30: "INT2",
        31: "UINT2",
        32: "COMPLEX32",
        33: "HIFLOAT8",
        34: "FLOAT8_E5M2",
        35: "FLOAT8_E4M3FN",
        36: "FLOAT8_E8M0",
        37: "FLOAT6_E3M2",
        38: "FLOAT6_E2M3",
        39: "FLOAT4_E2M1",
        40: "FLOAT4_E1M2",
        41: "HIFLOAT4",
        42: "HIFLOAT4_SCALE",
    }
)
"""Numbers of dump headers; device graphs use the names with ``DT_`` in front."""

DTYPE_OF: Final = MappingProxyType(
    {
        "UNDEFINED": "undefined",
        "FLOAT": "float32",
        "FLOAT16": "float16",
        "DOUBLE": "float64",
        "BF16": "bfloat16",
        "FLOAT8_E8M0": "float8_e8m0fnu",
        **{
            name: name.lower()
            for name in DUMP_TYPES.values()
            if name not in {"UNDEFINED", "FLOAT", "FLOAT16", "DOUBLE", "BF16", "FLOAT8_E8M0"}
        },
    }
)
"""Device type name (without ``DT_``) -> dtype name of the project."""

DEVICE_NAME_OF: Final = MappingProxyType({dtype: name for name, dtype in DTYPE_OF.items()})
"""Dtype name of the project -> device type name (without ``DT_``)."""

DUMP_NUMBER_OF: Final = MappingProxyType({DTYPE_OF[name]: number for number, name in DUMP_TYPES.items()})
"""Dtype name of the project -> number in a dump header."""

RUNTIME_TYPES: Final = MappingProxyType(
    {
        0: "float32",
        1: "float16",
        2: "int8",
        3: "int32",
        4: "uint8",
        6: "int16",
        7: "uint16",
        8: "uint32",
        9: "int64",
        10: "uint64",
        11: "float64",
        12: "bool",
        13: "string",
        14: "dual_sub_int8",
        15: "dual_sub_uint8",
        16: "complex64",
        17: "complex128",
        18: "qint8",
        19: "qint16",
        20: "qint32",
        21: "quint8",
        22: "quint16",
        23: "resource",
        24: "string_ref",
        25: "dual",
        26: "variant",
        27: "bfloat16",
        28: "undefined",
        29: "int4",
        30: "uint1",
        31: "int2",
        32: "uint2",
        33: "complex32",
    }
)
"""The other numbering: attributes of device ops that hold a type as an integer."""

RUNTIME_NUMBER_OF: Final = MappingProxyType({dtype: number for number, dtype in RUNTIME_TYPES.items()})

_FORMAT_NAMES: Final = (
    "NCHW,NHWC,ND,NC1HWC0,FRACTAL_Z,NC1C0HWPAD,NHWC1C0,FSR_NCHW,FRACTAL_DECONV,C1HWNC0,"
    "FRACTAL_DECONV_TRANSPOSE,FRACTAL_DECONV_SP_STRIDE_TRANS,NC1HWC0_C04,FRACTAL_Z_C04,CHWN,"
    "FRACTAL_DECONV_SP_STRIDE8_TRANS,HWCN,NC1KHKWHWC0,BN_WEIGHT,FILTER_HWCK,"
    "HASHTABLE_LOOKUP_LOOKUPS,HASHTABLE_LOOKUP_KEYS,HASHTABLE_LOOKUP_VALUE,HASHTABLE_LOOKUP_OUTPUT,"
    "HASHTABLE_LOOKUP_HITS,C1HWNCoC0,MD,NDHWC,FRACTAL_ZZ,FRACTAL_NZ,NCDHW,DHWCN,NDC1HWC0,FRACTAL_Z_3D,"
    "CN,NC,DHWNC,FRACTAL_Z_3D_TRANSPOSE,FRACTAL_ZN_LSTM,FRACTAL_Z_G,RESERVED,ALL,NULL,ND_RNN_BIAS,"
    "FRACTAL_ZN_RNN,YUV,YUV_A,NCL,FRACTAL_Z_WINO,C1HWC0"
)

FORMATS: Final = MappingProxyType({**dict(enumerate(_FORMAT_NAMES.split(","))), 255: "MAX"})
"""Numbers of layouts in dump headers."""

FORMAT_NUMBER_OF: Final = MappingProxyType({name: number for number, name in FORMATS.items()})

TF_TYPES: Final = MappingProxyType(
    {
        0: "undefined",
        1: "float32",
        2: "float64",
        3: "int32",
        4: "uint8",
        5: "int16",
        6: "int8",
        7: "string",
        8: "complex64",
        9: "int64",
        10: "bool",
        11: "qint8",
        12: "quint8",
        13: "qint32",
        14: "bfloat16",
        15: "qint16",
        16: "quint16",
        17: "uint16",
        18: "complex128",
        19: "float16",
        20: "resource",
        21: "variant",
        22: "uint32",
        23: "uint64",
        24: "float8_e5m2",
        25: "float8_e4m3fn",
        26: "float8_e4m3fnuz",
        27: "float8_e4m3b11fnuz",
        28: "float8_e5m2fnuz",
        29: "int4",
        30: "uint4",
        31: "int2",
        32: "uint2",
        33: "float4_e2m1fn",
    }
)
"""TensorFlow's numbers; a reference type is 100 more."""

_TF_ENUM_SPECIAL: Final = MappingProxyType(
    {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF", "undefined": "DT_INVALID"}
)


def tf_dtype(number: int) -> str:
    """Returns the dtype name of a TensorFlow type number, ``type_<n>`` for one that is not known."""
    base, suffix = (number - 100, "_ref") if number > 100 else (number, "")
    return TF_TYPES.get(base, f"type_{base}") + suffix


def tf_enum_names() -> dict[str, int]:
    """Returns TensorFlow's names (``DT_FLOAT``, ``DT_FLOAT_REF``) with their numbers, for text graphs."""
    names = {_TF_ENUM_SPECIAL.get(dtype, "DT_" + dtype.upper()): number for number, dtype in TF_TYPES.items()}
    refs = {name + "_REF": number + 100 for name, number in names.items() if number}
    return {**names, **refs}


def device_dtype(name: str) -> str:
    """Returns the dtype name of a device type name (with or without ``DT_``), the name itself if it is not known."""
    return DTYPE_OF.get(name.removeprefix("DT_"), name)
