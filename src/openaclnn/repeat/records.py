"""Records: a kind of call as a row of integers, in the order of `slots.py`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from openaclnn.core import results
from openaclnn.core.dtypes import DType
from openaclnn.core.plan import Plan, walks_alike
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat import slots as at
from openaclnn.repeat.making import making_of
from openaclnn.repeat.numbers import Number, bits_of, numbers_of
from openaclnn.repeat.patterns import fixed_patterns, patterns_of, shapes_of
from openaclnn.repeat.readers import described, numpy_is_readable, torch_functions
from openaclnn.repeat.work import work_of

__all__ = ["library_of", "record_of"]


def library_of(arrays: Sequence[Any]) -> int:
    """The one library that all arrays are of, None aside; 0 where machine code does not read them."""
    types = {*map(type, arrays)} - _NOTHING
    if types == _NUMPY:
        return at.NUMPY if numpy_is_readable() else 0
    torch = sys.modules.get("torch")
    if torch is not None and types <= {torch.Tensor, torch.nn.Parameter}:
        return at.TORCH if torch_functions() is not None else 0
    return 0


_NUMPY, _NOTHING = {np.ndarray}, {type(None)}


def record_of(
    places: Sequence[int],
    plan: Plan,
    choice: Choice,
    arrays: Sequence[Any],
    views: Sequence[Tensor | None],
    options: Sequence[Any],
    names: tuple[str, ...],
    library: int,
    without_objects: bool = False,
    any_size: bool = True,
) -> tuple[list[int], Any]:
    """A kind's record, and what must live as long. The views are the arrays'; an output that is yet to be made has a view and
    is no array, one that is neither given nor written has no view. `without_objects`, callers that are not Python take the
    road, too. Without `any_size`, sizes and strides are part of the kind in any case.
    """
    operands, first = plan.operands, places.index(len(plan.inputs))
    made = [
        view if array is None else None
        for array, view in zip(arrays[first:], views[first:], strict=True)
    ]
    fresh = made.count(None) < len(made)
    patterns = patterns_of(plan, places, views) if any_size else fixed_patterns(views)
    work = work_of(plan, choice, patterns)
    any_size, constants = work.lead >= 0, work.constants
    model = 0
    while arrays[model] is None:
        model += 1
    make = large = making = None
    if fresh:
        make, large, making = making_of(made, arrays[model], library, any_size)
    words = _words(work.runner) if without_objects and work.takes == at.BY_SHAPE else (0, 0)
    source, free = numbers_of(plan, work, names, options)
    leading = views[work.lead if any_size else first]
    axes = len(leading.shape) if plan.classes and leading is not None else 0
    # In the order of `slots`, whose names say what each word is.
    record = [
        0, library, 0, work.lead if any_size else first, fresh, id(make), id(large), results.LARGE, id(making),
        id(work.runner), work.kernel, work.grain, *work.counts, work.reciprocal, len(constants),
        len(operands), work.takes, axes, plan.class_axis, work.gathering, len(made),
        shapes_of(plan, places[first:], made), work.units, *words, *source, *constants, *_NO_CONSTANTS[len(constants) :],
    ]  # fmt: skip
    if not any_size:
        patterns = patterns._replace(each=[(at.SAME, mask) for _, mask in patterns.each])
    record += _array_words(plan, places, patterns.each, arrays, views, library, model)
    for option, number in zip(options, free, strict=True):
        record += _option_words(option, number)
    dtypes = [array.dtype for array in arrays if array is not None]
    return record, (make, large, making, work.runner, work.flat, dtypes, options)


_NO_CONSTANTS = (0,) * at.MAX_CONSTANTS
_NO_AXES = (0,) * (2 * at.MAX_AXES)
_ABSENT = (0, 0, at.MISSING, -1, 0, 0, 0, 0, 0, *_NO_AXES)


def _words(sized: Any) -> tuple[int, int]:
    """WORDS and WORDS_BLOCK, of a builtin that can do without Python's objects."""
    find = getattr(getattr(getattr(sized, "__self__", None), "keep", None), "without_objects", None)
    return (0, 0) if find is None else find()


def _array_words(
    plan: Plan,
    places: Sequence[int],
    patterns: Sequence[tuple[int, int]],
    arrays: Sequence[Any],
    views: Sequence[Tensor | None],
    library: int,
    model: int,
) -> list[int]:
    """What each array must be like. An output that is yet to be made will be on the model's device; where shape and strides
    must be the very same, they are here, with the bytes that they cover.
    """
    words: list[int] = []
    operands = plan.operands
    into = arrays[places.index(len(plan.inputs))] is not None
    for array, view, place, (pattern, mask) in zip(arrays, views, places, patterns, strict=True):
        if place >= len(operands):  # not written
            place = -1
        if view is None:
            words += _ABSENT
            continue
        item = view.dtype.itemsize
        if array is None:
            device = _torch_words(views[model], arrays[model])[0] if library == at.TORCH else 0
            words += device, 0, at.MISSING, place, 0, 0, item, 0, mask
            words += _NO_AXES
            continue
        if library == at.NUMPY:
            words += id(array.dtype), len(view.shape)
        else:
            words += _torch_words(view, array) if library == at.TORCH else _own_words(array)
        alike = into and place >= 0 and walks_alike(operands[place], plan.output)
        if pattern != at.SAME:
            words += pattern, place, 0, 0, item, alike, mask
            words += _NO_AXES
        else:
            low, high = (operands[place].low, operands[place].high) if place >= 0 else (0, 0)
            words += at.SAME, place, low, high, item, alike, mask
            words += _sides(array, library)
    return words


def _option_words(option: Any, number: Number) -> tuple[int, ...]:
    """An option by its value, and whether it may be another number."""
    kind = type(option)
    if kind is float:
        return id(option), id(float), bits_of(option), *number
    if kind is int and -(2**63) <= option < 2**63:
        return id(option), id(int), option, number.way, 0, 0
    if kind is Scalar and option.number is not None:
        return id(option.dtype), id(Scalar), bits_of(option.number), *number
    return id(option), 0, 0, at.FIXED, 0, 0


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


def _own_words(tensor: Tensor) -> tuple[int, int]:
    """DEVICE and KIND of a descriptor of ours."""
    form = (tensor.format & at.FORMATS) << at.FORMAT_BIT
    return id(tensor.dtype), tensor.rank | form | tensor.writable << at.WRITABLE_BIT
