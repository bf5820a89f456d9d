"""Cases and mistakes of aclnnSmoothL1LossBackward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, INT32, UINT8, DType
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from workloads.pairwise import gradient_cases


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction, beta in (("none", 1.0), ("mean", 0.7), ("sum", 0.0)):
        yield from gradient_cases(rng, dtype, "grad_out", {"reduction": reduction, "beta": beta})


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
