"""How a call's arrays lie relative to each other, where sizes need not be part of its kind."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from openaclnn.core.plan import Plan, broadcast_shapes
from openaclnn.core.tensor import Tensor
from openaclnn.repeat.words import slots as at

__all__ = ["Patterns", "fixed_patterns", "patterns_of", "places_of", "shapes_of"]

_ALL_AXES = (1 << at.MAX_AXES) - 1


def shapes_of(made: Sequence[Tensor | None], patterns: Sequence[tuple[int, int]]) -> int:
    """Which of the lead's axes each result has that is made, in the bits of a slot; those that are None are not."""
    found = 0
    for number, own in enumerate(made):
        if own is not None:
            pattern, mask = patterns[number]
            mask = (_ALL_AXES if pattern == at.DENSE else mask) | 1 << at.MADE_BIT
            found |= mask << at.RESULT_BITS * number
    return found


def places_of(plan: Plan, inputs: Iterable[str], outputs: Iterable[str]) -> list[int]:
    """Where arrays of these names stand among a plan's operands, those last that it does not write; -1 for what it does not
    read.
    """
    first = len(plan.inputs)
    read = {operand.parameter: place for place, operand in enumerate(plan.inputs)}
    ends = (*plan.outputs, *plan.spared)
    written = {operand.parameter: place for place, operand in enumerate(ends, first)}
    return [
        *[read.get(name, -1) for name in inputs],
        *[written.get(name, -1) for name in outputs],
    ]


def _axes_of(role: str, class_axis: int) -> int:
    """Of an operand's role, those of the axes that it has, as a mask."""
    if role == "full":
        return _ALL_AXES
    own = 1 << max(class_axis, 0)
    return _ALL_AXES & ~own if role == "positions" else own if role == "classes" else 0


class Patterns(NamedTuple):
    """How each array lies, with the axes that it has; which one leads, one beyond them all where it is what the inputs stretch to,
    -1 where sizes are part of the kind; and whether one that a kernel reads or writes is not row-major: how others lie is nobody's
    business."""

    each: Sequence[tuple[int, int]]
    lead: int
    laid: bool


def patterns_of(plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]) -> Patterns:
    """How each array lies relative to the output, where sizes need not be part of the kind.

    The lead is an input of the output's shape, or of all inputs' where that is another (a sum, several outputs); elementwise,
    where none is, it is the shape that they stretch to. All others have that shape too, or one element, or stretch; with a class
    axis they have what their roles say.
    """
    if plan.dense and -1 not in places:
        return Patterns([(at.DENSE, 0)] * len(whole), 0, False)
    inputs = places.index(len(plan.inputs))  # the first output is behind them
    result = whole[inputs]
    assert result is not None
    apart = plan.reduction or plan.more
    shape = _whole_shape(plan, places[:inputs], whole) if apart else result.shape
    if shape is not None and math.prod(shape) != 1:  # else one element cannot be told from all
        find = _class_patterns if plan.classes else _elementwise_patterns
        found, laid = find(plan, shape, places, whole)
        for lead, (pattern, _) in enumerate(found[:inputs]):
            array = whole[lead]
            if pattern in _LEADING and array is not None and array.shape == shape:
                return Patterns(found, lead, laid)
        if found and not plan.classes and -1 not in places[:inputs]:
            return Patterns(found, len(whole), laid)
    return fixed_patterns(plan, places, whole)


def fixed_patterns(plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]) -> Patterns:
    """Sizes and strides are part of the kind."""
    return Patterns([_SAME] * len(whole), -1, False)


_LEADING = (at.DENSE, at.LAID)
_MISSING, _SAME = (at.MISSING, 0), (at.SAME, 0)


def _elementwise_patterns(
    plan: Plan, shape: tuple[int, ...], places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[list[tuple[int, int]], bool]:
    """Row-major and of the shape, one element, or stretched along some axes; nothing where an array has too many axes."""
    found, laid, everything = [], False, (1 << len(shape)) - 1
    sum_at = len(plan.inputs) if plan.reduction else -1
    for place, array in zip(places, whole, strict=True):
        if array is None:
            found.append(_MISSING)
        elif place >= 0 and place == sum_at:
            found.append(_SAME)
        elif array.contiguous and array.shape == shape:
            found.append((at.DENSE, everything))
        elif place < 0:
            found.append(_SAME)
        elif len(array.shape) > len(shape):
            return [], False
        elif array.size == 1:
            found.append((at.ONE, 0))
        else:
            alike = zip(array.shape, shape[len(shape) - len(array.shape) :], strict=True)
            mask = sum([1 << k for k, (one, all) in enumerate(alike) if one == all])
            found.append((at.LAID, mask))
            laid = True
    return found, laid


def _class_patterns(
    plan: Plan, shape: tuple[int, ...], places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[list[tuple[int, int]], bool]:
    """What a role has of the shape, row-major or not; nothing where an array has something else."""
    axis = plan.class_axis
    positions = shape[:axis] + shape[axis + 1 :]
    sides = {"full": shape, "positions": positions, "classes": (shape[axis],), "single": None}
    row_major, otherwise = _ways(len(shape), axis)
    operands, found, laid = plan.operands, [], False
    every = operands + plan.spared
    for place, array in zip(places, whole, strict=True):
        if array is None:
            found.append(_MISSING)
            continue
        # Of what is no operand, shape and dtype matter at most.
        role = every[place].role if place >= 0 else "full"
        if array.shape == sides[role]:
            if array.contiguous:
                found.append(row_major[role])
            else:
                found.append(otherwise[role])
                laid = laid or 0 <= place < len(operands)
        elif place < 0 or role == "single":
            found.append(_SAME)
        else:
            return [], False
    return found, laid


@functools.cache
def _ways(
    axes: int, class_axis: int
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """What an array of a role is, where it is row-major and where it is not."""
    everything = (1 << axes) - 1
    roles = (("full", at.DENSE), ("positions", at.SOME), ("classes", at.SOME))
    masks = {role: _axes_of(role, class_axis) & everything for role, _ in roles}
    return (
        {role: (pattern, masks[role]) for role, pattern in roles},
        {role: (at.LAID, mask) for role, mask in masks.items()},
    )


def _whole_shape(
    plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[int, ...] | None:
    """The shape that a kernel runs over, of what it reads."""
    inputs, read = plan.inputs, []
    for place, own in zip(places, whole, strict=False):
        if place >= 0 and own is not None:
            if inputs[place].role == "full" and plan.classes:
                return own.shape
            read.append(own.shape)
    return broadcast_shapes(*read) if read and not plan.classes else None
