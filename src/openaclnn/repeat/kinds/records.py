"""Records: a kind of call as a row of integers, in the order of `slots.py`."""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core import results
from openaclnn.core.interop import torch_tensor
from openaclnn.core.plan import Plan, walks_alike
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat.kinds.making import ready_made, sized_made
from openaclnn.repeat.kinds.numbers import numbers_of, packed
from openaclnn.repeat.kinds.patterns import fixed_patterns, patterns_of, shapes_of
from openaclnn.repeat.kinds.work import work_of
from openaclnn.repeat.words import slots as at
from openaclnn.repeat.words.readers import numpy_is_readable, torch_functions, words_of

__all__ = ["Given", "library_of", "record_of"]


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


class Given(NamedTuple):
    """A call as its caller made it."""

    library: int  # of all arrays
    arrays: Sequence[Any]  # inputs, then outputs; None where there is none
    places: Sequence[int]  # where each stands among the plan's operands
    options: Sequence[Any]
    names: tuple[str, ...]  # of the options


def record_of(
    given: Given,
    plan: Plan,
    choice: Choice,
    views: Sequence[Tensor | None],
    without_objects: bool = False,
    called: bool = False,
    any_size: bool = True,
) -> tuple[struct.Struct, list[Any], Any]:
    """A kind's record: where its words lie, the words, and what must live as long. The views are the arrays' and those of outputs that
    are yet to be made. `without_objects`, callers that are not Python take the road, too; `called`, Python itself does. Without
    `any_size`, sizes and strides are part of the kind in any case.
    """
    library, arrays, places, options, names = given
    find = patterns_of if any_size else fixed_patterns
    each, lead, laid = find(plan, places, views)
    work = work_of(plan, choice, lead, laid)
    lead, counts, kernel, grain, reciprocal, constants, units, takes, gathering, runner, flat = work
    source, free, said = numbers_of(plan, work, names, options)
    words = (0, 0, 0)
    if takes == at.BY_SHAPE:
        words = _words(runner, without_objects, called and said)
    first = places.index(len(plan.inputs))  # of the outputs
    axes = 0
    if lead < 0:  # shapes and strides must be the very same
        each = [(at.SAME, mask) for _, mask in each]
    elif plan.classes:
        axes = len(views[lead].shape)  # type: ignore[union-attr]
    make, large, making, shapes = _making(given, first, views, each, lead < 0)
    # In the order of `slots`, whose names say what each word is.
    record: list[Any] = [
        0, library, 0, first if lead < 0 else lead, make is not None, id(make), id(large), results.LARGE, id(making),
        id(runner), kernel, grain, *counts, reciprocal, len(constants),
        len(plan.inputs) + 1 + len(plan.more), takes, axes, plan.class_axis, gathering, len(arrays) - first,
        shapes, units, *words, *source, *constants,
    ]  # fmt: skip
    same, dtypes = _add_arrays(record, given, plan, first, each, views)
    own = packed(options, free)
    record.append(own)
    layout = _layout(len(constants), len(arrays), same, len(own))
    return layout, record, (make, large, making, runner, flat, options, dtypes)


def _making(
    given: Given,
    first: int,
    views: Sequence[Tensor | None],
    patterns: Sequence[tuple[int, int]],
    one_size: bool,
) -> tuple[Any, Any, Any, int]:
    """What makes the outputs that the caller did not give, small and large, with what it takes, and which axes they have; None where
    there are none such."""
    arrays = given.arrays
    made: list[Tensor | None] = [
        own if array is None else None
        for array, own in zip(arrays[first:], views[first:], strict=True)
    ]
    if made.count(None) == len(made):
        return None, None, None, 0
    model = next(array for array in arrays if array is not None)
    make, large, making = sized_made(made, model, given.library)
    if one_size:
        making = ready_made(made, model, given.library)
    return make, large, making, shapes_of(made, patterns[first:])


@functools.lru_cache(maxsize=256)
def _layout(constants: int, arrays: int, same: int, options: int) -> struct.Struct:
    """Where a record has its words, with so many constants, so many arrays, those with sizes by the bits of `same`, and so many
    bytes for options. Zeros, most of a record, are not among them: packing a word takes 0.04 us.
    """

    def padded(words: int, room: int) -> str:
        return f"{words}q{8 * (room - words)}x"

    head = padded(at.CONSTANT + constants, at.FIRST_ARRAY)
    rows = [
        padded(at.ARRAY_SLOTS if same >> number & 1 else at.SHAPE, at.ARRAY_SLOTS)
        for number in range(arrays)
    ]
    gap = padded(0, (at.MAX_ARRAYS - arrays) * at.ARRAY_SLOTS)
    return struct.Struct("".join([head, *rows, gap, f"{options}s"]))


def _words(sized: Any, without_objects: bool, called: bool) -> tuple[int, int, int]:
    """WORDS, LOCKED_WORDS and WORDS_BLOCK, of a builtin that can do without Python's objects, as far as they are wanted."""
    kept: Any = getattr(getattr(sized, "__self__", None), "keep", None)
    free = held = (0, 0)
    if without_objects and hasattr(kept, "without_objects"):
        free = kept.without_objects()
    if called and hasattr(kept, "with_lock"):
        held = kept.with_lock()
    return free[0], held[0], free[1] or held[1]


def _add_arrays(
    record: list[Any],
    given: Given,
    plan: Plan,
    output: int,
    patterns: Sequence[tuple[int, int]],
    views: Sequence[Tensor | None],
) -> tuple[int, list[Any]]:
    """What each array must be like; `output` is the first that is written. Where shape and strides must be the very same, they are
    here, with the bytes that they cover: of which arrays, in bits. And the dtypes, whose addresses are here, too.
    """
    library, arrays, places, _, _ = given
    operands = plan.operands
    same, bit, device = 0, 1, 0
    dtypes: list[Any] = []
    # Operands may be where the first output is, if that is given.
    coincident = 0 if arrays[output] is None else len(plan.inputs)
    for array, place, view, (pattern, mask) in zip(arrays, places, views, patterns, strict=True):
        if place >= len(operands):
            place = -1  # an output that is not written
        if array is not None and view is not None:
            dtypes.append(array.dtype)
            first, second = words_of(array, library)
            device, item = device or first, view.dtype.itemsize
            second += len(view.shape)
            alike = 0 <= place < coincident and walks_alike(operands[place], plan.output)
            if pattern != at.SAME:
                record += (first, second, pattern, place, 0, 0, item, alike, mask)
            else:
                low, high = (operands[place].low, operands[place].high) if place >= 0 else (0, 0)
                record += (first, second, pattern, place, low, high, item, alike, mask)
                record += _sides(array, library)
                same |= bit
        elif view is not None:  # yet to be made, where the others are
            on = device if library == at.TORCH else 0
            record += (on, 0, at.MISSING, place, 0, 0, view.dtype.itemsize, 0, mask)
        else:
            record += (0, 0, at.MISSING, -1, 0, 0, 0, 0, mask)
        bit += bit
    return same, dtypes


def _sides(array: Any, library: int) -> tuple[int, ...]:
    """An array's shape and strides, as its library counts them; one with more axes than there is room for is never read."""
    strides = array.stride() if library == at.TORCH else array.strides
    pad = (0,) * (at.MAX_AXES - len(strides))
    return *array.shape[: at.MAX_AXES], *pad, *strides[: at.MAX_AXES], *pad
