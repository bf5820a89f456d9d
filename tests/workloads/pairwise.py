"""What the cases of the losses between `self` and `target` share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType

LOSSES = (((6, 5, 4), (6, 5, 4)), ((6, 1, 4), (5, 1)), ((3, 7), ()), ((9, 1001), (9, 1001)))
"""Dense, broadcast both ways, one target for all, more than a block."""
GRADIENTS = (
    ((6, 5, 4), (6, 5, 4), (6, 5, 4)),
    ((5, 1), (6, 1, 4), (1, 5, 4)),
    ((), (6, 5, 4), (5, 4)),
    ((1,), (3, 7), (3, 7)),
)
"""Dense, broadcast three ways, one gradient for all."""


def loss_cases(
    rng: np.random.Generator, dtype: DType, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    return _cases(rng, dtype, ("self", "target"), LOSSES, options)


def gradient_cases(
    rng: np.random.Generator, dtype: DType, gradient: str, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    return _cases(rng, dtype, (gradient, "self", "target"), GRADIENTS, options)


def _cases(
    rng: np.random.Generator, dtype: DType, names: Any, table: Any, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Numbers of one decimal: some are ties."""
    for shapes in table:
        drawn = [np.round(2 * rng.normal(size=shape), 1) for shape in shapes]
        arrays = [np.asarray(each).astype(dtype.numpy) for each in drawn]
        yield dict(zip(names, arrays, strict=True)) | dict(options)
