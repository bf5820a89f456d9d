"""Kinds of two-phase calls: what phase one found out about a call, for the next one of its kind.

A kind is the operator, which tensors there are, their dtypes, formats, devices and numbers of axes, and the attributes by
value. Where all tensors are row-major and of one shape, of one element, or of what their roles say, sizes are no part of
it. Otherwise shapes and strides must be the very same.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import copysign
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.products import chosen_product, listeners
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import Choice, chosen_engine
from openaclnn.repeat.sizes import AnySize, Kind, OneSize, Work, any_size

__all__ = ["find", "key_of", "remember"]

_KEPT = 1024  # keys: a training loop has a handful, a test suite thousands
_OF_ONE_KEY = 8  # kinds that differ in layout, or in the counts that a kernel serves

_kinds: dict[Hashable, tuple[AnySize, ...]] = {}
_with_sizes: dict[Hashable, OneSize] = {}
for _known in (_kinds, _with_sizes):
    listeners.append(_known.clear)


def key_of(operator: Operator, arguments: tuple[Any, ...]) -> Hashable:
    """What decides checks and plan, but for sizes and addresses. None where it cannot be told cheaply."""
    output = arguments[operator.output_place]
    if type(output) is not Tensor:
        return None
    shape = output.shape
    key: list[Any] = [operator.name, chosen_product(), chosen_engine(), len(shape)]
    for value in arguments:
        kind = type(value)
        if kind is Tensor:
            if not value.alive:
                return None
            own = value.shape
            axes = -1 if own == shape else len(own)
            key += (value.dtype, value.format, value.device, value.writable, axes)
        elif kind is Scalar:
            if not value.alive:
                return None
            key += value.key
        elif kind is float:
            key += (value, copysign(1.0, value))
        elif value is None or kind in (int, bool, str, bytes):
            key += (kind, value)
        else:
            return None
    return tuple(key)


def _sizes(arguments: tuple[Any, ...]) -> list[Any]:
    return [(value.shape, value.strides) for value in arguments if type(value) is Tensor]


def find(operator: Operator, key: Hashable, arguments: tuple[Any, ...]) -> tuple[Kind, Work] | None:
    """The kind and the work of a call like one before."""
    for kind in _kinds.get(key, ()):
        work = kind.work(arguments, arguments[operator.output_place])
        if work is not None:
            return kind, work
    one = _with_sizes.get((key, *_sizes(arguments)))
    return None if one is None else (one, one.work)


def remember(
    operator: Operator, key: Hashable, arguments: tuple[Any, ...], one: OneSize, choice: Choice | None
) -> None:  # fmt: skip
    """Let the next call of this kind be found."""
    kind = None if choice is None else any_size(operator, arguments, one, choice)
    if kind is None:
        if len(_with_sizes) >= _KEPT:
            _with_sizes.clear()
        _with_sizes[(key, *_sizes(arguments))] = one
        return
    if len(_kinds) >= _KEPT:
        _kinds.clear()
    _kinds[key] = (kind, *_kinds.get(key, ())[: _OF_ONE_KEY - 1])
