"""Workloads of aclnnNLLLoss2dBackward."""

from __future__ import annotations

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.likelihood import (
    GRADIENT_KERNELS,
    LARGEST_TOTAL,
    gradient_formula,
    gradient_peers,
    patches,
    total_of_weights,
)
from openaclnn.operators.workloads.words import Arguments, Variants, normal

PATTERN = "pixels"
KERNELS = GRADIENT_KERNELS
settle = total_of_weights
VARIANTS: Variants = {
    "random": {"reduction": "none", "patch": 1},
    "patches": {"reduction": "none", "patch": 64},
    "mean, patches": {"reduction": "mean", "patch": 64},
}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Classes over patches, or of each pixel; the log-probabilities are not read."""
    options = dict(VARIANTS[variant])
    target = patches(rng, shape, options.pop("patch"))
    weight = (0.5 + rng.random(shape[1])).astype(dtype.numpy)
    total = min(float(weight.astype(np.float64)[target].sum()), LARGEST_TOTAL)
    options["total_weight"] = np.asarray([total]).astype(dtype.numpy)
    pixels = target.shape if options["reduction"] == "none" else (1,)
    return {
        "grad_output": normal(rng, dtype, pixels),
        "self": np.empty(shape, dtype.numpy),
        "target": target,
        "weight": weight,
        **options,
    }


torch_peers = gradient_peers("nll_loss2d_backward")
torch_formula = gradient_formula
