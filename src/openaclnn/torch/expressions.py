"""An operator's formula as PyTorch's operations, value by value: differentiable to any order, on any device, in float64 too."""

from __future__ import annotations

import functools
import math
import operator as python
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import HALVES, Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.formulas.rows import ROW_FORMULAS, Graph, Node, traced
from openaclnn.torch.schema import arguments_of, made_by, plan_of

__all__ = ["expression", "has_expression"]


def _sum(x: Any, rest: Any = None) -> Any:
    """A value and what its rounding left, which is nothing where that is no number."""
    return x if rest is None else x + torch.nan_to_num(rest, 0.0, 0.0, 0.0)


def _gelu_tanh_slope(x: Any) -> Any:
    """The derivative of GELU by tanh, x * sigmoid(v) of a v that grows as a cubic: 0 and 1 where that is far from 0."""
    x = x.clamp(-1e3, 1e3)
    scale = math.sqrt(8.0 / math.pi)
    share = torch.sigmoid(scale * (x + 0.044715 * x * x * x))
    return share + x * share * (1.0 - share) * scale * (1.0 + 3.0 * 0.044715 * x * x)


WORDS: dict[str, Callable[..., Any]] = {
    "+": python.add, "-": python.sub, "*": python.mul, "/": python.truediv, "ratio": python.truediv, "neg": python.neg,
    "<": python.lt, "<=": python.le, ">": python.gt, ">=": python.ge, "==": python.eq, "!=": python.ne,
    "&": python.and_, "|": python.or_, "~": python.invert, "fma": lambda x, y, z: x * y + z,
    **{
        name: getattr(torch, name)
        for name in ("where", "log", "log1p", "logit", "sqrt", "tanh", "abs", "minimum", "maximum", "erf", "erfc", "erfinv")
    },
    "log_sigmoid": functional.logsigmoid, "gelu": functional.gelu, "normal_cdf": torch.special.ndtr,
    "normal_pdf": lambda x: torch.exp(-x * x / 2) * (0.5 / math.pi) ** 0.5,
    "mish": functional.mish, "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"), "gelu_tanh_slope": _gelu_tanh_slope,
    "exp": lambda *x: torch.exp(_sum(*x)), "expm1": lambda *x: torch.expm1(_sum(*x)),
    "sigmoid": lambda *x: torch.sigmoid(_sum(*x)), "softplus": lambda *x: functional.softplus(_sum(*x)),
    "scaled_exp": lambda multiplier, factor, x: multiplier * torch.exp(factor * x),
    "scaled_expm1": lambda multiplier, factor, x: multiplier * torch.expm1(factor * x),
    "sign": lambda x: torch.where(x == x, torch.sign(x), x),  # PyTorch's is 0 of NaN
    "softened": functional.softplus, "low_log": torch.log, "low_log1m": lambda x: torch.log1p(-x),
    "rounded": lambda x: x, "gate": lambda x, *v: x * torch.sigmoid(_sum(*v)),
}  # fmt: skip
"""What a value of a graph is called, and computes; sums over classes stand in `_value`."""


def has_expression(kernel: str) -> bool:
    """Whether a kernel is a formula of such values, and sees no targets, of which strays are told of elsewhere."""
    if kernel in FORMULAS:
        return True
    return kernel in ROW_FORMULAS and "Target" not in dict(ROW_FORMULAS[kernel].operands).values()


def expression(operator: Operator, arguments: Sequence[Any]) -> Any:
    """What the operator computes of the schema's arguments: a tensor, or a tuple of several."""
    plan, made = plan_of(operator, arguments), made_by(operator, arguments)
    tensors = {p.name: a for p, a in zip(arguments_of(operator), arguments, strict=True)}
    first = next(argument for argument in arguments if isinstance(argument, torch.Tensor))
    if plan.empty:
        empty = [(first.sum() * 0).expand(shape).to(dtype) for shape, dtype in made]
        return empty[0] if operator.result_type is None else tuple(empty)
    inputs = [
        _part(tensors[operand.parameter], operand.role, plan.class_axis) for operand in plan.inputs
    ]
    wide = (
        torch.float64 if any(tensor.dtype == torch.float64 for tensor in inputs) else torch.float32
    )
    graph, names = _graph_of(plan)
    floats = [tensor.to(wide) if tensor.is_floating_point() else tensor for tensor in inputs]
    values = dict(zip(names, floats, strict=True))
    if plan.classes:
        roles = [operand.role for operand in plan.inputs]
        values = {
            name: _as_rows(value, role, plan.class_axis)
            for (name, value), role in zip(values.items(), roles, strict=True)
        }
    numbers = dict(plan.numbers)
    if wide is torch.float64:
        # A plan's numbers are FLOAT: what they were rounded from is among the arguments, or one over the number of elements.
        exact = [argument for argument in arguments if isinstance(argument, float)]
        exact.append(1.0 / max(1, math.prod(made[0][0])))
        numbers |= {
            name: number
            for number in exact
            for name in numbers
            if numbers[name] == float_of(number)
        }
    computed = _evaluated(graph, values, numbers, plan.classes, first.device, wide)
    outputs = dict(
        zip(((operand.parameter, operand.role) for operand in plan.outputs), computed, strict=True)
    )
    for name in {name for name, role in outputs if role in HALVES}:
        halves = [outputs.pop((name, role)) for role in HALVES]
        outputs[name, "full"] = torch.cat(halves, plan.class_axis)
    results = []
    for (_, role), result, (shape, dtype) in zip(
        outputs, outputs.values(), made, strict=True
    ):  # fmt: skip
        if plan.classes and role == "full":
            result = result.movedim(-1, plan.class_axis)
        elif plan.reduction:
            result = result.sum() if plan.reduction == "sum" else result.mean()
        laid = result.reshape(shape) if plan.classes or plan.reduction else result.expand(shape)
        results.append(laid.to(dtype))
    return results[0] if operator.result_type is None else tuple(results)


def _part(tensor: Any, role: str, axis: int) -> Any:
    """What an operand has of its tensor."""
    return tensor.chunk(2, axis)[HALVES.index(role)] if role in HALVES else tensor


def _as_rows(tensor: Any, role: str, axis: int) -> Any:
    """A tensor with its classes last, or with one axis for them."""
    if role == "full":
        return (tensor if tensor.dim() else tensor.reshape(1)).movedim(axis, -1)
    return tensor.reshape(-1) if role == "classes" else tensor.unsqueeze(-1)


def _graph_of(plan: Plan) -> tuple[Graph, tuple[str, ...]]:
    """The values of a plan's formula, and the names of its inputs."""
    row = ROW_FORMULAS.get(plan.kernel)
    if row is not None:
        return row.graph(plan.numbers), tuple(name for name, _ in row.operands)
    formula = FORMULAS[plan.kernel]
    switches = tuple(sorted(formula.switches_of(plan.numbers).items()))
    return _elementwise_graph(plan.kernel, switches), formula.values


@functools.cache
def _elementwise_graph(kernel: str, switches: tuple[tuple[str, bool], ...]) -> Graph:
    formula = FORMULAS[kernel]
    operands = tuple((name, "Row") for name in formula.values)
    return traced(formula.function, operands, formula.numbers, dict(switches))


def _evaluated(
    graph: Graph, inputs: Mapping[str, Any], numbers: Mapping[str, Any], classes: int, device: Any, dtype: Any
) -> list[Any]:  # fmt: skip
    values: list[Any] = []

    def value(node: Node) -> Any:
        operands = [values[each.index] for each in node.of]
        match node.what:
            case "input":
                return inputs[node.name]
            case "number":
                return torch.full((), float(numbers[node.name]), dtype=dtype, device=device)
            case "constant":
                return torch.full((), node.name, dtype=dtype, device=device)
            case "classes":
                return torch.full((), float(classes), dtype=dtype, device=device)
            case "total":
                x = operands[0]
                return x.sum(-1, keepdim=True) if "c" in node.of[0].axes else x * classes
            case "largest":
                return operands[0].amax(-1, keepdim=True) if "c" in node.of[0].axes else operands[0]
            case "is_target":
                return torch.arange(classes, device=device) == operands[0]
            case "is_counted":
                return _is_class(operands[0], classes) & (operands[0] != numbers["ignore_index"])
            case "at":
                x, target = operands
                inside = _is_class(target, classes)
                chosen = x.gather(-1, torch.where(inside, target, 0).long())
                return torch.where(inside, chosen, torch.zeros_like(chosen))
            case what:
                return WORDS[what](*operands)

    for node in graph.nodes:
        values.append(value(node))
    return [values[result.index] for result in graph.results]


def _is_class(target: Any, classes: int) -> Any:
    return (target >= 0) & (target < classes)
