"""Gradients of gradients over processes, by PyTorch's operations and sums over the groups, right to any order.

What several processes have the same of (a loss's gradient, a row's log-sum-exp) each of them uses for its own part, so that
the derivative by it is the sum of theirs. All processes differentiate together, as they compute the loss together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed import ProcessGroup

from openaclnn.torch.parallel import exchange
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.meeting import Meeting

__all__ = ["Factors", "gradient_of_rows", "shared_by", "with_value"]


@dataclass(frozen=True)
class Factors:
    """What the gradient of a row is made with, for a gradient of the loss that is 1: see `rows.RowGradient`.

    `square` is that of the log-sum-exp, for the z-loss.
    """

    nll: Tensor
    share: Tensor | float
    square: Tensor | float


def shared_by(spread: Spread, grad_loss: Tensor, reduction: str) -> Tensor:
    """The gradient of a loss that all processes have: of a number, or with `none` of rows whose classes are apart.

    Where gradients of parameters are averaged, so is what the processes make of this one.
    """
    by_rows = reduction != "none"
    groups = [spread.classes, *(spread.rows if by_rows else ())]
    factor = spread.gradient_factor if by_rows else 1.0
    number: Tensor = _Shared.apply(  # type: ignore[no-untyped-call]
        grad_loss, [group for group in groups if group is not None], factor
    )
    return number


def gradient_of_rows(
    logits: Tensor, given: Tensor, row: Meeting, factors: Factors, group: ProcessGroup | None
) -> Tensor:
    """What `rows.RowGradient` computes, of logits and the gradient of the loss, for autograd."""
    counted = row.place.counted

    def masked(value: Tensor | float) -> Tensor:
        """A number a row, 0 where the row does not count: a mean over nothing has no factors."""
        wide = torch.as_tensor(value, dtype=torch.float64, device=counted.device)
        return torch.where(counted, wide, 0.0)

    work = torch.promote_types(logits.dtype, torch.float32)
    x = torch.where(counted[:, None], logits.to(work), 0.0)
    top = masked(row.top)
    rest: Tensor = _Rest.apply(x, top, masked(row.rest), group)  # type: ignore[no-untyped-call]
    nll, share = given * masked(factors.nll), given * masked(factors.share)
    whole = nll + share * row.all_weights + given * masked(factors.square) * (top + rest)
    gradient = _column(whole, work) * _probabilities(x, top, rest)
    weight = 1.0 if row.weight is None else row.weight.to(work)
    gradient = gradient - _column(share, work) * weight
    if row.place.width:
        at_target = _column(-nll * row.place.owned, work)
        gradient = gradient.scatter_add(1, row.place.at[:, None], at_target)
    return torch.where(counted[:, None], gradient, 0.0).to(logits.dtype)


def with_value(formula: Tensor, value: Tensor) -> Tensor:
    """`value`, which a kernel computed with more digits, with the derivatives of `formula`."""
    result: Tensor = _WithValue.apply(formula, value)  # type: ignore[no-untyped-call]
    return result


def _column(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    return numbers.to(dtype)[:, None]


def _probabilities(x: Tensor, top: Tensor, rest: Tensor) -> Tensor:
    return ((x - _column(top, x.dtype)) - _column(rest, x.dtype)).exp()


class _Reduced(Function):
    """What each process has of its own, added up and divided by a factor: the same in all, and so is the gradient by it."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, groups: list[ProcessGroup], factor: float) -> Tensor:
        ctx.own = groups, factor
        (total,) = exchange.total([part], groups)
        return total / factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _Shared.apply(gradient, *ctx.own), None, None  # type: ignore[no-untyped-call]


class _Shared(Function):
    """What all processes have the same of, for each to use in its own part: the other way round."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, groups: list[ProcessGroup], factor: float) -> Tensor:
        ctx.own = groups, factor
        return whole.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _Reduced.apply(gradient, *ctx.own), None, None  # type: ignore[no-untyped-call]


class _Rest(Function):
    """A row's log-sum-exp over all processes, less its largest logit, for which it is computed already."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, top: Tensor, rest: Tensor, group: ProcessGroup | None
    ) -> Tensor:
        ctx.save_for_backward(x, top, rest)
        ctx.group = group
        return rest.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, top, rest = ctx.saved_tensors
        groups = [] if ctx.group is None else [ctx.group]
        total = _Reduced.apply(gradient, groups, 1.0)  # type: ignore[no-untyped-call]
        total = _Shared.apply(total, groups, 1.0)  # type: ignore[no-untyped-call]
        again = _Rest.apply(x, top, rest, ctx.group)  # type: ignore[no-untyped-call]
        return _column(total, x.dtype) * _probabilities(x, top, again), None, None, None


class _WithValue(Function):
    @staticmethod
    def forward(ctx: Any, formula: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, None
