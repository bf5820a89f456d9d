"""Specialization: a call becomes a cache entry, a row of integers in the order of `slots.py`.

An entry says how arrays lie relative to the shape source (patterns), what runs calls like it (work), which options may be other numbers
(numbers), and what makes its outputs. Sizes are no part of it where all arrays are row-major, or have few elements: the next call may have any.
Elsewhere shapes and strides must be the very same.
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core import results
from openaclnn.core.dtypes import BFLOAT16, FLOAT16, DType, is_int64
from openaclnn.core.interop import torch_dtype, torch_tensor
from openaclnn.core.plan import (
    ANY_COUNT,
    HALVES,
    Free,
    Plan,
    covered_elements,
    walks_alike,
)
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.core.torch_names import empty_strided
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat import slots as at
from openaclnn.repeat.readers import numpy_is_readable, torch_functions, words_of


def library_of(arrays: Sequence[Any]) -> int:
    """The one library that all arrays are of, None aside; 0 where machine code does not read them."""
    types = {*map(type, arrays)} - _NOTHING
    if types == _NUMPY:
        return at.NUMPY if numpy_is_readable() else 0
    tensor = torch_tensor()
    if types != {tensor}:
        if not any(issubclass(kind, tensor) for kind in types):
            return 0
        if not types <= {tensor, sys.modules["torch"].nn.Parameter}:
            return 0
    return at.TORCH if torch_functions() is not None else 0


_NUMPY, _NOTHING = {np.ndarray}, {type(None)}


class Parameters(NamedTuple):
    """An operator's, by name: arrays that are read and that are written by their C names, options by those of Python."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: tuple[str, ...]


def entry_of(
    parameters: Parameters, library: int, arrays: Sequence[Any], options: Sequence[Any], plan: Plan, choice: Choice | None,
    views: Sequence[Tensor | None],
) -> tuple[at.Entry, Work] | None:  # fmt: skip
    """The cache entry of a call, and what runs calls like it; None where arrays are not what a plan's operands are. There is no `choice` where nothing is computed.

    `library` is that of all arrays, as `slots.LIBRARY` has it; arrays are None where there is none, the views theirs and those of outputs that are yet to be made.
    """
    places = places_of(plan, parameters.inputs, parameters.outputs)
    if not places:
        return None
    if (-1, -1) in places or plan.spared:  # what is neither given nor an operand is not seen
        many = len(plan.operands)
        views = tuple([
            view if array is not None or 0 <= place < many else None
            for array, (place, _), view in zip(arrays, places, views, strict=True)
        ])  # fmt: skip
    output = len(parameters.inputs)  # the first
    patterns = patterns_of(plan, output, places, views)
    work = choice and work_of(plan, choice, patterns)
    work = work or Work(-1, ANY_COUNT, choice and choice.prepare())
    source, counts, runner, takes, flat = work
    constants, block = (
        () if flat is None else flat.constants,
        runner and _block_of(runner, takes, plan),
    )
    derivation, free = numbers_of(plan, work, parameters.options, tuple(map(_kind_of, options)))
    fresh = [
        view.dtype if array is None and view is not None else None
        for array, view in zip(arrays[output:], views[output:], strict=True)
    ]
    make = make_large = dtypes = 0
    large = results.LARGE if library == at.NUMPY else results.LARGE_TENSOR
    allocators: tuple[Any, ...] = ()
    if any(fresh):
        allocators = _allocators(fresh, arrays, library)
        make, make_large, dtypes = map(id, allocators)
    class_axis, half_axis, halved = plan.class_axis if plan.classes else at.NO_AXIS, -1, -1
    if plan.steps and not plan.classes:
        class_axis = at.SUMMED_AXES
    if source >= 0 and plan.halved:
        half_axis = plan.class_axis
        halved = next(n for n, (_, other) in enumerate(places) if other >= 0)
    # In the order of `slots`, whose names say what each word is, from ENTRY_LIBRARY on.
    entry = [
        library, output if source < 0 else source, make, make_large, large, dtypes, 0 if block is None else block.address, len(plan.operands), takes,
        len(arrays) - output, *counts, patterns.axes, plan.classes if plan.fixed_classes else 0, class_axis, half_axis, halved, len(constants), *derivation, *constants, *_NO_CONSTANTS[len(constants) :], *option_words(options, free), *_NO_OPTIONS[at.OPTION_SLOTS * len(options) :],
    ]  # fmt: skip
    each = patterns.each
    if source < 0:  # shapes and strides must be the very same
        each = [_SAME] * len(each)
    array_dtypes = _add_arrays(entry, library, arrays, places, plan, output, each, views)
    return at.Entry(entry, (*allocators, runner, block, flat, options, array_dtypes)), work


def _block_of(runner: Any, takes: int, plan: Plan) -> Any:
    """What calls a runner in words: a builtin has its own."""
    from openaclnn.engines.machine.callers import CallBlock, PythonBlock

    kept = getattr(getattr(runner, "__self__", None), "keep", None)
    if isinstance(kept, CallBlock):
        return kept
    return PythonBlock(runner, takes, sum(free.integer << n for n, free in enumerate(plan.free)))


_NO_CONSTANTS, _NO_OPTIONS = (0,) * at.MAX_CONSTANTS, (0,) * (at.FIRST_ARRAY - at.FIRST_OPTION)


def _add_arrays(
    entry: list[int], library: int, arrays: Sequence[Any], places: Places, plan: Plan, output: int, patterns: Sequence[Pattern],
    views: Sequence[Tensor | None],
) -> list[Any]:  # fmt: skip
    """What each array must be like; `output` is the first that is written. Where shape and strides must be the very same, they are
    here, too, and so is the shape of what is yet to be made where it follows from no other's. Gives the dtypes, whose addresses are here."""
    operands, dtypes, device = plan.operands, list[Any](), 0
    # Operands may be where the first output is, if that is given.
    coincident = 0 if arrays[output] is None else len(plan.inputs)
    for array, (place, other), view, follower in zip(arrays, places, views, patterns, strict=True):
        if view is None:
            entry += _ABSENT
            continue
        if place >= len(operands):
            place = -1  # an output that is not written
        shape, itemsize, strides = view.shape, view.dtype.itemsize, _NO_AXES
        pattern, follows = follower.lies, _follows(follower.axes)
        first, second, lies, alike, made = device, 0, at.MISSING, False, pattern
        if array is not None:  # else it is yet to be made, where the others are
            dtypes.append(array.dtype)
            (first, second), lies, made = words_of(array, library), pattern, 0
            if library == at.TORCH:
                device = device or first
            alike = 0 <= place < coincident and walks_alike(operands[place], plan.output)
        entry += (first, second + len(shape), lies, place, other, itemsize, alike, follows, made)
        if pattern != at.SAME:
            entry += _NO_LAYOUT
            continue
        if array is not None:  # as its library counts them
            strides = array.stride() if library == at.TORCH else array.strides
        # One with more axes than there is room for is never read.
        entry += (shape + _NO_AXES)[: at.MAX_AXES]
        entry += (strides + _NO_AXES)[: at.MAX_AXES]
    return dtypes


_NO_AXES = (0,) * at.MAX_AXES
_NO_LAYOUT = (0,) * (at.ARRAY_SLOTS - at.SHAPE)
_ABSENT = (0, 0, at.MISSING, -1, -1, 0, 0, 0, 0, *_NO_LAYOUT)


# What makes outputs.


def _allocators(
    fresh: Sequence[DType | None], arrays: Sequence[Any], library: int
) -> tuple[Any, Any, Any]:
    """What makes fresh outputs of these dtypes beside arrays, small and large, and the dtypes as the library has them, None where one is
    not made."""
    if library == at.NUMPY:
        return np.empty, results.empty, tuple([dtype and dtype.numpy for dtype in fresh])
    dtypes = [dtype and torch_dtype(dtype) for dtype in fresh]
    model = next(array for array in arrays if array is not None)
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


Places = tuple[tuple[int, int], ...]


def places_of(plan: Plan, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Places:
    """Where arrays of these names stand among a plan's operands, those last that it does not write; -1 for what it does not
    read. A second place is that of the second half, where the first is the first half's, or of the same tensor once more; else -1. Nothing where a tensor is
    more than two operands.
    """
    if plan.empty:
        return ((-1, -1),) * (len(inputs) + len(outputs))
    operands = tuple(map(_named, (*plan.operands, *plan.spared)))
    return _places(operands, len(plan.inputs), len(plan.spared), inputs, outputs)


_named = attrgetter("parameter", "role")


@functools.lru_cache(maxsize=1024)
def _places(
    operands: tuple[tuple[str, str], ...], read: int, spared: int, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> Places:  # fmt: skip
    """The same of operands by their names and roles, so many of which are read, and so many not written."""
    places = []
    for names, side in (inputs, range(read)), (outputs, range(read, len(operands))):
        for name in names:
            several = [place for place in side if operands[place][0] == name]
            several.sort(key=lambda place: operands[place][1] == HALVES[1])
            first, second, *_ = *several, -1, -1
            places.append((first, second))
    known = {place for both in places for place in both}
    return tuple(places) if known.issuperset(range(len(operands) - spared)) else ()


class Pattern(NamedTuple):
    """How an array lies, and which axes of the shape source its own follow, as `slots.FOLLOWS` has them."""

    lies: int
    axes: tuple[int, ...] = ()

    def shape(self, source: tuple[int, ...]) -> tuple[int, ...]:
        """An array's, of the source's."""
        if self.lies == at.DENSE:
            return source
        return tuple([
            1 if axis & at.STRETCHED else source[axis & ~at.DOUBLED] * (2 if axis & at.DOUBLED else 1)
            for axis in self.axes
        ])  # fmt: skip


@functools.cache
def _follows(axes: tuple[int, ...]) -> int:
    """The slot."""
    return sum([axis << 8 * place for place, axis in enumerate(axes)])


class Patterns(NamedTuple):
    """How each array lies; which one is the shape source, one beyond them all where it is what the inputs broadcast
    to, -1 where sizes are part of the entry; whether one that a kernel reads or writes is not row-major: how others lie is nobody's
    business; and how many axes the source has in all calls, 0 where that may change."""

    each: Sequence[Pattern]
    source: int
    strided: bool = False
    axes: int = 0


def patterns_of(
    plan: Plan, inputs: int, places: Places, views: Sequence[Tensor | None]
) -> Patterns:
    """How each array lies relative to the shape source, where sizes need not be part of the entry.

    That is one of the inputs, so many, of the output's shape, or of all inputs' where that is another (a sum, several outputs, one for each row); elementwise, where
    none is, it is the shape that they broadcast to, or half of one. All others have that shape too, or one element, or stretch; with a
    class axis, halves or channels they have what their roles say.
    """
    if plan.empty or plan.fixed or not _has_both_halves(plan, places):
        return Patterns([_SAME] * len(views), -1)
    apart = plan.shape_specific  # halves, or numbers for channels
    by_role = bool(plan.classes) or apart
    first = [place for place, _ in places]
    if plan.dense and not (by_role or plan.rank_specific) and -1 not in first:
        return Patterns([_DENSE] * len(views), 0)
    shape = plan.full_shape
    # One element cannot be told from all.
    if math.prod(shape) != 1 and len(shape) <= at.MAX_AXES:
        patterns, strided = _followers(plan, shape, first, views, by_role)
        strided = strided or apart or bool(plan.steps)
        axes = len(shape) if by_role or strided or plan.rank_specific else 0
        for source, (pattern, _) in enumerate(patterns[:inputs]):
            view = views[source]
            if pattern in (at.DENSE, at.LAID) and view is not None and view.shape == shape:
                return Patterns(patterns, source, strided, axes)
        if patterns and (plan.halved or not by_role) and -1 not in first[:inputs]:
            return Patterns(patterns, len(views), strided, axes)
    return Patterns([_SAME] * len(views), -1)


def _has_both_halves(plan: Plan, places: Places) -> bool:
    """Whether each tensor of a plan of halves is one operand, or both of its halves."""
    if not plan.halved:
        return True
    operands = plan.operands
    roles = [tuple([operands[place].role for place in both if place >= 0]) for both in places]
    return all(each in ((), ("full",), HALVES) for each in roles)


_MISSING, _SAME = Pattern(at.MISSING), Pattern(at.SAME)
_DENSE = Pattern(at.DENSE, tuple(range(at.MAX_AXES)))


def _followers(
    plan: Plan, shape: tuple[int, ...], places: Sequence[int], views: Sequence[Tensor | None], by_role: bool
) -> tuple[list[Pattern], bool]:  # fmt: skip
    """How each array follows the shape: by its role, or elementwise as it stretches; and whether one is not row-major. Nothing where an array has something
    else; what a kernel does not read, and one element, has to have just that.
    """
    patterns, strided, every = [], False, tuple(range(len(shape)))
    operands, along = plan.operands + plan.spared, plan.class_axis
    for place, view in zip(places, views, strict=True):
        if view is None:
            patterns.append(_MISSING)
            continue
        role = operands[place].role if place >= 0 else "full"
        if view.contiguous and view.shape == shape and role != "single":
            patterns.append(_DENSE)
            continue
        # With a class axis, too, an input of as many axes stretches along those of one element.
        stretches = not by_role or (role == "full" and not plan.shape_specific and len(view.shape) == len(shape))  # fmt: skip
        if not stretches or place < 0 or role == "single":
            axes = _axes_of_role(role, every, along)
        elif len(view.shape) <= len(shape):
            lengths = zip(every[len(shape) - len(view.shape) :], view.shape, strict=True)
            axes = tuple(
                [axis if shape[axis] == length else at.STRETCHED for axis, length in lengths]
            )
        else:
            return [], False
        pattern = Pattern(at.SOME, axes)
        if role == "single" or (not by_role and view.size == 1):  # one element is that in all calls
            pattern = _SAME
        elif view.shape != pattern.shape(shape):
            if place >= 0:
                return [], False
            pattern = _SAME
        elif not by_role or not view.contiguous or at.STRETCHED in axes:
            pattern = Pattern(at.LAID, pattern.axes)
            strided = strided or 0 <= place < len(plan.operands)
        patterns.append(pattern)
    return patterns, strided


@functools.cache
def _axes_of_role(role: str, every: tuple[int, ...], along: int) -> tuple[int, ...]:
    """The axes of the source that an array with a role has, where classes or halves are along one of them."""
    if role == "channels":
        return every[1:2]
    if role in HALVES:
        return (*every[:along], along | at.DOUBLED, *every[along + 1 :])
    if role == "positions" and along >= 0:
        return every[:along] + every[along + 1 :]
    return every[along : along + 1] if role == "classes" and along >= 0 else every


# What runs.


class Work(NamedTuple):
    """What runs a kind of call."""

    source: int  # the argument that sizes are read of; -1: they are part of the entry
    counts: tuple[int, int]  # of elements that it serves: from, below
    runner: Any  # of addresses and a stream, and what it takes besides
    takes: int = 0
    flat: Any = None  # whose constants are the numbers that it takes


def work_of(plan: Plan, choice: Choice, patterns: Patterns) -> Work | None:
    """What runs calls on arrays that lie so; None where sizes are part of the entry."""
    source, count, flat = patterns.source, covered_elements(plan), choice.flat
    if source < 0:
        return None
    counts, takes = ANY_COUNT, at.TAKES_SIZES | at.TAKES_NUMBERS
    if flat is not None and len(flat.constants) <= at.MAX_CONSTANTS:
        least, beyond = flat.counts
        if patterns.strided:
            beyond, takes = min(beyond, _most_gathered(plan, patterns, flat) + 1), takes | at.TAKES_STRIDES  # fmt: skip
        if count < beyond:
            runner = flat.runner(plan, patterns.strided)
            return runner and Work(source, (least, beyond), runner, takes, flat)
        counts = beyond, ANY_COUNT[1]  # for a runner of any size
    if patterns.strided:
        return _strided(plan, choice, source)
    runner = None if choice.dynamic_shapes is None else choice.dynamic_shapes(plan)
    return runner and Work(source, counts, runner, takes)


def _most_gathered(plan: Plan, patterns: Patterns, flat: Any) -> int:
    """So many elements at most: any number of those that lie side by side along rows, which the best geometry walks no faster, where they do so in all calls."""
    row_major = not any(pattern.lies == at.LAID for pattern in patterns.each)
    if row_major and all(operand.strides[-1] == 1 for operand in plan.operands):
        return ANY_COUNT[1] - 1
    most: int = flat.gathers
    return most


def _strided(plan: Plan, choice: Choice, source: int) -> Work | None:
    """A runner that is told sizes and strides."""
    if plan.halved:  # each half is a tensor of its own there
        operands = [operand._replace(offset=0, role="full") for operand in plan.operands]
        several = len(plan.inputs)
        plan = replace(
            plan, inputs=tuple(operands[:several]), output=operands[several], more=tuple(operands[several + 1 :]), class_axis=-1,
        )  # fmt: skip
    offer = None if choice.dynamic_strides is None else choice.dynamic_strides(plan)
    if offer is None:
        return None
    runner, most = offer
    takes = at.TAKES_SIZES | at.TAKES_STRIDES | (at.TAKES_NUMBERS if plan.classes else 0)
    return Work(source, (1, most + 1), runner, takes)


# Options.


def _bits_of(number: float) -> int:
    """A float as a slot holds it."""
    bits: int = _WORD.unpack(_DOUBLE.pack(number))[0]
    return bits


_DOUBLE, _WORD = struct.Struct("d"), struct.Struct("q")


LARGEST = sys.float_info.max


class FreeNumber(NamedTuple):
    """Whether an option may be another number, and within which bounds, as slots hold them. An infinite one has an entry of its own:
    kernels in PyTorch's dispatcher leave it to PyTorch, and have none."""

    way: int = at.FIXED
    least: int = _bits_of(-LARGEST)
    most: int = _bits_of(LARGEST)
    dropped_bits: int = 0


_FIXED = FreeNumber()
# DROPPED_BITS, and the FLOAT before the first that is rounded to infinity.
_HELD = {
    FLOAT16: (at.FLOAT16_DROPS, 65520.0 - 2.0**-8), BFLOAT16: (at.BFLOAT16_DROPS, (2 - 2.0**-8 - 2.0**-23) * 2.0**127),
}  # fmt: skip


def numbers_of(
    plan: Plan, work: Work, names: tuple[str, ...], kinds: tuple[type, ...]
) -> tuple[Sequence[int], Sequence[FreeNumber]]:
    """The function that derives constants from other numbers, how many it takes, and which options of these types those are; a sized
    runner takes its own. And whether each option may be another number.
    """
    derive, wanted = 0, tuple([free.option for free in plan.free])
    if work.flat is not None:
        derive, wanted = work.flat.derive, work.flat.derived_from if work.flat.derive else ()
    elif not work.takes & at.TAKES_NUMBERS:
        wanted = ()
    return _derivation(names, derive, wanted, plan.free, kinds)


@functools.lru_cache(maxsize=256)
def _derivation(
    names: tuple[str, ...], derive: int, wanted: tuple[str, ...], declared: tuple[Free, ...], kinds: tuple[type, ...]
) -> tuple[tuple[int, ...], tuple[FreeNumber, ...]]:  # fmt: skip
    """The same, of the numbers that are wanted. An integer may stand for a float as far as float64 has all of them; where the float is rounded to 16 bits, no option may then be
    another number."""
    bounds = {}
    for number in declared:
        if number.option not in names:
            told = f"expected an option's Python name ({', '.join(names)}), got {number.option}"
            raise TypeError(f"a plan's free numbers: {told}")
        way = at.ANOTHER_BUT_ZERO if number.keeps_zero else at.ANOTHER
        if number.integer:
            way = at.INTEGER
        dropped_bits, largest = _HELD.get(number.held, (0, LARGEST))
        if kinds[names.index(number.option)] is int:
            largest = float(_EXACT)
        low, high = max(number.low, -largest), min(number.high, largest)
        bounds[number.option] = FreeNumber(way, _bits_of(low), _bits_of(high), dropped_bits)
    places = [names.index(name) for name in wanted if name in names]
    fits = all(_fits(kinds[place], bounds.get(names[place], _FIXED)) for place in places)
    if not fits or not len(wanted) == len(places) <= at.MAX_DERIVED:
        places = []
    free = [
        bounds.get(name, _FIXED) if place in places else _FIXED for place, name in enumerate(names)
    ]
    padding = (0,) * (at.MAX_DERIVED - len(places))
    return (derive if places else 0, len(places), *places, *padding), tuple(free)


_EXACT = 1 << 53  # the integers that float64 has all of


class _Large:
    """What stands for the type of other integers."""


def _kind_of(option: Any) -> type:
    """An option's type."""
    kind = type(option)
    return _Large if kind is int and abs(option) > _EXACT else kind


def _fits(kind: type, number: FreeNumber) -> bool:
    """Whether an option of a type may be another number."""
    if number.way == at.INTEGER:
        return kind in (int, _Large)
    return kind is float or (kind is int and not number.dropped_bits)


def option_words(options: Sequence[Any], numbers: Sequence[FreeNumber]) -> list[int]:
    """Options by their values, and whether each may be another number."""
    words: list[int] = []
    for option, number in zip(options, numbers, strict=True):
        kind = type(option)
        if kind is float:
            words += (id(float), _bits_of(option), *number)
        elif kind is int and is_int64(option):
            words += (id(int), option, *number)
        elif kind is Scalar and option.bits is not None:
            words += (id(option.dtype), option.bits, at.FIXED, 0, 0, 0)
        else:
            words += (0, id(option), at.FIXED, 0, 0, 0)
    return words
