"""Cases and mistakes of aclnnPrelu and aclnnPreluBackward."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT16, UINT16, DType
from openaclnn.operators import find_operator
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((4, 6, 5, 3), (6,), (4, 6, 5, 3)), ((4, 6, 5), (2, 3), (6, 5)), ((9, 70), (70,), (9, 1)), ((7, 5, 9), (1, 1), (7, 5, 9)),
    ((70,), (1,), (70,)), ((), (), ()), ((1, 4), (4,), (1, 4)), ((3, 1, 8), (1,), (3, 1, 8)), ((2, 3, 2, 1, 2, 3, 1, 2), (3,), (2,)),
)  # fmt: skip
"""Of self, weight and the gradient of the result, which broadcasts to self."""


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for shape, weight, _ in SHAPES:
        yield {
            "self": np.asarray(3 * rng.normal(size=shape)).astype(dtype.numpy),
            "weight": np.asarray(rng.normal(size=weight)).astype(dtype.numpy),
        }


def backward_cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for (_, _, shape), others in zip(SHAPES, cases(rng, dtype), strict=True):
        yield {"grad_output": np.asarray(rng.normal(size=shape)).astype(dtype.numpy), **others}


def summed(**arguments: Any) -> tuple[Any, ...]:
    """The gradients if no terms of their sums cancelled."""
    oracle = find_operator("prelu_backward").oracle
    gradient, x = np.abs(arguments["grad_output"]), np.minimum(arguments["self"], 0)
    terms = {**arguments, "grad_output": gradient, "self": x}
    return oracle(**arguments)[0], oracle(**terms)[1]


def sound() -> dict[str, Any]:
    return {"self": t((2, 3, 4)), "weight": t((3,)), "out": t((2, 3, 4))}


def backward_sound() -> dict[str, Any]:
    whole = t((2, 3, 4))
    return {"gradOutput": whole, "self": whole, "weight": t((3,)), "gradInput": whole, "gradWeight": t((3,))}  # fmt: skip


NAMES = tuple(backward_sound())

prelu = SimpleNamespace(
    cases=cases,
    sound=sound,
    MISTAKES=[
        *POINTERS,
        *nulls("1", "self", "weight", "out"),
        *(Mistake("2", INVALID, name, {name: t((2, 3, 4), UINT16)}) for name in sound()),
        Mistake("3", INVALID, "self", {"self": t(NINE), "out": t(NINE), "weight": t((1,))}),
        Mistake("4", INVALID, "out", {"out": t((2, 12))}),
        Mistake("5", INVALID, "weight", {"weight": t((4,))}),
        Mistake("5", INVALID, "weight", {"self": t((3,)), "out": t((3,))}),
    ],
)
prelu_backward = SimpleNamespace(
    cases=backward_cases,
    summed=summed,
    sound=backward_sound,
    MISTAKES=[
        *POINTERS,
        *nulls("1", *NAMES),
        Mistake("2", INVALID, "self", {name: t((2, 3, 4), UINT16) for name in NAMES}),
        *(Mistake("3", INVALID, name, {name: t(backward_sound()[name].shape, FLOAT16)}) for name in NAMES if name != "self"),
        Mistake("4", INVALID, "self", {"self": t(NINE), "gradInput": t(NINE)}),
        Mistake("5", INVALID, "gradInput", {"gradInput": t((2, 12))}),
        Mistake("6", INVALID, "weight", {"weight": t((4,)), "gradWeight": t((4,))}),
        Mistake("7", INVALID, "gradWeight", {"gradWeight": t((3, 1))}),
        Mistake("8", INVALID, "gradOutput", {"gradOutput": t((2, 3, 3))}),
        Mistake("8", INVALID, "gradOutput", {"gradOutput": t((2, 2, 3, 4))}),
    ],
)  # fmt: skip
