"""Workloads of aclnnNLLLoss2d."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.likelihood import (
    LOG_PROBABILITIES,
    LOSS_KERNELS,
    forward_formula,
    forward_peers,
    loss_arguments,
    patches,
)
from openaclnn.operators.workloads.words import Arguments, Module, Peers, Variants

PATTERN = "pixels"
TRAINED = "nll_loss"
MODULE = Module("NLLLoss", ("pixels",))
KERNELS = LOSS_KERNELS
DOMAINS = LOG_PROBABILITIES
VARIANTS: Variants = {
    "mean, patches": {"reduction": "mean", "patch": 64},
    "none, random": {"reduction": "none", "patch": 1},
}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Classes over patches, or of each pixel."""
    options = dict(VARIANTS[variant])
    target = patches(rng, shape, options.pop("patch"))
    return {**loss_arguments(rng, dtype, shape, target), **options}


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    return forward_peers(torch, torch.ops.aten.nll_loss2d_forward, given, out)


torch_formula = forward_formula
