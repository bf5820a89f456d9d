# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Elementwise kernels for dense data, and the choice between them and tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import triton
import triton.language as tl

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu import tiles
from openaclnn.engines.gpu.formulas import constants, evaluate, formula, widen
from openaclnn.engines.gpu.launch import Launch, power_of_two_divisor
from openaclnn.engines.gpu.operands import INT32_LIMIT, elementwise_slots
from openaclnn.engines.gpu.runners import runner_of


@triton.jit
def _flat_block(
    gradient, x, y, out, index, inside, first, second, third,
    FORMULA: tl.constexpr, COMPUTE: tl.constexpr, PRECISE: tl.constexpr,
    GRADIENT_STEP: tl.constexpr, X_STEP: tl.constexpr, Y_STEP: tl.constexpr,
):  # fmt: skip
    if GRADIENT_STEP:
        g = tl.load(gradient + index, inside)
    else:
        g = tl.load(gradient)
    if X_STEP:
        a = tl.load(x + index, inside)
    else:
        a = tl.load(x)
    a = widen(a, COMPUTE)
    b = a
    if y is not None:
        if Y_STEP:
            b = tl.load(y + index, inside)
        else:
            b = tl.load(y)
        b = widen(b, COMPUTE)
    g = widen(g, COMPUTE)
    result = evaluate(g, a, b, first, second, third, FORMULA, PRECISE)
    tl.store(out + index, result.to(COMPUTE), inside)


@triton.jit(do_not_specialize=["count"])
def flat(
    gradient, x, y, out, count, first, second, third,
    FORMULA: tl.constexpr, COMPUTE: tl.constexpr, PRECISE: tl.constexpr,
    GRADIENT_STEP: tl.constexpr, X_STEP: tl.constexpr, Y_STEP: tl.constexpr,
    UNIT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Operands that lie one after another (step 1), or are one element for all (step 0)."""
    block = tl.program_id(0)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    count = count * UNIT
    index = block * BLOCK + tl.arange(0, BLOCK)
    if UNIT % 16 == 0:
        _flat_block(
            gradient, x, y, out, index, index < count, first, second, third,
            FORMULA, COMPUTE, PRECISE, GRADIENT_STEP, X_STEP, Y_STEP,
        )  # fmt: skip
    elif (block + 1) * BLOCK <= count:
        # A mask that can end anywhere forbids vectors, so only the last block has one.
        _flat_block(
            gradient, x, y, out, index, None, first, second, third,
            FORMULA, COMPUTE, PRECISE, GRADIENT_STEP, X_STEP, Y_STEP,
        )  # fmt: skip
    else:
        _flat_block(
            gradient, x, y, out, index, index < count, first, second, third,
            FORMULA, COMPUTE, PRECISE, GRADIENT_STEP, X_STEP, Y_STEP,
        )  # fmt: skip


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
    name, numbers = formula(plan)
    steps = [operand.strides[0] for operand in plan.inputs]
    unit = power_of_two_divisor([count])
    block, warps = flat_shape(plan)
    return Launch(
        flat,
        -(-count // block),
        elementwise_slots(plan, [step == 1 for step in steps] + [True], [0] * (len(steps) + 1)),
        (count // unit, *numbers),
        {
            **constants(plan, name),
            "GRADIENT_STEP": steps[0],
            "X_STEP": steps[1],
            "Y_STEP": steps[-1],
            "UNIT": unit,
            "WIDE": count + block >= INT32_LIMIT,
            "BLOCK": block,
        },
        warps,
    )
