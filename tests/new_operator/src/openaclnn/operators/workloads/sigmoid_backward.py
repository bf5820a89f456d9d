"""Workloads of aclnnSigmoidBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, FLOAT16, INT32, DType
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

PATTERN = "elementwise"
VARIANTS: dict[str, dict[str, Any]] = {"output": {}}


def make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """A normal gradient, and the sigmoid of normal inputs."""
    return {
        "grad_output": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        "output": (1 / (1 + np.exp(-rng.standard_normal(shape, np.float32)))).astype(dtype.numpy),
    }


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    yield make(rng, dtype, (7, 5, 9), "output")


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator, allocating and writing into `out`."""
    arguments = (given["grad_output"], given["output"])
    aten = torch.ops.aten.sigmoid_backward
    return {
        "torch": lambda: aten(*arguments),
        "torch out=": lambda: aten.grad_input(*arguments, grad_input=out),
    }


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, y = given["grad_output"].float(), given["output"].float()
    return (gradient * ((1 - y) * y)).to(given["grad_output"].dtype)


def sound() -> dict[str, Any]:
    return {"gradOutput": t((2, 3)), "output": t((2, 3)), "gradInput": t((2, 3))}


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "output", "gradInput"),
    Mistake("2", INVALID, "output", {"output": t((2, 3), FLOAT16)}),
    Mistake(
        "3", INVALID, "gradOutput", {"gradOutput": t((2, 3), DOUBLE), "output": t((2, 3), DOUBLE)}
    ),
    Mistake("4", INVALID, "gradInput", {"gradInput": t((2, 3), INT32)}),
    Mistake("5", INVALID, "output", {"output": t((3, 2))}),
    Mistake("6", INVALID, "gradInput", {"gradInput": t((2, 1))}),
    Mistake(
        "7",
        INVALID,
        "gradOutput",
        {name: t(NINE) for name in ("gradOutput", "output", "gradInput")},
    ),
]
