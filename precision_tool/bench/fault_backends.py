"""Clean pairs of real backends for ``bench faults``: the same model recorded by two configurations of TensorFlow.

Each backend records in a process of its own: oneDNN off, more threads, XLA, and every interpreter that the environment
variable ``PRECISION_TOOL_PYTHONS`` names (paths with ``:`` between them; with another TensorFlow in it). The partner
is this interpreter's plain run. Nothing may be accused, and how many pairs differ in a bit at all is counted: pairs
that do not prove little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dumpers.errors import UsageError
from dumpers.settings import Settings
from precision_tool.bench.fault_sides import Case

PYTHONS: Final = "PRECISION_TOOL_PYTHONS"
ROOT: Final = Path(__file__).resolve().parent.parent.parent
RECORDER: Final = Path(__file__).with_name("fault_recorder.py")
TIMEOUT_S: Final = 900


@dataclass(frozen=True)
class Backend:
    """One way to run TensorFlow.

    Attributes:
        name: For a person.
        python: The interpreter.
        environment: What it is given besides.
        threads: Of its sessions.
    """

    name: str
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1


@dataclass(frozen=True)
class RealPair:
    """What the verdict made of one pair.

    Attributes:
        backend, case: Which.
        verdict, named: Its kind and op.
        differs: Whether any pair of tensors differs in a bit.
        reason: First row of the evidence.
    """

    backend: str
    case: str
    verdict: str
    named: str
    differs: bool
    seconds: float = field(compare=False, default=0.0)
    reason: str = ""

    @property
    def accused(self) -> bool:
        """Whether the verdict finds something wrong."""
        return self.verdict not in ("fine", "rounding")


def backends() -> list[Backend]:
    """Returns the backends of this machine.

    Raises:
        UsageError: ``PRECISION_TOOL_PYTHONS`` names a file that is not there.
    """
    found = [
        Backend("oneDNN off", environment={"TF_ENABLE_ONEDNN_OPTS": "0"}),
        Backend("2 threads", threads=2),
        Backend("XLA", environment={"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"}),
    ]
    for python in filter(None, os.environ.get(PYTHONS, "").split(os.pathsep)):
        if not Path(python).is_file():
            raise UsageError(f"bench faults: {PYTHONS}: {python}: no such interpreter")
        found.append(Backend(f"{Path(python).parent.parent.name}", python=python))
    return found


def real_pairs(backend: Backend, cases: Sequence[Case], seed: int) -> list[RealPair]:
    """Records the models on a backend and here, and judges each pair.

    Raises:
        UsageError: a recording failed; the message has the end of what it said.
    """
    with tempfile.TemporaryDirectory(prefix="bench-real-") as folder:
        left, right = Path(folder, "left"), Path(folder, "right")
        _record(backend, cases, seed, left)
        _record(Backend("plain"), cases, seed, right)
        return [_pair(backend.name, case, left / str(k), right / str(k)) for k, case in enumerate(cases)]


def _record(backend: Backend, cases: Sequence[Case], seed: int, out: Path) -> None:
    wanted = {
        "out": str(out),
        "seed": seed,
        "threads": backend.threads,
        "cases": [[case.model, case.resource] for case in cases],
    }
    environment = {**os.environ, **backend.environment, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    environment.pop("TF_DUMP_STEP", None)
    done = subprocess.run(
        [backend.python, str(RECORDER), json.dumps(wanted)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise UsageError(f"bench faults: {backend.name}: recording failed: {done.stderr.strip()[-500:]}")


def _pair(name: str, case: Case, left: Path, right: Path) -> RealPair:
    from compare.isolation import same_bits
    from compare.judge import judge
    from compare.pairing import pair_dumps
    from precision_tool.workbench import Workbench

    start = time.perf_counter()
    workbench = Workbench(Settings())
    sides = [workbench.read_dump(next(iter(sorted(side.glob("run_*"))))) for side in (left, right)]
    verdict = judge(sides[0], sides[1], left_graph=sides[0].graph, right_graph=sides[1].graph)
    seconds = time.perf_counter() - start
    pairs = pair_dumps(sides[0], sides[1], sides[0].graph).pairs
    valued = [p for p in pairs if p.left.source is not None and p.right.source is not None]
    differs = any(not same_bits(p.left.load(), p.right.load()) for p in valued)
    reason = str(verdict.evidence[0]["text"]) if verdict.evidence else ""
    plain = str(replace(case, numerics="plain"))
    return RealPair(name, plain, str(verdict.kind), verdict.op or "", differs, seconds, reason)
