"""Workloads of aclnnMultilabelMarginLoss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Variants,
    by_expression,
    normal,
)

PATTERN = "rows"
KERNELS = (
    KernelForm(
        "multilabel_margin_loss", {"x": "self", "target": "target"}, typed={"isTarget": "self"}
    ),
)
ANY_SIZE = False
VARIANTS: Variants = {name: {"reduction": name} for name in ("mean", "none", "sum")}
DOMAINS = {"self": (-1e4, 1e4)}  # whose margins FLOAT holds
LABELS = 8  # of a row, at the most


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal numbers, and a few labels a row, some of them twice."""
    target = np.full(shape, -1)
    listed = min(LABELS, shape[-1])
    target[..., :listed] = rng.integers(0, max(shape[-1], 1), (*shape[:-1], listed))
    count = rng.integers(0, listed + 1, shape[:-1])
    target[..., :listed][np.arange(listed) >= count[..., None]] = -1
    return {"self": normal(rng, dtype, shape), "target": target, **VARIANTS[variant]}


def torch_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """PyTorch's own, which has no 16-bit types on the CPU, in FLOAT."""
    wide = torch.promote_types(values["self"].dtype, torch.float32)
    number = REDUCTIONS.index(values.get("reduction", "mean"))
    forward = torch.ops.aten.multilabel_margin_loss_forward
    results = forward(values["self"].to(wide), values["target"].long(), number)
    return tuple(each.to(values["self"].dtype) for each in results)


torch_peers = by_expression(torch_formula)["torch_peers"]
