"""One row of the cross entropy gradient: its numbers in FLOAT64, its target's element, and the rest.

A row is factor * exp(logProb) - smooth * weight, and nll less at its target.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from openaclnn.engines.cpu.classes import rows
from openaclnn.engines.cpu.classes.code import SIZE, Code, Number
from openaclnn.engines.cpu.classes.parameters import Parameters
from openaclnn.engines.machine.words import F64, I64


@dataclass(frozen=True)
class Sums:
    """W and the number of counted rows (both 1 unless mean), and the sum of all weights: FLOAT64."""

    total: Number
    rows_counted: Number
    weights: Number


def emit_one_row(
    code: Code, parameters: Parameters, dtype: str, target: str, position: Number,
    first_class: Number, row: rows.Row, sums: Sums, buffers: rows.Buffers,
) -> None:  # fmt: skip
    """A row's chunk of classes. Its target's element is read before and written after all others."""
    size = SIZE[dtype]

    def at(operand: str) -> Number:
        return parameters.address(operand) + position * parameters[f"{operand}.step2"]

    classes, ignored = parameters["classes"], parameters["ignore_index"]
    weighted = parameters["weighted"].differs(0)
    label = code.load(at("target"), target)
    heeded = label.differs(ignored)
    counted = heeded & label.within(classes)
    with code.when(heeded & ~counted, likely=False):
        parameters.report_stray()
    mask = counted.to_f64()
    target_weight = code.variable(mask)
    with code.when(counted & weighted):
        place = parameters.address("weight") + label * parameters["weight.class_step"]
        target_weight.set(code.load(place, "f32").to_f64())

    gradient = code.load(at("gradient"), dtype).to_f64()
    smoothing = parameters.double("smoothing")
    nll = gradient * (1.0 - smoothing) / sums.total * mask * target_weight.get()
    # Without smoothing this is 0, or NaN where the gradient or the total makes it so, as in the formula.
    smooth = gradient / sums.total * smoothing / classes.to_f64() * mask
    lse_factor = code.variable(code.double(0.0))
    with code.when(parameters["zloss"].differs(0)):
        both = code.variable(gradient)
        with code.when(parameters["grad_zloss_given"].differs(0)):
            both.set(both.get() + code.load(at("grad_zloss"), dtype).to_f64())
        lse = code.load(at("lse"), dtype).to_f64()
        scale = parameters.double("zloss_scale") * lse * mask
        lse_factor.set(scale * (both.get() / sums.rows_counted))
    factor = nll + smooth * sums.weights + lse_factor.get()

    column = label - first_class
    hit = counted & column.within(row.count)
    exact = code.variable(code.double(0.0))
    with code.when(hit):
        x = code.load(row.log_prob + column * size, dtype).to_f64()
        probability = exp64(code, x)
        # Smoothing's two terms apart from the others: each pair may cancel.
        picked = probability * (nll + lse_factor.get()) - nll
        smoothed = probability * (smooth * sums.weights) - smooth * target_weight.get()
        smooths = parameters["smooths"].differs(0)
        exact.set(smooths.choose(picked + smoothed, probability * factor - nll))
    _write(code, parameters, dtype, row, factor, smooth, sums.weights, buffers)
    with code.when(hit):
        code.store(exact.get().to_f32(), row.out + column * size, dtype)


def _write(
    code: Code, parameters: Parameters, dtype: str, row: rows.Row, factor: Number, smooth: Number,
    weight_sum: Number, buffers: rows.Buffers,
) -> None:  # fmt: skip
    """Choose the cheapest way for a row and take it."""
    builder = code.builder
    rounded = factor.to_f32()
    # NaN with an empty low half, whatever came in: rounding to bfloat16 needs that.
    rounded = rounded.differs(rounded).choose(float("nan"), rounded)
    smooths = parameters["smooths"].differs(0)
    addend = smooths.choose((-smooth).to_f32(), -0.0)
    addend = addend.differs(addend).choose(float("nan"), addend)
    terms = rows.Terms(rounded, addend, parameters["table"])
    size = rounded.size()
    foldable = (size >= 2.0**-80) & (size <= 2.0**80)
    # A NaN among the weights makes their sum and so the whole row NaN: then they need not be read.
    weights = smooths & parameters["weighted"].differs(0) & weight_sum.equals(weight_sum)
    ways = [(~smooths, rows.PLAIN, False), (weights, rows.WEIGHTS, False)]
    if dtype == "f32":
        ways = [
            (foldable & ~smooths, rows.PLAIN, True),
            (foldable & smooths & ~weights, rows.CONSTANT, True),
            (foldable & weights, rows.WEIGHTS, True),
            (weights, rows.WEIGHTS, False),
        ]
    done = builder.append_basic_block("written")
    with code.when(rounded.equals(0.0) & addend.equals(0.0)):
        filled = rows.emit_zero(code, dtype, row, rounded + addend)
        with code.when(filled):
            builder.branch(done)
    for condition, mode, folded in ways:
        with code.when(condition):
            rows.emit_row(code, dtype, mode, row, terms, buffers, folded)
            builder.branch(done)
    rows.emit_row(code, dtype, rows.CONSTANT, row, terms, buffers, folded=False)
    builder.branch(done)
    builder.position_at_end(done)


def exp64(code: Code, x: Number) -> Number:
    """exp in FLOAT64 to 1e-16; beyond 709 infinite, below -700 as there."""
    builder = code.builder
    signature = ir.FunctionType(F64, [F64] * 3)
    function = builder.module.globals.get("llvm.fma.f64")
    function = function or ir.Function(builder.module, signature, "llvm.fma.f64")

    def fma(a: Number, b: Number, c: Number) -> Number:
        return code.number(builder.call(function, [a.value, b.value, c.value]))

    low = (x < -700.0).choose(-700.0, x)
    inside = (low > 709.0).choose(709.0, low)
    rounder = 6755399441055744.0 + 1023  # 1.5 * 2^52, and the exponent's bias for the low bits
    shifted = fma(inside, code.double(1.4426950408889634), code.double(rounder))
    n = shifted - rounder
    rest = fma(n, code.double(-0.6931471803691238), inside)
    rest = fma(n, code.double(-1.9082149292705877e-10), rest)
    value = code.double(1 / 479001600)
    factorial = 479001600.0
    for divisor in range(12, 0, -1):
        factorial /= divisor
        value = fma(value, rest, code.double(1 / factorial))
    bits = builder.shl(builder.bitcast(shifted.value, I64), ir.Constant(I64, 52))
    power = code.number(builder.bitcast(bits, F64))
    return (x > 709.0).choose(float("inf"), value * power)
