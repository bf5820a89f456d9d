"""Workloads of aclnnElu."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    HardPlaces,
    KernelForm,
    Module,
    Peers,
    Variants,
    allocating_and_into,
    any_number,
    any_size,
    normal,
)

PATTERN = "elementwise"
TRAINED = "elu"
MODULE = Module("ELU", ("elementwise",))
KERNELS = (KernelForm("elu", {"x": "self"}),)
VARIANTS: Variants = {
    "ELU": {},
    "SELU": {"alpha": 1.6732632423543772, "scale": 1.0507009873554805},
    "input scale": {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """Normal activations."""
    return {"self": normal(rng, dtype, shape), **VARIANTS[variant]}


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


HARD_SCALARS: dict[str, Callable[[np.random.Generator], dict[str, float]]] = {
    "": lambda rng: {},
    "with alpha and scale": lambda rng: drawn_scalars(rng, 12),
    "with an input scale": lambda rng: drawn_scalars(rng, 12, 12),
    "with an input scale below 0": lambda rng: drawn_scalars(rng, 12, 12, -1.0),
    "with scalars of any size": lambda rng: drawn_scalars(rng, 40, 40, float(rng.choice((-1, 1)))),
}
"""Scalars whose products are normal FLOATs."""


def _hard(draw: Callable[[np.random.Generator], dict[str, float]]) -> Any:
    def make_hard(rng: np.random.Generator, count: int) -> Arguments:
        options = draw(rng)
        inner = options.get("input_scale", 1.0)
        return {"self": hard_inputs(rng, count, inner, 150.0 if inner > 0 else 88.6), **options}

    return make_hard


HARD: HardPlaces = {place: _hard(draw) for place, draw in HARD_SCALARS.items()}


def unbounded(given: Mapping[str, Any], exact: Any) -> Any:
    """Results of exponentials that overflow."""
    exponent = given["self"].astype(np.float64) * given.get("input_scale", 1.0)
    return (given["self"] <= 0) & (exponent > 88.72)


def scalars(given: Mapping[str, Any]) -> tuple[float, float, float]:
    return given.get("alpha", 1.0), given.get("scale", 1.0), given.get("input_scale", 1.0)


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    return allocating_and_into(torch.ops.aten.elu, (given["self"], *scalars(given)), out, "out")


def expression(torch: Any, x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """The formula as an expression."""
    values = x.float()
    negative = (alpha * scale) * torch.expm1(values * input_scale)
    return torch.where(values > 0, values * scale, negative).to(x.dtype)


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    return expression(torch, given["self"], *scalars(given))
