"""How sums over all elements are launched: of what a formula gives, of the negative log-likelihood; and fills."""

from __future__ import annotations

import functools
import math
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas import TRITON_TYPES, Names, compiled, precision, widen
from openaclnn.engines.gpu.launch import Family, Launch, Slot, next_power_of_two
from openaclnn.engines.gpu.operands import ignored, pointer_type, stride_of
from openaclnn.engines.gpu.reduction_kernel import (
    fill_one,
    finish_nll,
    finish_reduction,
    nll_losses,
)
from openaclnn.engines.gpu.runners import runner_of
from openaclnn.engines.gpu.source import constants, define, listed
from openaclnn.engines.gpu.steps import Runner
from openaclnn.engines.gpu.sum_kernel import let_next_start
from openaclnn.engines.gpu.tuned import form_of

PARTS = 1024  # at most, each of a program of its own
BLOCK = 1024  # elements of a program at once
FLOAT64_BYTES = 8

SUMMED = '''
def summed_{name}(
    {pointers}sums, count, parts, {numbers}{sizes}{strides}
    OVERLAPPED: tl.constexpr, {constants}BLOCK: tl.constexpr,
):
    """One part of the sum; part p takes every block whose number is p modulo `parts`."""
    let_next_start(OVERLAPPED)
    part = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float64)
    whole = count // BLOCK * BLOCK
    # A mask that can end anywhere forbids vectors, so only the last block has one.
    for start in range(part.to(tl.int64) * BLOCK, whole, parts * BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += summed_block({pointers}index, None, {numbers}{sizes}{strides}{known})
    if part == 0:
        index = whole + tl.arange(0, BLOCK)
        inside = index < count
        last = summed_block({pointers}index, inside, {numbers}{sizes}{strides}{known})
        total += tl.where(inside, last, 0.0)
    tl.store(sums + part, tl.sum(total))


def summed_block({pointers}index, inside, {numbers}{sizes}{strides}{constants}):
{places}
{reads}
    result = {call}
    return result.to(tl.float64)
'''


@functools.cache
def summed_kernel(formula: Formula, axes: int, single: tuple[bool, ...]) -> Any:
    """The kernel of a formula over so many axes; 0: all operands lie in a row. `single` ones are one element."""
    names = Names(formula)
    known = [*names.switches, "COMPUTE", "PRECISE"]
    sizes = [f"size_{axis}" for axis in range(axes)]
    strides = [f"stride_{own}_{axis}" for own in formula.values for axis in range(axes)]
    places, reads, rest = [], [], "index"
    for axis in reversed(range(axes)):
        places.append(f"    rest_{axis} = ({rest}) // size_{axis}")
        places.append(f"    at_{axis} = ({rest}) - rest_{axis} * size_{axis}")
        rest = f"rest_{axis}"
    for own, one in zip(formula.values, single, strict=True):
        place = " + ".join(f"at_{axis} * stride_{own}_{axis}" for axis in range(axes)) or "index"
        read = f"tl.load(from_{own})" if one else f"tl.load(from_{own} + {place}, inside)"
        reads.append(f"    value_{own} = widen({read}, COMPUTE)")
    text = SUMMED.format(
        name=formula.name, pointers=listed(names.pointers), numbers=listed(names.numbers), sizes=listed(sizes),
        strides=listed(strides), constants=constants(known), known=listed(known), places="\n".join(places),
        reads="\n".join(reads), call=names.call(),
    )  # fmt: skip
    scope = {"formula": compiled(formula), "widen": widen, "let_next_start": let_next_start}
    return define(text, scope, do_not_specialize=["count", "parts", *sizes, *strides])


def _slots(plan: Plan, wide: bool) -> list[Slot]:
    """All operands, inputs first."""
    return [
        Slot(place, pointer_type(own), own.offset * own.dtype.itemsize, wide and place < len(plan.inputs))
        for place, own in enumerate(plan.operands)
    ]  # fmt: skip


def _parts(count: int) -> int:
    return min(-(-count // BLOCK), PARTS)


def runner(plan: Plan) -> Runner:
    """What queues the sum or mean of a formula over a plan's shape."""
    count, form = math.prod(plan.shape), form_of(plan)
    flat = len(plan.shape) == 1 and all(own.strides[0] in (0, 1) for own in plan.inputs)
    axes = 0 if flat else len(plan.shape)
    single = tuple(flat and count > 1 and not own.strides[0] for own in plan.inputs)
    parts = _parts(count)
    *inputs, out = _slots(plan, flat)
    sums = Slot(len(plan.operands), "float64")
    strides = () if flat else tuple(stride for own in plan.inputs for stride in own.strides)
    sizes = () if flat else plan.shape
    add = Launch(
        Family(
            summed_kernel(form.formula, axes, single), (*inputs, sums), (*form.switches, *precision(plan)),
            fused=False, overlapped=True,
        ),
        parts, (count, parts, *form.numbers, *sizes, *strides), (BLOCK,), 4,
    )  # fmt: skip
    divisor = count if plan.reduction == "mean" else 1
    compute = TRITON_TYPES[plan.compute]
    finish = Launch(
        Family(finish_reduction, (sums, out), (compute,), overlapped=True, follows=True),
        1, (parts, divisor), (next_power_of_two(parts),), 4,
    )  # fmt: skip
    return runner_of([add, finish], parts * FLOAT64_BYTES)


def nll_runner(plan: Plan) -> Runner:
    """What queues the negative log-likelihood: each position's, or the sum or mean, and the total weight."""
    missing = 3 - len(plan.shape)
    shape = (1,) * missing + plan.shape
    count, each = math.prod(shape), not plan.reduction
    target, values, weight, out, total = _slots(plan, wide=False)
    sums = Slot(len(plan.operands), "float64")
    parts = _parts(count)
    strides = [
        stride_of(plan.operands[place], axis) for place in (0, 1, 3) for axis in (-3, -2, -1)
    ]
    numbers = (
        count, *shape[1:], *strides, plan.inputs[1].class_stride, plan.inputs[2].class_stride, plan.classes,
        ignored(plan.numbers["ignore_index"]), parts,
    )  # fmt: skip
    add = Launch(
        Family(
            nll_losses, (target, values, weight, out if each else None, sums), (each,), overlapped=True
        ),
        parts, numbers, (BLOCK,), 4,
    )  # fmt: skip
    mean, compute = plan.reduction == "mean", TRITON_TYPES[plan.compute]
    finish = Launch(
        Family(
            finish_nll, (sums, None if each else out, total), (each, mean, compute), overlapped=True,
            follows=True,
        ),
        1, (parts,), (next_power_of_two(parts),), 4,
    )  # fmt: skip
    return runner_of([add, finish], 2 * parts * FLOAT64_BYTES)


def filling(plan: Plan) -> Runner:
    """What writes a number into each output of one element."""
    return runner_of(
        [
            Launch(Family(fill_one, (slot,)), 1, (float(plan.numbers[own.parameter]),), (), 1)
            for slot, own in zip(_slots(plan, wide=False), plan.outputs, strict=True)
        ]
    )
