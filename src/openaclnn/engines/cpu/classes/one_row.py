"""One row of the cross entropy gradient: its numbers in FLOAT64, its target's element, and the rest.

A row is factor * exp(logProb) - smooth * weight, and nll less at its target.
"""

from __future__ import annotations

from dataclasses import dataclass

from openaclnn.engines.cpu.classes import rows, totals
from openaclnn.engines.cpu.classes.doubles import exp64
from openaclnn.engines.cpu.classes.parameters import Parameters
from openaclnn.engines.cpu.classes.row_formula import CONSTANT, PLAIN, WEIGHTS, Terms
from openaclnn.engines.cpu.classes.targets import Targets
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value


@dataclass(frozen=True)
class Sums:
    """W and the number of counted rows (both 1 unless mean), and the sum of all weights: FLOAT64."""

    total: Value
    rows_counted: Value
    weight_sum: Value


def row_sums(code: Code, parameters: Parameters, target: str) -> Sums:
    """Computed here, or added up from what another kernel left in scratch memory."""
    positions, classes, scratch = parameters["positions"], parameters["classes"], parameters.scratch
    mean = parameters["mean"].differs(0)
    weighted = parameters["weighted"].differs(0)
    zero = code.integer(0)
    total, rows_counted = totals.in_blocks(
        code, mean.choose(positions, zero), scratch, zero, 2,
        lambda start, stop: totals.sum_targets(code, parameters, start, stop, target, "f32"),
    )  # fmt: skip
    (weight_sum,) = totals.in_blocks(
        code, weighted.choose(classes, zero), scratch,
        (positions + (totals.BLOCK - 1)) // totals.BLOCK, 1,
        lambda start, stop: (totals.sum_weights(code, parameters, start, stop),),
    )  # fmt: skip
    return Sums(
        mean.choose(total, 1.0),
        mean.choose(rows_counted, 1.0),
        weighted.choose(weight_sum, classes.to("f64")),
    )


def emit_one_row(
    code: Code, parameters: Parameters, dtype: str, target: str, position: Value,
    first_class: Value, row: rows.Row, sums: Sums, buffers: rows.Buffers,
) -> None:  # fmt: skip
    """A row's chunk of classes. Its target's element is read before and written after all others."""
    size = SIZE[dtype]

    def at(operand: str) -> Value:
        return parameters.address(operand) + position * parameters[f"{operand}.step2"]

    targets = Targets(code, parameters, target)
    weighted = parameters["weighted"].differs(0)
    own = targets.at(at("target"))
    label, counted = own.label, own.counted
    with code.when(own.stray, likely=False):
        parameters.report_stray()
    mask = counted.to("f64")
    target_weight = code.variable(mask)
    with code.when(counted & weighted):
        place = parameters.address("weight") + label * parameters["weight.class_step"]
        target_weight.set(code.load(place, "f32").to("f64"))

    gradient = code.load(at("gradient"), dtype).to("f64")
    smoothing = parameters.double("smoothing")
    nll = gradient * (1.0 - smoothing) / sums.total * mask * target_weight.get()
    # Without smoothing this is 0, or NaN where the gradient or the total makes it so, as in the formula.
    smooth = gradient / sums.total * smoothing / targets.classes.to("f64") * mask
    lse_factor = code.variable(code.double(0.0))
    with code.when(parameters["zloss"].differs(0)):
        both = code.variable(gradient)
        with code.when(parameters["grad_zloss_given"].differs(0)):
            both.set(both.get() + code.load(at("grad_zloss"), dtype).to("f64"))
        lse = code.load(at("lse"), dtype).to("f64")
        scale = parameters.double("zloss_scale") * lse * mask
        lse_factor.set(scale * (both.get() / sums.rows_counted))
    factor = nll + smooth * sums.weight_sum + lse_factor.get()

    column = label - first_class
    hit = counted & column.below(row.count)
    exact = code.variable(code.double(0.0))
    with code.when(hit):
        x = code.load(row.log_prob + column * size, dtype).to("f64")
        probability = exp64(code, x)
        # Smoothing's two terms apart from the others: each pair may cancel.
        picked = probability * (nll + lse_factor.get()) - nll
        smoothed = probability * (smooth * sums.weight_sum) - smooth * target_weight.get()
        smooths = parameters["smooths"].differs(0)
        exact.set(smooths.choose(picked + smoothed, probability * factor - nll))
    _write(code, parameters, dtype, row, factor, smooth, sums.weight_sum, buffers)
    with code.when(hit):
        code.store(exact.get().to("f32"), row.out + column * size, dtype)


def _write(
    code: Code, parameters: Parameters, dtype: str, row: rows.Row, factor: Value, smooth: Value,
    weight_sum: Value, buffers: rows.Buffers,
) -> None:  # fmt: skip
    """Choose the cheapest way for a row and take it."""
    rounded = factor.to("f32")
    # NaN with an empty low half, whatever came in: rounding to bfloat16 needs that.
    rounded = rounded.is_nan().choose(float("nan"), rounded)
    smooths = parameters["smooths"].differs(0)
    addend = smooths.choose((-smooth).to("f32"), -0.0)
    addend = addend.is_nan().choose(float("nan"), addend)
    terms = Terms(rounded, addend, parameters["table"])
    size = rounded.size()
    foldable = (size >= 2.0**-80) & (size <= 2.0**80)
    # A NaN among the weights makes their sum and so the whole row NaN: then they need not be read.
    weighted = smooths & parameters["weighted"].differs(0) & ~weight_sum.is_nan()
    ways = [(~smooths, PLAIN, False), (weighted, WEIGHTS, False)]
    if dtype == "f32":
        ways = [
            (foldable & ~smooths, PLAIN, True),
            (foldable & smooths & ~weighted, CONSTANT, True),
            (foldable & weighted, WEIGHTS, True),
            (weighted, WEIGHTS, False),
        ]
    with code.first_of() as written:
        with code.when(rounded.equals(0.0) & addend.equals(0.0)):
            filled = rows.emit_zero(code, dtype, row, rounded + addend)
            with code.when(filled):
                written()
        for condition, mode, folded in ways:
            with code.when(condition):
                rows.emit_row(code, dtype, mode, row, terms, buffers, folded)
                written()
        rows.emit_row(code, dtype, CONSTANT, row, terms, buffers, folded=False)
