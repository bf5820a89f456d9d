"""What linear cross entropy calls beside the loss: a soft cap of logits with its gradient, and sums that are scaled while they are rounded.

As those of `logits.py`, these are no operators of the aclnn interface, and in no registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, like
from openaclnn.core.dtypes import FLOAT, FLOATS, float_of
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, Plan, elementwise_plan, empty_plan
from openaclnn.engines.formulas.linear import scaled, soft_cap, soft_cap_backward
from openaclnn.operators.rows import Array, widened


def _plan(kernel: str, names: tuple[str, ...], capped: bool) -> Callable[[Call], Plan]:
    def planned(call: Call) -> Plan:
        out, tensors = call.tensor("out"), [(name, call.tensor(name)) for name in names]
        if out.empty:
            return empty_plan(call.operator.name, ("out", out))
        numbers = {"cap": float_of(call["cap"])} if capped else {}
        free = (Free("cap"),) if capped else ()
        kinds = {tensor.dtype for _, tensor in tensors}
        compute = kinds.pop() if len(kinds) == 1 else FLOAT
        return elementwise_plan(call.operator.name, kernel, compute, tensors, ("out", out), numbers, free=free)  # fmt: skip

    return planned


def _operator(
    name: str, summary: str, formula: str, kernel: str, tensors: dict[str, str], reference: Any, sample: Sample, capped: bool = True
) -> Operator:  # fmt: skip
    names = tuple(tensors)
    shapes = ("0 to 8 dimensions", "same as the first, or one element")
    return Operator(
        name=name,
        summary=summary,
        formula=formula,
        parameters=(
            *(Parameter(each, Kind.TENSOR, text, shapes[place], FLOATS) for place, (each, text) in enumerate(tensors.items())),
            *((Parameter("cap", Kind.DOUBLE, "the limit", default=30.0),) if capped else ()),
            Parameter("out", Kind.OUTPUT, "the result", "same as the first", FLOATS),
        ),
        families=frozenset(),
        checks=(
            checks.not_null("1", *names, "out"),
            *(checks.dtype_one_of("2", each, FLOATS) for each in (*names, "out")),
            checks.rank_at_most("3", *names),
            checks.broadcastable("4", *names),
            checks.same_shape("5", "out", names[0]),
        ),
        result=like(names[0]),
        plan=_plan(kernel, names, capped),
        reference=reference,
        samples=(sample,),
    )  # fmt: skip


@widened
def _scaled(x: Array, factor: Array) -> Array:
    return np.asarray(x * factor)


@widened
def _soft_cap(x: Array, cap: float = 30.0) -> Array:
    return np.asarray(np.tanh(x / cap) * cap)


@widened
def _soft_cap_backward(gradient: Array, x: Array, cap: float = 30.0) -> Array:
    return np.asarray(gradient / np.cosh(x / cap) ** 2)


SCALED = _operator(
    "Scaled", "A tensor times a number on its device.", "out = x * factor", scaled.name,
    {"x": "what is scaled", "factor": "by what"}, _scaled,
    Sample("halves", {"x": (FLOAT, [1, -3]), "factor": (FLOAT, 0.5)}, [0.5, -1.5], exact=True), capped=False,
)  # fmt: skip
SOFT_CAP = _operator(
    "SoftCap", "Numbers brought softly below a limit.", "out = cap * tanh(x / cap)", soft_cap.name, {"x": "what is capped"}, _soft_cap,
    Sample("of 2", {"x": (FLOAT, [0, 2, -40]), "cap": 2.0}, [0, 1.5231883119115297, -2]),
)  # fmt: skip
SOFT_CAP_BACKWARD = _operator(
    "SoftCapBackward", "Gradient of the soft cap.", "out = gradient / cosh(x / cap)^2", soft_cap_backward.name,
    {"gradient": "gradient of the result", "x": "what was capped"}, _soft_cap_backward,
    Sample("of 2", {"gradient": (FLOAT, [1, 4, 5]), "x": (FLOAT, [0, 2, -40]), "cap": 2.0}, [1, 1.6798973664561043, 8.496708510583178e-17]),
)  # fmt: skip
