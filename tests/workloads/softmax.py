"""Cases and mistakes of aclnnSoftmax; what its relatives have in common with it stands here too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, DOUBLE, INT32, DType
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

SHAPES = (
    ((9, 7), -1),
    ((7, 5, 9), 1),
    ((4, 301), 0),
    ((3, 1, 2, 2, 1, 4), -4),
    ((2, 1500), 1),
    ((), 0),
)
"""Rows, axes in between and in front, one class, more than a block, one element."""


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for shape, dim in SHAPES:
        yield {"self": np.asarray(3 * rng.normal(size=shape)).astype(dtype.numpy), "dim": dim}


def sound() -> dict[str, Any]:
    return {"self": t((2, 3)), "dim": 1, "out": t((2, 3))}


def axes(row: str) -> list[Mistake]:
    """An axis that no tensor has."""
    return [Mistake(row, INVALID, "dim", {"dim": dim}) for dim in (9, -10, 1 << 62, -(1 << 63))]


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "out"),
    Mistake("2", INVALID, "self", {"self": t((2, 3), INT32)}),
    Mistake("2", INVALID, "out", {"self": t((2, 3), DOUBLE), "out": t((2, 3), COMPLEX64)}),
    *axes("3"),
    Mistake("4", INVALID, "self", {"self": t(NINE), "out": t(NINE)}),
    Mistake("5", INVALID, "out", {"out": t((3, 2))}),
]
