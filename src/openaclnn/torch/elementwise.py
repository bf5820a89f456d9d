# mypy: disable-error-code="empty-body"
"""Activations, and losses of elements and of labels, as functions of PyTorch's signatures by our kernels: `dispatch.py` makes those that are one operator.

PyTorch computes what the aclnn interface lacks: the divergence's loss and the gradient of multi-label margins.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from openaclnn.core.interface import REDUCTIONS
from openaclnn.repeat.slots import MAX_AXES
from openaclnn.torch.dispatch import (
    computed_by,
    is_memory,
    is_supported,
    is_tracked,
    may_take_fast_path,
    needs_dispatcher,
    parallel_for,
    served_by,
    why_declined,
)
from openaclnn.torch.gradients import L1, EluInPlace, Formula, Loss, quick
from openaclnn.torch.kernels import KERNELS

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "kl_div", "l1_loss",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "mse_loss", "multilabel_margin_loss", "prelu", "relu", "selu", "sigmoid", "silu", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softplus", "softshrink", "threshold",
]  # fmt: skip


@computed_by("relu")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.relu` by our kernels: x where it is positive, 0 elsewhere.

    >>> relu(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """


@computed_by("leaky_relu")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.leaky_relu` by our kernels: x where it is positive, `negative_slope` * x elsewhere.

    >>> leaky_relu(torch.tensor([-1.0, 2.0]), 0.5)
    tensor([-0.5000,  2.0000])
    """


@computed_by("prelu", alike=False, cast=True)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`torch.nn.functional.prelu` by our kernels: leaky ReLU with a slope for each channel, which may learn.

    >>> prelu(torch.tensor([-1.0, 2.0]), torch.tensor([0.25]))
    tensor([-0.2500,  2.0000])
    """


@computed_by("threshold")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.threshold` by our kernels: x where it is above a threshold, `value` elsewhere.

    >>> threshold(torch.tensor([-1.0, 2.0]), 0.5, 9.0)
    tensor([9., 2.])
    """


@computed_by("hardshrink")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`torch.nn.functional.hardshrink` by our kernels: 0 between -`lambd` and `lambd`, x elsewhere.

    >>> hardshrink(torch.tensor([-1.0, 0.25]))
    tensor([-1.,  0.])
    """


@computed_by("softshrink")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`torch.nn.functional.softshrink` by our kernels: x, nearer to 0 by `lambd`.

    >>> softshrink(torch.tensor([-1.0, 0.25]))
    tensor([-0.5000,  0.0000])
    """


@computed_by("sigmoid")
def sigmoid(input: Tensor) -> Tensor:
    """`torch.nn.functional.sigmoid` by our kernels: 1 / (1 + exp(-x)).

    >>> sigmoid(torch.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """


@computed_by("log_sigmoid")
def logsigmoid(input: Tensor) -> Tensor:
    """`torch.nn.functional.logsigmoid` by our kernels: -log(1 + exp(-x)).

    >>> logsigmoid(torch.tensor([0.0, 2.0]))
    tensor([-0.6931, -0.1269])
    """


@computed_by("hardsigmoid")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.hardsigmoid` by our kernels: (x + 3) / 6 between 0 and 1.

    >>> hardsigmoid(torch.tensor([0.0, 4.0]))
    tensor([0.5000, 1.0000])
    """


@computed_by("silu")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.silu` by our kernels: x / (1 + exp(-x)).

    >>> silu(torch.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """


@computed_by("mish")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.mish` by our kernels: x * tanh(log(1 + exp(x))).

    >>> mish(torch.tensor([-1.0, 2.0]))
    tensor([-0.3034,  1.9440])
    """


@computed_by("hardswish")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.hardswish` by our kernels: x times `hardsigmoid` of it.

    >>> hardswish(torch.tensor([-1.0, 4.0]))
    tensor([-0.3333,  4.0000])
    """


@computed_by("softplus", cast=True)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """`torch.nn.functional.softplus` by our kernels: log(1 + exp(`beta` * x)) / `beta`, or x where `beta` * x is above the threshold.

    >>> softplus(torch.tensor([-1.0, 2.0]))
    tensor([0.3133, 2.1269])
    """


@computed_by("gelu_v2", words={"approximate": {"none": 0, "tanh": 1}})
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """`torch.nn.functional.gelu` by our kernels: x times the normal distribution's function of x, which "tanh" approximates.

    >>> gelu(torch.tensor([-1.0, 2.0]), approximate="tanh")
    tensor([-0.1588,  1.9546])
    """


@computed_by("elu", in_place=EluInPlace)
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.elu` by our kernels: x where it is positive, else `alpha` * (exp(x) - 1).

    >>> elu(torch.tensor([-1.0, 0.0, 2.0]), alpha=0.5)
    tensor([-0.3161,  0.0000,  2.0000])
    """


@computed_by("selu")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.selu` by our kernels: ELU, scaled to keep mean and variance.

    >>> selu(torch.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """


@computed_by("celu")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.celu` by our kernels: x where it is positive, else `alpha` * (exp(x / `alpha`) - 1).

    >>> celu(torch.tensor([-1.0, 2.0]), 0.5)
    tensor([-0.4323,  2.0000])
    """


@computed_by("glu")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """`torch.nn.functional.glu` by our kernels: the first half of x along an axis, times `sigmoid` of the second.

    >>> glu(torch.tensor([1.0, -2.0, 3.0, 0.5]))
    tensor([ 0.9526, -1.2449])
    """


@computed_by("softmax", cast=True)
def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """`torch.nn.functional.softmax` by our kernels: exp(x), divided by the sum along an axis.

    >>> softmax(torch.tensor([0.0, 2.0]), 0)
    tensor([0.1192, 0.8808])
    """


@computed_by("log_softmax", cast=True)
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """`torch.nn.functional.log_softmax` by our kernels: x less the logarithm of the sum of exp(x) along an axis.

    >>> log_softmax(torch.tensor([0.0, 2.0]), 0)
    tensor([-2.1269, -0.1269])
    """


# Losses.


_L1 = KERNELS["l1_loss"]


def _of_difference(loss: Any, input: Any, target: Any, *options: Any) -> Any:
    return L1.apply(torch.sub(input, target), (loss, (), options))


@computed_by("l1_loss", attach=_of_difference)
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`torch.nn.functional.l1_loss` by our kernels: the mean absolute difference, with "sum" the sum, with "none" each.

    As PyTorch does, it keeps the difference for backward: `input` and `target` may be written over. With weights, or of two shapes, PyTorch computes it.

    >>> l1_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
    tensor(1.5000)
    """


def quick_l1(input: Any, target: Any, reduction: str) -> Any:
    """The loss by the fast path; NotImplemented where that does not serve."""
    loss = _L1.fast(input, target, reduction) if may_take_fast_path(input) else NotImplemented
    same = (
        loss is not NotImplemented and input.dtype is target.dtype and input.shape == target.shape
    )
    if not same:
        return NotImplemented
    tracked = is_tracked(input) or is_tracked(target)
    return _of_difference(loss, input, target, reduction) if tracked else loss


@computed_by("smooth_l1_loss", positive=("beta",))
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """`torch.nn.functional.smooth_l1_loss` by our kernels: square below `beta`, absolute above; with 0 it is PyTorch's `l1_loss`.

    >>> smooth_l1_loss(torch.zeros(3), torch.tensor([0.5, 1.0, 2.0]), reduction="none")
    tensor([0.1250, 0.5000, 1.5000])
    """


@computed_by("mse_loss")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`torch.nn.functional.mse_loss` by our kernels: the mean squared difference, with "sum" the sum, with "none" each. With weights
    PyTorch computes it.

    >>> mse_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
    tensor(2.5000)
    """


def is_number_on_cpu(loss: Any) -> bool:
    """Whether no loss is NaN, as losses of probabilities below 0 or above 1 are. On a GPU this is not looked at, since it would wait for the device."""
    if not loss.is_cpu:
        return True
    worst = loss if loss.dim() == 0 else loss.sum()
    return bool(worst == worst)


@computed_by("binary_cross_entropy", cast=True, sound=is_number_on_cpu)
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`torch.nn.functional.binary_cross_entropy` by our kernels: of probabilities of two classes. On CUDA the loss of what is no probability
    is NaN, where PyTorch ends the process' use of the device.

    >>> binary_cross_entropy(torch.tensor([0.25, 0.5]), torch.tensor([1.0, 0.0]))
    tensor(1.0397)
    """


@computed_by("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`torch.nn.functional.binary_cross_entropy_with_logits` by our kernels: of logits of two classes.

    >>> binary_cross_entropy_with_logits(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]))
    tensor(1.4100)
    """


@computed_by("soft_margin_loss")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`torch.nn.functional.soft_margin_loss` by our kernels: log(1 + exp(-target * x)), of targets 1 and -1.

    >>> soft_margin_loss(torch.tensor([0.0, 2.0]), torch.tensor([1.0, -1.0]))
    tensor(1.4100)
    """


# The Kullback-Leibler divergence. No operator computes its loss.

_BY_INPUT, _BY_TARGET = KERNELS["kl_div_backward"], KERNELS["kl_div_target_backward"]


@quick
class Divergence(Formula):
    """Adds our gradients to the divergence that PyTorch computed."""

    @staticmethod
    def forward(ctx: Any, x: Any, target: Any, constants: Any) -> Any:
        loss, ctx.options = constants
        ctx.to_save = x, target
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        both = (gradient, *ctx.saved_tensors, *ctx.options)
        by_input, by_target, _ = ctx.needs_input_grad
        return (
            _BY_INPUT.gradient(*both) if by_input else None,
            _BY_TARGET.gradient(*both) if by_target else None,
            None,
        )


def _kl_div(input: Any, target: Any, _: Any, __: Any, reduction: str, log_target: bool) -> Any:
    """The divergence, if a gradient is wanted; else a text that says why PyTorch computes it."""
    fits = _is_pair(input, target, input) and input.shape == target.shape
    if not (fits and reduction in (*REDUCTIONS, "batchmean") and type(log_target) is bool):
        return why_declined(input)
    if not (is_tracked(input) or is_tracked(target)) or needs_dispatcher():
        return "nobody asks for a gradient, or a compiler or a mode is at work"
    with torch.no_grad():
        loss = torch_functional.kl_div(input, target, reduction=reduction, log_target=log_target)
    return Divergence.apply(input, target, (loss, (reduction, log_target)))


@served_by(_kl_div)
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """`torch.nn.functional.kl_div` with gradients by our kernels: the divergence of log-probabilities from probabilities, or from
    their logarithms.

    >>> kl_div(torch.tensor([[-1.0, -0.5]]), torch.tensor([[0.25, 0.75]]), reduction="batchmean")
    tensor(0.0627)
    """


# The margin loss of labels.

_LABELS = KERNELS["multilabel_margin_loss"]


@quick
class Margins(Loss):
    """The margin loss with PyTorch's gradient, which reads the mask of labels; gradients of gradients do not exist in PyTorch either."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, labelled = ctx.saved_tensors
        backward = torch.ops.aten.multilabel_margin_loss_backward
        return backward(gradient, x, target, REDUCTIONS.index(ctx.kept), labelled), None


def _margins(input: Any, target: Any, _: Any, __: Any, reduction: str) -> Any:
    fits = _is_pair(input, target) and target.dtype is torch.int64 and input.shape == target.shape
    fits = fits and input.dim() in (1, 2) and input.numel() > 0 and reduction in REDUCTIONS
    fits = fits and not needs_dispatcher() and input.dtype is torch.float32
    # PyTorch refuses labels that are no classes; on CUDA they are not looked at, and count for nothing.
    if not (fits and (input.is_cuda or _are_classes(target))):
        return why_declined(input)
    loss, labelled = _LABELS.call(input, target, reduction)
    return Margins.apply(input, (loss, (target, labelled), reduction)) if is_tracked(input) else loss  # fmt: skip


@served_by(_margins)
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`torch.nn.functional.multilabel_margin_loss` by our kernels: of rows of classes, and of their labels up to the first -1.

    >>> multilabel_margin_loss(torch.tensor([0.1, 0.2, 0.4, 0.8]), torch.tensor([3, 0, -1, 1]))
    tensor(0.8500)
    """


def _are_classes(target: Tensor) -> bool:
    low, high = target.aminmax()
    return bool(low >= -1) and bool(high < target.shape[-1])


def _is_pair(input: Any, target: Any, typed: Any = None) -> bool:
    """Whether our kernels support the input, and the target is a plain tensor on the same device, and of the dtype of `typed`."""
    if not (is_supported(input) and is_memory(target)) or parallel_for(input) is not None:
        return False
    same = target.device == input.device and (typed is None or target.dtype is typed.dtype)
    return same and input.dim() <= MAX_AXES and not input.is_meta
