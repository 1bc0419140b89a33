"""``bench faults``: how often the verdict names what was done wrong, and how often it accuses the innocent.

Every class of :data:`precision_tool.bench.fault_classes.CLASSES` is planted into small reference models, with sizes
from blatant to one element, drawn by the seed. A trial is right if the op named first is the one that was hit, and if
the kind of the verdict is right. Faults that change no bit of the dumped step are drawn again. Beside it stand the
rules that people use now. Same seed, same figures, but for the seconds.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Final

from precision_tool.bench import fault_several
from precision_tool.bench.fault_backends import RealPair, backends, real_pairs
from precision_tool.bench.fault_classes import CLASSES
from precision_tool.bench.fault_rivals import RULES
from precision_tool.bench.fault_several import Several
from precision_tool.bench.fault_sides import Case
from precision_tool.bench.fault_trials import Outcome, run_batch, spread
from precision_tool.bench.measure import Plain, Report, Row, machine

MODELS: Final = ("little_demo", "DCNv2", "DLRM", "WideDeep", "MMoE", "xDeepFM")
PER_CLASS: Final = 12
CLEAN: Final = 20
"""Pairs without a fault of each model and kind of variables: both arithmetics in ten steps."""

SEVERAL: Final = 10
"""Steps with two to five faults of each model and kind of variables."""

REAL_TURNS: Final = 2
"""Batches of each model on each real backend."""

SMALL_CLASSES: Final = ("scaled product", "rows of other keys", "update skipped", "another batch")

Progress = Callable[[str, int, int], None]


def run(*, small: bool, seed: int, progress: Progress) -> Report:
    """Runs all trials, in worker processes that end with their model.

    Args:
        small: Four classes on one model, in seconds.
        seed: Of all that is drawn.
        progress: Told how many processes are done.
    """
    cases = [Case(model, resource) for model in MODELS for resource in (True, False)]
    numbers = list(range(len(CLASSES)))
    if small:
        cases = cases[4:5]
        numbers = [k for k in numbers if CLASSES[k].name in SMALL_CLASSES]
    per_class, clean, several = (1, 2, 1) if small else (PER_CLASS, CLEAN, SEVERAL)
    batches = spread(numbers, cases, per_class, seed, clean, several)
    outcomes: list[Outcome] = []
    many: list[Several] = []
    missing: list[str] = []
    workers = max(1, min(len(batches), os.cpu_count() or 1))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=1)
    try:
        for done, (found, together, lacking) in enumerate(pool.map(run_batch, batches), 1):
            outcomes += found
            many += together
            missing += lacking
            progress("models", done, len(batches))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    pairs: list[RealPair] = []
    for number, backend in enumerate([] if small else backends()):
        progress(backend.name, number, len(backends()))
        for turn in range(REAL_TURNS):
            pairs += real_pairs(backend, cases, seed + turn)
    setup: dict[str, Plain] = {
        **machine(("tensorflow", "numpy")),
        "seed": seed,
        "small": small,
        "models": [case.model for case in cases if case.resource],
        "workers": workers,
        "not_drawn": missing,
    }
    return Report(
        tuple(_rows(outcomes, pairs)), {**summary(outcomes, pairs), "several": fault_several.summary(many)}, setup
    )


def summary(outcomes: Sequence[Outcome], pairs: Sequence[RealPair] = ()) -> dict[str, Plain]:
    """Returns the published figures: shares with 95 % intervals (Wilson), by class, and each miss with its reason.

    ``clean_pairs`` are those of the emulated device and of real backends; ``differing_real_pairs`` those of the latter
    that differ in a bit.
    """
    faults = [o for o in outcomes if o.fault_class != "clean"]
    clean = [o for o in outcomes if o.fault_class == "clean"]
    by_class: dict[str, Plain] = {}
    for name in dict.fromkeys(o.fault_class for o in faults):
        of_class = [o for o in faults if o.fault_class == name]
        by_class[name] = {
            "faults": len(of_class),
            "top1": _share([o.first for o in of_class]),
            "kind": _share([o.kind_right for o in of_class]),
        }
    return {
        "faults": len(faults),
        "top1": _share([o.first for o in faults]),
        "top1_interval": wilson(sum(o.first for o in faults), len(faults)),
        "top3": _share([o.among_three for o in faults]),
        "kind": _share([o.kind_right for o in faults]),
        "kind_interval": wilson(sum(o.kind_right for o in faults), len(faults)),
        "unknown": sum(o.verdict == "unknown" for o in faults),
        "clean_pairs": len(clean) + len(pairs),
        "real_pairs": len(pairs),
        "differing_real_pairs": sum(p.differs for p in pairs),
        "false_accusations": sum(not o.kind_right for o in clean) + sum(p.accused for p in pairs),
        "seconds_per_verdict": median(o.seconds for o in outcomes),
        "rivals": {
            rule: {
                "top1": _share([o.rivals[rule] for o in faults]),
                "false_accusations": sum(o.rivals[rule] for o in clean),
            }
            for rule in RULES
        },
        "by_class": by_class,
        "misses": {
            **{str(k): _miss(o) for k, o in enumerate(o for o in outcomes if not (o.first and o.kind_right))},
            **{f"real {k}": _accusation(p) for k, p in enumerate(p for p in pairs if p.accused)},
        },
    }


def wilson(hits: int, count: int) -> list[Plain]:
    """Returns the 95 % interval of a share (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927); empty for no trials."""
    if not count:
        return []
    z, share = 1.959964, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return [max(0.0, middle - half), min(1.0, middle + half)]


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def _miss(outcome: Outcome) -> str:
    right = " or ".join(outcome.answers)
    return (
        f"{outcome.fault_class}: {outcome.fault} in {outcome.case}: {outcome.verdict} {outcome.named or 'nothing'}, "
        f"right is {right} {outcome.hit}. {outcome.reason}"
    )


def _accusation(pair: RealPair) -> str:
    return f"{pair.backend}: {pair.case}: {pair.verdict} {pair.named or 'nothing'}, right is fine. {pair.reason}"


def _rows(outcomes: Sequence[Outcome], pairs: Sequence[RealPair]) -> list[Row]:
    rows: list[Row] = []
    for name in dict.fromkeys(p.backend for p in pairs):
        of_backend = [p for p in pairs if p.backend == name]
        counts: Mapping[str, Plain] = {
            "accused": sum(p.accused for p in of_backend),
            "differ": sum(p.differs for p in of_backend),
        }
        rows.append(Row("clean", name, len(of_backend), "pairs", sum(p.seconds for p in of_backend), facts=counts))
    for name in dict.fromkeys(o.fault_class for o in outcomes):
        of_class = [o for o in outcomes if o.fault_class == name]
        facts: Mapping[str, Plain] = {
            "first": sum(o.first for o in of_class),
            "kind_right": sum(o.kind_right for o in of_class),
        }
        rows.append(Row("verdict", name, len(of_class), "pairs", sum(o.seconds for o in of_class), facts=facts))
    return rows
