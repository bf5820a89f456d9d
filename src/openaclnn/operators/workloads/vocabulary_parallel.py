"""Workloads of the operators of cross entropy over a vocabulary that ranks share."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Variants,
    by_expression,
    normal,
)

FINITE = (-1e4, 1e4)  # logits whose differences FLOAT holds

# The sums of a rank.

SUMS: Variants = {"a rank inside": {}, "the first rank": {}}


def _drawn_sums(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:  # fmt: skip
    """Targets of twice as many classes as there are columns, and a largest logit that may be another rank's."""
    logits = normal(rng, dtype, shape)
    columns = shape[-1]
    start = 0 if variant == "the first rank" else columns // 2
    highest = logits.astype(np.float32).max(-1, initial=-4.0) + rng.random(shape[:-1], np.float32)
    return {
        "vocab_parallel_logits": logits,
        "target": np.asarray(rng.integers(0, 2 * columns, shape[:-1]), np.int32),
        "global_logits_max": np.asarray(highest).astype(dtype.numpy),
        "vocab_start_index": start,
        "vocab_end_index": start + columns,
    }


def _settle_sums(values: Mapping[str, Any], chosen: frozenset[str]) -> Arguments:
    """The largest logits are those of the drawn ones, unless they were asked for by name."""
    logits = values["vocab_parallel_logits"]
    if "global_logits_max" in chosen:
        return {}
    return {"global_logits_max": logits.max(-1)}


def sums(torch: Any, values: Mapping[str, Any], x: Any, top: Any) -> Any:
    """Of rows of logits and their largest."""
    target, start = values["target"], values["vocab_start_index"]
    mask = (target < start) | (target >= values["vocab_end_index"])
    offset = torch.where(mask, 0, target - start)
    below = x - top.unsqueeze(-1)
    predicted = below.gather(-1, offset.long().unsqueeze(-1)).squeeze(-1)
    powers = torch.exp(below)
    return torch.where(mask, 0.0, predicted), powers.sum(-1), powers, offset, mask.to(target.dtype)


def _sums(torch: Any, values: Mapping[str, Any]) -> Any:
    """In FLOAT."""
    wide = torch.promote_types(values["vocab_parallel_logits"].dtype, torch.float32)
    x, top = (values[name].to(wide) for name in ("vocab_parallel_logits", "global_logits_max"))
    return sums(torch, values, x, top)


cross_entropy_sum_exp_and_index_logit = SimpleNamespace(
    PATTERN="rows", VARIANTS=SUMS, make=_drawn_sums, settle=_settle_sums, **by_expression(_sums),
    DOMAINS={"vocab_parallel_logits": FINITE, "global_logits_max": (10.0, 1e4)},
    KERNELS=(
        KernelForm(
            "cross_entropy_sum_exp_and_index_logit",
            {"vocab_parallel_logits": "vocabParallelLogits", "target": "target", "global_logits_max": "globalLogitsMax"},
            {"vocab_start_index": "vocabStartIndex", "vocab_end_index": "vocabEndIndex"},
        ),
    ),
)  # fmt: skip

# The loss.

LOSSES: Variants = {"likely targets": {}, "unlikely targets": {}, "targets of all sorts": {}}
LIKELY = {"likely targets": 0.01, "unlikely targets": 20.0}


def _drawn_loss(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:  # fmt: skip
    rows = shape[:1]
    return {
        "logits_max": (3 + normal(rng, dtype, rows)).astype(dtype.numpy),
        "sum_exp_logits": np.asarray(1 + 9 * rng.random(rows, np.float32)).astype(dtype.numpy),
        "predicted_logits": -np.abs(normal(rng, dtype, rows)) * LIKELY.get(variant, 1.0),
        "vocab_parallel_logits": normal(rng, dtype, shape),
    }


def _settle_loss(values: Mapping[str, Any], chosen: frozenset[str]) -> Arguments:
    """The largest of a row and the sum of its powers are those of the drawn logits, unless they were asked for by name."""
    logits = values["vocab_parallel_logits"].astype(np.float32)
    top = logits.max(1, initial=-np.inf)
    settled = {"logits_max": top, "sum_exp_logits": np.exp(logits - top[:, None]).sum(1)}
    return {name: value for name, value in settled.items() if name not in chosen}


def _loss(torch: Any, values: Mapping[str, Any]) -> Any:
    wide = torch.promote_types(values["logits_max"].dtype, torch.float32)
    top, whole, predicted = (values[name].to(wide) for name in ("logits_max", "sum_exp_logits", "predicted_logits"))  # fmt: skip
    loss, x = whole.log() - predicted, values.get("vocab_parallel_logits")
    if x is None:
        return (loss,)
    return loss, torch.exp(x.to(wide) - top.unsqueeze(1)) / whole.unsqueeze(1)


def _unread(numbers: Mapping[str, Any]) -> tuple[str, ...]:
    """Tensors that lists carry along and that nothing reads."""
    return ("inputOptional", "weightOptional")


fused_cross_entropy_loss_with_max_sum = SimpleNamespace(
    PATTERN="rows", VARIANTS=LOSSES, make=_drawn_loss, unread=_unread, settle=_settle_loss, **by_expression(_loss),
    DOMAINS={"logits_max": (10.0, 1e4), "sum_exp_logits": (1e-6, 1e30), "vocab_parallel_logits": FINITE},
    KERNELS=(
        KernelForm(
            "fused_cross_entropy_loss_with_max_sum",
            {
                "logits_max": "logitsMax", "sum_exp_logits": "sumExpLogits", "predicted_logits": "predictedLogits", "input": "inputOptional",
                "weight": "weightOptional", "vocab_parallel_logits": "vocabParallelLogitsOptional",
            },
            {"label_smoothing": "labelSmoothing"},
        ),
    ),
)  # fmt: skip
