"""The precision standards as rules: what makes an element bad, and what a whole output is found fault with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.testing.judging.figures import BLOCK, Array, Tally, blocks, round_to
from openaclnn.testing.judging.limits import (
    LEVELS,
    STANDARDS,
    Limits,
    Tolerance,
    limits_of,
    real_type,
)

__all__ = ["Rules", "Yardstick", "chosen", "faults"]


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
