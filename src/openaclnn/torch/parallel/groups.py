"""The losses of plain tensors that are a process's part of something larger: the group of processes is an argument."""

from __future__ import annotations

import torch.distributed
from torch import Tensor
from torch.distributed import ProcessGroup

from openaclnn.torch.parallel.cross_entropy import cross_entropy_of_positions, cross_entropy_of_rows
from openaclnn.torch.parallel.difference import absolute, difference_of_elements, smooth
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.likelihood import likelihood_of_positions
from openaclnn.torch.parallel.options import Options
from openaclnn.torch.private import uncompiled

__all__ = [
    "batch_parallel_cross_entropy",
    "batch_parallel_l1_loss",
    "batch_parallel_nll_loss",
    "batch_parallel_smooth_l1_loss",
    "vocab_parallel_cross_entropy",
]


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
    spread = Spread(classes=_known(group))
    loss = cross_entropy_of_rows(rows, target.reshape(-1), weight, options, spread)
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
    return likelihood_of_positions(input, target, weight, options, _rows(group, averaged))


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
    return difference_of_elements(absolute(), input, target, reduction, _rows(group, averaged))


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
    loss = smooth(beta)
    return difference_of_elements(loss, input, target, reduction, _rows(group, averaged))


def _rows(group: ProcessGroup | None, averaged: bool) -> Spread:
    """Rows, or elements, spread over a group."""
    return Spread(rows=(_known(group),), averaged=averaged)


def _known(group: ProcessGroup | None) -> ProcessGroup:
    """None is PyTorch's name for the group of all processes."""
    if group is not None:
        return group
    everyone = torch.distributed.group.WORLD
    if everyone is None:
        raise RuntimeError("there is no process group: call torch.distributed.init_process_group")
    return everyone
