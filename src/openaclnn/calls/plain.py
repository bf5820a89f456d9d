"""The plain calls: arrays in, array out, `AclnnError` for what is wrong. Made from the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.calls.guard import check_devices, check_memory, check_output_layout, check_overlap
from openaclnn.core.call import AUTO, Call, bind_plain
from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.core.interop import (
    TORCH_CLASSES,
    allocate_like,
    as_tensor,
    is_number,
    stream_source,
)
from openaclnn.core.plan import Plan
from openaclnn.core.products import (
    Product,
    chosen_product,
    current_product,
    find_product,
    listeners,
)
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import choose_engine, chosen_engine
from openaclnn.repeat.recipes import known_recipe, recipe, remember, stray_target
from openaclnn.runtime.device import device_named

__all__ = ["call_plain", "make_plain_function"]


def product_of(product: str | Product | None) -> Product:
    """The profile an argument names, or the one in force."""
    if product is None:
        return current_product()
    return product if isinstance(product, Product) else find_product(product)


def call_plain(
    operator: Operator, arguments: Mapping[str, Any], product: Any = None, key: Any = None
) -> Any:
    """Bind, check, plan and run one plain call; with a `key`, remember how for the next like it."""
    call = bind_plain(operator, arguments, product_of(product))
    error = operator.first_violation(call)
    if error is not None:
        raise error
    output = operator.output.name
    finish: Callable[[Any], Any] | None = None
    result = arguments["out"]
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
        check_memory(plan, (*plan.inputs, plan.output), tensors)
        if arguments["out"] is not None:
            check_overlap(plan, tensors)
        choice = choose_engine(plan, device)
        if key is not None:
            remember(key, recipe(operator, plan, choice, arguments, result))
        stream = stream_source(result)()
        if choice.runner([tensor.address for tensor in tensors], stream):
            raise stray_target(plan, tensors)
        if stream == 0 and device != "cpu" and hasattr(result, "block_until_ready"):
            device_named(device).drain(0)  # JAX reads results on streams of its own
    return result if finish is None else finish(result)


def plan_tensors(plan: Plan, call: Call) -> list[Tensor]:
    """The tensors in the order that kernels take their addresses, the output last."""
    return [call.tensor(operand.parameter) for operand in (*plan.inputs, plan.output)]


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
    first = positional[0].python_name
    options = [p.python_name for p in parameters if not p.is_tensor]
    setting = ["_product()", "_engine()", *options]  # what the last call must have in common
    common = " and ".join(f"{now} is last{n}" for n, now in enumerate(setting))
    source = f"""
def {operator.signature()}:
    express, {", ".join(f"last{n}" for n in range(len(setting)))} = _last[0]
    if express is not None and product is None and {common}:
        result = express({", ".join(arrays)})
        if result is not NotImplemented:
            return result
    key = known = None
    if product is None:
        try:
            if {first}.__class__ is _ndarray:
                if {_condition(parameters, "is _ndarray")}:
                    key = {_key(operator, parameters, "{0}.dtype, {0}.shape, {0}.strides")}
                    known = _known(key)
            elif {first}.__class__ in _torch:
                if {_condition(parameters, "in _torch")}:
                    key = {_key(operator, parameters, "{0}.dtype, {0}.shape, {0}.is_contiguous() or ({0}.stride(), {0}.is_neg()), {0}.get_device()")}
                    known = _known(key)
        except TypeError:  # an argument that cannot be hashed: the checks will say what it should be
            key = None
        if known is not None:
            result = known.call({", ".join(arrays)})
            if result is not NotImplemented:
                if known.express is not None:
                    _last[0] = (known.express, {", ".join(setting)})
                return result
    return _call(_operator, {{{given}}}, product, key)
"""
    nothing = (None,) * (len(setting) + 1)
    last = [nothing]

    def forget() -> None:
        last[0] = nothing

    listeners.append(forget)
    scope: dict[str, Any] = {
        "_last": last,
        "_call": call_plain, "_operator": operator, "_ndarray": np.ndarray, "_known": known_recipe,
        "_torch": TORCH_CLASSES, "_product": chosen_product, "_engine": chosen_engine,
    }  # fmt: skip
    exec(source, scope)
    function: Callable[..., Any] = scope[operator.python_name]
    function.__module__ = "openaclnn"
    function.__doc__ = _docstring(operator)
    function.operator = operator  # type: ignore[attr-defined]
    return function


def _condition(parameters: Sequence[Parameter], test: str) -> str:
    """Whether all tensors given are arrays of one class."""
    return " and ".join(
        f"{p.python_name}.__class__ {test}"
        if p.default is REQUIRED and p.kind is Kind.TENSOR
        else f"({p.python_name} is None or {p.python_name}.__class__ {test})"
        for p in parameters
        if p.is_tensor
    )


def _key(operator: Operator, parameters: Sequence[Parameter], layout: str) -> str:
    """What tells one signature from another: layouts, options, product and engine."""
    parts = [repr(operator.name), "_product()", "_engine()"]
    for p in parameters:
        name = p.python_name
        if p.kind in (Kind.SCALAR, Kind.FLOAT):
            # 0.0 == -0.0 and 1 == 1.0 == True, but they are not the same argument.
            parts += [f"{name} or str({name})", f"{name}.__class__"]
        elif not p.is_tensor:
            parts += [name, f"{name}.__class__"]
        elif p.default is REQUIRED and p.kind is Kind.TENSOR:
            parts.append(layout.format(name))
        else:
            parts.append(f"None if {name} is None else ({layout.format(name)})")
    return f"({', '.join(parts)})"


def _docstring(operator: Operator) -> str:
    lines = [operator.summary, "", operator.formula, "", "Parameters", "----------"]
    for group in operator.plain_parameters:
        for parameter in group:
            shape = f", shape {parameter.shape}" if parameter.shape else ""
            default = "" if parameter.default is REQUIRED else f" (default {parameter.default!r})"
            lines.append(f"{parameter.python_name}: {parameter.text}{shape}{default}")
    return "\n".join([*lines, "product: check against this product family instead of everything"])
