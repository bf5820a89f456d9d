"""Workloads of aclnnBandBackward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    Peers,
    Variants,
    allocating_and_into,
    normal,
)

PATTERN = "elementwise"
VARIANTS: Variants = {"unit": {}, "relu6": {"min": 0.0, "max": 6.0}}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """A gradient and an input, both normal."""
    pair = {name: normal(rng, dtype, shape) for name in ("grad_output", "self")}
    return {**pair, **VARIANTS[variant]}


def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    bounds = values.get("min", -1.0), values.get("max", 1.0)
    arguments = values["grad_output"], values["self"], *bounds
    return allocating_and_into(torch.ops.aten.hardtanh_backward, arguments, out)


def torch_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x = values["grad_output"], values["self"]
    outside = (x <= values.get("min", -1.0)) | (x >= values.get("max", 1.0))
    return torch.where(outside, 0.0, gradient)
