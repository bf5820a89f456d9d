"""Families: what kinds of calls have in common that differ in nothing but how their arrays lie.

What a record says of dtypes, options and which arrays there are follows from these, whatever the sizes and strides: it is
found once, and a layout that was not seen before needs but its own words.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from openaclnn.core.dtypes import DType, is_int64
from openaclnn.core.plan import Free, Plan, told_of
from openaclnn.core.tensor import Scalar
from openaclnn.core.terms import Terms
from openaclnn.repeat.kinds.making import sized_made
from openaclnn.repeat.kinds.numbers import Number, numbers_of
from openaclnn.repeat.kinds.patterns import shapes_of
from openaclnn.repeat.kinds.work import Work
from openaclnn.repeat.words import slots as at
from openaclnn.repeat.words.readers import described

__all__ = ["Family", "key_of", "words_of"]


def key_of(terms: Terms, device: str, plan: Plan) -> tuple[Any, ...]:
    """What the family of a call on known terms follows from."""
    return (
        terms, device, plan.kernel, plan.reduction, plan.class_axis, plan.free,
        *map(told_of, plan.operands), *map(told_of, plan.spared),
    )  # fmt: skip


class Family:
    """Of calls with these arrays, of one library, and these options under their names; `places` says where the arrays stand
    among a plan's operands. An output that is written and no array is yet to be made.
    """

    def __init__(
        self,
        plan: Plan,
        places: Sequence[int],
        arrays: Sequence[Any],
        options: Sequence[Any],
        names: tuple[str, ...],
        library: int,
    ) -> None:
        operands = plan.operands
        self.library, self.places, self.names, self.options = library, places, names, options
        self.first = first = places.index(len(plan.inputs))  # of the outputs
        self.into = arrays[first] is not None
        present = [number for number, array in enumerate(arrays) if array is not None]
        self.model = present[0]
        self.dtypes = [arrays[number].dtype for number in present]  # records have their addresses
        self.absent: list[int] = []  # neither given nor written
        made: list[DType | None] = [None] * (len(arrays) - first)
        self.rows: list[tuple[int, ...]] = []
        """What a record says of each array: all but the mask of one that is not given, else the two words that tell dtype and
        device, but for the number of axes, its place among the operands, and its itemsize."""
        model = arrays[self.model]
        device = words_of(model, library)[0] if library == at.TORCH else 0
        for number, (array, place) in enumerate(zip(arrays, places, strict=True)):
            place = place if place < len(operands) else -1
            if array is not None:
                self.rows.append((*words_of(array, library), place, array.dtype.itemsize))
            elif place < 0:
                self.absent.append(number)
                self.rows.append((0, 0, at.MISSING, -1, 0, 0, 0, 0))
            else:
                made[number - first] = dtype = operands[place].dtype
                self.rows.append((device, 0, at.MISSING, place, 0, 0, dtype.itemsize, 0))
        self.fresh = any(made)
        self.shapes = shapes_of(plan, places[first:], made)
        self.making = sized_made(made, model, library) if self.fresh else (None, None, None)
        self._numbers: dict[tuple[int, int], tuple[Sequence[int], bytes]] = {}

    def says(self, free: Sequence[Free]) -> bool:
        """Whether free numbers are what their words say: no integer stands for a float."""
        kinds = dict(zip(self.names, map(type, self.options), strict=True))
        return all(kinds[own.option] is (int if own.whole else float) for own in free)

    def numbers(self, plan: Plan, work: Work) -> tuple[Sequence[int], bytes]:
        """Where other numbers come from, as `numbers_of` says, and what a record says of the options, as it lies there."""
        key = work.takes, 0 if work.flat is None else work.flat.derive
        found = self._numbers.get(key)
        if found is None:
            source, free = numbers_of(plan, work, self.names, self.options)
            options = b"".join(map(_packed_option, self.options, free))
            found = self._numbers[key] = source, options
        return found


def _packed_option(option: Any, number: Number) -> bytes:
    """An option by its value, and whether it may be another number."""
    kind = type(option)
    if kind is float:
        return _FLOATING.pack(id(option), id(float), option, *number)
    if kind is int and is_int64(option):
        return _WHOLE.pack(id(option), id(int), option, number.way, 0, 0)
    if kind is Scalar and option.number is not None:
        return _FLOATING.pack(id(option.dtype), id(Scalar), option.number, *number)
    return _WHOLE.pack(id(option), 0, 0, at.FIXED, 0, 0)


_WHOLE = struct.Struct(f"{at.OPTION_SLOTS}q")
_FLOATING = struct.Struct(f"{at.BITS}qd{at.OPTION_SLOTS - at.BITS - 1}q")


def words_of(array: Any, library: int) -> tuple[int, int]:
    """DEVICE and KIND of an array, without the number of axes."""
    if library == at.NUMPY:
        return id(array.dtype), 0
    if library == at.TORCH:
        key = array.dtype, array.device
        found = _torch_words.get(key)
        if found is None:
            device, kind = described(array)[at.DEVICE : at.KIND + 1]
            found = _torch_words[key] = device, kind - array.ndim
        return found
    form = (array.format & at.FORMATS) << at.FORMAT_BIT
    return id(array.dtype), form | array.writable << at.WRITABLE_BIT


_torch_words: dict[tuple[Any, Any], tuple[int, int]] = {}
