"""What the losses between `self` and `target` and their gradients have in common: tensors that promote and broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, Check, Violation
from openaclnn.core.declare import Gradient
from openaclnn.core.dtypes import DType, dtype_of_numpy, promote
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import (
    Free,
    Plan,
    elementwise_plan,
    empty_plan,
    filling_plan,
    reduced_plan,
)
from openaclnn.core.tensor import Tensor, element_count
from openaclnn.engines.formulas.l1_loss import l1_loss

FAMILIES = frozenset({"950", "a3", "a2", "310p", "910"})
REDUCTION = Parameter(
    "reduction", Kind.INT64, "0 none, 1 mean, 2 sum", default="mean", choices=REDUCTIONS
)


SWAPPED = {"self": "target", "target": "self"}
"""These losses are the same where predictions and targets change places."""


def gradient_of(operator: str) -> Gradient:
    """Of these losses by both tensors."""
    by_target = Gradient(operator, SWAPPED, expanded=True)
    return Gradient(operator, expanded=True, others={"target": by_target})


def promoted_dtype(call: Call, *names: str) -> DType | None:
    """The tensors' common type, promoted pairwise from left to right; None where a pair has none."""
    values = call.values
    common: DType | None = values[names[0]].dtype
    for name in names[1:]:
        dtype = values[name].dtype
        if dtype is not common:
            common = None if common is None else promote(common, dtype)
    return common


def present(call: Call) -> list[str]:
    """The tensors that are read and not null."""
    return [name for name in call.operator.input_names if call.values[name] is not None]


def promotes(row: str, *which: str) -> Check:
    """The tensors have a common type."""

    def broken_by(call: Call) -> Violation | None:
        if promoted_dtype(call, *which) is None:
            *before, last = which
            have = ", ".join(str(call.tensor(name).dtype) for name in before)
            expected = f"a dtype that promotes with {have} ({', '.join(before)})"
            return Violation(last, expected, call.tensor(last).dtype.name)
        return None

    rule = f"{', '.join(which)} have a common dtype"
    return Check(row, INVALID, rule, which, broken_by)


def promoted_supported(row: str, *which: str, more: tuple[DType, ...] = ()) -> Check:
    """Their common type is one of the product's floating types, or one of some more."""

    def broken_by(call: Call) -> Violation | None:
        dtype, allowed = promoted_dtype(call, *which), (*call.product.floats, *more)
        if dtype in allowed:
            return None
        expected = f"a promoted dtype in {checks.names(allowed)} (product {call.product.tag})"
        return Violation(", ".join(which), expected, str(dtype))

    return checks.value_check(row, "the product supports the promoted dtype", broken_by)


def reduced_or_not(
    call: Call, kernel: str, dtype: DType, tensors: Sequence[tuple[str, Tensor]], shape: tuple[int, ...], numbers: Mapping[str, Any],
    reduction: str, free: tuple[Free, ...] = (),
) -> Plan:  # fmt: skip
    """The plan of what a kernel computes over a shape, or of the sum or mean of that."""
    name, output = call.operator.name, call.operator.output.name
    written = output, call.tensor(output)
    empty = element_count(shape) == 0
    if reduction == "none":
        if empty:
            return empty_plan(name, written)
        return elementwise_plan(name, kernel, dtype, tensors, written, numbers, free=free)
    if empty:
        return filling_plan(name, (*written, math.nan if reduction == "mean" else 0.0))
    return reduced_plan(name, kernel, dtype, tensors, written, shape, numbers, reduction, free)


def distance_plan(left: Tensor, right: Tensor, total: Tensor) -> Plan:
    """The plan of the sum of all absolute differences between tensors of one shape."""
    pair = [("self", left), ("target", right)]
    return reduced_plan("", l1_loss.name, left.dtype, pair, ("out", total), left.shape, {}, "sum")


def reduced(losses: np.ndarray[Any, Any], reduction: str, work: Any) -> np.ndarray[Any, Any]:
    """The reference's reduction."""
    if reduction == "none":
        return losses
    total = losses.sum(dtype=work)
    return np.asarray(total / work(losses.size) if reduction == "mean" else total)


def promoted_arrays(work: Any, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The reference's inputs: rounded to their common type, as the operator does, then widened to `work`."""
    common = dtype_of_numpy(arrays[0].dtype)
    for array in arrays[1:]:
        other = dtype_of_numpy(array.dtype)
        common = promote(common, other) if common is not None and other is not None else None
    if common is None:
        raise TypeError("the arrays have no common type")
    return [array.astype(common.numpy).astype(work) for array in arrays]
