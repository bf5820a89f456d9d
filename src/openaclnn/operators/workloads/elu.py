"""Workloads of aclnnElu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Module,
    Peers,
    Variants,
    allocating_and_into,
    normal,
)

PATTERN = "elementwise"
TRAINED = "elu"
MODULE = Module("ELU", ("elementwise",))
KERNELS = (KernelForm("elu", {"x": "self"}),)
VARIANTS: Variants = {
    "ELU": {},
    "SELU": {"alpha": 1.6732632423543772, "scale": 1.0507009873554805},
    "input scale": {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal activations."""
    return {"self": normal(rng, dtype, shape), **VARIANTS[variant]}


def scalars(given: Mapping[str, Any]) -> tuple[float, float, float]:
    return given.get("alpha", 1.0), given.get("scale", 1.0), given.get("input_scale", 1.0)


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    return allocating_and_into(torch.ops.aten.elu, (given["self"], *scalars(given)), out, "out")


def expression(torch: Any, x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """The formula as an expression."""
    values = x.float()
    negative = (alpha * scale) * torch.expm1(values * input_scale)
    return torch.where(values > 0, values * scale, negative).to(x.dtype)


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    return expression(torch, given["self"], *scalars(given))
