"""What processes tell each other: the largest logits of rows, and sums. In float64, so that their number hardly shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, ReduceOp, all_reduce, get_rank, get_world_size

__all__ = ["Extent", "Spread", "sums", "tops", "total"]


@dataclass(frozen=True)
class Spread:
    """Over which processes the classes of a row are spread, and over which the rows.

    `averaged`: who adds up the gradients of parameters divides by the number of processes.
    """

    classes: ProcessGroup | None = None
    rows: Sequence[ProcessGroup] = ()
    averaged: bool = False

    @property
    def gradient_factor(self) -> float:
        """What makes up for that division."""
        return math.prod(map(get_world_size, self.rows)) if self.averaged else 1.0


@dataclass(frozen=True)
class Extent:
    """Where a process's classes lie: the first one's index and the number of all, as tensors that stay on the device."""

    start: Tensor
    classes: Tensor


def tops(top: Tensor, width: int, group: ProcessGroup | None) -> tuple[Tensor, Extent]:
    """The largest of `top` over the processes, row by row, and where this one's `width` classes lie.

    One exchange: each process has a place of its own for its width behind the rows. Without a group there is none.
    """
    if group is None:
        return top, Extent(top.new_zeros(()), top.new_full((), width))
    rank, size = get_rank(group), get_world_size(group)
    widths = top.new_zeros(size)
    widths[rank] = width
    together = torch.cat([top, widths])
    all_reduce(together, ReduceOp.MAX, group)
    widths = together[top.numel() :]
    return together[: top.numel()], Extent(widths[:rank].sum(), widths.sum())


def sums(columns: Sequence[Tensor], group: ProcessGroup | None) -> list[Tensor]:
    """Each of `columns`, of any shapes, added up over the processes: all in one exchange."""
    if group is None:
        return list(columns)
    together = torch.cat([column.flatten() for column in columns])
    all_reduce(together, ReduceOp.SUM, group)
    results, start = [], 0
    for column in columns:
        results.append(together[start : start + column.numel()].view(column.shape))
        start += column.numel()
    return results


def total(numbers: Sequence[Tensor], groups: Sequence[ProcessGroup]) -> list[Tensor]:
    """Numbers added up over the processes of every group: one exchange a group."""
    columns = list(numbers)
    for group in groups:
        columns = sums(columns, group)
    return columns
