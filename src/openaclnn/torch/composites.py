"""PyTorch's cross entropy and L1 loss by our kernels. PyTorch makes them of other operators (log-softmax and the likelihood; difference,
absolute value and mean), above its derivatives; so ours stand there, too, and bring their own. Linear cross entropy is a function of its in Python, in
whose place ours stands. What they do not serve PyTorch takes apart as ever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from openaclnn.core.interface import REDUCTIONS
from openaclnn.torch import functional
from openaclnn.torch.functional import cross_entropy_by_kernels, l1_loss
from openaclnn.torch.kernels import PLAIN
from openaclnn.torch.linear import in_place_of_theirs
from openaclnn.torch.private import leave

__all__ = ["COMPOSITES", "Replaced", "composite_key", "taken_apart"]


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
    loss = l1_loss.by_kernels(input, target, None, None, REDUCTIONS[reduction], None)  # type: ignore[attr-defined]
    if loss is None:
        raise TypeError("two shapes or dtypes, or other arguments of PyTorch's own")
    return loss


def _linear_cross_entropy(input: Any, linear_weight: Any, target: Any, **more: Any) -> Any:
    _check_plain(input, linear_weight, target, more.get("linear_bias"), more.get("weight"))
    return in_place_of_theirs(input, linear_weight, target, **more)


def _check_plain(*tensors: Any) -> None:
    if any(type(tensor) not in PLAIN for tensor in tensors if tensor is not None):
        raise TypeError("a tensor of a class of its own")


COMPOSITES: dict[str, Callable[..., Any]] = {
    "cross_entropy_loss": _cross_entropy_loss,
    "l1_loss": _l1_loss,
}
"""The operators of `torch.ops.aten` that are made of others, and what replaces them; with functions that are no operators, where PyTorch has them."""
if hasattr(torch.nn.functional, "linear_cross_entropy"):
    COMPOSITES["linear_cross_entropy"] = _linear_cross_entropy


def composite_key(device: str) -> str:
    """Where the dispatcher has them: above derivatives."""
    return f"Autograd{device}"


def taken_apart(name: str) -> Callable[..., Any]:
    """The operator as PyTorch makes it of others."""
    if _is_function(name):
        function: Callable[..., Any] = getattr(torch.nn.functional, name)
        return function
    whole: Any = getattr(torch.ops.aten, name).default
    apart: Callable[..., Any] = whole.decompose
    return apart


def _is_function(name: str) -> bool:
    """Whether this is a function in Python, and no operator."""
    return not hasattr(torch.ops.aten, name)


class Replaced:
    """What is entered for an operator, or in the place of a function."""

    def __init__(self, name: str, ours: Callable[..., Any], devices: Sequence[str]) -> None:
        self.name, self.theirs = name, taken_apart(name)
        self.library: Any = None
        if _is_function(name):
            in_graphs = getattr(functional, name)

            @functools.wraps(self.theirs)
            def function(*arguments: Any, **more: Any) -> Any:
                chosen = in_graphs if torch.compiler.is_compiling() else ours
                return chosen(*arguments, **more)

            setattr(torch.nn.functional, name, function)
            return
        library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        self.library = library
        for device in devices:
            library.impl(name, ours, composite_key(device))

    def _destroy(self) -> None:
        if self.library is None:
            setattr(torch.nn.functional, self.name, self.theirs)
        else:
            leave(self.library)
