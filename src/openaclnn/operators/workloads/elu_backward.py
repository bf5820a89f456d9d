"""Workloads of aclnnEluBackward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads import elu
from openaclnn.operators.workloads.words import (
    Arguments,
    HardPlaces,
    KernelForm,
    Peers,
    Variants,
    allocating_and_into,
    hard_gradients,
    normal,
)

PATTERN = "elementwise"
_INPUTS = {"grads": "gradOutput", "activations": "selfOrResult"}
KERNELS = (
    KernelForm("elu_grad_v2", _INPUTS),
    KernelForm("elu_grad", _INPUTS, values={"isResult": True}),  # of the forward's output
)
VARIANTS: Variants = {
    "input": {},
    "SELU": elu.VARIANTS["SELU"],
    "input scale": elu.VARIANTS["input scale"],
    "result": {"is_result": True},
}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """A gradient and an activation, both normal."""
    pair = {name: normal(rng, dtype, shape) for name in ("grad_output", "self_or_result")}
    return {**pair, **VARIANTS[variant]}


def _hard(draw: Callable[[np.random.Generator], dict[str, float]]) -> Any:
    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        options = draw(rng)
        alpha, scale, inner = elu.scalars(options)
        x = elu.hard_inputs(rng, count, inner, 174.9)
        gradient = hard_gradients(rng, count, inner, alpha * scale * inner)
        return {"grad_output": gradient, "self_or_result": x, **options}

    return make_hard


def _hard_result(rng: np.random.Generator, count: int) -> Arguments:
    """Results of an ELU down to three quarters of the least, where the slope is what is left of terms that cancel."""
    options = elu.drawn_scalars(rng, 12, 12)
    options["alpha"] = abs(options["alpha"])
    least = -abs(options["alpha"] * options["scale"])
    result = least * np.exp2(rng.uniform(-140, -0.42, count))
    tensors = {"grad_output": hard_gradients(rng, count, options["input_scale"]), "self_or_result": result.astype(np.float32)}  # fmt: skip
    return {**tensors, "is_result": True, **options}


HARD: HardPlaces = {
    **{place: _hard(draw) for place, draw in elu.HARD_SCALARS.items()},
    "from the result": _hard_result,
}


def unbounded(given: Mapping[str, Any], exact: Any) -> Any:
    """Results of exponents beyond 175."""
    x = given["self_or_result"].astype(np.float64)
    return np.abs(x * given.get("input_scale", 1.0)) > 175


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    options = (*elu.scalars(given), given.get("is_result", False))
    arguments = given["grad_output"], *options, given["self_or_result"]
    return allocating_and_into(torch.ops.aten.elu_backward, arguments, out)


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x = given["grad_output"].float(), given["self_or_result"].float()
    alpha, scale, input_scale = elu.scalars(given)
    if given.get("is_result", False):
        negative = gradient * input_scale * (x + alpha * scale)
    else:
        negative = gradient * (input_scale * alpha * scale) * torch.exp(x * input_scale)
    return torch.where(x <= 0, negative, gradient * scale).to(given["grad_output"].dtype)
