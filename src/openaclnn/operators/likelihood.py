"""The negative log-likelihood of a class per row and per pixel, and the gradients of both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check, Violation
from openaclnn.core.declare import Operator, OutputSpec, Sample, like, register
from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64, UINT8
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, Plan, class_plan, empty_plan, filling_plan
from openaclnn.core.status import Status
from openaclnn.operators.pairwise import FAMILIES, REDUCTION

TARGET_DTYPES = (INT64, UINT8, INT32)
_FREE = (Free("ignore_index", whole=True),)
_TOTAL = "sum of weight[target] over what is not ignored"


def _of_classes(positions: str, weights: str) -> tuple[Parameter, ...]:
    """What losses and gradients take after log-probabilities."""
    return (
        Parameter(
            "target", Kind.TENSOR, "the right classes, in [0, C), or ignoreIndex", positions, TARGET_DTYPES,
            weak=False,
        ),
        Parameter("weight", Kind.TENSOR, "factor of each class", weights, FLOATS),
        REDUCTION,
        Parameter("ignoreIndex", Kind.INT64, "target value that counts for nothing", default=-100),
    )  # fmt: skip


def _parameters(shape: str, positions: str, loss: str) -> tuple[Parameter, ...]:
    """A loss's _parameters, with the shapes that the operator asks for."""
    return (
        Parameter("self", Kind.TENSOR, "log-probabilities", shape, FLOATS),
        *_of_classes(positions, "(C,)"),
        Parameter("out", Kind.OUTPUT, "the loss", loss, FLOATS),
        Parameter("totalWeightOut", Kind.OUTPUT, _TOTAL, "one element", FLOATS),
    )


def _gradient_parameters(
    shape: str, positions: str, loss: str, weights: str, total_in_c: str = ""
) -> tuple[Parameter, ...]:
    """The same of a gradient; and the type of the total weight in C, where it is not that of an input."""
    return (
        Parameter("gradOutput", Kind.TENSOR, "gradient of the loss", loss, FLOATS),
        Parameter("self", Kind.TENSOR, "log-probabilities; only shape and dtype matter", shape, FLOATS),
        *_of_classes(positions, weights),
        Parameter(
            "totalWeight", Kind.TENSOR, f"{_TOTAL}; read for mean alone", "one element", FLOATS, default=None,
            computed=True, c_type=total_in_c,
        ),
        Parameter("out", Kind.OUTPUT, "gradient of self", "same as self", FLOATS),
    )  # fmt: skip


FORMULA = (
    "l = -weight[t] * self at class t = target, 0 where target is ignoreIndex\n"
    "out = l for none, sum(l) / totalWeightOut for mean, sum(l) for sum\n"
    "totalWeightOut = sum of weight[t] where target is not ignoreIndex"
)


def _castable_outputs(row: str) -> tuple[Check, ...]:
    """The outputs' dtypes."""
    names = ("out", "totalWeightOut")
    return tuple(
        checks.castable(row, name, lambda call: call.tensor("self").dtype, "self's dtype")
        for name in names
    )


def _class_count(call: Call) -> tuple[tuple[int, ...], ...]:
    """The shape of the weights."""
    shape = call.tensor("self").shape
    return ((shape[1] if len(shape) > 1 else shape[0],),)


def _unlike_target(call: Call, name: str) -> Violation | None:
    """What is wrong with a tensor that should have the shape of the targets."""
    shape, wanted = call.tensor(name).shape, call.tensor("target").shape
    if shape == wanted:
        return None
    expected = f"shape {wanted}, the shape of target, for reduction none"
    return Violation(name, expected, f"shape {shape}")


def _pixels_match(call: Call) -> Violation | None:
    shape, target = call.tensor("self").shape, call.tensor("target").shape
    wanted = (shape[0], shape[2], shape[3])
    if target != wanted:
        return Violation("target", f"shape {wanted}, dims 0, 2, 3 of self", f"shape {target}")
    return None


def _results(call: Call) -> tuple[OutputSpec, OutputSpec]:
    """Shapes and dtypes of the loss and of the total weight where they are left to us."""
    target, dtype = call.tensor("target"), call.tensor("self").dtype
    return (target.shape if call.reduction == "none" else (), dtype), ((), dtype)


def _loss_plan(call: Call) -> Plan:
    """The plan of a loss and its total weight."""
    values, reduction = call.values, call.reduction
    log_prob, target = values["self"], values["target"]
    out, total = ("out", values["out"]), ("totalWeightOut", values["totalWeightOut"])
    name = call.operator.name
    if log_prob.empty or target.empty:
        if reduction == "none":
            return filling_plan(name, (*total, 0.0))
        return filling_plan(name, (*out, math.nan if reduction == "mean" else 0.0), (*total, 0.0))
    if reduction == "none" and not target.shape:
        reduction = "sum"  # of one
    whole = reduction == "none"
    return class_plan(
        name,
        "nll_loss",
        log_prob.dtype,
        [
            ("target", target, "positions"),
            ("self", log_prob, "full"),
            ("weight", values["weight"], "classes"),
        ],
        [(*out, "positions" if whole else "single"), (*total, "single")],
        log_prob.shape,
        class_axis=min(1, log_prob.rank - 1),
        targets=0,
        numbers={"ignore_index": values["ignoreIndex"]},
        free=_FREE,
        reduction="" if whole else str(reduction),
    )


def _gradient_plan(call: Call, kernel: str) -> Plan:
    """The plan of a gradient."""
    values, reduction = call.values, call.reduction
    log_prob, target, output = values["self"], values["target"], ("out", values["out"])
    if log_prob.empty:
        return empty_plan(call.operator.name, output)
    mean = reduction == "mean"
    each = reduction == "none" and target.rank > 0
    inputs = [
        ("target", target, "positions"),
        ("gradOutput", values["gradOutput"], "positions" if each else "single"),
        ("weight", values["weight"], "classes"),
    ]
    total_given = mean and call.has_tensor("totalWeight")
    if total_given:
        inputs.append(("totalWeight", values["totalWeight"], "single"))
    return class_plan(
        call.operator.name,
        kernel,
        log_prob.dtype,
        inputs,
        [(*output, "full")],
        log_prob.shape,
        class_axis=min(1, log_prob.rank - 1),
        targets=0,
        numbers={
            "ignore_index": call["ignoreIndex"],
            "mean": mean,
            "total_weight_given": total_given,
        },
        free=_FREE,
    )


# The class axis is the second one, or the only one.
def _reference(
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any],
    reduction: str = "mean",
    ignore_index: int = -100,
    work: Any = np.float64,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The document's formula in float64 (or in `work`); an out-of-range target contributes nothing."""
    classes = np.moveaxis(self, min(1, self.ndim - 1), -1)
    indices, factors = target.astype(np.int64), weight.astype(work)
    counted = (indices != ignore_index) & (indices >= 0) & (indices < classes.shape[-1])
    safe = np.where(counted, indices, 0)
    with np.errstate(all="ignore"):
        if classes.shape[-1] == 0:
            losses = target_weight = np.zeros(target.shape, work)
        else:
            target_weight = np.where(counted, factors[safe], work(0))
            picked = np.take_along_axis(classes, safe[..., None], -1)[..., 0].astype(work)
            losses = np.where(counted, -(factors[safe] * picked), work(0))
        total = np.asarray(target_weight.sum(dtype=work))
        if reduction == "none":
            return np.asarray(losses), total
        loss = losses.sum(dtype=work)
        return np.asarray(loss / total if reduction == "mean" else loss), total


# Forward: the loss of a position is -weight[t] times self at its class t, 0 where t is ignored; mean divides their sum by the
# total weight. So only the target's class of each position has a gradient.
def _gradient_reference(
    grad_output: np.ndarray[Any, Any],
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any],
    reduction: str = "mean",
    ignore_index: int = -100,
    total_weight: np.ndarray[Any, Any] | None = None,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The formula in float64 (or in `work`); an out-of-range target leaves the classes of its position 0."""
    out = np.zeros(self.shape, work)
    classes = np.moveaxis(out, min(1, self.ndim - 1), -1)
    indices, factors = target.astype(np.int64), weight.astype(work).reshape(-1)
    counted = (indices != ignore_index) & (indices >= 0) & (indices < classes.shape[-1])
    picked = indices[counted]
    gradient = np.asarray(grad_output).astype(work)
    gradient = gradient.reshape(target.shape if reduction == "none" else ())
    with np.errstate(all="ignore"):
        if reduction == "mean":
            if total_weight is None:
                total = factors[picked].sum(dtype=work)
            else:
                total = np.asarray(total_weight).astype(work).reshape(())
            gradient = gradient / total
        gradient = np.broadcast_to(gradient, target.shape)
        classes[counted, picked] = -(gradient[counted] * factors[picked])
    return out


# Rows.


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
    checks.shape_is("11", "weight", _class_count, "(C,) of self"),
)
"""The rows that the loss and its gradient have in common."""


def _per_row_or_one(row: str, name: str) -> Check:
    """(N,) for none with rows, else one element of at most one dimension."""

    def broken_by(call: Call) -> Violation | None:
        if not call.has_tensor(name):
            return None
        shape, rows = call.tensor(name).shape, call.tensor("target").shape
        if call.reduction == "none" and rows:
            return _unlike_target(call, name)
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


LOSS_CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "self", "target", "weight", "out", "totalWeightOut"),
    checks.same_dtype("2", "weight", "self"),
    *_castable_outputs("3"),
    *ROWS_CHECKS,
    _per_row_or_one("12", "out"),
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
        formula=f"{FORMULA}\n"
        "the mean is NaN where nothing counts, for self of one dimension too",
        parameters=_parameters(
            "(N, C) or (C,)", "(N,), or 0 dimensions", "(N,) for none and rows, else one element"
        ),
        families=FAMILIES,
        checks=LOSS_CHECKS,
        result=_results,
        plan=_loss_plan,
        reference=_reference,
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

GRADIENT_CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "gradOutput", "self", "target", "weight", "totalWeight", "out"),
    checks.same_dtype("2", "weight", "self"),
    checks.same_dtype("2", "gradOutput", "self"),
    checks.same_dtype("2", "totalWeight", "self"),
    checks.castable("3", "out", lambda call: call.tensor("self").dtype, "self's dtype"),
    *ROWS_CHECKS,
    checks.one_element("12", "totalWeight"),
    _per_row_or_one("13", "gradOutput"),
    checks.same_shape("14", "out", "self"),
    checks.product_has_operator("15", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


_ZERO_ROWS = {
    "self": (FLOAT, [[0, 0, 0], [0, 0, 0]]),
    "target": (INT64, [1, 0]),
    "weight": (FLOAT, [0.5, 1, 2]),
}

register(
    Operator(
        name="aclnnNLLLossBackward",
        summary="Gradient of the negative log-likelihood loss with respect to the log-probabilities.",
        formula=(
            "out[n, t] = -gradOutput * weight[t] / (totalWeight for mean, 1 otherwise), t = target[n]\n"
            "out is 0 for every other class, and where target is ignoreIndex"
        ),
        parameters=_gradient_parameters(
            "(N, C) or (C,)",
            "(N,), or 0 dimensions",
            "(N,) for none and rows, else one element",
            "(C,)",
        ),
        families=FAMILIES - {"310p"},
        checks=GRADIENT_CHECKS,
        result=like("self"),
        plan=lambda call: _gradient_plan(call, "nll_loss_backward"),
        reference=_gradient_reference,
        module=__name__,
        aten="nll_loss_backward",
        samples=(
            Sample(
                "document",
                {
                    "grad_output": (FLOAT, [3.1, 6.5]),
                    "self": (FLOAT, [[0, 1, 2], [3, 4, 5]]),
                    "target": (INT64, [0, 2]),
                    "weight": (FLOAT, [1.1, 1.2, 1.3]),
                    "reduction": "none",
                    "total_weight": (FLOAT, [0]),
                },
                [[-3.41, 0, 0], [0, 0, -8.45]],
            ),
            Sample(
                "mean, its total computed",
                {**_ZERO_ROWS, "grad_output": (FLOAT, 3)},
                [[0, -2, 0], [-1, 0, 0]],
            ),
            Sample(
                "sum, one class ignored",
                {**_ZERO_ROWS, "grad_output": (FLOAT, [3]), "reduction": "sum", "ignore_index": 1},
                [[0, 0, 0], [-1.5, 0, 0]],
            ),
            Sample(
                "one row",
                {
                    "grad_output": (FLOAT, 3),
                    "self": (FLOAT, [0, 0, 0]),
                    "target": (INT64, 2),
                    "weight": (FLOAT, [0.5, 1, 2]),
                    "total_weight": (FLOAT, 4),
                },
                [0, 0, -1.5],
            ),
        ),
    )
)


# Pixels.


def _out_fits(call: Call) -> Violation | None:
    if not call.has_tensor("out"):
        return None
    if call.reduction == "none":
        return _unlike_target(call, "out")
    out = call.tensor("out")
    if out.size != 1:
        return Violation("out", "one element unless reduction is none", f"shape {out.shape}")
    return None


LOSS_2D_CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "self", "target", "weight", "out", "totalWeightOut"),
    checks.dtype_in("2", "self"),
    checks.same_dtype("3", "weight", "self"),
    *_castable_outputs("4"),
    checks.dtype_one_of("5", "target", TARGET_DTYPES),
    checks.reduction_known("6", "reduction"),
    checks.rank_is("7", "self", 4),
    checks.shape_is("8", "weight", _class_count, "(C,) of self"),
    checks.rank_is("10", "target", 3),
    checks.value_check("11", "dims 0, 2, 3 of self are target's", _pixels_match),
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
        formula=FORMULA,
        parameters=_parameters("(N, C, H, W)", "(N, H, W)", "(N, H, W) for none, else one element"),
        families=FAMILIES,
        checks=LOSS_2D_CHECKS,
        result=_results,
        plan=_loss_plan,
        reference=_reference,
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


def _gradient_shape(call: Call) -> Violation | None:
    if call.reduction == "none":
        return _unlike_target(call, "gradOutput")
    gradient = call.tensor("gradOutput")
    if gradient.rank > 1 or gradient.size != 1:
        expected = "one element, 0-d or 1-d, unless reduction is none"
        return Violation("gradOutput", expected, f"shape {gradient.shape}")
    return None


GRADIENT_2D_CHECKS = (
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
    checks.value_check("11", "dims 0, 2, 3 of self are target's", _pixels_match),
    checks.element_count_is("12", "weight", lambda call: call.tensor("self").shape[1], "C"),
    checks.same_shape("13", "out", "self"),
    checks.one_element("14", "totalWeight"),
    checks.reduction_known("15", "reduction"),
    checks.product_has_operator("16", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


_ZERO_PIXELS = {
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
        parameters=_gradient_parameters(
            "(N, C, H, W)",
            "(N, H, W)",
            "(N, H, W) for none, else one element",
            "C elements",
            "aclTensor *",
        ),
        families=FAMILIES - {"310p"},
        checks=GRADIENT_2D_CHECKS,
        result=like("self"),
        plan=lambda call: _gradient_plan(call, "nll_loss2d_backward"),
        reference=_gradient_reference,
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
                {**_ZERO_PIXELS, "grad_output": (FLOAT, [[[1, 2], [3, 4]]]), "reduction": "none"},
                [[[[-0.5, 0], [0, 0]], [[0, 0], [-3, 0]], [[0, -4], [0, -8]]]],
            ),
            Sample(
                "mean, one class ignored",
                {
                    **_ZERO_PIXELS,
                    "grad_output": (FLOAT, [3]),
                    "ignore_index": 2,
                    "total_weight": (FLOAT, [1.5]),
                },
                [[[[-1, 0], [0, 0]], [[0, 0], [-2, 0]], [[0, 0], [0, 0]]]],
            ),
            Sample(
                "sum ignores the total weight",
                {
                    **_ZERO_PIXELS,
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
