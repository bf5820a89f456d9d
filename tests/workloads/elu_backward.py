"""Cases and mistakes of aclnnEluBackward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, DOUBLE, FLOAT16, INT32, DType
from openaclnn.core.tensor import Scalar
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for options in (
        {},
        {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
        {"alpha": 1.6732632, "scale": 1.050701, "is_result": True},
    ):
        yield {
            "grad_output": rng.normal(size=(7, 5, 9)).astype(dtype.numpy),
            "self_or_result": (3 * rng.normal(size=(7, 5, 9))).astype(dtype.numpy),
            **options,
        }


def sound() -> dict[str, Any]:
    return {
        "gradOutput": t((2, 3)), "alpha": 1.0, "scale": 1.0, "inputScale": 1.0, "isResult": False,
        "selfOrResult": t((2, 3)), "gradInput": t((2, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "alpha", "scale", "inputScale", "selfOrResult", "gradInput"),
    Mistake("2", INVALID, "selfOrResult", {"selfOrResult": t((2, 3), FLOAT16)}),
    Mistake(
        "3",
        INVALID,
        "gradOutput",
        {"gradOutput": t((2, 3), DOUBLE), "selfOrResult": t((2, 3), DOUBLE)},
    ),
    Mistake("4", INVALID, "alpha", {"alpha": Scalar(1j, COMPLEX64)}),
    Mistake("4", INVALID, "scale", {"scale": Scalar(1j, COMPLEX64)}),
    Mistake("4", INVALID, "inputScale", {"inputScale": 1j}),
    Mistake("5", INVALID, "gradInput", {"gradInput": t((2, 3), INT32)}),
    Mistake("6", INVALID, "selfOrResult", {"selfOrResult": t((3, 2))}),
    Mistake("7", INVALID, "gradInput", {"gradInput": t((2, 1))}),
    Mistake(
        "8",
        INVALID,
        "gradOutput",
        {"gradOutput": t(NINE), "selfOrResult": t(NINE), "gradInput": t(NINE)},
    ),
    Mistake("9", INVALID, "alpha", {"alpha": -0.5, "isResult": True}),
]
