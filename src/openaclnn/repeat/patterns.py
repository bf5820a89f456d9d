"""How a call's arrays lie relative to each other, where sizes need not be part of its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.core.plan import Plan, broadcast_shapes
from openaclnn.core.tensor import Tensor
from openaclnn.repeat import slots as at

__all__ = ["axes_of", "patterns_of", "shapes_of"]

_ALL_AXES = (1 << at.MAX_AXES) - 1
_Pattern = tuple[int, int]


def shapes_of(plan: Plan, made: Sequence[Any]) -> int:
    """Which of the lead's axes each result has, in the bits of a slot; those that are None have none and are not written."""
    found, outputs = 0, iter((plan.output, *plan.more))
    for place, own in enumerate(made):
        if own is not None:
            mask = axes_of(next(outputs).role, plan.class_axis) | 1 << at.WRITTEN_BIT
            found |= mask << at.RESULT_BITS * place
    return found


def axes_of(role: str, class_axis: int) -> int:
    """Of an operand's role, those of the axes that it has, as a mask."""
    if role == "full":
        return _ALL_AXES
    own = 1 << max(class_axis, 0)
    return _ALL_AXES & ~own if role == "positions" else own if role == "classes" else 0


def patterns_of(
    plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None], result: Tensor
) -> tuple[list[_Pattern], int]:
    """How each array lies relative to the output, where sizes need not be part of the kind, and which input leads.

    The lead is an input of the output's shape, or of all inputs' where that is another (a sum, several outputs).
    Elementwise all others have that shape too, or one element; with a class axis they have what their roles say. -1 where it
    is not so.
    """
    if plan.dense and -1 not in places:
        return [(at.DENSE, 0)] * len(whole), 0
    same = [(at.SAME, 0)] * len(whole)
    apart = bool(plan.reduction or plan.more)
    shape = _whole_shape(plan, places, whole) if apart else result.shape
    if shape is None or math.prod(shape) == 1:
        return same, -1  # cannot tell one element from all
    found: list[_Pattern] = []
    lead, last = -1, len(whole) - 1
    pattern_of = _class_patterns(plan, shape) if plan.classes else _elementwise_patterns(shape)
    for place, array in zip(places, whole, strict=True):
        if array is None:
            found.append((at.MISSING, 0))
        elif apart and array is result:
            mask = axes_of(plan.output.role, plan.class_axis)
            found.append((at.SAME, mask & (1 << len(shape)) - 1))
        else:
            own = pattern_of(array, place)
            if own is None:
                return same, -1
            here = len(found)
            if lead < 0 and here < last and own[0] in _LEADING and array.shape == shape:
                lead = here
            found.append(own)
    return (found, lead) if lead >= 0 else (same, -1)


_LEADING = (at.DENSE, at.LAID)


def _elementwise_patterns(shape: tuple[int, ...]) -> Callable[[Tensor, int], _Pattern | None]:
    """What says how an array lies that stands at a place among the operands; -1 where no kernel reads it."""

    def pattern_of(array: Tensor, place: int) -> _Pattern | None:
        own = array.shape
        if array.contiguous and own == shape:
            return at.DENSE, (1 << len(shape)) - 1
        if place < 0:
            return at.SAME, 0
        if len(own) > len(shape):
            return None
        if array.size == 1:
            return at.ONE, 0
        alike = zip(own, shape[len(shape) - len(own) :], strict=True)
        return at.LAID, sum([1 << k for k, (one, all) in enumerate(alike) if one == all])

    return pattern_of


def _class_patterns(plan: Plan, shape: tuple[int, ...]) -> Callable[[Tensor, int], _Pattern | None]:
    """The same with a class axis: what a role has of the shape, row-major or not."""
    axis, operands = plan.class_axis, (*plan.inputs, plan.output)
    wanted = {
        "full": shape,
        "positions": shape[:axis] + shape[axis + 1 :],
        "classes": shape[axis : axis + 1],
    }

    def pattern_of(array: Tensor, place: int) -> _Pattern | None:
        role = "full" if place < 0 else operands[place].role
        if role == "single":
            return at.SAME, 0
        if array.shape != wanted[role]:
            return (at.SAME, 0) if place < 0 else None
        mask = axes_of(role, axis) & (1 << len(shape)) - 1
        if not array.contiguous:
            return at.LAID, mask
        return at.DENSE if role == "full" else at.SOME, mask

    return pattern_of


def _whole_shape(
    plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[int, ...] | None:
    """The shape that a kernel runs over, of what it reads."""
    read = [
        (plan.inputs[place].role, own.shape)
        for place, own in zip(places[:-1], whole, strict=False)
        if place >= 0 and own is not None
    ]
    if plan.classes:
        return next((shape for role, shape in read if role == "full"), None)
    return broadcast_shapes(*[shape for _, shape in read]) if read else None
