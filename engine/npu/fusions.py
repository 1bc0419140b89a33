"""Fusion passes: chains of original ops that the device runs as one operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError
from engine.npu.kernels import Attrs, fused_multiply_add, matmul
from engine.npu.tasks import Draft, Member, Place

Array = NDArray[np.generic]

MATMUL_BIAS_RELU = "MatMulBiasAddReluFusionPass"
MATMUL_BIAS = "MatMulBiasAddFusionPass"
MUL_ADD = "MulAddFusionPass"


@dataclass(frozen=True)
class FusionSwitches:
    """Which passes are on: a pass's own rule wins over ``ALL``, and what no rule names is on."""

    rules: Mapping[str, bool] = field(default_factory=dict)

    def __contains__(self, pass_name: str) -> bool:
        return self.rules.get(pass_name, self.rules.get("ALL", True))


def read_fusion_switches(path: Path) -> FusionSwitches:
    """Reads a fusion switch file.

    The emulated device's passes are graph passes, so ``ALL`` of the section ``GraphFusion`` rules them.

    Raises:
        EngineError: the file cannot be read or is no switch file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"fusion_switch_file {path}: {error}") from error
    switch = content.get("Switch") if isinstance(content, dict) else None
    if not isinstance(switch, dict):
        raise EngineError(f"fusion_switch_file {path}: there is no object 'Switch' in it")
    rules: dict[str, bool] = {}
    for section in ("UBFusion", "GraphFusion"):
        for name, value in _section(switch, section, path).items():
            if str(value).lower() not in ("on", "off"):
                raise EngineError(f"fusion_switch_file {path}: {section}/{name} is {value!r}, not 'on' or 'off'")
            if name != "ALL" or section == "GraphFusion":
                rules[name] = str(value).lower() == "on"
    return FusionSwitches(rules)


def _section(switch: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    section = switch.get(name, {})
    if not isinstance(section, dict):
        raise EngineError(f"fusion_switch_file {path}: {name} is not an object")
    return section


class FusedKernel:
    """Runs a fused chain as one operator.

    Args:
        members: The chain; its first member is a MatMul or a Mul.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)

    def __call__(self, attrs: Attrs, inputs: Sequence[Array]) -> list[Array]:
        """Returns the chain's output: one accumulator from the first member to the last."""
        if self.members[0].type == "Mul":
            return fused_multiply_add(attrs, inputs)
        (result,) = matmul(attrs, inputs[:3])
        return [_relu(result) if self.members[-1].type == "Relu" else result]

    def without(self, attrs: Attrs, inputs: Sequence[Array], skipped: int) -> list[Array] | None:
        """Returns the output with one member left out, None where the rest makes no chain."""
        full = self(attrs, inputs)[0]
        if self.members[0].type == "Mul":
            value: Any = inputs[0]
            result = value + inputs[2] if skipped == 0 else value * inputs[1]
            return [np.broadcast_to(result, full.shape).astype(full.dtype)]
        if skipped == 0:
            return None
        kept = [member.type for index, member in enumerate(self.members) if index != skipped]
        (product,) = matmul(attrs, inputs[:3] if "BiasAdd" in kept else inputs[:2])
        return [_relu(product) if "Relu" in kept else product]


def _relu(values: Array) -> Array:
    result: Array = np.maximum(values, values.dtype.type(0))
    return result


def fuse(drafts: dict[str, Draft], fetched: set[Place], switches: FusionSwitches) -> dict[str, Draft]:
    """Fuses all chains.

    A chain is fused where nobody else reads or waits for what its inner members make. The fused operator stands where
    the last member stood, under the members' names put together.

    Args:
        drafts: All operators, in order of execution; readers of a replaced operator are pointed to the new one.
        fetched: Places that the run returns.
        switches: Which passes are on.

    Returns:
        All operators in order of execution. A replaced last member can still be found by its old name:
        ``fused.originals[-1]``.
    """
    uses = _Uses(drafts, fetched)
    fused_at: dict[str, Draft] = {}
    dropped: set[str] = set()
    for first in drafts.values():
        chain, pass_name = _matmul_chain(first, uses, switches) or _mul_chain(first, uses, switches) or ((), "")
        direct_reads = any(drafts[source].variable for member in chain for source, _ in member.inputs)
        if chain and not direct_reads and not dropped.intersection(member.name for member in chain):
            fused_at[chain[-1].name] = _fused(chain, pass_name)
            dropped.update(member.name for member in chain)
    result = [fused_at.get(name, draft) for name, draft in drafts.items() if name in fused_at or name not in dropped]
    names = {old: draft.name for old, draft in fused_at.items()}
    for draft in result:
        draft.inputs = [(names.get(source, source), slot) for source, slot in draft.inputs]
        draft.host_inputs = [(names.get(source, source), slot) for source, slot in draft.host_inputs]
        draft.controls = [names.get(source, source) for source in draft.controls]
    return {draft.name: draft for draft in result}


class _Uses:
    """Who reads each place."""

    def __init__(self, drafts: Mapping[str, Draft], fetched: set[Place]) -> None:
        self._readers: dict[Place, list[Draft]] = {}
        self._fetched = fetched
        self._waited_for = {name for draft in drafts.values() for name in draft.controls}
        self._on_host: set[Place] = set()
        for draft in drafts.values():
            self._on_host.update(draft.host_inputs)
            for place in draft.inputs:
                self._readers.setdefault(place, []).append(draft)

    def only_reader(self, draft: Draft) -> Draft | None:
        """Returns the operator that alone reads the first output of another, once; None if there is not just one."""
        place = (draft.name, 0)
        readers = self._readers.get(place, [])
        if len(readers) != 1 or place in self._fetched or place in self._on_host or draft.name in self._waited_for:
            return None
        return readers[0]


_Chain = tuple[tuple[Draft, ...], str]


def _matmul_chain(first: Draft, uses: _Uses, switches: FusionSwitches) -> _Chain | None:
    if first.type != "MatMulV2" or first.attrs.get("T") != "float32":
        return None
    bias = uses.only_reader(first)
    if bias is None or bias.type != "BiasAdd" or bias.inputs[0] != (first.name, 0):
        return None
    relu = uses.only_reader(bias)
    if relu is not None and relu.type == "Relu" and MATMUL_BIAS_RELU in switches:
        return (first, bias, relu), MATMUL_BIAS_RELU
    return ((first, bias), MATMUL_BIAS) if MATMUL_BIAS in switches else None


def _mul_chain(first: Draft, uses: _Uses, switches: FusionSwitches) -> _Chain | None:
    if first.type != "Mul" or first.attrs.get("T") != "float32" or MUL_ADD not in switches:
        return None
    add = uses.only_reader(first)
    return ((first, add), MUL_ADD) if add is not None and add.type == "Add" else None


def _fused(chain: Sequence[Draft], pass_name: str) -> Draft:
    """Makes the operator that replaces a chain."""
    first, last = chain[0], chain[-1]
    name = "".join(member.name for member in chain)
    fused = Draft(name, first.type if first.type != "Mul" else "FusedMulAdd", attrs=dict(first.attrs))
    inner: Place | None = None
    members = []
    for member in chain:
        places: list[int | None] = []
        for place, port in zip(member.inputs, member.input_ports, strict=True):
            if place == inner:
                places.append(None)
                continue
            places.append(len(fused.inputs))
            fused.inputs.append(place)
            fused.input_ports.append(port)
        members.append(Member(member.name, member.source.type, tuple(places)))
        inner = (member.name, 0)
    fused.controls = list(dict.fromkeys(source for member in chain for source in member.controls))
    fused.output_ports = list(last.output_ports)
    fused.originals = tuple(member.name for member in members)
    fused.original_types = tuple(member.type for member in members)
    fused.pass_name, fused.source = pass_name, last.source
    fused.members, fused.kernel = tuple(members), FusedKernel(members)
    return fused
