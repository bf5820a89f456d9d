"""Workloads of aclnnEluBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType

Array = np.ndarray[Any, Any]
PATTERN = "elementwise"
VARIANTS: dict[str, dict[str, Any]] = {
    "input": {},
    "SELU": {"alpha": 1.6732632423543772, "scale": 1.0507009873554805},
    "input scale": {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
    "result": {"is_result": True},
}


def make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """A gradient and an activation, both normal."""
    return {
        "grad_output": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        "self_or_result": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        **VARIANTS[variant],
    }


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


def _scalars(given: Mapping[str, Any]) -> tuple[float, float, float, bool]:
    return (
        given.get("alpha", 1.0),
        given.get("scale", 1.0),
        given.get("input_scale", 1.0),
        given.get("is_result", False),
    )


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator, allocating and writing into `out`."""
    arguments = (given["grad_output"], *_scalars(given), given["self_or_result"])
    aten = torch.ops.aten.elu_backward
    return {
        "torch": lambda: aten(*arguments),
        "torch out=": lambda: aten.grad_input(*arguments, grad_input=out),
    }


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x = given["grad_output"].float(), given["self_or_result"].float()
    alpha, scale, input_scale, is_result = _scalars(given)
    if is_result:
        negative = gradient * input_scale * (x + alpha * scale)
    else:
        negative = gradient * (input_scale * alpha * scale) * torch.exp(x * input_scale)
    return torch.where(x <= 0, negative, gradient * scale).to(given["grad_output"].dtype)
