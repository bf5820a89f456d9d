"""Workloads of aclnnCrossEntropyLoss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Peers,
    Variants,
)

PATTERN = "rows"
TRAINED = "cross_entropy"
KERNELS = (
    KernelForm(
        "cross_entropy_loss",
        {"input": "input", "target": "target", "weight": "weightOptional"},
    ),
)
VARIANTS: Variants = {
    "mean": {"reduction": "mean"},
    "none": {"reduction": "none"},
    "label smoothing": {"reduction": "mean", "label_smoothing": 0.1},
}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal logits and a random class for each row, or for each pixel of images, which are for training."""
    return {
        "input": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        "target": rng.integers(0, shape[1], shape[:1] + shape[2:]),
        **VARIANTS[variant],
    }


def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """PyTorch's function, the eager term for the z-loss, and the log-probabilities that ours writes beside."""
    functional, x, target = torch.nn.functional, values["input"], values["target"]
    options = {
        "reduction": values["reduction"],
        "label_smoothing": values.get("label_smoothing", 0.0),
        "ignore_index": values.get("ignore_index", -100),
    }
    scale = values.get("lse_square_scale_for_zloss", 0.0)

    def zloss() -> Any:
        counted = target != options["ignore_index"]
        losses = scale * torch.logsumexp(x, 1).square() * counted
        reduced = {"mean": lambda: losses.sum() / counted.sum(), "sum": losses.sum}
        return reduced.get(values["reduction"], lambda: losses)()

    def both() -> Any:
        loss = functional.cross_entropy(x, target, **options)
        log_prob = functional.log_softmax(x, 1)
        if not scale:
            return loss, log_prob
        square = zloss()
        return loss + square, log_prob, square, torch.logsumexp(x, 1)

    return {"torch": both}


def torch_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x = values["input"].float()
    log_prob = x - torch.logsumexp(x, 1, keepdim=True)
    smoothing = values.get("label_smoothing", 0.0)
    losses = -(1 - smoothing) * log_prob.gather(1, values["target"][:, None])[:, 0]
    losses = losses - smoothing * log_prob.mean(1)
    loss = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[values["reduction"]]
    return loss.to(values["input"].dtype), log_prob.to(values["input"].dtype)
