"""How losses of elements and their gradients are declared: tensors, some of which may be null, a reduction, a formula, and rules that families share.

The C parameters are the tensors that are read, a reduction, perhaps further options, and the one tensor that is written. A null tensor counts as
ones: the formula's form without it runs. A reference is a function of arrays in float64, in the order of the parameters; its result is
reduced here.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.declare import Gradient, OutputSpec, Sample
from openaclnn.core.dtypes import FLOATS, DType, dtype_of_numpy, float_of, promote
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import Plan, elementwise_plan, empty_plan, filling_plan, reduced_plan
from openaclnn.core.tensor import Tensor, element_count
from openaclnn.engines.formulas import Formula, without
from openaclnn.engines.formulas.l1_loss import l1_loss
from openaclnn.operators.activations import ALL, Activation, enter, numbers_of, reference_of
from openaclnn.operators.rules import Rule, present, promoted_dtype, value_shape

Array = np.ndarray[Any, Any]

PAIR = {"self": "predictions", "target": "what was to be predicted"}
GRADIENT = {"gradOutput": "gradient of the loss", **PAIR}
REDUCED = "\nout = l for none, sum(l) / (number of elements) for mean, sum(l) for sum"
SCALE = "\nk = 1 / (number of output elements) for mean, 1 for none and sum"
"""The lines about reductions in the text of a formula, of a loss and of a gradient."""
SWAPPED = {"self": "target", "target": "self"}
"""These losses stay the same if predictions and targets are exchanged, so their gradients serve for both."""


def gradient_of(operator: str) -> Gradient:
    """The derivatives of these losses by both tensors."""
    by_target = Gradient(operator, SWAPPED, expanded=True)
    return Gradient(operator, expanded=True, others={"target": by_target})


LOSS_VARIANTS = {"mean": {"reduction": "mean"}, "none": {"reduction": "none"}}
GRADIENT_VARIANTS = {
    "dense gradient": {"reduction": "none"},
    "one gradient": {"reduction": "mean"},
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Loss(Activation):
    """A loss of elements, or its gradient, that `declare` made."""

    unknown_reduction: str = ""  # the reduction that an unknown number acts as; "": it is refused
    onto: str = ""  # the tensor that all others broadcast to; "": all broadcast together
    # The tensor whose elements a mean counts; "": the elements that the formula runs over.
    mean_of: str = ""
    dtype_of: str = ""  # the tensor whose dtype an omitted output has; "": the common dtype
    domains: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def is_gradient(self) -> bool:
        return self.name.endswith("Backward")

    @functools.cached_property
    def read(self) -> tuple[str, ...]:
        return self.input_names

    def reduction_of(self, call: Call) -> str:
        """The call's reduction by its name."""
        return call.reduction or self.unknown_reduction

    def kernel_of(self, call: Call) -> Formula:
        """The formula without the tensors that are null."""
        values = zip(self.read, self.kernel.values, strict=True)
        return without(self.kernel, *[value for name, value in values if call.values[name] is None])


def declare(
    name: str, summary: str, formula: str, kernel: Formula, reference: Callable[..., Any], samples: Sequence[Sample],
    rules: Sequence[Rule], *, inputs: Mapping[str, str], optional: Sequence[str] = (), options: Sequence[Parameter] = (),
    choices: tuple[str, ...] = REDUCTIONS, accepts: tuple[DType, ...] = FLOATS, others: str = "", output: str = "out", shape: str = "",
    families: frozenset[str] = ALL, plan: Callable[[Call], Plan] | None = None, result: Callable[[Call], OutputSpec] | None = None,
    reduced: Callable[..., Any] | None = None, **more: Any,
) -> Loss:  # fmt: skip
    """Register a loss or a gradient. `inputs` says what each tensor is; those that are `optional` may be null. `others` is the text for the shape of most
    inputs, and `shape` for the output's.
    Plan, result and the reduction of a reference's result (`reduced`) follow from the declaration, unless they are passed."""
    is_gradient, onto = name.endswith("Backward"), more.get("onto", "")
    others = others or (f"broadcasts to {onto}" if onto else "broadcasts with the others")
    tensors = []
    for each, text in inputs.items():
        which = "0 to 8 dimensions" if each == onto else others
        parameter = Parameter(each, Kind.TENSOR, text, which, accepts)
        if each in optional:
            parameter = replace(parameter, default=None, optional=True)
        tensors.append(parameter)
    numbered = ", ".join(f"{number} {choice}" for number, choice in enumerate(choices))
    reduces = Parameter("reduction", Kind.INT64, numbered, default="mean", choices=choices)
    text = "gradient of the input" if is_gradient else "the loss"
    shape = shape or ("the broadcast shape" if not onto else f"same as {onto}")
    written = Parameter(output, Kind.OUTPUT, text, shape, accepts)
    absent = [value for each, value in zip(inputs, kernel.values, strict=True) if each in optional]  # fmt: skip
    for count in range(len(absent) + 1):
        for left_out in itertools.combinations(absent, count):
            without(kernel, *left_out)
    parameters = (*tensors, reduces, *options, written)
    variants = GRADIENT_VARIANTS if is_gradient else LOSS_VARIANTS
    variants = {**variants, **({"weights": {"reduction": "none"}} if optional else {})}
    scale = reduced or (_scaled if is_gradient else _reduced)
    operator = Loss(
        name=f"aclnn{name}", summary=summary, formula=formula, parameters=parameters, families=families, checks=(),
        result=result or _result, plan=plan or (_gradient_plan if is_gradient else _loss_plan), reference=lambda: None, kernel=kernel,
        module=reference.__module__, samples=tuple(samples), seen_by_reference=_seen, **{"variants": variants, **more},
    )  # fmt: skip

    def computed(*arguments: Any) -> Any:
        arrays, rest = arguments[: len(inputs)], arguments[len(inputs) + 1 :]
        present = [np.ones(()) if each is None else each for each in arrays]
        named = dict(zip(inputs, arrays, strict=True))
        values = reference(*present, *rest)
        return scale(operator, values, arguments[len(inputs)], named)

    computed.__module__ = reference.__module__
    empty = tuple(each for each in inputs if each not in optional)
    complete = reference_of(computed, parameters)
    if accepts != FLOATS:
        complete = _of_common_dtype(complete, [each.python_name for each in tensors])
    entered = enter(operator, rules, complete, empty)
    assert isinstance(entered, Loss)
    return entered


def _of_common_dtype(reference: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """A reference whose arrays are rounded to their common dtype first, as the operator does with integers."""

    @functools.wraps(reference)
    def rounding(work: Any = np.float64, **named: Any) -> Any:
        arrays = _promoted_arrays(work, *[named[name] for name in names])
        return reference(work, **named | dict(zip(names, arrays, strict=True)))

    return rounding


def _promoted_arrays(work: Any, *arrays: Array) -> list[Array]:
    """The reference's inputs: rounded to their common type, as the operator does, then widened to `work`."""
    common = dtype_of_numpy(arrays[0].dtype)
    for array in arrays[1:]:
        other = dtype_of_numpy(array.dtype)
        common = promote(common, other) if common is not None and other is not None else None
    if common is None:
        raise TypeError("the arrays have no common type")
    return [array.astype(common.numpy).astype(work) for array in arrays]


def _seen(call: Call) -> dict[str, Any]:
    assert isinstance(call.operator, Loss)
    return {"reduction": call.operator.reduction_of(call)}


def _reduced(operator: Loss, losses: Array, reduction: str, arrays: Mapping[str, Any]) -> Array:
    """The reference's losses, reduced."""
    if reduction == "none":
        return losses
    work = losses.dtype.type
    total = losses.sum(dtype=work)
    return np.asarray(total / work(losses.size) if reduction == "mean" else total)


def _scaled(operator: Loss, values: Array, reduction: str, arrays: Mapping[str, Any]) -> Array:
    """The reference's gradients, divided by the count of elements for a mean."""
    count = arrays[operator.mean_of].size if operator.mean_of else values.size
    scale = 1.0 / max(count, 1) if reduction == "mean" else 1.0
    return np.asarray(values * values.dtype.type(scale))


def _result(call: Call) -> OutputSpec:
    """The shape and dtype of an omitted output."""
    operator = Loss.of(call)
    dtype = promoted_dtype(call, *([operator.dtype_of] if operator.dtype_of else present(call)))
    assert dtype is not None
    unreduced = operator.is_gradient or operator.reduction_of(call) == "none"
    return value_shape(call) if unreduced else (), dtype


def _tensors(call: Call) -> list[tuple[str, Tensor]]:
    """The tensors that the formula reads: those that are not null."""
    operator = Loss.of(call)
    return [(name, call.values[name]) for name in operator.read if call.values[name] is not None]


def _loss_plan(call: Call) -> Plan:
    operator = Loss.of(call)
    name, kernel, reduction = operator.name, operator.kernel_of(call).name, operator.reduction_of(call)  # fmt: skip
    written = operator.output.name, call.tensor(operator.output.name)
    dtype = promoted_dtype(call, *present(call))
    assert dtype is not None
    numbers, free = numbers_of(call, {})
    tensors, shape = _tensors(call), value_shape(call)
    empty = element_count(shape) == 0
    if reduction == "none":
        if empty:
            return empty_plan(name, written)
        return elementwise_plan(name, kernel, dtype, tensors, written, numbers, free=free)
    if empty:
        return filling_plan(name, (*written, math.nan if reduction == "mean" else 0.0))
    return reduced_plan(name, kernel, dtype, tensors, written, shape, numbers, reduction, free)


def _gradient_plan(call: Call) -> Plan:
    operator, values = Loss.of(call), call.values
    written = operator.output.name, values[operator.output.name]
    shape = value_shape(call)
    if element_count(shape) == 0:
        return empty_plan(operator.name, written)
    tensors = _tensors(call)
    dtype = promoted_dtype(call, *[name for name, _ in tensors])
    assert dtype is not None
    mean = operator.reduction_of(call) == "mean"
    counted = values[operator.mean_of].shape if operator.mean_of else shape
    scale = float_of(1.0 / math.prod(counted)) if mean else 1.0
    numbers, free = numbers_of(call, {"mean_scale": scale})
    return elementwise_plan(
        operator.name, operator.kernel_of(call).name, dtype, tensors, written, numbers,
        "mean_scale" if mean and counted == shape else "", free, fixed=mean and counted != shape,
    )  # fmt: skip


def distance_plan(left: Tensor, right: Tensor, total: Tensor) -> Plan:
    """The plan of the sum of all absolute differences between tensors of one shape."""
    pair = [("self", left), ("target", right)]
    return reduced_plan("", l1_loss.name, left.dtype, pair, ("out", total), left.shape, {}, "sum")
