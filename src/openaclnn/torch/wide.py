"""float64, which the interface does not compute in and PyTorch's own checks of gradients need: losses of class indices and PReLU as they are written out
here, by PyTorch's operations on the device; formulas of the engines by the same operations (`expressions.py`); else by the operators' references on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openaclnn.core.declare import Operator
from openaclnn.core.status import AclnnError
from openaclnn.torch.expressions import expression, has_expression
from openaclnn.torch.layouts import follows
from openaclnn.torch.refusals import in_torch_words
from openaclnn.torch.schema import arguments_of, made_by, plan_of

__all__ = ["WIDE", "by_reference", "in_float64"]

aten = torch.ops.aten


def in_float64(operator: Operator, arguments: tuple[Any, ...]) -> Any:
    """The results for the schema's arguments, checked as every call's are."""
    formula = WIDE.get(operator.python_name)
    try:
        made = made_by(operator, arguments)
        if formula is None:
            if operator.output.in_place or not has_expression(plan_of(operator, arguments).kernel):
                return by_reference(operator, arguments)
            formula = functools.partial(_expressed, operator)
    except AclnnError as error:
        raise in_torch_words(error) from None
    _refuse_strays(operator, arguments)
    wide = [
        a.detach().double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
        for a in arguments
    ]
    computed = formula(*wide)
    laid = follows(operator, arguments)  # PyTorch's operations lay their results so
    results = tuple(
        result.to(dtype) if laid else result.to(dtype).reshape(shape).contiguous()
        for result, (shape, dtype) in zip(
            (computed,) if operator.result_type is None else computed, made, strict=True
        )
    )
    return results[0] if operator.result_type is None else results


def _expressed(operator: Operator, *arguments: Any) -> Any:
    return expression(operator, arguments)


def by_reference(operator: Operator, arguments: tuple[Any, ...]) -> Any:
    """The same on the host, by the formulas that every engine is held to."""
    names = [p.python_name for p in arguments_of(operator)]
    wide, narrow = dict(zip(names, arguments, strict=True)), {}
    for name, value in wide.items():
        if isinstance(value, torch.Tensor):
            host = value.detach().cpu().resolve_neg()
            wide[name] = (host.double() if host.is_floating_point() else host).numpy()
            narrow[name] = (host.float() if host.is_floating_point() else host).numpy()
    try:
        made = made_by(operator, arguments)
        operator.reference_arguments(**{**wide, **narrow})  # refuses what calls refuse
    except AclnnError as error:
        raise in_torch_words(error) from None
    computed = operator.reference(**wide)
    first = next(value for value in arguments if isinstance(value, torch.Tensor))
    results = tuple(
        first.new_zeros(shape, dtype=dtype)
        if result is None
        else torch.from_numpy(np.ascontiguousarray(result)).to(first.device, dtype).reshape(shape)
        for result, (shape, dtype) in zip(
            (computed,) if operator.result_type is None else computed, made, strict=True
        )
    )
    if operator.output.in_place:
        first.copy_(results[0])
        return None
    return results[0] if operator.result_type is None else results


# The formulas, of the schema's arguments in order.


def _refuse_strays(operator: Operator, arguments: tuple[Any, ...]) -> None:
    """Class indices out of range, on every device."""
    named = dict(zip([p.python_name for p in arguments_of(operator)], arguments, strict=True))
    ignored = named.get("ignore_index")
    if ignored is None:
        return
    x = named["input" if "input" in named else "self"]
    target = named["target"].long()  # any index to ignore compares with it
    stray = target[(target != ignored) & ((target < 0) | (target >= x.shape[min(1, x.dim() - 1)]))]
    if stray.numel():
        raise IndexError(f"Target {stray[0].item()} is out of bounds.")


def _chosen(target: Tensor, classes: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Which positions count, and their classes; 0 for those that do not."""
    target = target.long()
    counted = (target != ignored) & (target >= 0) & (target < classes)
    return counted, torch.where(counted, target, 0)


def _as_rows(x: Tensor, target: Tensor, weight: Tensor, ignored: int) -> tuple[Tensor, ...]:
    """Log-probabilities (N, C, ...), which positions count, their classes as an axis to gather by, and their weights."""
    if x.dim() == 1:
        x, target = x.unsqueeze(0), target.reshape(1)
    counted, safe = _chosen(target, x.shape[1], ignored)
    factors = torch.where(counted, weight.reshape(-1)[safe], 0.0)
    return x, counted, safe.unsqueeze(1), factors


def _likelihood(x: Tensor, target: Tensor, weight: Tensor, reduction: str, ignored: int) -> Any:
    """Of rows and of pixels."""
    x, counted, index, factors = _as_rows(x, target, weight, ignored)
    losses = torch.where(counted, -factors * x.gather(1, index).squeeze(1), 0.0)
    total = factors.sum()
    if reduction != "none":
        losses = losses.sum() / total if reduction == "mean" else losses.sum()
    return losses, total


def _likelihood_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor, reduction: str, ignored: int, total: Any = None
) -> Tensor:  # fmt: skip
    x, counted, index, factors = _as_rows(x, target, weight, ignored)
    gradient = gradient.reshape(counted.shape if reduction == "none" else ())
    if reduction == "mean":
        gradient = gradient / (factors.sum() if total is None else total.reshape(()))
    values = torch.where(counted, -gradient * factors, 0.0)
    return torch.zeros_like(x).scatter_(1, index, values.unsqueeze(1))


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
    target_weight = torch.where(counted, factors[safe], 0.0)
    top, largest = x.max(1, keepdim=True)
    powers = torch.exp(x - top).scatter(1, largest, 0.0)
    rest = torch.log1p(powers.sum(1, keepdim=True)) + (top - top)
    top = torch.where(rest.isnan(), rest, top)
    log_prob = (x - top) - rest
    losses = -target_weight * log_prob.gather(1, safe.unsqueeze(1)).squeeze(1)
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
        loss, square = loss / target_weight.sum(), square / counted.sum()
    return loss + square if scale else loss, top, rest


def _logits_grad(
    gradient: Tensor, x: Tensor, top: Tensor, rest: Tensor, target: Tensor, weight: Any, reduction: str,
    ignored: int, smoothing: float, scale: float,
) -> Tensor:  # fmt: skip
    """As `operators.logits.reference_grad` has it, step by step."""
    counted, safe = _chosen(target, x.shape[1], ignored)
    factors, across = _factors(x, weight)
    mean = reduction == "mean"
    # Where nothing counts, a mean is over nothing: no number times 0.
    total: Any = torch.where(counted.any(), torch.where(counted, factors[safe], 0.0).sum(), 1.0) if mean else 1.0  # fmt: skip
    number: Any = counted.sum().clamp(min=1) if mean else 1.0
    gradient = gradient.expand(target.shape).unsqueeze(1)
    log_prob = (x - top.unsqueeze(1)) - rest.unsqueeze(1)
    probability, at = torch.exp(log_prob), safe.unsqueeze(1)
    nll = gradient * (1 - smoothing) / total * factors[at]
    squares = 2 * scale * (top + rest).unsqueeze(1) * gradient / number if scale else 0.0 * nll
    at_target = torch.expm1(log_prob.gather(1, at)) * nll + probability.gather(1, at) * squares
    out = (probability * (nll + squares)).scatter(1, at, at_target)
    if smoothing:
        subtracted = gradient / total * smoothing / x.shape[1] * across
        out = out + (probability * subtracted.sum(1, keepdim=True) - subtracted)
    return torch.where(counted.unsqueeze(1), out, 0.0)


def _slopes(x: Tensor, weight: Tensor) -> Tensor:
    return weight.reshape(-1, *[1] * (x.dim() - 2)) if weight.numel() > 1 else weight.reshape(())


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * _slopes(x, weight))


def _prelu_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    others = [axis for axis in range(x.dim()) if axis != 1 or weight.numel() == 1]
    parts = torch.where(x > 0, 0.0, gradient * x)
    by_weight = parts.sum(others) if others else parts
    by_x = torch.where(x > 0, gradient, gradient * _slopes(x, weight))
    return by_x, by_weight.reshape(weight.shape)


WIDE: dict[str, Callable[..., Any]] = {
    "nll_loss": _likelihood,
    "nll_loss_backward": _likelihood_backward,
    "nll_loss2d": _likelihood,
    "nll_loss2d_backward": _likelihood_backward,
    "cross_entropy_logits": _logits,
    "cross_entropy_logits_grad": _logits_grad,
    "prelu": _prelu,
    "prelu_backward": _prelu_backward,
}
"""By the operators' Python names."""
