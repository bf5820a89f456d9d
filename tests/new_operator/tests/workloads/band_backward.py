"""Cases and mistakes of aclnnBandBackward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, DOUBLE, FLOAT16, INT32, DType
from openaclnn.core.tensor import Scalar
from openaclnn.operators.workloads.band_backward import VARIANTS, make
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for variant in VARIANTS:
        yield make(rng, dtype, (7, 5, 9), variant)


def sound() -> dict[str, Any]:
    return {
        "gradOutput": t((2, 3)), "self": t((2, 3)), "min": -1.0, "max": 1.0, "out": t((2, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "self", "min", "max", "out"),
    Mistake("2", INVALID, "self", {"self": t((2, 3), FLOAT16)}),
    Mistake(
        "3", INVALID, "gradOutput", {"gradOutput": t((2, 3), DOUBLE), "self": t((2, 3), DOUBLE)}
    ),
    Mistake("4", INVALID, "min", {"min": Scalar(1j, COMPLEX64)}),
    Mistake("4", INVALID, "max", {"max": 1j}),
    Mistake("5", INVALID, "out", {"out": t((2, 3), INT32)}),
    Mistake("6", INVALID, "self", {"self": t((3, 2))}),
    Mistake("7", INVALID, "out", {"out": t((2, 1))}),
    Mistake("8", INVALID, "gradOutput", {name: t(NINE) for name in ("gradOutput", "self", "out")}),
]
