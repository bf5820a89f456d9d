"""Workloads of aclnnNLLLossBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, INT32, INT64, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.likelihood import (
    GRADIENT_KERNELS,
    gradient_formula,
    gradient_peers,
    loss_arguments,
    loss_cases,
    total_of_weights,
)
from openaclnn.operators.workloads.mistakes import INVALID, POINTERS, Mistake, nulls, t

PATTERN = "rows"
KERNELS = GRADIENT_KERNELS
settle = total_of_weights
ANY_SIZE = False
VARIANTS: dict[str, dict[str, Any]] = {
    "mean": {"reduction": "mean"},
    "none": {"reduction": "none"},
}


def _with_gradient(
    rng: np.random.Generator, dtype: DType, given: dict[str, Any], total: float
) -> dict[str, Any]:
    rows = given["target"].shape if given["reduction"] == "none" else (1,)
    gradient = np.asarray(rng.standard_normal(rows, np.float32)).astype(dtype.numpy)
    return {
        "grad_output": gradient,
        **given,
        "total_weight": np.asarray([total]).astype(dtype.numpy),
    }


def make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> dict[str, Any]:
    """A random class for each row."""
    target = rng.integers(0, shape[1], shape[:1])
    given = {**loss_arguments(rng, dtype, shape, target), **VARIANTS[variant]}
    total = min(float(given["weight"].astype(np.float64)[target].sum()), 60000.0)
    return _with_gradient(rng, dtype, given, total)


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for number, given in enumerate(loss_cases(rng, dtype, ((9, 5),))):
        made = _with_gradient(rng, dtype, given, 7.25)
        yield made | ({"total_weight": None} if number % 2 else {})
    for reduction in REDUCTIONS:
        one = loss_arguments(rng, dtype, (1, 6), np.asarray(4))
        given = {**one, "self": one["self"][0], "reduction": reduction}
        yield _with_gradient(rng, dtype, given, 1.5)


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    return gradient_peers(torch.ops.aten.nll_loss_backward, given, out)


torch_formula = gradient_formula


def sound() -> dict[str, Any]:
    return {
        "gradOutput": t((1,)), "self": t((4, 3)), "target": t((4,), INT64), "weight": t((3,)),
        "reduction": 1, "ignoreIndex": -100, "totalWeight": t((1,)), "out": t((4, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "self", "target", "weight", "totalWeight", "out"),
    Mistake("2", INVALID, "weight", {"weight": t((3,), BFLOAT16)}),
    Mistake("2", INVALID, "gradOutput", {"gradOutput": t((1,), FLOAT16)}),
    Mistake("2", INVALID, "totalWeight", {"totalWeight": t((1,), FLOAT16)}),
    Mistake("3", INVALID, "out", {"out": t((4, 3), INT32)}),
    Mistake(
        "4",
        INVALID,
        "self",
        {
            "self": t((4, 3), DOUBLE),
            "weight": t((3,), DOUBLE),
            "gradOutput": t((1,), DOUBLE),
            "totalWeight": t((1,), DOUBLE),
        },
    ),
    Mistake("5", INVALID, "target", {"target": t((4,), FLOAT)}),
    Mistake("6", INVALID, "reduction", {"reduction": 3}),
    Mistake("7", INVALID, "self", {"self": t((2, 2, 3))}),
    Mistake("8", INVALID, "target", {"target": t((2, 2), INT64)}),
    Mistake("10", INVALID, "target", {"target": t((5,), INT64)}),
    Mistake("11", INVALID, "weight", {"weight": t((4,))}),
    Mistake("12", INVALID, "totalWeight", {"totalWeight": t((2,))}),
    Mistake("13", INVALID, "gradOutput", {"gradOutput": t((4,))}),
    Mistake("13", INVALID, "gradOutput", {"reduction": 0}),
    Mistake("14", INVALID, "out", {"out": t((3, 4))}),
]
