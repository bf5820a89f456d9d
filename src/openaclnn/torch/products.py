"""The three matrix products of a linear layer's chunk of rows: logits, and the gradients of inputs and weights.

Results of 16 bits are rounded once. On a GPU, PyTorch's products of 16 bits can have FLOAT results. On CPUs they cannot: a chunk's product would be
rounded before it is added to those of other chunks. There operands become FLOAT, a block of classes at a time: for the gradient of
weights always, for the rest where the CPU has no instructions for products of 16 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from openaclnn.core.dtypes import BFLOAT16, FLOAT16
from openaclnn.engines.machine.host import multiplies
from openaclnn.operators.linear import SCALED
from openaclnn.torch.kernels import Kernel

__all__ = ["input_gradient", "input_gradient_into", "logits_into", "plus_weight_gradient", "scaled"]

BLOCK = 1 << 20  # elements of a block
scaled = Kernel(SCALED)


def logits_into(out: Any, input: Any, weight: Any, bias: Any) -> None:
    """input @ weight.t() + bias."""
    if not _is_widened(input):
        if bias is None:
            torch.mm(input, weight.t(), out=out)
        else:
            torch.addmm(bias, input, weight.t(), out=out)
        return
    input = input.float()
    for block in _blocks(weight, input):
        part = torch.mm(input, weight[block].float().t())
        out[:, block] = part if bias is None else part.add_(bias[block])


def input_gradient_into(out: Any, gradient: Any, weight: Any, scale: Any) -> None:
    """gradient @ weight, times a number on the device if there is one."""
    if scale is None and not _is_widened(gradient):
        torch.mm(gradient, weight, out=out)
        return
    product = input_gradient(gradient, weight)
    if scale is None:
        out.copy_(product)
    else:
        scaled.into(out, product, scale)


def input_gradient(gradient: Any, weight: Any) -> Any:
    """gradient @ weight, in FLOAT where the device computes it so."""
    if gradient.is_cuda and gradient.dtype is not torch.float32:
        return torch.mm(gradient, weight, out_dtype=torch.float32)
    if not _is_widened(gradient):
        return torch.mm(gradient, weight)
    total = gradient.new_zeros(len(gradient), weight.shape[1], dtype=torch.float32)
    for block in _blocks(weight, gradient):
        total.addmm_(gradient[:, block].float(), weight[block].float())
    return total


def plus_weight_gradient(total: Any, gradient: Any, input: Any, wide: bool) -> Any:
    """total + gradient.t() @ input, in FLOAT where that is asked for, in the memory of the total, which is nothing at first."""
    left, wide = gradient.t(), wide and gradient.dtype is not torch.float32
    if not (wide or _is_widened(gradient)):
        return torch.mm(left, input) if total is None else total.addmm_(left, input)
    if gradient.is_cuda:
        if total is None:
            return torch.mm(left, input, out_dtype=torch.float32)
        return torch.addmm(total, left, input, out_dtype=torch.float32, out=total)
    first, input = total is None, input.float()
    if first:
        total = torch.empty(len(left), input.shape[1], dtype=torch.float32 if wide else gradient.dtype, device=input.device)  # fmt: skip
    for block in _blocks(left, input):
        part, place = left[block].float(), total[block]
        if wide:
            torch.addmm(place, part, input, beta=0.0 if first else 1.0, out=place)
        else:
            place.copy_(torch.mm(part, input) if first else torch.addmm(place.float(), part, input))
    return total


def _blocks(by_class: Any, by_row: Any) -> Iterator[slice]:
    """Of classes."""
    step = max(1, BLOCK // max(1, by_class.shape[1], len(by_row)))
    return (slice(begin, begin + step) for begin in range(0, len(by_class), step))


@functools.cache
def _has_instructions(dtype: torch.dtype) -> bool:
    return multiplies(BFLOAT16 if dtype is torch.bfloat16 else FLOAT16)


def _is_widened(tensor: Any) -> bool:
    """Whether products of FLOAT are faster: without instructions for them, products of BFLOAT16 take 4 times as long (AVX-512), of FLOAT16 70 times."""
    return tensor.dtype is not torch.float32 and not tensor.is_cuda and not _has_instructions(tensor.dtype)  # fmt: skip
