"""Arguments whose results are hard to get right: where `accuracy.py` looks for the largest errors.

`HARD` has, by operator and place, makers of FLOAT arguments for so many elements or rows; `UNBOUNDED` functions of arguments and exact results that say
which results no error is bounded of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["HARD", "UNBOUNDED"]

Arguments = dict[str, Any]
Draw = Callable[[np.random.Generator], dict[str, Any]]


def any_size(
    rng: np.random.Generator, count: int, low: float = -149, high: float = 128
) -> np.ndarray[Any, Any]:
    """FLOATs of both signs with any exponent between two, subnormal ones too."""
    sizes = np.exp2(rng.uniform(low, high, count)) * rng.choice((-1, 1), count)
    return np.asarray(sizes, np.float32)


def hard_gradients(rng: np.random.Generator, count: int, *factors: float) -> np.ndarray[Any, Any]:
    """Half of them around 1, half of any size; those whose products with some factors are normal FLOATs."""
    sizes = np.where(rng.random(count) < 0.5, any_size(rng, count), any_size(rng, count, -8, 8))
    sizes = sizes.astype(np.float64)
    for factor in map(abs, factors):
        sizes = np.sign(sizes) * np.abs(sizes).clip(2.0**-125 / factor, 2.0**127 / factor)
    return sizes.clip(-(2.0**127), 2.0**127).astype(np.float32)


def any_number(rng: np.random.Generator, low: float, high: float) -> float:
    """A positive FLOAT with any exponent between two; now and then a decimal or a power of two, as people write them."""
    number = 2.0 ** rng.uniform(low, high)
    shape = rng.integers(4)
    if shape == 0:
        number = float(f"{number:.0e}")
    elif shape == 1:
        number = 2.0 ** round(np.log2(number))
    return float(np.float32(number))


# ELU and its gradient.


def hard_inputs(rng: np.random.Generator, count: int, input_scale: float, most: float) -> Any:
    """Inputs whose exponents lie around the pieces of the exponential, where it vanishes or overflows, and are of any size up to one;
    few inputs are above 0."""
    parts = [
        -rng.uniform(0, 1.5, count), -rng.uniform(0, 20, count), -rng.uniform(80, 110, count),
        -rng.uniform(0, 174.9, count), any_size(rng, count, -149, 8),
    ]  # fmt: skip
    exponent = np.choose(rng.integers(len(parts), size=count), parts).clip(-most, most)
    with np.errstate(over="ignore"):
        return (exponent / abs(input_scale)).clip(-3e38, 3e38).astype(np.float32)


def drawn_scalars(
    rng: np.random.Generator, size: float, inner: float = 0, sign: float = 1.0
) -> dict[str, float]:
    """An alpha and a scale with exponents up to `size`, of which one is 1 now and then, and an input scale with a sign."""
    alpha, scale = (any_number(rng, -size, size) for _ in range(2))
    which = rng.integers(4)
    return {
        "alpha": 1.0 if which == 0 else alpha * float(rng.choice((-1, 1, 1, 1))),
        "scale": 1.0 if which == 1 else scale * float(rng.choice((-1, 1, 1, 1))),
        "input_scale": sign * any_number(rng, -inner, inner) if inner else 1.0,
    }


HARD_SCALARS: dict[str, Draw] = {
    "": lambda rng: {},
    "with alpha and scale": lambda rng: drawn_scalars(rng, 12),
    "with an input scale": lambda rng: drawn_scalars(rng, 12, 12),
    "with an input scale below 0": lambda rng: drawn_scalars(rng, 12, 12, -1.0),
    "with scalars of any size": lambda rng: drawn_scalars(rng, 40, 40, float(rng.choice((-1, 1)))),
}
"""Scalars whose products are normal FLOATs."""


def _hard_elu(draw: Draw) -> Any:
    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        options = draw(rng)
        inner = options.get("input_scale", 1.0)
        return {"self": hard_inputs(rng, count, inner, 150.0 if inner > 0 else 88.6), **options}

    return make_hard


def _overflowing(given: Mapping[str, Any], exact: Any) -> Any:
    """Results of exponentials that overflow."""
    exponent = given["self"].astype(np.float64) * given.get("input_scale", 1.0)
    return (given["self"] <= 0) & (exponent > 88.72)


def _hard_elu_backward(draw: Draw) -> Any:
    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        options = draw(rng)
        alpha, scale, inner = (options.get(name, 1.0) for name in ("alpha", "scale", "input_scale"))
        x = hard_inputs(rng, count, inner, 174.9)
        gradient = hard_gradients(rng, count, inner, alpha * scale * inner)
        return {"grad_output": gradient, "self_or_result": x, **options}

    return make_hard


def _hard_result(rng: np.random.Generator, count: int) -> Arguments:
    """Results of an ELU down to three quarters of the least, where the slope is what is left of terms that cancel."""
    options = drawn_scalars(rng, 12, 12)
    options["alpha"] = abs(options["alpha"])
    least = -abs(options["alpha"] * options["scale"])
    result = least * np.exp2(rng.uniform(-140, -0.42, count))
    tensors = {"grad_output": hard_gradients(rng, count, options["input_scale"]), "self_or_result": result.astype(np.float32)}  # fmt: skip
    return {**tensors, "is_result": True, **options}


def _beyond_175(given: Mapping[str, Any], exact: Any) -> Any:
    """Results of exponents beyond 175."""
    x = given["self_or_result"].astype(np.float64)
    return np.abs(x * given.get("input_scale", 1.0)) > 175


# Losses between `self` and `target`.


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


# Cross entropy.


def hard_logits(rng: np.random.Generator, count: int, classes: int) -> Any:
    """Rows of up to so many elements in all: logits of any spread around the target's, which is often the largest and often far above
    all others; the largest is above 0, so that the log-sum-exp is a sum of like signs."""
    rows = max(1, count // classes)
    x = rng.standard_normal((rows, classes)) * 2.0 ** rng.uniform(-4, 5, (rows, 1))
    x -= x.max(axis=1, keepdims=True)
    target = rng.integers(0, classes, rows)
    far = rng.random(rows) < 0.5
    x[far] -= 2.0 ** rng.uniform(-2, 6.5, (np.count_nonzero(far), 1))
    x[far, target[far]] = 0.0
    top = 2.0 ** rng.uniform(-12, 7, (rows, 1)) * (rng.random((rows, 1)) < 0.7)
    return (x + top).astype(np.float32), target


def few_classes(rng: np.random.Generator) -> int:
    return int(rng.integers(2, 12))


def many_classes(rng: np.random.Generator) -> int:
    return int(2.0 ** rng.uniform(3.5, 14))


def _hard_loss(draw_classes: Callable[[np.random.Generator], int], **options: Any) -> Any:
    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        x, target = hard_logits(rng, count, draw_classes(rng))
        tensors = {"input": x, "target": target}
        if "lse_square_scale_for_zloss" in options:
            return {**tensors, "reduction": "none", "return_zloss": True, **options}
        return {**tensors, "reduction": "none", **options}

    return make_hard


_ZLOSS = {"lse_square_scale_for_zloss": float(np.float32(1e-4))}
SMOOTHED = {"label_smoothing": float(np.float32(0.1))}


def _hard_loss_grad(draw_classes: Callable[[np.random.Generator], int], **options: Any) -> Any:
    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        x, target = hard_logits(rng, count, draw_classes(rng))
        with np.errstate(all="ignore"):
            below = x.astype(np.float64) - x.max(axis=1, keepdims=True)
            others = np.exp(below)
            np.put_along_axis(others, x.argmax(axis=1)[:, None], 0.0, 1)
            log_prob = below - np.log1p(others.sum(axis=1, keepdims=True))
        return {
            "grad_loss": any_size(rng, len(x), -8, 8), "log_prob": log_prob.astype(np.float32),
            "target": target, "reduction": "none", **options,
        }  # fmt: skip

    return make_hard


def _cancelled(given: Mapping[str, Any], exact: Any) -> Any:
    """Results of terms that cancel, smaller than half of what smoothing subtracts; and those of subnormal probabilities."""
    subtracted = np.abs(given["grad_loss"].astype(np.float64)) * given.get("label_smoothing", 0.0)
    cancelled = np.abs(exact) < subtracted[:, None] / exact.shape[1] / 2
    return cancelled | (given["log_prob"] < -87)


HardPlaces = dict[str, Callable[[np.random.Generator, int], Arguments]]

HARD: dict[str, HardPlaces] = {
    "elu": {place: _hard_elu(draw) for place, draw in HARD_SCALARS.items()},
    "elu_backward": {
        **{place: _hard_elu_backward(draw) for place, draw in HARD_SCALARS.items()},
        "from the result": _hard_result,
    },
    "l1_loss": {"": hard_loss(lambda rng: {})},
    "l1_loss_backward": {"": hard_gradient("grad_output", lambda rng: {})},
    "smooth_l1_loss": {place: hard_loss(beta) for place, beta in BETAS.items()},
    "smooth_l1_loss_backward": {
        place: hard_gradient("grad_out", beta) for place, beta in BETAS.items()
    },
    "cross_entropy_loss": {
        "few classes": _hard_loss(few_classes),
        "many classes": _hard_loss(many_classes),
        "few classes, smoothed": _hard_loss(few_classes, **SMOOTHED),
        "many classes, smoothed": _hard_loss(many_classes, **SMOOTHED),
        "few classes, z-loss": _hard_loss(few_classes, **_ZLOSS),
        "many classes, z-loss": _hard_loss(many_classes, **_ZLOSS),
    },
    "cross_entropy_loss_grad": {
        "few classes": _hard_loss_grad(few_classes),
        "many classes": _hard_loss_grad(many_classes),
        "few classes, smoothed": _hard_loss_grad(few_classes, **SMOOTHED),
        "many classes, smoothed": _hard_loss_grad(many_classes, **SMOOTHED),
    },
}
UNBOUNDED: dict[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "elu": _overflowing,
    "elu_backward": _beyond_175,
    "cross_entropy_loss_grad": _cancelled,
}
