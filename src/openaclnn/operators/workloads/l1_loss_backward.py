"""Workloads of aclnnL1LossBackward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, INT64, UINT16, UINT32, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.kernel import KernelForm
from openaclnn.operators.workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from openaclnn.operators.workloads.pairwise import (
    PAIR_VARIANTS,
    element_scale,
    pair_maker,
    pairwise_cases,
)

PATTERN = "elementwise"
KERNELS = (
    KernelForm("l1_loss_grad", {"grads": "gradOutput", "predict": "self", "label": "target"}),
)
VARIANTS = PAIR_VARIANTS
make = pair_maker("grad_output")


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for reduction in REDUCTIONS:
        yield from pairwise_cases(rng, dtype, "grad_output", {"reduction": reduction})


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> dict[str, Callable[[], Any]]:
    """PyTorch has no such operator: the expression its autograd evaluates, allocating and into `out`."""
    gradient, x, y = given["grad_output"], given["self"], given["target"]
    scale = element_scale(given)

    def into() -> Any:
        torch.sub(x, y, out=out)
        torch.sign(out, out=out)
        return torch.mul(out, gradient * scale if scale != 1 else gradient, out=out)

    return {
        "torch": lambda: torch.sign(x - y) * (gradient * scale if scale != 1 else gradient),
        "torch out=": into,
    }


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x, y = (given[name].float() for name in ("grad_output", "self", "target"))
    sign = (x > y).float() - (x < y).float()
    return (sign * (gradient * element_scale(given))).to(given["self"].dtype)


def sound() -> dict[str, Any]:
    return {
        "gradOutput": t((2, 3)), "self": t((2, 3)), "target": t((2, 3)), "reduction": 0,
        "gradInput": t((2, 3)),
    }  # fmt: skip


MISTAKES = [
    *POINTERS,
    *nulls("1", "gradOutput", "self", "target", "gradInput"),
    Mistake("2", INVALID, "reduction", {"reduction": 3}),
    Mistake("3", INVALID, "self", {"self": t((2, 3), UINT16)}),
    Mistake("4", INVALID, "target", {"target": t((2, 3), UINT32)}),
    Mistake("5", INVALID, "gradInput", {"gradInput": t((2, 3), INT64)}),
    Mistake("6", INVALID, "gradOutput, self, target", {"self": t((2, 3), DOUBLE)}),
    Mistake("7", INVALID, "self", {"self": t(NINE)}),
    Mistake("7", INVALID, "target", {"target": t(NINE)}),
    Mistake("7", INVALID, "gradOutput", {"gradOutput": t(NINE)}),
    Mistake("7", INVALID, "gradInput", {"gradInput": t(NINE)}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((5, 3))}),
    Mistake("9", INVALID, "target", {"target": t((4, 3))}),
    Mistake("10", INVALID, "gradInput", {"gradInput": t((3,))}),
]
