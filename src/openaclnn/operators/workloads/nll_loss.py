"""Workloads of aclnnNLLLoss."""

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
)
from openaclnn.operators.workloads.words import Arguments, Module, Peers, Variants

PATTERN = "rows"
MODULE = Module("NLLLoss", ("rows",))
KERNELS = LOSS_KERNELS
DOMAINS = LOG_PROBABILITIES
VARIANTS: Variants = {"mean": {"reduction": "mean"}, "none": {"reduction": "none"}}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """A random class for each row."""
    target = rng.integers(0, shape[1], shape[:1])
    return {**loss_arguments(rng, dtype, shape, target), **VARIANTS[variant]}


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    return forward_peers(torch, torch.ops.aten.nll_loss_forward, given, out)


torch_formula = forward_formula
