"""Options in records: which of a call's may be other numbers in the next call of its kind, what takes those, and how all lie there."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from openaclnn.core.dtypes import is_int64
from openaclnn.core.plan import Free, Plan
from openaclnn.core.tensor import Scalar
from openaclnn.repeat.kinds.work import Work
from openaclnn.repeat.words import slots as at

__all__ = ["Number", "numbers_of", "packed"]

_EXACT = 1 << 53  # integers up to it are floats
_WORD, _DOUBLE = struct.Struct("q"), struct.Struct("d")


def bits_of(number: float) -> int:
    """A float as a slot holds it."""
    bits: int = _WORD.unpack(_DOUBLE.pack(number))[0]
    return bits


class Number(NamedTuple):
    """Whether an option may be another number, and within which bounds, as slots hold them."""

    way: int = at.FIXED
    least: int = bits_of(-math.inf)
    most: int = bits_of(math.inf)


_FIXED = Number()


_NO_SOURCE = (0,) * (2 + at.MAX_DERIVED)


def numbers_of(
    plan: Plan, work: Work, names: tuple[str, ...], options: Sequence[Any]
) -> tuple[Sequence[int], Sequence[Number], bool]:
    """The function that derives constants from other numbers, how many it takes, and which options those are; a sized
    runner takes its own. And whether each option may be another number, and all that may are what their words say: no
    integer stands for a float.
    """
    flat = work.flat
    if work.takes in _TAKING_NUMBERS:
        derive, wanted = 0, None
    elif flat is not None and flat.derive:
        derive, wanted = flat.derive, flat.derived_from
    else:
        return _NO_SOURCE, (_FIXED,) * len(options), False
    kinds = tuple(map(type, options))
    numbers: Sequence[Any] = options
    if Scalar in kinds:
        numbers = [own.number if type(own) is Scalar else own for own in options]
        kinds = tuple(map(type, numbers))
    source, free, whole, said = _sources(names, derive, wanted, plan.free, kinds)
    for place in whole:
        if abs(numbers[place]) > _EXACT:  # rounded to FLOAT by way of float64 it may be another
            return _NO_SOURCE, (_FIXED,) * len(options), said
    return source, free, said


_TAKING_NUMBERS = (at.BY_SHAPE, at.BY_CLASSES)


@functools.lru_cache(maxsize=256)
def _sources(
    names: tuple[str, ...],
    derive: int,
    wanted: tuple[str, ...] | None,
    declared: tuple[Free, ...],
    kinds: tuple[type, ...],
) -> tuple[tuple[int, ...], tuple[Number, ...], tuple[int, ...], bool]:
    """The same for options of these types, with numbers that are wanted of some, or of all that are declared, and which of those
    floats are given as integers.
    """
    for own in declared:
        if own.option not in names:
            told = f"expected an option's Python name ({', '.join(names)}), got {own.option}"
            raise TypeError(f"a plan's free numbers: {told}")
    given = dict(zip(names, kinds, strict=True))
    fits = {own.option: given[own.option] is (int if own.whole else float) for own in declared}
    said = all(fits.values())
    if wanted is None:
        wanted = tuple(fits)
    if not wanted or len(wanted) > at.MAX_DERIVED or not given.keys() >= {*wanted}:
        return _NO_SOURCE, (_FIXED,) * len(names), (), said
    bounds = {own.option: _free(own) for own in declared if fits[own.option]}
    free = [bounds.get(name, _FIXED) if name in wanted else _FIXED for name in names]
    places = tuple([names.index(name) for name in wanted])
    whole = [place for place in places if kinds[place] is int and free[place] is _FIXED]
    source = (derive, len(places), *places, *_NO_SOURCE[2 + len(places) :])
    return source, tuple(free), tuple(whole), said


def _free(own: Free) -> Number:
    way = at.ANOTHER_BUT_ZERO if own.keeps_zero else at.ANOTHER
    return Number(way, bits_of(own.low), bits_of(own.high))


def packed(options: Sequence[Any], numbers: Sequence[Number]) -> bytes:
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
