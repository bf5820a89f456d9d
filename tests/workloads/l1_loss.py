"""Cases and mistakes of aclnnL1Loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BOOL, DOUBLE, FLOAT16, INT32, INT64, UINT16, DType
from openaclnn.core.interface import REDUCTIONS
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from workloads.pairwise import loss_cases

WHOLE = {"reduction": "none"}


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction in REDUCTIONS:
        yield from loss_cases(rng, dtype, {"reduction": reduction})


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
