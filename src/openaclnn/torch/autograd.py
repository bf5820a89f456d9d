"""The losses and ELU for autograd, where nothing stands between caller and kernel: what `functional` takes as a rule.

Each is given what has derivatives, and in one tuple all else, the loss that was computed before among it: autograd spends
time on every argument, and would take a tensor for an input. What it saves is written where `save_for_backward` writes it,
which takes as long again. What is derived how is what `gradients` says, and gradients of gradients go through there.
"""

from __future__ import annotations

from typing import Any

import torch

from openaclnn.operators import find_operator
from openaclnn.torch.gradients import Derivative, Formula, quick
from openaclnn.torch.kernels import KERNELS, Kernel

__all__ = [
    "CrossEntropy", "CrossEntropyOverLogits", "EluInPlace", "L1", "Likelihood", "attached",
]  # fmt: skip

_elu_backward, _logits_grad = KERNELS["elu_backward"], KERNELS["cross_entropy_logits_grad"]
_l1_backward = KERNELS["l1_loss_backward"]


def attached(name: str) -> type[Formula] | None:
    """The derivative by the first tensor of an operator that declares it, for `apply(tensor, (result, arguments))`; None where one operator
    computes several derivatives, or there is none.
    """
    operator = find_operator(name)
    if operator.gradient is None:
        return None
    derivative = Derivative(operator, operator.gradient)
    if derivative.several:
        return None
    kernel, taken = derivative.kernel, derivative.taken
    tensors = [place for place in kernel.tensors if place != derivative.incoming]
    saved = [source for source, _ in taken[: len(tensors)] if source is not None]
    options = [
        (source, default, convert)
        for (source, default), convert in zip(taken, derivative.converted, strict=True)
    ][len(saved) :]
    assert derivative.incoming == 0
    assert len(saved) == len(tensors) == max(tensors)  # tensors stand before options

    @quick
    class Attached(Formula):
        @staticmethod
        def forward(ctx: Any, x: Any, constants: Any) -> Any:
            result, arguments = constants
            every = (*arguments, result)
            ctx.to_save = tuple([every[place] for place in saved])
            ctx.options = [
                default if source is None else every[source] if convert is None else convert(every[source])
                for source, default, convert in options
            ]  # fmt: skip
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return kernel.gradient(gradient, *ctx.saved_tensors, *ctx.options), None

    return Attached


@quick
class EluInPlace(Formula):
    """Written over its input: the gradient is made from the result."""

    @staticmethod
    def forward(ctx: Any, x: Any, alpha: float) -> Any:
        KERNELS["elu"].into(x, x, alpha, 1.0, 1.0)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (result,) = ctx.saved_tensors
        return _elu_backward.gradient(gradient, result, ctx.alpha, 1.0, 1.0, True), None


@quick
class L1(Formula):
    """Of the difference, which is kept, as PyTorch's own loss does: both tensors may be written over."""

    @staticmethod
    def forward(ctx: Any, apart: Any, constants: Any) -> Any:
        made, ctx.options = constants
        ctx.to_save = (apart,)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (apart,) = ctx.saved_tensors
        return _l1_backward.gradient(gradient, apart, apart.new_zeros(()), *ctx.options), None


@quick
class Likelihood(Formula):
    """Of rows or of pixels, by the gradient's kernel for them. The ones in the place of weights that nobody gave are all calls': hooks of
    what autograd saves, which may write, do not see them.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, constants: tuple[Any, Kernel, Any, Any, Any, Any]) -> Any:
        (loss, total), kernel, target, weight, factors, options = constants
        ctx.kept = kernel, total, factors, options
        ctx.to_save = x, target, weight
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        kernel, total, factors, (reduction, ignored) = ctx.kept
        if weight is None:
            weight = factors.clone() if torch.is_grad_enabled() else factors
        return kernel.gradient(gradient, x, target, weight, reduction, ignored, total), None


@quick
class CrossEntropy(Formula):
    """From logits, which are kept, with two numbers a row."""

    @staticmethod
    def forward(ctx: Any, x: Any, constants: Any) -> Any:
        (loss, top, rest), target, weight, options = constants
        ctx.kept = top, rest, options
        ctx.to_save = x, target, weight
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        top, rest, (reduction, ignored, smoothing, scale) = ctx.kept
        return _logits_grad.gradient(
            gradient, x, top, rest, target, weight, reduction, ignored, smoothing, scale
        ), None


@quick
class CrossEntropyOverLogits(CrossEntropy):
    """The same, with the gradient written into the logits' memory."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if torch.is_grad_enabled():  # gradients of gradients read the logits
            return CrossEntropy.backward(ctx, gradient)
        x, target, weight = ctx.saved_tensors
        by_input, (top, rest, options) = x.detach(), ctx.kept
        _logits_grad.into(by_input, gradient, x, top, rest, target, weight, *options)
        return by_input, None
