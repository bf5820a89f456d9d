"""Cases and mistakes of aclnnScaledSoftmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, FLOAT16, DType
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for shape, dim, scale in (((9, 7), -1, 1.0), ((7, 5, 9), 1, 0.25), ((4, 301), 0, -2.0)):
        x = rng.normal(size=shape).astype(dtype.numpy)
        yield {"self": x, "dim": dim, "scale": scale}


def sound() -> dict[str, Any]:
    return {"self": t((2, 3)), "scale": 0.5, "dim": 1, "out": t((2, 3))}


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "scale", "out"),
    Mistake("2", INVALID, "self", {"self": t((2, 3), DOUBLE), "out": t((2, 3), DOUBLE)}),
    Mistake("3", INVALID, "out", {"out": t((2, 3), FLOAT16)}),
    Mistake("4", INVALID, "scale", {"scale": 1j}),
    Mistake("5", INVALID, "dim", {"dim": 9}),
    Mistake("6", INVALID, "self", {"self": t(NINE), "out": t(NINE)}),
    Mistake("7", INVALID, "out", {"out": t((3, 2))}),
]
