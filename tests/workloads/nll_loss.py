"""Cases and mistakes of aclnnNLLLoss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, INT32, INT64, DType
from workloads.likelihood import loss_cases, single_rows
from workloads.mistakes import INVALID, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    yield from loss_cases(rng, dtype, (9, 5))
    yield from single_rows(rng, dtype)


def sound() -> dict[str, Any]:
    return {
        "self": t((4, 3)), "target": t((4,), INT64), "weight": t((3,)), "reduction": 1,
        "ignoreIndex": -100, "out": t((1,)), "totalWeightOut": t((1,)),
    }  # fmt: skip


NONE = {"self": t((4, 0)), "weight": t((0,))}


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "target", "weight", "out", "totalWeightOut"),
    Mistake("2", INVALID, "weight", {"weight": t((3,), BFLOAT16)}),
    Mistake("3", INVALID, "out", {"out": t((1,), INT32)}),
    Mistake("3", INVALID, "totalWeightOut", {"totalWeightOut": t((1,), INT64)}),
    Mistake("4", INVALID, "self", {"self": t((4, 3), DOUBLE), "weight": t((3,), DOUBLE)}),
    Mistake("5", INVALID, "target", {"target": t((4,), FLOAT)}),
    Mistake("6", INVALID, "reduction", {"reduction": 3}),
    Mistake("7", INVALID, "self", {"self": t((2, 2, 3))}),
    Mistake("7", INVALID, "self", {"self": t(())}),
    Mistake("8", INVALID, "target", {"target": t((2, 2), INT64)}),
    Mistake("10", INVALID, "target", {"target": t((5,), INT64)}),
    Mistake("10", INVALID, "target", {"target": t((), INT64)}),
    Mistake("11", INVALID, "weight", {"weight": t((4,))}),
    Mistake("12", INVALID, "out", {"out": t((4,))}),
    Mistake("12", INVALID, "out", {"out": t((1, 1))}),
    Mistake("12", INVALID, "out", {"out": t((1,)), "reduction": 0}),
    Mistake("13", INVALID, "totalWeightOut", {"totalWeightOut": t((2,))}),
    Mistake("14", INVALID, "self", NONE),
]
