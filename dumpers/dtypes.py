"""Names of element types, the same everywhere in the project, and what NumPy calls them.

A dtype name is NumPy's (``float32``, ``int64``, ``bool``, ``complex64``), that of ml_dtypes for what NumPy lacks
(``bfloat16``, ``float8_e5m2``, ``float8_e4m3fn``), or one of the names of :data:`WITHOUT_VALUE` for what has no number
in it.
"""

from __future__ import annotations

from typing import cast

import numpy as np

WITHOUT_VALUE = frozenset({"resource", "variant", "string", "undefined"})
"""Types that are listed in a dump and skipped by figures and NaN search."""

_EXTENSION = frozenset({"bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3", "float8_e8m0fnu", "int4", "uint4"})


def numpy_dtype(name: str) -> "np.dtype[np.generic]":
    """Returns the NumPy dtype of a dtype name.

    Raises:
        ValueError: the name is not a type with values.
    """
    if name in _EXTENSION:
        import ml_dtypes

        if not hasattr(ml_dtypes, name):
            raise ValueError("dtype {} needs a newer ml_dtypes".format(name))
        return cast("np.dtype[np.generic]", np.dtype(getattr(ml_dtypes, name)))
    if name in WITHOUT_VALUE:
        raise ValueError("dtype {} has no values".format(name))
    try:
        return np.dtype(name)
    except TypeError as error:
        raise ValueError("unknown dtype {!r}".format(name)) from error


def is_float(name: str) -> bool:
    """Tells whether values of this dtype can be NaN or infinite (complex included)."""
    return name.startswith(("float", "bfloat", "complex"))
