"""The options of the losses, and what is refused before a process tells another anything. Exceptions are PyTorch's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Options", "check_classes", "check_reduction", "check_targets", "loss_dtype"]


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


def check_targets(target: Tensor, counted: Tensor, ignore_index: int) -> None:
    """On the CPU a target out of range is refused; elsewhere, where looking would wait, it counts for nothing."""
    if target.device.type == "cpu":
        stray = ~counted & (target != ignore_index)
        if stray.any():
            raise IndexError(f"Target {target[stray][0].item()} is out of bounds.")


def loss_dtype(input: Tensor) -> torch.dtype:
    """The input's, or float32 under autocast, as PyTorch's losses have it."""
    return torch.float32 if torch.is_autocast_enabled(input.device.type) else input.dtype
