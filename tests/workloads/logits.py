"""Cases of cross entropy from logits and of its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.logits import reference


def cases(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...] = (9, 7)
) -> Iterator[dict[str, Any]]:
    """Arguments of the loss of (N, C, ...)."""
    rows, classes = shape[:1] + shape[2:], shape[1]
    for number, (reduction, smoothing, scale) in enumerate(
        product(REDUCTIONS, (0.0, 0.25), (0.0, 0.125))
    ):
        ignored = (-100, 2)[number % 2]
        target = rng.integers(0, classes, rows)
        target[rng.random(rows) < 0.2] = ignored
        weight = (0.5 + rng.random(classes)).astype(np.float32)
        yield {
            "input": (3 * rng.normal(size=shape)).astype(dtype.numpy),
            "target": target.astype(np.int64 if number % 3 else np.int32),
            "weight": None if number % 4 == 0 else weight,
            "reduction": reduction,
            "ignore_index": ignored,
            "label_smoothing": smoothing,
            "zloss_scale": scale,
        }


def grad_of(rng: np.random.Generator, case: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the gradient of a loss with these."""
    _, top, rest = reference(**case)
    many = case["target"].shape if case["reduction"] == "none" else ()
    return {
        "grad_loss": np.asarray(rng.normal(size=many)).astype(case["input"].dtype),
        "top": top.astype(np.float32),
        "rest": rest.astype(np.float32),
        **case,
    }
