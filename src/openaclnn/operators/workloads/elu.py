"""Workloads of aclnnElu."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, INT32, INT64, DType
from openaclnn.core.tensor import Scalar
from openaclnn.operators.workloads.kernel import KernelForm
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from openaclnn.operators.workloads.module import Module

PATTERN = "elementwise"
TRAINED = "elu"
MODULE = Module("ELU", ("elementwise",))
KERNELS = (KernelForm("elu", {"x": "self"}),)
VARIANTS: dict[str, dict[str, Any]] = {
    "ELU": {},
    "SELU": {"alpha": 1.6732632423543772, "scale": 1.0507009873554805},
    "input scale": {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
    {"alpha": -0.75, "input_scale": -0.25},
    {"alpha": 2.0, "scale": 0.5, "input_scale": float("inf")},
)


def make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """Normal activations."""
    values = rng.standard_normal(shape, np.float32).astype(dtype.numpy)
    return {"self": values, **VARIANTS[variant]}


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for options in OPTIONS:
        yield {"self": (3 * rng.normal(size=(7, 5, 9))).astype(dtype.numpy), **options}


def scalars(given: Mapping[str, Any]) -> tuple[float, float, float]:
    return given.get("alpha", 1.0), given.get("scale", 1.0), given.get("input_scale", 1.0)


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator, allocating and writing into `out`."""
    arguments = (given["self"], *scalars(given))
    aten = torch.ops.aten.elu
    return {"torch": lambda: aten(*arguments), "torch out=": lambda: aten.out(*arguments, out=out)}


def expression(torch: Any, x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """The formula as an expression."""
    values = x.float()
    negative = (alpha * scale) * torch.expm1(values * input_scale)
    return torch.where(values > 0, values * scale, negative).to(x.dtype)


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    return expression(torch, given["self"], *scalars(given))


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
