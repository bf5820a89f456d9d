"""Records: a kind of call as a row of integers, in the order of `slots.py`."""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from openaclnn.core import results
from openaclnn.core.interop import torch_tensor
from openaclnn.core.plan import Plan, walks_alike
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat.kinds.families import Family
from openaclnn.repeat.kinds.making import ready_made
from openaclnn.repeat.kinds.patterns import fixed_patterns, patterns_of
from openaclnn.repeat.kinds.work import work_of
from openaclnn.repeat.words import slots as at
from openaclnn.repeat.words.readers import numpy_is_readable, torch_functions

__all__ = ["library_of", "record_of"]


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


def record_of(
    family: Family,
    plan: Plan,
    choice: Choice,
    arrays: Sequence[Any],
    views: Sequence[Tensor | None],
    without_objects: bool = False,
    called: bool = False,
    any_size: bool = True,
) -> tuple[struct.Struct, list[Any], Any]:
    """A kind's record: where its words lie, the words, and what must live as long. The views are the arrays', as a `Family` has
    them. `without_objects`, callers that are not Python take the road, too; `called`, Python itself does. Without `any_size`, sizes and strides are part of
    the kind in any case.
    """
    find = patterns_of if any_size else fixed_patterns
    each, lead, laid = find(plan, family.places, views)
    work = work_of(plan, choice, lead, laid)
    lead, counts, kernel, grain, reciprocal, constants, units, takes, gathering, runner, flat = work
    source, options, said = family.numbers(plan, work)
    words = (0, 0, 0)
    if takes == at.BY_SHAPE:
        words = _words(runner, without_objects, called and said)
    make, large, making = family.making
    if lead < 0:  # shapes and strides must be the very same
        each, lead = [(at.SAME, mask) for _, mask in each], family.first
        if family.fresh:
            outputs = zip(arrays[lead:], views[lead:], strict=True)
            made = [view if array is None else None for array, view in outputs]
            making = ready_made(made, arrays[family.model], family.library)
    leading = views[lead] if plan.classes else None
    axes = 0 if leading is None else len(leading.shape)
    # In the order of `slots`, whose names say what each word is.
    record: list[Any] = [
        0, family.library, 0, lead, family.fresh, id(make), id(large), results.LARGE, id(making),
        id(runner), kernel, grain, *counts, reciprocal, len(constants),
        len(plan.inputs) + 1 + len(plan.more), takes, axes, plan.class_axis, gathering, len(arrays) - family.first,
        family.shapes, units, *words, *source, *constants,
    ]  # fmt: skip
    same = _add_arrays(record, family, plan, each, arrays, views)
    record.append(options)
    layout = _layout(len(constants), len(arrays), same, len(options))
    return layout, record, (make, large, making, runner, flat, family)


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
    family: Family,
    plan: Plan,
    patterns: Sequence[tuple[int, int]],
    arrays: Sequence[Any],
    views: Sequence[Tensor | None],
) -> int:
    """What each array must be like. Where shape and strides must be the very same, they are here, with the bytes that they
    cover: of which arrays, in bits.
    """
    same, bit = 0, 1
    operands = plan.operands
    coincident = len(plan.inputs) if family.into else 0  # operands that may be where the output is
    for array, view, own, (pattern, mask) in zip(arrays, views, family.rows, patterns, strict=True):
        if array is None or view is None:
            record += (*own, mask)
        else:
            first, second, place, item = own
            second += len(view.shape)
            alike = 0 <= place < coincident and walks_alike(operands[place], plan.output)
            if pattern != at.SAME:
                record += (first, second, pattern, place, 0, 0, item, alike, mask)
            else:
                low, high = (operands[place].low, operands[place].high) if place >= 0 else (0, 0)
                record += (first, second, pattern, place, low, high, item, alike, mask)
                record += _sides(array, family.library)
                same |= bit
        bit += bit
    return same


def _sides(array: Any, library: int) -> tuple[int, ...]:
    """An array's shape and strides, as its library counts them; one with more axes than there is room for is never read."""
    strides = array.stride() if library == at.TORCH else array.strides
    pad = (0,) * (at.MAX_AXES - len(strides))
    return *array.shape[: at.MAX_AXES], *pad, *strides[: at.MAX_AXES], *pad
