"""Workloads of aclnnSoftmaxCrossEntropyWithLogits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators import softmaxes
from openaclnn.operators.workloads.words import Arguments, KernelForm, Peers, Variants, normal

PATTERN = "rows"
KERNELS = (
    KernelForm("softmax_cross_entropy_with_logits", {"features": "features", "labels": "labels"}),
)  # fmt: skip
VARIANTS: Variants = {"shares": {}}
DOMAINS = {"features": (float("-inf"), 1e37), "labels": (0.0, 1.0)}  # whose differences FLOAT holds


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal logits, and shares that sum to one."""
    features, logits = (normal(rng, dtype, shape) for _ in range(2))
    return {
        "features": features,
        "labels": softmaxes.softmax(logits, work=np.float32).astype(dtype.numpy),
    }


def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """PyTorch's loss of each row against shares, and its gradient as an expression."""
    functional, x, labels = torch.nn.functional, values["features"], values["labels"]

    def both() -> Any:
        loss = functional.cross_entropy(x, labels.expand_as(x), reduction="none")
        return loss, functional.softmax(x, 1) - labels

    return {"torch": both}


def torch_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x, labels = values["features"].float(), values["labels"].float()
    shifted = x - x.amax(1, keepdim=True)
    powers = torch.exp(shifted)
    whole = powers.sum(1, keepdim=True)
    results = (labels * (whole.log() - shifted)).sum(1), powers / whole - labels
    return tuple(each.to(values["features"].dtype) for each in results)
