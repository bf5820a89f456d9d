"""Families: what kinds of calls have in common that differ in nothing but how their arrays lie.

What a record says of dtypes, options and which arrays there are follows from these, whatever the sizes and strides: it is
found once, and a layout that was not seen before needs but its own words.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from openaclnn.core.dtypes import DType, is_int64
from openaclnn.core.plan import Plan, told_of
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
        self.library, self.places, self.names, self.options = library, places, names, options
        self.first = first = places.index(len(plan.inputs))  # of the outputs
        self.into = arrays[first] is not None
        model = 0
        while arrays[model] is None:
            model += 1
        self.model = model
        self.dtypes: list[Any] = []  # records have their addresses
        self.absent: list[int] = []  # neither given nor written
        made: list[DType | None] = [None] * (len(arrays) - first)
        self.rows: list[tuple[int, ...]] = []
        """What a record says of each array: all but the mask of one that is not given, else the two words that tell dtype and
        device, but for the number of axes, its place among the operands, and its itemsize."""
        device = words_of(arrays[model], library)[0] if library == at.TORCH else 0
        operands, rows, dtypes = plan.operands, self.rows, self.dtypes
        for number, array in enumerate(arrays):
            place = places[number]
            if place >= len(operands):
                place = -1
            if array is not None:
                own = array.dtype
                dtypes.append(own)
                rows.append((*words_of(array, library), place, own.itemsize))
            elif place < 0:
                self.absent.append(number)
                rows.append(_ABSENT)
            else:
                made[number - first] = dtype = operands[place].dtype
                rows.append((device, 0, at.MISSING, place, 0, 0, dtype.itemsize, 0))
        self.fresh = len(rows) - len(dtypes) > len(self.absent)
        self.shapes = shapes_of(plan, places[first:], made) if self.fresh else 0
        self.making = sized_made(made, arrays[model], library) if self.fresh else (None, None, None)
        self._numbers: dict[tuple[int, int], tuple[Sequence[int], bytes, bool]] = {}

    def numbers(self, plan: Plan, work: Work) -> tuple[Sequence[int], bytes, bool]:
        """Where other numbers come from, as `numbers_of` says, what a record says of the options, as it lies there, and whether
        plain words say what they are.
        """
        key = work.takes, 0 if work.flat is None else work.flat.derive
        found = self._numbers.get(key)
        if found is None:
            source, free, said = numbers_of(plan, work, self.names, self.options)
            found = self._numbers[key] = source, _packed(self.options, free), said
        return found


def _packed(options: Sequence[Any], numbers: Sequence[Number]) -> bytes:
    """Options by their values, and whether each may be another number."""
    layout = ""
    words: list[Any] = []
    for option, number in zip(options, numbers, strict=True):
        kind = type(option)
        if kind is float:
            layout += _FLOATING
            words += (id(option), id(float), option, *number)
        elif kind is int and is_int64(option):
            layout += _WHOLE
            words += (id(option), id(int), option, number.way)
        elif kind is Scalar and option.number is not None:
            layout += _FLOATING
            words += (id(option.dtype), id(Scalar), option.number, *number)
        else:
            layout += _OTHER
            words.append(id(option))
    return struct.pack(layout, *words)


_FLOATING = f"{at.BITS}qd{at.OPTION_SLOTS - at.BITS - 1}q"
# Zeros behind: an integer has no bounds, and what else there is no number, which is fixed.
_WHOLE = f"{at.LEAST}q{8 * (at.OPTION_SLOTS - at.LEAST)}x"
_OTHER = f"q{8 * (at.OPTION_SLOTS - 1)}x"
_ABSENT = (0, 0, at.MISSING, -1, 0, 0, 0, 0)


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
