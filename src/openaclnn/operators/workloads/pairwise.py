"""What the workloads of the losses between `self` and `target` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    Variants,
    any_number,
    any_size,
    hard_gradients,
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


def hard_pair(rng: np.random.Generator, count: int, beta: float) -> Arguments:
    """Predictions and targets whose differences are of any size, of beta's size, and around it."""
    target = np.where(rng.random(count) < 0.3, 0, any_size(rng, count, -149, 40))
    parts = [
        any_size(rng, count, -149, 100), beta * any_size(rng, count, -24, 3), any_size(rng, count, -149, -100),
        beta * rng.choice((-1, 1), count) * (1 + rng.normal(size=count) * 2.0**-20),
    ]  # fmt: skip
    difference = np.choose(rng.integers(len(parts), size=count), parts)
    prediction = (target.astype(np.float64) + difference).clip(-3e38, 3e38)
    return {"self": prediction.astype(np.float32), "target": target.astype(np.float32)}


Draw = Callable[[np.random.Generator], dict[str, Any]]


def hard_loss(draw: Draw) -> Callable[[np.random.Generator, int], Arguments]:
    """A hard place of the losses, without a reduction, for the options that are drawn."""

    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        options = draw(rng)
        return {**hard_pair(rng, count, options.get("beta", 1.0)), "reduction": "none", **options}

    return make_hard


def hard_gradient(name: str, draw: Draw) -> Callable[[np.random.Generator, int], Arguments]:
    """The same of the gradients, without a reduction and for a mean."""
    loss = hard_loss(draw)

    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        reduction = str(rng.choice(("none", "mean")))
        return {**loss(rng, count), name: hard_gradients(rng, count), "reduction": reduction}

    return make_hard


BETAS: dict[str, Draw] = {
    "": lambda rng: {},
    "with a beta": lambda rng: {"beta": any_number(rng, -12, 12)},
    "with a beta of any size": lambda rng: {"beta": any_number(rng, -140, 120)},
}


def reduced(losses: Any, arguments: Mapping[str, Any]) -> Any:
    """The losses of a formula, added up as the arguments ask, in their dtype."""
    total = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[arguments["reduction"]]
    return total.to(arguments["self"].dtype)


def element_scale(arguments: Mapping[str, Any]) -> float:
    """1 / count for mean, 1 otherwise."""
    return 1.0 / max(arguments["self"].numel(), 1) if arguments["reduction"] == "mean" else 1.0
