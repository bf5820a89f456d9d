"""The precision standards as rules: what makes an element bad, and what a whole output is found fault with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openaclnn.testing.figures import Tally
from openaclnn.testing.limits import LEVELS, STANDARDS, Limits, Tolerance

__all__ = ["Rules", "chosen", "faults"]


@dataclass(frozen=True)
class Rules:
    """A standard with the numbers it is applied with; None stands for the standard's own."""

    standard: str = STANDARDS[0]
    rtol: float | None = None
    atol: float | None = None
    ptol: float | None = None
    limit: float | None = None
    level: str = "L1"

    def __post_init__(self) -> None:
        if self.standard not in STANDARDS:
            raise ValueError(f"unknown standard {self.standard!r}; known: {', '.join(STANDARDS)}")
        if self.level not in LEVELS:
            raise ValueError(f"unknown level {self.level!r}; known: {', '.join(LEVELS)}")

    def tolerance(self, own: Limits) -> Tolerance:
        """What makes an element bad."""
        if self.standard == "binary":
            return Tolerance(0.0, 0.0, exact=True)
        rtol, atol = own.rtol, own.atol
        if self.standard == "close":
            rtol, atol = own.close, 1e-8
        elif self.standard == "stat_rel_err":
            rtol, atol = 10 * own.relative, 10 * own.relative * 1e-7
        return Tolerance(chosen(self.rtol, rtol), chosen(self.atol, atol))


def chosen(given: float | None, own: float) -> float:
    """A number that was asked for, else the standard's own."""
    return own if given is None else given


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
        for name, bound in (("MERE", limits.relative), ("MARE", 10 * limits.relative)):
            if not figures[name] < bound:
                yield f"{name} is {figures[name]:.4g}; it must be less than {bound:.4g}"
    elif standard == "cosine":
        if not 1 - figures["cosine_similarity"] <= 0.01:
            yield f"the cosine is {figures['cosine_similarity']:.6g}; it must be at least 0.99"
