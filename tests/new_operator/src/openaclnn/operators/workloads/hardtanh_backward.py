"""Workloads of aclnnHardtanhBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, DOUBLE, FLOAT16, INT32, DType
from openaclnn.core.tensor import Scalar
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

PATTERN = "elementwise"
VARIANTS: dict[str, dict[str, Any]] = {"unit": {}, "relu6": {"min": 0.0, "max": 6.0}}


def make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """A gradient and an input, both normal."""
    return {
        "grad_output": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        "self": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        **VARIANTS[variant],
    }


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for variant in VARIANTS:
        yield make(rng, dtype, (7, 5, 9), variant)


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator, allocating and writing into `out`."""
    arguments = (
        given["grad_output"],
        given["self"],
        given.get("min", -1.0),
        given.get("max", 1.0),
    )
    aten = torch.ops.aten.hardtanh_backward
    return {
        "torch": lambda: aten(*arguments),
        "torch out=": lambda: aten.grad_input(*arguments, grad_input=out),
    }


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x = given["grad_output"], given["self"]
    outside = (x <= given.get("min", -1.0)) | (x >= given.get("max", 1.0))
    return torch.where(outside, 0.0, gradient)


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
