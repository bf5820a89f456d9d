"""Workloads of aclnnEluBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import COMPLEX64, DOUBLE, FLOAT16, INT32, DType
from openaclnn.core.tensor import Scalar
from openaclnn.operators.workloads.kernel import KernelForm
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

PATTERN = "elementwise"
_INPUTS = {"grads": "gradOutput", "activations": "selfOrResult"}
KERNELS = (
    KernelForm("elu_grad_v2", _INPUTS),
    KernelForm("elu_grad", _INPUTS, values={"isResult": True}),  # of the forward's output
)
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
