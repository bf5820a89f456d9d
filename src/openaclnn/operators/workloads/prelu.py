"""Workloads of aclnnPrelu and aclnnPreluBackward."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.steps import channels_of
from openaclnn.operators.workloads.words import Arguments, KernelForm, Peers, Variants, normal

SHAPES = ((4096, 4096), (64, 256, 56, 56), (1 << 20, 16), (2048, 64, 128))
RANKS = tuple(range(1, 9))
VARIANTS: Variants = {"a slope for each channel": {}, "one slope": {}}


def _drawn(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:  # fmt: skip
    count = channels_of(shape) if variant.startswith("a slope") else 1
    return {"self": normal(rng, dtype, shape), "weight": normal(rng, dtype, (count,))}


def _drawn_backward(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:  # fmt: skip
    return {"grad_output": normal(rng, dtype, shape), **_drawn(rng, dtype, shape, variant)}


def _along(x: Any, weight: Any) -> Any:
    return weight.reshape(-1, *[1] * (x.dim() - 2)) if weight.numel() > 1 else weight


def _peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """PyTorch's own function, and with a place for the result an expression."""
    x, weight = values["self"], values["weight"]
    return {
        "torch": lambda: torch.nn.functional.prelu(x, weight),
        "torch out=": lambda: torch.where(x > 0, x, x * _along(x, weight), out=out),
    }


def _formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x, weight = values["self"].float(), values["weight"].float()
    return torch.where(x > 0, x, x * _along(x, weight)).to(values["self"].dtype)


def _backward_of(torch: Any, gradient: Any, x: Any, weight: Any) -> Any:
    others = [axis for axis in range(x.dim()) if axis != 1 or weight.numel() == 1]
    by_weight = torch.where(x > 0, 0.0, gradient * x).sum(others).reshape(weight.shape)
    return torch.where(x > 0, gradient, gradient * _along(x, weight)), by_weight


def _backward_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """What PyTorch's autograd runs: its kernel, and the sum of what that gives for each element."""
    gradient, x, weight = values["grad_output"], values["self"], values["weight"]
    others = [axis for axis in range(x.dim()) if axis != 1 or weight.numel() == 1]

    def both() -> Any:
        kernel = torch.ops.aten._prelu_kernel_backward
        by_x, parts = kernel(gradient, x, _along(x, weight))
        return by_x, parts.sum(others).reshape(weight.shape)

    return {"torch": both}


def _backward_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formulas as expressions."""
    wide = [values[name].float() for name in ("grad_output", "self", "weight")]
    return tuple(each.to(values["self"].dtype) for each in _backward_of(torch, *wide))


prelu = SimpleNamespace(
    PATTERN="pixels", RANKS=RANKS, VARIANTS=VARIANTS, make=_drawn, torch_peers=_peers, torch_formula=_formula, ANY_SIZE=False, SHAPES=SHAPES,
    KERNELS=(KernelForm("p_relu", {"x": "self", "weight": "weight"}),),
)  # fmt: skip
prelu_backward = SimpleNamespace(
    PATTERN="pixels", RANKS=RANKS, VARIANTS=VARIANTS, make=_drawn_backward, torch_peers=_backward_peers, torch_formula=_backward_formula,
    ANY_SIZE=False, SHAPES=SHAPES,
)  # fmt: skip
