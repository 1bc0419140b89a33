"""Errors of the engine and the emulated device."""

from __future__ import annotations


class EngineError(Exception):
    """Base of what the engine raises for a wrong configuration or wrong use; the message says what to do."""


class FaultError(EngineError):
    """A fault to inject is misspelt, does not apply to its operator, or misbehaved."""


class UnsupportedOpError(EngineError):
    """The emulated device cannot execute an operator of the graph."""


class CapacityError(EngineError):
    """A table has no row left for a new key."""
