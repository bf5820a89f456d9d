"""`compare`: an output against its golden values by one of the field's precision standards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, FLOAT, DType, dtype_of_numpy
from openaclnn.core.interop import to_numpy
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.testing.extras import dtype_named
from openaclnn.testing.judging.figures import (
    BLOCK,
    CROSS_CHECK,
    LEVELS,
    STANDARDS,
    STRETCH,
    ULP_STEPS,
    Array,
    Computed,
    Limits,
    Tally,
    Tolerance,
    blocks,
    errors_of,
    flat,
    limits_of,
    overflow_from,
    precision,
    real_type,
    round_to,
    spacing,
)

__all__ = [
    "BadElement",
    "Comparison",
    "Rules",
    "Yardstick",
    "chosen",
    "compare",
    "cross_check",
    "faults",
    "judge",
    "worst",
]


@dataclass(frozen=True)
class BadElement:
    """An element that is not as it should be."""

    position: tuple[int, ...]
    actual: float
    golden: float
    error: float
    ulp: float


@dataclass(frozen=True)
class Comparison:
    """A verdict with its figures; true if it passed, and its text says why it did not."""

    standard: str
    dtype: str
    shape: tuple[int, ...]
    passed: bool
    reasons: tuple[str, ...]  # what the standard found fault with
    count: int = 0
    bad: int = 0
    figures: dict[str, float] | None = None
    ulp_histogram: tuple[tuple[str, int], ...] = ()
    first_bad: tuple[BadElement, ...] = ()
    output: str = ""  # which of several it is of
    golden_dtype: str = ""
    notes: tuple[str, ...] = ()  # on how it was judged

    def __bool__(self) -> bool:
        return self.passed

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has (but for NaN and infinities among the numbers)."""
        return asdict(self) | {"ulp_histogram": dict(self.ulp_histogram)}

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        own = f"{self.output}, " if self.output else ""
        lines = [f"{verdict}: {own}{self.standard}, {self.dtype}, shape {self.shape}"]
        lines += [f"  {sentence}" for sentence in (*self.notes, *self.reasons)]
        for each in self.first_bad:
            lines.append(
                f"  {each.position}: {each.actual!r}, golden {each.golden!r}, "
                f"error {each.error:.3g}, {each.ulp:.3g} ULP"
            )
        return "\n".join(lines)


def compare(
    actual: Any,
    golden: Any,
    third: Any = None,
    *,
    standard: str = STANDARDS[0],
    dtype: str | DType | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ptol: float | None = None,
    limit: float | None = None,
    level: str = "L1",
    positions: int = 10,
) -> Comparison:
    """Compare an output with its golden values; `third`, another party's output, is for cross_check.

    `dtype` is the output's where the array has another, as a dump widened to float32 has; without it, the narrower of
    output and golden values says which limits hold, and `notes` has that where they differ. `rtol`, `atol`, `ptol`
    (the share of elements that may be off) and `limit` take the place of the standard's own numbers. Golden values of a
    wider type are rounded to the output's for close, stat_rel_err and binary alone, whose bounds are smaller than that; those that
    overflow it are infinite for all. Integers must be equal.

    Several outputs, as named tuples, are compared each with its own; the answer is that of the worst.
    """
    rules = Rules(standard, rtol, atol, ptol, limit, level)
    if hasattr(golden, "_fields"):
        return _compare_each(actual, golden, third, rules, dtype, positions)
    return judge(_array(actual), _array(golden), third, rules, dtype, positions)


def _array(value: Any) -> Array:
    """An array of any library as NumPy's; PyTorch's also from a device, and those with gradients."""
    try:
        return to_numpy(value.detach().cpu() if hasattr(value, "detach") else value)
    except TypeError as error:
        raise TypeError(f"compare expects {error}") from None


def _compare_each(
    actual: Any, golden: Any, third: Any, rules: Rules, dtype: str | DType | None, kept: int
) -> Comparison:
    if not isinstance(actual, tuple) or len(actual) != len(golden):
        raise ValueError(f"{len(golden)} outputs are expected: {', '.join(golden._fields)}")
    found = {}
    others = (None,) * len(golden) if third is None else third
    for name, own, known, other in zip(golden._fields, actual, golden, others, strict=True):
        if known is None:
            continue  # not computed
        if own is None:
            raise ValueError(f"the output {name} is missing")
        found[name] = judge(_array(own), _array(known), other, rules, dtype, kept)
    return worst(found)


def worst(found: Mapping[str, Comparison]) -> Comparison:
    """The comparison of several outputs that decides: one that failed, else the one with the largest error."""

    def rank(name: str) -> tuple[bool, float, float]:
        own = found[name]
        return own.passed, -own.bad / max(own.count, 1), -(own.figures or {}).get("max_ulp", 0.0)

    name = min(found, key=rank)
    return replace(found[name], output=name)


def judge(
    actual: Array,
    golden: Array | Computed,
    third: Any,
    rules: Rules,
    dtype: str | DType | None,
    kept: int,
) -> Comparison:
    """`compare` on NumPy arrays; each element of the golden values is looked at once, but for cross_check's and bad ones."""
    for array in (actual, golden):
        if dtype_of_numpy(array.dtype) is None and array.dtype.kind not in "biufc":
            raise ValueError(f"numbers are expected, not an array of {array.dtype}")
    own, known = _judged_type(actual, golden, dtype), dtype_of_numpy(golden.dtype)
    about: dict[str, Any] = {
        "golden_dtype": known.name if known else str(golden.dtype),
        "notes": _notes(actual, known, own, dtype),
    }
    if actual.shape != golden.shape:
        text = f"the output has shape {actual.shape}, the golden values have {golden.shape}"
        return Comparison(rules.standard, own.name, actual.shape, False, (text,), **about)
    limits, stick = limits_of(own), Yardstick.of(rules, own)
    lines = flat(actual), flat(golden)

    def tallied(stretch: slice) -> Tally:
        tally = Tally(stick.dtype, stick.tolerance, chosen(rules.limit, limits.limit), kept)
        one, other = (line[stretch] for line in lines)
        for start, out, expected, differs in stick.blocks(one, other):
            tally.add(stretch.start + start, out, expected, differs)
        return tally

    tally, *others = map_in_order(
        tallied, blocks_of(lines[0].size, elements=STRETCH) or [slice(0, 0)]
    )
    for other in others:  # in their order, so that threads do not matter
        tally.join(other)
    reasons = list(faults(tally, rules, limits))
    figures = tally.figures()
    if rules.standard == "cross_check" and not stick.tolerance.exact:
        if third is None:
            raise ValueError("cross_check needs the output of a third party")
        peer = flat(_same_shape(_array(third), actual))
        reasons += cross_check(*lines, peer, stick.dtype, rules.level, figures)
    return Comparison(
        rules.standard, own.name, actual.shape, not reasons, tuple(reasons), tally.count, tally.bad,
        figures, tuple(zip(_labels(), tally.ulps.tolist(), strict=True)),
        tuple(_bad_elements(tally, lines, actual)), **about,
    )  # fmt: skip


def _judged_type(actual: Array, golden: Array | Computed, dtype: str | DType | None) -> DType:
    """The dtype whose limits hold: the one that is said, or of two floating ones the narrower."""
    if dtype is not None:
        return dtype if isinstance(dtype, DType) else dtype_named(dtype)
    own, known = dtype_of_numpy(actual.dtype) or FLOAT, dtype_of_numpy(golden.dtype)
    if known is None or (own.kind, known.kind) != ("floating", "floating"):
        return own
    return max(own, known, key=precision)


def _notes(actual: Array, known: DType | None, judged: DType, dtype: Any) -> tuple[str, ...]:
    """Golden values of float64 are the rule, of the output's dtype usual; others are worth a word."""
    own = dtype_of_numpy(actual.dtype)
    if dtype is not None or own is None or known in (None, own, DOUBLE):
        return ()
    narrower = ", the narrower" if judged is not own else ""
    return (f"the output is {own}, the golden values are {known}: judged as {judged}{narrower}",)


def _same_shape(third: Array, actual: Array) -> Array:
    if third.shape != actual.shape:
        raise ValueError(f"the third output has shape {third.shape}, the first {actual.shape}")
    return third


def _labels() -> list[str]:
    return [f"<= {step:g}" for step in ULP_STEPS] + [f"> {ULP_STEPS[-1]:g}"]


def _bad_elements(tally: Tally, lines: tuple[Array, Array], actual: Array) -> Iterator[BadElement]:
    shape = actual.shape if actual.dtype.kind != "c" else (*actual.shape, 2)
    for place in tally.places:
        one, other = (float(line[place : place + 1][0]) for line in lines)
        error = abs(one - other)
        unit = spacing(np.array(other), tally.dtype) if tally.dtype.kind == "floating" else 1.0
        position = tuple(int(index) for index in np.unravel_index(place, shape))
        yield BadElement(position, one, other, error, error / float(unit))


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
            given = getattr(self, name)
            if given is not None and not (given >= 0 and math.isfinite(given)):
                raise ValueError(f"{name}: expected a finite number of 0 or more, got {given}")
        if self.ptol is not None and not 0 <= self.ptol <= 1:
            raise ValueError(f"ptol: expected a share from 0 to 1, got {self.ptol}")
        if self.standard not in STANDARDS:
            raise ValueError(f"unknown standard {self.standard!r}; known: {', '.join(STANDARDS)}")
        if self.level not in LEVELS:
            raise ValueError(f"unknown level {self.level!r}; known: {', '.join(LEVELS)}")

    def told(self) -> str:
        """The standard, and the numbers that are not its own."""
        names = {
            "rtol": self.rtol,
            "atol": self.atol,
            "ptol": self.ptol,
            "limit": self.limit,
            "T": self.relative,
        }
        return " ".join([self.standard, *(f"{n}={v:g}" for n, v in names.items() if v is not None)])

    def tolerance(self, own: Limits) -> Tolerance:
        """What makes an element bad."""
        if self.standard == "binary":
            return Tolerance(0.0, 0.0, exact=True)
        rtol, atol = own.rtol, own.atol
        if self.standard == "close":
            rtol, atol = own.close, 1e-8
        elif self.standard == "stat_rel_err":
            rtol = 10 * chosen(self.relative, own.relative)
            atol = rtol * 1e-7
        return Tolerance(chosen(self.rtol, rtol), chosen(self.atol, atol))


def chosen(given: float | None, own: float) -> float:
    """A number that was asked for, else the standard's own."""
    return own if given is None else given


@dataclass(frozen=True)
class Yardstick:
    """What makes an element of an output bad: how far it may be off, or that its bytes are others."""

    dtype: DType  # the output's; of complex numbers, that of their parts
    tolerance: Tolerance
    rounded: bool  # golden values are rounded to the dtype before

    @classmethod
    def of(cls, rules: Rules, output: DType) -> Yardstick:
        """A standard's for outputs of a dtype; integers must be equal."""
        part = real_type(output)
        if part.kind in ("integer", "bool"):
            return cls(part, Tolerance(0.0, 0.0, exact=True), False)
        rounded = rules.standard in ("close", "stat_rel_err") and part.kind == "floating"
        return cls(part, rules.tolerance(limits_of(output)), rounded)

    def blocks(
        self, actual: Array, golden: Array
    ) -> Iterator[tuple[int, Array, Array, Array | None]]:
        """Stretches of both as float64, with their start, and which bytes differ where that is what counts."""
        for start, (one, other) in blocks(actual, golden):
            if self.rounded:
                other = round_to(other, self.dtype).astype(np.float64)
            exact = self.tolerance.exact
            yield start, one, other, self._differs(actual, golden, start) if exact else None

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


def faults(tally: Tally, rules: Rules, limits: Limits) -> Iterator[str]:
    """What one standard finds fault with, but for cross_check's ratios."""
    figures, standard, tolerance = tally.figures(), rules.standard, tally.tolerance
    if tally.special and not tolerance.exact:
        yield f"NaN or an infinity stands on one side alone at {tally.special} elements"
    if tolerance.exact:
        if tally.bad:
            yield f"{tally.bad} of {tally.count} elements have other bytes"
        return
    within = f"within rtol {tolerance.rtol:.4g}, atol {tolerance.atol:.4g}"
    if standard == "mixed":
        share = 1 - chosen(rules.ptol, 0.01)
        if figures["matched"] < share:
            yield f"{figures['matched']:.6g} of the elements are {within}; at least {share:g} must be"
        if tally.beyond:
            yield f"{tally.beyond} elements are off by more than {tally.limit:g} and by more than 32 ULP"
    elif standard == "close":
        share = chosen(rules.ptol, limits.close)
        if tally.bad > share * tally.count:
            yield f"{tally.bad / tally.count:.6g} of the elements are not {within}; at most {share:g} may be"
    elif standard == "stat_rel_err":
        mean = chosen(rules.relative, limits.relative)
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
    for name, (own, other), bound in zip(names, pairs, CROSS_CHECK[level], strict=True):
        ratio = own / other if other else (1.0 if own == other else math.inf)
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
        made = cls()
        for _, (one, other) in blocks(line, golden):
            error, size, finite, _ = errors_of(one, other, overflow)
            large = finite & (size >= limits.small)
            relative = error[large] / size[large]
            made.worst = max(made.worst, float(relative.max(initial=0)))
            made.relative += float(relative.sum())
            made.square += float(np.square(error[large]).sum())
            made.large += relative.size
            made.counted += int((error[finite & ~large] > limits.small_atol).sum())
        return made

    def errors(self) -> tuple[float, float, float]:
        count = max(self.large, 1)
        return self.worst, self.relative / count, math.sqrt(self.square / count)
