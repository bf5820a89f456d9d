"""Cases and mistakes of aclnnCrossEntropyLossGrad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, INT64, UINT8, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.core.tensor import Format
from workloads.mistakes import INVALID, NULL, TILING, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    rows, classes = 9, 13
    logits = 2 * rng.normal(size=(rows, classes))
    lse = np.log(np.exp(logits).sum(axis=1))
    for number, reduction in enumerate(REDUCTIONS * 4):
        ignored = (-100, 4, -1, 0)[number // 3]
        target = rng.integers(0, classes, rows)
        target[rng.random(rows) < 0.3] = ignored
        shape = (rows,) if reduction == "none" else ((), (1,))[number % 2]
        case: dict[str, Any] = {
            "grad_loss": np.asarray(1 + rng.random(shape)).astype(dtype.numpy),
            "log_prob": (logits - lse[:, None]).astype(dtype.numpy),
            "target": target.astype((np.int64, np.int32)[number % 2]),
            "reduction": reduction,
            "ignore_index": ignored,
        }
        if number >= 3:
            case["weight"] = (0.5 + rng.random(classes)).astype(np.float32)
        if number >= 6:
            case["label_smoothing"] = 0.1
        if number >= 9:
            case["lse_square_scale_for_zloss"] = 0.25
            case["lse_for_zloss"] = lse.astype(dtype.numpy)
            case["grad_zloss"] = np.asarray(rng.normal(size=shape)).astype(dtype.numpy)
        yield case


def sound() -> dict[str, Any]:
    return {
        "gradLoss": t(()), "logProb": t((4, 5)), "target": t((4,), INT64), "weightOptional": t((5,)),
        "gradZlossOptional": t(()), "lseForZlossOptional": t((4,)), "reductionOptional": "mean",
        "ignoreIndex": -100, "labelSmoothing": 0.0, "lseSquareScaleForZloss": 0.5, "out": t((4, 5)),
    }  # fmt: skip


MISTAKES = [
    *nulls("1", "gradLoss", "logProb", "target", "out"),
    Mistake("2", NULL, "executor", {}, (True, False)),
    Mistake("2", NULL, "workspaceSize", {}, (False, True)),
    Mistake("2", NULL, "lseForZlossOptional", {"lseForZlossOptional": None}),
    Mistake("3", INVALID, "gradLoss", {"gradLoss": t((), DOUBLE)}),
    Mistake("3", INVALID, "logProb", {"logProb": t((4, 5), FLOAT16)}),
    Mistake("3", INVALID, "gradZlossOptional", {"gradZlossOptional": t((), FLOAT16)}),
    Mistake("3", INVALID, "lseForZlossOptional", {"lseForZlossOptional": t((4,), BFLOAT16)}),
    Mistake("3", INVALID, "out", {"out": t((4, 5), FLOAT16)}),
    Mistake("3", INVALID, "target", {"target": t((4,), UINT8)}),
    Mistake("3", INVALID, "weightOptional", {"weightOptional": t((5,), FLOAT16)}),
    Mistake("3", INVALID, "logProb", {"logProb": t((4, 5), FLOAT, Format.ACL_FORMAT_NCHW)}),
    Mistake("3", INVALID, "out", {"out": t((4, 5), FLOAT, Format.ACL_FORMAT_NCHW)}),
    Mistake("6", TILING, "reductionOptional", {"reductionOptional": "Mean"}),
    Mistake("6", TILING, "labelSmoothing", {"labelSmoothing": 1.5}),
    Mistake("6", TILING, "labelSmoothing", {"labelSmoothing": float("nan")}),
    Mistake("6", TILING, "logProb", {"logProb": t((4, 5, 1))}),
    Mistake("6", TILING, "gradLoss", {"gradLoss": t((4,))}),
    Mistake("6", TILING, "target", {"target": t((5,), INT64)}),
    Mistake("6", TILING, "weightOptional", {"weightOptional": t((4,))}),
    Mistake("6", TILING, "gradZlossOptional", {"gradZlossOptional": t((4,))}),
    Mistake("6", TILING, "lseForZlossOptional", {"lseForZlossOptional": t((5,))}),
    Mistake("6", TILING, "out", {"out": t((4, 4))}),
]
