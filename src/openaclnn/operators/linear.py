"""Inner operators of linear cross entropy beside the loss: a soft cap of logits with its gradient, and sums that are scaled while they are rounded.

They are not part of the aclnn interface and not registered, as those of `inner.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator, Sample, like
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.engines.formulas import Formula
from openaclnn.engines.formulas.linear import scaled, soft_cap, soft_cap_backward
from openaclnn.operators import rules
from openaclnn.operators.activations import elementwise_operator

CAP = Parameter("cap", Kind.DOUBLE, "the limit", default=30.0)


def _operator(
    name: str, summary: str, formula: str, kernel: Formula, tensors: Mapping[str, str], reference: Callable[..., Any], sample: Sample,
    *options: Parameter,
) -> Operator:  # fmt: skip
    """An elementwise inner operator of tensors, each of the first one's shape or of one element."""
    first, *others = tensors
    shapes = {first: "0 to 8 dimensions"} | dict.fromkeys([*others, "out"], f"same as {first}, or one element")  # fmt: skip
    inputs = [Parameter(each, Kind.TENSOR, text, shapes[each], FLOATS) for each, text in tensors.items()]  # fmt: skip
    written = Parameter("out", Kind.OUTPUT, "the result", f"same as {first}", FLOATS)
    table = (
        rules.not_null(), rules.dtypes_among(FLOATS, *tensors, "out"), rules.rank(*tensors), rules.broadcasts, rules.same_shape(first, "out"),
    )  # fmt: skip
    return elementwise_operator(
        name, summary, formula, kernel, reference, (*inputs, *options, written), table, frozenset(), rules.promoted, None, result=like(first),
        samples=(sample,), no_interface=True,
    )  # fmt: skip


SCALED = _operator(
    "Scaled", "A tensor times a number on its device.", "out = x * factor", scaled, {"x": "what is scaled", "factor": "by what"},
    lambda x, factor: x * factor, Sample("halves", {"x": (FLOAT, [1, -3]), "factor": (FLOAT, 0.5)}, [0.5, -1.5], exact=True),
)  # fmt: skip
SOFT_CAP = _operator(
    "SoftCap", "Numbers brought softly below a limit.", "out = cap * tanh(x / cap)", soft_cap, {"x": "what is capped"},
    lambda x, cap: np.tanh(x / cap) * cap, Sample("of 2", {"x": (FLOAT, [0, 2, -40]), "cap": 2.0}, [0, 1.5231883119115297, -2]), CAP,
)  # fmt: skip
SOFT_CAP_BACKWARD = _operator(
    "SoftCapBackward", "Gradient of the soft cap.", "out = gradient / cosh(x / cap)^2", soft_cap_backward,
    {"gradient": "gradient of the result", "x": "what was capped"}, lambda g, x, cap: g / np.cosh(x / cap) ** 2,
    Sample("of 2", {"gradient": (FLOAT, [1, 4, 5]), "x": (FLOAT, [0, 2, -40]), "cap": 2.0}, [1, 1.6798973664561043, 8.496708510583178e-17]), CAP,
)  # fmt: skip
