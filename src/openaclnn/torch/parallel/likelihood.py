"""Negative log-likelihood where positions, classes or both are spread over processes: one number a position is read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from openaclnn.torch.parallel import exchange
from openaclnn.torch.parallel.again import shared_by
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.meeting import own_weights
from openaclnn.torch.parallel.options import Options, check_classes, loss_dtype
from openaclnn.torch.parallel.place import Place

__all__ = ["likelihood_of_positions"]


def likelihood_of_positions(
    log_prob: Tensor, target: Tensor, weight: Tensor | None, options: Options, spread: Spread
) -> Tensor:
    """The loss of log-probabilities (N, classes of this process, ...), with weights of these classes or of all."""
    check_classes(log_prob, target, weight)
    loss: Tensor = _Likelihood.apply(  # type: ignore[no-untyped-call]
        log_prob, target, weight, options, spread, loss_dtype(log_prob)
    )
    return loss


class _Likelihood(torch.autograd.Function):
    """Keeps a factor a position."""

    @staticmethod
    def forward(
        ctx: Any,
        log_prob: Tensor,
        target: Tensor,
        weight: Tensor | None,
        options: Options,
        spread: Spread,
        dtype: torch.dtype,
    ) -> Tensor:
        width = log_prob.shape[1]
        nothing = log_prob.new_zeros(0, dtype=torch.float64)
        _, extent = exchange.tops(nothing, width, spread.classes)
        place = Place.of(target, width, extent, options.ignore_index)
        own = place.owned.double()
        if weight is not None:
            own = place.owned_of(own_weights(weight.double(), width, extent))
        losses = torch.where(place.owned, -own * place.owned_of(log_prob), 0.0)
        by_weight: Tensor | float = 1.0
        if options.reduction == "none":
            (loss,) = exchange.sums([losses], spread.classes)
        else:
            columns = exchange.sums([losses.sum(), own.sum()], spread.classes)
            loss, weights = exchange.total(columns, spread.rows)
            by_weight = spread.gradient_factor
            if options.reduction == "mean":
                loss, by_weight = loss / weights, by_weight / weights
        ctx.factor, ctx.place, ctx.like = -own * by_weight, place, log_prob.new_empty(0)
        ctx.shape, ctx.spread, ctx.reduction = log_prob.shape, spread, options.reduction
        return loss.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        gradient = ctx.like.new_zeros(ctx.shape)
        given = shared_by(ctx.spread, grad_loss.double(), ctx.reduction)
        if gradient.numel():
            value = torch.where(ctx.place.owned, given * ctx.factor, 0.0)
            gradient.scatter_(1, ctx.place.at[:, None], value[:, None].to(gradient.dtype))
        else:  # nothing here, but what is differentiated again in other processes waits for this one
            gradient = gradient * given.sum()
        return gradient, None, None, None, None, None
