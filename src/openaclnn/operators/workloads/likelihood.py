"""Workloads of the negative log-likelihood losses and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Peers,
    Variants,
    allocating_and_into,
    normal,
)

_CLASSES = {"target": "target", "weight": "weight"}
_UNWEIGHTED = {"weight": "self"}
LOSS_KERNELS = (KernelForm("nll_loss", {"x": "self", **_CLASSES}, ones=_UNWEIGHTED),)
GRADIENT_KERNELS = (
    KernelForm(
        "nll_loss_grad",
        {"x": "self", "y_grad": "gradOutput", **_CLASSES, "total_weight": "totalWeight"},
        ones=_UNWEIGHTED,
    ),
)
LOG_PROBABILITIES = {"self": (-np.inf, 0.0)}
"""The domain of what the losses read."""
LARGEST_TOTAL = 60000.0
"""Of weights: half a million pixels weigh more than FLOAT16 can say."""


def loss_arguments(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], target: Any
) -> Arguments:
    """Log-probabilities of random logits, and weights around 1."""
    return {
        "self": -np.abs(rng.standard_normal(shape, np.float32)).astype(dtype.numpy),
        "target": target,
        "weight": (0.5 + rng.random(shape[1])).astype(dtype.numpy),
    }


def _loss(name: str, pattern: str, variants: Variants, **more: Any) -> SimpleNamespace:
    """A loss's workloads: a random class for each row, or classes over the variant's patches of pixels."""

    def make(
        rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
    ) -> Arguments:
        options = dict(variants[variant])
        if len(shape) == 2:
            target = rng.integers(0, shape[1], shape[:1])
        else:
            target = patches(rng, shape, options.pop("patch"))
        return {**loss_arguments(rng, dtype, shape, target), **options}

    return SimpleNamespace(
        PATTERN=pattern, VARIANTS=variants, KERNELS=LOSS_KERNELS, DOMAINS=LOG_PROBABILITIES, make=make,
        torch_peers=forward_peers(name), torch_formula=forward_formula, **more,
    )  # fmt: skip


def _gradient(name: str, pattern: str, make: Any, variants: Variants, **more: Any) -> SimpleNamespace:  # fmt: skip
    return SimpleNamespace(
        PATTERN=pattern, VARIANTS=variants, KERNELS=GRADIENT_KERNELS, settle=total_of_weights, make=make, torch_peers=gradient_peers(name),
        torch_formula=gradient_formula, **more,
    )  # fmt: skip


def patches(rng: np.random.Generator, shape: tuple[int, ...], patch: int) -> Any:
    """Classes of pixels: random for each pixel, which is the worst case, or the same over patches of some width, like a segmentation mask."""
    batch, classes, height, width = shape
    coarse = rng.integers(0, classes, (batch, -(-height // patch), -(-width // patch)))
    whole = coarse.repeat(patch, axis=1).repeat(patch, axis=2)
    return np.ascontiguousarray(whole[:, :height, :width])


def total_of_weights(values: Mapping[str, Any], chosen: frozenset[str]) -> Arguments:
    """The gradients' `settle`: the total weight is that of the drawn weights, unless it was asked for by name."""
    if "total_weight" in chosen:
        return {}
    weight, target = values["weight"].astype(np.float64).reshape(-1), values["target"]
    counted = (target != values.get("ignore_index", -100)) & (target >= 0) & (target < weight.size)
    total = np.clip(weight[target[counted]].sum(), -LARGEST_TOTAL, LARGEST_TOTAL)
    return {"total_weight": np.asarray([total]).astype(values["weight"].dtype)}


def forward_peers(name: str) -> Callable[..., Peers]:
    """The losses' `torch_peers`: aten's operator of that name, allocating and writing into `out`; it gives the total weight too, unless it
    reduces nothing."""

    def peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        aten = getattr(torch.ops.aten, name)
        target, weight = values["target"], values["weight"]
        ignored = values.get("ignore_index", -100)
        arguments = values["self"], target, weight, REDUCTIONS.index(values["reduction"]), ignored

        def into() -> Any:
            return aten.output(*arguments, output=out[0], total_weight=out[1])

        if values["reduction"] != "none":
            return {"torch": lambda: aten(*arguments), "torch out=": into}

        def counted() -> Any:
            return weight[target[target != ignored]]

        return {
            "torch": lambda: (aten(*arguments)[0], counted().sum()),
            "torch out=": lambda: (into()[0], torch.sum(counted(), 0, out=out[1])),
        }

    return peers


def forward_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    target, weight = values["target"].long(), values["weight"].float()
    counted = target != values.get("ignore_index", -100)
    safe = torch.where(counted, target, 0)
    weights = torch.where(counted, weight[safe], 0.0)
    losses = -weights * values["self"].float().gather(1, safe[:, None])[:, 0]
    total = weights.sum()
    reduced = {"none": losses, "mean": losses.sum() / total, "sum": losses.sum()}
    dtype = values["self"].dtype
    return reduced[values["reduction"]].to(dtype), total.to(dtype)


def gradient_peers(name: str) -> Callable[..., Peers]:
    """The gradients' `torch_peers`: aten's operator of that name, in both ways."""

    def peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        gradient, tensors = (
            values["grad_output"],
            [values[name] for name in ("self", "target", "weight")],
        )
        if values["reduction"] != "none":
            gradient = gradient.reshape(())
        options = REDUCTIONS.index(values["reduction"]), values.get("ignore_index", -100)
        arguments = gradient, *tensors, *options, values["total_weight"].reshape(())
        return allocating_and_into(getattr(torch.ops.aten, name), arguments, out)

    return peers


def gradient_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression: each class compared with the target."""
    target, weight = values["target"], values["weight"].float()
    gradient = values["grad_output"].float()
    if values["reduction"] != "none":
        gradient = gradient.reshape(())
    if values["reduction"] == "mean":
        gradient = gradient / values["total_weight"].float().reshape(())
    counted = target != values.get("ignore_index", -100)
    value = -(gradient * weight[torch.where(counted, target, 0)])
    classes = torch.arange(values["self"].shape[1], device=target.device)
    hit = classes.view(-1, *[1] * (target.dim() - 1)) == target[:, None]
    return torch.where(hit & counted[:, None], value[:, None], 0.0).to(values["self"].dtype)


ROWS: Variants = {"mean": {"reduction": "mean"}, "none": {"reduction": "none"}}
PIXELS: Variants = {
    "random": {"reduction": "none", "patch": 1},
    "patches": {"reduction": "none", "patch": 64},
    "mean, patches": {"reduction": "mean", "patch": 64},
}


def _total(weight: Any, target: Any) -> float:
    return min(float(weight.astype(np.float64)[target].sum()), LARGEST_TOTAL)


def with_gradient(
    rng: np.random.Generator, dtype: DType, inputs: Arguments, total: float
) -> Arguments:
    """The arguments of the loss with a gradient of it and the total weight."""
    gradient = normal(rng, dtype, inputs["target"].shape if inputs["reduction"] == "none" else (1,))
    weight = np.asarray([total]).astype(dtype.numpy)
    return {"grad_output": gradient, **inputs, "total_weight": weight}


def _of_rows(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> Arguments:
    """A random class for each row."""
    target = rng.integers(0, shape[1], shape[:1])
    inputs = {**loss_arguments(rng, dtype, shape, target), **ROWS[variant]}
    return with_gradient(rng, dtype, inputs, _total(inputs["weight"], target))


def _of_pixels(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> Arguments:
    """Classes over patches, or of each pixel; the log-probabilities are not read."""
    options = dict(PIXELS[variant])
    target = patches(rng, shape, options.pop("patch"))
    weight = (0.5 + rng.random(shape[1])).astype(dtype.numpy)
    inputs = {"self": np.empty(shape, dtype.numpy), "target": target, "weight": weight, **options}
    return with_gradient(rng, dtype, inputs, _total(weight, target))


nll_loss = _loss("nll_loss_forward", "rows", ROWS)
nll_loss2d = _loss(
    "nll_loss2d_forward", "pixels", {"mean, patches": PIXELS["mean, patches"], "none, random": PIXELS["random"]}, TRAINED="nll_loss",
)  # fmt: skip
nll_loss_backward = _gradient("nll_loss_backward", "rows", _of_rows, ROWS, ANY_SIZE=False)
nll_loss2d_backward = _gradient("nll_loss2d_backward", "pixels", _of_pixels, PIXELS)
