"""Cases and mistakes of aclnnElu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, INT32, INT64, DType
from openaclnn.core.tensor import Scalar
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
    {"alpha": -0.75, "input_scale": -0.25},
    {"alpha": 2.0, "scale": 0.5, "input_scale": float("inf")},
)


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for options in OPTIONS:
        yield {"self": (3 * rng.normal(size=(7, 5, 9))).astype(dtype.numpy), **options}


def sound() -> dict[str, Any]:
    return {
        "self": t((2, 3)), "alpha": 1.0, "scale": 1.0, "inputScale": 1.0, "out": t((2, 3)),
    }  # fmt: skip


WRONG_SCALARS = [
    Mistake("3", INVALID, "scale", {"scale": Scalar(1j, COMPLEX64)}),
    Mistake("3", INVALID, "alpha", {"alpha": Scalar(1j, COMPLEX64)}),
    Mistake("3", INVALID, "inputScale", {"inputScale": 1j}),
]


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "alpha", "scale", "inputScale", "out"),
    Mistake("2", INVALID, "self", {"self": t((2, 3), INT64)}),
    *WRONG_SCALARS,
    Mistake("4", INVALID, "out", {"out": t((2, 3), INT32)}),
    Mistake("5", INVALID, "out", {"out": t((2, 1))}),
    Mistake("6", INVALID, "self", {"self": t(NINE), "out": t(NINE)}),
]
