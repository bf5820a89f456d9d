"""Cases and mistakes of aclnnMultilabelMarginLoss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT16, INT64, UINT16, DType
from workloads.mistakes import INVALID, POINTERS, Mistake, nulls, t

SHAPES: tuple[tuple[int, ...], ...] = ((9, 7), (5, 70), (12,), (3, 1), ())


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    """Labels at random, so that all lengths occur, some twice, some after the end; none, and every class."""
    reductions = itertools.cycle(("none", "mean", "sum"))
    for shape, kind in itertools.product(SHAPES, (np.int64, np.int32)):
        classes = (shape or (1,))[-1]
        target = np.asarray(rng.integers(-1 if classes > 1 else 0, classes, shape), kind)
        if len(shape) == 2 and shape[0] > 4:
            target[0], target[1] = -1, np.arange(classes)
        yield {
            "self": np.asarray(rng.normal(size=shape)).astype(dtype.numpy), "target": target, "reduction": next(reductions),
        }  # fmt: skip


def sound() -> dict[str, Any]:
    return {
        "self": t((4, 3)), "target": t((4, 3), INT64), "reduction": 0, "out": t((4,)), "isTarget": t((4, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "target", "out", "isTarget"),
    Mistake("2", INVALID, "self", {"self": t((4, 3), UINT16)}),
    Mistake("3", INVALID, "target", {"target": t((4, 3))}),
    Mistake("4", INVALID, "out", {"out": t((4,), FLOAT16)}),
    Mistake("5", INVALID, "isTarget", {"isTarget": t((4, 3), FLOAT16)}),
    Mistake("6", INVALID, "self", {"self": t((4, 1, 3))}),
    Mistake("6", INVALID, "self", {"self": t((4, 0))}),
    Mistake("7", INVALID, "target", {"target": t((4, 2), INT64)}),
    Mistake("8", INVALID, "reduction", {"reduction": "median"}),
    Mistake("9", INVALID, "out", {"out": t((3,))}),
    Mistake("9", INVALID, "out", {"reduction": 1}),
    Mistake("10", INVALID, "isTarget", {"isTarget": t((3, 4))}),
]
