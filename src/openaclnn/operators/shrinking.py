"""Activations that are 0 around 0, and their gradients: hard, soft and biased shrinking."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core.declare import Gradient
from openaclnn.core.dtypes import FLOAT, FLOAT16
from openaclnn.engines.formulas import activations as formulas
from openaclnn.operators import rules
from openaclnn.operators.activations import ALL, NOT_310P, NOT_910, NOT_950, declare, number
from openaclnn.operators.rectified import GRADIENT
from openaclnn.operators.workloads.words import KernelForm

WIDTH = number("lambd", "up to which size values count as 0", 0.5)
POSITIVE = {"lambd": (0.0, math.inf)}


def _hard(x: Any, width: Any) -> Any:
    return np.where(np.abs(x) <= np.maximum(width, 0), 0.0, x)


def _backward(g: Any, x: Any, width: Any) -> Any:
    return np.where(np.abs(x) <= np.maximum(width, 0), 0.0, g)


def _soft(x: Any, width: Any, bias: Any) -> Any:
    return np.where(x > width, x - bias, np.where(x < -width, x + bias, 0.0))


declare(
    "Hardshrink", "x where it is larger than lambd in size, 0 elsewhere.",
    "out = |self| <= lambd ? 0 : self; a lambd below 0 counts as 0", formulas.hardshrink, _hard, [-4, -1, 0, 3],
    (rules.not_null(), rules.scalars("lambd"), rules.dtypes("self", "out"), rules.same_shape(), rules.rank("self")), options=(WIDTH,),
    families=NOT_950,
    kernels=(KernelForm("hard_shrink", {"input_x": "self"}),), peer="hardshrink",
    gradient=Gradient("aclnnHardshrinkBackward"),
)  # fmt: skip

declare(
    "HardshrinkBackward", "Gradient of hard shrinking with respect to its input.",
    "gradInput = |self| <= lambd ? 0 : gradOutput; a lambd below 0 counts as 0", formulas.shrink_backward, _backward, [1, 2, 0, 4],
    (
        rules.not_null(), rules.scalars("lambd"), rules.dtypes("gradOutput", "self", "gradInput"),
        rules.rank("gradOutput", "self", "gradInput"), *rules.unless_empty(("gradOutput", "self"), rules.broadcast),
    ),
    inputs=GRADIENT, options=(WIDTH,), output="gradInput", families=NOT_310P, compute=rules.promoted,
    kernels=(KernelForm("hard_shrink_grad", {"gradients": "gradOutput", "features": "self"}),), peer="hardshrink_backward",
)  # fmt: skip

declare(
    "Softshrink", "x moved towards 0 by lambd, and 0 where it is not larger in size.",
    "out = self > lambd ? self - lambd : self < -lambd ? self + lambd : 0", formulas.softshrink, lambda x, width: _soft(x, width, width),
    [-3.5, -0.5, 0, 2.5],
    (rules.not_null(), rules.scalars("lambd"), rules.dtypes("self", "out"), rules.same_shape(), rules.rank("self"), rules.in_bounds("lambd")),
    options=(WIDTH,),
    families=ALL, bounds=POSITIVE,
    kernels=(KernelForm("soft_shrink", {"input_x": "self"}), KernelForm("softshrink", {"input_x": "self"})), peer="softshrink",
    gradient=Gradient("aclnnSoftshrinkBackward", {"lambda": "lambd"}),
)  # fmt: skip


declare(
    "SoftshrinkBackward", "Gradient of soft shrinking with respect to its input.",
    "gradInput = |self| <= lambda ? 0 : gradOutput", formulas.shrink_backward, _backward, [1, 2, 0, 4],
    (
        rules.not_null(), rules.scalars("lambda"), rules.dtypes("gradOutput", "self", "gradInput"), rules.same_as_promoted,
        rules.rank("gradOutput", "self"), rules.broadcast, rules.in_bounds("lambda"),
    ),
    inputs=GRADIENT, options=(number("lambda", "up to which size values count as 0", 0.5),), output="gradInput", compute=rules.promoted,
    bounds={"lambda": (0.0, math.inf)},
    kernels=(KernelForm("soft_shrink_grad", {"input_grad": "gradOutput", "input_x": "self"}, {"lambd": "lambda"}),),
    peer="softshrink_backward",
)  # fmt: skip


declare(
    "Shrink", "x moved towards 0 by a bias, and 0 where it is not larger than lambd in size.",
    "out = self > lambd ? self - bias : self < -lambd ? self + bias : 0", formulas.shrink, _soft, [-3.8, -0.8, 0, 2.8],
    (
        rules.not_null(), rules.scalars("lambd", "bias"), rules.dtypes_among((FLOAT, FLOAT16), "self", "out"), rules.same_shape(),
        rules.in_bounds("lambd"),
        rules.same_format("self", "out"),
    ),
    options=(WIDTH, number("bias", "by how much values move", 0.0)), accepts=(FLOAT, FLOAT16), families=NOT_910, rounds_options=True,
    bounds=POSITIVE, arguments={"bias": 0.2}, kernels=(KernelForm("shrink", {"input_x": "self"}),),
    peer=lambda torch, x, width, bias: torch.where(x > width, x - bias, torch.where(x < -width, x + bias, 0.0)),
)  # fmt: skip
