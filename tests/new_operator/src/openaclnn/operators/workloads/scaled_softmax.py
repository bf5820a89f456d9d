"""Workloads of aclnnScaledSoftmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import Arguments, Peers, Variants, normal

PATTERN = "rows"
VARIANTS: Variants = {"rows": {"scale": 0.125}, "columns": {"scale": 0.125, "dim": 0}}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal logits."""
    return {"self": normal(rng, dtype, shape), **VARIANTS[variant]}


def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """PyTorch's function of the product, in both ways."""
    x, scale, dim = values["self"], values.get("scale", 1.0), values.get("dim", -1)
    return {
        "torch": lambda: torch.softmax(x * scale, dim),
        "torch out=": lambda: torch.softmax(x * scale, dim, out=out),
    }


def torch_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x, dim = values["self"].float() * values.get("scale", 1.0), values.get("dim", -1)
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return (powers / powers.sum(dim, keepdim=True)).to(values["self"].dtype)
