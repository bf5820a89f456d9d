"""Workloads of aclnnInplaceElu: those of aclnnElu, whose input is the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import INT64, DType
from openaclnn.operators.workloads import elu
from openaclnn.operators.workloads.elu import (
    PATTERN,
    VARIANTS,
    WRONG_SCALARS,
    expression,
    scalars,
)
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

__all__ = ["PATTERN", "VARIANTS"]


def _renamed(given: dict[str, Any]) -> dict[str, Any]:
    return {"self_ref": given.pop("self"), **given}


def make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """Normal activations."""
    return _renamed(elu.make(rng, dtype, shape, variant))


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    yield from map(_renamed, elu.cases(rng, dtype))


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator, which writes over its input."""
    arguments = (given["self_ref"], *scalars(given))
    return {"torch": lambda: torch.ops.aten.elu_(*arguments)}


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    return expression(torch, given["self_ref"], *scalars(given))


def sound() -> dict[str, Any]:
    return {"selfRef": t((2, 3)), "alpha": 1.0, "scale": 1.0, "inputScale": 1.0}


MISTAKES = [
    *POINTERS,
    *nulls("1", "selfRef", "alpha", "scale", "inputScale"),
    Mistake("2", INVALID, "selfRef", {"selfRef": t((2, 3), INT64)}),
    *WRONG_SCALARS,
    Mistake("6", INVALID, "selfRef", {"selfRef": t(NINE)}),
]
