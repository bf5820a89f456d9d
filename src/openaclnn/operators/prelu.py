"""PReLU, a leaky ReLU with a slope for each channel that is learned, and its gradient."""

from __future__ import annotations

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Gradient, OutputSpec, Sample
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan, empty_plan
from openaclnn.core.steps import channel_plan, channel_sums_plan, channels_of
from openaclnn.core.tensor import Tensor
from openaclnn.engines.formulas import channels as formulas
from openaclnn.operators.activations import ALL
from openaclnn.operators.rows import Array, declare, widened
from openaclnn.operators.rules import promoted_dtype

SELF = Parameter("self", Kind.TENSOR, "what the function is applied to", "(N, C, ...), 0 to 8 dimensions", FLOATS)  # fmt: skip
WEIGHT = Parameter("weight", Kind.TENSOR, "the slopes below 0", "any of 1 or C elements", FLOATS)


def _one_for_each_channel(row: str) -> Check:
    """There is one slope for all, or one for each channel."""

    def fault(call: Call, weight: Tensor) -> checks.Fault:
        count = channels_of(call.tensor("self").shape)
        expected = f"1 element, or {count}, one for each channel of self"
        return None if weight.size in (1, count) else (expected, f"{weight.size}, shape {weight.shape}")  # fmt: skip

    rule = "weight has one element, or one for each channel of self"
    return checks.of_tensors(row, rule, ("weight",), fault)


def _shaped(weight: Array, x: Array) -> Array:
    """The slopes in a shape that broadcasts along axis 1."""
    return weight.reshape((-1,) + (1,) * max(x.ndim - 2, 0)) if weight.size > 1 else weight.reshape(())  # fmt: skip


def _result(call: Call) -> OutputSpec:
    dtype = promoted_dtype(call, "self", "weight")
    assert dtype is not None
    return call.tensor("self").shape, dtype


def _plan(call: Call) -> Plan:
    values, name = call.values, call.operator.name
    out, compute = ("out", values["out"]), promoted_dtype(call, "self", "weight")
    if out[1].empty:
        return empty_plan(name, out)
    assert compute is not None
    tensor, weight = ((each, values[each]) for each in ("self", "weight"))
    return channel_plan(name, formulas.prelu.name, compute, tensor, weight, out)


@widened
def reference(self: Array, weight: Array) -> Array:
    return np.where(self > 0, self, _shaped(weight, self) * self)


declare(
    "Prelu", "x where it is positive, a multiple of it elsewhere, by a slope for each channel.",
    "out[n, c, ...] = self > 0 ? self : weight[c] * self",
    (SELF, WEIGHT, Parameter("out", Kind.OUTPUT, "the result", "same as self", FLOATS)),
    (
        checks.not_null("1", "self", "weight", "out"),
        checks.dtype_in("2", "self", "weight", "out"),
        # These dtypes promote and convert to each other, so that the document's next rule cannot be broken.
        checks.rank_at_most("3", "self", "weight", "out"),
        checks.same_shape("4", "out", "self"),
        _one_for_each_channel("5"),
    ),
    _plan, reference,
    (
        Sample(
            "a slope for each channel",
            {"self": (FLOAT, [[-1, 2, -3], [4, -5, 6]]), "weight": (FLOAT, [0.1, 0.2, 0.3])},
            [[-0.1, 2, -0.9], [4, -1, 6]],
        ),
    ),
    result=_result, gradient=Gradient("aclnnPreluBackward"), module=__name__, empty=("self",),
)  # fmt: skip

BACKWARD = ("gradOutput", "self", "weight", "gradInput", "gradWeight")


def _gradient_shapes(call: Call) -> tuple[tuple[int, ...], ...]:
    weight = call.tensor("weight")
    in_a_row = weight.rank == 1 or weight.size == 1
    return (weight.shape,) if in_a_row else (weight.shape, (weight.size,))


def _results(call: Call) -> tuple[OutputSpec, ...]:
    return tuple(
        [(call.tensor(each).shape, call.tensor(each).dtype) for each in ("self", "weight")]
    )


def _backward_plan(call: Call) -> Plan:
    gradient, x, weight, by_input, by_weight = ((each, call.values[each]) for each in BACKWARD)
    name = call.operator.name
    if x[1].empty:
        return empty_plan(name, by_input)
    kernels = (
        formulas.prelu_backward.name,
        formulas.prelu_backward_total.name,
        formulas.added_up.name,
    )
    return channel_sums_plan(name, kernels, [gradient, x], weight, by_input, by_weight)


@widened
def reference_backward(grad_output: Array, self: Array, weight: Array) -> tuple[Array, Array]:
    x, gradient = self, np.broadcast_to(grad_output, self.shape)
    parts = np.where(x > 0, 0, gradient * x)
    others = tuple(axis for axis in range(x.ndim) if axis != 1 or weight.size == 1)
    by_weight = np.asarray(parts.sum(axis=others)).reshape(weight.shape)
    return np.where(x > 0, gradient, gradient * _shaped(weight, x)), by_weight


declare(
    "PreluBackward", "Gradients of PReLU with respect to its input and its slopes.",
    "gradInput = self > 0 ? gradOutput : gradOutput * weight[c]\n"
    "gradWeight[c] = sum over all n, ... of (self > 0 ? 0 : gradOutput * self); over all of it for one weight",
    (
        Parameter("gradOutput", Kind.TENSOR, "gradient of the result", "broadcasts to self", FLOATS),
        SELF,
        WEIGHT,
        Parameter("gradInput", Kind.OUTPUT, "gradient of self", "same as self", FLOATS),
        Parameter("gradWeight", Kind.OUTPUT, "gradient of the slopes", "same as weight, or (C,)", FLOATS),
    ),
    (
        checks.not_null("1", *BACKWARD),
        checks.dtype_in("2", "self"),
        *(checks.same_dtype("3", each, "self") for each in BACKWARD if each != "self"),
        checks.rank_at_most("4", *BACKWARD),
        checks.same_shape("5", "gradInput", "self"),
        _one_for_each_channel("6"),
        checks.shape_is("7", "gradWeight", _gradient_shapes, "of weight, or (C,)"),
        checks.broadcasts_to("8", "gradOutput", lambda call: call.tensor("self").shape, "the shape of self"),
    ),
    _backward_plan, reference_backward,
    (
        Sample(
            "a slope for each channel",
            {
                "grad_output": (FLOAT, [[1, 2, 3], [4, 5, 6]]), "self": (FLOAT, [[-1, 2, -3], [4, -5, 6]]),
                "weight": (FLOAT, [0.1, 0.2, 0.3]),
            },
            ([[0.1, 2, 0.9], [4, 1, 6]], [-1, -25, -9]),
        ),
    ),
    ALL - {"310p"}, result=_results, module=__name__, empty=("self",),
)  # fmt: skip
