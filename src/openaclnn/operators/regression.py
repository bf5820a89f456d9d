"""Losses of differences and of margins, and their gradients: the squared error and the soft margin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.declare import ROW_MAJOR, Gradient, OutputSpec, Sample
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import (
    Plan,
    broadcast_view,
    class_plan,
    elementwise_plan,
    empty_plan,
    filling_plan,
)
from openaclnn.engines.formulas import losses as formulas
from openaclnn.operators import rules
from openaclnn.operators.activations import ALL, NOT_310P
from openaclnn.operators.losses import GRADIENT, PAIR, REDUCED, SCALE, SWAPPED, declare, gradient_of
from openaclnn.operators.workloads.words import KernelForm

SQUARE: dict[str, Any] = {
    "self": (FLOAT, [[0.5, -1], [2, 0]]),
    "target": (FLOAT, [[1, 1], [0, -2]]),
}
OUTER: dict[str, Any] = {
    "self": (FLOAT, [[1], [4]]),
    "target": (FLOAT, [[2, 0, 4]]),
    "grad_output": (FLOAT, 3),
}
PREDICT = {"predict": "self", "label": "target"}

declare(
    "MseLoss", "The squared error: of each element, their mean or their sum.", "l = (self - target)^2" + REDUCED, formulas.mse_loss,
    lambda x, y: (x - y) ** 2,
    (
        Sample("worked values", {**SQUARE, "reduction": "none"}, [[0.25, 4], [4, 4]], exact=True),
        Sample("mean", SQUARE, 3.0625, exact=True),
        Sample("sum", {**SQUARE, "reduction": "sum"}, 12.25, exact=True),
    ),
    (
        rules.not_null(), rules.promotes(), rules.dtypes("self", "target", "out"), rules.reduction, rules.rank("self", "target"),
        rules.broadcasts, rules.mean_or_sum(()),
    ),
    inputs=PAIR, shape="the broadcast shape for none, else 0 dimensions", aten="mse_loss",
    kernels=(KernelForm("mse_loss", PREDICT), KernelForm("mse_loss_v2", {"input": "self", "target": "target"})),
    gradient=gradient_of("aclnnMseLossBackward"),
)  # fmt: skip


# This form reduces along the first axis alone, after the squares are rounded to the common dtype.


def _rows_shape(call: Call) -> tuple[int, ...]:
    shape = rules.value_shape(call)
    return shape if call.reduction == "none" else shape[1:]


def _rows_result(call: Call) -> OutputSpec:
    dtype = rules.promoted_dtype(call, "self", "target")
    assert dtype is not None
    return _rows_shape(call), dtype


def _rows_plan(call: Call) -> Plan:
    name, written = call.operator.name, ("out", call.tensor("out"))
    shape, reduction = rules.value_shape(call), call.reduction
    dtype = rules.promoted_dtype(call, "self", "target")
    assert dtype is not None
    tensors = [(each, call.tensor(each)) for each in ("self", "target")]
    if 0 in shape and (reduction == "none" or written[1].empty):
        return empty_plan(name, written)
    if 0 in shape:
        return filling_plan(name, (*written, math.nan if reduction == "mean" else 0.0))
    if reduction == "none":
        return elementwise_plan(name, formulas.mse_loss.name, dtype, tensors, written, {})
    shape = shape or (1,)
    views = [(each, broadcast_view(tensor, shape), "full") for each, tensor in tensors]
    return class_plan(
        name, formulas.mse_loss_rows.name, dtype, views, [(*written, "positions")], shape, 0, -1, {"mean": reduction == "mean"}
    )  # fmt: skip


def _rows_reduced(operator: Any, losses: Any, reduction: str, arrays: Any) -> Any:
    if reduction == "none":
        return losses
    rows = losses.reshape(losses.shape or (1,))
    return rows.sum(axis=0) / losses.dtype.type(len(rows) if reduction == "mean" else 1)


def _torch_rows(torch: Any, x: Any, y: Any, reduction: str) -> Any:
    losses = torch.ops.aten.mse_loss(x, y, 0)
    return losses if reduction == "none" else getattr(losses, reduction)(0)


declare(
    "MseLossOut", "The squared error: of each element, or their mean or sum along the first axis.",
    "l = (self - target)^2\nout = l for none, sum(l) / n along the first axis, of n elements, for mean, sum(l) along it for sum", formulas.mse_loss,
    lambda x, y: (x - y) ** 2,
    (
        Sample("worked values", SQUARE, [2.125, 4], exact=True),
        Sample("sum", {**SQUARE, "reduction": "sum"}, [4.25, 8], exact=True),
        Sample("none", {**SQUARE, "reduction": "none"}, [[0.25, 4], [4, 4]], exact=True),
    ),
    (
        rules.not_null(), rules.promotes(), rules.dtypes("self", "target", "out"), rules.reduction, rules.rank("self", "target"), rules.broadcasts,
        rules.output_shape(_rows_shape, "the broadcast one, without its first axis for mean and sum"),
    ),
    inputs=PAIR, shape="the broadcast shape, without its first axis for mean and sum", peer=_torch_rows, plan=_rows_plan, result=_rows_result,
    reduced=_rows_reduced,
)  # fmt: skip


# The mean counts the elements of self before it is broadcast. PyTorch's loss expands self first, so that its derivative counts more.
declare(
    "MseLossBackward", "Gradient of the squared error with respect to the predictions.",
    "out = (self - target) * k * gradOutput\nk = 2 / (number of elements of self, before it is stretched) for mean, 2 for none and sum",
    formulas.mse_loss_backward, lambda g, x, y: 2 * (x - y) * g,
    (
        Sample("worked values", {**SQUARE, "grad_output": (FLOAT, 3)}, [[-0.75, -3], [3, 3]], exact=True),
        Sample("outer, mean over the elements of self", OUTER, [[-3, 3, -9], [6, 12, 0]], exact=True),
    ),
    (
        rules.not_null(), rules.same_dtype("self", "gradOutput", "target"), rules.dtypes("self", "out"), rules.reduction,
        rules.rank("gradOutput", "self", "target"), rules.broadcast,
    ),
    inputs=GRADIENT, families=ALL - {"910"}, mean_of="self", aten="mse_loss_backward", aten_traits=(ROW_MAJOR,),
    kernels=tuple(KernelForm(name, {**PREDICT, "dout": "gradOutput"}) for name in ("mse_loss_grad", "mse_loss_grad_v2")),
)  # fmt: skip

MARGINS: dict[str, Any] = {
    "self": (FLOAT, [0.5, -2, 100, -100]),
    "target": (FLOAT, [1, -1, -1, 1]),
}


def _soft_margin(x: Any, y: Any) -> Any:
    z = x * y
    return np.maximum(-z, 0) + np.log1p(np.exp(-np.abs(z)))


def _soft_margin_backward(g: Any, x: Any, y: Any) -> Any:
    z = x * y
    e = np.exp(-np.abs(z))
    return -y * np.where(z >= 0, e, 1) / (1 + e) * g


# PyTorch's exponentials overflow from 88.7 on, where its gradient is NaN; numbers drawn for comparisons with it stay below.
declare(
    "SoftMarginLoss", "The logistic loss of two classes, -1 and 1: of each element, their mean or their sum.",
    "z = self * target; l = max(0, -z) + log1p(exp(-|z|))" + REDUCED + ", and for any other number", formulas.soft_margin_loss, _soft_margin,
    (
        Sample("worked values", {**MARGINS, "reduction": "none"}, [0.47407698418010663, 0.12692801104297263, 100, 100]),
        Sample("mean", MARGINS, 50.15025124880577),
    ),
    (rules.not_null(), rules.dtypes("self", "target", "out"), rules.rank("self", "target"), rules.broadcasts, rules.mean_or_sum(()), rules.reduction),
    inputs=PAIR, shape="the broadcast shape for none, else 0 dimensions", unknown_reduction="sum", peer="soft_margin_loss",
    kernels=(KernelForm("soft_margin_loss", {"self": "self", "target": "target"}),),
    gradient=Gradient("aclnnSoftMarginLossBackward", others={"target": Gradient("aclnnSoftMarginLossBackward", SWAPPED)}),
)  # fmt: skip

declare(
    "SoftMarginLossBackward", "Gradient of the soft margin loss with respect to the predictions.",
    "e = exp(-self * target); out = -target * e / (1 + e) * gradOutput * k" + SCALE, formulas.soft_margin_loss_backward, _soft_margin_backward,
    (
        Sample(
            "worked values", {"grad_output": (FLOAT, [1, 1, 1, 1]), **MARGINS, "reduction": "none"},
            [-0.3775406687981454, 0.11920292202211757, 1, -1],
        ),
    ),
    (
        rules.not_null(), rules.dtypes("gradOutput", "self", "target", "out"), rules.rank("gradOutput", "self", "target"), rules.broadcast,
        rules.reduction,
    ),
    inputs=GRADIENT, families=NOT_310P, peer="soft_margin_loss_backward",
    kernels=(KernelForm("soft_margin_loss_grad", {**PREDICT, "dout": "gradOutput"}),),
)  # fmt: skip
