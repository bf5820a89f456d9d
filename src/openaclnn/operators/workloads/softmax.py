"""Workloads of aclnnSoftmax; what its relatives have in common with it stands here too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Peers,
    Variants,
    allocating_and_into,
    normal,
)

PATTERN = "rows"
KERNELS = (KernelForm("softmax_v2", {"x": "self"}, {"axes": "dim"}, only={"half_to_float": False}),)
VARIANTS: Variants = {"rows": {"dim": -1}, "columns": {"dim": 0}}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal logits."""
    return {"self": normal(rng, dtype, shape), **VARIANTS[variant]}


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    arguments = given["self"], given.get("dim", -1), False
    return allocating_and_into(torch.ops.aten._softmax, arguments, out, "out")


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x, dim = given["self"].float(), given.get("dim", -1)
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return (powers / powers.sum(dim, keepdim=True)).to(given["self"].dtype)
