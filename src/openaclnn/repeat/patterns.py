"""How a call's arrays lie relative to each other, where sizes need not be part of its kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from openaclnn.core.plan import Plan, broadcast_shapes
from openaclnn.core.tensor import Tensor
from openaclnn.repeat import slots as at

__all__ = ["axes_of", "patterns_of", "shapes_of"]

_ALL_AXES = (1 << at.MAX_AXES) - 1


def shapes_of(plan: Plan, places: Sequence[int], made: Sequence[Any]) -> int:
    """Which of the lead's axes each result has that is made, in the bits of a slot; those that are None are not."""
    found, operands = 0, plan.operands
    for number, (place, own) in enumerate(zip(places, made, strict=True)):
        if own is not None:
            mask = axes_of(operands[place].role, plan.class_axis) | 1 << at.MADE_BIT
            found |= mask << at.RESULT_BITS * number
    return found


def axes_of(role: str, class_axis: int) -> int:
    """Of an operand's role, those of the axes that it has, as a mask."""
    if role == "full":
        return _ALL_AXES
    own = 1 << max(class_axis, 0)
    return {"positions": _ALL_AXES & ~own, "classes": own}.get(role, 0)


def patterns_of(
    plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[list[tuple[int, int]], int]:
    """How each array lies relative to the output, where sizes need not be part of the kind, and which input leads.

    The lead is an input of the output's shape, or of all inputs' where that is another (a sum, several outputs).
    Elementwise all others have that shape too, or one element; with a class axis they have what their roles say. -1 where it
    is not so.
    """
    if plan.dense and -1 not in places:
        return [(at.DENSE, 0)] * len(whole), 0
    same = [(at.SAME, 0)] * len(whole)
    operands, classes = (*plan.operands, *plan.spared), plan.classes
    inputs = places.index(len(plan.inputs))  # the first output is behind them
    result = whole[inputs]
    assert result is not None
    apart = bool(plan.reduction or plan.more)
    shape = _whole_shape(plan, places[:inputs], whole) if apart else result.shape
    if shape is None or math.prod(shape) == 1:
        return same, -1  # cannot tell one element from all
    all_axes = (1 << len(shape)) - 1
    found: list[tuple[int, int]] = []
    for place, array in zip(places, whole, strict=True):
        if array is None:
            found.append((at.MISSING, 0))
            continue
        own, dense = array.shape, array.contiguous
        role = "full" if place < 0 else operands[place].role
        if role == "single":
            found.append((at.SAME, 0))
        elif dense and role == "full" and own == shape:
            found.append((at.DENSE, all_axes))
        elif classes and role == "full" and own == shape:
            found.append((at.LAID, all_axes))
        elif classes and role in ("positions", "classes"):
            mask = axes_of(role, plan.class_axis) & all_axes
            if own != tuple([n for k, n in enumerate(shape) if mask >> k & 1]):
                return same, -1
            found.append((at.SOME if dense else at.LAID, mask))
        elif place < 0:
            found.append((at.SAME, 0))
        elif not classes and array.size == 1 and len(own) <= len(shape):
            found.append((at.ONE, 0))
        elif not classes and len(own) <= len(shape):
            alike = zip(own, shape[len(shape) - len(own) :], strict=True)
            found.append((at.LAID, sum(1 << k for k, (one, all) in enumerate(alike) if one == all)))
        else:
            return same, -1
    for lead, ((kind, _), array) in enumerate(zip(found[:inputs], whole, strict=False)):
        if kind in (at.DENSE, at.LAID) and array is not None and array.shape == shape:
            return found, lead
    return same, -1


def _whole_shape(
    plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[int, ...] | None:
    """The shape that a kernel runs over, of what it reads."""
    read = [
        (plan.inputs[place].role, own.shape)
        for place, own in zip(places, whole, strict=False)
        if place >= 0 and own is not None
    ]
    if plan.classes:
        return next((shape for role, shape in read if role == "full"), None)
    return broadcast_shapes(*[shape for _, shape in read]) if read else None
