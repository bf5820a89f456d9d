"""aclnnNLLLoss2d: the negative log-likelihood of a class per pixel."""

from __future__ import annotations

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Violation
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import FLOAT, INT32, INT64
from openaclnn.core.status import Status
from openaclnn.operators import likelihood
from openaclnn.operators.likelihood import TARGET_DTYPES

PARAMETERS = likelihood.parameters(
    "(N, C, H, W)", "(N, H, W)", "(N, H, W) for none, else one element"
)


def _out_fits(call: Call) -> Violation | None:
    if not call.given("out"):
        return None
    if call.reduction == "none":
        return likelihood.unlike_target(call, "out")
    out = call.tensor("out")
    if out.size != 1:
        return Violation("out", "one element unless reduction is none", f"shape {out.shape}")
    return None


CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "self", "target", "weight", "out", "totalWeightOut"),
    checks.dtype_in("2", "self"),
    checks.same_dtype("3", "weight", "self"),
    *likelihood.castable_outputs("4"),
    checks.dtype_one_of("5", "target", TARGET_DTYPES),
    checks.reduction_known("6", "reduction"),
    checks.rank_is("7", "self", 4),
    checks.shape_is("8", "weight", likelihood.class_count, "(C,) of self"),
    checks.rank_is("10", "target", 3),
    checks.value_check("11", "dims 0, 2, 3 of self are target's", likelihood.pixels_match),
    checks.value_check("12", "out has target's shape (none) or one element", _out_fits),
    checks.one_element("13", "totalWeightOut"),
    checks.product_has_operator("14", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


_PIXELS = {
    "self": (FLOAT, [[[[-1, -2], [-3, -4]], [[-5, -6], [-7, -8]], [[-0.5, -1.5], [-2.5, -3.5]]]]),
    "target": (INT64, [[[0, 2], [1, 2]]]),
    "weight": (FLOAT, [0.5, 1, 2]),
}

register(
    Operator(
        name="aclnnNLLLoss2d",
        summary="The negative log-likelihood loss per pixel: of each, their mean or their sum; and the total weight.",
        formula=likelihood.FORMULA,
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2", "310p", "910"}),
        checks=CHECKS,
        result=likelihood.results,
        plan=likelihood.loss_plan,
        reference=likelihood.reference,
        module=__name__,
        aten="nll_loss2d_forward",
        samples=(
            Sample(
                "document, whose fifth class is out of range and ignored here",
                {
                    "self": (
                        FLOAT,
                        [[[[0.1, 1.1], [2.1, 3.1], [4.1, 5.1]], [[6.1, 7.1], [8.1, 9.1], [10.1, 11.1]]]],
                    ),
                    "target": (INT32, [[[1, 0], [1, 1], [2, 1]]]),
                    "weight": (FLOAT, [1.1, 1.2]),
                    "reduction": "none",
                    "ignore_index": 2,
                },
                ([[[-7.32, -1.21], [-9.72, -10.92], [0, -13.32]]], 5.9),
            ),
            Sample("none", {**_PIXELS, "reduction": "none"}, ([[[0.5, 3], [7, 7]]], 5.5), exact=True),
            Sample("mean, one class ignored", {**_PIXELS, "ignore_index": 2}, (5.0, 1.5), exact=True),
            Sample("sum", {**_PIXELS, "reduction": "sum"}, (17.5, 5.5), exact=True),
        ),
    )
)  # fmt: skip
