"""Cross entropy where classes (vocabulary-parallel), rows, or both are sharded over processes.

A row's log-sum-exp over all classes takes two all-reduces, one of the largest logits and one of sums; the gradient takes none. No process
sees a whole row, and nothing of the logits' size is held but logits and gradient. Our kernels compute what they can; smoothing, whose
sums run over classes of other processes too, and float64 take PyTorch's operations, in blocks of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed import ProcessGroup

from openaclnn.torch.kernels import KERNELS
from openaclnn.torch.parallel.collectives import (
    ClassRange,
    Groups,
    Options,
    Targets,
    at_class,
    check_classes,
    local_weights,
    loss_dtype,
    max_over_classes,
    reduced_over_rows,
    shared_by,
    shared_gradient,
    sum_together,
    summed_by,
)

IGNORED = -100

_forward, _backward = KERNELS["cross_entropy_logits"], KERNELS["cross_entropy_logits_grad"]
_PLAIN = "none", IGNORED, 0.0, 0.0  # no reduction, no smoothing, no z-loss

# Elements of a block: it stays in a core's cache, and on a GPU outweighs the launches.
CPU_BLOCK, GPU_BLOCK = 2**17, 2**24


def cross_entropy_of_positions(
    input: Tensor, target: Tensor, weight: Tensor | None, options: Options, groups: Groups
) -> Tensor:
    """The loss of logits (N, classes of this process, ...), with weights of these classes or of all. With more than two axes, rows of
    classes are copied.
    """
    check_classes(input, target, weight)
    rows = input.movedim(1, -1).reshape(target.numel(), input.shape[1])
    loss: Tensor = _CrossEntropy.apply(rows, target.reshape(-1), weight, options, groups)  # type: ignore[no-untyped-call]
    return loss.reshape(target.shape) if options.reduction == "none" else loss


class _CrossEntropy(Function):
    """Keeps the logits and a few numbers a row. The gradient needs no all-reduce, that of the gradient does."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        options: Options,
        groups: Groups,
    ) -> Tensor:
        row = _row_statistics(logits, target, weight, options, groups.classes)
        losses, zlosses = losses_of(row, options)
        by_weight: Tensor | float = 1.0
        by_count: Tensor | float = 1.0
        if options.reduction == "none":
            loss = losses + zlosses
        else:
            counts = row.target_weight.sum(), row.targets.counted.double().sum()
            (loss, zloss), (by_weight, by_count) = reduced_over_rows(
                groups, options.reduction, [losses.sum(), zlosses.sum()], counts
            )
            loss = loss + zloss if options.zloss_scale else loss
        ctx.save_for_backward(logits)
        ctx.row, ctx.options, ctx.groups = row, options, groups
        ctx.factors = Factors(
            nll=(1.0 - options.label_smoothing) * row.target_weight * by_weight,
            share=options.label_smoothing / row.classes * by_weight,
            square=2.0 * options.zloss_scale * by_count,
        )
        return loss.to(loss_dtype(logits))

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        grad_loss = grad_loss.double()
        with torch.no_grad():
            gradient = gradient_into(torch.empty_like(logits), logits, grad_loss, ctx.row, ctx.factors, ctx.options)  # fmt: skip
        if torch.is_grad_enabled():
            of_rows, groups = replace(ctx.groups, classes=None), ctx.groups.sharing_rows
            shared = shared_gradient(of_rows, grad_loss, ctx.options.reduction)
            everywhere, here = _composed(logits, ctx.row, ctx.factors, groups)
            outer = shared.expand_as(here), -shared_by(groups, shared).expand_as(here)
            (formula,) = torch.autograd.grad((everywhere, here), logits, outer, create_graph=True)
            gradient = _WithValue.apply(formula, gradient)  # type: ignore[no-untyped-call]
        return gradient, None, None, None, None


# Forward: the statistics of rows over all classes.


@dataclass(frozen=True)
class RowStatistics:
    """log_prob = (x - top) - rest; all is the same in every process but `targets` and `weight`."""

    targets: Targets
    weight: Tensor | None  # of this process's classes
    classes: Tensor
    top: Tensor
    rest: Tensor
    difference: Tensor  # x - top of the target
    target_weight: Tensor
    total_weight: Tensor  # of all classes
    weighted_sum: Tensor | None  # of weight * (x - top), for smoothing


def _row_statistics(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: Options,
    group: ProcessGroup | None,
) -> RowStatistics:
    """One all-reduce of largest logits, one of sums. Without a group all classes are here, and none is needed."""
    width = logits.shape[1]
    local = local_largest(logits, group)
    top, classes = max_over_classes(local[0], width, group)
    targets = Targets.of(target, width, classes, options.ignore_index)
    if weight is not None:
        weight = local_weights(weight, width, classes)
    columns = local_sums(logits, local, top, targets, weight, options)
    return statistics_of(sum_together(columns, group), top, classes, targets, weight, options)


def local_largest(logits: Tensor, group: ProcessGroup | None) -> tuple[Tensor, Tensor]:
    """The largest logit of each row here, and what the others add to its share of the sum of exponentials."""
    top, others = _largest(logits)
    return top if group is None else _with_empty_rows(top, logits), others


def local_sums(
    logits: Tensor, local: tuple[Tensor, Tensor], top: Tensor, targets: Targets, weight: Tensor | None, options: Options
) -> list[Tensor]:  # fmt: skip
    """What this process adds to the sums of each row, whose largest logit is known."""
    columns = [
        _local_sum(*local, top),
        (local[0] == top).double(),
        torch.where(targets.local, targets.local_of(logits) - top, 0.0),
    ]
    if options.label_smoothing:
        columns.append(_weighted_sum(logits, top, weight))
    if weight is not None:
        columns += [targets.local_of(weight), weight.sum()]
    return columns


def statistics_of(
    sums: list[Tensor], top: Tensor, classes: ClassRange, targets: Targets, weight: Tensor | None, options: Options
) -> RowStatistics:  # fmt: skip
    others, ties, difference, *more = sums
    # Each process with the largest logit left it out of its sum, but the row may leave it out once. A row without a
    # finite one has no probabilities.
    rest = (others + (ties - 1)).log1p() + (top - top)
    weighted_sum = more.pop(0) if options.label_smoothing else None
    target_weight, total_weight = more or (torch.ones_like(top), classes.classes)
    return RowStatistics(
        targets, weight, classes.classes, top, rest, difference,
        torch.where(targets.counted, target_weight, 0.0), total_weight, weighted_sum,
    )  # fmt: skip


def _local_sum(local_top: Tensor, local_others: Tensor, top: Tensor) -> Tensor:
    """What a process adds to the sum of exp(x - top), the largest class left out where it has it.

    That one is exp(0) = 1: with it, a sum of others far below 1 would be lost. Classes that are all -inf add nothing.
    """
    elsewhere = (local_top - top).exp() * (1.0 + local_others)
    local_sum = torch.where(local_top == top, local_others, elsewhere)
    return torch.where((local_top == -torch.inf) & (top != -torch.inf), 0.0, local_sum)


def losses_of(row: RowStatistics, options: Options) -> tuple[Tensor, Tensor]:
    """Each row's loss without its z-loss, and that."""
    losses = (1.0 - options.label_smoothing) * row.target_weight * (row.rest - row.difference)
    if row.weighted_sum is not None:
        every = row.total_weight * row.rest - row.weighted_sum
        losses = losses + options.label_smoothing / row.classes * every
    lse = row.top + row.rest
    zlosses = options.zloss_scale * lse * lse if options.zloss_scale else torch.zeros_like(lse)
    counted = row.targets.counted
    return torch.where(counted, losses, 0.0), torch.where(counted, zlosses, 0.0)


def _blocks(logits: Tensor) -> Iterator[slice]:
    rows, classes = logits.shape
    elements = CPU_BLOCK if logits.device.type == "cpu" else GPU_BLOCK
    step = max(1, elements // max(1, classes))
    return (slice(start, start + step) for start in range(0, rows, step))


def _wide_copy(values: Tensor) -> Tensor:
    """To compute in."""
    return values.to(torch.promote_types(values.dtype, torch.float32), copy=True)


def _largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each row, and what the others add to exp(0) = 1, its own share of the sum of exp(x - top)."""
    if logits.numel() == 0:
        top = logits.new_full(logits.shape[:1], -math.inf, dtype=torch.float64)
        return top, torch.zeros_like(top)
    targets = torch.full(logits.shape[:1], IGNORED, device=logits.device)
    _, top, rest = _forward.compute(logits, targets, None, *_PLAIN)
    return top.double(), rest.double().expm1()


def _with_empty_rows(top: Tensor, logits: Tensor) -> Tensor:
    """`top` with -inf where a row has nothing else here: the kernel says NaN, but other processes may have more of it."""
    lost = top.isnan()
    if logits.numel() and lost.any():
        top[lost] = logits[lost].amax(dim=1).double()
    return top


def _weighted_sum(logits: Tensor, top: Tensor, weight: Tensor | None) -> Tensor:
    """Sum of weight * (x - top) over the classes, row by row."""
    result = torch.zeros_like(top)
    for block in _blocks(logits):
        wide = _wide_copy(logits[block])
        wide.sub_(top[block, None].to(wide.dtype))
        if weight is not None:
            wide.mul_(weight.to(wide.dtype))
        result[block] = wide.sum(dim=1, dtype=torch.float64)
    return result


# Backward: p * (nll + extra) - share * weight, and nll less at the target, in this process or not.


@dataclass(frozen=True)
class Factors:
    """Of a row's gradient, for a gradient of the loss that is 1; `square` is that of the log-sum-exp, for the z-loss."""

    nll: Tensor
    share: Tensor | float
    square: Tensor | float


def gradient_into(
    gradient: Tensor, logits: Tensor, grad_loss: Tensor, row: RowStatistics, factors: Factors, options: Options
) -> Tensor:  # fmt: skip
    """The gradient of this process's logits, in a place that may be theirs."""
    if not logits.numel():
        return gradient
    index = row.targets.index
    log_prob = (at_class(logits, index) - row.top) - row.rest
    nll = grad_loss * factors.nll
    share = (grad_loss * factors.share).expand_as(row.top) if options.label_smoothing else None
    # What smoothing and z-loss add to the factor of the probabilities.
    extra = grad_loss * factors.square * (row.top + row.rest) if options.zloss_scale else None
    if share is not None:
        smoothed = share * row.total_weight
        extra = smoothed if extra is None else extra + smoothed
    factor = nll if extra is None else nll + extra
    if share is None and logits.dtype != torch.float64:
        _write_by_kernel(gradient, logits, row, factor)
    else:
        _write_by_blocks(gradient, logits, row, factor, share)
    # At the target p - 1 is expm1: p near 1 keeps its precision.
    probability = log_prob.exp()
    value = torch.where(row.targets.local, log_prob.expm1(), probability) * nll
    if extra is not None:
        value += probability * extra
    if share is not None:
        value -= share if row.weight is None else share * row.weight[index]
    value = torch.where(row.targets.counted, value, 0.0).to(gradient.dtype)
    return gradient.scatter_(1, index[:, None], value[:, None])


def _write_by_kernel(gradient: Tensor, logits: Tensor, row: RowStatistics, factor: Tensor) -> None:
    """factor * p of all classes but `targets.index`, which the kernel takes for the target.

    Its factor has the dtype of the logits. With 16 bits that is too coarse for ours, whose logarithm goes into the
    exponent instead: sign * exp((x - top) - (rest - log(factor))).
    """
    rest = row.rest
    if logits.dtype != torch.float32:
        factor, rest = factor.sign(), rest - factor.abs().log()
    targets = torch.where(row.targets.counted, row.targets.index, IGNORED)
    given = factor.to(logits.dtype), logits, row.top.float(), rest.float(), targets, None
    _backward.into(gradient, *given, *_PLAIN)


def _write_by_blocks(
    gradient: Tensor, logits: Tensor, row: RowStatistics, factor: Tensor, share: Tensor | None
) -> None:
    for block in _blocks(logits):
        wide = _wide_copy(logits[block])
        work = wide.dtype
        wide.sub_(row.top[block, None].to(work)).sub_(row.rest[block, None].to(work)).exp_()
        wide.mul_(factor[block, None].to(work))
        if share is not None:
            part = share[block, None].to(work)
            wide.sub_(part if row.weight is None else part * row.weight.to(work))
        gradient[block] = wide.masked_fill_(~row.targets.counted[block, None], 0.0)


# The gradient's own derivatives, by PyTorch's operations and all-reduces, to any order.


def _composed(
    logits: Tensor, row: RowStatistics, factors: Factors, groups: list[ProcessGroup]
) -> tuple[Tensor, Tensor]:
    """The loss of rows: what all processes have the same of, made of the log-sum-exp, and less that, what is made of this process's logits."""
    targets = row.targets

    def masked(value: Tensor | float) -> Tensor:
        """A number a row, 0 where the row does not count: a mean over nothing has no factors."""
        wide = torch.as_tensor(value, dtype=torch.float64, device=targets.counted.device)
        return torch.where(targets.counted, wide, 0.0)

    work = torch.promote_types(logits.dtype, torch.float32)
    x = torch.where(targets.counted[:, None], logits.to(work), 0.0)
    weighted = x if row.weight is None else x * row.weight.to(work)
    nll, share, square = (masked(each) for each in (factors.nll, factors.share, factors.square))
    top = masked(row.top)
    powers = (x - top.to(work)[:, None]).exp().sum(1, dtype=torch.float64)
    rest = summed_by(groups, powers).log()
    everywhere = (nll + share * row.total_weight) * rest + square / 2 * (top + rest).square()
    return everywhere, nll * targets.local_of(x) + share * weighted.sum(1, dtype=torch.float64)


class _WithValue(Function):
    """A value that a kernel computed with more digits, with the derivatives of the formula."""

    @staticmethod
    def forward(ctx: Any, formula: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, None
