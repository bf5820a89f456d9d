"""Absolute and smooth absolute differences of tensors that are spread over processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from openaclnn.torch.kernels import KERNELS, Kernel
from openaclnn.torch.parallel import exchange
from openaclnn.torch.parallel.again import shared_by
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.options import check_reduction, loss_dtype
from openaclnn.torch.roads import FLOATS

__all__ = ["Loss", "absolute", "smooth", "difference_of_elements"]


@dataclass(frozen=True)
class Loss:
    """A loss of two tensors, element by element, and its gradient: of both, a reduction and `options`."""

    forward: Kernel
    backward: Kernel
    options: tuple[float, ...] = ()


def absolute() -> Loss:
    return Loss(KERNELS["l1_loss"], KERNELS["l1_loss_backward"])


def smooth(beta: float) -> Loss:
    """The one that is square below `beta`."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    return Loss(KERNELS["smooth_l1_loss"], KERNELS["smooth_l1_loss_backward"], (beta,))


def difference_of_elements(
    loss: Loss, input: Tensor, target: Tensor, reduction: str, spread: Spread
) -> Tensor:
    """The loss of this process's elements (none), or of those of all."""
    check_reduction(reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"target has shape {tuple(target.shape)}, expected {tuple(input.shape)} of input"
        )
    if input.dtype not in FLOATS:
        expected = "float32, float16, bfloat16 or float64"
        raise TypeError(f"input has dtype {input.dtype}, expected {expected}")
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
        ctx.loss, ctx.by_count, ctx.spread, ctx.reduction = loss, None, spread, reduction
        if reduction == "none":
            losses: Tensor = loss.forward.call(input, target, reduction, *loss.options)
            return losses.to(dtype)
        count = input.new_full((), input.numel(), dtype=torch.float64)
        # The mean of what is here, since a sum of many may be beyond float16.
        own = loss.forward.call(input, target, "mean", *loss.options).double() * count
        if not input.numel():
            own = torch.zeros_like(count)
        value, everywhere = exchange.total([own, count], spread.rows)
        ctx.by_count = torch.full_like(count, spread.gradient_factor)
        if reduction == "mean":
            value, ctx.by_count = value / everywhere, ctx.by_count / everywhere
        return value.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        input, target = ctx.saved_tensors
        kernel, options = ctx.loss.backward, ("none", *ctx.loss.options)
        given = shared_by(ctx.spread, grad_loss, ctx.reduction)
        if ctx.by_count is None:
            given = given.to(input.dtype)
        else:
            given = (given.double() * ctx.by_count).to(
                torch.promote_types(input.dtype, torch.float32)
            )
        if torch.is_grad_enabled():
            gradient = kernel.gradient(given, input, target, *options).to(input.dtype)
        else:
            gradient = torch.empty_like(input)
            kernel.over(gradient, given, input, target, *options)
        own = gradient if ctx.needs_input_grad[0] else None
        of_target = -gradient if ctx.needs_input_grad[1] else None
        return own, of_target, None, None, None, None
