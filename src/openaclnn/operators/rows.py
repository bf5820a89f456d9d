"""How operators with a class axis are declared and planned: their tensors by name, each with its role."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import Plan, class_plan
from openaclnn.core.status import Status
from openaclnn.operators.activations import ALL

Array = np.ndarray[Any, Any]

REDUCTION = Parameter(
    "reduction", Kind.INT64, "0 none, 1 mean, 2 sum", default="mean", choices=REDUCTIONS
)


def declare(
    name: str, summary: str, formula: str, parameters: tuple[Parameter, ...], rules: Sequence[Check], result: Callable[[Call], Any],
    plan: Callable[[Call], Plan], reference: Callable[..., Any], samples: Sequence[Sample], families: frozenset[str] = ALL, *,
    empty: tuple[str, ...] | None = None, lacking: int = Status.ACLNN_ERR_INNER_NULLPTR, **more: Any,
) -> Operator:  # fmt: skip
    """Enter an operator. With `empty`, the rules stand between those that most documents begin and end with: phase one's results have a place,
    and a product that lacks the operator gives `lacking`, unless one of these tensors is empty."""
    if empty is not None:
        last = checks.product_has_operator(str(int(rules[-1].row) + 1), lacking, empty)
        rules = (checks.result_pointers("0"), *rules, last)
    return register(
        Operator(
            name=f"aclnn{name}", summary=summary, formula=formula, parameters=parameters, families=families, checks=tuple(rules),
            result=result, plan=plan, reference=reference, samples=tuple(samples), **more,
        )
    )  # fmt: skip


def rows_plan(
    call: Call, kernel: str, compute: DType, read: Mapping[str, str], written: Mapping[str, str], axis: int,
    numbers: Mapping[str, Any] | None = None, targets: int | None = None, **more: Any,
) -> Plan:  # fmt: skip
    """The plan of a kernel with a class axis over a call's tensors, by their names and roles; `target` has class indices, if it is among them
    and nothing else is said."""
    values = call.values
    inputs = [(name, values[name], role) for name, role in read.items()]
    outputs = [(name, values[name], role) for name, role in written.items()]
    for _, tensor, role in (*outputs, *inputs):
        if role == "full":
            shape = tensor.shape or (1,)
            break
    if targets is None:
        targets = list(read).index("target") if "target" in read else -1
    return class_plan(
        call.operator.name, kernel, compute, inputs, outputs, shape, axis, targets, numbers or {}, **more
    )  # fmt: skip


def counted_targets(target: Array, classes: int, ignored: int) -> tuple[Array, Array]:
    """Which targets count, being classes and not ignored; and their classes, 0 for the others. For references."""
    indices = target.astype(np.int64)
    counted = (indices != ignored) & (indices >= 0) & (indices < classes)
    return counted, np.where(counted, indices, 0)
