"""What the workloads of the losses between `self` and `target` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType


def pairwise_cases(
    rng: np.random.Generator, dtype: DType, gradient: str, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Test cases: dense, broadcast three ways, one gradient for all, ties."""
    for shapes in (
        ((6, 5, 4), (6, 5, 4), (6, 5, 4)),
        ((5, 1), (6, 1, 4), (1, 5, 4)),
        ((), (6, 5, 4), (5, 4)),
        ((1,), (3, 7), (3, 7)),
    ):
        first, own, target = (np.round(2 * rng.normal(size=shape), 1) for shape in shapes)
        yield {
            gradient: np.asarray(first).astype(dtype.numpy),
            "self": own.astype(dtype.numpy),
            "target": target.astype(dtype.numpy),
            **options,
        }


PAIR_VARIANTS: dict[str, dict[str, Any]] = {
    "dense gradient": {"reduction": "none", "one_gradient": False},
    "one gradient": {"reduction": "mean", "one_gradient": True},
}


def pair_maker(gradient: str) -> Callable[..., dict[str, Any]]:
    """The workloads' `make`: normal predictions and targets, the gradient under its name.

    For mean and sum there is one gradient, as autograd passes it, else a dense one.
    """

    def make(
        rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
    ) -> dict[str, Any]:
        given = dict(PAIR_VARIANTS[variant])
        own = () if given.pop("one_gradient") else shape
        return {
            gradient: np.asarray(rng.standard_normal(own, np.float32)).astype(dtype.numpy),
            "self": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
            "target": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
            **given,
        }

    return make


def element_scale(given: Mapping[str, Any]) -> float:
    """1 / count for mean, 1 otherwise."""
    return 1.0 / max(given["self"].numel(), 1) if given["reduction"] == "mean" else 1.0


LOSS_VARIANTS: dict[str, dict[str, Any]] = {
    "mean": {"reduction": "mean"},
    "none": {"reduction": "none"},
}


def loss_maker(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """The losses' `make`: normal predictions and targets."""
    return {
        "self": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        "target": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        **LOSS_VARIANTS[variant],
    }


def loss_cases(
    rng: np.random.Generator, dtype: DType, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Test cases: dense, broadcast both ways, one target for all, ties, more than a block."""
    for shapes in (
        ((6, 5, 4), (6, 5, 4)),
        ((6, 1, 4), (5, 1)),
        ((3, 7), ()),
        ((9, 1001), (9, 1001)),
    ):
        own, target = (np.round(2 * rng.normal(size=shape), 1) for shape in shapes)
        yield {
            "self": own.astype(dtype.numpy),
            "target": np.asarray(target).astype(dtype.numpy),
            **options,
        }
