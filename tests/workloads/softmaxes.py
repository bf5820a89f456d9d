"""Cases and mistakes of softmax, log-softmax and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, DOUBLE, FLOAT16, INT32, DType
from openaclnn.operators import softmaxes
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


softmax = SimpleNamespace(
    cases=cases,
    sound=sound,
    MISTAKES=[
        *POINTERS,
        *nulls("1", "self", "out"),
        Mistake("2", INVALID, "self", {"self": t((2, 3), INT32)}),
        Mistake("2", INVALID, "out", {"self": t((2, 3), DOUBLE), "out": t((2, 3), COMPLEX64)}),
        *axes("3"),
        Mistake("4", INVALID, "self", {"self": t(NINE), "out": t(NINE)}),
        Mistake("5", INVALID, "out", {"out": t((3, 2))}),
    ],
)
log_softmax = SimpleNamespace(
    cases=cases,
    sound=sound,
    MISTAKES=[
        *POINTERS,
        *nulls("1", "self", "out"),
        *axes("2"),
        Mistake("3", INVALID, "self", {"self": t((2, 3), INT32)}),
        Mistake("3", INVALID, "out", {"out": t((2, 3), COMPLEX64)}),
        Mistake("4", INVALID, "self", {"self": t(NINE), "out": t(NINE)}),
        Mistake("5", INVALID, "out", {"out": t((3, 2))}),
    ],
)


def gradient_sound() -> dict[str, Any]:
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


def _gradient(forward: Any, mistakes: list[Mistake]) -> SimpleNamespace:
    def gradient_cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
        """The forward's cases, its result in the place of the input."""
        for case in cases(rng, dtype):
            x, dim = case["self"], case["dim"]
            yield {
                "grad_output": np.asarray(rng.normal(size=x.shape)).astype(dtype.numpy),
                "output": forward(x, dim=dim).astype(dtype.numpy),
                "dim": dim,
            }

    return SimpleNamespace(cases=gradient_cases, sound=gradient_sound, MISTAKES=mistakes)


softmax_backward = _gradient(
    softmaxes.softmax,
    [*POINTERS, *nulls("1", "gradOutput", "output", "out"), *DTYPES, *axes("4"), *shapes(5), CASTABLE],
)  # fmt: skip
log_softmax_backward = _gradient(
    softmaxes.log_softmax,
    [*POINTERS, *nulls("1", "output", "gradOutput", "out"), *DTYPES, *shapes(4), *axes("7"), CASTABLE],
)  # fmt: skip
