"""Workloads of aclnnNLLLoss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, INT32, INT64, DType
from openaclnn.operators.workloads.likelihood import (
    LOG_PROBABILITIES,
    LOSS_KERNELS,
    forward_formula,
    forward_peers,
    loss_arguments,
    loss_cases,
)
from openaclnn.operators.workloads.mistakes import INVALID, POINTERS, Mistake, nulls, t
from openaclnn.operators.workloads.module import Module

PATTERN = "rows"
MODULE = Module("NLLLoss", ("rows",))
KERNELS = LOSS_KERNELS
DOMAINS = LOG_PROBABILITIES
VARIANTS: dict[str, dict[str, Any]] = {
    "mean": {"reduction": "mean"},
    "none": {"reduction": "none"},
}


def make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """A random class for each row."""
    target = rng.integers(0, shape[1], shape[:1])
    return {**loss_arguments(rng, dtype, shape, target), **VARIANTS[variant]}


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    yield from loss_cases(rng, dtype, ((9, 5),))
    for reduction in ("none", "mean", "sum"):
        made = loss_arguments(rng, dtype, (1, 6), np.asarray(4))
        yield {**made, "self": made["self"][0], "reduction": reduction}


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """aten's own operator."""
    return forward_peers(torch, torch.ops.aten.nll_loss_forward, given, out)


torch_formula = forward_formula


def sound() -> dict[str, Any]:
    return {
        "self": t((4, 3)), "target": t((4,), INT64), "weight": t((3,)), "reduction": 1,
        "ignoreIndex": -100, "out": t((1,)), "totalWeightOut": t((1,)),
    }  # fmt: skip


NONE = {"self": t((4, 0)), "weight": t((0,))}
MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "target", "weight", "out", "totalWeightOut"),
    Mistake("2", INVALID, "weight", {"weight": t((3,), BFLOAT16)}),
    Mistake("3", INVALID, "out", {"out": t((1,), INT32)}),
    Mistake("3", INVALID, "totalWeightOut", {"totalWeightOut": t((1,), INT64)}),
    Mistake("4", INVALID, "self", {"self": t((4, 3), DOUBLE), "weight": t((3,), DOUBLE)}),
    Mistake("5", INVALID, "target", {"target": t((4,), FLOAT)}),
    Mistake("6", INVALID, "reduction", {"reduction": 3}),
    Mistake("7", INVALID, "self", {"self": t((2, 2, 3))}),
    Mistake("7", INVALID, "self", {"self": t(())}),
    Mistake("8", INVALID, "target", {"target": t((2, 2), INT64)}),
    Mistake("10", INVALID, "target", {"target": t((5,), INT64)}),
    Mistake("10", INVALID, "target", {"target": t((), INT64)}),
    Mistake("11", INVALID, "weight", {"weight": t((4,))}),
    Mistake("12", INVALID, "out", {"out": t((4,))}),
    Mistake("12", INVALID, "out", {"out": t((1, 1))}),
    Mistake("12", INVALID, "out", {"out": t((1,)), "reduction": 0}),
    Mistake("13", INVALID, "totalWeightOut", {"totalWeightOut": t((2,))}),
    Mistake("14", INVALID, "self", NONE),
]
