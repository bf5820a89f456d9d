"""How values are drawn: uniformly from an interval, normally, from a choice, or one value; the same seed gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.engines.threads import blocks_of, map_in_order

__all__ = ["DEFAULT", "Distribution", "draw_array", "generator"]

Array = np.ndarray[Any, Any]
_CHUNK = (
    1 << 18
)  # elements that have random numbers of their own, so that threads share them and none matters to another
_FACTORS = (1.0, 2.0)  # by which powers of ten an outlier is larger


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
    outliers: float = (
        0.0  # the share of elements, one at least, that are made 10 to 100 times larger
    )

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"a range from {self.low:g} to {self.high:g} is empty")
        if self.low == self.high and any(self.open):
            raise ValueError(f"a range that excludes its one value {self.low:g} is empty")
        if not 0 <= self.outliers <= 1:
            raise ValueError(f"a share of outliers is from 0 to 1, not {self.outliers:g}")
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
    """An array of a shape and dtype, drawn; how many threads do it does not matter."""
    kind, how = dtype.numpy, how.settled(rng)
    array = np.empty(shape, kind)
    flat = array.reshape(-1)
    chunks = blocks_of(flat.size, elements=_CHUNK)

    def fill(chunk: tuple[slice, np.random.Generator]) -> None:
        where, own = chunk
        for block in blocks_of(where.stop - where.start):
            part = flat[where][block]
            with np.errstate(
                over="ignore", invalid="ignore"
            ):  # what is too large for the dtype is infinite
                part[...] = _part(own, part.size, dtype, how, first=own is rng and not block.start)

    sources = [rng, *rng.spawn(max(len(chunks) - 1, 0))]
    for _ in map_in_order(fill, list(zip(chunks, sources, strict=False))):
        pass
    if how.includes and flat.size:
        places = rng.permutation(min(flat.size, 1 << 16))[: len(how.includes)]
        with np.errstate(over="ignore", invalid="ignore"):
            given = np.asarray(how.includes[: places.size], np.float64)
            flat[places] = given.astype(kind)
    return array


def _part(
    rng: np.random.Generator, count: int, dtype: DType, how: Distribution, first: bool
) -> Array:
    """So many values, in the dtype or a wider one; an outlier is among the first ones."""
    if how.choices:
        listed = np.asarray(how.choices, np.float64).astype(dtype.numpy)
        return np.asarray(listed[rng.integers(0, listed.size, count)])
    if dtype.kind == "bool":
        return _integers(rng, count, np.dtype(np.uint8), how, 1)
    if dtype.kind == "integer":
        return _integers(rng, count, dtype.numpy, how)
    values = _floats(rng, count, dtype, how)
    if how.outliers:
        places = np.flatnonzero(rng.random(count, np.float32) < how.outliers)
        if first and not places.size:
            places = rng.integers(count, size=1)
        values[places] *= 10.0 ** rng.uniform(*_FACTORS, places.size)
    return values


def _integers(
    rng: np.random.Generator,
    count: int,
    kind: np.dtype[Any],
    how: Distribution,
    largest: int | None = None,
) -> Array:
    info = np.iinfo(kind)
    least, most = int(info.min), int(info.max) if largest is None else largest
    if how.deviation is not None:
        values = np.rint(rng.normal(how.mean, how.deviation, count))
        return np.clip(values, max(least, -(2**53)), min(most, 2**53)).astype(kind)
    low, high = _whole(how.low, math.ceil), _whole(how.high, math.floor)
    low, high = low + (how.open[0] and low == how.low), high - (how.open[1] and high == how.high)
    low, high = (min(max(end, least), most) for end in (low, high))
    return rng.integers(low, max(high, low), count, kind, endpoint=True)


def _whole(end: float, toward: Callable[[float], int]) -> int:
    """An end of an interval as a whole number; NaN, which no integer is, as 0."""
    return toward(0.0 if math.isnan(end) else min(max(end, -(2.0**63)), 2.0**63))


def _floats(rng: np.random.Generator, count: int, dtype: DType, how: Distribution) -> Array:
    narrow = dtype.itemsize <= 4 and dtype.kind == "floating"
    work: Any = np.float32 if narrow else np.float64
    if how.deviation is not None:
        values = rng.standard_normal(count, work)
        values *= work(how.deviation)
        values += work(how.mean)
        return values
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
    if count:
        values[0], values[-1] = (
            end if math.isinf(end) else value
            for end, value in ((low, values[0]), (high, values[-1]))
        )
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
