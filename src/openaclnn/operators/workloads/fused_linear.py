"""Workloads of the operators of cross entropy of a linear layer over a vocabulary that ranks share."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, FLOAT, DType
from openaclnn.operators.workloads.vocabulary_parallel import sums as of_logits
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Variants,
    by_expression,
    normal,
)

FEATURES = 64

# A rank's logits.

SUMS: Variants = {"a rank inside": {}, "the first rank": {}}


def _factors(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Arguments:
    """Logits of a few units."""
    kind = BFLOAT16 if dtype is FLOAT else dtype
    rows, columns = shape[0], shape[-1]
    weight = normal(rng, FLOAT, (columns, FEATURES)) / 8
    return {"input": normal(rng, kind, (rows, FEATURES)), "weight": weight.astype(kind.numpy)}


def _settle_sums(values: Mapping[str, Any], chosen: frozenset[str]) -> Arguments:
    """The weights are such that logits are of a few units, unless they were asked for by name: rounding of large ones hides all else."""
    x, weight = (values[name].astype(np.float32) for name in ("input", "weight"))
    largest = np.abs(x).max(initial=0) * np.abs(weight).sum(1).max(initial=0)
    if "weight" in chosen or not 8 < largest < np.inf:
        return {}
    return {"weight": (weight * (8 / largest)).astype(values["weight"].dtype)}


def _drawn_sums(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:  # fmt: skip
    """Targets of twice as many classes as there are columns."""
    columns = shape[-1]
    start = 0 if variant == "the first rank" else columns // 2
    return {
        **_factors(rng, dtype, shape),
        "target": rng.integers(0, 2 * columns, shape[:1], np.int32),
        "vocab_start_index": start,
        "vocab_end_index": start + columns,
    }


def _sums(torch: Any, values: Mapping[str, Any]) -> Any:
    wide = torch.promote_types(values["input"].dtype, torch.float32)
    x = values["input"].to(wide) @ values["weight"].to(wide).T
    top, start = x.amax(1), values["vocab_start_index"]
    end = min(values["vocab_end_index"], start + x.shape[1])
    predicted, sums, _, placed, away = of_logits(torch, {**values, "vocab_end_index": end}, x, top)
    whole = torch.nn.functional.pad(away, (0, -len(away) % 8), value=1).view(-1, 8)
    bits = (whole * (1 << torch.arange(8, device=whole.device))).sum(1).to(torch.uint8)
    return top, sums, predicted, bits, placed, x.to(values["input"].dtype)


fused_linear_online_max_sum = SimpleNamespace(
    PATTERN="rows", VARIANTS=SUMS, make=_drawn_sums, ANY_SIZE=False, settle=_settle_sums, **by_expression(_sums),
    KERNELS=(
        KernelForm(
            "fused_linear_online_max_sum", {"input": "input", "weight": "weight", "target": "target"},
            {"vocab_start_index": "vocabStartIndex", "vocab_end_index": "vocabEndIndex"},
        ),
    ),
)  # fmt: skip

# Its gradients.

GRADIENTS: Variants = {"from logits": {}, "from softmax": {}}


def _drawn_gradients(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:  # fmt: skip
    """All columns are this rank's, so that sums are those of its logits; half of the targets are others'."""
    values = _factors(rng, dtype, shape)
    rows, columns = shape[0], shape[-1]
    logits = values["input"].astype(np.float32) @ values["weight"].astype(np.float32).T
    top = logits.max(1, initial=-np.inf)
    powers = np.exp(logits - top[:, None])
    sums = {"logits_max": top, "sum_exp_logits": powers.sum(1)}
    shares = {"softmax": powers / powers.sum(1)[:, None]}
    return {
        "grad": normal(rng, FLOAT, (rows,)),
        **values,
        "target_mask": rng.integers(0, 256, -(-rows // 8), np.uint8),
        "masked_target": rng.integers(0, columns, rows, np.int32),
        **(sums if variant == "from logits" else shares),
    }


def _settle_gradients(values: Mapping[str, Any], chosen: frozenset[str]) -> Arguments:
    """What follows from the logits is theirs, unless it was asked for by name."""
    settled = _settle_sums(values, chosen)
    if values.get("softmax") is not None:
        return settled
    weight = settled.get("weight", values["weight"])
    logits = values["input"].astype(np.float32) @ weight.astype(np.float32).T
    top = logits.max(1, initial=-np.inf)
    sums = {"logits_max": top, "sum_exp_logits": np.exp(logits - top[:, None]).sum(1)}
    return settled | {name: value for name, value in sums.items() if name not in chosen}


def _gradients(torch: Any, values: Mapping[str, Any]) -> Any:
    x, weight = values["input"], values["weight"]
    share = values.get("softmax")
    if share is None:
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = x.to(wide) @ weight.to(wide).T
        share = (logits - values["logits_max"].unsqueeze(1)).exp() / values["sum_exp_logits"].unsqueeze(1)  # fmt: skip
    rows = torch.arange(len(x), device=x.device)
    away = values["target_mask"]
    if away.dtype != torch.bool:
        away = (away[rows // 8] >> (rows % 8)) & 1 == 1
    hits = torch.where(away, -1, values["masked_target"].long()).unsqueeze(1)
    is_target = torch.arange(share.shape[1], device=x.device) == hits
    by_logits = ((share - is_target.float()) * values["grad"].unsqueeze(1)).to(x.dtype)
    return by_logits @ weight, by_logits.T @ x


fused_linear_cross_entropy_loss_grad = SimpleNamespace(
    PATTERN="rows", VARIANTS=GRADIENTS, make=_drawn_gradients, ANY_SIZE=False, settle=_settle_gradients, DOMAINS={"softmax": (0.0, 1.0)},
    **by_expression(_gradients),
    KERNELS=(
        KernelForm(
            "fused_linear_cross_entropy_loss_grad",
            {
                "grad": "grad", "input": "input", "weight": "weight", "target_mask": "targetMask", "masked_target": "maskedTarget",
                "logits_max": "logitsMaxOptional", "sum_expLogits": "sumExpLogitsOptional", "softmax": "softmaxOptional",
            },
            {"label_smoothing": "labelSmoothing"},
        ),
    ),
)  # fmt: skip
