"""A row's numbers in the cross entropy gradient, FLOAT64: of one row as scalars, of several as vectors.

A row is factor * exp(logProb) - smooth * weight, and nll less at its target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openaclnn.engines.cpu.arithmetic.doubles import power64
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

__all__ = ["INFINITE", "Numbers", "Sums", "numbers_of", "sums_of"]

# Beyond, exp is infinite in FLOAT64 too. The formula then has infinity times each of a row's terms, one of which may be 0;
# below, FLOAT's infinity stands for a number, which the terms' sum multiplies.
INFINITE = 709.78


class Sums(NamedTuple):
    """W and the number of counted rows (both 1 unless mean), the sum of all weights, and of infinity times each: FLOAT64."""

    total: Value
    rows_counted: Value
    weight_sum: Value
    infinite_sum: Value

    def times(self, smooth: Value) -> Value:
        """The sum of smooth * weight over all classes, of which each term may be infinite, or NaN."""
        infinite = abs(smooth) == float("inf")
        each: Value = infinite.choose(smooth * self.infinite_sum, smooth * self.weight_sum)
        return each


def sums_of(code: Code, parameters: Parameters, target: str) -> Sums:
    positions, classes, scratch = parameters["positions"], parameters["classes"], parameters.scratch
    mean = parameters.flag("mean")
    weighted = parameters.flag("weighted")
    zero = code.integer(0)
    total, rows_counted = totals.in_blocks(
        code, mean.choose(positions, zero), scratch, zero, 2,
        lambda start, stop: totals.sum_targets(code, parameters, start, stop, target, "f32"),
    )  # fmt: skip
    weight_sum, infinite_sum = totals.in_blocks(
        code, weighted.choose(classes, zero), scratch,
        (positions + (totals.BLOCK - 1)).unsigned_div(totals.BLOCK), 2,
        lambda start, stop: totals.sum_weights(code, parameters, start, stop),
    )  # fmt: skip
    return Sums(
        mean.choose(total, 1.0),
        mean.choose(rows_counted, 1.0),
        weighted.choose(weight_sum, classes.to("f64")),
        weighted.choose(infinite_sum, float("inf")),
    )


class Numbers(NamedTuple):
    """What a row's elements follow from."""

    code: Code
    smooths: Value
    target_weight: Value  # 0 where the target does not count
    nll: Value
    smooth: Value
    lse_factor: Value
    smooth_factor: Value
    factor: Value
    infinite: Value  # what the terms give together where exp is infinite: infinity, or NaN

    def at_target(self, x: Value) -> Value:
        """The element of the target's class, whose logProb is x."""
        probability = power64(self.code, x)
        # Smoothing's two terms apart from the others: each pair may cancel.
        picked = probability * (self.nll + self.lse_factor) - self.nll
        smoothed = probability * self.smooth_factor - self.smooth * self.target_weight
        usual = self.smooths.choose(picked + smoothed, probability * self.factor - self.nll)
        return (x > INFINITE).choose(self.infinite - self.nll, usual)

    def rounded(self) -> tuple[Value, Value, Value]:
        """The factor, what is added (times a weight or not; without smoothing minus zero), and `infinite`: FLOAT."""
        factor, infinite = self.factor.to("f32"), self.infinite.to("f32")
        addend = self.smooths.choose((-self.smooth).to("f32"), -0.0)
        # NaN with an empty low half, whatever came in: rounding to bfloat16 needs that.
        return _plain(factor), _plain(addend), _plain(infinite)


def _plain(value: Value) -> Value:
    return value.is_nan().choose(float("nan"), value)


def numbers_of(
    code: Code, parameters: Parameters, sums: Sums, counted: Value, weight: Callable[[], Value],
    read: Callable[[str], Value],
) -> Numbers:  # fmt: skip
    """`weight()` is that of the target's class where it counts, `read(operand)` the row's element; both FLOAT64."""
    mask = counted.to("f64")
    target_weight = code.variable(mask)
    with code.when(parameters.flag("weighted")):
        target_weight.set(counted.choose(weight(), 0.0))
    gradient, smoothing = read("gradient"), parameters.double("smoothing")
    nll = gradient * (1.0 - smoothing) / sums.total * mask * target_weight.get()
    # Without smoothing this is 0, or NaN where the gradient or the total makes it so, as in the formula.
    smooth = gradient / sums.total * smoothing / parameters["classes"].to("f64") * mask
    smooth_factor, infinity = sums.times(smooth), float("inf")
    infinite = code.variable(nll * infinity + smooth_factor * infinity)
    lse_factor = code.variable(code.double(0.0).splat(mask.lanes))
    with code.when(parameters.flag("zloss")):
        both = code.variable(gradient)
        with code.when(parameters.flag("grad_zloss_given")):
            both.set(both.get() + read("grad_zloss"))
        scale = read("lse") * parameters.double("zloss_scale") * mask
        lse_factor.set(scale * (both.get() / sums.rows_counted))
        infinite.set(infinite.get() + lse_factor.get() * infinity)
    return Numbers(
        code, parameters.flag("smooths"), target_weight.get(), nll, smooth, lse_factor.get(),
        smooth_factor, nll + smooth_factor + lse_factor.get(), infinite.get(),
    )  # fmt: skip
