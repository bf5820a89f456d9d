"""Elementwise NumPy kernels: one driver that walks any geometry block by block, one formula per kernel.

Formulas compute in float32, in the order of the operator's document; see the reference in `operators/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.core.interop import strided_view
from openaclnn.core.plan import Operand, Plan

Array = np.ndarray[Any, Any]

# Elements per block: the float32 temporaries of one block stay in a second-level cache.
BLOCK = 1 << 16


def elu_backward(numbers: Mapping[str, Any], gradient: Array, x: Array) -> Array:
    scale, input_scale = np.float32(numbers["scale"]), np.float32(numbers["input_scale"])
    slope = np.float32(numbers["alpha"]) * scale
    if numbers["is_result"]:
        negative: Array = (gradient * input_scale) * (x + slope)
    else:
        negative = ((gradient * input_scale) * slope) * np.exp(x * input_scale)
    return np.where(x <= 0, negative, gradient * scale)


def l1_loss_backward(numbers: Mapping[str, Any], gradient: Array, x: Array, y: Array) -> Array:
    sign = (x > y).astype(np.float32) - (x < y).astype(np.float32)
    return sign * (gradient * np.float32(numbers["mean_scale"]))


def smooth_l1_loss_backward(
    numbers: Mapping[str, Any], gradient: Array, x: Array, y: Array
) -> Array:
    beta = np.float32(numbers["beta"])
    difference = x - y
    slope = np.where(np.abs(difference) < beta, difference / beta, np.sign(difference))
    return slope * gradient * np.float32(numbers["mean_scale"])


FORMULAS: dict[str, Callable[..., Array]] = {
    "elu_backward": elu_backward,
    "l1_loss_backward": l1_loss_backward,
    "smooth_l1_loss_backward": smooth_l1_loss_backward,
}


def widen(array: Array, compute: DType) -> Array:
    """Values as float32: first rounded to the computation type where theirs is another one."""
    return array.astype(compute.numpy, copy=False).astype(np.float32, copy=False)


def narrow(values: Array, compute: DType, output: DType) -> Array:
    """The two roundings: to the computation type, then to the output's."""
    if compute is not FLOAT:
        values = values.astype(compute.numpy)
    return values.astype(output.numpy, copy=False)


def view(operand: Operand, address: int, shape: tuple[int, ...]) -> Array:
    """The operand's elements in the plan's order."""
    start = address + operand.offset * operand.dtype.itemsize
    return strided_view(start, operand.dtype, shape, operand.strides)


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Index tuples that cut a shape into pieces of about BLOCK elements."""
    inner = int(np.prod(shape[1:], dtype=np.int64))
    if inner > BLOCK:
        for index in range(shape[0]):
            for rest in blocks(shape[1:]):
                yield (index, *rest)
        return
    step = max(1, BLOCK // max(inner, 1))
    for start in range(0, shape[0], step):
        yield (slice(start, start + step),)


def runner(plan: Plan) -> Callable[[Sequence[int], int], int]:
    formula = FORMULAS[plan.kernel]

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        *inputs, output = (
            view(operand, address, plan.shape)
            for operand, address in zip((*plan.inputs, plan.output), addresses, strict=True)
        )
        with np.errstate(all="ignore"):
            for index in blocks(plan.shape):
                values = formula(plan.numbers, *(widen(a[index], plan.compute) for a in inputs))
                output[index] = narrow(values, plan.compute, plan.output.dtype)
        return 0

    return run
