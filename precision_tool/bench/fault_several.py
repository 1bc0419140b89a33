"""Two to five faults in one step of one model, for ``bench faults``: how many the verdict lists, and what else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from precision_tool.bench.fault_classes import GROUPS, group_of

if TYPE_CHECKING:
    import numpy as np

    from compare.verdict import Verdict

KINDS: Final = (
    ("scale", "any", "factor=1.5"),
    ("scale", "any", "factor=1.01"),
    ("bias", "no lookup", "value=0.1"),
    ("sign_flip", "no lookup", "share=0.1"),
    ("row_swap", "gather", "count=1"),
    ("wrong_row", "gather", "share=0.1"),
    ("drop_tail", "product", ""),
    ("nan", "any", "index=0"),
    ("overwrite", "any", "share=0.1"),
    ("bf16_inputs", "product", ""),
    ("skip_update", "update", ""),
)
"""What is drawn from: kind, group of operators, parameters."""

MOST: Final = 5


@dataclass(frozen=True)
class Several:
    """One graph with several faults.

    Attributes:
        case: The model, for a person.
        faults: Text of each fault that changed a bit.
        missed: Operators that were hit and are no suspects.
        innocent: Suspects that were not hit.
    """

    case: str
    faults: tuple[str, ...]
    missed: tuple[str, ...]
    innocent: tuple[str, ...]

    @property
    def listed(self) -> int:
        """How many of the faults are suspects."""
        return len(self.faults) - len(self.missed)


def draw(graph: Any, random: np.random.Generator) -> list[str]:  # noqa: ANN401
    """Returns the texts of two to five faults on different operators of a device's graph."""
    from engine.npu.faults import applicable

    groups = {op.name: group_of(op.type) for op in graph.ops}
    texts: dict[str, str] = {}
    for _ in range(int(random.integers(2, MOST + 1))):
        kind, group, size = KINDS[int(random.integers(len(KINDS)))]
        ops = [op for op in applicable(graph, kind) if groups[op] in GROUPS[group] and op not in texts]
        if ops:
            op = str(random.choice(ops))
            texts[op] = f"{kind}@{op}" + (f":{size}" if size else "")
    return list(texts.values())


def scored(case: str, texts: Sequence[str], verdict: Verdict) -> Several:
    """Holds the suspects of a verdict against the faults that changed a bit."""
    hit = [text.partition("@")[2].partition(":")[0] for text in texts]
    suspects = list(dict.fromkeys(s.op for s in verdict.suspects if s.side == "left"))
    return Several(
        case,
        tuple(texts),
        tuple(op for op in hit if op not in suspects),
        tuple(op for op in suspects if op not in hit),
    )


def summary(found: Sequence[Several]) -> Mapping[str, Any]:
    """Returns ``graphs``, ``faults``, ``listed`` and ``precision`` (shares, None without any), ``misses``."""
    faults, listed = sum(len(s.faults) for s in found), sum(s.listed for s in found)
    named = listed + sum(len(s.innocent) for s in found)
    wrong = [s for s in found if s.missed or s.innocent]
    return {
        "graphs": len(found),
        "faults": faults,
        "listed": listed / faults if faults else None,
        "precision": listed / named if named else None,
        "misses": {
            str(k): f"{s.case}: {'; '.join(s.faults)}: missed {list(s.missed)}, innocent {list(s.innocent)}"
            for k, s in enumerate(wrong)
        },
    }
