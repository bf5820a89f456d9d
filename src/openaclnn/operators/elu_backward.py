"""aclnnEluBackward: the gradient of ELU with respect to its input."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Violation
from openaclnn.core.declare import Operator, Sample, like, register
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, Plan, elementwise_plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.elu import elu_backward
from openaclnn.operators.elu import FAMILIES, SCALARS

PARAMETERS = (
    Parameter(
        "gradOutput", Kind.TENSOR, "gradient of the ELU's output", "0 to 8 dimensions", FLOATS
    ),
    Parameter("alpha", Kind.SCALAR, "slope of the negative branch; >= 0 if isResult", default=1.0),
    *SCALARS[1:],
    Parameter(
        "isResult",
        Kind.BOOL,
        "whether selfOrResult is the ELU's output instead of its input",
        default=False,
    ),
    Parameter(
        "selfOrResult", Kind.TENSOR, "the ELU's input, or its output", "same as gradOutput", FLOATS
    ),
    Parameter(
        "gradInput", Kind.OUTPUT, "gradient of the ELU's input", "same as gradOutput", FLOATS
    ),
)


def _alpha_not_negative(call: Call) -> Violation | None:
    if call.values["isResult"] and call["alpha"].float32() < 0:  # NaN and -0 pass
        return Violation("alpha", ">= 0 when isResult is true", str(call["alpha"].float32()))
    return None


CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "gradOutput", "alpha", "scale", "inputScale", "selfOrResult", "gradInput"),
    checks.same_dtype("2", "selfOrResult", "gradOutput"),
    checks.dtype_in("3", "gradOutput"),
    checks.scalar_castable("4", "alpha", "scale", "inputScale"),
    checks.castable(
        "5", "gradInput", lambda call: call.tensor("gradOutput").dtype, "gradOutput's dtype"
    ),
    checks.same_shape("6", "selfOrResult", "gradOutput"),
    checks.same_shape("7", "gradInput", "gradOutput"),
    checks.rank_at_most("8", "gradOutput"),
    checks.value_check("9", "alpha >= 0 if isResult", _alpha_not_negative),
    checks.product_has_operator("10", Status.ACLNN_ERR_INNER_NULLPTR, ("gradOutput",)),
)


FREE = (Free("alpha"), Free("scale"), Free("input_scale"))
FREE_FROM_RESULT = (Free("alpha", low=0.0), *FREE[1:])


def _plan(call: Call) -> Plan:
    values = call.values
    gradient, output = values["gradOutput"], ("gradInput", values["gradInput"])
    if gradient.empty:
        return empty_plan(call.operator.name, output)
    return elementwise_plan(
        call.operator.name,
        elu_backward.name,
        gradient.dtype,
        [("gradOutput", gradient), ("selfOrResult", values["selfOrResult"])],
        output,
        {
            "alpha": values["alpha"].float32(),
            "scale": values["scale"].float32(),
            "input_scale": values["inputScale"].float32(),
            "is_result": values["isResult"],
        },
        free=FREE_FROM_RESULT if values["isResult"] else FREE,
    )


# Forward: y = scale * x for x > 0, alpha * scale * (exp(x * inputScale) - 1) for x <= 0.
# Its derivative is scale, or alpha * scale * inputScale * exp(x * inputScale); by the forward's own
# formula the latter is inputScale * (y + alpha * scale), which needs the output alone.
# NaN is not <= 0 and takes the positive branch: it does not propagate.
def reference(
    grad_output: np.ndarray[Any, Any],
    self_or_result: np.ndarray[Any, Any],
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
    is_result: bool = False,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    gradient, x = grad_output.astype(work), self_or_result.astype(work)
    a, s, c = work(alpha), work(scale), work(input_scale)
    with np.errstate(all="ignore"):
        if is_result:
            negative = gradient * c * (x + a * s)
        else:
            negative = gradient * c * (a * s) * np.exp(x * c)
        return np.asarray(np.where(x <= 0, negative, gradient * s))


_SQUARE = {
    "grad_output": (FLOAT, [[-2, -1], [0, 1]]),
    "self_or_result": (FLOAT, [[-2, -1], [0, 1]]),
}
_SCALED = {"grad_output": (FLOAT, [1, 2, 3, 4]), "alpha": 1.5, "scale": 2.0, "input_scale": 0.5}

register(
    Operator(
        name="aclnnEluBackward",
        summary="Gradient of the ELU activation with respect to its input.",
        formula=(
            "gradInput = gradOutput * scale                                          if x > 0\n"
            "gradInput = gradOutput * inputScale * (x + alpha * scale)               if x <= 0, isResult\n"
            "gradInput = gradOutput * inputScale * alpha * scale * exp(x * inputScale)   if x <= 0"
        ),
        parameters=PARAMETERS,
        families=FAMILIES,
        checks=CHECKS,
        result=like("gradOutput"),
        plan=_plan,
        reference=reference,
        aten="elu_backward",
        samples=(
            Sample(
                "document",
                {**_SQUARE, "is_result": True},
                [[2.0, -0.0], [0.0, 1.0]],
                exact=True,
            ),
            Sample(
                "document data, from the input",
                _SQUARE,
                [[-0.2706705664732254, -0.36787944117144233], [0.0, 1.0]],
            ),
            Sample(
                "three scalars",
                {**_SCALED, "self_or_result": (FLOAT, [-2, -0.5, 0, 1.5])},
                [0.5518191617571635, 2.3364023492142145, 4.5, 8.0],
            ),
            Sample(
                "three scalars, from the result",
                {
                    **_SCALED,
                    "self_or_result": (FLOAT, [-1.896361676485673, -0.6635976507857854, 0, 3]),
                    "is_result": True,
                },
                [0.5518191617571635, 2.3364023492142145, 4.5, 8.0],
            ),
        ),
    )
)
