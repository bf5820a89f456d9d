"""Cases and mistakes of aclnnLogSoftmaxBackward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators import log_softmax
from workloads.mistakes import POINTERS, Mistake, nulls
from workloads.softmax import axes
from workloads.softmax_backward import CASTABLE, DTYPES, gradient_cases, shapes, sound

__all__ = ["sound"]


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    yield from gradient_cases(rng, dtype, log_softmax.reference)


MISTAKES: list[Mistake] = [
    *POINTERS,
    *nulls("1", "output", "gradOutput", "out"),
    *DTYPES,
    *shapes(4),
    *axes("7"),
    CASTABLE,
]
