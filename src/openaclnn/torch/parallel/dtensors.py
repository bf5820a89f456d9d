"""The losses of DTensors, however they are sharded; named and written as PyTorch's. What they return are DTensors."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from openaclnn.torch.parallel.cross_entropy import cross_entropy_of_positions
from openaclnn.torch.parallel.difference import Loss, absolute, difference_of_elements, smooth
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.likelihood import likelihood_of_positions
from openaclnn.torch.parallel.options import Options, check_classes
from openaclnn.torch.parallel.placements import Layout

__all__ = ["cross_entropy", "l1_loss", "nll_loss", "smooth_l1_loss"]


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    zloss_scale: float = 0.0,
) -> Tensor:
    """Cross entropy of logits (N, C, ...) sharded over the batch, the classes (one mesh dimension at most), or both.

    `target` and `weight` are DTensors of any placements, or plain tensors that are the same in every process.
    """
    options = Options(reduction, ignore_index, label_smoothing, zloss_scale)
    return _of_classes(cross_entropy_of_positions, input, target, weight, options)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of log-probabilities (N, C, ...) sharded over the batch, the classes, or both."""
    options = Options(reduction, ignore_index)
    return _of_classes(likelihood_of_positions, input, target, weight, options)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Absolute error of a tensor sharded over any axes."""
    return _of_elements(absolute(), input, target, reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Smooth absolute error of a tensor sharded over any axes."""
    return _of_elements(smooth(beta), input, target, reduction)


def _of_classes(
    loss: Callable[[Tensor, Tensor, Tensor | None, Options, Spread], Tensor],
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: Options,
) -> Tensor:
    layout = Layout.of(input, class_axis=1)
    check_classes(input, target, weight)
    if weight is not None:
        weight = layout.part("weight", weight, layout.of_weights)
    value = loss(
        layout.part("input", input, layout.of_input),
        layout.part("target", target, layout.of_positions),
        weight,
        options,
        layout.spread,
    )
    return layout.whole(value, target.shape, options.reduction == "none")


def _of_elements(loss: Loss, input: Tensor, target: Tensor, reduction: str) -> Tensor:
    layout = Layout.of(input, class_axis=None)
    value = difference_of_elements(
        loss,
        layout.part("input", input, layout.of_input),
        layout.part("target", target, layout.of_input),
        reduction,
        layout.spread,
    )
    return layout.whole(value, input.shape, reduction == "none")
