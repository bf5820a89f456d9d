"""Workloads of aclnnL1Loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BOOL, DOUBLE, FLOAT16, INT32, INT64, UINT16, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.kernel import KernelForm
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from openaclnn.operators.workloads.module import Module
from openaclnn.operators.workloads.pairwise import LOSS_VARIANTS, loss_cases, loss_maker

PATTERN = "elementwise"
TRAINED = "l1_loss"
MODULE = Module("L1Loss", ("elementwise",))
KERNELS = (KernelForm("lp_loss", {"predict": "self", "label": "target"}, only={"p": 1}),)
VARIANTS = LOSS_VARIANTS
WHOLE = {"reduction": "none"}
make = loss_maker


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction in REDUCTIONS:
        yield from loss_cases(rng, dtype, {"reduction": reduction})


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator."""
    arguments = given["self"], given["target"], REDUCTIONS.index(given["reduction"])
    return {"torch": lambda: torch.ops.aten.l1_loss(*arguments)}


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    losses = (given["self"].float() - given["target"].float()).abs()
    reduced = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[given["reduction"]]
    return reduced.to(given["self"].dtype)


def sound() -> dict[str, Any]:
    return {"self": t((2, 3)), "target": t((2, 3)), "reduction": 1, "out": t(())}


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "target", "out"),
    Mistake("2", INVALID, "reduction", {"reduction": 3}),
    Mistake("3", INVALID, "self", {"self": t((2, 3), INT64), "target": t((2, 3)), "reduction": 0}),
    Mistake(
        "3",
        INVALID,
        "self, target",
        {"self": t((2, 3), INT64), "target": t((2, 3), INT32), "reduction": 1},
    ),
    Mistake("4", INVALID, "target", {"target": t((2, 3), UINT16)}),
    Mistake("5", INVALID, "self, target", {"self": t((2, 3), DOUBLE)}),
    Mistake("6", INVALID, "out", {"out": t((), INT64)}),
    Mistake("6", INVALID, "out", {"out": t((), BOOL)}),
    Mistake("7", INVALID, "self", {"self": t(NINE)}),
    Mistake("7", INVALID, "target", {"target": t(NINE)}),
    Mistake("8", INVALID, "target", {"target": t((4, 3))}),
    Mistake("9", INVALID, "out", {"out": t((1,))}),
    Mistake("9", INVALID, "out", {"out": t((2, 1), FLOAT16), "reduction": 0}),
]
