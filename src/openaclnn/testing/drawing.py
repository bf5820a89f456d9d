"""What operators are tested on: one array drawn from a distribution, `draw` for the arguments of an operator, and recipes, which say all
this in words that draw the same bytes again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType, dtype_of_numpy
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.operators import find_operator
from openaclnn.testing.extras import dtype_named
from openaclnn.testing.figures import LEVELS, Array
from openaclnn.testing.goldens import operator_of, plan_of

_CHUNK = 1 << 18
"""Elements with random numbers of their own: threads share them, and none matters to another."""
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
    outliers: float = 0.0  # the share of elements, one at least, made 10 to 100 times larger

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
        where, numbers = chunk
        for block in blocks_of(where.stop - where.start):
            part = flat[where][block]
            with np.errstate(over="ignore", invalid="ignore"):  # too large for the dtype: infinite
                part[...] = _part(
                    numbers, part.size, dtype, how, first=numbers is rng and not block.start
                )

    sources = [rng, *rng.spawn(max(len(chunks) - 1, 0))]
    for _ in map_in_order(fill, list(zip(chunks, sources, strict=False))):
        pass
    if how.includes and flat.size:
        places = rng.permutation(min(flat.size, 1 << 16))[: len(how.includes)]
        with np.errstate(over="ignore", invalid="ignore"):
            included = np.asarray(how.includes[: places.size], np.float64)
            flat[places] = included.astype(kind)
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
    values = rng.integers(low, max(high, low), count, kind, endpoint=True)
    if max(-low, high) > 2**53:  # drawn in double, in which golden values are computed
        values -= values % kind.type(1 << max(-low, high).bit_length() - 53)
    return values


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


SPECIALS = ("nan", "inf", "zero", "subnormal", "extreme", "tie", "ignored", "boundary")
"""Kinds of special values: the first five for floating tensors, equal elements in tensors of one shape, targets that are
ignored, and targets of the first and the last class."""

_RANKS = {"rows": (2,), "pixels": (4,)}


def ranks_of(operator: Operator) -> tuple[int, ...]:
    """How many dimensions the main tensor may have."""
    any_rank, workloads = tuple(range(1, 9)), operator.workloads
    if operator.axis is not None:  # rows lie along any
        return any_rank
    ranks: tuple[int, ...] = getattr(workloads, "RANKS", _RANKS.get(workloads.PATTERN, any_rank))
    return ranks


def variants_of(operator: Operator) -> tuple[str, ...]:
    """The names of the operator's usual options."""
    return tuple(operator.workloads.VARIANTS)


def draw(
    operator: str | Operator | Callable[..., Any],
    shape: Sequence[int],
    dtype: str | DType = "float32",
    *,
    seed: int = 0,
    variant: str | None = None,
    how: Distribution | Mapping[str, Distribution] | None = None,
    special: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """Arguments of the plain call: arrays of one main shape (those of a broadcast, a row's class, … follow from it).

    Without `how`, values are what a training step would give. A distribution, or one for each parameter by name,
    draws the floating tensors anew. `special` names kinds of `SPECIALS` to strew in; `options` are arguments that
    take the place of the drawn ones. The same arguments give the same bytes.
    """
    operator = operator_of(operator)
    unknown = [name for name in special if name not in SPECIALS]
    if unknown:
        raise ValueError(f"unknown special values {unknown[0]!r}; known: {', '.join(SPECIALS)}")
    kind = dtype_named(dtype) if isinstance(dtype, str) else dtype
    variants = variants_of(operator)
    name = variants[0] if variant is None else variant
    if name not in variants:
        raise ValueError(f"{operator.name} has no variant {name!r}; known: {', '.join(variants)}")
    if len(shape) not in ranks_of(operator):
        expected = ", ".join(map(str, ranks_of(operator)))
        told = f"a shape of {expected} dimensions is expected, not {tuple(shape)}"
        raise ValueError(f"{operator.name}: {told}")
    arguments = operator.workloads.make(generator(seed, 0), kind, tuple(shape), name)
    if how is not None:
        _redraw(operator, arguments, how, seed)
    arguments |= options
    _fill_unread(operator, arguments, seed)
    if special:
        _put_specials(operator, arguments, special, generator(seed, 1))
    return dict(arguments)


def _floating(operator: Operator, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """The floating tensors among the arguments."""
    names = [p.python_name for p in operator.parameters if p.is_read]
    arrays = {n: arguments[n] for n in names if isinstance(arguments.get(n), np.ndarray)}
    types = {name: dtype_of_numpy(array.dtype) for name, array in arrays.items()}
    return {n: a for n, a in arrays.items() if (t := types[n]) is not None and t.kind == "floating"}


def _draw_anew(
    operator: Operator, arguments: dict[str, Any], seed: tuple[int, int], choose: Callable[[str], Distribution | None]
) -> None:  # fmt: skip
    """Draw the floating tensors for whose names a distribution is chosen."""
    for number, (name, array) in enumerate(_floating(operator, arguments).items()):
        how, dtype = choose(name), dtype_of_numpy(array.dtype)
        if how is not None:
            assert dtype is not None
            arguments[name] = draw_array(generator(*seed, number), array.shape, dtype, how)


def _redraw(
    operator: Operator,
    arguments: dict[str, Any],
    how: Distribution | Mapping[str, Distribution],
    seed: int,
) -> None:
    each = {} if isinstance(how, Distribution) else dict(how)
    for name in each:
        if name not in operator.plain_defaults:
            raise ValueError(f"{operator.name} has no parameter {name!r}")
    choose = each.get if not isinstance(how, Distribution) else lambda name: how
    _draw_anew(operator, arguments, (seed, 2), choose)
    settle = getattr(operator.workloads, "settle", None)
    if settle is not None:  # some tensors follow from others
        with np.errstate(all="ignore"):  # what is too large for the dtype is infinite
            arguments |= settle(arguments, frozenset(each))


def _fill_unread(operator: Operator, arguments: dict[str, Any], seed: int) -> None:
    """Tensors that no kernel reads may come without values; files of them must be the same every time."""
    read = {operator[each.parameter].python_name for each in plan_of(operator, arguments).inputs}
    _draw_anew(operator, arguments, (seed, 3), lambda name: None if name in read else DEFAULT)


def _put_specials(
    operator: Operator, arguments: dict[str, Any], special: Sequence[str], rng: np.random.Generator
) -> None:
    """Put special values at some places of tensors that have room for them."""
    floating = {n: a for n, a in _floating(operator, arguments).items() if a.size >= 16}
    for name in floating:
        arguments[name] = floating[name] = np.array(floating[name])
    domains = getattr(operator.workloads, "DOMAINS", {})
    for kind in special:
        for name, array in floating.items():
            values = _values(kind, array)
            low, high = domains.get(name, (-np.inf, np.inf))
            wide = values.astype(np.float64)
            values = values[~((wide < low) | (wide > high))]
            if values.size:
                _put(rng, array, values)
    if "tie" in special:
        _tie([array for name, array in floating.items() if name not in domains], rng)
    if {"ignored", "boundary"} & set(special):
        _mark_targets(operator, arguments, special, rng)


def _places(rng: np.random.Generator, array: Array) -> Array:
    return rng.integers(0, array.size, max(array.size // 32, 2))


def _put(rng: np.random.Generator, array: Array, values: Array) -> None:
    """Some elements have these values, in turn."""
    places = _places(rng, array)
    array.reshape(-1)[places] = np.resize(values, places.size)


def _values(kind: str, array: Array) -> Array:
    import ml_dtypes

    info = ml_dtypes.finfo(array.dtype)  # type: ignore[no-untyped-call]
    small, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    listed = {
        "nan": [np.nan], "inf": [np.inf, -np.inf], "zero": [0.0, -0.0],
        "subnormal": [small, -small, normal - small, normal],
        "extreme": [float(info.max), float(info.min)],
    }  # fmt: skip
    return np.array(listed.get(kind, []), np.float64).astype(array.dtype)


def _tie(arrays: list[Array], rng: np.random.Generator) -> None:
    """Some elements of tensors of one shape and dtype are equal."""
    for one, other in itertools.pairwise(arrays):
        if (one.shape, one.dtype) == (other.shape, other.dtype):
            places = _places(rng, one)
            other.reshape(-1)[places] = one.reshape(-1)[places]


def _mark_targets(
    operator: Operator, arguments: dict[str, Any], special: Sequence[str], rng: np.random.Generator
) -> None:
    plan = plan_of(operator, arguments)
    if plan.targets < 0:
        return
    name = operator[plan.inputs[plan.targets].parameter].python_name
    target = arguments[name] = np.array(arguments[name])
    marks = {"boundary": [0, plan.classes - 1], "ignored": [plan.numbers["ignore_index"]]}
    for kind in ("boundary", "ignored"):
        fits = [m for m in marks[kind] if np.iinfo(target.dtype).min <= m <= np.iinfo(target.dtype).max]  # fmt: skip
        if kind in special and fits and target.size:
            _put(rng, target, np.array(fits, target.dtype))


AMOUNTS = {"L0": 5_000, "L1": 10_000, "L2": 30_000}
"""How many cases the commercial standard asks for at each level; it also asks for 200 (L0) or 700 of every dtype,
which an even share of these is beyond."""


_UNIFORM = Distribution(-5, 5)
_NORMAL = Distribution(means=(-100, 100), deviations=(1, 25))
_OUTLIERS = Distribution(-5, 5, outliers=0.01)
_SMALL = Distribution(-0.001, 0.001)
_FULL_MIX = (
    _NORMAL, _UNIFORM, _OUTLIERS, _NORMAL, _SMALL, _UNIFORM, _NORMAL, _OUTLIERS, _UNIFORM, _NORMAL,
)  # fmt: skip
MIXES = {"L0": (_UNIFORM, _NORMAL), "L1": _FULL_MIX, "L2": _FULL_MIX}
"""How the cases of a level are drawn, in turn: at L0 half uniform, half normal; above, a tenth is small, 30% are uniform,
40% normal, and 20% have outliers."""


@dataclass(frozen=True)
class Recipe:
    """Cases of one operator: one kind many times, or (with a level) all kinds as the commercial standard draws them."""

    operator: str
    seed: int = 0
    count: int = 1
    shape: tuple[int, ...] = ()
    dtype: str = "FLOAT"
    variant: str | None = None
    how: Mapping[str, Distribution] = field(default_factory=dict)  # "" stands for all
    special: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    level: str = ""
    elements: int = 4096  # of the main shape of a level's cases, at most

    def __post_init__(self) -> None:
        find_operator(self.operator)
        dtype_named(self.dtype)
        if self.level and self.level not in LEVELS:
            raise ValueError(f"unknown level {self.level!r}; known: {', '.join(LEVELS)}")

    def names(self) -> list[str]:
        """The cases' names."""
        name = find_operator(self.operator).python_name
        return [f"{name}_{number:05d}" for number in range(self.count)]

    def arguments(self, number: int) -> dict[str, Any]:
        """The arguments of one case, whichever were drawn before."""
        if self.level:
            return self._of_level(number)
        return draw(
            self.operator, self.shape, self.dtype, seed=_seed(self.seed, number), variant=self.variant,
            how=self.how.get("", self.how or None), special=self.special, **self.options,
        )  # fmt: skip

    def _of_level(self, number: int) -> dict[str, Any]:
        """Dtypes, distributions, ranks and variants in turn."""
        operator, mix = find_operator(self.operator), MIXES[self.level]
        rng = generator(self.seed, 4, number)
        floats = [dtype for dtype in FLOATS if dtype in operator.data_dtypes]
        round_, dtype = number // len(floats), floats[number % len(floats)]
        how = mix[round_ % len(mix)].settled(rng)
        # One further after all distributions, so that each meets every rank and variant.
        turn = round_ + round_ // len(mix)
        ranks, variants = ranks_of(operator), variants_of(operator)
        rank, variant = ranks[turn % len(ranks)], variants[turn // len(ranks) % len(variants)]
        return draw(
            operator, _random_shape(rng, rank, self.elements), dtype, seed=_seed(self.seed, number),
            variant=variant, how=how, special=self.special, **self.options,
        )  # fmt: skip

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, name in enumerate(self.names()):
            yield name, self.arguments(number)

    def as_dict(self) -> dict[str, Any]:
        """The recipe as JSON holds it."""
        return asdict(self) | {"how": {name: asdict(each) for name, each in self.how.items()}}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Recipe:
        """The recipe that `as_dict` gave; ValueError where it is none."""
        try:
            how = {name: _distribution(each) for name, each in held["how"].items()}
            lists = {name: tuple(held[name]) for name in ("shape", "special")}
            return cls(**{**held, **lists, "how": how})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a recipe: {error}") from None


def _distribution(held: Mapping[str, Any]) -> Distribution:
    numbers: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in held.items()}
    return Distribution(**numbers)


def _seed(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


def _random_shape(rng: np.random.Generator, rank: int, elements: int) -> tuple[int, ...]:
    """Sizes whose product stays within bounds."""
    shape = []
    left = elements
    for axis in range(rank):
        most = max(int(left ** (1 / (rank - axis)) * 1.5), 1)
        shape.append(int(rng.integers(1, min(most, left) + 1)))
        left = max(left // shape[-1], 1)
    return tuple(int(size) for size in rng.permutation(shape))
