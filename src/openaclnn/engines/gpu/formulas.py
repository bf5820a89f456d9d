# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The elementwise formulas, in float32 and in the order of the operators' documents.

See the references in `operators/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton
import triton.language as tl

from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, DType
from openaclnn.core.plan import Plan

TRITON_TYPES = {FLOAT: tl.float32, FLOAT16: tl.float16, BFLOAT16: tl.bfloat16}

LOG2_E = tl.constexpr(1.4426950408889634)
LN2_HIGH = tl.constexpr(0.693359375)  # 355/512: times an exponent it is exact in float32
LN2_LOW = tl.constexpr(-2.12194440054690583e-4)


@triton.jit
def exponential(x, PRECISE: tl.constexpr):
    """exp(x). The hardware's exp2(x * log2 e) loses |x| ulps, which only FLOAT results can show."""
    if PRECISE:
        # x = n ln 2 + r with |r| < 0.35, or what is left where 2^n would leave the normal range.
        n = tl.floor(x * LOG2_E + 0.5)
        n = tl.minimum(tl.maximum(n, -126.0), 127.0)
        r = (x - n * LN2_HIGH) - n * LN2_LOW
        power = ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
        result = tl.exp2(r * LOG2_E) * power
    else:
        result = tl.exp(x)
    return result


@triton.jit
def evaluate(gradient, x, y, first, second, third, FORMULA: tl.constexpr, PRECISE: tl.constexpr):
    if FORMULA == "elu of input":  # scale, input scale, alpha * scale
        negative = ((gradient * second) * third) * exponential(x * second, PRECISE)
        result = tl.where(x <= 0, negative, gradient * first)
    elif FORMULA == "elu of result":
        negative = (gradient * second) * (x + third)
        result = tl.where(x <= 0, negative, gradient * first)
    elif FORMULA == "l1":  # 1 or one over the count
        sign = (x > y).to(tl.float32) - (x < y).to(tl.float32)
        result = sign * (gradient * first)
    else:  # smooth l1: 1 or one over the count, beta, 1 / beta
        difference = x - y
        if FORMULA == "smooth l1, clamped":
            # The same bits in a third of the instructions, since the product is exact. An outer
            # product of 16-bit numbers only writes, and has time for 14 instructions an element.
            slope = tl.minimum(difference * third, 1.0, propagate_nan=tl.PropagateNan.ALL)
            slope = tl.maximum(slope, -1.0, propagate_nan=tl.PropagateNan.ALL)
        else:
            if FORMULA == "smooth l1, product":
                inner = difference * third
            else:
                inner = tl.div_rn(difference, second)
            tie = tl.where(difference == 0, 0.0, difference)  # NaN stays, -0 does not
            sign = tl.where(difference > 0, 1.0, tl.where(difference < 0, -1.0, tie))
            slope = tl.where(tl.abs(difference) < second, inner, sign)
        result = slope * gradient * first
    return result


@triton.jit
def widen(values, COMPUTE: tl.constexpr):
    """Values as float32: first rounded to the computation type where theirs is another one."""
    if values.dtype == COMPUTE or tl.float32 == COMPUTE:
        result = values.to(tl.float32)
    else:
        result = values.to(tl.float32).to(COMPUTE).to(tl.float32)
    return result


def formula(plan: Plan) -> tuple[str, tuple[float, float, float]]:
    """Which formula the plan's kernel is, and its three numbers."""
    numbers: Mapping[str, Any] = plan.numbers
    if plan.kernel == "elu_backward":
        scale = np.float32(numbers["scale"])
        with np.errstate(all="ignore"):
            slope = np.float32(numbers["alpha"]) * scale
        name = "elu of result" if numbers["is_result"] else "elu of input"
        return name, (float(scale), numbers["input_scale"], float(slope))
    if plan.kernel == "l1_loss_backward":
        return "l1", (numbers["mean_scale"], 0.0, 0.0)
    beta = float(np.float32(numbers["beta"]))
    name, inverse = _quotient(beta, plan.compute)
    return f"smooth l1, {name}", (numbers["mean_scale"], beta, inverse)


def _quotient(beta: float, compute: DType) -> tuple[str, float]:
    """How to divide by beta, and 1 / beta where multiplying by it serves as well.

    An IEEE division is a dozen instructions. 16-bit results cannot show the difference, and for
    powers of two (beta is 1 unless somebody asks) there is none.
    """
    if not 2.0**-100 < beta < 2.0**100:
        return "quotient", 0.0
    if math.frexp(beta)[0] == 0.5:
        return "clamped", 1 / beta
    return ("quotient", 0.0) if compute is FLOAT else ("product", float(np.float32(1 / beta)))


def constants(plan: Plan, name: str) -> dict[str, Any]:
    return {
        "FORMULA": name,
        "COMPUTE": TRITON_TYPES[plan.compute],
        "PRECISE": plan.compute is FLOAT,
    }
