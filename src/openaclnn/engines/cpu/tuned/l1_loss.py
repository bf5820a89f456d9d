"""L1 on 16-bit elements as they are: g, -g, or 0 * g, by the bits of the difference."""

from __future__ import annotations

from functools import partial

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.formulas.forms import Form, Site, tuned
from openaclnn.engines.machine.values import Shape, Value


@tuned(
    "l1_loss_backward",
    gain="2^24 BFLOAT16 elements on two Neoverse-N1 cores: 4.2 ms (PyTorch 36)",
    examples=[{"mean_scale": 1.0}, {"mean_scale": 0.5}],
)
def by_bits(plan: Plan) -> Form | None:
    """One 16-bit dtype throughout.

    The difference is 0 only for equal values, and NaN where the rule wants 0, so one subtraction replaces
    two comparisons; gradients are neither widened nor rounded.
    """
    kinds = {operand.dtype.short for operand in (*plan.inputs, plan.output)}
    if len(kinds) > 1 or "f32" in kinds:
        return None
    scale = float(plan.numbers["mean_scale"])
    scaled = bool(plan.reciprocal) or scale != 1
    name = f"l1.bits{'.scaled' * scaled}"
    return Form(name, partial(_write, scaled=scaled), (scale,), names=("mean_scale",))


def _write(site: Site, scaled: bool) -> None:
    kind = site.signature.inputs[0]
    endless = 0x7C00 if kind == "f16" else 0x7F80
    out = site.code.array(site.operands[-1].pointer, "i16")

    def body(shape: Shape, index: Value) -> None:
        difference = _difference(site, shape, index)
        gradient = _gradient(site, shape, index, scaled)
        # Neither 0 nor NaN: 1 to infinity, as a number.
        differs = ((difference & 0x7FFF) - 1).below(endless)
        signed = gradient ^ (difference & 0x8000)
        if kind == "f16":
            tie = (gradient.bits_as("f16") * 0.0).bits_as("i16")
        else:
            finite = (gradient & 0x7FFF).below(endless)
            nan = finite.choose(gradient.as_value(0), gradient.as_value(0xFFFF))
            tie = (gradient & 0x8000) | nan
        out.store(differs.choose(signed, tie), index)

    site.code.elements(site.count, 4, body, lanes=2 * site.code.lanes)


def _bits(site: Site, shape: Shape, operand: int, index: Value) -> Value:
    """16-bit elements as integers."""
    array = site.code.array(site.operands[operand].pointer, "i16")
    if operand in site.singles:
        return array.read(0).fill(shape)
    return array.load(index, shape)


def _halves(shape: Shape) -> Shape:
    """The same elements as float32 vectors of the machine's width: two for one."""
    return shape if shape.lanes == 1 else Shape(2 * shape.streams, shape.lanes // 2)


def _joined(shape: Shape, halves: Value) -> Value:
    return halves if shape.lanes == 1 else halves.joined()


def _difference(site: Site, shape: Shape, index: Value) -> Value:
    """x - y: sign, zero and NaN are right; of bfloat16 the low half, which cannot matter, is cut off."""
    if site.signature.inputs[0] == "f16":
        x, y = (_bits(site, shape, operand, index).bits_as("f16") for operand in (1, 2))
        return (x - y).bits_as("i16")
    parts = _halves(shape)
    difference = site.load(parts, 1, index) - site.load(parts, 2, index)
    upper = difference.bits_as_lanes("i16").pick(range(1, 2 * parts.lanes, 2))
    return _joined(shape, upper)


def _gradient(site: Site, shape: Shape, index: Value, scaled: bool) -> Value:
    if not scaled:
        return _bits(site, shape, 0, index)
    values = site.load(_halves(shape), 0, index) * site.numbers[0]
    rounded = numerics.narrow(values, site.signature.inputs[0], site.opaque)
    return _joined(shape, rounded).bits_as("i16")
