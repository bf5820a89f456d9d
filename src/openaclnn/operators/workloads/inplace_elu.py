"""Workloads of aclnnInplaceElu: those of aclnnElu, whose input is the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.elu import PATTERN, VARIANTS, expression, scalars
from openaclnn.operators.workloads.words import Arguments, Peers, normal

__all__ = ["PATTERN", "VARIANTS"]


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal activations."""
    return {"self_ref": normal(rng, dtype, shape), **VARIANTS[variant]}


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, which writes over its input."""
    arguments = (given["self_ref"], *scalars(given))
    return {"torch": lambda: torch.ops.aten.elu_(*arguments)}


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    return expression(torch, given["self_ref"], *scalars(given))
