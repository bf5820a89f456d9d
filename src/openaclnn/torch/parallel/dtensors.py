"""The losses of DTensors, however they are sharded; named and written as PyTorch's. What they return are DTensors.

What our kernels do not have (class probabilities as targets, one row alone, other dtypes, tensors of different shapes) PyTorch's
functions compute, of tensors that are gathered first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributed.tensor import Replicate
from torch.nn import functional as torch_functional

from openaclnn.torch.parallel.cross_entropy import cross_entropy_of_positions
from openaclnn.torch.parallel.difference import Loss, absolute, difference_of_elements, smooth
from openaclnn.torch.parallel.exchange import Spread
from openaclnn.torch.parallel.likelihood import likelihood_of_positions
from openaclnn.torch.parallel.options import Options, check_classes
from openaclnn.torch.parallel.placements import Layout, on_mesh
from openaclnn.torch.private import uncompiled
from openaclnn.torch.roads import FLOATS

__all__ = ["cross_entropy", "l1_loss", "nll_loss", "smooth_l1_loss"]


@uncompiled
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
    if target.is_floating_point() or input.ndim < 2:
        if zloss_scale:
            raise TypeError(
                f"zloss_scale: expected class indices and logits (N, C, ...), got a target of {target.dtype} "
                f"and logits of shape {tuple(input.shape)}"
            )
        return _by_pytorch(
            torch_functional.cross_entropy, input, target, weight,
            ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing,
        )  # fmt: skip
    return _of_classes(cross_entropy_of_positions, input, target, weight, options)


@uncompiled
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
    if input.ndim < 2:
        return _by_pytorch(
            torch_functional.nll_loss, input, target, weight,
            ignore_index=ignore_index, reduction=reduction,
        )  # fmt: skip
    return _of_classes(likelihood_of_positions, input, target, weight, options)


@uncompiled
def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Absolute error of a tensor sharded over any axes."""
    if not _is_a_pair(input, target):
        return _by_pytorch(torch_functional.l1_loss, input, target, reduction=reduction)
    return _of_elements(absolute(), input, target, reduction)


@uncompiled
def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Smooth absolute error of a tensor sharded over any axes."""
    if not _is_a_pair(input, target):
        return _by_pytorch(
            torch_functional.smooth_l1_loss, input, target, reduction=reduction, beta=beta
        )
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


def _is_a_pair(input: Tensor, target: Tensor) -> bool:
    """Whether our kernels take these two."""
    same = input.dtype is target.dtype and input.shape == target.shape
    return same and input.dtype in FLOATS


def _by_pytorch(
    function: Callable[..., Any], input: Tensor, *tensors: Tensor | None, **options: Any
) -> Tensor:
    """PyTorch's own function, which takes DTensors alone, on whole tensors: of parts of several lengths it averages means."""
    mesh = Layout.mesh_of(input)
    everywhere = [Replicate()] * mesh.ndim
    whole = [
        None if own is None else on_mesh(mesh, own).redistribute(mesh, everywhere)
        for own in (input, *tensors)
    ]
    loss: Tensor = function(*whole, **options)
    return loss


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
