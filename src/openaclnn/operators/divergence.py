"""The gradients of the Kullback-Leibler divergence, by its predictions and by its target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Sample, like
from openaclnn.core.dtypes import FLOAT, float_of
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import (
    Plan,
    broadcast_shapes,
    elementwise_plan,
    empty_plan,
    filling_plan,
    summed_plan,
)
from openaclnn.engines.formulas import losses as formulas
from openaclnn.engines.formulas.channels import added_up
from openaclnn.operators import rules
from openaclnn.operators.activations import NEWEST
from openaclnn.operators.losses import Loss, declare
from openaclnn.operators.workloads.words import KernelForm

INPUTS = {
    "gradOutput": "gradient of the loss",
    "self": "logarithms of predicted probabilities",
    "target": "probabilities, or their logarithms",
}
LOG_TARGET = Parameter("logTarget", Kind.BOOL, "whether target has logarithms", default=False)
SQUARE: dict[str, Any] = {
    "grad_output": (FLOAT, 2.0), "self": (FLOAT, [[-1.0, -0.5], [-2.0, -0.1]]), "target": (FLOAT, [[0.3, 0.7], [0.0, 1.0]]),
}  # fmt: skip
SCALE = (
    "\nk = 1 / (number of elements) for mean, 1 / (their number along the first axis) for batchmean, else 1; "
    "both of self and target together, whose stretched axes are added up"
)


def _shape(call: Call) -> tuple[int, ...]:
    shape = broadcast_shapes(call.tensor("self").shape, call.tensor("target").shape)
    assert shape is not None
    return shape


def _count(shape: tuple[int, ...], reduction: str) -> int:
    """The count that a mean divides by."""
    return {"mean": math.prod(shape), "batchmean": shape[0] if shape else 1}.get(reduction, 1)


def _plan_of(derived: str, total: str) -> Any:
    """The plan of a gradient by the tensor `derived`, whose shape the result has; `total` is the row formula that adds up broadcast axes."""

    def plan(call: Call) -> Plan:
        operator, values = Loss.of(call), call.values
        name, written = operator.name, (operator.output.name, values[operator.output.name])
        if values[derived].empty:
            return empty_plan(name, written)
        shape, reduction = _shape(call), operator.reduction_of(call)
        if 0 in shape:  # nothing is added up
            return filling_plan(name, (*written, 0.0))
        dtype = rules.promoted_dtype(call, *INPUTS)
        assert dtype is not None
        tensors = [(each, values[each]) for each in INPUTS]
        scale = float_of(1.0 / _count(shape, reduction))
        numbers = {"mean_scale": scale, "log_target": values["logTarget"]}
        reciprocal, fixed = "mean_scale" if reduction == "mean" else "", reduction == "batchmean"
        if values[derived].shape == shape:
            return elementwise_plan(
                name, operator.kernel.name, dtype, tensors, written, numbers, reciprocal, fixed=fixed
            )  # fmt: skip
        kernels = operator.kernel.name, total, added_up.name
        return summed_plan(
            name, kernels, dtype, tensors, written, shape, numbers, reciprocal, fixed
        )

    return plan


def _reduced_to(derived: str) -> Any:
    def reduced(operator: Loss, values: Any, reduction: str, arrays: Any) -> Any:
        shape = np.broadcast_shapes(arrays["self"].shape, arrays["target"].shape)
        work, model = values.dtype.type, arrays[derived].shape
        whole = np.broadcast_to(values * work(1.0 / max(_count(shape, reduction), 1)), shape)
        padded = (1,) * (len(shape) - len(model)) + model
        axes = tuple(axis for axis, size in enumerate(padded) if size != shape[axis])
        return (whole.sum(axis=axes) if axes else whole).reshape(model)

    return reduced


def _by_target(g: Any, x: Any, t: Any, log_target: bool) -> Any:
    return (g * (t - x) + g) * np.exp(t) if log_target else g * np.log(t) - g * x + g * t / t


def _torch_derivative(by: int) -> Any:
    """PyTorch's derivative of its loss by one of the tensors."""

    def computed(torch: Any, g: Any, x: Any, y: Any, reduction: str, log_target: bool) -> Any:
        def loss(moved: Any) -> Any:
            pair = (moved, y) if by == 0 else (x, moved)
            return torch.nn.functional.kl_div(*pair, reduction="none", log_target=log_target)

        shape = torch.broadcast_shapes(x.shape, y.shape)
        return torch.func.vjp(loss, (x, y)[by])[1]((g / _count(shape, reduction)).expand(shape))[0]

    return computed


def _rules(derived: str, output: str) -> tuple[rules.Rule, ...]:
    return (
        rules.not_null("gradOutput", "self", "target", output), rules.converts("self"), rules.dtypes("gradOutput", "self", "target", output),
        rules.same_dtype(derived, output), rules.rank("gradOutput", "self", "target", output),
        lambda operator, row: [checks.broadcastable(row, "self", "target")],
        lambda operator, row: [checks.broadcasts_to(row, "gradOutput", _shape, "the shape of self and target together")],
        rules.output_shape(lambda call: call.tensor(derived).shape, f"of {derived}"),
    )  # fmt: skip


SHARED: dict[str, Any] = {
    "inputs": INPUTS, "options": (LOG_TARGET,), "choices": (*REDUCTIONS, "batchmean"), "unknown_reduction": "none", "families": NEWEST,
}  # fmt: skip
NAMES = {"grad": "gradOutput", "input": "self", "target": "target"}

declare(
    "KlDivBackward", "Gradient of the Kullback-Leibler divergence with respect to the predictions.",
    "out = -t * gradOutput * k, t = exp(target) if logTarget, else target" + SCALE, formulas.kl_div_backward,
    lambda g, x, t, log_target: -(np.exp(t) if log_target else t) * g,
    (
        Sample("worked values", {**SQUARE, "reduction": "none"}, [[-0.6, -1.4], [-0.0, -2]]),
        Sample("mean", SQUARE, [[-0.15, -0.35], [-0.0, -0.5]]),
        Sample("batchmean", {**SQUARE, "reduction": "batchmean"}, [[-0.3, -0.7], [-0.0, -1]]),
        Sample(
            "sum, of logarithms", {**SQUARE, "reduction": "sum", "log_target": True},
            [[-2.699717615152006, -4.027505414940953], [-2, -5.43656365691809]],
        ),
    ),
    (*_rules("self", "out"), rules.reduction), **SHARED, shape="same as self", dtype_of="self", result=like("self"),
    plan=_plan_of("self", formulas.kl_div_backward_total.name), reduced=_reduced_to("self"), peer=_torch_derivative(0),
    kernels=(KernelForm("kl_div_loss_grad", NAMES),),
)  # fmt: skip

declare(
    "KlDivTargetBackward", "Gradient of the Kullback-Leibler divergence with respect to the target.",
    "g = gradOutput * k; gradTarget = (g * (target - self) + g) * exp(target) if logTarget, else g * log(target) - g * self + g * target / target"
    + SCALE, formulas.kl_div_target_backward, _by_target,
    (
        Sample(
            "worked values", {**SQUARE, "target": (FLOAT, [[0.3, 0.7], [0.5, 1.0]]), "reduction": "none"},
            [[1.5920543913481283, 2.2866501121225327], [4.613705638880109, 2.2]],
        ),
        Sample(
            "of logarithms", {**SQUARE, "reduction": "none", "log_target": True},
            [[6.209350514849614, 8.860511912870097], [6, 11.416783679527988]],
        ),
    ),
    (*_rules("target", "gradTarget"), rules.public("gradOutput", "self", "target", "gradTarget"), rules.reduction), **SHARED, output="gradTarget", shape="same as target", dtype_of="target",
    result=like("target"), plan=_plan_of("target", formulas.kl_div_target_backward_total.name), reduced=_reduced_to("target"),
    peer=_torch_derivative(1), domains={"target": (0.0, 1.0)}, kernels=(KernelForm("kl_div_target_loss_grad", NAMES),),
)  # fmt: skip
