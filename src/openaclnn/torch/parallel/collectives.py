"""What the losses over process groups share: options and refusals, the groups, all-reduces, targets, and derivatives through all-reduces.

All-reduces are of float64, so that the number of processes hardly shows in a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed import ProcessGroup, ReduceOp, all_reduce, get_rank, get_world_size

# Options and refusals. What is wrong is refused before a process tells another anything; the exceptions are PyTorch's.


@dataclass(frozen=True)
class Options:
    """What a loss over classes is asked for."""

    reduction: str = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0
    zloss_scale: float = 0.0

    def __post_init__(self) -> None:
        check_reduction(self.reduction)
        if not 0.0 <= self.label_smoothing <= 1.0:
            raise RuntimeError(
                f"label_smoothing must be between 0.0 and 1.0. Got: {self.label_smoothing}"
            )


def check_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


def check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    """Logits or log-probabilities (N, C, ...), targets and weights fit each other."""
    expected = (*input.shape[:1], *input.shape[2:])
    if not input.is_floating_point():
        raise TypeError(f"input has dtype {input.dtype}, expected a floating-point dtype")
    if target.is_floating_point():
        raise TypeError(
            f"target has dtype {target.dtype}: class probabilities are not served, expected class indices"
        )
    if input.ndim < 2:
        raise ValueError(f"input has shape {tuple(input.shape)}, expected (N, C) or (N, C, ...)")
    if target.shape != expected:
        raise ValueError(f"target has shape {tuple(target.shape)}, expected {expected}")
    for name, tensor in (("target", target), ("weight", weight)):
        if tensor is not None and tensor.device != input.device:
            raise RuntimeError(f"{name} is on {tensor.device}, expected {input.device} of input")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"weight has shape {tuple(weight.shape)}, expected one dimension")


def loss_dtype(input: Tensor) -> torch.dtype:
    """The input's, or float32 under autocast, as PyTorch's losses have it."""
    return torch.float32 if torch.is_autocast_enabled(input.device.type) else input.dtype


# Process groups and all-reduces.


@dataclass(frozen=True)
class Groups:
    """The process group over which the classes of a row are sharded, and those over which the rows, or elements, are.

    `averaged`: who adds up the gradients of parameters divides by the number of processes.
    """

    classes: ProcessGroup | None = None
    rows: Sequence[ProcessGroup] = ()
    averaged: bool = False

    @property
    def sharing_rows(self) -> list[ProcessGroup]:
        """That of the classes, if they are sharded."""
        return [] if self.classes is None else [self.classes]

    @property
    def gradient_factor(self) -> float:
        """What makes up for that division."""
        return math.prod(map(get_world_size, self.rows)) if self.averaged else 1.0


@dataclass(frozen=True)
class ClassRange:
    """The first class of this process and the number of all classes, as tensors that stay on the device."""

    start: Tensor
    classes: Tensor
    widest: Tensor  # of the processes' parts


def max_over_classes(
    top: Tensor, width: int, group: ProcessGroup | None
) -> tuple[Tensor, ClassRange]:
    """The largest of `top` over the processes, row by row, and where this one's `width` classes lie.

    One all-reduce: behind the rows each process has an element for its width. Without a group there is none.
    """
    if group is None:
        return top, ClassRange(top.new_zeros(()), *[top.new_full((), width)] * 2)
    rank, size = get_rank(group), get_world_size(group)
    widths = top.new_zeros(size)
    widths[rank] = width
    together = torch.cat([top, widths])
    all_reduce(together, ReduceOp.MAX, group)
    widths = together[top.numel() :]
    return together[: top.numel()], ClassRange(widths[:rank].sum(), widths.sum(), widths.max())


def sum_together(columns: Sequence[Tensor], group: ProcessGroup | None) -> list[Tensor]:
    """Each of `columns`, of any shapes, added up over the processes: all in one all-reduce."""
    return sums_begun(columns, group)()


def sums_begun(columns: Sequence[Tensor], group: ProcessGroup | None) -> Callable[[], list[Tensor]]:
    """The same, begun: what waits for it."""
    if group is None:
        return lambda: list(columns)
    wait = begun(torch.cat([column.flatten() for column in columns]), ReduceOp.SUM, group)
    sizes, shapes = [column.numel() for column in columns], [column.shape for column in columns]

    def finish() -> list[Tensor]:
        parts = torch.split(wait(), sizes)
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    return finish


def begun(tensor: Tensor, op: Any, group: ProcessGroup | None) -> Callable[[], Tensor]:
    """An all-reduce of a tensor in its place, begun: what waits for it."""
    if group is None:
        return lambda: tensor
    work = all_reduce(tensor, op, group, async_op=True)

    def finish() -> Tensor:
        work.wait()
        return tensor

    return finish


def sum_over(groups: Sequence[ProcessGroup], columns: Sequence[Tensor]) -> list[Tensor]:
    """The same over the processes of every group: one all-reduce a group."""
    sums = list(columns)
    for group in groups:
        sums = sum_together(sums, group)
    return sums


def reduced_over_rows(
    groups: Groups, reduction: str, sums: Sequence[Tensor], divisors: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor | float]]:
    """Sums of this process's losses as sums or means of all, and what their gradients are to be multiplied by.

    A mean divides by what counts in any process: a weight, or a number of elements.
    """
    factor = groups.gradient_factor
    everywhere = sum_over(groups.rows, [*sums, *divisors])
    totals, counts = everywhere[: len(sums)], everywhere[len(sums) :]
    if reduction == "sum":
        return totals, [factor] * len(totals)
    means = [total / count for total, count in zip(totals, counts, strict=True)]
    return means, [factor / count for count in counts]


# Targets: in this process's classes, in another's, or nowhere.


@dataclass(frozen=True)
class Targets:
    """Which positions count, which of their targets are classes of this process, and which of these; 0 for the others."""

    counted: Tensor
    local: Tensor
    index: Tensor
    width: int

    @classmethod
    def of(cls, target: Tensor, width: int, classes: ClassRange, ignore_index: int) -> Targets:
        """On the CPU a target out of range is refused; elsewhere, where looking would wait, it counts for nothing."""
        target = target.long()
        counted = (target != ignore_index) & (target >= 0) & (target < classes.classes)
        if target.device.type == "cpu":
            stray = ~counted & (target != ignore_index)
            if stray.any():
                raise IndexError(f"Target {target[stray][0].item()} is out of bounds.")
        index = target - classes.start.long()
        local = counted & (index >= 0) & (index < width)
        return cls(counted, local, torch.where(local, index, 0), width)

    def of_rows(self, rows: slice) -> Targets:
        return Targets(self.counted[rows], self.local[rows], self.index[rows], self.width)

    def local_of(self, table: Tensor) -> Tensor:
        """The target's entry of (N, classes, ...), or of (classes,), in float64 where it is local; 0 elsewhere."""
        if self.width == 0:
            return torch.zeros_like(self.index, dtype=torch.float64)
        entries = table[self.index].double() if table.ndim == 1 else at_class(table, self.index)
        return torch.where(self.local, entries, 0.0)


def at_class(values: Tensor, index: Tensor) -> Tensor:
    """The value of class `index` at each position, in float64."""
    return values.gather(1, index[:, None])[:, 0].double()


def local_weights(weight: Tensor, width: int, classes: ClassRange) -> Tensor:
    """The weights of this process's classes in float64; `weight` has these, or those of all classes."""
    weight = weight.double()
    if weight.numel() == width:
        return weight
    count, start = int(classes.classes), int(classes.start)
    if weight.numel() != count:
        raise ValueError(
            f"weight has {weight.numel()} elements, expected {count}, the number of all classes, "
            f"or {width}, that of the process's own"
        )
    return weight[start : start + width]


# Derivatives through all-reduces, to any order. What several processes have the same of (a loss's gradient, a row's log-sum-exp) each
# of them uses for its own part, so that the derivative by it is the sum of theirs. All processes differentiate together, as they compute
# the loss together.


def shared_gradient(groups: Groups, grad_loss: Tensor, reduction: str) -> Tensor:
    """The gradient of a loss that all processes have: of a number, or with `none` of rows whose classes are sharded.

    Where gradients of parameters are averaged, so is what the processes make of this one.
    """
    if reduction == "none":
        return shared_by(groups.sharing_rows, grad_loss)
    return shared_by([*groups.sharing_rows, *groups.rows], grad_loss, groups.gradient_factor)


def shared_by(groups: list[ProcessGroup], value: Tensor, factor: float = 1.0) -> Tensor:
    """What all processes have the same of, for each to use in its own part; its gradient is their sum over a factor."""
    result: Tensor = _Shared.apply(value, groups, factor)  # type: ignore[no-untyped-call]
    return result


def summed_by(groups: list[ProcessGroup], part: Tensor, factor: float = 1.0) -> Tensor:
    """The other way round: each process's part, added up and divided by a factor. The sum is the same in all, and so is its gradient."""
    result: Tensor = _Summed.apply(part, groups, factor)  # type: ignore[no-untyped-call]
    return result


class _Shared(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, groups: list[ProcessGroup], factor: float) -> Tensor:
        ctx.sum = groups, factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        groups, factor = ctx.sum
        return summed_by(groups, gradient, factor), None, None


class _Summed(Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, groups: list[ProcessGroup], factor: float) -> Tensor:
        ctx.sum = groups, factor
        (total,) = sum_over(groups, [part])
        return total / factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        groups, factor = ctx.sum
        return shared_by(groups, gradient, factor), None, None
