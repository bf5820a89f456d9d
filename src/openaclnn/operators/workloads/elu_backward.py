"""Workloads of aclnnEluBackward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads import elu
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Peers,
    Variants,
    allocating_and_into,
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
