"""Workloads of softmax, log-softmax and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators import softmaxes
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Peers,
    Variants,
    allocating_and_into,
    normal,
)

PATTERN = "rows"
VARIANTS: Variants = {"rows": {"dim": -1}, "columns": {"dim": 0}}


def _options(variant: str, shape: tuple[int, ...]) -> Arguments:
    """Of images, whose classes lie along axis 1, there is one variant."""
    return {"dim": 1} if len(shape) > 2 else VARIANTS[variant]


def _make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> Arguments:
    """Normal logits."""
    return {"self": normal(rng, dtype, shape), **_options(variant, shape)}


def _forward(name: str, kernel: KernelForm, of_rows: Any) -> SimpleNamespace:
    """aten's own operator, in both ways; `of_rows` is the formula as an expression of FLOATs."""

    def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        arguments = values["self"], values.get("dim", -1), False
        return allocating_and_into(getattr(torch.ops.aten, f"_{name}"), arguments, out, "out")

    def torch_formula(torch: Any, values: Mapping[str, Any]) -> Any:
        x, dim = values["self"].float(), values.get("dim", -1)
        return of_rows(torch, x - x.amax(dim, keepdim=True), dim).to(values["self"].dtype)

    return SimpleNamespace(
        PATTERN=PATTERN, VARIANTS=VARIANTS, KERNELS=(kernel,), make=_make, torch_peers=torch_peers, torch_formula=torch_formula,
    )  # fmt: skip


def _gradient(
    name: str,
    kernel: KernelForm,
    domain: tuple[float, float],
    forward: Any,
    overload: str,
    of_rows: Any,
) -> SimpleNamespace:
    """The same of a gradient, from the forward's result."""

    def make(
        rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
    ) -> Arguments:
        gradient, x = (normal(rng, dtype, shape) for _ in range(2))
        options = _options(variant, shape)
        result = forward(x, **options, work=np.float32).astype(dtype.numpy)
        return {"grad_output": gradient, "output": result, **options}

    def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        gradient, result = values["grad_output"], values["output"]
        arguments = gradient, result, values.get("dim", -1), result.dtype
        operator = getattr(torch.ops.aten, f"_{name}_data")
        peers = allocating_and_into(operator, arguments, out, "out", overload)
        return peers if gradient.shape == result.shape else dict.fromkeys(peers, _refuse)

    def torch_formula(torch: Any, values: Mapping[str, Any]) -> Any:
        gradient, result = values["grad_output"].float(), values["output"].float()
        return of_rows(torch, gradient, result, values.get("dim", -1)).to(values["output"].dtype)

    return SimpleNamespace(
        PATTERN=PATTERN, VARIANTS=VARIANTS, KERNELS=(kernel,), DOMAINS={"output": domain}, make=make, torch_peers=torch_peers,
        torch_formula=torch_formula,
    )  # fmt: skip


def _refuse() -> None:
    """In PyTorch's place, which does not always compare the shapes and reads what lies behind the smaller tensor."""
    raise RuntimeError("grad_output and output have different shapes")


def _softmax(torch: Any, shifted: Any, dim: int) -> Any:
    powers = torch.exp(shifted)
    return powers / powers.sum(dim, keepdim=True)


softmax = _forward(
    "softmax", KernelForm("softmax_v2", {"x": "self"}, {"axes": "dim"}, only={"half_to_float": False}), _softmax,
)  # fmt: skip
log_softmax = _forward(
    "log_softmax", KernelForm("log_softmax_v2", {"logits": "self"}, {"axes": "dim"}),
    lambda torch, shifted, dim: shifted - torch.exp(shifted).sum(dim, keepdim=True).log(),
)  # fmt: skip
softmax_backward = _gradient(
    "softmax_backward", KernelForm("softmax_grad", {"softmax": "output", "grad_softmax": "gradOutput"}, {"axes": "dim"}),
    (0.0, 1.0), softmaxes.softmax, "grad_input",
    lambda torch, gradient, result, dim: (gradient - (gradient * result).sum(dim, keepdim=True)) * result,
)  # fmt: skip
log_softmax_backward = _gradient(
    "log_softmax_backward", KernelForm("log_softmax_grad", {"grad": "gradOutput", "x": "output"}, {"axis": "dim"}),
    (float("-inf"), 0.0), softmaxes.log_softmax, "",
    lambda torch, gradient, result, dim: gradient - torch.exp(result) * gradient.sum(dim, keepdim=True),
)  # fmt: skip
