"""Workloads of aclnnSmoothL1LossBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, INT32, UINT8, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.kernel import KernelForm
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from openaclnn.operators.workloads.pairwise import (
    PAIR_VARIANTS,
    element_scale,
    pair_maker,
    pairwise_cases,
)

PATTERN = "elementwise"
KERNELS = (
    KernelForm(
        "smooth_l1_loss_grad_v2",
        {"predict": "self", "label": "target", "dout": "gradOut"},
        {"sigma": "beta"},
    ),
)
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


def sound() -> dict[str, Any]:
    return {
        "gradOut": t((2, 3)), "self": t((2, 3)), "target": t((2, 3)), "reduction": 0, "beta": 1.0,
        "gradInput": t((2, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOut", "self", "target", "gradInput"),
    Mistake("2", INVALID, "gradOut", {"gradOut": t((2, 3), DOUBLE)}),
    Mistake("2", INVALID, "self", {"self": t((2, 3), INT32)}),
    Mistake("2", INVALID, "target", {"target": t((2, 3), UINT8)}),
    Mistake("2", INVALID, "gradInput", {"gradInput": t((2, 3), DOUBLE)}),
    Mistake("3", INVALID, "gradOut", {"gradOut": t(NINE)}),
    Mistake("3", INVALID, "self", {"self": t(NINE)}),
    Mistake("3", INVALID, "target", {"target": t(NINE)}),
    Mistake("4", INVALID, "reduction", {"reduction": 3}),
    Mistake("4", INVALID, "reduction", {"reduction": -1}),
    Mistake("5", INVALID, "beta", {"beta": -0.1}),
    Mistake("5", INVALID, "beta", {"beta": float("nan")}),
    Mistake("9", INVALID, "self", {"self": t((4, 3))}),
    Mistake("9", INVALID, "target", {"target": t((0, 3))}),
    Mistake("10", INVALID, "gradInput", {"gradInput": t((1, 2, 3))}),
]
