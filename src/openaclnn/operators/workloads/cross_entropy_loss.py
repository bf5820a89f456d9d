"""Workloads of aclnnCrossEntropyLoss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    HardPlaces,
    KernelForm,
    Module,
    Peers,
    Variants,
)

PATTERN = "rows"
TRAINED = "cross_entropy"
MODULE = Module("CrossEntropyLoss", ("rows", "pixels"))
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


def hard_logits(rng: np.random.Generator, count: int, classes: int) -> Any:
    """Rows of up to so many elements in all: logits of any spread around the target's, which is often the largest and often far above
    all others; the largest is above 0, so that the log-sum-exp is a sum of like signs."""
    rows = max(1, count // classes)
    x = rng.standard_normal((rows, classes)) * 2.0 ** rng.uniform(-4, 5, (rows, 1))
    x -= x.max(axis=1, keepdims=True)
    target = rng.integers(0, classes, rows)
    far = rng.random(rows) < 0.5
    x[far] -= 2.0 ** rng.uniform(-2, 6.5, (np.count_nonzero(far), 1))
    x[far, target[far]] = 0.0
    top = 2.0 ** rng.uniform(-12, 7, (rows, 1)) * (rng.random((rows, 1)) < 0.7)
    return (x + top).astype(np.float32), target


def few_classes(rng: np.random.Generator) -> int:
    return int(rng.integers(2, 12))


def many_classes(rng: np.random.Generator) -> int:
    return int(2.0 ** rng.uniform(3.5, 14))


def _hard(draw_classes: Callable[[np.random.Generator], int], **options: Any) -> Any:
    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        x, target = hard_logits(rng, count, draw_classes(rng))
        tensors = {"input": x, "target": target}
        if "lse_square_scale_for_zloss" in options:
            return {**tensors, "reduction": "none", "return_zloss": True, **options}
        return {**tensors, "reduction": "none", **options}

    return make_hard


_ZLOSS = {"lse_square_scale_for_zloss": float(np.float32(1e-4))}
SMOOTHED = {"label_smoothing": float(np.float32(0.1))}
HARD: HardPlaces = {
    "few classes": _hard(few_classes),
    "many classes": _hard(many_classes),
    "few classes, smoothed": _hard(few_classes, **SMOOTHED),
    "many classes, smoothed": _hard(many_classes, **SMOOTHED),
    "few classes, z-loss": _hard(few_classes, **_ZLOSS),
    "many classes, z-loss": _hard(many_classes, **_ZLOSS),
}


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """PyTorch's function, the eager term for the z-loss, and the log-probabilities that ours writes beside."""
    functional, x, target = torch.nn.functional, given["input"], given["target"]
    options = {
        "reduction": given["reduction"],
        "label_smoothing": given.get("label_smoothing", 0.0),
        "ignore_index": given.get("ignore_index", -100),
    }
    scale = given.get("lse_square_scale_for_zloss", 0.0)

    def zloss() -> Any:
        counted = target != options["ignore_index"]
        losses = scale * torch.logsumexp(x, 1).square() * counted
        reduced = {"mean": lambda: losses.sum() / counted.sum(), "sum": losses.sum}
        return reduced.get(given["reduction"], lambda: losses)()

    def both() -> Any:
        loss = functional.cross_entropy(x, target, **options)
        log_prob = functional.log_softmax(x, 1)
        if not scale:
            return loss, log_prob
        square = zloss()
        return loss + square, log_prob, square, torch.logsumexp(x, 1)

    return {"torch": both}


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x = given["input"].float()
    log_prob = x - torch.logsumexp(x, 1, keepdim=True)
    smoothing = given.get("label_smoothing", 0.0)
    losses = -(1 - smoothing) * log_prob.gather(1, given["target"][:, None])[:, 0]
    losses = losses - smoothing * log_prob.mean(1)
    loss = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[given["reduction"]]
    return loss.to(given["input"].dtype), log_prob.to(given["input"].dtype)
