"""The negative log-likelihood of a class per row and per pixel, and the gradients of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Discrepancy, Sample
from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64, UINT8
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free
from openaclnn.core.tensor import Tensor
from openaclnn.operators.activations import ALL
from openaclnn.operators.inner import inner_operator
from openaclnn.operators.rows import (
    LOSSES,
    REDUCTION,
    Array,
    Indices,
    Rows,
    counted_targets,
    declare,
    widened,
)

TARGET_DTYPES = (INT64, UINT8, INT32)
_FREE = (Free("ignore_index", integer=True),)
COUNTED = {"classes": "(C,) of self"}
_TOTAL = "sum of weight[target] over what is not ignored"


IGNORED = Parameter("ignoreIndex", Kind.INT64, "target value that counts for nothing", default=-100)


def _of_classes(positions: str, weights: str) -> tuple[Parameter, ...]:
    """The parameters of losses and gradients that follow the log-probabilities."""
    return (
        Parameter(
            "target", Kind.TENSOR, "the right classes, in [0, C), or ignoreIndex", positions, TARGET_DTYPES,
            weak=False,
        ),
        Parameter("weight", Kind.TENSOR, "factor of each class", weights, FLOATS),
        REDUCTION,
        IGNORED,
    )  # fmt: skip


def _parameters(shape: str, positions: str, loss: str) -> tuple[Parameter, ...]:
    """A loss's parameters, with texts for the shapes that the operator asks for."""
    return (
        Parameter("self", Kind.TENSOR, "log-probabilities", shape, FLOATS),
        *_of_classes(positions, "(C,)"),
        Parameter("out", Kind.OUTPUT, "the loss", loss, FLOATS),
        Parameter("totalWeightOut", Kind.OUTPUT, _TOTAL, "one element", FLOATS),
    )


def _gradient_parameters(
    shape: str, positions: str, loss: str, weights: str, total_in_c: str = ""
) -> tuple[Parameter, ...]:
    """A gradient's parameters, with texts for shapes. `total_in_c` is the C type of totalWeight where it is not an input's."""
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


def _castable(row: str, *names: str) -> tuple[Check, ...]:
    """self's dtype converts to these outputs'."""
    return tuple([
        checks.castable(row, name, lambda call: call.tensor("self").dtype, "self's dtype") for name in names
    ])  # fmt: skip


def _of_targets_or_one(
    row: str, name: str, expected: str, is_one: Callable[[Tensor], bool], rule: str, single: bool = False
) -> Check:  # fmt: skip
    """A tensor has target's shape where nothing is reduced, else one element. `single`: one element for a target without axes, too."""

    def fault(call: Call, tensor: Tensor) -> checks.Fault:
        shape, wanted = tensor.shape, call.tensor("target").shape
        if call.reduction == "none" and not (single and wanted == ()):
            whole = f"shape {wanted}, the shape of target, for reduction none"
            return None if shape == wanted else (whole, f"shape {shape}")
        return None if is_one(tensor) else (expected, f"shape {shape}")

    return checks.of_tensors(row, rule, (name,), fault)


def _pixels_match(row: str) -> Check:
    def wanted(call: Call) -> tuple[int, ...]:
        shape = call.tensor("self").shape
        return shape[0], *shape[2:]

    return _target_shape(row, "dims 0, 2, 3 of self are target's", wanted, "dims 0, 2, 3 of self")


def _target_shape(row: str, rule: str, wanted: Callable[[Call], tuple[int, ...]], what: str) -> Check:  # fmt: skip
    def fault(call: Call, target: Tensor) -> checks.Fault:
        shape = wanted(call)
        return None if target.shape == shape else (f"shape {shape}, {what}", f"shape {target.shape}")  # fmt: skip

    return checks.of_tensors(row, rule, ("target",), fault)


def _ignored(call: Call) -> dict[str, Any]:
    return {"ignore_index": call["ignoreIndex"]}


PLAN = Rows(
    "nll_loss", "self", {"target": "positions", "self": "full", "weight": "classes"}, {"out": LOSSES, "totalWeightOut": "single"}, _ignored, _FREE,
)  # fmt: skip


def _gradient_numbers(call: Call) -> dict[str, Any]:
    mean = call.reduction == "mean"
    return {**_ignored(call), "mean": mean, "total_weight_given": mean and call.has_tensor("totalWeight")}  # fmt: skip


def _gradient_plan(kernel: str) -> Rows:
    return Rows(
        kernel, "self", {"target": "positions", "gradOutput": LOSSES, "weight": "classes", "totalWeight": "single"}, {"out": "full"},
        _gradient_numbers, _FREE, unused=lambda call: () if call.reduction == "mean" else ("totalWeight",),
    )  # fmt: skip


# The class axis is the second one, or the only one. An out-of-range target contributes nothing.
@widened
def _reference(
    self: Array, target: Indices, weight: Array, reduction: str = "mean", ignore_index: int = -100
) -> tuple[Array, Array]:  # fmt: skip
    classes = np.moveaxis(self, min(1, self.ndim - 1), -1)
    counted, safe = counted_targets(target, classes.shape[-1], ignore_index)
    if classes.shape[-1] == 0:
        losses = target_weight = np.zeros(target.shape, self.dtype)
    else:
        target_weight = np.where(counted, weight[safe], 0)
        picked = np.take_along_axis(classes, safe[..., None], -1)[..., 0]
        losses = np.where(counted, -(weight[safe] * picked), 0)
    total = np.asarray(target_weight.sum())
    if reduction == "none":
        return losses, total
    loss = losses.sum()
    return np.asarray(loss / total if reduction == "mean" else loss), total


# Forward: the loss of a position is -weight[t] times self at its class t, 0 where t is ignored; mean divides their sum by the
# total weight. So only the target's class of each position has a gradient; that of an out-of-range target has none.
@widened
def _gradient_reference(
    grad_output: Array, self: Array, target: Indices, weight: Array, reduction: str = "mean", ignore_index: int = -100,
    total_weight: Array | None = None,
) -> Array:  # fmt: skip
    out = np.zeros_like(self)
    classes = np.moveaxis(out, min(1, self.ndim - 1), -1)
    factors = weight.reshape(-1)
    counted, safe = counted_targets(target, classes.shape[-1], ignore_index)
    picked = safe[counted]
    gradient = grad_output.reshape(target.shape if reduction == "none" else ())
    if reduction == "mean":
        total = factors[picked].sum() if total_weight is None else total_weight.reshape(())
        gradient = gradient / total
    gradient = np.broadcast_to(gradient, target.shape)
    classes[counted, picked] = -(gradient[counted] * factors[picked])
    return out


def _samples(inputs: Mapping[str, Any], *known: tuple[str, Mapping[str, Any], Any, bool]) -> list[Sample]:  # fmt: skip
    """Samples that share inputs; of each, its title, its other arguments, the answer, and whether that is exact."""
    return [Sample(title, {**inputs, **others}, answer, exact) for title, others, answer, exact in known]  # fmt: skip


# Rows.


def _has_rank(row: str, name: str, expected: str, ranks: tuple[int, ...]) -> Check:
    def fault(call: Call, tensor: Tensor) -> checks.Fault:
        return None if tensor.rank in ranks else (expected, f"shape {tensor.shape}")

    return checks.of_tensors(row, f"{name} has {expected}", (name,), fault)


ROWS_CHECKS = (
    checks.dtype_in("4", "self"),
    checks.dtype_one_of("5", "target", TARGET_DTYPES),
    checks.reduction_known("6", "reduction"),
    _has_rank("7", "self", "1 or 2 dimensions", (1, 2)),
    _has_rank("8", "target", "at most 1 dimension", (0, 1)),
    _target_shape(
        "10", "target has the shape of self without classes", lambda call: call.tensor("self").shape[:-1],
        "the shape of self without its classes",
    ),
    *PLAN.shaped("11", ("weight",), COUNTED),
)  # fmt: skip
"""The checks that the loss of rows and its gradient share."""


def _per_row_or_one(row: str, name: str) -> Check:
    """(N,) for none with rows, else one element of at most one dimension."""
    return _of_targets_or_one(
        row, name, "one element, of 0 or 1 dimensions", lambda tensor: tensor.shape in ((), (1,)),
        f"{name} has target's shape (none, rows) or one element", single=True,
    )  # fmt: skip


def _no_classes(call: Call) -> str:
    return "none" if call.tensor("self").shape[-1] == 0 and not call.tensor("target").empty else ""


SHAPES = "(N, C) or (C,)", "(N,), or 0 dimensions", "(N,) for none and rows, else one element"
WEIGHTS = {"weight": (FLOAT, [0.5, 1, 2])}

declare(
    "NLLLoss", "The negative log-likelihood loss: of each row, their mean or their sum; and the total weight.",
    f"{FORMULA}\nthe mean is NaN where nothing counts, for self of one dimension too", _parameters(*SHAPES),
    (
        checks.not_null("1", "self", "target", "weight", "out", "totalWeightOut"),
        checks.same_dtype("2", "weight", "self"),
        *_castable("3", "out", "totalWeightOut"),
        *ROWS_CHECKS,
        _per_row_or_one("12", "out"),
        checks.one_element("13", "totalWeightOut"),
        checks.expect("14", "there is a class, or no target", "self", "a class at least, as target is not empty", _no_classes),
    ),
    PLAN, _reference,
    (
        Sample(
            "document",
            {"self": (FLOAT, [[0, 1, 2], [3, 4, 5]]), "target": (INT32, [0, 2]), "weight": (FLOAT, [1.1, 1.2, 1.3]), "reduction": "none"},
            ([-0.0, -6.5], 2.4),
        ),
        *_samples(
            {"self": (FLOAT, [[-1, -2, -3], [-4, -5, -6], [-7, -8, -9]]), "target": (INT64, [2, 0, 1]), **WEIGHTS},
            ("mean", {}, (16 / 3.5, 3.5), False),
            ("sum, one class ignored", {"reduction": "sum", "ignore_index": 1}, (8.0, 2.5), True),
        ),
        Sample(
            "one row, whose weight cancels", {"self": (FLOAT, [-0.75, -1.5]), "target": (INT64, 1), "weight": (FLOAT, [1, 0.1])}, (1.5, 0.1)
        ),
    ),
    module=__name__, aten="nll_loss_forward", empty=("self",),
    discrepancies=(
        Discrepancy(
            frozenset({"950"}), "ignoreIndex", "gives 0 as the mean of one row whose target is ignored, where nothing counts",
            lambda call: call.reduction == "mean" and call.tensor("self").rank == 1, ignored_targets=True,
        ),
    ),
)  # fmt: skip

declare(
    "NLLLossBackward", "Gradient of the negative log-likelihood loss with respect to the log-probabilities.",
    "out[n, t] = -gradOutput * weight[t] / (totalWeight for mean, 1 otherwise), t = target[n]\n"
    "out is 0 for every other class, and where target is ignoreIndex",
    _gradient_parameters(*SHAPES, "(C,)"),
    (
        checks.not_null("1", "gradOutput", "self", "target", "weight", "totalWeight", "out"),
        *(checks.same_dtype("2", name, "self") for name in ("weight", "gradOutput", "totalWeight")),
        *_castable("3", "out"),
        *ROWS_CHECKS,
        checks.one_element("12", "totalWeight"),
        _per_row_or_one("13", "gradOutput"),
        checks.same_shape("14", "out", "self"),
    ),
    _gradient_plan("nll_loss_backward"), _gradient_reference,
    (
        Sample(
            "document",
            {
                "grad_output": (FLOAT, [3.1, 6.5]), "self": (FLOAT, [[0, 1, 2], [3, 4, 5]]), "target": (INT64, [0, 2]),
                "weight": (FLOAT, [1.1, 1.2, 1.3]), "reduction": "none", "total_weight": (FLOAT, [0]),
            },
            [[-3.41, 0, 0], [0, 0, -8.45]],
        ),
        *_samples(
            {"self": (FLOAT, [[0, 0, 0], [0, 0, 0]]), "target": (INT64, [1, 0]), **WEIGHTS},
            ("mean, its total computed", {"grad_output": (FLOAT, 3)}, [[0, -2, 0], [-1, 0, 0]], False),
            (
                "sum, one class ignored", {"grad_output": (FLOAT, [3]), "reduction": "sum", "ignore_index": 1},
                [[0, 0, 0], [-1.5, 0, 0]], False,
            ),
        ),
        Sample(
            "one row", {"grad_output": (FLOAT, 3), "self": (FLOAT, [0, 0, 0]), "target": (INT64, 2), **WEIGHTS, "total_weight": (FLOAT, 4)},
            [0, 0, -1.5],
        ),
    ),
    ALL - {"310p"}, module=__name__, aten="nll_loss_backward", empty=("self",),
)  # fmt: skip


# Of rows and of pixels, for `openaclnn.torch` alone.


def _alone(input: Array, target: Array, reduction: str = "mean", ignore_index: int = -100) -> Array:
    loss, _ = _reference(input, target, np.ones(input.shape[1]), reduction, ignore_index)
    return np.asarray(loss)


LOSS_ALONE = inner_operator(
    "NLLLossAlone", "The negative log-likelihood loss without weights, and without the total weight, which none but its gradient asks for.", FORMULA, "nll_loss_alone",
    {"input": "full", "target": "positions"}, {"out": LOSSES}, _alone, (), (REDUCTION, IGNORED), numbers=_ignored, free=_FREE,
    order=("target", "input"), dtypes={"target": (INT64,)},
)  # fmt: skip


# Pixels.

SHAPES_2D = "(N, C, H, W)", "(N, H, W)", "(N, H, W) for none, else one element"
TARGETS = {"target": (INT64, [[[0, 2], [1, 2]]]), **WEIGHTS}

declare(
    "NLLLoss2d", "The negative log-likelihood loss per pixel: of each, their mean or their sum; and the total weight.",
    FORMULA, _parameters(*SHAPES_2D),
    (
        checks.not_null("1", "self", "target", "weight", "out", "totalWeightOut"),
        checks.dtype_in("2", "self"),
        checks.same_dtype("3", "weight", "self"),
        *_castable("4", "out", "totalWeightOut"),
        checks.dtype_one_of("5", "target", TARGET_DTYPES),
        checks.reduction_known("6", "reduction"),
        checks.rank_is("7", "self", 4),
        *PLAN.shaped("8", ("weight",), COUNTED),
        checks.rank_is("10", "target", 3),
        _pixels_match("11"),
        _of_targets_or_one(
            "12", "out", "one element unless reduction is none", lambda tensor: tensor.size == 1, "out has target's shape (none) or one element"
        ),
        checks.one_element("13", "totalWeightOut"),
    ),
    PLAN, _reference,
    (
        Sample(
            "document, whose fifth class is out of range and ignored here",
            {
                "self": (FLOAT, [[[[0.1, 1.1], [2.1, 3.1], [4.1, 5.1]], [[6.1, 7.1], [8.1, 9.1], [10.1, 11.1]]]]),
                "target": (INT32, [[[1, 0], [1, 1], [2, 1]]]), "weight": (FLOAT, [1.1, 1.2]), "reduction": "none", "ignore_index": 2,
            },
            ([[[-7.32, -1.21], [-9.72, -10.92], [0, -13.32]]], 5.9),
        ),
        *_samples(
            {"self": (FLOAT, [[[[-1, -2], [-3, -4]], [[-5, -6], [-7, -8]], [[-0.5, -1.5], [-2.5, -3.5]]]]), **TARGETS},
            ("none", {"reduction": "none"}, ([[[0.5, 3], [7, 7]]], 5.5), True),
            ("mean, one class ignored", {"ignore_index": 2}, (5.0, 1.5), True),
            ("sum", {"reduction": "sum"}, (17.5, 5.5), True),
        ),
    ),
    module=__name__, aten="nll_loss2d_forward", empty=("self",),
)  # fmt: skip

declare(
    "NLLLoss2dBackward", "Gradient of the per-pixel negative log-likelihood loss with respect to the log-probabilities.",
    "out[n, t, h, w] = -gradOutput * weight[t] / (totalWeight for mean, 1 otherwise), t = target[n, h, w]\n"
    "out is 0 for every other class, and where target is ignoreIndex",
    _gradient_parameters(*SHAPES_2D, "C elements", "aclTensor *"),
    (
        checks.not_null("1", "gradOutput", "self", "target", "weight", "out", "totalWeight"),
        checks.dtype_in("2", "self"),
        checks.same_dtype("3", "gradOutput", "self"),
        checks.same_dtype("4", "weight", "self"),
        checks.same_dtype("5", "out", "self"),
        checks.same_dtype("6", "totalWeight", "self"),
        checks.dtype_one_of("7", "target", TARGET_DTYPES),
        _of_targets_or_one(
            "8", "gradOutput", "one element, 0-d or 1-d, unless reduction is none", lambda tensor: tensor.shape in ((), (1,)),
            "gradOutput has target's shape (none) or one element",
        ),
        checks.rank_is("9", "self", 4),
        checks.rank_is("10", "target", 3),
        _pixels_match("11"),
        checks.element_count_is("12", "weight", lambda call: call.tensor("self").shape[1], "C"),
        checks.same_shape("13", "out", "self"),
        checks.one_element("14", "totalWeight"),
        checks.reduction_known("15", "reduction"),
    ),
    _gradient_plan("nll_loss2d_backward"), _gradient_reference,
    (
        Sample(
            "document",
            {
                "grad_output": (FLOAT, [[[2.7]], [[2.6]], [[2.5]]]),
                "self": (FLOAT, [[[[round(4.1 + 0.1 * (5 * n + c), 1)]] for c in range(5)] for n in range(3)]),
                "target": (INT64, [[[2]], [[3]], [[1]]]), "weight": (FLOAT, [1, 1, 1, 1, 1]), "reduction": "none", "ignore_index": -100,
                "total_weight": (FLOAT, [1]),
            },
            [
                [[[0]], [[0]], [[-2.700000047683716]], [[0]], [[0]]],
                [[[0]], [[0]], [[0]], [[-2.5999999046325684]], [[0]]],
                [[[0]], [[-2.5]], [[0]], [[0]], [[0]]],
            ],
            exact=True,
        ),
        *_samples(
            {"self": (FLOAT, [[[[0.0, 0.0], [0.0, 0.0]]] * 3]), **TARGETS},
            (
                "none", {"grad_output": (FLOAT, [[[1, 2], [3, 4]]]), "reduction": "none"},
                [[[[-0.5, 0], [0, 0]], [[0, 0], [-3, 0]], [[0, -4], [0, -8]]]], False,
            ),
            (
                "mean, one class ignored", {"grad_output": (FLOAT, [3]), "ignore_index": 2, "total_weight": (FLOAT, [1.5])},
                [[[[-1, 0], [0, 0]], [[0, 0], [-2, 0]], [[0, 0], [0, 0]]]], False,
            ),
            (
                "sum ignores the total weight",
                {"grad_output": (FLOAT, [3]), "reduction": "sum", "ignore_index": 2, "total_weight": (FLOAT, [7])},
                [[[[-1.5, 0], [0, 0]], [[0, 0], [-3, 0]], [[0, 0], [0, 0]]]], False,
            ),
        ),
    ),
    ALL - {"310p"}, module=__name__, aten="nll_loss2d_backward", empty=("self",),
)  # fmt: skip
