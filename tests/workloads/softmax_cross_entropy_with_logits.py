"""Cases and mistakes of aclnnSoftmaxCrossEntropyWithLogits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, FLOAT16, DType
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

SHAPES = (((9, 7), (9, 7)), ((4, 301), (1, 301)), ((5, 3), (5, 1)), ((3, 1), (3, 1)))
"""Labels of each row, one row of them for all, one for all classes of a row; one class."""


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for shape, labels in SHAPES:
        yield {
            "features": (3 * rng.normal(size=shape)).astype(dtype.numpy),
            "labels": rng.random(labels).astype(dtype.numpy),
        }


def sound() -> dict[str, Any]:
    return {"features": t((4, 3)), "labels": t((4, 3)), "loss": t((4,)), "backprop": t((4, 3))}


MISTAKES = [
    *POINTERS,
    *nulls("1", "features", "labels", "loss", "backprop"),
    Mistake("2", INVALID, "features", {name: t((4, 3), DOUBLE) for name in sound()}),
    Mistake("3", INVALID, "labels", {"labels": t((4, 3), FLOAT16)}),
    Mistake("4", INVALID, "loss", {"loss": t((4,), FLOAT16)}),
    Mistake("5", INVALID, "backprop", {"backprop": t((4, 3), FLOAT16)}),
    Mistake("6", INVALID, "features", {"features": t(NINE)}),
    Mistake("7", INVALID, "features", {"features": t((12,))}),
    Mistake("8", INVALID, "labels", {"labels": t((12,))}),
    Mistake("9", INVALID, "labels", {"labels": t((4, 2))}),
    Mistake("10", INVALID, "loss", {"loss": t((3,))}),
    Mistake("11", INVALID, "backprop", {"backprop": t((4, 1))}),
]
