"""What softmax, log-softmax and their gradients have in common: rows along an axis of tensors of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.dtypes import DOUBLE, FLOATS, DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan, class_plan, empty_plan
from openaclnn.core.status import Status

DTYPES = (*FLOATS, DOUBLE)
AXIS = "the axis that a row lies along, -rank to rank - 1"
PARAMETERS = (
    Parameter("self", Kind.TENSOR, "what it is applied to", "0 to 8 dimensions", DTYPES),
    Parameter("dim", Kind.INT64, AXIS, default=-1, axis="self"),
    Parameter("out", Kind.OUTPUT, "the result", "that of self", DTYPES),
)
INPUTS = ("gradOutput", "output")
GRADIENT_PARAMETERS = (
    Parameter("gradOutput", Kind.TENSOR, "gradient of the result", "0 to 8 dimensions", FLOATS),
    Parameter("output", Kind.TENSOR, "the forward's result", "that of gradOutput", FLOATS),
    Parameter("dim", Kind.INT64, AXIS, default=-1, axis="gradOutput"),
    Parameter("out", Kind.OUTPUT, "gradient of the forward's input", "that of gradOutput", DTYPES),
)


def gradient_checks(nulls: tuple[str, ...], axis: str, rank: int) -> tuple[Check, ...]:
    """The rules of the gradients, whose documents differ in the order of tensors, and in which row is the axis's; rank and shapes
    are three from a row on. They list no dtypes of out: it is whatever the computed type converts to."""
    rules = [
        checks.dtype_in("2", *INPUTS),
        checks.same_dtype("3", "output", "gradOutput"),
        checks.axis_in_range(axis, "dim", "gradOutput"),
        checks.rank_at_most(f"{rank}", *INPUTS, "out"),
        checks.same_shape(f"{rank + 1}", "output", "gradOutput"),
        checks.same_shape(f"{rank + 2}", "out", "gradOutput"),
        checks.castable(
            "8", "out", lambda call: call.tensor("gradOutput").dtype, "gradOutput's dtype"
        ),
    ]
    ordered = sorted(rules, key=lambda rule: rule.row)
    return (
        checks.result_pointers("0"),
        checks.not_null("1", *nulls),
        *checks.unless_empty(INPUTS, *ordered, heeded_on=("950",)),
        checks.product_has_operator("9", Status.ACLNN_ERR_INNER_NULLPTR, INPUTS),
    )


def rows_plan(call: Call, kernel: str, compute: DType, *inputs: str) -> Plan:
    """The plan of a row formula from tensors of one shape to `out`, along `dim`."""
    values = call.values
    tensors, out = [(name, values[name], "full") for name in inputs], values["out"]
    if any(tensor.empty for _, tensor, _ in tensors):
        return empty_plan(call.operator.name, ("out", out))
    axis = call.axis("dim")
    assert axis is not None
    return class_plan(
        call.operator.name, kernel, compute, tensors, [("out", out, "full")], out.shape or (1,), axis, -1, {}
    )  # fmt: skip


def row_arrays(work: Any, *arrays: np.ndarray[Any, Any]) -> Sequence[np.ndarray[Any, Any]]:
    """The references' inputs, widened to `work`, and with an axis at least."""
    return [array.astype(work).reshape(array.shape or (1,)) for array in arrays]
