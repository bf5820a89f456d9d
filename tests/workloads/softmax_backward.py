"""Cases and mistakes of aclnnSoftmaxBackward; what those of the other gradient have in common with them stands here too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, FLOAT16, INT32, DType
from openaclnn.operators import softmax
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from workloads.softmax import axes
from workloads.softmax import cases as forward_cases


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    yield from gradient_cases(rng, dtype, softmax.reference)


def gradient_cases(
    rng: np.random.Generator, dtype: DType, forward: Any
) -> Iterator[dict[str, Any]]:
    """The forward's cases, its result in the place of the input."""
    for case in forward_cases(rng, dtype):
        x, dim = case["self"], case["dim"]
        yield {
            "grad_output": np.asarray(rng.normal(size=x.shape)).astype(dtype.numpy),
            "output": forward(x, dim).astype(dtype.numpy),
            "dim": dim,
        }


def sound() -> dict[str, Any]:
    return {"gradOutput": t((2, 3)), "output": t((2, 3)), "dim": -1, "out": t((2, 3))}


TENSORS = ("gradOutput", "output", "out")
DTYPES = [
    Mistake("2", INVALID, "gradOutput", {"gradOutput": t((2, 3), DOUBLE), "output": t((2, 3), DOUBLE)}),
    Mistake("2", INVALID, "output", {"output": t((2, 3), INT32)}),
    Mistake("3", INVALID, "output", {"output": t((2, 3), FLOAT16)}),
]  # fmt: skip


def shapes(row: int) -> list[Mistake]:
    return [
        Mistake(f"{row}", INVALID, "gradOutput", {name: t(NINE) for name in TENSORS}),
        Mistake(f"{row + 1}", INVALID, "output", {"output": t((3, 2))}),
        Mistake(f"{row + 2}", INVALID, "out", {"out": t((3, 2))}),
    ]


CASTABLE = Mistake("8", INVALID, "out", {"out": t((2, 3), INT32)})

MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "output", "out"),
    *DTYPES,
    *axes("4"),
    *shapes(5),
    CASTABLE,
]
