# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Elementwise kernels for dense data, and the choice between them and tiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu import tiles
from openaclnn.engines.gpu.formulas import Names, compiled, precision, widen
from openaclnn.engines.gpu.launch import Launch, power_of_two_divisor
from openaclnn.engines.gpu.operands import INT32_LIMIT, elementwise_slots
from openaclnn.engines.gpu.runners import runner_of
from openaclnn.engines.gpu.source import constants, define, listed
from openaclnn.engines.gpu.tuned import form_of


@triton.jit
def _read(pointer, index, inside, COMPUTE: tl.constexpr, STEP: tl.constexpr):
    if STEP:
        values = tl.load(pointer + index, inside)
    else:
        values = tl.load(pointer)
    return widen(values, COMPUTE)


FLAT = '''
def flat_{name}(
    {pointers}out, count, {numbers}
    {constants}UNIT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    """Operands that lie one after another (step 1), or are one element for all (step 0)."""
    block = tl.program_id(0)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    count = count * UNIT
    index = block * BLOCK + tl.arange(0, BLOCK)
    if UNIT % 16 == 0:
        flat_block({pointers}out, index, index < count, {numbers}{known})
    elif (block + 1) * BLOCK <= count:
        # A mask that can end anywhere forbids vectors, so only the last block has one.
        flat_block({pointers}out, index, None, {numbers}{known})
    else:
        flat_block({pointers}out, index, index < count, {numbers}{known})


def flat_block({pointers}out, index, inside, {numbers}{constants}):
{reads}
    result = {call}
    tl.store(out + index, result.to(COMPUTE), inside)
'''


@functools.cache
def flat_kernel(formula: Formula) -> Any:
    """The formula's kernel for dense operands."""
    names = Names(formula)
    known = [*names.switches, *(f"STEP_{own}" for own in formula.values), "COMPUTE", "PRECISE"]
    reads = (
        f"    value_{own} = read(from_{own}, index, inside, COMPUTE, STEP_{own})"
        for own in formula.values
    )
    text = FLAT.format(
        name=formula.name, pointers=listed(names.pointers), numbers=listed(names.numbers),
        constants=constants(known), known=listed(known), reads="\n".join(reads), call=names.call(),
    )  # fmt: skip
    scope = {"formula": compiled(formula), "read": _read}
    return define(text, scope, do_not_specialize=["count"])


def runner(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """What queues the plan on a stream."""
    steps = [operand.strides for operand in plan.inputs]
    dense = len(plan.shape) == 1 and plan.output.strides[0] in (0, 1)
    if dense and all(own[0] in (0, 1) for own in steps):
        return runner_of([_flat_launch(plan)])
    return runner_of(list(tiles.launches(plan)))


def flat_shape(plan: Plan) -> tuple[int, int]:
    """Elements of a program, and warps."""
    # 512-1024 elements on 4-8 warps were equal (4.38 TB/s, a copy 4.24); evict_first loads lost 7%.
    # These give each thread one 16-byte load of each operand.
    return 1024, 8 if plan.output.dtype.itemsize >= 4 else 4


def _flat_launch(plan: Plan) -> Launch:
    (count,) = plan.shape
    form = form_of(plan)
    steps = [operand.strides[0] for operand in plan.inputs]
    unit = power_of_two_divisor([count])
    block, warps = flat_shape(plan)
    return Launch(
        flat_kernel(form.formula),
        -(-count // block),
        elementwise_slots(plan, [step == 1 for step in steps] + [True], [0] * (len(steps) + 1)),
        (count // unit, *form.numbers),
        {
            **form.switches,
            **{f"STEP_{number}": step for number, step in enumerate(steps)},
            **precision(plan),
            "UNIT": unit,
            "WIDE": count + block >= INT32_LIMIT,
            "BLOCK": block,
        },
        warps,
        fused=False,
    )
