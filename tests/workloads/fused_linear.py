"""Cases and mistakes of the operators of cross entropy of a linear layer over a vocabulary that ranks share."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import (  # fmt: skip
    BFLOAT16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    UINT8,
    DType,
)
from openaclnn.core.tensor import Format
from workloads.mistakes import INVALID, NULL, POINTERS, Mistake, nulls, t

SHAPES = ((9, 24, 16), (16, 301, 7), (3, 1, 5), (70, 3, 40))  # rows, columns, features


def factors(rng: np.random.Generator, kind: DType, shape: tuple[int, int, int]) -> dict[str, Any]:
    rows, columns, features = shape
    return {
        "input": rng.normal(size=(rows, features)).astype(kind.numpy),
        "weight": rng.normal(size=(columns, features)).astype(kind.numpy),
    }


def sums_cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    kind = BFLOAT16 if dtype is FLOAT else dtype
    for number, shape in enumerate(SHAPES):
        rows, columns, _ = shape
        for start, fewer in ((0, 0), (columns, 1), (1 << 30, -3)):
            target = start + rng.integers(-1, columns + 2, rows)
            yield {
                **factors(rng, kind, shape),
                "target": target.astype((np.int32, np.int64)[number % 2]),
                "vocab_start_index": start,
                "vocab_end_index": start + columns - fewer,
            }


READ = ("input", "weight", "target")
ROWS = ("logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut")
PLACES = ("targetMaskOut", "maskedTargetOut")
LOGITS = "vocabParallelLogitsOutOptional"


def sums_sound() -> dict[str, Any]:
    rows = t((9,))
    return {
        "input": t((9, 8), FLOAT16), "weight": t((16, 8), FLOAT16), "target": t((9,), INT32), "vocabStartIndex": 16, "vocabEndIndex": 32,
        **dict.fromkeys(ROWS, rows), "targetMaskOut": t((2,), UINT8), "maskedTargetOut": t((9,), INT32), LOGITS: t((9, 16), FLOAT16),
    }  # fmt: skip


fused_linear_online_max_sum = SimpleNamespace(
    cases=sums_cases,
    sound=sums_sound,
    LIMITS={"11": {"input": t((9, 65535), FLOAT16), "weight": t((16, 65535), FLOAT16)}},
    MISTAKES=[
        *POINTERS,
        *nulls("1", *READ, *ROWS, *PLACES),
        Mistake("2", INVALID, "input", {"input": t((9, 8))}),
        Mistake("2", INVALID, "weight", {"weight": t((16, 8), DOUBLE)}),
        Mistake("3", INVALID, "target", {"target": t((9,), INT8)}),
        Mistake("4", INVALID, "weight", {"weight": t((16, 8), BFLOAT16)}),
        *(Mistake("5", INVALID, name, {name: t((9,), FLOAT16)}) for name in ROWS),
        Mistake("6", INVALID, "targetMaskOut", {"targetMaskOut": t((2,), BOOL)}),
        Mistake("7", INVALID, "maskedTargetOut", {"maskedTargetOut": t((9,), INT64)}),
        Mistake("8", INVALID, LOGITS, {LOGITS: t((9, 16))}),
        Mistake("9", INVALID, "input", {"input": t((9, 1, 8), FLOAT16)}),
        Mistake("9", INVALID, "weight", {"weight": t((16,), FLOAT16)}),
        Mistake("9", INVALID, "target", {"target": t((9, 1), INT32)}),
        *(Mistake("9", INVALID, name, {name: t((9, 1))}) for name in ROWS),
        Mistake("9", INVALID, "targetMaskOut", {"targetMaskOut": t((1, 2), UINT8)}),
        Mistake("9", INVALID, "maskedTargetOut", {"maskedTargetOut": t((3, 3), INT32)}),
        Mistake("10", INVALID, "weight", {"weight": t((0, 8), FLOAT16)}),
        Mistake("12", INVALID, "weight", {"weight": t((16, 9), FLOAT16)}),
        Mistake("13", INVALID, "target", {"target": t((8,), INT32)}),
        *(Mistake("13", INVALID, name, {name: t((10,))}) for name in ROWS),
        Mistake("13", INVALID, "targetMaskOut", {"targetMaskOut": t((9,), UINT8)}),
        Mistake("13", INVALID, "maskedTargetOut", {"maskedTargetOut": t((1,), INT32)}),
        Mistake("13", INVALID, LOGITS, {LOGITS: t((16, 9), FLOAT16)}),
        Mistake("14", INVALID, "vocabStartIndex", {"vocabStartIndex": -1}),
        Mistake("15", INVALID, "vocabEndIndex", {"vocabEndIndex": 15}),
    ],
)


def gradients_cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for number, (shape, kind) in enumerate(zip(SHAPES * 2, [FLOAT16] * 4 + [BFLOAT16] * 4, strict=True)):  # fmt: skip
        rows, columns, _ = shape
        operands = factors(rng, kind, shape)
        logits = operands["input"].astype(np.float32) @ operands["weight"].astype(np.float32).T
        top = logits.max(1) + rng.random(rows, np.float32)
        powers = np.exp(logits - top[:, None])
        whole = powers.sum(1) * 2
        sums = {"logits_max": top, "sum_exp_logits": whole}
        mask = rng.integers(0, 256, -(-rows // 8) + number % 3, np.uint8)
        yield {
            "grad": rng.normal(size=rows).astype(np.float32),
            **operands,
            "target_mask": rng.random(rows) < 0.5 if number % 4 == 1 else mask,
            "masked_target": rng.integers(0, columns + 1, rows).astype((np.int32, np.int64)[number % 2]),
            **({"softmax": powers / whole[:, None]} if number % 2 else sums),
        }  # fmt: skip


GIVEN = ("grad", "input", "weight", "targetMask", "maskedTarget")
TOP, SUM, SHARE = "logitsMaxOptional", "sumExpLogitsOptional", "softmaxOptional"
WRITTEN = ("inputGradOut", "weightGradOut")


def gradients_sound() -> dict[str, Any]:
    x, weight = t((9, 8), FLOAT16), t((128, 8), FLOAT16)
    return {
        "grad": t((9,)), "input": x, "weight": weight, "targetMask": t((2,), UINT8), "maskedTarget": t((9,), INT32), "labelSmoothing": 0.0,
        TOP: None, SUM: None, SHARE: t((9, 128)), "inputGradOut": x, "weightGradOut": weight,
    }  # fmt: skip


fused_linear_cross_entropy_loss_grad = SimpleNamespace(
    cases=gradients_cases,
    sound=gradients_sound,
    LIMITS={
        "13": {
            SHARE: t((9, 127)),
            "weight": t((127, 8), FLOAT16),
            "weightGradOut": t((127, 8), FLOAT16),
        }
    },
    MISTAKES=[
        *POINTERS,
        Mistake("1", NULL, SHARE, {SHARE: None}),
        *nulls("2", *GIVEN, *WRITTEN),
        Mistake("3", INVALID, "grad", {"grad": t((9,), FLOAT16)}),
        Mistake("4", INVALID, "input", {"input": t((9, 8))}),
        Mistake("4", INVALID, "weight", {"weight": t((16, 8), DOUBLE)}),
        Mistake("5", INVALID, "targetMask", {"targetMask": t((9,), INT8)}),
        Mistake("6", INVALID, "maskedTarget", {"maskedTarget": t((9,))}),
        *(Mistake("7", INVALID, name, {name: t((9,), FLOAT16)}) for name in (TOP, SUM)),
        Mistake("7", INVALID, SHARE, {SHARE: t((9, 128), FLOAT16)}),
        Mistake("8", INVALID, "weight", {"weight": t((128, 8), BFLOAT16)}),
        Mistake("8", INVALID, "inputGradOut", {"inputGradOut": t((9, 8))}),
        Mistake("8", INVALID, "weightGradOut", {"weightGradOut": t((128, 8), BFLOAT16)}),
        Mistake("9", INVALID, "grad", {"grad": t((9,), format=Format.ACL_FORMAT_NCHW)}),
        Mistake("10", INVALID, "labelSmoothing", {"labelSmoothing": 0.1}),
        Mistake("11", INVALID, "grad", {"grad": t((9, 1))}),
        Mistake("11", INVALID, "input", {"input": t((9, 8, 1), FLOAT16)}),
        Mistake("11", INVALID, "weight", {"weight": t((16,), FLOAT16)}),
        Mistake("11", INVALID, "targetMask", {"targetMask": t((2, 1), UINT8)}),
        Mistake("11", INVALID, "maskedTarget", {"maskedTarget": t((9, 1), INT32)}),
        *(Mistake("11", INVALID, name, {name: t(())}) for name in (TOP, SUM)),
        Mistake("11", INVALID, SHARE, {SHARE: t((9,))}),
        *(Mistake("11", INVALID, name, {name: t((9,), FLOAT16)}) for name in WRITTEN),
        Mistake("12", INVALID, "grad", {"grad": t((8,))}),
        Mistake("14", INVALID, "weight", {"weight": t((128, 9), FLOAT16)}),
        Mistake("15", INVALID, "targetMask", {"targetMask": t((1,), UINT8)}),
        Mistake("15", INVALID, "targetMask", {"targetMask": t((10,), BOOL)}),
        Mistake("16", INVALID, "maskedTarget", {"maskedTarget": t((8,), INT32)}),
        *(Mistake("17", INVALID, name, {name: t((8,))}) for name in (TOP, SUM)),
        Mistake("17", INVALID, SHARE, {SHARE: t((9, 129))}),
        Mistake("18", INVALID, "inputGradOut", {"inputGradOut": t((9, 9), FLOAT16)}),
        Mistake("18", INVALID, "weightGradOut", {"weightGradOut": t((15, 8), FLOAT16)}),
    ],
)
