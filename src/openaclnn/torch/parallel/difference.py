"""Absolute and smooth absolute differences of tensors that are spread over processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import openaclnn
from openaclnn.torch.parallel import exchange
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.options import check_reduction, loss_dtype

__all__ = ["Loss", "absolute", "smooth", "difference_of_elements"]


@dataclass(frozen=True)
class Loss:
    """A loss of two tensors, element by element, and its gradient."""

    forward: Callable[..., Tensor]
    backward: Callable[..., Tensor]


def absolute() -> Loss:
    return Loss(openaclnn.l1_loss, openaclnn.l1_loss_backward)


def smooth(beta: float) -> Loss:
    """The one that is square below `beta`."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    return Loss(
        partial(openaclnn.smooth_l1_loss, beta=beta),
        partial(openaclnn.smooth_l1_loss_backward, beta=beta),
    )


def difference_of_elements(
    loss: Loss, input: Tensor, target: Tensor, reduction: str, spread: Spread
) -> Tensor:
    """The loss of this process's elements (none), or of those of all."""
    check_reduction(reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"target has shape {tuple(target.shape)}, expected {tuple(input.shape)} of input"
        )
    if input.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"input has dtype {input.dtype}, expected float32, float16 or bfloat16")
    if target.dtype != input.dtype:
        raise TypeError(f"target has dtype {target.dtype}, expected {input.dtype} of input")
    if target.device != input.device:
        raise RuntimeError(f"target is on {target.device}, expected {input.device} of input")
    result: Tensor = _Difference.apply(  # type: ignore[no-untyped-call]
        input, target, loss, reduction, spread, loss_dtype(input)
    )
    return result


class _Difference(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        target: Tensor,
        loss: Loss,
        reduction: str,
        spread: Spread,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(input, target)
        ctx.loss, ctx.by_count = loss, None
        if reduction == "none":
            return loss.forward(input, target, reduction="none").to(dtype)
        count = input.new_full((), input.numel(), dtype=torch.float64)
        # The mean of what is here, since a sum of many may be beyond float16.
        own = loss.forward(input, target, reduction="mean").double() * count
        if not input.numel():
            own = torch.zeros_like(count)
        value, everywhere = exchange.total([own, count], spread.rows)
        ctx.by_count = torch.full_like(count, spread.gradient_factor)
        if reduction == "mean":
            value, ctx.by_count = value / everywhere, ctx.by_count / everywhere
        return value.to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        input, target = ctx.saved_tensors
        if ctx.by_count is None:
            given = grad_loss.to(input.dtype)
        else:
            given = (grad_loss.double() * ctx.by_count).float()
        gradient = torch.empty_like(input)
        ctx.loss.backward(given, input, target, reduction="none", out=gradient)
        own = gradient if ctx.needs_input_grad[0] else None
        of_target = -gradient if ctx.needs_input_grad[1] else None
        return own, of_target, None, None, None, None
