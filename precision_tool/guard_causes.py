"""Why a recorded run left the plain one: causes in the order in which they have to be ruled out, with the evidence."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_tool.ladders import BEFORE_STEPS, LadderFile, Mark, Name

Header = Mapping[str, Any]

_MUST_AGREE = (
    "kind",
    "python",
    "tensorflow",
    "numpy",
    "seed",
    "rewriting",
    "jit",
    "threads",
    "devices",
    "processors",
    "environment",
)
_SHOWN = 5


class Cause(enum.Enum):
    """Classes of causes."""

    NONE = "none"
    JOB = "job"
    SETTINGS = "settings"
    GRAPH = "graph"
    INPUT = "input"
    REWRITING = "rewriting"
    COMPILER = "compiler"
    HOOK = "hook"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Difference:
    """Where two runs part first.

    Attributes:
        ladder: Name of the ladder.
        number: Its number.
        at: ``start``, ``step``, ``settled`` or ``missing``.
        step: Number of the step, -1 before the first.
        sides: What the two runs are.
        moved: Names with the marks of both sides; None for no value.
        facts: What else is different there.
        headers: Of both ladders.
        same_graph: Whether both had the same graph.
        added: Ops that came into the graph while steps of the second run ran.
        itself_recorded: Whether the second run recorded the step.
        recorded_before: Whether the second run recorded an earlier one.
    """

    ladder: str
    number: int
    at: str
    step: int
    sides: tuple[str, str]
    moved: tuple[tuple[Name, Mark | None, Mark | None], ...] = ()
    facts: tuple[str, ...] = ()
    headers: tuple[Header, Header] = ({}, {})
    same_graph: bool = True
    added: int = 0
    itself_recorded: bool = False
    recorded_before: bool = False

    @classmethod
    def of_missing(cls, ladder: LadderFile, sides: tuple[str, str], name: str) -> Difference:
        """A ladder that only the first of two runs has."""
        fact = (
            f"the {sides[0]} run has a ladder {name}, the {sides[1]} run has none: it made other sessions or functions"
        )
        return cls(name, ladder.number, "missing", BEFORE_STEPS, sides, facts=(fact,), headers=(ladder.header,) * 2)

    @property
    def place(self) -> str:
        """Where it is, in words."""
        places = {
            "start": "before the first step",
            "step": f"step {self.step}",
            "settled": f"at the end, after step {self.step}",
            "missing": "a ladder is missing",
        }
        return (
            f"{self.ladder} ({self.headers[0].get('kind')}): {places[self.at]}, {self.sides[0]} against {self.sides[1]}"
        )

    def names(self, what: str) -> list[str]:
        """Names of the moved values of a kind."""
        return [name for (kind, name), _, _ in self.moved if kind == what]


@dataclass(frozen=True)
class Reason:
    """Evidence for a cause, and what to do about it."""

    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def find_cause(difference: Difference, own: Difference | None, *, repeated: bool) -> tuple[Cause, Reason]:
    """Returns why a recorded run left the plain one.

    Args:
        difference: Of the plain and the recorded run.
        own: Of two plain runs; None if they agree or there is only one.
        repeated: Whether there are two plain runs.
    """
    if own is not None:
        return Cause.JOB, _job(own, difference)
    settings = list(_settings(*difference.headers))
    if settings:
        return Cause.SETTINGS, Reason(tuple(settings), ("run both sides with the same settings on the same machine",))
    if difference.added:
        fact = f"{difference.added} ops came into the graph while steps of the recorded run ran"
        return Cause.HOOK, _hook(difference, fact)
    if not difference.same_graph:
        fact = "the graphs of the two runs have different hashes there: the script builds another graph when recorded"
        advice = (
            "look for what the script builds only when TF_DUMP_ settings or ROOT_DIR change, or in the order of a set"
        )
        return Cause.GRAPH, Reason((fact,), (advice, "PYTHONHASHSEED=0 makes sets of names come in one order"))
    recorded = difference.recorded_before or difference.itself_recorded
    if not difference.recorded_before and (difference.at == "start" or difference.names("fed")):
        return Cause.INPUT, _input(difference)
    if recorded and _rewrites(difference.headers[1]):
        return Cause.REWRITING, _rewriting(difference)
    if recorded and _compiles(difference.headers[1]):
        fact = (
            f"XLA compiles (jit {difference.headers[1].get('jit')}): a recorded step hands out more tensors, so other "
            "clusters are compiled"
        )
        return Cause.COMPILER, Reason(
            (fact, _who(difference)), ("switch XLA off on both sides and run the guard again",)
        )
    if not repeated:
        advice = "a second plain run decides: give its ladder as third folder"
        return Cause.UNDECIDED, Reason((_who(difference), "rewriting of the graph and XLA are off"), (advice,))
    return Cause.HOOK, _hook(difference, "rewriting of the graph and XLA are off")


def _job(own: Difference, difference: Difference) -> Reason:
    header = own.headers[0]
    evidence = [f"two plain runs part at: {own.place}; the recorded run parts from the first at: {difference.place}"]
    evidence += list(_why_not_repeated(own, header))
    advice = (
        "make the job repeat itself first: a seed before the graph is built, no shuffling, one thread "
        "(intra_op_parallelism_threads = inter_op_parallelism_threads = 1), a fresh model_dir for each run (as below "
        "ROOT_DIR, which the guard sets anew each time)"
    )
    return Reason(tuple(evidence), (advice, "the hooks are neither proved nor accused"))


def _why_not_repeated(own: Difference, header: Header) -> Iterator[str]:
    unseeded = _texts(header.get("unseeded"))
    if unseeded:
        yield f"{header.get('unseeded_ops')} ops draw random numbers without a seed: {', '.join(unseeded)}"
    if "seed" in header and header.get("seed") is None:
        yield "no seed is set for TensorFlow"
    if own.at == "start" and not unseeded:
        yield (
            "the initial values differ: the job goes on from what an earlier run left (a checkpoint), or draws them "
            "without a seed"
        )
    if own.names("fed"):
        yield f"fed values differ: {_listed(own.names('fed'))}"
    if not own.same_graph:
        yield "the graphs differ: " + (
            "Python orders sets of names anew in each process; set PYTHONHASHSEED=0"
            if header.get("hash_randomization")
            else "the script builds another one each time"
        )
    yield from _machinery(header)


def _machinery(header: Header) -> Iterator[str]:
    """What of TensorFlow may give another result each time."""
    ordering = _texts(header.get("ordering"))
    if ordering:
        yield f"the input pipeline orders samples by itself: {', '.join(ordering)}"
    threads = header.get("threads")
    if isinstance(threads, dict) and set(map(str, threads.values())) != {"1"}:
        shown = ", ".join(f"{name} {number or 'all processors'}" for name, number in sorted(threads.items()))
        yield f"threads of ops: {shown}; sums in several threads may add up in another order"
        if header.get("reference_variables"):
            yield "reference variables may be read while another op updates them"
    on_gpu = any("GPU" in device for device in _texts(header.get("devices")))
    if on_gpu and _environment(header).get("TF_DETERMINISTIC_OPS") not in ("1", "true"):
        yield "a GPU is used and TF_DETERMINISTIC_OPS is not set"


def _settings(first: Header, second: Header) -> Iterator[str]:
    for key in _MUST_AGREE:
        left, right = (_comparable(header.get(key)) for header in (first, second))
        if left != right:
            yield f"{key}: {_short(left)} on the plain side, {_short(right)} on the recorded one"


def _comparable(value: object) -> object:
    """Without the settings of the recording itself, which may differ."""
    if isinstance(value, dict):
        return {key: part for key, part in value.items() if not str(key).startswith("TF_DUMP_")}
    return value


def _input(difference: Difference) -> Reason:
    fed = difference.names("fed")
    facts = ["no step was recorded before"]
    if fed:
        facts.append(f"what is fed differs: {_listed(fed)}")
    if difference.at == "start":
        facts.append(f"what the variables start from differs: {_listed(difference.names('variable'))}")
    advice = "see that the script reads the same data and starts from the same values whatever ROOT_DIR is"
    return Reason(tuple(facts), (advice,))


def _rewriting(difference: Difference) -> Reason:
    header = difference.headers[1]
    switches = header.get("rewriting")
    shown = ""
    if isinstance(switches, dict):
        shown = ", ".join(f"{key}={value}" for key, value in sorted(switches.items()) if key != "on")[:300]
    facts = [
        "TensorFlow rewrites the graph" + (f" ({shown})" if shown else ""),
        "a recorded step hands out tensors inside it: ops that are fused, folded or merged otherwise run one by one",
        _who(difference),
    ]
    if _environment(header).get("TF_ENABLE_ONEDNN_OPTS") != "0":
        facts.append("oneDNN may be among the fused kernels: TF_ENABLE_ONEDNN_OPTS is not 0")
    session = "session" in str(header.get("kind"))
    switch = (
        "config.graph_options.rewrite_options.disable_meta_optimizer = True"
        if session
        else "tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})"
    )
    return Reason(
        tuple(facts),
        (f"switch it off on both sides of a comparison: {switch}", "then run the guard again: it should be proved"),
    )


def _hook(difference: Difference, fact: str) -> Reason:
    advice = (
        "please report it with the output of --json, the versions of TensorFlow and Python and, if you can, the script"
    )
    return Reason((_who(difference), fact, f"kind of hook: {difference.headers[1].get('kind')}"), (advice,))


def _who(difference: Difference) -> str:
    if difference.itself_recorded:
        return f"step {difference.step}, the first that differs, was recorded"
    if difference.recorded_before:
        return "an earlier step was recorded, the first that differs was not"
    return "no step was recorded up to there"


def _rewrites(header: Header) -> bool:
    switches = header.get("rewriting")
    return isinstance(switches, dict) and switches.get("on") is True


def _compiles(header: Header) -> bool:
    flags = str(_environment(header).get("TF_XLA_FLAGS", ""))
    return str(header.get("jit", "OFF")).startswith("ON") or "auto_jit" in flags


def _environment(header: Header) -> Mapping[str, Any]:
    found = header.get("environment")
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> list[str]:
    return [str(item)[:200] for item in value[:_SHOWN]] if isinstance(value, list) else []


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:197] + "..."
