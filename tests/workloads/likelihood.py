"""What the cases of the negative log-likelihood losses share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.likelihood import loss_arguments


def loss_cases(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]
) -> Iterator[dict[str, Any]]:
    """All reductions, with a value ignored that is a class and one that is none."""
    for number, reduction in enumerate(REDUCTIONS * 2):
        ignored = (-100, 2)[number % 2]
        target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
        target[rng.random(target.shape) < 0.2] = ignored
        target = target.astype(np.int64 if number % 2 == 0 else np.int32)
        options = {"reduction": reduction, "ignore_index": ignored}
        yield {**loss_arguments(rng, dtype, shape, target), **options}


def single_rows(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    """One row without an axis of rows, by all reductions."""
    for reduction in REDUCTIONS:
        row = loss_arguments(rng, dtype, (1, 6), np.asarray(4))
        yield {**row, "self": row["self"][0], "reduction": reduction}
