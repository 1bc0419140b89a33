"""Every optimizer's rule by the device type of its update op, for those who change a setting and run it again."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compare.kernels import optimizers, proximal
from compare.kernels.updates import Rule

UPDATE_RULES: Mapping[str, Rule] = MappingProxyType(
    {**optimizers.DENSE_RULES, **optimizers.SPARSE_RULES, **proximal.DENSE_RULES, **proximal.SPARSE_RULES}
)
