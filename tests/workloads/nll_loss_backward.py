"""Cases and mistakes of aclnnNLLLossBackward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, INT32, INT64, DType
from openaclnn.operators.workloads.likelihood import with_gradient
from workloads.likelihood import loss_cases, single_rows
from workloads.mistakes import INVALID, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for number, inputs in enumerate(loss_cases(rng, dtype, (9, 5))):
        arguments = with_gradient(rng, dtype, inputs, 7.25)
        yield arguments | ({"total_weight": None} if number % 2 else {})
    for inputs in single_rows(rng, dtype):
        yield with_gradient(rng, dtype, inputs, 1.5)


def sound() -> dict[str, Any]:
    return {
        "gradOutput": t((1,)), "self": t((4, 3)), "target": t((4,), INT64), "weight": t((3,)),
        "reduction": 1, "ignoreIndex": -100, "totalWeight": t((1,)), "out": t((4, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "self", "target", "weight", "totalWeight", "out"),
    Mistake("2", INVALID, "weight", {"weight": t((3,), BFLOAT16)}),
    Mistake("2", INVALID, "gradOutput", {"gradOutput": t((1,), FLOAT16)}),
    Mistake("2", INVALID, "totalWeight", {"totalWeight": t((1,), FLOAT16)}),
    Mistake("3", INVALID, "out", {"out": t((4, 3), INT32)}),
    Mistake(
        "4",
        INVALID,
        "self",
        {
            "self": t((4, 3), DOUBLE),
            "weight": t((3,), DOUBLE),
            "gradOutput": t((1,), DOUBLE),
            "totalWeight": t((1,), DOUBLE),
        },
    ),
    Mistake("5", INVALID, "target", {"target": t((4,), FLOAT)}),
    Mistake("6", INVALID, "reduction", {"reduction": 3}),
    Mistake("7", INVALID, "self", {"self": t((2, 2, 3))}),
    Mistake("8", INVALID, "target", {"target": t((2, 2), INT64)}),
    Mistake("10", INVALID, "target", {"target": t((5,), INT64)}),
    Mistake("11", INVALID, "weight", {"weight": t((4,))}),
    Mistake("12", INVALID, "totalWeight", {"totalWeight": t((2,))}),
    Mistake("13", INVALID, "gradOutput", {"gradOutput": t((4,))}),
    Mistake("13", INVALID, "gradOutput", {"reduction": 0}),
    Mistake("14", INVALID, "out", {"out": t((3, 4))}),
]
