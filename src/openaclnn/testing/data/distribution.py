"""How values are drawn: uniformly from an interval, normally, from a choice, or one value; the same seed gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType

__all__ = ["DEFAULT", "Distribution", "draw_array", "generator"]

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 20  # elements drawn together, so that the float64 in between stay small


@dataclass(frozen=True)
class Distribution:
    """Uniform in [low, high], normal where a deviation is given, or one of `choices`; `includes` must occur in the data."""

    low: float = -2.0
    high: float = 2.0
    mean: float = 0.0
    deviation: float | None = None
    includes: tuple[float, ...] = ()
    means: tuple[float, float] | None = None  # intervals that mean and deviation are drawn from
    deviations: tuple[float, float] | None = None
    choices: tuple[float, ...] = ()
    open: tuple[bool, bool] = (False, False)  # which ends of the interval are excluded

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"a range from {self.low:g} to {self.high:g} is empty")
        if self.low == self.high and any(self.open):
            raise ValueError(f"a range that excludes its one value {self.low:g} is empty")
        if self.deviation is not None and not (0 <= self.deviation < math.inf):
            raise ValueError(f"a deviation is 0 or more, not {self.deviation:g}")

    def settled(self, rng: np.random.Generator) -> Distribution:
        """The distribution with a mean and a deviation drawn, where intervals are given."""
        if self.means is None or self.deviations is None:
            return self
        mean, deviation = rng.uniform(*self.means), rng.uniform(*self.deviations)
        return Distribution(mean=mean, deviation=deviation, includes=self.includes)


DEFAULT = Distribution()


def generator(*seed: int) -> np.random.Generator:
    """The random numbers of one tensor: its seed is what it belongs to, so that no other tensor's size matters."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([abs(s) for s in seed])))


def draw_array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, how: Distribution = DEFAULT
) -> Array:
    """An array of a shape and dtype, drawn."""
    kind, how = dtype.numpy, how.settled(rng)
    if how.choices:
        with np.errstate(over="ignore", invalid="ignore"):
            listed = np.asarray(how.choices, np.float64).astype(kind)
        array = listed[rng.integers(0, listed.size, shape)]
    elif dtype.kind == "bool":
        array = _integers(rng, shape, np.dtype(np.uint8), how, 1).astype(bool)
    elif dtype.kind == "integer":
        array = _integers(rng, shape, kind, how)
    else:
        array = np.empty(shape, kind)
        flat = array.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            with np.errstate(over="ignore"):  # what is too large for the dtype is infinite
                part[...] = _floats(rng, part.size, dtype, how)
    if how.includes and array.size:
        places = rng.permutation(min(array.size, 1 << 16))[: len(how.includes)]
        with np.errstate(over="ignore", invalid="ignore"):
            given = np.asarray(how.includes[: places.size], np.float64)
            array.reshape(-1)[places] = given.astype(kind)
    return array


def _integers(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    kind: np.dtype[Any],
    how: Distribution,
    largest: int | None = None,
) -> Array:
    info = np.iinfo(kind)
    least, most = int(info.min), int(info.max) if largest is None else largest
    if how.deviation is not None:
        values = np.rint(rng.normal(how.mean, how.deviation, shape))
        return np.clip(values, max(least, -(2**53)), min(most, 2**53)).astype(kind)
    low, high = _whole(how.low, math.ceil), _whole(how.high, math.floor)
    low, high = low + (how.open[0] and low == how.low), high - (how.open[1] and high == how.high)
    low, high = (min(max(end, least), most) for end in (low, high))
    return rng.integers(low, max(high, low), shape, kind, endpoint=True)


def _whole(end: float, toward: Callable[[float], int]) -> int:
    """An end of an interval as a whole number; NaN, which no integer is, as 0."""
    return toward(0.0 if math.isnan(end) else min(max(end, -(2.0**63)), 2.0**63))


def _floats(rng: np.random.Generator, count: int, dtype: DType, how: Distribution) -> Array:
    narrow = dtype.itemsize <= 4 and dtype.kind == "floating"
    work: Any = np.float32 if narrow else np.float64
    if how.deviation is not None:
        return np.asarray(rng.standard_normal(count, work) * work(how.deviation) + work(how.mean))
    low, high = how.low, how.high
    if math.isnan(low) or math.isnan(high):
        return np.full(count, math.nan)
    if low == high:
        return np.full(count, low).astype(np.float64)
    return _uniform(rng, count, dtype, how, work)


def _uniform(
    rng: np.random.Generator, count: int, dtype: DType, how: Distribution, work: Any
) -> Array:
    import ml_dtypes

    low, high, largest = how.low, how.high, 1e300
    if dtype.kind == "floating" and dtype.itemsize < 8:
        largest = float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
    ends = [min(max(end, -largest), largest) for end in (low, high)]
    if max(map(abs, ends)) > 1e30:
        work = np.float64
    values = rng.random(count, work)
    values *= work(ends[1]) - work(ends[0]) if work is np.float32 else ends[1] - ends[0]
    values += work(ends[0])
    # To numbers of the dtype, so that rounding does not leave the interval.
    inner = _inside(ends, dtype, how.open) if largest < 1e300 else ends
    np.clip(values, work(inner[0]), work(inner[1]), out=values)
    for end, place in ((low, 0), (high, -1)):
        if math.isinf(end) and count:
            values[place] = end
    return values


def _inside(ends: list[float], dtype: DType, excluded: tuple[bool, bool]) -> tuple[Any, Any]:
    """The outermost numbers of a dtype that lie between the ends; the ends rounded where there are none."""
    low, high = (np.float64(end).astype(dtype.numpy) for end in ends)
    above, below = (
        np.nextafter(each, each.dtype.type(way)) for each, way in ((low, np.inf), (high, -np.inf))
    )
    first, last = float(low) - ends[0], ends[1] - float(high)
    inner = (
        above if first < 0 or (excluded[0] and not first) else low,
        below if last < 0 or (excluded[1] and not last) else high,
    )
    return inner if inner[0] <= inner[1] else (low, high)
