"""Cases and mistakes of aclnnCrossEntropyLoss."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOAT16, INT64, UINT8, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.core.tensor import Format
from workloads.mistakes import INVALID, NULL, TILING, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    rows, classes = 9, 7
    options = product(REDUCTIONS, (0.0, 0.25), (0.0, 0.125), (False, True))
    for number, (reduction, smoothing, scale, returned) in enumerate(options):
        ignored = (-100, 2)[number % 2]
        target = rng.integers(0, classes, rows)
        target[rng.random(rows) < 0.2] = ignored
        weight = (0.5 + rng.random(classes)).astype(np.float32)
        yield {
            "input": (3 * rng.normal(size=(rows, classes))).astype(dtype.numpy),
            "target": target.astype(np.int64 if number % 3 else np.int32),
            "weight": None if number % 4 == 0 else weight,
            "reduction": reduction,
            "ignore_index": ignored,
            "label_smoothing": smoothing,
            "lse_square_scale_for_zloss": scale,
            "return_zloss": returned,
        }


def sound() -> dict[str, Any]:
    return {
        "input": t((4, 3)), "target": t((4,), INT64), "weightOptional": t((3,)), "reductionOptional": "mean",
        "ignoreIndex": -100, "labelSmoothing": 0.0, "lseSquareScaleForZloss": 0.0, "returnZloss": False,
        "lossOut": t((1,)), "logProbOut": t((4, 3)), "zlossOut": t((1,)), "lseForZlossOut": t((4,)),
    }  # fmt: skip


MISTAKES = [
    *nulls("1", "input", "target", "lossOut", "logProbOut", "zlossOut", "lseForZlossOut"),
    Mistake("2", NULL, "executor", {}, (True, False)),
    Mistake("2", NULL, "workspaceSize", {}, (False, True)),
    Mistake("3", INVALID, "input", {"input": t((4, 3), DOUBLE)}),
    Mistake("3", INVALID, "lossOut", {"lossOut": t((1,), FLOAT16)}),
    Mistake("3", INVALID, "logProbOut", {"logProbOut": t((4, 3), FLOAT16)}),
    Mistake("3", INVALID, "zlossOut", {"zlossOut": t((1,), FLOAT16)}),
    Mistake("3", INVALID, "lseForZlossOut", {"lseForZlossOut": t((4,), FLOAT16)}),
    Mistake("3", INVALID, "target", {"target": t((4,), UINT8)}),
    Mistake("3", INVALID, "weightOptional", {"weightOptional": t((3,), FLOAT16)}),
    Mistake("3", INVALID, "input", {"input": t((4, 3), FLOAT, Format.ACL_FORMAT_NCHW)}),
    Mistake("6", TILING, "reductionOptional", {"reductionOptional": "MEAN"}),
    Mistake("6", TILING, "labelSmoothing", {"labelSmoothing": 1.5}),
    Mistake("6", TILING, "labelSmoothing", {"labelSmoothing": float("nan")}),
    Mistake("6", TILING, "input", {"input": t((12,))}),
    Mistake("6", TILING, "input", {"input": t((4, 0))}),
    Mistake("6", TILING, "target", {"target": t((5,), INT64)}),
    Mistake("6", TILING, "weightOptional", {"weightOptional": t((4,))}),
    Mistake("6", TILING, "lossOut", {"lossOut": t((4,))}),
    Mistake("6", TILING, "logProbOut", {"logProbOut": t((3, 4))}),
    Mistake("6", TILING, "zlossOut", {"zlossOut": t((2,))}),
    Mistake("6", TILING, "lseForZlossOut", {"lseForZlossOut": t((1,))}),
]
