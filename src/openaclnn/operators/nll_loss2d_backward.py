"""aclnnNLLLoss2dBackward: the gradient of the negative log-likelihood of a class per pixel."""

from __future__ import annotations

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Violation
from openaclnn.core.declare import Operator, Sample, like, register
from openaclnn.core.dtypes import FLOAT, INT64
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.operators import likelihood
from openaclnn.operators.likelihood import TARGET_DTYPES

PARAMETERS = likelihood.gradient_parameters(
    "(N, C, H, W)", "(N, H, W)", "(N, H, W) for none, else one element", "C elements", "aclTensor *"
)


def _gradient_shape(call: Call) -> Violation | None:
    if call.reduction == "none":
        return likelihood.unlike_target(call, "gradOutput")
    gradient = call.tensor("gradOutput")
    if gradient.rank > 1 or gradient.size != 1:
        expected = "one element, 0-d or 1-d, unless reduction is none"
        return Violation("gradOutput", expected, f"shape {gradient.shape}")
    return None


CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "gradOutput", "self", "target", "weight", "out", "totalWeight"),
    checks.dtype_in("2", "self"),
    checks.same_dtype("3", "gradOutput", "self"),
    checks.same_dtype("4", "weight", "self"),
    checks.same_dtype("5", "out", "self"),
    checks.same_dtype("6", "totalWeight", "self"),
    checks.dtype_one_of("7", "target", TARGET_DTYPES),
    checks.value_check("8", "gradOutput has target's shape (none) or one element", _gradient_shape),
    checks.rank_is("9", "self", 4),
    checks.rank_is("10", "target", 3),
    checks.value_check("11", "dims 0, 2, 3 of self are target's", likelihood.pixels_match),
    checks.element_count_is("12", "weight", lambda call: call.tensor("self").shape[1], "C"),
    checks.same_shape("13", "out", "self"),
    checks.one_element("14", "totalWeight"),
    checks.reduction_known("15", "reduction"),
    checks.product_has_operator("16", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


def _plan(call: Call) -> Plan:
    return likelihood.gradient_plan(call, "nll_loss2d_backward")


_PIXELS = {
    "self": (FLOAT, [[[[0.0, 0.0], [0.0, 0.0]]] * 3]),
    "target": (INT64, [[[0, 2], [1, 2]]]),
    "weight": (FLOAT, [0.5, 1, 2]),
}

register(
    Operator(
        name="aclnnNLLLoss2dBackward",
        summary="Gradient of the per-pixel negative log-likelihood loss with respect to the log-probabilities.",
        formula=(
            "out[n, t, h, w] = -gradOutput * weight[t] / (totalWeight for mean, 1 otherwise), "
            "t = target[n, h, w]\n"
            "out is 0 for every other class, and where target is ignoreIndex"
        ),
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2", "910"}),
        checks=CHECKS,
        result=like("self"),
        plan=_plan,
        reference=likelihood.gradient_reference,
        module=__name__,
        aten="nll_loss2d_backward",
        samples=(
            Sample(
                "document",
                {
                    "grad_output": (FLOAT, [[[2.7]], [[2.6]], [[2.5]]]),
                    "self": (
                        FLOAT,
                        [
                            [[[round(4.1 + 0.1 * (5 * n + c), 1)]] for c in range(5)]
                            for n in range(3)
                        ],
                    ),
                    "target": (INT64, [[[2]], [[3]], [[1]]]),
                    "weight": (FLOAT, [1, 1, 1, 1, 1]),
                    "reduction": "none",
                    "ignore_index": -100,
                    "total_weight": (FLOAT, [1]),
                },
                [
                    [[[0]], [[0]], [[-2.700000047683716]], [[0]], [[0]]],
                    [[[0]], [[0]], [[0]], [[-2.5999999046325684]], [[0]]],
                    [[[0]], [[-2.5]], [[0]], [[0]], [[0]]],
                ],
                exact=True,
            ),
            Sample(
                "none",
                {**_PIXELS, "grad_output": (FLOAT, [[[1, 2], [3, 4]]]), "reduction": "none"},
                [[[[-0.5, 0], [0, 0]], [[0, 0], [-3, 0]], [[0, -4], [0, -8]]]],
            ),
            Sample(
                "mean, one class ignored",
                {
                    **_PIXELS,
                    "grad_output": (FLOAT, [3]),
                    "ignore_index": 2,
                    "total_weight": (FLOAT, [1.5]),
                },
                [[[[-1, 0], [0, 0]], [[0, 0], [-2, 0]], [[0, 0], [0, 0]]]],
            ),
            Sample(
                "sum ignores the total weight",
                {
                    **_PIXELS,
                    "grad_output": (FLOAT, [3]),
                    "reduction": "sum",
                    "ignore_index": 2,
                    "total_weight": (FLOAT, [7]),
                },
                [[[[-1.5, 0], [0, 0]], [[0, 0], [-3, 0]], [[0, 0], [0, 0]]]],
            ),
        ),
    )
)
