"""Which variables of a checkpoint are optimizer slots, and of which variable: by the object graph, else by their names.

Names differ by who saved: ``w/Adam`` and ``w/Adam_1`` (graphs of TensorFlow 1), ``training/Adam/w/m`` and ``Adam/m/w``
(Keras 2), ``adam/w_momentum`` with underscores for slashes (Keras 3), ``w/.OPTIMIZER_SLOT/adam/m`` (objects).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from dumpers.formats.object_graph import SavedVariable
    from dumpers.records import TensorRecord

_SLOT_NAMES: Final = frozenset(
    {"m", "v", "u", "n", "z", "vhat", "v_hat", "velocity", "velocity_hat", "mom", "momentum", "momentums", "ms", "rms"}
    | {"mg", "average", "average_gradient", "accum", "accumulator", "accumulators", "accum_grad", "accum_var"}
    | {"accumulated_grad", "accumulated_delta_var", "delta_accumulator", "gradient_accumulator", "linear", "linears"}
    | {"gradient_squared_accumulator", "gradient_squared_sum", "momentum_cache", "rate_scaling"}
)
"""Last words of a name that make it a slot where the name alone has to tell."""

_OBJECT_SLOT: Final = re.compile(r"(.+)/\.OPTIMIZER_SLOT/.+?/([^/]+)(/\.ATTRIBUTES/VARIABLE_VALUE)", re.DOTALL)


class Slot(NamedTuple):
    """A slot.

    Attributes:
        name: ``Adam_1``, ``m``.
        owner: The variable in the checkpoint.
    """

    name: str
    owner: str


def find_slots(records: Mapping[str, TensorRecord], graph: Mapping[str, SavedVariable]) -> dict[str, Slot]:
    """Returns the slots among the variables of a checkpoint.

    Args:
        records: By name in the checkpoint.
        graph: What the checkpoint's object graph tells of them; empty without one.
    """
    names = _Names(records, graph)
    found = {name: slot for name in records if (slot := names.slot_of(name)) is not None}
    return {name: slot for name, slot in found.items() if slot.owner not in found}


class _Names:
    """The variables by all their names."""

    def __init__(self, records: Mapping[str, TensorRecord], graph: Mapping[str, SavedVariable]) -> None:
        self._records = records
        self._graph = graph
        full = {known.full_name: key for key, known in graph.items() if known.full_name and key in records}
        self._by_name = full | {name: name for name in records}
        self._flattened = {name.replace("/", "_"): key for name, key in self._by_name.items()}

    def slot_of(self, name: str) -> Slot | None:
        """Returns what a variable is a slot of."""
        known = self._graph.get(name)
        if known is not None and known.slot:
            owner = self._by_name.get(known.slot_of)
            return Slot(known.slot, owner) if owner is not None else None
        if told := _OBJECT_SLOT.fullmatch(name):
            owner = told[1] + told[3]
            return Slot(told[2], owner) if owner in self._records else None
        return self._by_words(name, (known.full_name if known else "") or name)

    def _by_words(self, name: str, full_name: str) -> Slot | None:
        words = full_name.split("/")
        for slot, owner in self._candidates(words):
            if owner is not None and owner != name and self._records[owner].shape == self._records[name].shape:
                return Slot(slot, owner)
        return None

    def _candidates(self, words: list[str]) -> list[tuple[str, str | None]]:
        last, known = words[-1], self._by_name
        found = [(last, known.get("/".join(words[:-1])))]
        if last in _SLOT_NAMES:  # scope/variable/slot
            found += [(last, known.get("/".join(words[at:-1]))) for at in range(1, len(words) - 1)]
        for at in range(1, len(words) - 1):  # optimizer/slot/variable
            if words[at] in _SLOT_NAMES:
                found.append((words[at], known.get("/".join(words[at + 1 :]))))
        if len(words) > 1:  # optimizer/layer_variable_slot; names of slots have underscores themselves
            for at in (place for place, letter in enumerate(last) if letter == "_"):
                if last[at + 1 :] in _SLOT_NAMES:
                    found.append((last[at + 1 :], self._flattened.get(last[:at])))
        return found
