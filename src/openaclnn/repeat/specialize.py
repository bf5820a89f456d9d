"""Specialization: a call becomes a cache entry, a row of integers in the order of `slots.py`.

An entry says how arrays lie relative to the shape source (patterns), what runs calls like it (work), which options may be other numbers
(numbers), and what makes its outputs. Sizes are no part of it where all arrays are row-major, or few elements: the next call may have any.
Beyond, shapes and strides must be the very same.
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core import results
from openaclnn.core.dtypes import is_int64
from openaclnn.core.interop import torch_dtype, torch_tensor
from openaclnn.core.plan import (
    ANY_COUNT,
    Free,
    Plan,
    broadcast_shapes,
    covered_elements,
    walks_alike,
)
from openaclnn.core.tensor import Tensor
from openaclnn.core.torch_names import empty_strided
from openaclnn.engines.cpu.launching.control import MAX_ARGUMENTS
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat.words import slots as at
from openaclnn.repeat.words.readers import numpy_is_readable, torch_functions, words_of

__all__ = [
    "CallArguments", "FreeNumber", "Patterns", "Work", "entry_of", "library_of", "numbers_of", "option_words", "patterns_of", "places_of",
    "work_of",
]  # fmt: skip


def library_of(arrays: Sequence[Any]) -> int:
    """The one library that all arrays are of, None aside; 0 where machine code does not read them."""
    types = {*map(type, arrays)} - _NOTHING
    if types == _NUMPY:
        return at.NUMPY if numpy_is_readable() else 0
    tensor = torch_tensor()
    if any(issubclass(kind, tensor) for kind in types) and types <= {
        tensor,
        sys.modules["torch"].nn.Parameter,
    }:
        return at.TORCH if torch_functions() is not None else 0
    return 0


_NUMPY, _NOTHING = {np.ndarray}, {type(None)}


class CallArguments(NamedTuple):
    """A call as its caller made it."""

    library: int  # of all arrays
    arrays: Sequence[Any]  # inputs, then outputs; None where there is none
    places: Sequence[int]  # where each stands among the plan's operands
    options: Sequence[Any]
    names: tuple[str, ...]  # of the options


def entry_of(
    call: CallArguments, plan: Plan, views: Sequence[Tensor | None], patterns: Patterns, work: Work, without_objects: bool = False
) -> at.Entry:  # fmt: skip
    """The cache entry of a call. The views are the arrays' and those of outputs that are yet to be made. `without_objects`, callers that
    are not Python take the fast path, too.
    """
    library, arrays, places, options, names = call
    each = patterns.each
    source, flat, constants = work.source, work.flat, work.constants
    derivation, free = numbers_of(plan, work, names, tuple(map(type, options)))
    words = (0, 0, 0)
    if work.takes == at.BY_SHAPE:
        words = _words(work.runner, without_objects)
    first = places.index(len(plan.inputs))  # of the outputs
    axes = 0
    if source < 0:  # shapes and strides must be the very same
        each = [(at.SAME, mask) for _, mask in each]
    elif plan.classes or plan.of_one_size:
        axes = len(views[source].shape)  # type: ignore[union-attr]
    fresh = [
        view if array is None else None
        for array, view in zip(arrays[first:], views[first:], strict=True)
    ]
    allocators: tuple[Any, ...] = ()
    if any(view is not None for view in fresh):
        model = next(array for array in arrays if array is not None)
        allocators = _allocators(fresh, model, library)
    make, make_large, dtypes = map(id, allocators) if allocators else (0, 0, 0)
    # In the order of `slots`, whose names say what each word is.
    entry: list[Any] = [
        library, first if source < 0 else source, make, make_large, results.LARGE, dtypes, id(work.runner), work.kernel, work.grain, *work.counts, work.reciprocal, len(constants),
        len(plan.inputs) + 1 + len(plan.more), work.takes, axes, plan.class_axis, work.gathering, len(arrays) - first,
        *words, *derivation, *constants,
    ]  # fmt: skip
    with_shapes, array_dtypes = _add_arrays(entry, call, plan, first, each, views)
    entry += option_words(options, free)
    layout = _layout(len(constants), len(arrays), with_shapes, len(options))
    return at.Entry(layout, entry, (*allocators, work.runner, flat, options, array_dtypes))


@functools.lru_cache(maxsize=256)
def _layout(constants: int, arrays: int, with_shapes: int, options: int) -> struct.Struct:
    """Where an entry has its words, with so many constants, so many arrays, those with shapes by the bits of `with_shapes`, and so many
    options. Zeros, most of an entry, are not among them: packing a word takes 0.04 us.
    """

    def padded(words: int, room: int) -> str:
        return f"{words}q{8 * (room - words)}x"

    head = padded(at.CONSTANT + constants, at.FIRST_ARRAY)
    rows = [
        padded(at.ARRAY_SLOTS if with_shapes >> number & 1 else at.SHAPE, at.ARRAY_SLOTS)
        for number in range(arrays)
    ]
    gap = padded(0, (at.MAX_ARRAYS - arrays) * at.ARRAY_SLOTS)
    return struct.Struct("".join([head, *rows, gap, f"{options * at.OPTION_SLOTS}q"]))


def _words(sized: Any, without_objects: bool) -> tuple[int, int, int]:
    """WORDS, LOCKED_WORDS and WORDS_BLOCK, of a builtin that can do without Python's objects."""
    kept: Any = getattr(getattr(sized, "__self__", None), "keep", None)
    free = held = (0, 0)
    if without_objects and hasattr(kept, "without_objects"):
        free = kept.without_objects()
    if hasattr(kept, "with_lock"):
        held = kept.with_lock()
    return free[0], held[0], free[1] or held[1]


def _add_arrays(
    entry: list[Any],
    call: CallArguments,
    plan: Plan,
    output: int,
    patterns: Sequence[tuple[int, int]],
    views: Sequence[Tensor | None],
) -> tuple[int, list[Any]]:
    """What each array must be like; `output` is the first that is written. Where shape and strides must be the very same, they are
    here, too, and so is the shape of what is yet to be made where it follows from no other's: of which arrays, in bits. And the dtypes, whose addresses
    are here."""
    library, arrays, places, _, _ = call
    operands = plan.operands
    with_shapes, bit, device = 0, 1, 0
    dtypes: list[Any] = []
    # Operands may be where the first output is, if that is given.
    coincident = 0 if arrays[output] is None else len(plan.inputs)
    for array, place, view, (pattern, mask) in zip(arrays, places, views, patterns, strict=True):
        if place >= len(operands):
            place = -1  # an output that is not written
        sides: tuple[Any, Any] | None = None
        if view is None:
            entry += (0, 0, at.MISSING, -1, 0, 0, mask, 0)
        elif array is None:  # yet to be made, where the others are
            on = device if library == at.TORCH else 0
            itemsize = view.dtype.itemsize
            entry += (on, len(view.shape), at.MISSING, place, itemsize, 0, mask, pattern)
            sides = (view.shape, ()) if pattern == at.SAME else None
        else:
            dtypes.append(array.dtype)
            first, second = words_of(array, library)
            device = device or first
            alike = 0 <= place < coincident and walks_alike(operands[place], plan.output)
            entry += (
                first,
                second + len(view.shape),
                pattern,
                place,
                view.dtype.itemsize,
                alike,
                mask,
                0,
            )
            if pattern == at.SAME:  # as its library counts strides
                strides = array.stride() if library == at.TORCH else array.strides
                sides = array.shape, strides
        if sides is not None:
            # One with more axes than there is room for is never read.
            for side in sides:
                entry += (*side[: at.MAX_AXES], *(0,) * (at.MAX_AXES - len(side)))
            with_shapes |= bit
        bit += bit
    return with_shapes, dtypes


# What makes outputs.


def _allocators(fresh: Sequence[Tensor | None], model: Any, library: int) -> tuple[Any, Any, Any]:
    """What makes fresh outputs beside an array, small and large, and their dtypes, None where one is not made."""
    if library == at.NUMPY:
        dtypes = [None if view is None else view.dtype.numpy for view in fresh]
        return np.empty, results.empty, tuple(dtypes)
    dtypes = [None if view is None else torch_dtype(view.dtype) for view in fresh]
    make = _torch_allocator(model.device)
    # Where small ones are not made by a function of C, both are one, which says that Python code runs.
    in_c = model.is_cpu and isinstance(make, BuiltinFunctionType)
    return make, results.empty_tensor if in_c else make, tuple(dtypes)


@functools.cache
def _torch_allocator(device: Any) -> Callable[..., Any]:
    """`make(shape, strides, dtype)` on a device; the quick one works on the current device, so that only a lone GPU has it."""
    torch, kind = sys.modules["torch"], device.type
    make: Callable[..., Any] | None = None
    if kind == "cpu" or torch.cuda.device_count() == 1:
        make = empty_strided(kind)
    return make or functools.partial(_empty_strided, torch.empty_strided, device)


def _empty_strided(make: Any, device: Any, shape: Any, strides: Any, dtype: Any) -> Any:
    return make(shape, strides, dtype=dtype, device=device)


# How arrays lie.


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


class Patterns(NamedTuple):
    """How each array lies, with the axes that it has; which one is the shape source, one beyond them all where it is what the inputs broadcast
    to, -1 where sizes are part of the entry; and whether one that a kernel reads or writes is not row-major: how others lie is nobody's
    business."""

    each: Sequence[tuple[int, int]]
    source: int
    strided: bool


def patterns_of(plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]) -> Patterns:
    """How each array lies relative to the output, where sizes need not be part of the entry.

    The shape source is an input of the output's shape, or of all inputs' where that is another (a sum, several outputs, one for each row); elementwise,
    where none is, it is the shape that they broadcast to. All others have that shape too, or one element, or stretch; with a class
    axis they have what their roles say.
    """
    if plan.of_one_size:
        return Patterns([_SAME] * len(whole), -1, False)
    if plan.dense and -1 not in places:
        return Patterns([(at.DENSE, 0)] * len(whole), 0, False)
    inputs = places.index(len(plan.inputs))  # the first output is behind them
    result = whole[inputs]
    assert result is not None
    apart = plan.reduction or plan.more or plan.output.role == "positions"
    shape = _whole_shape(plan, places[:inputs], whole) if apart else result.shape
    if shape is not None and math.prod(shape) != 1:  # else one element cannot be told from all
        find = _class_patterns if plan.classes else _elementwise_patterns
        patterns, strided = find(plan, shape, places, whole)
        for source, (pattern, _) in enumerate(patterns[:inputs]):
            array = whole[source]
            if pattern in (at.DENSE, at.LAID) and array is not None and array.shape == shape:
                return Patterns(patterns, source, strided)
        if patterns and not plan.classes and -1 not in places[:inputs]:
            return Patterns(patterns, len(whole), strided)
    return Patterns([_SAME] * len(whole), -1, False)


_MISSING, _SAME = (at.MISSING, 0), (at.SAME, 0)


def _elementwise_patterns(
    plan: Plan, shape: tuple[int, ...], places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[list[tuple[int, int]], bool]:
    """Row-major and of the shape, one element, or stretched along some axes; nothing where an array has too many axes."""
    patterns, strided, everything = [], False, (1 << len(shape)) - 1
    sum_at = len(plan.inputs) if plan.reduction else -1
    for place, array in zip(places, whole, strict=True):
        if array is None:
            patterns.append(_MISSING)
        elif place >= 0 and place == sum_at:
            patterns.append(_SAME)
        elif array.contiguous and array.shape == shape:
            patterns.append((at.DENSE, everything))
        elif place < 0:
            patterns.append(_SAME)
        elif len(array.shape) > len(shape):
            return [], False
        elif array.size == 1:
            patterns.append((at.ONE, 0))
        else:
            alike = zip(array.shape, shape[len(shape) - len(array.shape) :], strict=True)
            mask = sum([1 << k for k, (one, all) in enumerate(alike) if one == all])
            patterns.append((at.LAID, mask))
            strided = True
    return patterns, strided


def _class_patterns(
    plan: Plan, shape: tuple[int, ...], places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[list[tuple[int, int]], bool]:
    """What a role has of the shape, row-major or not; nothing where an array has something else."""
    axis = plan.class_axis
    positions = shape[:axis] + shape[axis + 1 :]
    sides = {"full": shape, "positions": positions, "classes": (shape[axis],), "single": None}
    row_major, others = _patterns_of_roles(len(shape), axis)
    operands, patterns, strided = plan.operands, [], False
    every = operands + plan.spared
    for place, array in zip(places, whole, strict=True):
        if array is None:
            patterns.append(_MISSING)
            continue
        # Of what is no operand, shape and dtype matter at most.
        role = every[place].role if place >= 0 else "full"
        if array.shape == sides[role]:
            if array.contiguous:
                patterns.append(row_major[role])
            else:
                patterns.append(others[role])
                strided = strided or 0 <= place < len(operands)
        elif place < 0 or role == "single":
            patterns.append(_SAME)
        else:
            return [], False
    return patterns, strided


@functools.cache
def _patterns_of_roles(
    axes: int, class_axis: int
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """What an array of a role is, where it is row-major and where it is not."""
    everything = (1 << axes) - 1
    classes = 1 << max(class_axis, 0)
    masks = {"full": everything, "positions": everything & ~classes, "classes": classes}
    return (
        {role: (at.DENSE if role == "full" else at.SOME, mask) for role, mask in masks.items()},
        {role: (at.LAID, mask) for role, mask in masks.items()},
    )


def _whole_shape(
    plan: Plan, places: Sequence[int], whole: Sequence[Tensor | None]
) -> tuple[int, ...] | None:
    """The shape that a kernel runs over, of what it reads."""
    read = []
    for place, array in zip(places, whole, strict=False):
        if place >= 0 and array is not None:
            if plan.inputs[place].role == "full" and plan.classes:
                return array.shape
            read.append(array.shape)
    return broadcast_shapes(*read) if read and not plan.classes else None


# What runs.


class Work(NamedTuple):
    """The words of an entry under these names in `slots.py`, and the objects that they rely on."""

    source: int  # the argument that sizes are read of; -1: they are part of the entry
    counts: tuple[int, int]  # of elements that it serves: from, below
    kernel: int = 0
    grain: int = 0
    reciprocal: int = -1
    constants: tuple[int, ...] = ()
    takes: int = 0  # SIZED
    gathering: int = 0
    runner: Any = None  # what Python calls where there is no kernel; of sizes, where it takes some
    flat: Any = None  # what the kernel's constants derive from


def work_of(plan: Plan, choice: Choice, patterns: Patterns) -> Work | None:
    """What runs calls on arrays that lie so; None where sizes are part of the entry."""
    _, source, strided = patterns
    flat: Any = choice.flat
    counts, count = ANY_COUNT, covered_elements(plan)
    if flat is not None and len(flat.constants) > at.MAX_CONSTANTS:
        flat = None
    elif flat is not None and count >= flat.counts[1]:
        flat, counts = None, (flat.counts[1], ANY_COUNT[1])  # for a sized runner
    if source < 0:
        return None
    if strided:
        return _gathered(plan, flat, source, count) or _strided(plan, choice, source)
    if flat is not None:
        kernel, grain, constants, reciprocal, served, *_ = flat
        return Work(source, served, kernel, grain, reciprocal, constants, flat=flat)
    sized = None if choice.dynamic_shapes is None else choice.dynamic_shapes(plan)
    return sized and Work(source, counts, takes=at.BY_SHAPE, runner=sized)


def _gathered(plan: Plan, flat: Any, source: int, count: int) -> Work | None:
    """A flat kernel on few elements, which are gathered before it runs."""
    from openaclnn.engines.cpu.layouts import gathered

    operands = len(plan.inputs) + 1
    if flat is None or count > flat.gathers or operands > gathered.MAX_OPERANDS:
        return None
    if 1 + len(flat.constants) + operands > MAX_ARGUMENTS:
        return None
    least, beyond = flat.counts
    return Work(
        source, (least, min(beyond, flat.gathers + 1)), flat.dense(), flat.grain, flat.reciprocal,
        flat.constants, gathering=flat.gathering(), flat=flat,
    )  # fmt: skip


def _strided(plan: Plan, choice: Choice, source: int) -> Work | None:
    """A runner that is told sizes and strides."""
    offer = None if choice.dynamic_strides is None else choice.dynamic_strides(plan)
    if offer is None:
        return None
    runner, most = offer
    takes = at.BY_CLASSES if plan.classes else at.BY_LAYOUT
    return Work(source, (1, most + 1), takes=takes, runner=runner)


# Options.


def _bits_of(number: float) -> int:
    """A float as a slot holds it."""
    bits: int = struct.unpack("q", struct.pack("d", number))[0]
    return bits


class FreeNumber(NamedTuple):
    """Whether an option may be another number, and within which bounds, as slots hold them."""

    way: int = at.FIXED
    least: int = _bits_of(-math.inf)
    most: int = _bits_of(math.inf)


_FIXED = FreeNumber()


def numbers_of(
    plan: Plan, work: Work, names: tuple[str, ...], kinds: tuple[type, ...]
) -> tuple[Sequence[int], Sequence[FreeNumber]]:
    """The function that derives constants from other numbers, how many it takes, and which options of these types those are; a sized
    runner takes its own. And whether each option may be another number.
    """
    wanted: tuple[str, ...] = ()
    if work.takes in (at.BY_SHAPE, at.BY_CLASSES):
        wanted = tuple([free.option for free in plan.free])
    elif work.flat is not None and work.flat.derive:
        wanted = work.flat.derived_from
    derive = 0 if work.flat is None else work.flat.derive
    return _derivation(names, derive, wanted, plan.free, kinds)


@functools.lru_cache(maxsize=256)
def _derivation(
    names: tuple[str, ...], derive: int, wanted: tuple[str, ...], declared: tuple[Free, ...], kinds: tuple[type, ...]
) -> tuple[tuple[int, ...], tuple[FreeNumber, ...]]:  # fmt: skip
    """The same, of the numbers that are wanted. Where an integer stands for a float, no option may be another number: it may be another as
    FLOAT than by way of float64."""
    bounds = {}
    for number in declared:
        if number.option not in names:
            told = f"expected an option's Python name ({', '.join(names)}), got {number.option}"
            raise TypeError(f"a plan's free numbers: {told}")
        way = at.ANOTHER_BUT_ZERO if number.keeps_zero else at.ANOTHER
        bounds[number.option] = FreeNumber(way, _bits_of(number.low), _bits_of(number.high))
    whole = {number.option for number in declared if number.whole}
    places = [names.index(name) for name in wanted if name in names]
    fits = all(kinds[place] is (int if names[place] in whole else float) for place in places)
    if not fits or not len(wanted) == len(places) <= at.MAX_DERIVED:
        places = []
    free = [
        bounds.get(name, _FIXED) if place in places else _FIXED for place, name in enumerate(names)
    ]
    padding = (0,) * (at.MAX_DERIVED - len(places))
    return (derive if places else 0, len(places), *places, *padding), tuple(free)


def option_words(options: Sequence[Any], numbers: Sequence[FreeNumber]) -> list[int]:
    """Options by their values, and whether each may be another number."""
    words: list[int] = []
    for option, number in zip(options, numbers, strict=True):
        kind = type(option)
        if kind is float:
            words += (id(option), id(float), _bits_of(option), *number)
        elif kind is int and is_int64(option):
            words += (id(option), id(int), option, number.way, 0, 0)
        else:
            words += (id(option), 0, 0, 0, 0, 0)
    return words
