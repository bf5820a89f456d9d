"""An operator's formula as PyTorch's operations, value by value: differentiable to any order, on any device, in float64 too, which has formulas of its own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import HALVES, Plan
from openaclnn.core.status import AclnnError
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.formulas.rows import ROW_FORMULAS, Graph, Node, traced
from openaclnn.engines.numpy.rows import OPERATORS
from openaclnn.torch.refusals import in_torch_words
from openaclnn.torch.schema import arguments_of, follows, made_by, plan_of


def _sum(x: Any, rest: Any = None) -> Any:
    """A value and what its rounding left, which is nothing where that is no number."""
    return x if rest is None else x + torch.nan_to_num(rest, 0.0, 0.0, 0.0)


def _gelu_tanh_slope(x: Any) -> Any:
    """The derivative of GELU by tanh, x * sigmoid(v) of a v that grows as a cubic: 0 and 1 where that is far from 0."""
    x = x.clamp(-1e3, 1e3)
    scale = math.sqrt(8.0 / math.pi)
    share = torch.sigmoid(scale * (x + 0.044715 * x * x * x))
    return share + x * share * (1.0 - share) * scale * (1.0 + 3.0 * 0.044715 * x * x)


def _normal_pdf(x: Any) -> Any:
    return torch.exp(-x * x / 2) * (0.5 / math.pi) ** 0.5


WORDS: dict[str, Callable[..., Any]] = {
    **OPERATORS, "ratio": OPERATORS["/"], "fma": lambda x, y, z: x * y + z,
    **{
        name: getattr(torch, name)
        for name in ("where", "log", "log1p", "logit", "sqrt", "tanh", "abs", "minimum", "maximum", "erf", "erfc", "erfinv")
    },
    "log_sigmoid": functional.logsigmoid, "gelu": functional.gelu, "normal_cdf": torch.special.ndtr,
    "normal_pdf": _normal_pdf, "mish": functional.mish,
    "gelu_slope": lambda x: torch.special.ndtr(x) + x * _normal_pdf(x),
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"), "gelu_tanh_slope": _gelu_tanh_slope,
    "exp": lambda *x: torch.exp(_sum(*x)), "expm1": lambda *x: torch.expm1(_sum(*x)),
    "sigmoid": lambda *x: torch.sigmoid(_sum(*x)), "softplus": lambda *x: functional.softplus(_sum(*x)),
    "scaled_exp": lambda multiplier, factor, x: multiplier * torch.exp(factor * x),
    "scaled_expm1": lambda multiplier, factor, x: multiplier * torch.expm1(factor * x),
    "scaled_gate": lambda x, factor: x * torch.sigmoid(factor * torch.where(factor == 0, 0.0, x)),
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
    plan, specs = plan_of(operator, arguments), made_by(operator, arguments)
    tensors = {p.name: a for p, a in zip(arguments_of(operator), arguments, strict=True)}
    first = next(argument for argument in arguments if isinstance(argument, torch.Tensor))
    if plan.empty:
        empty = [(first.sum() * 0).expand(shape).to(dtype) for shape, dtype in specs]
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
        # A plan's numbers are FLOAT: what they were rounded from is among the arguments or the operator's, or one over the number of elements, or of rows.
        exact = [*operator.constants, *[each for each in arguments if isinstance(each, float)]]
        exact += [1.0 / max(1, math.prod(shape)) for shape in (specs[0][0], specs[0][0][:1])]
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
        outputs, outputs.values(), specs, strict=True
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


# float64, which the interface does not compute in and PyTorch's own checks of gradients need: losses of class indices and PReLU as they are written out
# here, by PyTorch's operations on the device; formulas of the engines by the same operations (`expression`); else by the operators' references on the host.


aten = torch.ops.aten


def in_float64(operator: Operator, arguments: tuple[Any, ...]) -> Any:
    """The results for the schema's arguments, checked as every call's are."""
    formula = WIDE.get(operator.python_name)
    try:
        specs = made_by(operator, arguments)
        if formula is None:
            if operator.output.in_place or not has_expression(plan_of(operator, arguments).kernel):
                return by_reference(operator, arguments)

            def formula(*arguments: Any) -> Any:
                return expression(operator, arguments)

    except AclnnError as error:
        raise in_torch_words(error) from None
    _refuse_strays(operator, arguments)
    wide = [
        a.detach().double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
        for a in arguments
    ]
    computed = formula(*wide)
    laid = follows(operator, arguments)  # PyTorch's operations lay their results so
    results = tuple(
        result.to(dtype) if laid else result.to(dtype).reshape(shape).contiguous()
        for result, (shape, dtype) in zip(
            (computed,) if operator.result_type is None else computed, specs, strict=True
        )
    )
    return results[0] if operator.result_type is None else results


def by_reference(operator: Operator, arguments: tuple[Any, ...]) -> Any:
    """The same on the host, by the formulas that every engine is held to."""
    names = [p.python_name for p in arguments_of(operator)]
    wide, narrow = dict(zip(names, arguments, strict=True)), {}
    for name, value in wide.items():
        if isinstance(value, torch.Tensor):
            host = value.detach().cpu().resolve_neg()
            wide[name] = (host.double() if host.is_floating_point() else host).numpy()
            narrow[name] = (host.float() if host.is_floating_point() else host).numpy()
    try:
        specs = made_by(operator, arguments)
        operator.reference_arguments(**{**wide, **narrow})  # refuses what calls refuse
    except AclnnError as error:
        raise in_torch_words(error) from None
    computed = operator.reference(**wide)
    first = next(value for value in arguments if isinstance(value, torch.Tensor))
    results = tuple(
        first.new_zeros(shape, dtype=dtype)
        if result is None
        else torch.from_numpy(np.array(result, order="C")).to(first.device, dtype).reshape(shape)
        for result, (shape, dtype) in zip(
            (computed,) if operator.result_type is None else computed, specs, strict=True
        )
    )
    if operator.output.in_place:
        first.copy_(results[0])
        return None
    return results[0] if operator.result_type is None else results


# The formulas, of the schema's arguments in order.


def _refuse_strays(operator: Operator, arguments: tuple[Any, ...]) -> None:
    """Class indices out of range, on every device."""
    named = dict(zip([p.python_name for p in arguments_of(operator)], arguments, strict=True))
    ignored = named.get("ignore_index")
    if ignored is None:
        return
    x = named["input" if "input" in named else "self"]
    target = named["target"].long()  # any index to ignore compares with it
    stray = target[(target != ignored) & ((target < 0) | (target >= x.shape[min(1, x.dim() - 1)]))]
    if stray.numel():
        raise IndexError(f"Target {stray[0].item()} is out of bounds.")


def _chosen(target: Tensor, classes: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Which positions count, and their classes; 0 for those that do not."""
    target = target.long()
    counted = (target != ignored) & (target >= 0) & (target < classes)
    return counted, torch.where(counted, target, 0)


def _positions_of(x: Tensor, target: Tensor, weight: Tensor, ignored: int) -> tuple[Tensor, ...]:
    """Log-probabilities (N, C, ...), which positions count, their classes as an axis to gather by, and their weights."""
    if x.dim() == 1:
        x, target = x.unsqueeze(0), target.reshape(1)
    counted, safe = _chosen(target, x.shape[1], ignored)
    factors = torch.where(counted, weight.reshape(-1)[safe], 0.0)
    return x, counted, safe.unsqueeze(1), factors


def _likelihood(x: Tensor, target: Tensor, weight: Tensor, reduction: str, ignored: int) -> Any:
    """Of rows and of pixels."""
    x, counted, index, factors = _positions_of(x, target, weight, ignored)
    losses = torch.where(counted, -factors * x.gather(1, index).squeeze(1), 0.0)
    total = factors.sum()
    if reduction != "none":
        losses = losses.sum() / total if reduction == "mean" else losses.sum()
    return losses, total


def _likelihood_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor, reduction: str, ignored: int, total: Any = None
) -> Tensor:  # fmt: skip
    shape, (x, counted, index, factors) = x.shape, _positions_of(x, target, weight, ignored)
    gradient = gradient.reshape(counted.shape if reduction == "none" else ())
    if reduction == "mean":
        gradient = gradient / (factors.sum() if total is None else total.reshape(()))
    values = torch.where(counted, -gradient * factors, 0.0)
    return torch.zeros_like(x).scatter(1, index, values.unsqueeze(1)).reshape(shape)


def _factors(x: Tensor, weight: Any) -> tuple[Tensor, Tensor]:
    """Of each class, and the same to be multiplied with logits."""
    factors = x.new_ones(x.shape[1]) if weight is None else weight
    return factors, factors.view(-1, *[1] * (x.dim() - 2))


def _logits(
    x: Tensor, target: Tensor, weight: Any, reduction: str, ignored: int, smoothing: float, scale: float
) -> Any:  # fmt: skip
    """As `operators.logits.reference` has it, step by step."""
    counted, safe = _chosen(target, x.shape[1], ignored)
    factors, across = _factors(x, weight)
    target_weight = torch.where(counted, factors[safe], 0.0)
    top, largest = x.max(1, keepdim=True)
    powers = torch.exp(x - top).scatter(1, largest, 0.0)
    rest = torch.log1p(powers.sum(1, keepdim=True)) + (top - top)
    top = torch.where(rest.isnan(), rest, top)
    log_prob = (x - top) - rest
    losses = -target_weight * log_prob.gather(1, safe.unsqueeze(1)).squeeze(1)
    top, rest = top.squeeze(1), rest.squeeze(1)
    if smoothing:
        spread = -(across * log_prob).sum(1)
        losses = (1 - smoothing) * losses + smoothing / x.shape[1] * spread
    losses = torch.where(counted, losses, 0.0)
    squares = torch.where(counted, scale * (top + rest).square(), 0.0)
    if reduction == "none":
        return losses + squares if scale else losses, top, rest
    loss, square = losses.sum(), squares.sum()
    if reduction == "mean":
        loss, square = loss / target_weight.sum(), square / counted.sum()
    return loss + square if scale else loss, top, rest


def _logits_grad(
    gradient: Tensor, x: Tensor, top: Tensor, rest: Tensor, target: Tensor, weight: Any, reduction: str,
    ignored: int, smoothing: float, scale: float,
) -> Tensor:  # fmt: skip
    """As `operators.logits.reference_grad` has it, step by step."""
    counted, safe = _chosen(target, x.shape[1], ignored)
    factors, across = _factors(x, weight)
    mean = reduction == "mean"
    # Where nothing counts, a mean is over nothing: no number times 0.
    total: Any = torch.where(counted.any(), torch.where(counted, factors[safe], 0.0).sum(), 1.0) if mean else 1.0  # fmt: skip
    number: Any = counted.sum().clamp(min=1) if mean else 1.0
    gradient = gradient.expand(target.shape).unsqueeze(1)
    log_prob = (x - top.unsqueeze(1)) - rest.unsqueeze(1)
    probability, at = torch.exp(log_prob), safe.unsqueeze(1)
    nll = gradient * (1 - smoothing) / total * factors[at]
    squares = 2 * scale * (top + rest).unsqueeze(1) * gradient / number if scale else 0.0 * nll
    at_target = torch.expm1(log_prob.gather(1, at)) * nll + probability.gather(1, at) * squares
    out = (probability * (nll + squares)).scatter(1, at, at_target)
    if smoothing:
        subtracted = gradient / total * smoothing / x.shape[1] * across
        out = out + (probability * subtracted.sum(1, keepdim=True) - subtracted)
    return torch.where(counted.unsqueeze(1), out, 0.0)


def _slopes(x: Tensor, weight: Tensor) -> Tensor:
    return weight.reshape(-1, *[1] * (x.dim() - 2)) if weight.numel() > 1 else weight.reshape(())


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * _slopes(x, weight))


def _prelu_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    others = [axis for axis in range(x.dim()) if axis != 1 or weight.numel() == 1]
    parts = torch.where(x > 0, 0.0, gradient * x)
    by_weight = parts.sum(others) if others else parts
    by_x = torch.where(x > 0, gradient, gradient * _slopes(x, weight))
    return by_x, by_weight.reshape(weight.shape)


WIDE: dict[str, Callable[..., Any]] = {
    "nll_loss": _likelihood,
    "nll_loss_backward": _likelihood_backward,
    "nll_loss2d": _likelihood,
    "nll_loss2d_backward": _likelihood_backward,
    "cross_entropy_logits": _logits,
    "cross_entropy_logits_grad": _logits_grad,
    "prelu": _prelu,
    "prelu_backward": _prelu_backward,
}
"""By the operators' Python names."""
