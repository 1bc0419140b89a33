"""Faults that somebody else wrote: ``package.module:callable``."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import FaultError
from engine.npu.executor import Call
from engine.observe import DeviceGraph, OpRun

Array = NDArray[np.generic]


class ModuleFault:
    """A fault that a callable makes: it sees every operator of a training step and may return other outputs.

    Args:
        text: ``package.module:callable``, looked up on PYTHONPATH and in the current folder.

    Attributes:
        changed_steps: Training steps in which it has changed a bit.
        target: Always empty: only the callable knows.

    Raises:
        FaultError: there is no such module or callable.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.changed_steps: set[int] = set()
        self.target = ""
        self._call = _load(text)

    def prepare(self, graph: DeviceGraph) -> None:
        """Does nothing: the callable decides by itself which operators it wants."""

    def execute(self, graph: DeviceGraph, call: Call, step: int) -> tuple[list[Array], list[Array]]:
        """Runs one operator and shows it to the callable."""
        right = call.compute(call.inputs)
        run = OpRun(
            type=call.task.op.type,
            name=call.task.op.name,
            inputs=[_read_only(value) for value in call.inputs],
            outputs=[value.copy() for value in right],
            step=step,
            op=call.task.op,
        )
        try:
            answer = self._call(run)
        except Exception as error:
            raise FaultError(
                f"fault {self.text!r} failed at operator {run.name!r} (step {step}): {type(error).__name__}: {error}"
            ) from error
        if answer is None:
            return right, right
        wrong = self._checked(run, right, answer)
        if any(a.tobytes() != b.tobytes() for a, b in zip(right, wrong, strict=True)):
            self.changed_steps.add(step)
        return wrong, wrong

    def _checked(self, run: OpRun, right: Sequence[Array], answer: object) -> list[Array]:
        where = f"fault {self.text!r} at operator {run.name!r} (step {run.step})"
        if not isinstance(answer, list | tuple):
            raise FaultError(f"{where}: it must return a list of arrays or None, not {type(answer).__name__}")
        if len(answer) != len(right):
            raise FaultError(f"{where}: it returned {len(answer)} arrays, the operator has {len(right)} outputs")
        for slot, (new, old) in enumerate(zip(answer, right, strict=True)):
            if not isinstance(new, np.ndarray):
                raise FaultError(f"{where}: output {slot} must be an array, not {type(new).__name__}")
            if new.dtype != old.dtype or new.shape != old.shape:
                raise FaultError(
                    f"{where}: output {slot} must be {old.dtype} {old.shape}, it returned {new.dtype} {new.shape}"
                )
        return [np.ascontiguousarray(new).reshape(new.shape).copy() for new in answer]


def _read_only(value: Array) -> Array:
    view = np.asarray(value).view()  # An operator may have left a NumPy scalar, which has no flags.
    view.flags.writeable = False
    return view


def _load(text: str) -> Callable[[OpRun], Any]:
    module_name, _, attribute = text.partition(":")
    if not module_name or not attribute:
        raise FaultError(f"fault {text!r}: write it as package.module:callable")
    with _current_folder_first():
        module = _module(text, module_name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise FaultError(f"fault {text!r}: module {module_name!r} ({module.__file__}) has no callable {attribute!r}")
    return found  # type: ignore[no-any-return]


def _module(text: str, name: str) -> ModuleType:
    """Imports a module; one of the same name that was imported from elsewhere before is not taken for it."""
    top = name.partition(".")[0]
    importlib.invalidate_caches()
    spec = importlib.machinery.PathFinder.find_spec(top)
    known = sys.modules.get(top)
    if spec is not None and known is not None and _real(getattr(known, "__file__", None)) != _real(spec.origin):
        for other in [other for other in sys.modules if other == top or other.startswith(top + ".")]:
            del sys.modules[other]
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise FaultError(
            f"fault {text!r}: module {name!r} cannot be imported from PYTHONPATH or {os.getcwd()}:"
            f" {type(error).__name__}: {error}"
        ) from error


def _real(path: str | None) -> str | None:
    return os.path.realpath(path) if path else None


@contextmanager
def _current_folder_first() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
