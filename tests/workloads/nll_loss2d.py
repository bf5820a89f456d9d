"""Cases and mistakes of aclnnNLLLoss2d."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, INT32, INT64, DType
from workloads.likelihood import loss_cases
from workloads.mistakes import INVALID, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    yield from loss_cases(rng, dtype, (3, 5, 4, 6))


def sound() -> dict[str, Any]:
    return {
        "self": t((2, 3, 4, 5)), "target": t((2, 4, 5), INT64), "weight": t((3,)), "reduction": 1,
        "ignoreIndex": -100, "out": t((1,)), "totalWeightOut": t((1,)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "target", "weight", "out", "totalWeightOut"),
    Mistake("2", INVALID, "self", {"self": t((2, 3, 4, 5), DOUBLE)}),
    Mistake("3", INVALID, "weight", {"weight": t((3,), BFLOAT16)}),
    Mistake("4", INVALID, "out", {"out": t((1,), INT32)}),
    Mistake("4", INVALID, "totalWeightOut", {"totalWeightOut": t((1,), INT64)}),
    Mistake("5", INVALID, "target", {"target": t((2, 4, 5), FLOAT)}),
    Mistake("6", INVALID, "reduction", {"reduction": 3}),
    Mistake("7", INVALID, "self", {"self": t((2, 3, 20))}),
    Mistake("8", INVALID, "weight", {"weight": t((4,))}),
    Mistake("10", INVALID, "target", {"target": t((2, 20), INT64)}),
    Mistake("11", INVALID, "target", {"target": t((2, 5, 4), INT64)}),
    Mistake("12", INVALID, "out", {"out": t((2,))}),
    Mistake("12", INVALID, "out", {"out": t((1,)), "reduction": 0}),
    Mistake("13", INVALID, "totalWeightOut", {"totalWeightOut": t((2,))}),
]
