"""The part of a TensorFlow graph that one run needs, in the one order in which the device executes it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import UnsupportedOpError
from engine.npu.optypes import CONTROL_FLOW

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Request:
    """What a run is asked for.

    Attributes:
        fetches: Tensors whose values are wanted.
        targets: Ops that are to run.
        feeds: Tensors whose values are given, in a fixed order.
    """

    fetches: tuple[Any, ...]
    targets: tuple[Any, ...]
    feeds: tuple[Any, ...]

    @property
    def key(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Equal for requests that compile to the same program."""
        names = tuple(tensor.name for tensor in self.feeds)
        return tuple(t.name for t in self.fetches), tuple(op.name for op in self.targets), names

    @property
    def ops(self) -> list[Any]:
        """The ops that the fetches and targets name."""
        return [tensor.op for tensor in self.fetches] + list(self.targets)


def pruned_ops(graph: tf.Graph, request: Request) -> list[Any]:
    """Returns the ops that a run executes: those that fetches and targets need, not looking behind fed tensors.

    Ops come after everything that they read or are told to wait for; among those that are free to go, the one that was
    added to the graph first.

    Raises:
        UnsupportedOpError: there is control flow among them.
    """
    fed = {tensor.name for tensor in request.feeds}
    needed: dict[str, Any] = {}
    waiting = [tensor.op for tensor in request.fetches if tensor.name not in fed] + list(request.targets)
    while waiting:
        op = waiting.pop()
        if op.name not in needed:
            _refuse_control_flow(op)
            needed[op.name] = op
            waiting += _before(op, fed)
    return _ordered(graph, needed, fed)


def _before(op: tf.Operation, fed: set[str]) -> Iterator[Any]:
    for tensor in op.inputs:
        if tensor.name not in fed:
            yield tensor.op
    yield from op.control_inputs


def _refuse_control_flow(op: tf.Operation) -> None:
    if op.type in CONTROL_FLOW:
        raise UnsupportedOpError(
            f"op {op.name!r}: the emulated device does not execute control flow ({op.type}); set the NpuOptimizer's"
            f" use_off_line to False, or run this part in a plain session"
        )


def _ordered(graph: tf.Graph, needed: dict[str, Any], fed: set[str]) -> list[Any]:
    places = {op.name: place for place, op in enumerate(graph.get_operations())}
    waits: dict[str, int] = {}
    followers: dict[str, list[str]] = {name: [] for name in needed}
    for name, op in needed.items():
        before = {other.name for other in _before(op, fed)}
        waits[name] = len(before)
        for other in before:
            followers[other].append(name)
    ready = [(places[name], name) for name, count in waits.items() if count == 0]
    heapq.heapify(ready)
    result = []
    while ready:
        _, name = heapq.heappop(ready)
        result.append(needed[name])
        for follower in followers[name]:
            waits[follower] -= 1
            if waits[follower] == 0:
                heapq.heappush(ready, (places[follower], follower))
    if len(result) < len(needed):
        stuck: Sequence[str] = sorted(name for name, count in waits.items() if count)
        raise UnsupportedOpError(f"op {stuck[0]!r}: it waits for itself; the emulated device does not execute loops")
    return result
