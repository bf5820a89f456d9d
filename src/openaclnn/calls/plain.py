"""The plain calls: arrays in, array out, `AclnnError` for what is wrong. Made from the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from openaclnn.calls.guard import check_devices, check_memory, check_output_layout, check_overlap
from openaclnn.core import rounding
from openaclnn.core.call import AUTO, Call, bind_plain, product_of
from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind
from openaclnn.core.interop import (
    allocate_like,
    as_tensor,
    is_number,
    mark_written,
    stream_of,
)
from openaclnn.core.oracle import stray_target
from openaclnn.core.plan import Plan
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import choose_engine
from openaclnn.repeat.kinds import Road, nothing_chosen
from openaclnn.runtime.device import device_named

__all__ = ["call_plain", "make_plain_function"]


def call_plain(
    operator: Operator, arguments: Mapping[str, Any], product: Any = None, road: Road | None = None
) -> Any:
    """Bind, check, plan and run one plain call; with a `road`, the next of its kind may take that."""
    if not rounding.is_standard():
        with rounding.standard():
            return call_plain(operator, arguments, product, road)
    call = bind_plain(operator, arguments, product_of(operator, product))
    error = operator.first_violation(call)
    if error is not None:
        raise error
    if operator.result_type is not None:
        return _call_for_several(operator, call, arguments, road if product is None else None)
    output = operator.output.name
    finish: Callable[[Any], Any] | None = None
    given = result = arguments[operator.output.python_name]
    if call[output] is AUTO:
        result, finish = allocate_like(_model(operator, arguments), *operator.result(call))
        call.values[output] = as_tensor(result)
        call.values[output].writable = True
    else:
        check_output_layout(operator.name, output, call.tensor(output))
    device = check_devices(call)
    plan = operator.plan(call)
    if not plan.empty:
        tensors = plan_tensors(plan, call)
        check_memory(plan, plan.operands, tensors)
        if given is not None:
            check_overlap(plan, tensors)
        choice = choose_engine(plan, device)
        if given is not None:
            mark_written(result)
        stream = stream_of(result)
        if choice.runner(tuple([tensor.address for tensor in tensors]), stream):
            error = stray_target(plan, tensors[plan.targets])
            assert error is not None
            raise error
        if road is not None and product is None and nothing_chosen():
            road.remember(plan, choice, arguments, result)
        if stream == 0 and device != "cpu" and hasattr(result, "block_until_ready"):
            device_named(device).drain(0)  # JAX reads results on streams of its own
    return result if finish is None else finish(result)


def _call_for_several(
    operator: Operator, call: Call, arguments: Mapping[str, Any], road: Road | None
) -> Any:
    """The same from planning on where there are several outputs. One that the plan does not write is None, unless the
    caller gave it; the short road makes all the others.
    """
    model = _model(operator, arguments)
    given = arguments["out"] or (None,) * len(operator.outputs)
    results: list[Any] = []
    for output, own, made in zip(operator.outputs, given, operator.results(call), strict=True):
        finish: Callable[[Any], Any] | None = None
        if own is not None:
            check_output_layout(operator.name, output.name, call.tensor(output.name))
        else:
            own, finish = allocate_like(model, *made)
            call.values[output.name] = as_tensor(own)
            call.values[output.name].writable = True
        results.append((output.name, own, finish))
    device = check_devices(call)
    plan = operator.plan(call)
    written = {operand.parameter for operand in plan.outputs}
    if not plan.empty:
        tensors = plan_tensors(plan, call)
        check_memory(plan, plan.operands, tensors)
        check_overlap(plan, tensors)
        choice = choose_engine(plan, device)
        for own in given:
            if own is not None:
                mark_written(own)
        first = results[0][1]
        stream = stream_of(first)
        if choice.runner(tuple([tensor.address for tensor in tensors]), stream):
            error = stray_target(plan, tensors[plan.targets])
            assert error is not None
            raise error
        if stream == 0 and device != "cpu" and hasattr(first, "block_until_ready"):
            device_named(device).drain(0)  # JAX reads results on streams of its own
        # Where tensors are empty, so may be what is not written.
        told = plan.classes or len(written) == len(results)
        if road is not None and arguments["out"] is None and told and nothing_chosen():
            wanted = [own if name in written else None for name, own, _ in results]
            road.remember(plan, choice, arguments, *wanted)
    kept = []
    for (name, own, finish), asked in zip(results, given, strict=True):
        if asked is None and not call.tensor(name).empty:
            if plan.empty:
                own[...] = 0  # nobody writes there, and old memory is nobody's business
            elif name not in written:
                own = None
        kept.append(own if own is None or finish is None else finish(own))
    return operator.result_type(*kept)


def plan_tensors(plan: Plan, call: Call) -> list[Tensor]:
    """The tensors in the order that kernels take their addresses, outputs last."""
    values = call.values
    return [values[operand.parameter] for operand in plan.operands]


def _model(operator: Operator, arguments: Mapping[str, Any]) -> Any:
    """The argument whose kind of array the result takes: the first that is one."""
    for parameter in operator.tensors:
        value = arguments[parameter.python_name]
        if parameter.kind is Kind.TENSOR and value is not None and not is_number(value):
            return value
    return None


def make_plain_function(operator: Operator) -> Callable[..., Any]:
    """The plain call as a function with its own signature, made the way `dataclasses` makes methods."""
    positional, keywords = operator.plain_parameters
    parameters = [*positional, *keywords]
    given = ", ".join(f"{p.python_name!r}: {p.python_name}" for p in parameters)
    arrays = [p.python_name for p in parameters if p.is_tensor]
    options = [p.python_name for p in parameters if not p.is_tensor]
    scope: dict[str, Any] = {"_call": call_plain, "_operator": operator}
    if operator.output.in_place:
        arrays.append(operator.output.python_name)
    scope |= {"_road": Road(operator), "_tuple": tuple.__new__, "_type": operator.result_type}
    result = "result" if operator.result_type is None else "_tuple(_type, result)"
    source = f"""
def {operator.signature()}:
    result = _road.call({", ".join([*arrays, *options])}, product)
    if result is NotImplemented:
        return _call(_operator, {{{given}}}, product, _road)
    return {result}
"""
    exec(source, scope)
    function: Callable[..., Any] = scope[operator.python_name]
    function.__module__ = "openaclnn"
    function.__doc__ = _docstring(operator)
    function.operator = operator  # type: ignore[attr-defined]
    return function


def _docstring(operator: Operator) -> str:
    lines = [operator.summary, "", operator.formula, "", "Parameters", "----------"]
    for group in operator.plain_parameters:
        for parameter in group:
            shape = f", shape {parameter.shape}" if parameter.shape else ""
            default = "" if parameter.default is REQUIRED else f" (default {parameter.default!r})"
            if parameter.python_name == "out" and operator.result_type is not None:
                lines.append(f"out: a tuple of arrays to write into: {_fields(operator)}")
                continue
            lines.append(f"{parameter.python_name}: {parameter.text}{shape}{default}")
    return "\n".join([*lines, "product: check against this product family instead of everything"])


def _fields(operator: Operator) -> str:
    """What the outputs are, by their names in the result."""
    return "; ".join(f"{p.field}, {p.text}, shape {p.shape}" for p in operator.outputs)
