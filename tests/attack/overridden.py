"""Calls of PyTorch's own functions while ours are in their place, forward and backward, as training makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional

__all__ = ["draw_overridden"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
Call = Callable[[Any], Any]


def draw_overridden(rng: np.random.Generator) -> tuple[Any, Any, float]:
    """What a function and its derivative gave, what PyTorch gives in float64, and how far apart they may lie."""
    x = _drawn(rng, DTYPES[int(rng.integers(3))])
    call = _call(rng, x)
    got, known = (_both(call, tensor) for tensor in (x, x.detach().double()))
    # As many rounding errors as there are elements in a sum, each of a unit of the dtype.
    room = 8 * float(torch.finfo(x.dtype).eps) * (1 + max(map(_largest, known)))
    return got, known, room


def _drawn(rng: np.random.Generator, dtype: Any) -> Any:
    """A tensor of (N, C) or (N, C, H, W) in some layout."""
    shape = [int(n) for n in rng.integers(1, 9, int(rng.choice([2, 4])))]
    x = torch.from_numpy(rng.standard_normal([2 * n for n in shape])).to(dtype)
    way = int(rng.integers(4))
    if way == 0:
        return x[tuple(slice(0, None, 2) for _ in shape)]
    x = x[tuple(slice(n) for n in shape)]
    if (
        way < 3 or len(shape) > 2
    ):  # whose gradients PyTorch itself does not compute if they are transposed
        return x.contiguous()
    return x.t().contiguous().t()


def _call(rng: np.random.Generator, x: Any) -> Call:
    reduction = str(rng.choice(["none", "mean", "sum"]))
    number = float(rng.choice([0.3, 1.0, 2.5]))
    positions = (x.shape[0], *x.shape[2:])
    target = torch.from_numpy(rng.integers(0, x.shape[1], positions))
    if rng.random() < 0.3:
        target[0] = -100
    weight = torch.rand(x.shape[1]) + 0.5 if rng.random() < 0.5 else None
    other = torch.from_numpy(rng.standard_normal(tuple(x.shape)))
    calls: list[Call] = [
        lambda tensor: functional.elu(tensor, number),
        lambda tensor: functional.elu_(tensor * 1, number),
        lambda tensor: functional.selu(tensor),
        lambda tensor: functional.smooth_l1_loss(
            tensor, other.to(x.dtype).to(tensor), reduction=reduction, beta=number
        ),
        lambda tensor: functional.nll_loss(
            tensor,
            target,
            None if weight is None else weight.to(x.dtype).to(tensor),
            reduction=reduction,
        ),
        lambda tensor: functional.cross_entropy(tensor, target, reduction=reduction),
    ]
    return calls[int(rng.integers(len(calls)))]


def _both(call: Call, x: Any) -> tuple[Any, Any]:
    x = x.detach().requires_grad_()
    result = call(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    return result.detach(), gradient


def _largest(tensor: Any) -> float:
    return float(tensor.abs().nan_to_num().max()) if tensor.numel() else 0.0
