"""What phase one found out about a call, for the next one like it: the very same but for addresses.

`located.py` has the calls whose sizes need not be the same, and those of these that come a third time.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import copysign
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.plan import Kept
from openaclnn.core.products import chosen_product, listeners
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import chosen_engine
from openaclnn.repeat.phases.sizes import OneSize

__all__ = ["find", "key_of", "remember"]

_calls: Kept[Hashable, OneSize] = Kept(
    1024
)  # a training loop has a handful, a test suite thousands
listeners.append(_calls.clear)

find = _calls.get


def key_of(operator: Operator, arguments: tuple[Any, ...]) -> Hashable:
    """What decides checks and plan, but for addresses. None where it cannot be told cheaply."""
    key: list[Any] = [operator.name, chosen_product(), chosen_engine()]
    for value in arguments:
        kind = type(value)
        if kind is Tensor:
            if not value.alive:
                return None
            key += (
                value.dtype,
                value.format,
                value.device,
                value.writable,
                value.shape,
                value.strides,
            )
        elif kind is Scalar:
            if not value.alive:
                return None
            key += (value.dtype, value.value.tobytes())  # 0.0 and -0.0 are two
        elif kind is float:
            key += (value, copysign(1.0, value))
        elif value is None or kind in (int, bool, str, bytes):
            key += (kind, value)
        else:
            return None
    return tuple(key)


def remember(key: Hashable, one: OneSize) -> None:
    """Let the next call like this one be found."""
    _calls[key] = one
