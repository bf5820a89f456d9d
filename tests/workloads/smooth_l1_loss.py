"""Cases and mistakes of aclnnSmoothL1Loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, INT32, INT64, DType
from openaclnn.core.interface import REDUCTIONS
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from workloads.pairwise import loss_cases

WHOLE = {"reduction": "none"}


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction in REDUCTIONS:
        for beta in (1.0, 0.5, 0.0):
            yield from loss_cases(rng, dtype, {"reduction": reduction, "beta": beta})


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
