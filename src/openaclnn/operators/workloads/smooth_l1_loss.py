"""Workloads of aclnnSmoothL1LossBackward."""

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
make = pair_maker("grad_out")


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction, beta in (("none", 1.0), ("mean", 0.7), ("sum", 0.0)):
        yield from pairwise_cases(rng, dtype, "grad_out", {"reduction": reduction, "beta": beta})


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator, allocating and writing into `out`."""
    arguments = (
        given["grad_out"],
        given["self"],
        given["target"],
        REDUCTIONS.index(given["reduction"]),
        given.get("beta", 1.0),
    )
    aten = torch.ops.aten.smooth_l1_loss_backward
    return {
        "torch": lambda: aten(*arguments),
        "torch out=": lambda: aten.grad_input(*arguments, grad_input=out),
    }


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x, y = (given[name].float() for name in ("grad_out", "self", "target"))
    beta = given.get("beta", 1.0)
    difference = x - y
    slope = torch.where(difference.abs() < beta, difference / beta, torch.sign(difference))
    return (slope * gradient * element_scale(given)).to(given["self"].dtype)
