"""Which variable a resource handle belongs to.

TensorFlow keeps no list of variables; the garbage collector knows them all. Asking it takes as long as a small step, so
what is found is remembered as long as the handle lives.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

Handle = Any
"""An eager tensor of type ``resource``."""


class KnownVariable(NamedTuple):
    """A variable; ``dtype`` is the type's number, ``shape`` a ``TensorShape``."""

    name: str
    dtype: int
    shape: Any


class Variables:
    """Finds variables by their handles, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: "Dict[int, Tuple[weakref.ref[Any], Optional[KnownVariable]]]" = {}

    def of(self, handle: Handle) -> Optional[KnownVariable]:
        """Returns the variable of a handle, None for a handle of something else (an iterator, a table of keys)."""
        with self._lock:
            known = self._known.get(id(handle))
            if known is None or known[0]() is not handle:
                self._known = {key: item for key, item in self._known.items() if item[0]() is not None}
                self._known.update(_living())
                known = self._known.setdefault(id(handle), (weakref.ref(handle), None))
                if known[0]() is not handle:
                    known = self._known[id(handle)] = (weakref.ref(handle), None)
            return known[1]


def _living() -> "Dict[int, Tuple[weakref.ref[Any], Optional[KnownVariable]]]":
    found: "Dict[int, Tuple[weakref.ref[Any], Optional[KnownVariable]]]" = {}
    for name, variable in living_variables():
        known = KnownVariable(name, variable.dtype.base_dtype.as_datatype_enum, variable.shape)
        found[id(variable._handle)] = (weakref.ref(variable._handle), known)
    return found


def living_variables() -> Iterator[Tuple[str, Any]]:
    """Yields name and object of all resource variables that the garbage collector knows and that have a handle.

    A variable of Keras 3 goes by its path.
    """
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    keras_3 = getattr(sys.modules.get("keras"), "Variable", None)
    paths: Dict[int, str] = {}
    variables: List[Any] = []
    kinds: Dict[type, int] = {}
    for item in gc.get_objects():
        kind = kinds.get(type(item))
        if kind is None:
            named = isinstance(keras_3, type) and issubclass(type(item), keras_3)
            kind = kinds[type(item)] = 2 if named else int(issubclass(type(item), BaseResourceVariable))
        if kind == 1:
            variables.append(item)
        elif kind == 2 and getattr(item, "_value", None) is not None:
            paths[id(item._value)] = str(item.path)
    for variable in variables:
        if getattr(variable, "_handle", None) is not None:
            yield paths.get(id(variable)) or str(variable.name).split(":")[0], variable
