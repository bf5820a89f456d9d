"""The precision standards: what they allow by the dtype of the output, the figures they judge by, and what they find fault with.

Figures are taken in one pass over both arrays, a block at a time, so that neither needs to fit in memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, COMPLEX64, COMPLEX128, DOUBLE, FLOAT, FLOAT16, DType

STANDARDS = ("mixed", "stat_rel_err", "close", "cosine", "binary", "cross_check")
"""The precision standards by name; the first is the default."""

LEVELS = ("L0", "L1", "L2")
"""The commercial standard's levels, the mildest first."""

_CROSS_CHECK = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}
"""By level: how many times the third party's maximum, mean relative and root mean square error are allowed."""


@dataclass(frozen=True)
class Limits:
    """One dtype's row of the standards."""

    rtol: float  # mixed
    atol: float
    limit: float  # the largest absolute error, unless it is 32 ULP or less
    relative: float  # stat_rel_err: the mean; the maximum may be ten times that
    close: float  # close: rtol, and the share of elements beyond
    small: float  # cross_check: below, errors are counted
    small_atol: float


_LIMITS = {
    FLOAT16: Limits(2**-9, 2**-9, 0.1, 2**-10, 1e-3, 2**-11, 2**-16),
    BFLOAT16: Limits(2**-6, 2**-6, 1.0, 2**-7, 1e-3, 2**-8, 2**-16),
    FLOAT: Limits(2**-10, 2**-16, 0.01, 2**-13, 1e-4, 2**-14, 2**-30),
}


def limits_of(dtype: DType) -> Limits:
    """The dtype's row; what the standards have no row for is held to FLOAT's."""
    return _LIMITS.get(real_type(dtype), _LIMITS[FLOAT])


def real_type(dtype: DType) -> DType:
    """The type of a complex number's parts; any other type itself."""
    return {COMPLEX64: FLOAT, COMPLEX128: DOUBLE}.get(dtype, dtype)


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rules:
    """A standard with the numbers it is applied with; None stands for the standard's own."""

    standard: str = STANDARDS[0]
    rtol: float | None = None
    atol: float | None = None
    ptol: float | None = None
    limit: float | None = None
    level: str = "L1"
    relative: float | None = None  # stat_rel_err's T

    def __post_init__(self) -> None:
        for name in ("rtol", "atol", "limit", "relative"):
            number = getattr(self, name)
            if number is not None and not (number >= 0 and math.isfinite(number)):
                raise ValueError(f"{name}: expected a finite number of 0 or more, got {number}")
        if self.ptol is not None and not 0 <= self.ptol <= 1:
            raise ValueError(f"ptol: expected a share from 0 to 1, got {self.ptol}")
        if self.standard not in STANDARDS:
            raise ValueError(f"unknown standard {self.standard!r}; known: {', '.join(STANDARDS)}")
        if self.level not in LEVELS:
            raise ValueError(f"unknown level {self.level!r}; known: {', '.join(LEVELS)}")

    def told(self) -> str:
        """The standard, and the numbers that are not its own."""
        names = {"rtol": self.rtol, "atol": self.atol, "ptol": self.ptol, "limit": self.limit, "T": self.relative}  # fmt: skip
        return " ".join([self.standard, *(f"{n}={v:g}" for n, v in names.items() if v is not None)])


def _chosen(asked: float | None, standard: float) -> float:
    """A number that was asked for, else the standard's own."""
    return standard if asked is None else asked


BLOCK = 1 << 15
"""Elements that are looked at together: their float64 stay in a core's cache."""

STRETCH = 1 << 19
"""Elements that one thread looks at, a block after another."""

ULP_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""The upper ends of the ULP histogram's bins; one more takes the rest, and two what has no ULP: NaN and infinities."""

_EXPONENT = np.int64(0x7FF0 << 48)
_FLOOR = 1e-7  # what MERE and MARE add to the golden value's size


@dataclass(frozen=True)
class Computed:
    """Golden values in float64 that are computed when they are looked at, a stretch of their elements in one line at a time."""

    shape: tuple[int, ...]
    compute: Callable[[slice], Array]
    dtype = np.dtype(np.float64)

    def reshape(self, shape: tuple[int, ...]) -> Computed:
        return Computed(shape, self.compute)

    def __getitem__(self, stretch: slice) -> Array:
        return self.compute(stretch)


def flat(array: Array | Computed) -> Any:
    """One axis; complex numbers as pairs."""
    if isinstance(array, Computed):
        return array
    line = array.reshape(-1)
    return line.view(line.real.dtype) if line.dtype.kind == "c" else line


def blocks(*arrays: Array) -> Iterator[tuple[int, list[Array]]]:
    """The same stretch of each array, as float64, with its start."""
    for start in range(0, arrays[0].size, BLOCK):
        yield (
            start,
            [array[start : start + BLOCK].astype(np.float64, copy=False) for array in arrays],
        )


@functools.cache
def _details(dtype: DType) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]


def precision(dtype: DType) -> float:
    """The distance from 1 to the next number of a floating dtype: larger for a narrower one."""
    return float(_details(dtype).eps)


def spacing(values: Array, dtype: DType, out: Array | None = None) -> Array:
    """The distance between neighbouring numbers of a floating dtype at float64 values."""
    details = _details(dtype)
    lowest = float(details.smallest_normal)
    # A float64 with its sign and fraction cleared is the power of two below it.
    words = None if out is None else out.view(np.int64)
    bits = np.bitwise_and(np.asarray(values, np.float64).view(np.int64), _EXPONENT, out=words)
    power = np.asarray(bits).view(np.float64)
    if power.min(initial=lowest) < lowest:
        power = np.maximum(power, lowest, out=out)
    return np.multiply(power, float(details.eps), out=out)


def round_to(exact: Array, dtype: DType) -> Array:
    """Values rounded once to a dtype, ties to even; integers are cut off towards 0, and those beyond are the nearest that there is."""
    with np.errstate(all="ignore"):
        if dtype.kind == "integer" and exact.dtype.kind == "f":
            bounds = np.iinfo(dtype.numpy)
            within = (exact > bounds.min) & (exact < bounds.max)
            beyond = np.where(exact > 0, bounds.max, np.where(exact < 0, bounds.min, 0))
            return np.where(within, exact.astype(dtype.numpy), beyond).astype(dtype.numpy)
        if dtype is BFLOAT16 and exact.dtype != dtype.numpy:
            # Its conversion rounds to float32 first; a multiple of the spacing is exact.
            exact = np.asarray(exact, np.float64)
            unit = spacing(exact, dtype)
            exact = np.where(np.isfinite(exact), np.rint(exact / unit) * unit, exact)
        return np.asarray(exact).astype(dtype.numpy)


@functools.cache
def overflow_from(dtype: DType) -> float:
    """The size from which a float64 rounds to infinity in a dtype."""
    if dtype.kind != "floating" or dtype.itemsize == 8:
        return math.inf
    details = _details(dtype)
    largest = float(details.max)
    return largest + 2.0 ** math.floor(math.log2(largest)) * float(details.eps) / 2


def errors_of(
    actual: Array, golden: Array, overflow: float, places: Sequence[Array | None] = (None, None)
) -> tuple[Array, Array, tuple[Array, Array] | None]:
    """Errors and sizes, 0 where not both are finite; which are, and where special values disagree: of the usual block, where all are finite, None.

    The usual block's errors and sizes are in their `places`."""
    with np.errstate(all="ignore"):
        error = np.subtract(actual, golden, out=places[0])
        np.abs(error, out=error)
        size = np.abs(golden, out=places[1])
        if math.isfinite(float(error.sum())) and size.max(initial=0) < overflow:
            return error, size, None
        golden = np.where(size >= overflow, np.copysign(np.inf, golden), golden)
        finite = np.isfinite(actual) & np.isfinite(golden)
        agree = finite | (actual == golden) | (np.isnan(actual) & np.isnan(golden))
        return np.where(finite, error, 0.0), np.where(finite, size, 0.0), (finite, ~agree)


@dataclass(frozen=True)
class Yardstick:
    """What makes an element a of an output bad beside its golden value g: abs(a - g) > atol + rtol abs(g), or that its bytes are others."""

    dtype: DType  # the output's; of complex numbers, that of their parts
    rtol: float = 0.0
    atol: float = 0.0
    exact: bool = False  # the same bytes
    rounded: bool = False  # golden values are rounded to the dtype before
    limit: float = 0.0  # what an error may be, unless it is 32 ULP or less

    @classmethod
    def of(cls, rules: Rules, output: DType) -> Yardstick:
        """A standard's for outputs of a dtype; integers must be equal."""
        part, limits = real_type(output), limits_of(output)
        limit = _chosen(rules.limit, limits.limit)
        if rules.standard == "binary" or part.kind in ("integer", "bool"):
            return cls(part, exact=True, limit=limit)
        rtol, atol = limits.rtol, limits.atol
        if rules.standard == "close":
            rtol, atol = limits.close, 1e-8
        elif rules.standard == "stat_rel_err":
            rtol = 10 * _chosen(rules.relative, limits.relative)
            atol = rtol * 1e-7
        rounded = rules.standard in ("close", "stat_rel_err") and part.kind == "floating"
        return cls(
            part, _chosen(rules.rtol, rtol), _chosen(rules.atol, atol), rounded=rounded, limit=limit
        )  # fmt: skip

    def allowed(self, size: Array, out: Array | None = None) -> Array:
        """The error allowed at these sizes of golden values."""
        return np.asarray(np.add(np.multiply(size, self.rtol, out=out), self.atol, out=out))

    def blocks(
        self, actual: Array, golden: Array
    ) -> Iterator[tuple[int, Array, Array, Array | None]]:
        """Stretches of both as float64, with their start, and which bytes differ where that is what counts."""
        for start, (one, other) in blocks(actual, golden):
            if self.rounded:
                other = round_to(other, self.dtype).astype(np.float64)
            yield start, one, other, self._differs(actual, golden, start) if self.exact else None

    def _differs(self, actual: Array, golden: Array, start: int) -> Array:
        """Golden values rounded to the output's type; NaN equals NaN."""
        lines = (actual, golden)
        one, other = (round_to(line[start : start + BLOCK], self.dtype) for line in lines)
        with np.errstate(all="ignore"):
            word = np.dtype(f"u{self.dtype.itemsize}")
            both_nan = np.zeros(one.shape, bool)
            if self.dtype.kind == "floating":
                both_nan = np.isnan(one) & np.isnan(other)
            return np.asarray((one.view(word) != other.view(word)) & ~both_nan)


@dataclass
class Tally:
    """Sums and extremes over all blocks of one output against its golden values."""

    stick: Yardstick
    kept: int  # bad positions to remember
    count: int = 0
    finite: int = 0
    special: int = 0  # elements where NaN or an infinity stands on one side alone
    bad: int = 0
    beyond: int = 0  # elements off by more than the limit and more than 32 ULP
    largest: float = 0.0
    largest_ulp: float = 0.0
    largest_relative: float = 0.0
    mare: float = 0.0
    sums: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("error", "square", "size", "golden", "actual", "dot", "relative", "mere"), 0.0
        )
    )
    nonzero: int = 0
    ulps: Array = field(default_factory=lambda: np.zeros(len(ULP_STEPS) + 1, np.int64))
    places: list[int] = field(default_factory=list)
    _scratch: Array = field(default_factory=lambda: np.empty((3, BLOCK)), repr=False)

    def add(self, start: int, actual: Array, golden: Array, differs: Array | None = None) -> None:
        """Count a block; `differs` says which elements have other bytes, where that is the rule."""
        *places, scratch = (line[: actual.size] for line in self._scratch)
        with np.errstate(all="ignore"):
            error, size, special = errors_of(actual, golden, overflow_from(self.stick.dtype), places)  # fmt: skip
            bad = error > self.stick.allowed(size, scratch) if differs is None else differs
            finite = None
            if special is not None:
                finite, apart = special
                actual, golden = np.where(finite, actual, 0.0), np.where(finite, golden, 0.0)
                self.special += int(np.count_nonzero(apart))
                bad = bad | apart if differs is None else differs
            self.count += error.size
            self.finite += error.size if finite is None else int(np.count_nonzero(finite))
            self._note(start, bad)
            self._measure(error, size, scratch, finite)
            for name, value in (
                ("error", error.sum()), ("square", _dot(error, error)), ("size", size.sum()),
                ("golden", _dot(golden, golden)), ("actual", _dot(actual, actual)), ("dot", _dot(actual, golden)),
            ):  # fmt: skip
                self.sums[name] += float(value)  # a sum that overflows is infinite, and says so

    def _note(self, start: int, bad: Array) -> None:
        count = int(np.count_nonzero(bad))
        self.bad += count
        if count and len(self.places) < self.kept:
            wanted = self.kept - len(self.places)
            self.places += [start + int(place) for place in np.flatnonzero(bad)[:wanted]]

    def _measure(self, error: Array, size: Array, scratch: Array, finite: Array | None) -> None:
        """The errors in ULP and relative to the golden values."""
        worst = float(error.max(initial=0))
        self.largest = max(self.largest, worst)
        ulp = error
        if self.stick.dtype.kind == "floating":
            ulp = np.divide(error, spacing(size, self.stick.dtype, scratch), out=scratch)
        self.largest_ulp = max(self.largest_ulp, float(ulp.max(initial=0)))
        if worst > self.stick.limit:
            self.beyond += int(np.count_nonzero((error > self.stick.limit) & (ulp > 32)))
        self._count_ulps(ulp if finite is None else ulp[finite])
        known = np.divide(error, np.add(size, _FLOOR, out=scratch), out=scratch)
        self.sums["mere"] += float(known.sum())
        self.mare = max(self.mare, float(known.max(initial=0)))
        relative = np.divide(error, size, out=scratch)
        self.nonzero += size.size
        if not size.all():
            zero = size == 0
            self.nonzero -= int(np.count_nonzero(zero))
            relative[zero] = 0.0
        self.sums["relative"] += float(relative.sum())
        self.largest_relative = max(self.largest_relative, float(relative.max(initial=0)))

    def join(self, later: Tally) -> None:
        """Count what another has counted of the elements behind these."""
        for name in ("count", "finite", "special", "bad", "beyond", "nonzero", "ulps"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for name in ("largest", "largest_ulp", "largest_relative", "mare"):
            setattr(self, name, max(getattr(self, name), getattr(later, name)))
        for name, value in later.sums.items():
            self.sums[name] += value
        self.places += later.places[: self.kept - len(self.places)]

    def _count_ulps(self, ulp: Array) -> None:
        within = 0  # so many are below the last step
        for number, step in enumerate((*ULP_STEPS, math.inf)):
            if within == ulp.size:
                break
            now = ulp.size if step == math.inf else int(np.count_nonzero(ulp <= step))
            self.ulps[number] += now - within
            within = now

    def bins(self) -> list[int]:
        """Every element once: by ULP, then those with a NaN or an infinity, which agree and which do not."""
        return [*self.ulps.tolist(), self.count - self.finite - self.special, self.special]

    def figures(self) -> dict[str, float]:
        """The figures by name; the first eight are those of the older comparison script."""
        count, sums = max(self.finite, 1), self.sums
        return {
            "cosine_similarity": self._cosine(),
            "max_absolute_error": self.largest,
            "accumulated_relative_error": _ratio(sums["error"], sums["size"]),
            "relative_euclidean_distance": _ratio(
                math.sqrt(sums["square"]), math.sqrt(sums["golden"])
            ),
            "mean_absolute_error": sums["error"] / count,
            "root_mean_square_error": math.sqrt(sums["square"] / count),
            "max_relative_error": self.largest_relative,
            "mean_relative_error": sums["relative"] / max(self.nonzero, 1),
            "MERE": sums["mere"] / count,
            "MARE": self.mare,
            "matched": 1 - self.bad / self.count if self.count else 1.0,
            "max_ulp": self.largest_ulp,
        }

    def _cosine(self) -> float:
        norm = math.sqrt(self.sums["golden"]) * math.sqrt(self.sums["actual"])
        if norm == 0:  # nothing on one side or both
            return 1.0 if self.sums["golden"] == self.sums["actual"] else 0.0
        return min(self.sums["dot"] / norm, 1.0)


def _dot(one: Array, other: Array) -> Any:
    """Without BLAS, whose threads cost more than they gain on blocks of this size."""
    return np.einsum("i,i->", one, other)


def _ratio(one: float, other: float) -> float:
    if other == 0:
        return 0.0 if one == 0 else math.inf
    return one / other


def faults(tally: Tally, rules: Rules) -> Iterator[str]:
    """What one standard finds fault with, but for cross_check's ratios."""
    figures, standard, stick = tally.figures(), rules.standard, tally.stick
    limits = limits_of(stick.dtype)
    if tally.special and not stick.exact:
        yield f"NaN or an infinity stands on one side alone at {tally.special} elements"
    if stick.exact:
        if tally.bad:
            yield f"{tally.bad} of {tally.count} elements have other bytes"
        return
    within = f"within rtol {stick.rtol:.4g}, atol {stick.atol:.4g}"
    if standard == "mixed":
        share = 1 - _chosen(rules.ptol, 0.01)
        if figures["matched"] < share:
            yield f"{figures['matched']:.6g} of the elements are {within}; at least {share:g} must be"
        if tally.beyond:
            yield f"{tally.beyond} elements are off by more than {stick.limit:g} and by more than 32 ULP"
    elif standard == "close":
        share = _chosen(rules.ptol, limits.close)
        if tally.bad > share * tally.count:
            yield f"{tally.bad / tally.count:.6g} of the elements are not {within}; at most {share:g} may be"
    elif standard == "stat_rel_err":
        mean = _chosen(rules.relative, limits.relative)
        for name, bound in (("MERE", mean), ("MARE", 10 * mean)):
            if not figures[name] < bound:
                yield f"{name} is {figures[name]:.4g}; it must be less than {bound:.4g}"
    elif standard == "cosine":
        if not 1 - figures["cosine_similarity"] <= 0.01:
            yield f"the cosine is {figures['cosine_similarity']:.6g}; it must be at least 0.99"


def cross_check(
    actual: Array, golden: Array, third: Array, dtype: DType, level: str, figures: dict[str, float]
) -> list[str]:
    """The output's errors over the third party's: what is found fault with; the ratios join the figures."""
    limits, overflow = limits_of(dtype), overflow_from(dtype)
    ours, theirs = (_LargeAndSmall.of(each, golden, limits, overflow) for each in (actual, third))
    reasons = []
    names = ("max_relative_ratio", "mean_relative_ratio", "rmse_ratio")
    pairs = zip(ours.errors(), theirs.errors(), strict=True)
    for name, (measured, other), bound in zip(names, pairs, _CROSS_CHECK[level], strict=True):
        ratio = measured / other if other else (1.0 if measured == other else math.inf)
        figures[name] = ratio
        if not ratio <= bound:
            reasons.append(f"{name} is {ratio:.4g}; {level} allows {bound:g}")
    figures["small_errors"], figures["third_small_errors"] = ours.counted, theirs.counted
    if ours.counted > 2 * theirs.counted:
        reasons.append(
            f"{ours.counted} errors above {limits.small_atol:.3g} where golden values are small; "
            f"the third party has {theirs.counted}, and twice that is allowed"
        )
    return reasons


@dataclass
class _LargeAndSmall:
    """cross_check's errors of one party: where golden values are large, and counted where they are small."""

    worst: float = 0.0
    relative: float = 0.0
    square: float = 0.0
    large: int = 0
    counted: int = 0

    @classmethod
    def of(cls, line: Array, golden: Array, limits: Limits, overflow: float) -> _LargeAndSmall:
        errors = cls()
        for _, (one, other) in blocks(line, golden):
            error, size, _ = errors_of(one, other, overflow)
            large = size >= limits.small
            relative = error[large] / size[large]
            errors.worst = max(errors.worst, float(relative.max(initial=0)))
            errors.relative += float(relative.sum())
            errors.square += float(np.square(error[large]).sum())
            errors.large += relative.size
            errors.counted += int((error[~large] > limits.small_atol).sum())
        return errors

    def errors(self) -> tuple[float, float, float]:
        count = max(self.large, 1)
        return self.worst, self.relative / count, math.sqrt(self.square / count)
