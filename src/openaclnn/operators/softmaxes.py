"""Softmax, log-softmax and their gradients: rows along an axis of tensors of one shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Gradient, Sample
from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.interop import view_memory
from openaclnn.engines.formulas import softmax as formulas
from openaclnn.operators.activations import ALL
from openaclnn.operators.rows import Array, Rows, declare, widened

DTYPES = (*FLOATS, DOUBLE)
AXIS = "the axis that a row lies along, -rank to rank - 1"
PARAMETERS = (
    Parameter("self", Kind.TENSOR, "what it is applied to", "0 to 8 dimensions", DTYPES),
    Parameter("dim", Kind.INT64, AXIS, default=-1, axis="self"),
    Parameter("out", Kind.OUTPUT, "the result", "same as self", DTYPES),
)
INPUTS = ("gradOutput", "output")
GRADIENT_PARAMETERS = (
    Parameter("gradOutput", Kind.TENSOR, "gradient of the result", "0 to 8 dimensions", FLOATS),
    Parameter("output", Kind.TENSOR, "the forward's result", "same as gradOutput", FLOATS),
    Parameter("dim", Kind.INT64, AXIS, default=-1, axis="gradOutput"),
    Parameter("out", Kind.OUTPUT, "gradient of the forward's input", "same as gradOutput", DTYPES),
)


def _gradient_checks(nulls: tuple[str, ...], axis: str, rank: int) -> tuple[Check, ...]:
    """The rules of the gradients, whose documents differ in the order of tensors, and in which row is the axis's; rank and shapes
    are three from a row on. They list no dtypes of out: it is whatever the computed type converts to."""
    rules = [
        checks.dtype_in("2", *INPUTS),
        checks.same_dtype("3", "output", "gradOutput"),
        checks.axis_in_range(axis, "dim", "gradOutput"),
        checks.rank_at_most(f"{rank}", *INPUTS, "out"),
        checks.same_shape(f"{rank + 1}", "output", "gradOutput"),
        checks.same_shape(f"{rank + 2}", "out", "gradOutput"),
        checks.castable(
            "8", "out", lambda call: call.tensor("gradOutput").dtype, "gradOutput's dtype"
        ),
    ]
    ordered = sorted(rules, key=lambda rule: rule.row)
    return (checks.not_null("1", *nulls), *checks.unless_empty(INPUTS, *ordered, heeded_on=("950",)))  # fmt: skip


# e^(x - max) / sum: the largest value is subtracted from all, which changes no share, so that no power overflows.
# A row with NaN or +Inf, or of -Inf alone, has no shares: Inf - Inf is NaN, and so is all that is divided by the sum.
@widened
def softmax(self: Array, dim: int = -1) -> Array:
    powers = np.exp(_below_largest(self, dim))
    shares = powers / powers.sum(axis=dim, keepdims=True)
    return np.asarray(shares.reshape(self.shape))


# log(e^(x - max) / sum) = x - max - log(sum): no power overflows, and none that is lost matters.
@widened
def log_softmax(self: Array, dim: int = -1) -> Array:
    shifted = _below_largest(self, dim)
    whole = np.exp(shifted).sum(axis=dim, keepdims=True)
    return np.asarray((shifted - np.log(whole)).reshape(self.shape))


def _below_largest(x: Array, dim: int) -> Array:
    rows = np.atleast_1d(x)
    return np.asarray(rows - rows.max(axis=dim, keepdims=True, initial=-np.inf))


# Forward: y = e^x / sum. The derivative of y_i by x_j is y_i * (i = j) - y_i * y_j, so that row j of the gradient is
# g_j * y_j - y_j * (sum over i of g_i * y_i): the result is all that it needs.
@widened
def _softmax_backward(grad_output: Array, output: Array, dim: int = -1) -> Array:
    g, y = np.atleast_1d(grad_output, output)
    if not (g.size and y.size):
        return np.asarray(g)
    return np.asarray(g * y - y * (g * y).sum(axis=dim, keepdims=True)).reshape(grad_output.shape)


# Forward: y = x - log(sum of e^x). The derivative of y_i by x_j is (i = j) - e^y_j, so that row j of the gradient is
# g_j - e^y_j * (sum over i of g_i).
@widened
def _log_softmax_backward(grad_output: Array, output: Array, dim: int = -1) -> Array:
    g, y = np.atleast_1d(grad_output, output)
    if not (g.size and y.size):
        return np.asarray(g)
    return np.asarray(g - np.exp(y) * g.sum(axis=dim, keepdims=True)).reshape(grad_output.shape)


declare(
    "Softmax", "The exponentials along an axis, as shares of their sum.",
    "out = exp(x - m) / (sum over the row of exp(x - m)), x = self, m = the largest x of the row, which lies along dim",
    PARAMETERS,
    (
        checks.not_null("1", "self", "out"),
        *checks.unless_empty(
            ("self",),
            checks.dtype_in("2", "self", "out", more=(DOUBLE,)),
            checks.axis_in_range("3", "dim", "self"),
            checks.rank_at_most("4", "self"),
            checks.same_shape("5", "out", "self"),
        ),
    ),
    Rows(formulas.softmax.name, "self", {"self": "full"}, {"out": "full"}), softmax,
    (
        Sample(
            "a row",
            {"self": (FLOAT, [[1, 2, 3], [2, 2, 2]])},
            [[0.09003057317038046, 0.24472847105479767, 0.6652409557748218], [1 / 3, 1 / 3, 1 / 3]],
        ),
        Sample(
            "columns",
            {"self": (FLOAT, [[1, 0], [2, 0], [3, float("-inf")]]), "dim": 0},
            [[0.09003057317038046, 0.5], [0.24472847105479767, 0.5], [0.6652409557748218, 0.0]],
        ),
        Sample("one number is its own row", {"self": (FLOAT, -7)}, 1.0, exact=True),
    ),
    ALL | {"310b"}, module=__name__, aten="_softmax", gradient=Gradient("aclnnSoftmaxBackward", {"output": "out"}), empty=("self",),
)  # fmt: skip


def _converted(call: Call) -> dict[str, Any]:
    """What the reference is to see: self as the operator converts it, where out has another dtype."""
    if not call.has_tensor("out") or call.tensor("out").dtype is call.tensor("self").dtype:
        return {}
    with np.errstate(over="ignore"):
        return {"self": view_memory(call.tensor("self")).astype(call.tensor("out").dtype.numpy)}


# Computed in the dtype of out: self is converted to it first. Whatever dtypes are listed convert to each other: the document's row on that
# breaks for none.
declare(
    "LogSoftmax", "The logarithms of softmax's shares along an axis.",
    "out = x - m - log(sum over the row of exp(x - m)), x = self, m = the largest x of the row, which lies along dim",
    PARAMETERS,
    (
        checks.not_null("1", "self", "out"),
        checks.axis_in_range("2", "dim", "self"),
        checks.dtype_in("3", "self", "out", more=(DOUBLE,)),
        checks.rank_at_most("4", "self"),
        checks.same_shape("5", "out", "self"),
    ),
    Rows(formulas.log_softmax.name, "self", {"self": "full"}, {"out": "full"}, compute="out"), log_softmax,
    (
        Sample(
            "a row",
            {"self": (FLOAT, [[1, 2, 3], [2, 2, 2]])},
            [[-2.4076059644443806, -1.4076059644443806, -0.4076059644443806], [-1.0986122886681098] * 3],
        ),
        Sample(
            "columns",
            {"self": (FLOAT, [[1, 0], [2, 0], [3, 0]]), "dim": 0},
            [[-2.4076059644443806, -1.0986122886681098], [-1.4076059644443806, -1.0986122886681098],
             [-0.4076059644443806, -1.0986122886681098]],
        ),
        Sample("one number is its own row", {"self": (FLOAT, -7)}, 0.0, exact=True),
    ),
    header_name="logsoftmax", module=__name__, aten="_log_softmax", gradient=Gradient("aclnnLogSoftmaxBackward", {"output": "out"}),
    seen_by_reference=_converted, empty=("self",),
)  # fmt: skip


def _gradient_plan(kernel: str) -> Rows:
    return Rows(kernel, "gradOutput", dict.fromkeys(INPUTS, "full"), {"out": "full"})


declare(
    "SoftmaxBackward", "Gradient of softmax with respect to its input, from its result.",
    "out = gradOutput * output - output * (sum over the row of gradOutput * output); rows lie along dim",
    GRADIENT_PARAMETERS, _gradient_checks((*INPUTS, "out"), axis="4", rank=5),
    _gradient_plan(formulas.softmax_backward.name), _softmax_backward,
    (
        Sample(
            "a row",
            {
                "grad_output": (FLOAT, [1, 0, 2]),
                "output": (FLOAT, [0.09003057317038046, 0.24472847105479767, 0.6652409557748218]),
            },
            [-0.037858980024644634, -0.3476398484997831, 0.38549882852442785],
        ),
        Sample(
            "columns",
            {"grad_output": (FLOAT, [[1, 4], [3, 4]]), "output": (FLOAT, [[0.25, 0.5], [0.75, 0.5]]), "dim": 0},
            [[-0.375, 0], [0.375, 0]],
            exact=True,
        ),
    ),
    module=__name__, aten="_softmax_backward_data", empty=INPUTS,
)  # fmt: skip

declare(
    "LogSoftmaxBackward", "Gradient of log-softmax with respect to its input, from its result.",
    "out = gradOutput - exp(output) * (sum over the row of gradOutput); rows lie along dim",
    GRADIENT_PARAMETERS, _gradient_checks(("output", "gradOutput", "out"), axis="7", rank=4),
    _gradient_plan(formulas.log_softmax_backward.name), _log_softmax_backward,
    (
        Sample(
            "a row",
            {
                "grad_output": (FLOAT, [1, 0, -0.5]),
                "output": (FLOAT, [-2.4076059644443806, -1.4076059644443806, -0.4076059644443806]),
            },
            [0.9549847134148097, -0.12236423552739879, -0.8326204778874109],
        ),
        Sample(
            "columns",
            {"grad_output": (FLOAT, [[1, -2], [3, 2]]), "output": (FLOAT, [[0, -1], [float("-inf"), 7]]), "dim": 0},
            [[-3, -2], [3, 2]],
            exact=True,
        ),
    ),
    header_name="logsoftmax_backward", module=__name__, aten="_log_softmax_backward_data", empty=INPUTS,
)  # fmt: skip
