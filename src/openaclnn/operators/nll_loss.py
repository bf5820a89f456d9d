"""aclnnNLLLoss: the negative log-likelihood of a class per row."""

from __future__ import annotations

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check, Violation
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import FLOAT, INT32, INT64
from openaclnn.core.status import Status
from openaclnn.operators import likelihood
from openaclnn.operators.likelihood import TARGET_DTYPES

PARAMETERS = likelihood.parameters(
    "(N, C) or (C,)", "(N,), or 0 dimensions", "(N,) for none and rows, else one element"
)


def _rank_one_or_two(call: Call) -> Violation | None:
    shape = call.tensor("self").shape
    return (
        None if len(shape) in (1, 2) else Violation("self", "1 or 2 dimensions", f"shape {shape}")
    )


def _rank_at_most_one(call: Call) -> Violation | None:
    shape = call.tensor("target").shape
    return None if len(shape) <= 1 else Violation("target", "at most 1 dimension", f"shape {shape}")


def _rows_match(call: Call) -> Violation | None:
    shape, wanted = call.tensor("target").shape, call.tensor("self").shape[:-1]
    if shape != wanted:
        expected = f"shape {wanted}, the shape of self without its classes"
        return Violation("target", expected, f"shape {shape}")
    return None


ROWS_CHECKS = (
    checks.dtype_in("4", "self"),
    checks.dtype_one_of("5", "target", TARGET_DTYPES),
    checks.reduction_known("6", "reduction"),
    checks.value_check("7", "self has 1 or 2 dimensions", _rank_one_or_two),
    checks.value_check("8", "target has at most 1 dimension", _rank_at_most_one),
    checks.value_check("10", "target has the shape of self without classes", _rows_match),
    checks.shape_is("11", "weight", likelihood.class_count, "(C,) of self"),
)
"""The rows that the loss and its gradient have in common."""


def per_row_or_one(row: str, name: str) -> Check:
    """(N,) for none with rows, else one element of at most one dimension."""

    def broken_by(call: Call) -> Violation | None:
        if not call.given(name):
            return None
        shape, rows = call.tensor(name).shape, call.tensor("target").shape
        if call.reduction == "none" and rows:
            return likelihood.unlike_target(call, name)
        if shape not in ((), (1,)):
            return Violation(name, "one element, of 0 or 1 dimensions", f"shape {shape}")
        return None

    return checks.value_check(
        row, f"{name} has target's shape (none, rows) or one element", broken_by
    )


def _classes_for_targets(call: Call) -> Violation | None:
    if call.tensor("self").shape[-1] == 0 and not call.tensor("target").empty:
        return Violation("self", "a class at least, as target is not empty", "none")
    return None


CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "self", "target", "weight", "out", "totalWeightOut"),
    checks.same_dtype("2", "weight", "self"),
    *likelihood.castable_outputs("3"),
    *ROWS_CHECKS,
    per_row_or_one("12", "out"),
    checks.one_element("13", "totalWeightOut"),
    checks.value_check("14", "there is a class, or no target", _classes_for_targets),
    checks.product_has_operator("15", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


_ROWS = {
    "self": (FLOAT, [[-1, -2, -3], [-4, -5, -6], [-7, -8, -9]]),
    "target": (INT64, [2, 0, 1]),
    "weight": (FLOAT, [0.5, 1, 2]),
}

register(
    Operator(
        name="aclnnNLLLoss",
        summary="The negative log-likelihood loss: of each row, their mean or their sum; and the total weight.",
        formula=f"{likelihood.FORMULA}\n"
        "the mean is NaN where nothing counts, for self of one dimension too",
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2", "310p", "910"}),
        checks=CHECKS,
        result=likelihood.results,
        plan=likelihood.loss_plan,
        reference=likelihood.reference,
        module=__name__,
        aten="nll_loss_forward",
        samples=(
            Sample(
                "document",
                {
                    "self": (FLOAT, [[0, 1, 2], [3, 4, 5]]),
                    "target": (INT32, [0, 2]),
                    "weight": (FLOAT, [1.1, 1.2, 1.3]),
                    "reduction": "none",
                },
                ([-0.0, -6.5], 2.4),
            ),
            Sample("mean", _ROWS, (16 / 3.5, 3.5)),
            Sample("sum, one class ignored", {**_ROWS, "reduction": "sum", "ignore_index": 1}, (8.0, 2.5), exact=True),
            Sample(
                "one row, whose weight cancels",
                {"self": (FLOAT, [-0.75, -1.5]), "target": (INT64, 1), "weight": (FLOAT, [1, 0.1])},
                (1.5, 0.1),
            ),
        ),
    )
)  # fmt: skip
