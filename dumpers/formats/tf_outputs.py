"""Where a named output of a TensorFlow op lies among all its outputs.

Inside a function an input is spelt ``producer:output name:k``: the k-th tensor of that output. Which slot of the
producer this is depends on the op's definition. Files of checkpoints and saved models bring the definitions along; for
plain graphs the common ops with several outputs are known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from dumpers.formats.schema import Message
from dumpers.graph import AttrValue

_KNOWN: Final = (
    "BatchNormWithGlobalNormalizationGrad dx dm dv db dg|BroadcastGradientArgs r0 r1|"
    "CTCBeamSearchDecoder decoded_indices:top_paths decoded_values:top_paths decoded_shape:top_paths log_probability|"
    "CTCLoss loss gradient|FakeQuantWithMinMaxVarsGradient backprops_wrt_input backprop_wrt_min backprop_wrt_max|"
    "FusedBatchNorm y batch_mean batch_variance reserve_space_1 reserve_space_2|"
    "FusedBatchNormV2 y batch_mean batch_variance reserve_space_1 reserve_space_2|"
    "FusedBatchNormV3 y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3|"
    "FusedBatchNormGrad x_backprop scale_backprop offset_backprop reserve_space_3 reserve_space_4|"
    "FusedBatchNormGradV2 x_backprop scale_backprop offset_backprop reserve_space_3 reserve_space_4|"
    "FusedBatchNormGradV3 x_backprop scale_backprop offset_backprop reserve_space_4 reserve_space_5|"
    "LSTMBlockCell i cs f o ci co h|LookupTableExportV2 keys values|MaxPoolWithArgmax output argmax|"
    "Merge output value_index|NonMaxSuppressionV4 selected_indices valid_outputs|"
    "NonMaxSuppressionV5 selected_indices selected_scores valid_outputs|Qr q r|ReaderReadV2 key value|"
    "RefMerge output value_index|RefSwitch output_false output_true|"
    "SelfAdjointEigV2 e v|SoftmaxCrossEntropyWithLogits loss backprop|"
    "SparseAdd sum_indices sum_values sum_shape|SparseConcat output_indices output_values output_shape|"
    "SparseFillEmptyRows output_indices output_values empty_row_indicator reverse_index_map|"
    "SparseReshape output_indices output_shape|SparseSlice output_indices output_values output_shape|"
    "SparseSoftmaxCrossEntropyWithLogits loss backprop|StringSplit indices values shape|"
    "StringSplitV2 indices values shape|Svd s u v|Switch output_false output_true|TopK values indices|"
    "TopKV2 values indices|Unique y idx|UniqueV2 y idx|UniqueWithCounts y idx count|UniqueWithCountsV2 y idx count"
)


class _Output(NamedTuple):
    name: str
    count_attr: str
    """Attribute that says how many tensors it has (a number, or a list with one entry each), empty for one."""


class OutputSlots:
    """Tells slots by the definitions of ops.

    Args:
        definitions: ``OpDef`` messages of a file: its list of ops, the signatures of its functions.
    """

    def __init__(self, definitions: Iterable[Message] = ()) -> None:
        self._outputs: Mapping[str, tuple[_Output, ...]] = {
            **_COMMON,
            **{_text(op.name): tuple(map(_output, op.output_arg)) for op in definitions},
        }

    def first(self, op_type: str, output: str, attrs: Mapping[str, AttrValue]) -> int:
        """Returns the slot of an output's first tensor; 0 for an op or an output that is not known."""
        slot = 0
        for found in self._outputs.get(op_type, ()):
            if found.name == output:
                return slot
            slot += _count(attrs.get(found.count_attr)) if found.count_attr else 1
        return 0


def _output(definition: Message) -> _Output:
    return _Output(_text(definition.name), _text(definition.number_attr or definition.type_list_attr))


def _count(value: AttrValue) -> int:
    if isinstance(value, int):
        return max(value, 0)
    return len(value) if isinstance(value, (tuple, list)) else 1


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _common() -> Mapping[str, tuple[_Output, ...]]:
    result = {}
    for line in _KNOWN.split("|"):
        op, *outputs = line.split()
        parts = (output.partition(":") for output in outputs)
        result[op] = tuple(_Output(name, count) for name, _, count in parts)
    return MappingProxyType(result)


_COMMON: Final = _common()
