"""Cases and mistakes of aclnnL1LossBackward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, INT64, UINT16, UINT32, DType
from openaclnn.core.interface import REDUCTIONS
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from workloads.pairwise import gradient_cases


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction in REDUCTIONS:
        yield from gradient_cases(rng, dtype, "grad_output", {"reduction": reduction})


def sound() -> dict[str, Any]:
    return {
        "gradOutput": t((2, 3)), "self": t((2, 3)), "target": t((2, 3)), "reduction": 0,
        "gradInput": t((2, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "self", "target", "gradInput"),
    Mistake("2", INVALID, "reduction", {"reduction": 3}),
    Mistake("3", INVALID, "self", {"self": t((2, 3), UINT16)}),
    Mistake("4", INVALID, "target", {"target": t((2, 3), UINT32)}),
    Mistake("5", INVALID, "gradInput", {"gradInput": t((2, 3), INT64)}),
    Mistake("6", INVALID, "gradOutput, self, target", {"self": t((2, 3), DOUBLE)}),
    Mistake("7", INVALID, "self", {"self": t(NINE)}),
    Mistake("7", INVALID, "target", {"target": t(NINE)}),
    Mistake("7", INVALID, "gradOutput", {"gradOutput": t(NINE)}),
    Mistake("7", INVALID, "gradInput", {"gradInput": t(NINE)}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((5, 3))}),
    Mistake("9", INVALID, "target", {"target": t((4, 3))}),
    Mistake("10", INVALID, "gradInput", {"gradInput": t((3,))}),
]
