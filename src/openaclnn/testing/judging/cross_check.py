"""The commercial standard: errors are judged by those that a third party's output has against the same golden values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.testing.judging.figures import Array, blocks, errors_of, overflow_from
from openaclnn.testing.judging.limits import CROSS_CHECK, Limits, limits_of

__all__ = ["cross_check"]


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
