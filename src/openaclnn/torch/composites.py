"""PyTorch's cross entropy and L1 loss by our kernels. PyTorch makes them of other operators (log-softmax and the likelihood; difference,
absolute value and mean), above its derivatives; so ours stand there, too, and bring their own. What they do not serve PyTorch
takes apart as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from openaclnn.core.interface import REDUCTIONS
from openaclnn.torch.functional import cross_entropy_by_kernels, l1_by_kernels
from openaclnn.torch.kernels import PLAIN

__all__ = ["COMPOSITES", "composite_key", "taken_apart"]


def _cross_entropy_loss(
    input: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    _check_plain(input, target, weight)
    how = REDUCTIONS[reduction]
    loss = cross_entropy_by_kernels(input, target, weight, how, ignore_index, label_smoothing)
    if loss is None:
        raise TypeError("probabilities of classes, or other arguments of PyTorch's own")
    return loss


def _l1_loss(input: Any, target: Any, reduction: int = 1) -> Any:
    _check_plain(input, target)
    loss = l1_by_kernels(input, target, REDUCTIONS[reduction])
    if loss is None:
        raise TypeError("two shapes or dtypes, or other arguments of PyTorch's own")
    return loss


def _check_plain(*tensors: Any) -> None:
    if any(type(tensor) not in PLAIN for tensor in tensors if tensor is not None):
        raise TypeError("a tensor of a class of its own")


COMPOSITES: dict[str, Callable[..., Any]] = {
    "cross_entropy_loss": _cross_entropy_loss,
    "l1_loss": _l1_loss,
}
"""The operators of `torch.ops.aten` that are made of others, and what replaces them."""


def composite_key(device: str) -> str:
    """Where the dispatcher has them: above derivatives."""
    return f"Autograd{device}"


def taken_apart(name: str) -> Callable[..., Any]:
    """The operator as PyTorch makes it of others."""
    whole: Any = getattr(torch.ops.aten, name).default
    apart: Callable[..., Any] = whole.decompose
    return apart
