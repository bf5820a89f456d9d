"""Cases and mistakes of aclnnNLLLoss2dBackward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, INT64, DType
from openaclnn.core.interface import REDUCTIONS
from workloads.mistakes import INVALID, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    batch, classes, height, width = 3, 5, 4, 6
    for number, reduction in enumerate(REDUCTIONS * 2):
        target = rng.integers(0, classes, (batch, height, width))
        target[rng.random(target.shape) < 0.2] = (-100, 2)[number % 2]
        gradient = rng.normal(size=target.shape if reduction == "none" else (1,))
        yield {
            "grad_output": gradient.astype(dtype.numpy),
            "self": rng.normal(size=(batch, classes, height, width)).astype(dtype.numpy),
            "target": target.astype(np.int64 if number % 2 == 0 else np.int32),
            "weight": (0.5 + rng.random(classes)).astype(dtype.numpy),
            "reduction": reduction,
            "ignore_index": (-100, 2)[number % 2],
            "total_weight": None if number % 2 else np.asarray([7.25]).astype(dtype.numpy),
        }


def sound() -> dict[str, Any]:
    return {
        "gradOutput": t((1,)), "self": t((2, 3, 4, 5)), "target": t((2, 4, 5), INT64), "weight": t((3,)),
        "reduction": 1, "ignoreIndex": -100, "totalWeight": t((1,)), "out": t((2, 3, 4, 5)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "self", "target", "weight", "out", "totalWeight"),
    Mistake("2", INVALID, "self", {"self": t((2, 3, 4, 5), DOUBLE)}),
    Mistake("3", INVALID, "gradOutput", {"gradOutput": t((1,), FLOAT16)}),
    Mistake("4", INVALID, "weight", {"weight": t((3,), BFLOAT16)}),
    Mistake("5", INVALID, "out", {"out": t((2, 3, 4, 5), FLOAT16)}),
    Mistake("6", INVALID, "totalWeight", {"totalWeight": t((1,), FLOAT16)}),
    Mistake("7", INVALID, "target", {"target": t((2, 4, 5), FLOAT)}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((2, 4, 5))}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((1, 1))}),
    Mistake("8", INVALID, "gradOutput", {"reduction": 0}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((2, 4, 5)), "reduction": 3}),
    Mistake("9", INVALID, "self", {"self": t((2, 3, 20))}),
    Mistake("10", INVALID, "target", {"target": t((2, 20), INT64)}),
    Mistake("11", INVALID, "target", {"target": t((2, 5, 4), INT64)}),
    Mistake("12", INVALID, "weight", {"weight": t((4,))}),
    Mistake("13", INVALID, "out", {"out": t((2, 3, 5, 4))}),
    Mistake("14", INVALID, "totalWeight", {"totalWeight": t((2,))}),
    Mistake("15", INVALID, "reduction", {"reduction": 3}),
]
