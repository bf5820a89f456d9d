"""Workloads of aclnnSmoothL1Loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, INT32, INT64, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.kernel import KernelForm
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from openaclnn.operators.workloads.module import Module
from openaclnn.operators.workloads.pairwise import LOSS_VARIANTS, loss_cases, loss_maker

PATTERN = "elementwise"
TRAINED = "smooth_l1_loss"
MODULE = Module("SmoothL1Loss", ("elementwise",))
KERNELS = (
    KernelForm("smooth_l1_loss_v2", {"predict": "self", "label": "target"}, {"sigma": "beta"}),
)
VARIANTS = LOSS_VARIANTS
WHOLE = {"reduction": "none"}
make = loss_maker


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction in REDUCTIONS:
        for beta in (1.0, 0.5, 0.0):
            yield from loss_cases(rng, dtype, {"reduction": reduction, "beta": beta})


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator, allocating and writing into `out`, which it does not take as it is for a sum."""
    reduction = REDUCTIONS.index(given["reduction"])
    arguments = given["self"], given["target"], reduction, given.get("beta", 1.0)
    aten = torch.ops.aten.smooth_l1_loss
    peers = {"torch": lambda: aten(*arguments)}
    if reduction == 0:
        peers["torch out="] = lambda: aten.out(*arguments, out=out)
    return peers


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    size, beta = (given["self"].float() - given["target"].float()).abs(), given.get("beta", 1.0)
    losses = torch.where(size < beta, 0.5 * size * (size / beta), size - 0.5 * beta)
    reduced = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[given["reduction"]]
    return reduced.to(given["self"].dtype)


def sound() -> dict[str, Any]:
    return {"self": t((2, 3)), "target": t((2, 3)), "reduction": 1, "beta": 1.0, "result": t((1,))}


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "target", "result"),
    Mistake("2", INVALID, "self", {"self": t((2, 3), DOUBLE)}),
    Mistake("2", INVALID, "target", {"target": t((2, 3), INT64)}),
    Mistake("4", INVALID, "result", {"result": t((1,), INT32)}),
    Mistake("5", INVALID, "reduction", {"reduction": 3}),
    Mistake("6", INVALID, "self", {"self": t(NINE)}),
    Mistake("6", INVALID, "target", {"target": t(NINE)}),
    Mistake("7", INVALID, "target", {"target": t((4, 3))}),
    Mistake("8", INVALID, "result", {"result": t((2,))}),
    Mistake("8", INVALID, "result", {"result": t((1,)), "reduction": 0}),
    Mistake("10", INVALID, "beta", {"beta": -0.5}),
    Mistake("10", INVALID, "beta", {"beta": float("nan")}),
]
