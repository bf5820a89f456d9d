"""Records: a kind of call as a row of integers, in the order of `slots.py`."""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core import results
from openaclnn.core.dtypes import DType
from openaclnn.core.interop import torch_dtype
from openaclnn.core.plan import (
    ANY_COUNT,
    Free,
    Plan,
    broadcast_shapes,
    covered_elements,
    walks_alike,
)
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.cpu.control import MAX_ARGUMENTS, bound_kernel
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat import slots as at
from openaclnn.repeat.readers import described, numpy_is_readable, torch_functions

__all__ = ["library_of", "patterns_of", "record_of"]

_EXACT = 1 << 53  # integers up to it are floats
_WORD, _DOUBLE = struct.Struct("q"), struct.Struct("d")


def library_of(arrays: Sequence[Any]) -> int:
    """The one library that all arrays given are of; 0 where machine code does not read them."""
    types = {*map(type, arrays)}
    types.discard(NoneType)
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
    """A kind's record, and what must live as long. The views are the arrays', then of all outputs but the first, None where
    one is not written; an output that is yet to be made is no array. `without_objects`, callers that are not Python take the
    road, too.
    """
    operands, last = plan.operands, len(arrays) - 1
    made, result = views[last:], views[last]
    assert result is not None
    flat, sized, counts = choice.flat, None, ANY_COUNT
    if flat is not None and len(flat.constants) > at.MAX_CONSTANTS:
        flat = None
    if flat is not None and covered_elements(plan) >= flat.counts[1]:
        counts, flat = (flat.counts[1], ANY_COUNT[1]), None  # for a sized runner
    patterns, lead = patterns_of(plan, places, views[: last + 1], result)
    # How what is not read lies is nobody's business.
    laid = not plan.dense and at.LAID in [
        pattern for place, (pattern, _) in zip(places, patterns, strict=True) if place >= 0
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
    fresh = arrays[-1] is None
    model = next(place for place, array in enumerate(arrays) if array is not None)
    make = large = making = None
    if fresh:
        make, large, making = _making(made, arrays[model], library, lead >= 0)
    # In the order of `slots`, whose names say what each word is.
    record = [
        0, library, 0, lead if lead >= 0 else last, fresh, id(make), id(large),
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
    leading = views[lead if lead >= 0 else last]
    axes = len(leading.shape) if plan.classes and leading is not None else 0
    takes = 0
    if sized is not None:
        takes = at.BY_SHAPE if not laid else at.BY_CLASSES if plan.classes else at.BY_LAYOUT
    record += len(constants), len(operands), takes, axes, plan.class_axis, gathering[0]
    record += len(made), _shapes(plan, made), units
    record += _words(sized) if without_objects and takes == at.BY_SHAPE else (0, 0)
    taking = None if takes == at.BY_LAYOUT else sized
    numbers = [own.number if type(own) is Scalar else own for own in options]
    source, free = _numbers(plan, flat if lead >= 0 else None, taking, names, numbers)
    record += source
    record += constants + (0,) * (at.MAX_CONSTANTS - len(constants))
    for array, view, place, (pattern, mask) in zip(arrays, views, places, patterns, strict=False):
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
                alike = not fresh and walks_alike(operand, plan.output)
            if library == at.TORCH:
                record += _torch_words(view, array)
            else:
                word = len(view.shape) if library == at.NUMPY else _descriptor_word(array)
                record += id(array.dtype), word
            record += own, place, low, high, view.dtype.itemsize, alike, mask
            record += _NO_AXES if own in _ANY_SIDES else _sides(array, library)
    outputs = iter(enumerate(plan.more, len(plan.inputs) + 1))
    for other in made[1:]:
        if other is None:
            record += _ABSENT
        else:
            place, operand = next(outputs)
            mask = _axes(operand.role, plan.class_axis)
            record += 0, 0, at.MISSING, place, 0, 0, operand.dtype.itemsize, 0, mask
            record += _NO_AXES
    for option, own_number in zip(options, free, strict=True):
        kind = type(option)
        if kind is float:
            record += id(option), id(float), _bits(option), *own_number
        elif kind is int and -(2**63) <= option < 2**63:
            record += id(option), id(int), option, own_number.way, 0, 0
        elif kind is Scalar and option.number is not None:
            record += id(option.dtype), id(Scalar), _bits(option.number), *own_number
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


_ALL_AXES = (1 << at.MAX_AXES) - 1


def _shapes(plan: Plan, made: Sequence[Any]) -> int:
    """Which of the lead's axes each result has, in the bits of a slot; those that are None have none and are not written."""
    found, outputs = 0, iter(plan.outputs)
    for place, own in enumerate(made):
        if own is not None:
            mask = _axes(next(outputs).role, plan.class_axis) | 1 << at.WRITTEN_BIT
            found |= mask << at.RESULT_BITS * place
    return found


def _axes(role: str, class_axis: int) -> int:
    """Of an operand's role, those of the axes that it has, as a mask."""
    if role == "full":
        return _ALL_AXES
    own = 1 << max(class_axis, 0)
    return {"positions": _ALL_AXES & ~own, "classes": own}.get(role, 0)


def _bits(number: float) -> int:
    """A float as a slot holds it."""
    bits: int = _WORD.unpack(_DOUBLE.pack(number))[0]
    return bits


class _Number(NamedTuple):
    """Whether an option may be another number, and within which bounds, as slots hold them."""

    way: int = at.FIXED
    least: int = _bits(-math.inf)
    most: int = _bits(math.inf)


_FIXED = _Number()


_NO_SOURCE = (0,) * (2 + at.MAX_DERIVED)


def _numbers(
    plan: Plan, flat: Any, sized: Any, names: Sequence[str], options: Sequence[Any]
) -> tuple[Sequence[int], Sequence[_Number]]:
    """The function that derives constants from other numbers, how many it takes, and which options those are; a sized
    runner takes its own. And whether each option may be another number.
    """
    if sized is not None:
        derive, wanted = 0, tuple([own.option for own in plan.free])
    elif flat is not None and flat.derive:
        derive, wanted = flat.derive, flat.derived_from
    else:
        return _NO_SOURCE, (_FIXED,) * len(options)
    places, free = _sources(tuple(names), wanted, plan.free, tuple(map(type, options)))
    for place in places:
        # Rounded to FLOAT by way of float64 it may be another.
        if type(options[place]) is int and free[place] is _FIXED and abs(options[place]) > _EXACT:
            places = ()
    if not places:
        return _NO_SOURCE, (_FIXED,) * len(options)
    return (derive, len(places), *places, *(0,) * (at.MAX_DERIVED - len(places))), free


@functools.lru_cache(maxsize=256)
def _sources(
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    declared: tuple[Free, ...],
    kinds: tuple[type, ...],
) -> tuple[tuple[int, ...], tuple[_Number, ...]]:
    """The options that numbers are taken from, none where there are too many; and each of all as it may be another: not a
    float that is given as an integer.
    """
    if len(wanted) > at.MAX_DERIVED or not {*wanted} <= {*names}:
        return (), (_FIXED,) * len(names)
    bounds = {own.option: _free(own) for own in declared}
    whole = {own.option for own in declared if own.whole}
    free = [
        bounds[name]
        if name in wanted and name in bounds and kind is (int if name in whole else float)
        else _FIXED
        for name, kind in zip(names, kinds, strict=True)
    ]
    return tuple([names.index(name) for name in wanted]), tuple(free)


def _free(own: Free) -> _Number:
    way = at.ANOTHER_BUT_ZERO if own.keeps_zero else at.ANOTHER
    return _Number(way, _bits(own.low), _bits(own.high))


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


def patterns_of(
    plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None], result: Tensor
) -> tuple[list[tuple[int, int]], int]:
    """How each array lies relative to the output, where sizes need not be part of the kind, and which input leads.

    The lead is an input of the output's shape, or of all inputs' where that is another (a sum, several outputs).
    Elementwise all others have that shape too, or one element; with a class axis they have what their roles say. -1 where it
    is not so.
    """
    if plan.dense and -1 not in places:
        return [(at.DENSE, 0)] * len(whole), 0
    same = [(at.SAME, 0)] * len(whole)
    operands, classes = (*plan.inputs, plan.output), plan.classes
    apart = bool(plan.reduction or plan.more)
    shape = _whole_shape(plan, places, whole) if apart else result.shape
    if shape is None or math.prod(shape) == 1:
        return same, -1  # cannot tell one element from all
    all_axes = (1 << len(shape)) - 1
    found: list[tuple[int, int]] = []
    for place, array in zip(places, whole, strict=True):
        if array is None:
            found.append((at.MISSING, 0))
            continue
        if apart and array is result:
            found.append((at.SAME, _axes(plan.output.role, plan.class_axis) & all_axes))
            continue
        own, dense = array.shape, array.contiguous
        role = "full" if place < 0 else operands[place].role
        if dense and role == "full" and own == shape:
            found.append((at.DENSE, all_axes))
        elif classes and role == "full" and own == shape:
            found.append((at.LAID, all_axes))
        elif classes and role in ("positions", "classes"):
            mask = _axes(role, plan.class_axis) & all_axes
            if own != tuple([n for k, n in enumerate(shape) if mask >> k & 1]):
                return same, -1
            found.append((at.SOME if dense else at.LAID, mask))
        elif place < 0 or (classes and role == "single"):
            found.append((at.SAME, 0))
        elif not classes and array.size == 1 and len(own) <= len(shape):
            found.append((at.ONE, 0))
        elif not classes and len(own) <= len(shape):
            alike = zip(own, shape[len(shape) - len(own) :], strict=True)
            found.append((at.LAID, sum(1 << k for k, (one, all) in enumerate(alike) if one == all)))
        else:
            return same, -1
    for lead, ((kind, _), array) in enumerate(zip(found[:-1], whole, strict=False)):
        if kind in (at.DENSE, at.LAID) and array is not None and array.shape == shape:
            return found, lead
    return same, -1


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


def _making(
    made: Sequence[Tensor | None], model: Any, library: int, any_size: bool
) -> tuple[Any, Any, Any]:
    """What makes a fresh output beside a given array, small and large, and its last argument. Where shapes are known,
    calls that lie ready: a function with its arguments. Of several outputs a tuple of those, None where one is not written.
    """
    each: tuple[Any, ...]
    if any_size:
        dtypes = [None if own is None else own.dtype for own in made]
        if library == at.NUMPY:
            each = tuple([own and own.numpy for own in dtypes])
            return np.empty, results.empty, each[0] if len(each) == 1 else each
        each = tuple([own and torch_dtype(own) for own in dtypes])
        make = _torch_maker(model.device)
        large = results.empty_tensor if model.is_cpu else make
        return make, large, each[0] if len(each) == 1 else each
    calls = tuple([None if own is None else _ready(own, model, library) for own in made])
    return None, None, calls[0] if len(calls) == 1 else calls


def _ready(own: Tensor, model: Any, library: int) -> tuple[Any, ...]:
    """What makes such an output, with its arguments."""
    size = own.size * own.dtype.itemsize
    if library == at.NUMPY:
        return np.empty if size < results.LARGE else results.empty, own.shape, own.dtype.numpy
    kept = model.is_cpu and size >= results.LARGE_TENSOR
    tensor = results.empty_tensor if kept else _torch_maker(model.device)
    return tensor, own.shape, own.strides, torch_dtype(own.dtype)


@functools.cache
def _torch_maker(device: Any) -> Callable[..., Any]:
    """`make(shape, strides, dtype)` on a device.

    What torch's own compiler allocates with takes 2.4 us where `empty_like` takes 3.8 and `empty` more. It
    works on the current device, so that only a lone GPU has it.
    """
    torch, kind = sys.modules["torch"], device.type
    make: Callable[..., Any] | None = None
    if kind == "cpu" or torch.cuda.device_count() == 1:
        make = getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", None)
    return make or functools.partial(_empty_strided, torch.empty_strided, device)


def _empty_strided(make: Any, device: Any, shape: Any, strides: Any, dtype: Any) -> Any:
    return make(shape, strides, dtype=dtype, device=device)
