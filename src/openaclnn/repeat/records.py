"""Records: a kind of call as a row of integers, in the order of `slots.py`."""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core import results
from openaclnn.core.plan import ANY_COUNT, Free, Plan, covered_elements, walks_alike
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
    options: Sequence[Any],
    names: Sequence[str],
    made: Sequence[Any],
    library: int,
    without_objects: bool = False,
) -> tuple[list[int], Any]:
    """A kind's record, and what must live as long; `without_objects`, one for callers that are not Python."""
    operands, result = plan.operands, made[0]
    whole = [*arrays[:-1], result]
    flat, sized = choice.flat, None
    if flat is not None and len(flat.constants) > at.MAX_CONSTANTS:
        flat = None
    patterns, lead = patterns_of(plan, places, whole, result, library)
    # How what is not read lies is nobody's business.
    laid = (at.LAID, True) in [
        (pattern, place >= 0) for place, (pattern, _) in zip(places, patterns, strict=True)
    ]
    gathering = _gathering(plan, flat) if laid and lead >= 0 else (0, 0)
    counts = ANY_COUNT
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
    runner = sized or (choice.runner if lead < 0 else None)
    fresh = arrays[-1] is None
    make, large, making = _making(made, library, lead >= 0)
    # In the order of `slots`, whose names say what each word is.
    record = [
        0, library, lead if lead >= 0 else len(arrays) - 1, fresh, id(make), id(large),
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
    axes = result.ndim if plan.classes else 0
    takes = 0
    if sized is not None:
        takes = at.BY_SHAPE if not laid else at.BY_CLASSES if plan.classes else at.BY_LAYOUT
    record += (
        len(constants),
        len(operands),
        takes,
        axes,
        plan.class_axis,
        gathering[0],
        len(made),
        units,
    )
    record += _words(sized) if without_objects and takes == at.BY_SHAPE else (0, 0)
    taking = None if takes == at.BY_LAYOUT else sized
    source, free = _numbers(plan, flat if lead >= 0 else None, taking, names, options)
    record += source
    record += constants + (0,) * (at.MAX_CONSTANTS - len(constants))
    for array, place, (pattern, mask) in zip(whole, places, patterns, strict=True):
        if array is None:
            record += _ABSENT
        elif fresh and array is result:
            device = _torch_words(array)[0] if library == at.TORCH else 0
            item = plan.output.dtype.itemsize
            record += device, 0, at.MISSING, place, 0, 0, item, 0, mask
            record += _NO_AXES
        else:
            operand = operands[place] if place >= 0 else None
            low, high = (0, 0) if operand is None else (operand.low, operand.high)
            alike = not fresh and operand is not None and walks_alike(operand, plan.output)
            own = pattern if lead >= 0 else at.SAME
            first, second, item, sides = _expected(array, library, own)
            record += first, second, own, place, low, high, item, alike, mask
            record += sides
    for name, option in zip(names, options, strict=True):
        kind, own_number = type(option), free.get(name, _FIXED)
        if kind is float:
            record += id(option), id(float), _bits(option), *own_number
        elif kind is int and -(2**63) <= option < 2**63:
            record += id(option), id(int), option, own_number.way, 0, 0
        else:
            record += id(option), 0, 0, at.FIXED, 0, 0
    dtypes = [array.dtype for array in whole if array is not None]
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
    return (gathered.gathering(), most) if takes and covered_elements(plan) <= most else (0, 0)


def _bits(number: float) -> int:
    """A float as a slot holds it."""
    bits: int = _WORD.unpack(_DOUBLE.pack(number))[0]
    return bits


class _Number(NamedTuple):
    """Whether an option may be another number, and within which bounds, as slots hold them."""

    way: int = at.FIXED
    least: int = _bits(-math.inf)
    most: int = _bits(math.inf)


_FIXED, _ANOTHER = _Number(), _Number(at.ANOTHER)


def _numbers(
    plan: Plan, flat: Any, sized: Any, names: Sequence[str], options: Sequence[Any]
) -> tuple[list[int], dict[str, _Number]]:
    """The function that derives constants from other numbers, how many it takes, and which options those are; a sized
    runner takes its own. And those that may be others, by name: a float that is given as an integer is none.
    """
    derive = 0
    wanted: tuple[str, ...] = ()
    free: dict[str, _Number] = {}
    if sized is not None:
        wanted = tuple([own.option for own in plan.free])
        free = {own.option: _free(own) for own in plan.free}
    elif flat is not None and flat.derive:
        derive, wanted = flat.derive, flat.derived_from
        free = dict.fromkeys(wanted, _ANOTHER)
    if len(wanted) > at.MAX_DERIVED or not {*wanted} <= {*names}:
        return [0] * (2 + at.MAX_DERIVED), {}
    kinds = {own.option: int for own in plan.free if own.whole}
    for name, option in zip(names, options, strict=True):
        if type(option) is not kinds.get(name, float):
            if (
                name in free and abs(option) > _EXACT
            ):  # rounded to FLOAT by way of float64 it may be another
                return [0] * (2 + at.MAX_DERIVED), {}
            free.pop(name, None)
    places = [names.index(name) for name in wanted]
    return [derive, len(places), *places, *[0] * (at.MAX_DERIVED - len(places))], free


@functools.cache
def _free(own: Free) -> _Number:
    way = at.ANOTHER_BUT_ZERO if own.keeps_zero else at.ANOTHER
    return _Number(way, _bits(own.low), _bits(own.high))


def _expected(array: Any, library: int, pattern: int) -> tuple[int, int, int, tuple[int, ...]]:
    """The words of an array that must be the same again: what tells its dtype and device, itemsize, shape and strides."""
    dtype = array.dtype
    if library == at.NUMPY:
        first, second = id(dtype), array.ndim
    else:
        first, second = _torch_words(array)
    if pattern in _ANY_SIDES:
        return first, second, dtype.itemsize, _NO_AXES
    strides = array.strides if library == at.NUMPY else array.stride()
    pad = (0,) * (at.MAX_AXES - len(strides))
    return first, second, dtype.itemsize, (*array.shape, *pad, *strides, *pad)


_ANY_SIDES = (at.DENSE, at.ONE, at.SOME)  # patterns that no words of an array's shape belong to
_torch_kinds: dict[Any, tuple[int, int]] = {}


def _torch_words(array: Any) -> tuple[int, int]:
    """DEVICE and KIND as PyTorch describes them; but for the number of axes they follow from device and dtype."""
    key = array.device, array.dtype
    found = _torch_kinds.get(key)
    if found is None:
        device, kind = described(array)[at.DEVICE : at.KIND + 1]
        found = _torch_kinds[key] = device, kind - array.ndim
    return found[0], found[1] + array.ndim


def _is_one(array: Any, library: int) -> bool:
    return bool((array.numel() if library == at.TORCH else array.size) == 1)


def _is_dense(array: Any, library: int) -> bool:
    if library == at.NUMPY:
        return bool(array.flags.c_contiguous)
    return bool(array.is_contiguous() if library == at.TORCH else array.contiguous)


def patterns_of(
    plan: Plan, places: Sequence[int], whole: Sequence[Any], result: Any, library: int
) -> tuple[list[tuple[int, int]], int]:
    """How each array (library 0: each `Tensor`) lies relative to the output, where sizes need not be part of the kind,
    and which input leads.

    The lead is an input of the output's shape. Elementwise all others have that shape too, or one element; with a class
    axis they have what their roles say. -1 where it is not so, and for several outputs.
    """
    if plan.dense and -1 not in places:
        return [(at.DENSE, 0)] * len(whole), 0
    shape, classes = result.shape, plan.classes
    all_axes = (1 << len(shape)) - 1
    same = [(at.SAME, 0)] * len(whole)
    operands = (*plan.inputs, plan.output)
    if plan.more or _is_one(result, library):
        return same, -1  # cannot tell one element from all
    found: list[tuple[int, int]] = []
    for place, array in zip(places, whole, strict=True):
        if array is None:
            found.append((at.MISSING, 0))
            continue
        dense = _is_dense(array, library)
        role = "full" if place < 0 else operands[place].role
        if dense and role == "full" and array.shape == shape:
            found.append((at.DENSE, all_axes))
        elif classes and role == "full" and array.shape == shape:
            found.append((at.LAID, all_axes))
        elif classes and role in ("positions", "classes"):
            own = 1 << plan.class_axis
            mask = own if role == "classes" else all_axes & ~own
            if tuple(array.shape) != tuple(n for k, n in enumerate(shape) if mask >> k & 1):
                return same, -1
            found.append((at.SOME if dense else at.LAID, mask))
        elif place < 0 or (classes and role == "single"):
            found.append((at.SAME, 0))
        elif not classes and _is_one(array, library) and len(array.shape) <= len(shape):
            found.append((at.ONE, 0))
        elif not classes and len(array.shape) <= len(shape):
            alike = zip(array.shape, shape[len(shape) - len(array.shape) :], strict=True)
            found.append((at.LAID, sum(1 << k for k, (own, all) in enumerate(alike) if own == all)))
        else:
            return same, -1
    full = [array is not None and array.shape == shape for array in whole]
    lead = next(
        (n for n, (kind, _) in enumerate(found[:-1]) if kind in (at.DENSE, at.LAID) and full[n]), -1
    )
    return (found, lead) if lead >= 0 else (same, -1)


def _making(made: Sequence[Any], library: int, any_size: bool) -> tuple[Any, Any, Any]:
    """What makes a fresh output, small and large, and its last argument. Where shapes are known, calls that lie ready: a
    function with its arguments, of several outputs a tuple of those.
    """
    first = made[0]
    if any_size and library == at.NUMPY:
        return np.empty, results.empty, first.dtype
    if any_size:
        make = _torch_maker(first.device)
        return make, results.empty_tensor if first.is_cpu else make, first.dtype
    calls = tuple([_ready(own, library) for own in made])
    return None, None, calls[0] if len(calls) == 1 else calls


def _ready(own: Any, library: int) -> tuple[Any, ...]:
    """What makes another like this, with its arguments."""
    if library == at.NUMPY:
        array = np.empty if own.nbytes < results.LARGE else results.empty
        return array, own.shape, own.dtype
    kept = own.is_cpu and own.nbytes >= results.LARGE_TENSOR
    tensor = results.empty_tensor if kept else _torch_maker(own.device)
    return tensor, tuple(own.shape), tuple(own.stride()), own.dtype


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
