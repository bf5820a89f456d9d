"""What the workloads of the losses between `self` and `target` share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.dtypes import DType


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


def make_pair(
    rng: np.random.Generator,
    dtype: DType,
    shape: tuple[int, ...],
    gradient: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Normal predictions and targets; one gradient for mean and sum, as autograd passes it, else dense."""
    given = dict(options)
    own = () if given.pop("one_gradient") else shape
    return {
        gradient: np.asarray(rng.standard_normal(own, np.float32)).astype(dtype.numpy),
        "self": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        "target": rng.standard_normal(shape, np.float32).astype(dtype.numpy),
        **given,
    }


def element_scale(given: Mapping[str, Any]) -> float:
    """1 / count for mean, 1 otherwise."""
    return 1.0 / max(given["self"].numel(), 1) if given["reduction"] == "mean" else 1.0
