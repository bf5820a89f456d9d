"""The absolute difference, plain and with a parabola where it is small, and the gradients of both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check, Violation
from openaclnn.core.declare import ROW_MAJOR, Discrepancy, Sample
from openaclnn.core.dtypes import FLOAT, FLOATS, INT64
from openaclnn.core.interface import Kind, Parameter
from openaclnn.engines.formulas import l1_loss as formulas
from openaclnn.operators import rules
from openaclnn.operators.losses import GRADIENT, PAIR, REDUCED, SCALE, declare, gradient_of
from openaclnn.operators.workloads.words import KernelForm


def _broadcast_shape(operator: Any, row: str) -> list[Check]:
    return [checks.output_shape(row, operator.output.name, operator.read)]


def _floating_enough(call: Call) -> Violation | None:
    dtype, target = (call.tensor(name).dtype for name in PAIR)
    if dtype.kind == "floating":
        return None
    if call.reduction == "none" and target.kind == "floating":
        expected = f"a floating dtype like target's, {target}, for reduction none"
        return Violation("self", expected, dtype.name)
    if call.reduction == "mean" and target.kind != "floating":
        expected = "a floating dtype for reduction mean"
        return Violation("self, target", expected, f"{dtype}, {target}")
    return None


def _loss_shape(call: Call) -> tuple[int, ...]:
    return rules.value_shape(call) if call.reduction == "none" else ()


PAIRS: dict[str, Any] = {"self": (FLOAT, [[0, 1], [2, 3]]), "target": (FLOAT, [[1, 1], [1, 1]])}
HALVES: dict[str, Any] = {"self": (FLOAT, [[1], [4]]), "target": (FLOAT, [[2, 4, 0.5]])}
PREDICT = {"predict": "self", "label": "target"}

declare(
    "L1Loss", "The absolute error: of each element, their mean or their sum.", "l = |self - target|" + REDUCED, formulas.l1_loss,
    lambda x, y: np.abs(x - y),
    (
        Sample("document", PAIRS, 1.0, exact=True),
        Sample("none", {**PAIRS, "reduction": "none"}, [[1, 0], [1, 2]], exact=True),
        Sample("outer, sum", {**HALVES, "reduction": "sum"}, 10.0, exact=True),
        Sample("outer, mean", {**HALVES, "reduction": "mean"}, 1.6666666666666667),
    ),
    (
        rules.not_null(), rules.reduction,
        lambda operator, row: [checks.value_check(
            row, "a floating self for none beside a floating target; for mean, one of the two floating", _floating_enough
        )],
        rules.common(), rules.supported(INT64), rules.converts(), rules.rank("self", "target"), rules.broadcasts,
        rules.output_shape(_loss_shape, "that of the inputs broadcast if reduction is none, otherwise 0 dimensions"),
    ),
    inputs=PAIR, accepts=(*FLOATS, INT64), shape="the broadcast shape for none, else 0 dimensions", peer="l1_loss",
    kernels=(KernelForm("lp_loss", PREDICT, only={"p": 1}),), gradient=gradient_of("aclnnL1LossBackward"),
    trained="l1_loss",
)  # fmt: skip


# PyTorch has no such operator: these are the expression that its autograd evaluates, allocating and into `out`.


def _scaled(gradient: Any, x: Any, reduction: str) -> Any:
    return gradient * (1.0 / max(x.numel(), 1)) if reduction == "mean" else gradient


def _torch_backward(torch: Any, gradient: Any, x: Any, y: Any, reduction: str) -> Any:
    return torch.sign(x - y) * _scaled(gradient, x, reduction)


def _torch_backward_into(
    torch: Any, gradient: Any, x: Any, y: Any, reduction: str, out: Any
) -> Any:
    torch.sub(x, y, out=out)
    torch.sign(out, out=out)
    return torch.mul(out, _scaled(gradient, x, reduction), out=out)


SQUARE: dict[str, Any] = {
    "self": (FLOAT, [[1, 5], [3, 3]]),
    "target": (FLOAT, [3, 3]),
    "grad_output": (FLOAT, [2]),
}
OUTER: dict[str, Any] = {
    "self": (FLOAT, [[1], [4]]),
    "target": (FLOAT, [[2, 4, 0]]),
    "grad_output": (FLOAT, 6),
}

# The derivative of |self - target| is the sign of the difference. The sign comes from two comparisons, not from a
# subtraction: Inf against Inf and NaN give 0, and 0 * gradient follows IEEE.
declare(
    "L1LossBackward", "Gradient of the mean absolute error with respect to the predictions.",
    "gradInput = sign(self - target) * gradOutput * k" + SCALE + "; sign is 0 for ties and NaN", formulas.l1_loss_backward,
    lambda g, x, y: ((x > y).astype(g.dtype) - (x < y).astype(g.dtype)) * g,
    (
        Sample(
            "document", {"grad_output": (FLOAT, [[0, 1], [2, 3]]), **PAIRS, "reduction": "mean"}, [[-0.0, 0.0], [0.5, 0.75]],
            exact=True,
        ),
        Sample("row target", {**SQUARE, "reduction": "none"}, [[-2, 2], [0, 0]]),
        Sample("row target, mean", {**SQUARE, "reduction": "mean"}, [[-0.5, 0.5], [0, 0]]),
        Sample("outer", {**OUTER, "reduction": "none"}, [[-6, -6, 6], [6, 0, 6]]),
        Sample("outer, mean", {**OUTER, "reduction": "mean"}, [[-1, -1, 1], [1, 0, 1]]),
    ),
    (
        rules.not_null(), rules.reduction, rules.common("gradOutput", "self"), rules.common(), rules.converts(), rules.supported(),
        rules.rank("self", "target", "gradOutput", "gradInput"), lambda operator, row: [checks.broadcastable(row, "self", "gradOutput")],
        lambda operator, row: [checks.broadcastable(row, "self", "gradOutput", "target")], _broadcast_shape,
    ),
    inputs=GRADIENT, output="gradInput", peer=_torch_backward, peer_into=_torch_backward_into,
    kernels=(KernelForm("l1_loss_grad", {"grads": "gradOutput", **PREDICT}),),
)  # fmt: skip

BETA = Parameter("beta", Kind.FLOAT, "where the loss turns linear, >= 0", default=1.0)
BOUNDS = {"beta": (0.0, math.inf)}
SIGMA = {"sigma": "beta"}


def _beta(operator: Any, row: str) -> list[Check]:
    # NaN fails too.
    return [checks.expect(row, "beta >= 0", "beta", ">= 0", lambda call: "" if call["beta"] >= 0 else str(call["beta"]))]  # fmt: skip


def _result_shape(operator: Any, row: str) -> list[Check]:
    def shapes(call: Call) -> tuple[tuple[int, ...], ...]:
        return (rules.value_shape(call),) if call.reduction == "none" else ((1,), ())

    text = "that of the inputs broadcast if reduction is none, otherwise one element"
    return [checks.shape_is(row, "result", shapes, text)]


# No difference is smaller than a beta of 0, which leaves the plain absolute difference.
def _smooth(x: Any, y: Any, beta: Any) -> Any:
    size, half = np.abs(x - y), x.dtype.type(0.5)
    return np.where(size < beta, half * size * size / beta, size - half * beta)


ONES: dict[str, Any] = {
    "self": (FLOAT, np.ones((2, 2, 7, 7)).tolist()),
    "target": (FLOAT, np.ones((2, 2, 7, 7)).tolist()),
}
LINE: dict[str, Any] = {
    "self": (FLOAT, [-3, -0.5, 0, 0.25, 2]),
    "target": (FLOAT, [0, 0, 0, 0, 0]),
}

# Two of the three listed types always have a listed common type, which converts to every floating output.
declare(
    "SmoothL1Loss", "The smooth L1 (Huber-like) loss: of each element, their mean or their sum.",
    "d = |self - target|; l = d * d / (2 * beta) if d < beta, d - beta / 2 otherwise" + REDUCED.replace("out", "result"),
    formulas.smooth_l1_loss, _smooth,
    (
        Sample("document", {**ONES, "reduction": "none"}, np.zeros((2, 2, 7, 7)).tolist(), exact=True),
        Sample("beta 0.5", {**LINE, "reduction": "none", "beta": 0.5}, [2.75, 0.25, 0, 0.0625, 1.75], exact=True),
        Sample("beta 0, sum", {**LINE, "reduction": "sum", "beta": 0.0}, 5.75, exact=True),
        Sample("beta 1, mean", LINE, 0.83125),
    ),
    (
        rules.not_null(), rules.dtypes("self", "target"),
        rules.at_row("4", lambda operator, row: [
            checks.castable(row, "result", lambda call: call.tensor("self").dtype, "the promoted dtype")
        ]),
        rules.reduction, rules.rank("self", "target"), rules.broadcasts, _result_shape, rules.at_row("10", _beta),
    ),
    inputs=PAIR, options=(BETA,), bounds=BOUNDS, output="result", shape="the broadcast shape for none, else one element",
    aten="smooth_l1_loss", kernels=(KernelForm("smooth_l1_loss_v2", PREDICT, SIGMA),),
    gradient=gradient_of("aclnnSmoothL1LossBackward"), trained="smooth_l1_loss",
)  # fmt: skip


# Of d = self - target the derivative is d / beta inside and sign(d) from the tie on; beta = 0 leaves the plain sign, with sign(0) = 0.
def _smooth_backward(g: Any, x: Any, y: Any, beta: Any) -> Any:
    difference = x - y
    inside = np.abs(difference) < beta
    return np.where(inside, difference / beta, np.sign(difference)) * g


SLOPES: dict[str, Any] = {
    "grad_out": (FLOAT, [1, 2, 3, 4, 5]),
    "self": (FLOAT, [-3, -0.5, 0, 0.5, 2]),
    "target": (FLOAT, [0, 0, 0, 0, 0]),
}

# The promotion of three listed types always exists, is listed and converts to the listed output, so
# the document's rows 6 to 8 cannot fail after row 2 and are not repeated here.
declare(
    "SmoothL1LossBackward", "Gradient of the smooth L1 (Huber-like) loss with respect to the predictions.",
    "d = self - target; u = d / beta if |d| < beta, sign(d) otherwise\n"
    "gradInput = u * gradOut * k;  k = 1 / (number of output elements) for mean, 1 otherwise",
    formulas.smooth_l1_loss_backward, _smooth_backward,
    (
        Sample(
            "document",
            {
                "grad_out": (FLOAT, [[1, 1]] * 4), "self": (FLOAT, [[0, 1], [2, 3], [4, 5], [6, 7]]), "target": (FLOAT, [[1, 1]] * 4),
                "reduction": "none",
            },
            [[-1, 0], [1, 1], [1, 1], [1, 1]], exact=True,
        ),
        Sample("beta 0.5", {**SLOPES, "reduction": "none", "beta": 0.5}, [-1, -2, 0, 4, 5]),
        Sample("beta 2", {**SLOPES, "reduction": "none", "beta": 2.0}, [-1, -0.5, 0, 1, 5]),
        Sample("beta 0", {**SLOPES, "reduction": "none", "beta": 0.0}, [-1, -2, 0, 4, 5]),
        Sample("one gradient, mean", {**SLOPES, "grad_out": (FLOAT, 10)}, [-2, -1, 0, 1, 2]),
        Sample(
            "broadcast, mean over the broadcast count",
            {"grad_out": (FLOAT, 6), "self": (FLOAT, [0, 1, 4]), "target": (FLOAT, [[0.5], [2]])}, [[-0.5, 0.5, 1], [-1, -1, 1]],
        ),
    ),
    (
        rules.not_null(), rules.dtypes("gradOut", "self", "target", "gradInput"), rules.rank("gradOut", "self", "target"), rules.reduction, _beta,
        rules.at_row("9", rules.broadcasts), _broadcast_shape,
    ),
    inputs={"gradOut": "gradient of the loss", **PAIR}, options=(BETA,), bounds=BOUNDS, output="gradInput", aten="smooth_l1_loss_backward", aten_traits=(ROW_MAJOR,),
    kernels=(KernelForm("smooth_l1_loss_grad_v2", {**PREDICT, "dout": "gradOut"}, SIGMA),),
    discrepancies=(
        Discrepancy(
            frozenset({"950"}), "self", "divides a mean by self's count of elements, not by that of the broadcast",
            lambda call: call.reduction == "mean" and call.tensor("self").size != call.tensor("gradInput").size,
        ),
    ),
)  # fmt: skip
