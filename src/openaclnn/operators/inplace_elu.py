"""aclnnInplaceElu: the exponential linear unit, written over its input."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, like, register
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.operators import elu

PARAMETERS = (
    Parameter(
        "selfRef", Kind.OUTPUT, "what the unit is applied to, and the result", "0 to 8 dimensions", elu.DTYPES,
        in_place=True,
    ),
    *elu.SCALARS,
)  # fmt: skip

# The output is the input: it has its dtype and its shape.
CHECKS = (
    *elu.head_of_checks("selfRef"),
    checks.rank_at_most("6", "selfRef"),
    checks.product_has_operator("7", Status.ACLNN_ERR_INNER_NULLPTR, ("selfRef",)),
)


def _plan(call: Call) -> Plan:
    return elu.plan_of(call, "selfRef", "selfRef")


def reference(
    self_ref: np.ndarray[Any, Any],
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    return elu.reference(self_ref, alpha, scale, input_scale, work)


register(
    Operator(
        name="aclnnInplaceElu",
        summary=f"{elu.SUMMARY}, written over its input.",
        formula=elu.FORMULA.format(out="selfRef", self="selfRef"),
        parameters=PARAMETERS,
        families=elu.FAMILIES,
        checks=CHECKS,
        result=like("selfRef"),
        plan=_plan,
        reference=reference,
        aten="elu_",
        samples=elu.samples_of("self_ref"),
    )
)
