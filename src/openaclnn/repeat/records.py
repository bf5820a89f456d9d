"""Records: a kind of call as a row of integers, in the order of `slots.py`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from openaclnn.core import results
from openaclnn.core.dtypes import DType
from openaclnn.core.plan import ANY_COUNT, Plan, covered_elements, walks_alike
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.cpu.control import MAX_ARGUMENTS, bound_kernel
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat import slots as at
from openaclnn.repeat.making import making_of
from openaclnn.repeat.numbers import bits_of, numbers_of
from openaclnn.repeat.patterns import patterns_of, shapes_of
from openaclnn.repeat.readers import described, numpy_is_readable, torch_functions

__all__ = ["library_of", "record_of"]


def library_of(arrays: Sequence[Any]) -> int:
    """The one library that all arrays given are of; 0 where machine code does not read them."""
    types = {*map(type, arrays)}
    if types == {np.ndarray}:
        return at.NUMPY if numpy_is_readable() else 0
    torch = sys.modules.get("torch")
    if torch is not None and types <= {torch.Tensor, torch.nn.Parameter}:
        return at.TORCH if torch_functions() is not None else 0
    return 0


def record_of(
    places: Sequence[int],
    plan: Plan,
    choice: Choice,
    arrays: Sequence[Any],
    views: Sequence[Tensor | None],
    options: Sequence[Any],
    names: Sequence[str],
    library: int,
    without_objects: bool = False,
) -> tuple[list[int], Any]:
    """A kind's record, and what must live as long. The views are the arrays'; an output that is yet to be made has a view and
    is no array, one that is neither given nor written has no view. `without_objects`, callers that are not Python take the
    road, too.
    """
    operands, first = plan.operands, places.index(len(plan.inputs))
    made = [
        view if array is None else None
        for array, view in zip(arrays[first:], views[first:], strict=True)
    ]
    flat, sized, counts = choice.flat, None, ANY_COUNT
    if flat is not None and len(flat.constants) > at.MAX_CONSTANTS:
        flat = None
    if flat is not None and covered_elements(plan) >= flat.counts[1]:
        counts, flat = (flat.counts[1], ANY_COUNT[1]), None  # for a sized runner
    patterns, lead = patterns_of(plan, places, views)
    # How what is not read lies is nobody's business.
    laid = not plan.dense and at.LAID in [
        pattern
        for place, (pattern, _) in zip(places, patterns, strict=True)
        if 0 <= place < len(operands)
    ]
    gathering = _gathering(plan, flat) if laid and lead >= 0 else (0, 0)
    if lead >= 0 and laid and not gathering[0]:
        offer = None if choice.laid is None else choice.laid()
        if offer is not None:
            sized, most = offer
            counts = 1, most + 1
    elif lead >= 0 and flat is None:
        sized = None if choice.sized is None else choice.sized()
    if sized is None and (not gathering[0] if laid else flat is None):
        lead = -1
    # Where a kernel serves any size, no runner is needed.
    runner = sized or (choice.prepare() if lead < 0 else None)
    fresh = any(own is not None for own in made)
    model = next(place for place, array in enumerate(arrays) if array is not None)
    make = large = making = None
    if fresh:
        make, large, making = making_of(made, arrays[model], library, lead >= 0)
    # In the order of `slots`, whose names say what each word is.
    record = [
        0, library, 0, lead if lead >= 0 else first, fresh, id(make), id(large),
        results.LARGE, id(making), id(runner),
    ]  # fmt: skip
    constants: tuple[int, ...] = ()
    bound, units = bound_kernel(runner), 0
    if bound is not None and len(bound.constants) <= at.MAX_CONSTANTS:
        # Launched without the runner, which would be called with a tuple of Python's integers.
        constants, units = bound.constants, bound.units
        record += bound.kernel, bound.grain, *counts, -1
    elif lead >= 0 and sized is None:
        constants = flat.constants
        kernel, (least, beyond) = flat.kernel, flat.counts
        if gathering[0]:
            kernel, beyond = flat.dense(), min(beyond, gathering[1] + 1)
        record += kernel, flat.grain, least, beyond, flat.reciprocal
    else:
        record += 0, 0, *counts, -1
    leading = views[lead if lead >= 0 else first]
    axes = len(leading.shape) if plan.classes and leading is not None else 0
    takes = 0
    if sized is not None:
        takes = at.BY_SHAPE if not laid else at.BY_CLASSES if plan.classes else at.BY_LAYOUT
    record += len(constants), len(operands), takes, axes, plan.class_axis, gathering[0]
    record += len(made), shapes_of(plan, places[first:], made), units
    record += _words(sized) if without_objects and takes == at.BY_SHAPE else (0, 0)
    taking = None if takes == at.BY_LAYOUT else sized
    numbers = [own.number if type(own) is Scalar else own for own in options]
    source, free = numbers_of(plan, flat if lead >= 0 else None, taking, names, numbers)
    record += source
    record += constants + (0,) * (at.MAX_CONSTANTS - len(constants))
    for array, view, place, (pattern, mask) in zip(arrays, views, places, patterns, strict=True):
        if place >= len(operands):
            place = -1
        if view is None:
            record += _ABSENT
        elif array is None:  # the output, which is yet to be made
            device = _torch_words(views[model], arrays[model])[0] if library == at.TORCH else 0
            record += device, 0, at.MISSING, place, 0, 0, view.dtype.itemsize, 0, mask
            record += _NO_AXES
        else:
            own = pattern if lead >= 0 else at.SAME
            low = high = 0
            alike = False
            if place >= 0:
                operand = operands[place]
                low, high = operand.low, operand.high
                alike = arrays[first] is not None and walks_alike(operand, plan.output)
            if library == at.TORCH:
                record += _torch_words(view, array)
            else:
                word = len(view.shape) if library == at.NUMPY else _descriptor_word(array)
                record += id(array.dtype), word
            record += own, place, low, high, view.dtype.itemsize, alike, mask
            record += _NO_AXES if own in _ANY_SIDES else _sides(array, library)
    for option, own_number in zip(options, free, strict=True):
        kind = type(option)
        if kind is float:
            record += id(option), id(float), bits_of(option), *own_number
        elif kind is int and -(2**63) <= option < 2**63:
            record += id(option), id(int), option, own_number.way, 0, 0
        elif kind is Scalar and option.number is not None:
            record += id(option.dtype), id(Scalar), bits_of(option.number), *own_number
        else:
            record += id(option), 0, 0, at.FIXED, 0, 0
    dtypes = [array.dtype for array in arrays if array is not None]
    return record, (make, large, making, runner, flat, dtypes, options)


def _words(sized: Any) -> tuple[int, int]:
    from openaclnn.engines.cpu.classes.sized import without_objects

    return without_objects(sized)


_NO_AXES = (0,) * (2 * at.MAX_AXES)
_ABSENT = (0, 0, at.MISSING, -1, 0, 0, 0, 0, 0, *_NO_AXES)


def _gathering(plan: Plan, flat: Any) -> tuple[int, int]:
    """What takes a plan's elements with any strides, and how many at most; 0 where nothing does."""
    if flat is None:
        return 0, 0
    from openaclnn.engines.cpu import gathered

    operands, most = len(plan.inputs) + 1, gathered.MOST
    takes = (
        1 + len(flat.constants) + operands <= MAX_ARGUMENTS and operands <= gathered.MAX_OPERANDS
    )
    return (flat.gathering(), most) if takes and covered_elements(plan) <= most else (0, 0)


_ANY_SIDES = (at.DENSE, at.ONE, at.SOME)  # patterns that no words of an array's shape belong to


def _sides(array: Any, library: int) -> tuple[int, ...]:
    """An array's shape and strides, as its library counts them."""
    strides = array.stride() if library == at.TORCH else array.strides
    pad = (0,) * (at.MAX_AXES - len(strides))
    return *array.shape, *pad, *strides, *pad


_torch_kinds: dict[tuple[str, DType], tuple[int, int]] = {}


def _torch_words(view: Any, array: Any) -> tuple[int, int]:
    """DEVICE and KIND as PyTorch describes them; but for the number of axes they follow from device and dtype."""
    key = view.device, view.dtype
    found = _torch_kinds.get(key)
    if found is None:
        device, kind = described(array)[at.DEVICE : at.KIND + 1]
        found = _torch_kinds[key] = device, kind - array.ndim
    return found[0], found[1] + len(view.shape)


def _descriptor_word(tensor: Tensor) -> int:
    """KIND of a descriptor of ours."""
    form = (tensor.format & at.FORMATS) << at.FORMAT_BIT
    return tensor.rank | form | tensor.writable << at.WRITABLE_BIT
