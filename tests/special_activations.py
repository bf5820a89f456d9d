"""What activations make of NaN, infinity, signed zeros, the ends of their pieces, and numbers out of the ordinary."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import openaclnn
import special_losses
from conftest import plain
from openaclnn.core.dtypes import DType

inf, nan = np.inf, np.nan
BEYOND = 3e38
"""A finite number near the largest that FLOAT and BFLOAT16 have; infinite in FLOAT16."""
ENDS = [nan, inf, -inf, 0.0, -0.0]

APPLIED_TO = ("self", "input", "x", "output", "result")

CASES: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("relu", {}, [*ENDS, -2], [nan, inf, 0, 0, 0, 0]),
    ("squared_relu", {}, [*ENDS, 3], [nan, inf, 0, 0, 0, 9]),
    ("add_relu", {"other": -1.0}, [*ENDS, 1, 3], [nan, inf, 0, 0, 0, 0, 2]),
    ("add_relu", {"other": 1.0, "alpha": nan}, [inf, 0], [nan, nan]),
    ("leaky_relu", {"negative_slope": nan}, [*ENDS, 2, -2], [nan, inf, nan, nan, nan, 2, nan]),
    ("leaky_relu", {"negative_slope": inf}, [*ENDS, 2, -2], [nan, inf, -inf, nan, nan, 2, -inf]),
    ("leaky_relu", {"negative_slope": -0.5}, [*ENDS, 2, -2], [nan, inf, inf, -0.0, 0, 2, 1]),
    ("leaky_relu_backward", {"negative_slope": 0.5}, [*ENDS, 2], [1, 2, 1, 1, 1, 2]),
    ("leaky_relu_backward", {"negative_slope": nan}, [nan, 0, 2], [nan, nan, 2]),
    ("threshold", {"threshold": 0.5, "value": 9.0}, [*ENDS, 0.5, 0.75], [nan, inf, 9, 9, 9, 9, 0.75]),
    ("threshold_backward", {"threshold": 0.5}, [*ENDS, 0.5, 0.75], [2, 2, 0, 0, 0, 0, 2]),
    ("threshold_backward", {"threshold": 0.0, "grad_output": inf}, [*ENDS, -1], [inf, inf, 0, 0, 0, 0]),
    ("hardtanh_backward", {"min": -1.0, "max": 3.0}, [*ENDS, -1, 3, 1], [2, 0, 0, 2, 2, 0, 0, 2]),
    ("heaviside", {"values": nan}, [*ENDS, -1, 1], [0, 1, 0, nan, nan, 0, 1]),
    ("heaviside", {"values": -7.0}, [0, -0.0], [-7, -7]),
    ("hardshrink", {"lambd": 0.5}, [*ENDS, 0.5, -0.5, 0.75], [nan, inf, -inf, 0, 0, 0, 0, 0.75]),
    ("hardshrink", {"lambd": -2.0}, [*ENDS, 1, -3], [nan, inf, -inf, 0, 0, 1, -3]),
    ("hardshrink_backward", {"lambd": 0.5}, [*ENDS, 0.5, -0.5, 0.75], [2, 2, 2, 0, 0, 0, 0, 2]),
    ("hardshrink_backward", {"lambd": -2.0}, [*ENDS, 1], [2, 2, 2, 0, 0, 2]),
    ("softshrink", {"lambd": 0.5}, [*ENDS, 0.5, -0.5, 2, -2], [0, inf, -inf, 0, 0, 0, 0, 1.5, -1.5]),
    ("softshrink", {"lambd": inf}, [*ENDS, 2], [0, 0, 0, 0, 0, 0]),
    ("shrink", {"lambd": 0.5, "bias": -2.0}, [*ENDS, 0.5, -0.5, 2, -2], [0, inf, -inf, 0, 0, 0, 0, 4, -4]),
    ("shrink", {"lambd": 0.0, "bias": nan}, [*ENDS, 2], [0, nan, nan, 0, 0, nan]),
    ("softshrink_backward", {"lambd": 0.5}, [*ENDS, 0.5, -0.5, 2], [2, 2, 2, 0, 0, 0, 0, 2]),
    ("sigmoid", {}, [*ENDS, BEYOND, -BEYOND], [nan, 1, 0, 0.5, 0.5, 1, 0]),
    ("sigmoid_backward", {}, [*ENDS, 1, 0.5], [nan, -inf, -inf, 0, -0.0, 0, 0.5]),
    ("silu", {}, [*ENDS, -200], [nan, inf, nan, 0, -0.0, -0.0]),
    ("silu_backward", {}, [*ENDS, 200, -200], [nan, nan, nan, 1, 1, 2, -0.0]),
    ("swish", {"beta": 0.0}, [*ENDS, 3], [nan, inf, -inf, 0, -0.0, 1.5]),
    ("swish", {"beta": None}, [*ENDS, -200], [nan, inf, nan, 0, -0.0, -0.0]),
    ("swish", {"beta": -1.0}, [inf, -inf, 200], [nan, -inf, 0]),
    ("swish_backward", {"beta": 0.5}, [*ENDS, 400], [nan, nan, nan, 1, 1, 2]),
    ("fast_gelu", {}, [*ENDS, -200], [nan, inf, nan, 0, -0.0, -0.0]),
    ("fast_gelu_backward", {}, [*ENDS, 200], [nan, nan, nan, 1, 1, 2]),
    ("gelu", {}, [*ENDS, -200, 200], [nan, inf, nan, 0, -0.0, -0.0, 200]),
    ("gelu_v2", {"approximate": 1}, [*ENDS, -200, 200], [nan, inf, nan, 0, -0.0, -0.0, 200]),
    ("gelu_v2", {"approximate": 0}, [*ENDS, -200, 200], [nan, inf, nan, 0, -0.0, -0.0, 200]),
    ("gelu_v2", {"approximate": 7}, [1], [0.8413447460685429]),
    # The second term is NaN at infinity, and does not count.
    ("gelu_backward", {}, [*ENDS, 1e4, -1e4], [nan, 2, 0, 1, 1, 2, 0]),
    ("gelu_backward_v2", {"approximate": "tanh"}, [*ENDS, 1e4, -1e4], [nan, 2, 0, 1, 1, 2, 0]),
    ("gelu_backward_v2", {"approximate": "none"}, [*ENDS, 1e4, -1e4], [nan, nan, nan, 1, 1, 2, 0]),
    ("log_sigmoid", {}, [*ENDS, -1e4], [nan, 0, -inf, -np.log(2), -np.log(2), -1e4]),
    ("log_sigmoid_forward", {}, [*ENDS, -1e4], [nan, 0, -inf, -np.log(2), -np.log(2), -1e4]),
    ("log_sigmoid_backward", {}, [*ENDS, -1e4], [nan, 0, 2, 1, 1, 2]),
    ("softplus", {"beta": 1.0}, [*ENDS, 20.5, -200], [nan, inf, 0, np.log(2), np.log(2), 20.5, 0]),
    ("softplus", {"beta": 0.0}, [1, -3, 0], [inf, inf, inf]),
    ("softplus", {"beta": -1.0, "threshold": 4.0}, [inf, -5, 0], [-0.0, -5, -np.log(2)]),
    ("softplus_backward", {"threshold": 4.0}, [*ENDS, 5, -200], [nan, 2, 0, 1, 1, 2, 0]),
    ("mish", {}, [*ENDS, -200, 200], [nan, inf, nan, 0, -0.0, -0.0, 200]),
    ("mish_backward", {}, [*ENDS, 200], [nan, nan, nan, 1.2, 1.2, 2]),
    ("logit", {"eps": -1.0}, [nan, 0, 1, 2, -1, inf, -inf], [nan, -inf, inf, nan, nan, nan, nan]),
    ("logit", {"eps": 0.25}, [nan, 0, 1, 2, -1, inf, -inf], [nan, *np.log([1 / 3, 3, 3, 1 / 3, 3, 1 / 3])]),
    ("logit", {"eps": 0.75}, [0, 0.5, 0.75, 1], np.log([3, 3, 1 / 3, 1 / 3]).tolist()),
    ("logit", {"eps": 1.0}, [0.5, 1], [inf, -inf]),
    ("logit", {"eps": 2.0}, [0.5, 3], [nan, nan]),
    ("logit_grad", {"eps": -1.0}, [nan, 0, 1, 2, -1, 0.5], [nan, inf, inf, nan, nan, 8]),
    ("logit_grad", {"eps": 0.0}, [nan, 0, 1, 2, -1, 0.5], [nan, inf, inf, 0, 0, 8]),
    ("logit_grad", {"eps": 0.25}, [nan, 0, 0.25, 0.75, 1], [nan, 0, 32 / 3, 32 / 3, 0]),
    ("logit_grad", {"eps": 0.75}, [0.25, 0.5, 0.75], [0, 0, 0]),
    ("logit_grad", {"eps": nan}, [0.5, 2], [nan, nan]),
    ("logit_grad", {"eps": -1.0, "dy": 0.0}, [0, 1], [nan, nan]),
    ("hardsigmoid", {}, [*ENDS, 3, -3], [nan, 1, 0, 0.5, 0.5, 1, 0]),
    ("hardsigmoid_backward", {}, [*ENDS, 3, -3], [0, 0, 0, 1 / 3, 1 / 3, 0, 0]),
    ("hardswish", {}, [*ENDS, 3, -3], [nan, inf, 0, 0, -0.0, 3, 0]),
    ("hardswish_backward", {}, [*ENDS, 3, -3, 4, -4], [2, 2, 0, 1, 1, 3, -1, 2, 0]),
    ("hardswish_backward_v2", {}, [*ENDS, 3, -3, 4, -4], [2, 2, 0, 1, 1, 2, 0, 2, 0]),
    ("selu", {}, ENDS, [nan, inf, -1.7580993408473766, 0, -0.0]),
    ("selu_backward", {}, [nan, 0, 1], [2.101401974710961, 3.516198681694753, 2.101401974710961]),
    ("celu", {"alpha": 2.0}, [*ENDS, 3], [nan, inf, -2, 0, 0, 3]),
    # Of a negative alpha the second term grows where x does.
    ("celu", {"alpha": -1.0}, [*ENDS, 1], [nan, inf, -inf, 0, 0, 1]),
    ("erfinv", {}, [*ENDS, 1, -1, 2, -2], [nan, nan, nan, 0, -0.0, inf, -inf, nan, nan]),
    *special_losses.CASES,
]  # fmt: skip
"""An operator, its options, what it is applied to, and what it gives; gradients that arrive are 2."""
IDS = [" ".join([name, *(f"{key} {number}" for key, number in options.items())]) for name, options, *_ in CASES]  # fmt: skip


def check(place: int, dtype: DType) -> None:
    """One case, by the oracle and by the chosen engine; of dtypes that the operator has."""
    name, options, values, expected = CASES[place]
    operator = openaclnn.find_operator(name)
    if dtype not in operator.parameters[0].dtypes:
        return
    arguments = dict(options)
    with np.errstate(over="ignore"):
        for parameter in operator.tensors:
            each = parameter.python_name
            if parameter.is_read and (each in options or not parameter.optional):
                others = [options.get(each, 2.0)] * len(values)
                column = values if each in APPLIED_TO else others
                arguments[each] = np.array(column, np.float64).astype(dtype.numpy)
        exact = operator.oracle(**arguments).astype(dtype.numpy)
        expected = np.array(expected).astype(dtype.numpy).astype(np.float64)
    near = 2 * float(ml_dtypes.finfo(dtype.numpy).eps)
    for result in (exact, plain(operator)(**arguments)):
        computed = np.atleast_1d(result.astype(np.float64))
        np.testing.assert_allclose(computed, expected, rtol=near)
        zeros = np.equal(expected, 0)
        np.testing.assert_array_equal(np.signbit(computed)[zeros], np.signbit(expected)[zeros])
