"""Cases and mistakes of the operators of cross entropy over a vocabulary that ranks share."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, INT64, DType
from workloads.mistakes import INVALID, NULL, POINTERS, TILING, Mistake, nulls, t

SHAPES: tuple[tuple[int, ...], ...] = ((9, 24), (3, 4, 32), (5, 301), (3, 1), (70, 3))


def sums_cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for shape in SHAPES:
        for start in (0, shape[-1], 1 << 30):
            logits = (3 * rng.normal(size=shape)).astype(dtype.numpy)
            highest = logits.astype(np.float32).max(-1) + rng.random(shape[:-1])
            yield {
                "vocab_parallel_logits": logits,
                "target": (start + rng.integers(-1, shape[-1] + 2, shape[:-1])).astype(np.int32),
                "global_logits_max": highest.astype(dtype.numpy),
                "vocab_start_index": start,
                "vocab_end_index": start + shape[-1],
            }


def sums_sound() -> dict[str, Any]:
    rows, whole = t((4,)), t((4, 16))
    indices = t((4,), INT32)
    return {
        "vocabParallelLogits": whole, "target": indices, "globalLogitsMax": rows, "vocabStartIndex": 16, "vocabEndIndex": 32,
        "predictedLogitsOut": rows, "sumExpLogitsOut": rows, "expLogitsOut": whole, "targetOffsetOut": indices, "targetMaskOut": indices,
    }  # fmt: skip


LOGITS = "vocabParallelLogits"
READ = (LOGITS, "target", "globalLogitsMax")
FLOATS_OUT = ("predictedLogitsOut", "sumExpLogitsOut", "expLogitsOut")
INDICES_OUT = ("targetOffsetOut", "targetMaskOut")


cross_entropy_sum_exp_and_index_logit = SimpleNamespace(
    cases=sums_cases,
    sound=sums_sound,
    LIMITS={
        "5": {LOGITS: t((32769, 16))}, "6": {LOGITS: t((4, 8)), "vocabEndIndex": 24}, "7": {LOGITS: t((4, 20)), "vocabEndIndex": 36},
    },
    MISTAKES=[
        *POINTERS,
        *nulls("1", *READ, *FLOATS_OUT, *INDICES_OUT),
        Mistake("2", INVALID, LOGITS, {LOGITS: t((4, 16), FLOAT16)}),
        Mistake("3", INVALID, "vocabEndIndex", {"vocabEndIndex": 16}),
        Mistake("3", INVALID, "vocabEndIndex", {"vocabStartIndex": -16, "vocabEndIndex": 0}),
        Mistake("4", INVALID, LOGITS, {LOGITS: t((16,))}),
        Mistake("4", INVALID, LOGITS, {LOGITS: t((1, 1, 4, 16))}),
        Mistake("4", INVALID, LOGITS, {LOGITS: t((0, 16))}),
        Mistake("8", INVALID, "vocabEndIndex", {"vocabEndIndex": 48}),
        Mistake("9", INVALID, "target", {"target": t((4,), INT64)}),
        Mistake("10", INVALID, "target", {"target": t((4, 1), INT32)}),
        Mistake("11", INVALID, "globalLogitsMax", {"globalLogitsMax": t((4,), BFLOAT16)}),
        Mistake("12", INVALID, "globalLogitsMax", {"globalLogitsMax": t((3,))}),
        *(Mistake("13", INVALID, name, {name: t(sums_sound()[name].shape, BFLOAT16)}) for name in FLOATS_OUT),
        *(Mistake("13", INVALID, name, {name: t((4,), INT64)}) for name in INDICES_OUT),
        *(Mistake("14", INVALID, name, {name: t((4, 1), FLOAT if name in FLOATS_OUT else INT32)}) for name in (*FLOATS_OUT, *INDICES_OUT)),
    ],
)  # fmt: skip


def loss_cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for shape, kind in (*zip(((9, 24), (5, 301), (70, 3)), FLOATS, strict=True), ((3, 1), FLOAT)):  # fmt: skip
        rows = shape[:1]
        yield {
            "logits_max": (3 + rng.normal(size=rows)).astype(np.float32),
            "sum_exp_logits": (0.1 + 9 * rng.random(rows)).astype(np.float32),
            "predicted_logits": rng.normal(size=rows).astype(np.float32),
            "vocab_parallel_logits": (3 * rng.normal(size=shape)).astype(kind.numpy),
        }


def loss_sound() -> dict[str, Any]:
    rows = t((4,))
    return {
        "logitsMax": rows, "sumExpLogits": rows, "predictedLogits": rows, "labelSmoothing": 0.0, "inputOptional": t((4, 8)), "weightOptional": t((16, 8)),
        "vocabParallelLogitsOptional": t((4, 16)), "lossOut": rows, "softMaxOutOptional": t((4, 16)),
    }  # fmt: skip


COLUMNS, SHARES = "vocabParallelLogitsOptional", "softMaxOutOptional"
ROWS = ("logitsMax", "sumExpLogits", "predictedLogits", "lossOut")

fused_cross_entropy_loss_with_max_sum = SimpleNamespace(
    cases=loss_cases,
    sound=loss_sound,
    LIMITS={"11": {**{name: t((0,)) for name in ROWS}, COLUMNS: t((0, 16)), SHARES: t((0, 16))}},
    MISTAKES=[
        *POINTERS,
        *nulls("1", *ROWS),
        Mistake("1", NULL, SHARES, {SHARES: None}),
        *(Mistake("2", INVALID, name, {name: t((4,), FLOAT16)}) for name in ROWS),
        Mistake("3", INVALID, COLUMNS, {COLUMNS: t((4, 16), DOUBLE)}),
        Mistake("4", INVALID, SHARES, {SHARES: t((4, 16), BFLOAT16)}),
        Mistake("5", INVALID, "logitsMax", {name: t((2, 2)) for name in ROWS}),
        *(Mistake("6", INVALID, name, {name: t((3,))}) for name in ROWS[1:]),
        Mistake("7", INVALID, COLUMNS, {COLUMNS: t((4, 4, 4)), SHARES: t((4, 4, 4))}),
        Mistake("8", INVALID, SHARES, {SHARES: t((4, 15))}),
        Mistake("9", INVALID, "labelSmoothing", {"labelSmoothing": 0.1}),
        Mistake("10", TILING, COLUMNS, {COLUMNS: t((3, 16)), SHARES: t((3, 16))}),
    ],
)
