"""Workloads of aclnnL1LossBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.pairwise import (
    PAIR_VARIANTS,
    element_scale,
    pair_maker,
    pairwise_cases,
)

PATTERN = "elementwise"
VARIANTS = PAIR_VARIANTS
make = pair_maker("grad_output")


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction in REDUCTIONS:
        yield from pairwise_cases(rng, dtype, "grad_output", {"reduction": reduction})


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """PyTorch has no such operator: the expression its autograd evaluates, allocating and into `out`."""
    gradient, x, y = given["grad_output"], given["self"], given["target"]
    scale = element_scale(given)

    def into() -> Any:
        torch.sub(x, y, out=out)
        torch.sign(out, out=out)
        return torch.mul(out, gradient * scale if scale != 1 else gradient, out=out)

    return {
        "torch": lambda: torch.sign(x - y) * (gradient * scale if scale != 1 else gradient),
        "torch out=": into,
    }


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x, y = (given[name].float() for name in ("grad_output", "self", "target"))
    sign = (x > y).float() - (x < y).float()
    return (sign * (gradient * element_scale(given))).to(given["self"].dtype)
