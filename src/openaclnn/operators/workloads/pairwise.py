"""What the workloads of the losses between `self` and `target` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    Variants,
    normal,
)

LOSS_VARIANTS: Variants = {"mean": {"reduction": "mean"}, "none": {"reduction": "none"}}
GRADIENT_VARIANTS: Variants = {
    "dense gradient": {"reduction": "none"},
    "one gradient": {"reduction": "mean"},
}


def loss_maker(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> Arguments:
    """The losses' `make`: normal predictions and targets."""
    pair = {name: normal(rng, dtype, shape) for name in ("self", "target")}
    return {**pair, **LOSS_VARIANTS[variant]}


def gradient_maker(gradient: str) -> Callable[..., Arguments]:
    """The gradients' `make`: normal predictions and targets, the gradient under its name.

    For mean and sum there is one gradient, as autograd passes it, else a dense one.
    """

    def make(
        rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
    ) -> Arguments:
        options = GRADIENT_VARIANTS[variant]
        dense = shape if options["reduction"] == "none" else ()
        shapes = {gradient: dense, "self": shape, "target": shape}
        return {name: normal(rng, dtype, each) for name, each in shapes.items()} | options

    return make


def reduced(losses: Any, arguments: Mapping[str, Any]) -> Any:
    """The losses of a formula, added up as the arguments ask, in their dtype."""
    total = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[arguments["reduction"]]
    return total.to(arguments["self"].dtype)


def element_scale(arguments: Mapping[str, Any]) -> float:
    """1 / count for mean, 1 otherwise."""
    return 1.0 / max(arguments["self"].numel(), 1) if arguments["reduction"] == "mean" else 1.0
