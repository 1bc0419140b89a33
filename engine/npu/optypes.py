"""TensorFlow op types sorted by how the emulated device treats them."""

from __future__ import annotations

CONTROL_FLOW = frozenset(
    {
        "Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration",
        "RefNextIteration", "LoopCond", "ControlTrigger", "If", "StatelessIf", "While", "StatelessWhile", "Case",
        "StatelessCase", "For", "PartitionedCall", "StatefulPartitionedCall", "RemoteCall", "SymbolicGradient",
    }
)  # fmt: skip
"""Ops that decide what runs, or call functions: not executed on the emulated device."""

REFERENCE_VARIABLES = frozenset({"Variable", "VariableV2"})
VARIABLES = REFERENCE_VARIABLES | {"VarHandleOp"}

PASS_THROUGH = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot", "PlaceholderWithDefault"})
"""Ops whose only output is their first input."""

HOST = frozenset(
    {"Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "PyFuncStateless", "EagerPyFunc", "PyFunc"}
)
"""Ops that run on the host although they may be declared stateless."""

FRAMEWORK_OP = "FrameworkOp"
"""Device type of everything that runs on the host; attribute ``original_type`` has the TensorFlow type."""

WITHOUT_TASK = frozenset({"Data", "Const", "Variable", "NetOutput", "NoOp"})

DEVICE_TYPES = {
    "MatMul": "MatMulV2",
    "BatchMatMul": "BatchMatMulV2",
    "AddV2": "Add",
    "Sum": "ReduceSum",
    "Mean": "ReduceMean",
    "Max": "ReduceMax",
    "Min": "ReduceMin",
    "Prod": "ReduceProd",
    "Gather": "GatherV2",
    "Placeholder": "Data",
}
"""Where the device calls an op by another name."""

EXTRA_ATTRS = {
    "MatMul": {"transpose_a": "transpose_x1", "transpose_b": "transpose_x2"},
    "BatchMatMul": {"adj_x": "adj_x1", "adj_y": "adj_x2"},
    "BatchMatMulV2": {"adj_x": "adj_x1", "adj_y": "adj_x2"},
}
"""TensorFlow attributes that the device has under another name too."""

VARIABLE_DEVICE_TYPES = {
    "AssignVariableOp": "Assign",
    "AssignAddVariableOp": "AssignAdd",
    "AssignSubVariableOp": "AssignSub",
    "ResourceGather": "GatherV2",
    "ResourceApplyAdam": "ApplyAdamD",
    "ApplyAdam": "ApplyAdamD",
}
"""Device types of ops on variables; any other loses its prefix ``Resource``."""

ONLY_READ = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp",
     "IsVariableInitialized"}
)  # fmt: skip
"""Ops on variables that change none; every other op with a variable's handle is taken to write it."""

ASK_INITIALIZED = frozenset({"VarIsInitializedOp", "IsVariableInitialized"})

OVERWRITING = frozenset({"AssignVariableOp", "Assign"})
"""Ops that need no earlier value of the variable they write."""

PRODUCTS = frozenset({"MatMulV2", "BatchMatMulV2"})
"""Device types whose float32 operands become float16 under mixed precision."""


def variable_device_type(tf_type: str) -> str:
    """Returns the device type of an op that reads or writes a variable in place."""
    return VARIABLE_DEVICE_TYPES.get(tf_type, tf_type.removeprefix("Resource"))


def device_type(tf_type: str) -> str:
    """Returns the device type of any other op that runs on the device."""
    return DEVICE_TYPES.get(tf_type, tf_type)
