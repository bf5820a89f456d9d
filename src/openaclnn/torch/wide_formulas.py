"""The losses and ELU in float64 by PyTorch's operations, as `wide` takes them: on the device, and no slower than PyTorch's
own by much. What is not here is computed by the operators' references.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from openaclnn.core.interface import REDUCTIONS

__all__ = ["WIDE"]

aten = torch.ops.aten


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def _shared(gradient: Tensor, derivative: Tensor, reduction: str) -> Tensor:
    made = gradient * derivative
    return made / max(made.numel(), 1) if reduction == "mean" else made


def _elu(x: Tensor, alpha: float, scale: float, input_scale: float) -> Any:
    if not (math.isfinite(alpha) and math.isfinite(input_scale)):
        return torch.where(x > 0, x, -alpha) * scale
    return aten.elu(x, alpha, scale, input_scale)


def _elu_backward(gradient: Tensor, x: Tensor, *numbers: Any) -> Any:
    return aten.elu_backward(gradient, *numbers, x)


def _l1(x: Tensor, y: Tensor, reduction: str) -> Tensor:
    return _reduced((x - y).abs(), reduction)


def _l1_backward(gradient: Tensor, x: Tensor, y: Tensor, reduction: str) -> Tensor:
    return _shared(gradient, torch.sign(x - y), reduction)


def _smooth(x: Tensor, y: Tensor, reduction: str, beta: float) -> Any:
    return aten.smooth_l1_loss(x, y, REDUCTIONS.index(reduction), beta)


def _smooth_backward(gradient: Tensor, x: Tensor, y: Tensor, reduction: str, beta: float) -> Any:
    if beta == 0:
        return _l1_backward(gradient, x, y, reduction)
    x, y, given = torch.broadcast_tensors(x, y, gradient)  # type: ignore[no-untyped-call]
    return aten.smooth_l1_loss_backward(given, x, y, REDUCTIONS.index(reduction), beta)


def _chosen(target: Tensor, classes: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Which positions count, and their classes; 0 for those that do not. Others are refused on every device."""
    target = target.long()  # any index to ignore compares with it
    counted = target != ignored
    stray = counted & ((target < 0) | (target >= classes))
    if stray.any():
        raise IndexError(f"Target {target[stray][0].item()} is out of bounds.")
    return counted, torch.where(counted, target, 0)


def _likelihood(x: Tensor, target: Tensor, weight: Tensor, reduction: str, ignored: int) -> Any:
    """Of rows and of pixels."""
    own, aim = (x, target) if x.dim() > 1 else (x.unsqueeze(0), target.reshape(1))
    counted, safe = _chosen(aim, own.shape[1], ignored)
    factors = weight.reshape(-1)[safe]
    each = -factors * own.gather(1, safe.unsqueeze(1)).squeeze(1)
    losses, total = torch.where(counted, each, 0.0), torch.where(counted, factors, 0.0).sum()
    if reduction != "none":
        losses = losses.sum() / total if reduction == "mean" else losses.sum()
    return losses, total


def _likelihood_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor, reduction: str, ignored: int, total: Any = None
) -> Tensor:  # fmt: skip
    own, aim = (x, target) if x.dim() > 1 else (x.unsqueeze(0), target.reshape(1))
    counted, safe = _chosen(aim, own.shape[1], ignored)
    factors = torch.where(counted, weight.reshape(-1)[safe], 0.0)
    given = gradient.reshape(aim.shape if reduction == "none" else ())
    if reduction == "mean":
        given = given / (factors.sum() if total is None else total.reshape(()))
    each = torch.where(counted, -given * factors, 0.0)
    return torch.zeros_like(own).scatter_(1, safe.unsqueeze(1), each.unsqueeze(1))


def _factors(x: Tensor, weight: Any) -> tuple[Tensor, Tensor]:
    """Of each class, and the same to be multiplied with logits."""
    factors = x.new_ones(x.shape[1]) if weight is None else weight
    return factors, factors.view(-1, *[1] * (x.dim() - 2))


def _logits(
    x: Tensor, target: Tensor, weight: Any, reduction: str, ignored: int, smoothing: float, scale: float
) -> Any:  # fmt: skip
    """As `operators.logits.reference` has it, step by step."""
    counted, safe = _chosen(target, x.shape[1], ignored)
    factors, across = _factors(x, weight)
    own = torch.where(counted, factors[safe], 0.0)
    top, largest = x.max(1, keepdim=True)
    powers = torch.exp(x - top).scatter_(1, largest, 0.0)
    rest = torch.log1p(powers.sum(1, keepdim=True)) + (top - top)
    top = torch.where(rest.isnan(), rest, top)
    log_prob = (x - top) - rest
    losses = -own * log_prob.gather(1, safe.unsqueeze(1)).squeeze(1)
    top, rest = top.squeeze(1), rest.squeeze(1)
    if smoothing:
        spread = -(across * log_prob).sum(1)
        losses = (1 - smoothing) * losses + smoothing / x.shape[1] * spread
    losses = torch.where(counted, losses, 0.0)
    squares = torch.where(counted, scale * (top + rest).square(), 0.0)
    if reduction == "none":
        return losses + squares if scale else losses, top, rest
    loss, square = losses.sum(), squares.sum()
    if reduction == "mean":
        loss, square = loss / own.sum(), square / counted.sum()
    return loss + square if scale else loss, top, rest


def _logits_grad(
    gradient: Tensor, x: Tensor, top: Tensor, rest: Tensor, target: Tensor, weight: Any, reduction: str,
    ignored: int, smoothing: float, scale: float,
) -> Tensor:  # fmt: skip
    """As `operators.logits.reference_grad` has it, step by step."""
    counted, safe = _chosen(target, x.shape[1], ignored)
    factors, across = _factors(x, weight)
    mean = reduction == "mean"
    total: Any = torch.where(counted, factors[safe], 0.0).sum() if mean else 1.0
    number: Any = counted.sum() if mean else 1.0
    given = gradient.expand(target.shape).unsqueeze(1)
    log_prob = (x - top.unsqueeze(1)) - rest.unsqueeze(1)
    probability, at = torch.exp(log_prob), safe.unsqueeze(1)
    nll = given * (1 - smoothing) / total * factors[at]
    squares = 2 * scale * (top + rest).unsqueeze(1) * given / number if scale else 0.0 * nll
    at_target = torch.expm1(log_prob.gather(1, at)) * nll + probability.gather(1, at) * squares
    out = (probability * (nll + squares)).scatter_(1, at, at_target)
    if smoothing:
        subtracted = given / total * smoothing / x.shape[1] * across
        out = out + (probability * subtracted.sum(1, keepdim=True) - subtracted)
    return torch.where(counted.unsqueeze(1), out, 0.0)


WIDE: dict[str, Callable[..., Any]] = {
    "elu": _elu,
    "elu_backward": _elu_backward,
    "l1_loss": _l1,
    "l1_loss_backward": _l1_backward,
    "smooth_l1_loss": _smooth,
    "smooth_l1_loss_backward": _smooth_backward,
    "nll_loss": _likelihood,
    "nll_loss_backward": _likelihood_backward,
    "nll_loss2d": _likelihood,
    "nll_loss2d_backward": _likelihood_backward,
    "cross_entropy_logits": _logits,
    "cross_entropy_logits_grad": _logits_grad,
}
"""By the operators' Python names, of the schema's arguments in order."""
