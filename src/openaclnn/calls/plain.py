"""The plain calls, made from the registry: functions that take arrays and return arrays, and raise `AclnnError` for wrong arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openaclnn.calls.guard import (
    check_devices,
    check_memory,
    check_output_layout,
    check_overlap,
    check_storages,
)
from openaclnn.core import rounding
from openaclnn.core.call import AUTO, Call, bind_plain, product_of
from openaclnn.core.declare import Operator, stray_target
from openaclnn.core.forks import undivided
from openaclnn.core.interface import REQUIRED, Kind
from openaclnn.core.interop import (
    address_of,
    allocate_like,
    is_number,
    mark_written,
    stream_of,
)
from openaclnn.core.plan import Plan
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Choice, choose_engine
from openaclnn.repeat.cache import CallCache, nothing_chosen
from openaclnn.repeat.phases import extents_of
from openaclnn.runtime.device import device_named


@undivided
def call_plain(
    operator: Operator,
    arguments: Mapping[str, Any],
    product: Any = None,
    cache: CallCache | None = None,
) -> Any:
    """Bind, check, plan and run one plain call.

    With a cache, the next call like it may take the fast path. This call may, too, once it is planned: the fast path then allocates
    the omitted outputs, checks that no output overlaps another tensor, and runs.
    """
    if not rounding.is_standard():
        with rounding.standard():
            return call_plain(operator, arguments, product, cache)
    call = bind_plain(operator, arguments, product_of(operator, product))
    operator.verify(call)
    device, fresh = _outline_outputs(operator, call)
    plan = operator.plan(call)
    choice = None if plan.empty else choose_engine(plan, device)
    if choice is not None and cache is not None and product is None and nothing_chosen():
        result = cache.make(plan, choice, arguments, call.values)
        if result is not NotImplemented:
            return result
    results = _make_outputs(operator, call, arguments, fresh)
    if choice is not None:
        _run(plan, choice, call, [result for result, _ in results], fresh)
    return _finished(operator, plan, results, fresh)


def _outline_outputs(operator: Operator, call: Call) -> tuple[str, Sequence[str]]:
    """The device of a call, and the names of its omitted outputs, which get shapes here, and memory later."""
    values, fresh = call.values, operator.output_names
    if not call.outputs_omitted:
        fresh = tuple([name for name in operator.output_names if values[name] is AUTO])
        for name in operator.output_names:
            if name not in fresh:
                check_output_layout(operator.name, name, values[name])
    device = check_devices(call)
    if fresh:
        operator.outline(call, device)
    return device, fresh


def _make_outputs(
    operator: Operator, call: Call, arguments: Mapping[str, Any], fresh: Sequence[str]
) -> list[tuple[Any, Callable[[Any], Any] | None]]:
    """All outputs, the caller's and fresh ones, each with a function that converts it to the caller's library, if needed."""
    outputs = arguments[operator.output.python_name]
    if operator.result_type is None:
        outputs = [outputs]
    results = []
    template = _template(operator, arguments) if fresh else None
    for output, result in zip(
        operator.outputs, outputs or [None] * len(operator.outputs), strict=True
    ):
        finish: Callable[[Any], Any] | None = None
        if output.name in fresh:
            view = call.tensor(output.name)
            result, finish = allocate_like(template, view.shape, view.dtype)
            view.base, view.owner = address_of(result), result
        results.append((result, finish))
    return results


def _run(
    plan: Plan, choice: Choice, call: Call, results: Sequence[Any], fresh: Sequence[str]
) -> None:
    tensors, first = plan_tensors(plan, call), results[0]
    extents = extents_of(plan)
    memory = check_memory(plan, extents, tensors, tensors[-1].device)
    assert memory is not None
    addresses, owners = memory
    if len(fresh) < len(results):  # only the caller's outputs can overlap other tensors
        check_overlap(plan, extents, tensors, addresses)
        for output, result in zip(call.operator.outputs, results, strict=True):
            if output.name not in fresh:
                mark_written(result)
    stream, runner = stream_of(first), choice.prepare()
    # Converting options, finalisers or compiling may have run code that freed memory since arrays were bound.
    check_storages(call.operator, tuple(call.values.values()), owners, "that the call began with")
    if runner(addresses, stream):
        raise stray_target(plan, tensors[plan.targets]) or _changed_meanwhile(plan)
    device = tensors[-1].device
    if stream == 0 and device != "cpu" and hasattr(first, "block_until_ready"):
        device_named(device).drain(0)  # JAX reads results on streams of its own


def _changed_meanwhile(plan: Plan) -> AclnnError:
    """The exception for a class index out of range that another thread has overwritten since the kernel read it."""
    return AclnnError(
        Status.ACLNN_ERR_PARAM_INVALID, plan.operator, plan.inputs[plan.targets].parameter,
        "an array that no thread changes during the call", "class indices out of range that are in range now",
    )  # fmt: skip


def _finished(
    operator: Operator,
    plan: Plan,
    results: Sequence[tuple[Any, Callable[[Any], Any] | None]],
    fresh: Sequence[str],
) -> Any:
    """The result for the caller. Of several outputs, one that is not computed is None unless the caller passed it."""
    if operator.result_type is None:
        result, finish = results[0]
        return result if finish is None else finish(result)
    spared = {operand.parameter for operand in plan.spared}
    written = set() if plan.empty else {operand.parameter for operand in plan.outputs}
    kept = []
    for output, (result, finish) in zip(operator.outputs, results, strict=True):
        if output.name in fresh:
            if output.name in spared:
                result = None
            elif output.name not in written and math.prod(result.shape):
                result[...] = 0  # no kernel writes it, and it must not show older data
        kept.append(result if result is None or finish is None else finish(result))
    return operator.result_type(*kept)


def plan_tensors(plan: Plan, call: Call) -> list[Tensor]:
    """The tensors in the order that kernels take their addresses, outputs last."""
    values = call.values
    try:
        return [values[operand.parameter] for operand in plan.operands]
    except KeyError as error:
        known = ", ".join([name for name, value in values.items() if isinstance(value, Tensor)])
        raise TypeError(f"the plan of {plan.kernel}: expected one of {known}, got {error.args[0]}") from None  # fmt: skip


def _template(operator: Operator, arguments: Mapping[str, Any]) -> Any:
    """The argument in whose library results are allocated: the first input that is an array."""
    for parameter in operator.tensors:
        value = arguments[parameter.python_name]
        if parameter.kind is Kind.TENSOR and value is not None and not is_number(value):
            return value
    return None


def make_plain_function(operator: Operator) -> Callable[..., Any]:
    """The plain call as a function with its own signature, made the way `dataclasses` makes methods."""
    positional, keywords = operator.plain_parameters
    parameters = [*positional, *keywords]
    by_name = ", ".join(f"{p.python_name!r}: {p.python_name}" for p in parameters)
    arrays = [p.python_name for p in parameters if p.is_tensor]
    options = [p.python_name for p in parameters if not p.is_tensor]
    scope: dict[str, Any] = {"_call": call_plain, "_operator": operator}
    if operator.output.in_place:
        arrays.append(operator.output.python_name)
    cache = CallCache(operator)
    result, now = "_result", "pass"
    scope |= {"_cache": cache, "_tuple": tuple.__new__, "_type": operator.result_type}
    if operator.result_type is not None:
        # A list may change while the call runs, so it is copied to a tuple now. The slow path refuses what is neither.
        now, result = "if type(out) is list: out = tuple(out)", "_tuple(_type, _result)"
        arrays[-1] = "*(_absent if out is None else out if type(out) in _types else ())"
        scope |= {
            "_absent": (None,) * len(operator.outputs),
            "_types": {tuple, operator.result_type},
        }
    source = f"""
def {operator.signature()}:
    {now}
    _result = _cache.call({", ".join([*arrays, *options])}, product)
    if _result is NotImplemented:
        return _call(_operator, {{{by_name}}}, product, _cache)
    return {result}
"""
    exec(source, scope)
    function: Callable[..., Any] = scope[operator.python_name]
    function.__module__ = "openaclnn"
    function.__doc__ = _docstring(operator)
    function.operator, function.cache = operator, cache  # type: ignore[attr-defined]
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
    """The fields of the result, each with its text and shape."""
    return "; ".join(f"{p.field}, {p.text}, shape {p.shape}" for p in operator.outputs)
