"""The losses of plain tensors that are a process's part of something larger: the process group is an argument.

Cross entropy is in a file of its own; negative log-likelihood and the losses of pairs are below.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.autograd import Function
from torch.distributed import ProcessGroup

from openaclnn.torch.dispatch import FLOATS
from openaclnn.torch.kernels import KERNELS
from openaclnn.torch.parallel.collectives import (
    Groups,
    Options,
    Targets,
    check_classes,
    check_reduction,
    local_weights,
    loss_dtype,
    max_over_classes,
    reduced_over_rows,
    shared_gradient,
    sum_over,
    summed_by,
)
from openaclnn.torch.parallel.cross_entropy import cross_entropy_of_positions
from openaclnn.torch.private import uncompiled


@uncompiled
def vocab_parallel_cross_entropy(
    logits_shard: Tensor,
    target: Tensor,
    *,
    group: ProcessGroup | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    zloss_scale: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of logits (..., classes), of which each process of `group` has the next classes of every row.

    Shards may be of any widths. `target` (...) is the same everywhere and counts classes over all shards; `weight` is
    that of the shard's classes or of all. Every process gets the same loss, and the gradient of its own logits.
    """
    options = Options(reduction, ignore_index, label_smoothing, zloss_scale)
    if target.shape != logits_shard.shape[:-1]:
        expected = tuple(logits_shard.shape[:-1])
        raise ValueError(f"target has shape {tuple(target.shape)}, expected {expected}")
    rows = logits_shard.reshape(target.numel(), logits_shard.shape[-1])
    groups = Groups(classes=known_group(group))
    loss = cross_entropy_of_positions(rows, target.reshape(-1), weight, options, groups)
    return loss.reshape(target.shape) if reduction == "none" else loss


@uncompiled
def batch_parallel_cross_entropy(
    input: Tensor,
    target: Tensor,
    *,
    group: ProcessGroup | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    zloss_scale: float = 0.0,
    reduction: str = "mean",
    averaged: bool = False,
) -> Tensor:
    """Cross entropy of logits (N, C, ...), each process of `group` with rows of its own; a mean is that of all rows.

    `averaged`: parameters' gradients will be averaged over the group (DistributedDataParallel does), not added up.
    """
    options = Options(reduction, ignore_index, label_smoothing, zloss_scale)
    return cross_entropy_of_positions(input, target, weight, options, _rows(group, averaged))


@uncompiled
def batch_parallel_nll_loss(
    input: Tensor,
    target: Tensor,
    *,
    group: ProcessGroup | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    averaged: bool = False,
) -> Tensor:
    """Negative log-likelihood of log-probabilities (N, C, ...), each process of `group` with rows of its own."""
    options = Options(reduction, ignore_index)
    return nll_of_positions(input, target, weight, options, _rows(group, averaged))


@uncompiled
def batch_parallel_l1_loss(
    input: Tensor,
    target: Tensor,
    *,
    group: ProcessGroup | None = None,
    reduction: str = "mean",
    averaged: bool = False,
) -> Tensor:
    """Absolute error, each process of `group` with elements of its own."""
    return difference_of_elements("l1_loss", input, target, reduction, _rows(group, averaged))


@uncompiled
def batch_parallel_smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    *,
    group: ProcessGroup | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
    averaged: bool = False,
) -> Tensor:
    """Smooth absolute error, each process of `group` with elements of its own."""
    groups = _rows(group, averaged)
    return difference_of_elements("smooth_l1_loss", input, target, reduction, groups, beta)


def _rows(group: ProcessGroup | None, averaged: bool) -> Groups:
    """Rows, or elements, sharded over a group."""
    return Groups(rows=(known_group(group),), averaged=averaged)


def known_group(group: ProcessGroup | None) -> ProcessGroup:
    """None is PyTorch's name for the group of all processes."""
    if group is not None:
        return group
    everyone = torch.distributed.group.WORLD
    if everyone is None:
        raise RuntimeError("there is no process group: call torch.distributed.init_process_group")
    return everyone


# Negative log-likelihood: one number a position is read.


def nll_of_positions(
    log_prob: Tensor, target: Tensor, weight: Tensor | None, options: Options, groups: Groups
) -> Tensor:
    """The loss of log-probabilities (N, classes of this process, ...), with weights of these classes or of all."""
    check_classes(log_prob, target, weight)
    width, shared = log_prob.shape[1], groups.sharing_rows
    _, classes = max_over_classes(log_prob.new_zeros(0).double(), width, groups.classes)
    targets = Targets.of(target, width, classes, options.ignore_index)
    weights = targets.local.double()
    if weight is not None:
        weights = targets.local_of(local_weights(weight, width, classes))
    losses = torch.where(targets.local, -weights * targets.local_of(log_prob), 0.0)
    if not log_prob.numel():  # nothing here, but other processes wait for this one in backward
        losses = losses + log_prob.sum() * 0.0
    if options.reduction == "none":
        return summed_by(shared, losses).to(loss_dtype(log_prob))
    everybody, factor = [*shared, *groups.rows], groups.gradient_factor
    loss = summed_by(everybody, losses.sum() * factor, factor)
    if options.reduction == "mean":
        loss = loss / sum_over(everybody, [weights.sum()])[0]
    return loss.to(loss_dtype(log_prob))


# Losses of pairs of tensors, element by element.


def difference_of_elements(
    name: str, input: Tensor, target: Tensor, reduction: str, groups: Groups, *beta: float
) -> Tensor:
    """L1 or smooth L1 loss of this process's elements (none), or of those of all."""
    if beta and beta[0] < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    check_reduction(reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"target has shape {tuple(target.shape)}, expected {tuple(input.shape)} of input"
        )
    if input.dtype not in FLOATS:
        expected = "float32, float16, bfloat16 or float64"
        raise TypeError(f"input has dtype {input.dtype}, expected {expected}")
    if target.dtype != input.dtype:
        raise TypeError(f"target has dtype {target.dtype}, expected {input.dtype} of input")
    if target.device != input.device:
        raise RuntimeError(f"target is on {target.device}, expected {input.device} of input")
    loss: Tensor = _Difference.apply(input, target, name, reduction, groups, beta)  # type: ignore[no-untyped-call]
    return loss


class _Difference(Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        target: Tensor,
        name: str,
        reduction: str,
        groups: Groups,
        beta: tuple[float, ...],
    ) -> Tensor:
        ctx.save_for_backward(input, target)
        ctx.kernel, ctx.options = KERNELS[f"{name}_backward"], ("none", *beta)
        ctx.factor, ctx.groups, ctx.reduction = None, groups, reduction
        compute = KERNELS[name].call
        if reduction == "none":
            losses: Tensor = compute(input, target, reduction, *beta)
            return losses.to(loss_dtype(input))
        count = input.new_full((), input.numel(), dtype=torch.float64)
        # The mean of what is here, since a sum of many may be beyond float16.
        total = compute(input, target, "mean", *beta).double() * count
        if not input.numel():
            total = torch.zeros_like(count)
        (loss,), (ctx.factor,) = reduced_over_rows(groups, reduction, [total], [count])
        return loss.to(loss_dtype(input))

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        input, target = ctx.saved_tensors
        shared = shared_gradient(ctx.groups, grad_loss, ctx.reduction)
        if ctx.factor is None:
            shared = shared.to(input.dtype)
        else:
            wide = torch.promote_types(input.dtype, torch.float32)
            shared = (shared.double() * ctx.factor).to(wide)
        if torch.is_grad_enabled():
            gradient = ctx.kernel.gradient(shared, input, target, *ctx.options).to(input.dtype)
        else:
            gradient = torch.empty_like(input)
            ctx.kernel.into(gradient, shared, input, target, *ctx.options)
        by_input = gradient if ctx.needs_input_grad[0] else None
        by_target = -gradient if ctx.needs_input_grad[1] else None
        return by_input, by_target, None, None, None, None
