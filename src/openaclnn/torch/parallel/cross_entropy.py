"""Cross entropy where classes, rows or both are spread over processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from openaclnn.torch.parallel import exchange
from openaclnn.torch.parallel.again import Factors, gradient_of_rows, shared_by, with_value
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.meeting import Meeting, meet
from openaclnn.torch.parallel.options import Options, check_classes, loss_dtype
from openaclnn.torch.parallel.rows import RowGradient

__all__ = ["cross_entropy_of_positions", "cross_entropy_of_rows"]


def cross_entropy_of_rows(
    logits: Tensor, target: Tensor, weight: Tensor | None, options: Options, spread: Spread
) -> Tensor:
    """The loss of logits (N, classes of this process), with weights of these classes or of all."""
    check_classes(logits, target, weight)
    loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits, target, weight, options, spread, loss_dtype(logits)
    )
    return loss


def cross_entropy_of_positions(
    input: Tensor, target: Tensor, weight: Tensor | None, options: Options, spread: Spread
) -> Tensor:
    """The loss of logits (N, classes of this process, ...). With more than two axes, rows of classes are copied."""
    check_classes(input, target, weight)
    rows = input.movedim(1, -1).reshape(target.numel(), input.shape[1])
    loss = cross_entropy_of_rows(rows, target.reshape(-1), weight, options, spread)
    return loss.reshape(target.shape) if options.reduction == "none" else loss


class _CrossEntropy(torch.autograd.Function):
    """Keeps the logits and a few numbers a row. The gradient needs no exchange, that of the gradient does."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        options: Options,
        spread: Spread,
        dtype: torch.dtype,
    ) -> Tensor:
        row = meet(logits, target, weight, options, spread.classes)
        loss, by_weight, by_count = _reduced(*_losses(row, options), row, options, spread)
        ctx.save_for_backward(logits)
        ctx.row, ctx.options, ctx.spread = row, options, spread
        ctx.factors = Factors(
            nll=(1.0 - options.label_smoothing) * row.target_weight * by_weight,
            share=options.label_smoothing / row.classes * by_weight,
            square=2.0 * options.zloss_scale * by_count,
        )
        return loss.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        with torch.no_grad():
            gradient = _gradient(logits, grad_loss.double(), ctx.row, ctx.factors, ctx.options)
        if torch.is_grad_enabled():
            given = shared_by(ctx.spread, grad_loss.double(), ctx.options.reduction)
            formula = gradient_of_rows(logits, given, ctx.row, ctx.factors, ctx.spread.classes)
            gradient = with_value(formula, gradient)
        return gradient, None, None, None, None, None


def _gradient(
    logits: Tensor, given: Tensor, row: Meeting, factors: Factors, options: Options
) -> Tensor:
    share = given * factors.share if options.label_smoothing else None
    whole = given * factors.square * (row.top + row.rest) if options.zloss_scale else None
    if share is not None:
        share = share.expand_as(row.top)
        spread = share * row.all_weights
        whole = spread if whole is None else whole + spread
    nll = given * factors.nll
    return RowGradient(row.top, row.rest, row.place, nll, whole, share, row.weight).of(logits)


def _losses(row: Meeting, options: Options) -> tuple[Tensor, Tensor]:
    """Each row's loss without its z-loss, and that."""
    losses = (1.0 - options.label_smoothing) * row.target_weight * (row.rest - row.difference)
    if row.weighted is not None:
        every = row.all_weights * row.rest - row.weighted
        losses = losses + options.label_smoothing / row.classes * every
    lse = row.top + row.rest
    zlosses = options.zloss_scale * lse * lse if options.zloss_scale else torch.zeros_like(lse)
    counted = row.place.counted
    return torch.where(counted, losses, 0.0), torch.where(counted, zlosses, 0.0)


def _reduced(
    losses: Tensor, zlosses: Tensor, row: Meeting, options: Options, spread: Spread
) -> tuple[Tensor, Tensor | float, Tensor | float]:
    """The loss, and what the gradients of both kinds are to be multiplied by. A mean divides by what counts anywhere."""
    if options.reduction == "none":
        return losses + zlosses, 1.0, 1.0
    factor = spread.gradient_factor
    counted = row.place.counted.double()
    numbers = torch.stack([losses.sum(), zlosses.sum(), row.target_weight.sum(), counted.sum()])
    (numbers,) = exchange.total([numbers], spread.rows)
    loss, zloss, weights, count = numbers.unbind()
    if options.reduction == "sum":
        return loss + zloss, factor, factor
    mean = loss / weights
    return mean + zloss / count if options.zloss_scale else mean, factor / weights, factor / count
