"""Workloads of aclnnNLLLossBackward."""

from __future__ import annotations

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.likelihood import (
    GRADIENT_KERNELS,
    LARGEST_TOTAL,
    gradient_formula,
    gradient_peers,
    loss_arguments,
    total_of_weights,
)
from openaclnn.operators.workloads.words import Arguments, Variants, normal

PATTERN = "rows"
KERNELS = GRADIENT_KERNELS
settle = total_of_weights
ANY_SIZE = False
VARIANTS: Variants = {"mean": {"reduction": "mean"}, "none": {"reduction": "none"}}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """A random class for each row."""
    target = rng.integers(0, shape[1], shape[:1])
    inputs = {**loss_arguments(rng, dtype, shape, target), **VARIANTS[variant]}
    total = min(float(inputs["weight"].astype(np.float64)[target].sum()), LARGEST_TOTAL)
    return with_gradient(rng, dtype, inputs, total)


def with_gradient(
    rng: np.random.Generator, dtype: DType, inputs: Arguments, total: float
) -> Arguments:
    """The arguments of the loss with a gradient of it and the total weight."""
    rows = inputs["target"].shape if inputs["reduction"] == "none" else (1,)
    gradient = normal(rng, dtype, rows)
    return {
        "grad_output": gradient,
        **inputs,
        "total_weight": np.asarray([total]).astype(dtype.numpy),
    }


torch_peers = gradient_peers("nll_loss_backward")
torch_formula = gradient_formula
