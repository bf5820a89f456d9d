"""Derivatives as `torch.autograd.Function`s: which operator computes another's gradient. They are made from declarations that name a gradient; those of
losses are written here. Other derivatives are refused.

A gradient is differentiated as an expression of PyTorch's operations, so that gradients of gradients are right to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch

from openaclnn.core.declare import Gradient, Operator
from openaclnn.core.interface import python_name
from openaclnn.operators import find_operator, registry
from openaclnn.torch.expressions import WIDE, expression
from openaclnn.torch.kernels import KERNELS, PLAIN, ROW_OPERATORS, Kernel, intercepted
from openaclnn.torch.private import Function, transformed, tuned


class Formula(Function):  # type: ignore[misc]
    """An operator and its derivative. `apply` takes the schema's arguments in order."""

    apply: ClassVar[Any]  # made by PyTorch

    @staticmethod
    def _compiled_autograd_key(ctx: Any) -> tuple[Any, ...]:
        """The key by which compiled autograd tells formulas apart, as `torch.autograd.Function` has it."""
        return (ctx._autograd_function_id,)


_FormulaType = TypeVar("_FormulaType", bound=type[Formula])


def quick(formula: _FormulaType) -> _FormulaType:
    """Decorates a formula so that PyTorch applies it in less time."""
    tuned(formula)
    return formula


_CROSS_ENTROPY, _CROSS_ENTROPY_GRAD = (
    KERNELS["cross_entropy_loss"],
    KERNELS["cross_entropy_loss_grad"],
)
_LOGITS, _LOGITS_GRAD = KERNELS["cross_entropy_logits"], KERNELS["cross_entropy_logits_grad"]


class Derivative:
    """Computes the derivative of an operator (the forward) by one of its tensors, or by several at once."""

    def __init__(self, operator: Operator, gradient: Gradient) -> None:
        kernel = KERNELS[operator.python_name]
        self.kernel = KERNELS[python_name(gradient.operator)]
        self.expanded = gradient.expanded
        self.has_several = self.kernel.operator.result_type is not None
        places = {p.name: place for place, p in enumerate(kernel.parameters)}
        # `taken`, of each argument but the incoming gradient: its place among the forward's arguments, which its results follow, and its default.
        places |= {name: place for place, name in enumerate(operator.output_names, len(places))}
        names = [p.name for p in self.kernel.parameters]
        self.incoming = names.index(gradient.incoming) if gradient.incoming else 0
        self.taken: list[tuple[int | None, Any]] = []
        self.converted: list[
            Any
        ] = []  # functions that compute an option from the forward's, or None
        for parameter in self.kernel.parameters:
            name = gradient.sources.get(parameter.name, parameter.name)
            if parameter.name != names[self.incoming]:
                self.taken.append((places.get(name), parameter.default))
                self.converted.append(gradient.converted.get(parameter.name))

    def of(self, gradient: Any, every: Mapping[int, Any]) -> Any:
        """The derivative, given the result's gradient, and the forward's arguments and results by place."""
        arguments = [default if place is None else every[place] for place, default in self.taken]
        for place, convert in enumerate(self.converted):
            if convert is not None:
                arguments[place] = convert(arguments[place])
        if self.expanded:
            tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
            wide = iter(torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]
            arguments = [
                next(wide) if isinstance(argument, torch.Tensor) else argument
                for argument in arguments
            ]
        if self.has_several:  # operators with several results take tensors of one dtype
            arguments = [
                argument.to(gradient.dtype) if torch.is_tensor(argument) else argument
                for argument in arguments
            ]
        arguments.insert(self.incoming, gradient)
        return self.kernel.gradient(*arguments)


def _vjp(computed: Callable[..., Any], values: Sequence[Any]) -> tuple[Any, Callable[[Any], Any]]:
    """The results of a function of values, and the function from the results' gradients to the values' (pullback). Under saved-tensor hooks, which
    torch.func refuses, autograd in this thread computes them.
    """
    try:
        results, pullback = torch.func.vjp(computed, *values)  # type: ignore[misc]
        return results, pullback
    except RuntimeError:
        if transformed():
            raise
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, since one tensor may have two places.
        places = [
            value.view_as(value) if value.requires_grad else value.detach().requires_grad_()
            for value in values
        ]
        results = computed(*places)
    every = [results] if isinstance(results, torch.Tensor) else results

    def of_places(gradients: Any) -> Any:
        outer = [gradients] if isinstance(gradients, torch.Tensor) else gradients
        pairs = [(one, by) for one, by in zip(every, outer, strict=True) if one.requires_grad]
        if not pairs:
            return tuple([torch.zeros_like(place) for place in places])
        ones, outer = zip(*pairs, strict=True)
        return torch.autograd.grad(
            ones, places, outer, create_graph=further, materialize_grads=True
        )

    return results, of_places


def _by_others(operator: Operator, arguments: list[Any], gradients: tuple[Any, ...]) -> Any:
    """The derivative of outputs after the first by the first tensor, which no operator computes: by PyTorch's operations. Gradients may be None."""

    def computed(first: Any) -> list[Any]:
        _, *others = expression(operator, [first, *arguments[1:]])
        return [tensor for tensor, by in zip(others, gradients, strict=True) if by is not None]

    _, pullback = _vjp(computed, arguments[:1])
    (derivative,) = pullback([by for by in gradients if by is not None])
    return derivative


def _declared(operator: Operator, gradient: Gradient, alone: bool) -> dict[str, type[Formula]]:
    """The formulas of an operator and of its gradients, by name. `alone`: only the first output is differentiable."""
    kernel = KERNELS[operator.python_name]
    inputs, places = len(kernel.parameters), [p.name for p in kernel.parameters]
    first = Derivative(operator, gradient)
    derivatives = {0: first} | {
        places.index(name): Derivative(operator, other) for name, other in gradient.others.items()
    }
    read = {place for each in derivatives.values() for place, _ in each.taken}
    results = range(inputs, inputs + len(operator.outputs))
    saved = [place for place in (*kernel.tensors, *results) if place in read]
    options = [place for place in range(inputs) if place not in saved]
    several = operator.result_type is not None

    @quick
    class Forward(Formula):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            result = kernel.call(*arguments)
            every = (*arguments, *(result if several else (result,)))
            ctx.save_for_backward(*[every[place] for place in saved])
            ctx.options = [arguments[place] for place in options]
            ctx.set_materialize_grads(not several)
            if alone:
                ctx.mark_non_differentiable(*result[1:])
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Any, *others: Any) -> Any:
            every = dict(zip(options, ctx.options, strict=True))
            every.update(zip(saved, ctx.saved_tensors, strict=True))
            if first.has_several:
                by_tensors = first.of(gradient, every)
                by_place = dict(zip(kernel.tensors, by_tensors, strict=False))
                return tuple([by_place.get(place) for place in range(inputs)])
            if len(derivatives) > 1:
                wanted = ctx.needs_input_grad
                return tuple([
                    derivatives[place].of(gradient, every) if place in derivatives and wanted[place] else None
                    for place in range(inputs)
                ])  # fmt: skip
            by_first = None if gradient is None else first.of(gradient, every)
            if any(tensor is not None for tensor in others):
                by_others = _by_others(operator, [every[place] for place in range(inputs)], others)
                by_first = by_others if by_first is None else by_first + by_others
            return by_first, *[None] * (inputs - 1)

    kernels = {each.kernel.operator.python_name: each.kernel for each in derivatives.values()}
    backwards = {name: _differentiated(each) for name, each in kernels.items()}
    return {operator.python_name: Forward, **backwards}


def _differentiated(kernel: Kernel) -> type[Formula]:
    """The formula of a gradient, whose derivative is taken through an expression of PyTorch's operations."""
    name, several = kernel.operator.python_name, kernel.operator.result_type is not None
    written_out = _logits_grad_of if name == "cross_entropy_logits_grad" else WIDE.get(name)

    @quick
    class Backward(Formula):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            ctx.save_for_backward(*[arguments[place] for place in kernel.tensors])
            ctx.options = [
                None if place in kernel.tensors else argument
                for place, argument in enumerate(arguments)
            ]
            return kernel.call(*arguments)

        @staticmethod
        def backward(ctx: Any, *outer: Any) -> Any:
            every = list(ctx.options)
            for place, tensor in zip(kernel.tensors, ctx.saved_tensors, strict=True):
                every[place] = tensor
            needed = [place for place, is_needed in enumerate(ctx.needs_input_grad) if is_needed]

            def computed(*values: Any) -> Any:
                arguments = list(every)
                for place, value in zip(needed, values, strict=True):
                    arguments[place] = value
                if written_out is None:
                    return expression(kernel.operator, arguments)
                return written_out(*map(_in_float64, arguments))

            result, pullback = _vjp(computed, [every[place] for place in needed])
            by = [each.to(of.dtype) for each, of in zip(outer, result if several else [result], strict=True)]  # fmt: skip
            derivatives = dict(zip(needed, pullback(tuple(by) if several else by[0]), strict=True))
            return tuple([derivatives.get(place) for place in range(len(every))])

    return Backward


def _in_float64(argument: Any) -> Any:
    """A tensor in float64: formulas written out in PyTorch's operations would lose digits in float32."""
    floating = isinstance(argument, torch.Tensor) and argument.is_floating_point()
    return argument.double() if floating else argument


def _logits_grad_of(gradient: Any, x: Any, top: Any, rest: Any, *others: Any) -> Any:
    """The gradient of cross entropy as a function of the logits alone: the two numbers of each row (`top`, `rest`) are computed again."""
    _, *sides = WIDE["cross_entropy_logits"](x, *others)
    return WIDE["cross_entropy_logits_grad"](gradient, x, *sides, *others)


@quick
class CrossEntropyLoss(Formula):
    """The loss with log-probabilities, from which its gradient is computed. Log-probabilities and log-sum-exp are not differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Any, target: Any, weight: Any, *options: Any) -> Any:
        loss, log_prob, zloss, lse = _CROSS_ENTROPY.call(x, target, weight, *options)
        ctx.save_for_backward(x, log_prob, target, weight, lse)
        *ctx.options, ctx.returned = options
        ctx.mark_non_differentiable(log_prob, lse, *(() if ctx.returned else (zloss,)))
        ctx.set_materialize_grads(False)
        return loss, log_prob, zloss, lse

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any, by_zloss: Any, __: Any) -> Any:
        x, log_prob, target, weight, lse = ctx.saved_tensors
        if gradient is None and by_zloss is None:
            return (None,) * 8
        scale = ctx.options[3]
        if transformed():  # torch.func may differentiate this again, and would take `OnceDifferentiable` for a constant
            if scale or by_zloss is not None:
                raise RuntimeError(
                    "openaclnn::cross_entropy_loss: a z-loss has no derivative under torch.func; "
                    "openaclnn.torch.functional.cross_entropy has one, to any order"
                )
            _, top, rest = _LOGITS.op(x.detach(), target, weight, *ctx.options)
            by_x = _LOGITS_GRAD.op(gradient, x, top, rest, target, weight, *ctx.options)
            return by_x, *(None,) * 7
        if scale and not ctx.returned:
            lse = torch.logsumexp(x.detach(), 1).to(log_prob.dtype)
        if gradient is None:
            gradient = torch.zeros_like(by_zloss)
        with torch.no_grad():
            by_x = _CROSS_ENTROPY_GRAD.call(
                gradient, log_prob, target, weight, by_zloss, lse if scale else None, *ctx.options
            )
        if torch.is_grad_enabled():
            by_x = OnceDifferentiable.apply(by_x, x, gradient, by_zloss)
        return by_x, *(None,) * 7


@quick
class OnceDifferentiable(Formula):
    """A gradient that cannot be differentiated again: it depends on its causes in the graph, and raises in a second backward pass."""

    @staticmethod
    def forward(ctx: Any, gradient: Any, *causes: Any) -> Any:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, outer: Any) -> Any:
        raise RuntimeError(
            "this gradient has no derivative; openaclnn.torch.functional.cross_entropy has one, to any order"
        )


def _of_rows(forward: Operator, backward: Operator) -> type[Formula]:
    """The formula of an operator of rows. Its gradient operator takes the gradients of the first results, then the forward's tensors and results."""
    kernel, gradient_kernel = KERNELS[forward.python_name], KERNELS[backward.python_name]
    inputs, outputs = len(kernel.tensors), len(forward.outputs)
    differentiable = len(gradient_kernel.tensors) - inputs - outputs
    options = len(kernel.parameters) - inputs
    behind_rows = "soft_cross_entropy" in forward.python_name

    @quick
    class Rows(Formula):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            results = kernel.call(*arguments)
            ctx.save_for_backward(*arguments[:inputs], *results)
            ctx.options = arguments[inputs:]
            ctx.mark_non_differentiable(*results[differentiable:])
            ctx.set_materialize_grads(False)
            return results

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            saved, by_results = ctx.saved_tensors, gradients[:differentiable]
            others = (None,) * (inputs - 1 + options)
            if torch.is_grad_enabled():  # gradients of gradients, by PyTorch's operations
                results = expression(forward, [*saved[:inputs], *ctx.options])
                wanted = [
                    result
                    for result, by in zip(results, by_results, strict=False)
                    if by is not None
                ]
                outer = [by for by in by_results if by is not None]
                (by_input,) = torch.autograd.grad(wanted, saved[0], outer, create_graph=True)
                return by_input, *others
            # The gradient of a sum is one number, expanded with stride 0: kernels take it contiguous.
            every = [torch.zeros_like(result) if by is None else by.contiguous() for result, by in zip(saved[inputs:], by_results, strict=False)]  # fmt: skip
            arguments = *every, *saved, *ctx.options
            place = _gradient_memory(saved[0]) if behind_rows and not intercepted() else None
            if place is not None:
                return gradient_kernel.into(place, *arguments), *others
            return gradient_kernel.gradient(*arguments), *others

    return Rows


def _gradient_memory(rows: Any) -> Any:
    """A tensor for the gradient of images whose class axis was moved to the end: row-major with the class axis in its old place, as PyTorch's is. None
    where there are no pixels, or `rows` is no plain tensor."""
    if rows.dim() < 3 or rows.is_meta or type(rows) not in PLAIN or rows.is_neg():
        return None
    return torch.empty_like(rows.movedim(-1, 1), memory_format=torch.contiguous_format).movedim(1, -1)  # fmt: skip


_OF_CLASSES = {
    **{
        name: Gradient(f"{name}_backward", {"totalWeight": "totalWeightOut"})
        for name in ("nll_loss", "nll_loss2d")
    },
    "cross_entropy_logits": Gradient("cross_entropy_logits_grad", {"top": "topOut", "rest": "restOut"}),
}  # fmt: skip

FORMULAS: dict[str, type[Formula]] = {
    "cross_entropy_loss": CrossEntropyLoss,
    **{
        name: _differentiated(KERNELS[name])
        for name in ("kl_div_backward", "kl_div_target_backward")
    },
    **{
        forward.python_name: _of_rows(forward, backward)
        for forward, backward in zip(ROW_OPERATORS[::2], ROW_OPERATORS[1::2], strict=True)
    },
}
"""The formulas of the operators that can be differentiated, by Python name."""

DECLARED: set[str] = set()
"""The names whose formulas are made from declarations, with derivatives by every tensor that gradients are declared for."""

for _name, _gradient in _OF_CLASSES.items():
    FORMULAS.update(_declared(KERNELS[_name].operator, _gradient, alone=True))
for _operator in registry():
    if _operator.gradient is not None:
        _declarations = _declared(_operator, _operator.gradient, alone=False)
        FORMULAS.update(_declarations)
        DECLARED |= {*_declarations}


# Formulas that add a derivative to a result that is computed already, which `functional` mostly uses.
#
# `apply` takes the tensor to differentiate by, and all else, the result included, in one tuple: autograd spends time on every
# argument, and would take further tensors for inputs. `ctx.to_save` is set directly, since `save_for_backward` takes as long
# as all the rest. The gradients are those of the formulas above, which gradients of gradients go through.


_elu_backward, _l1_backward = KERNELS["elu_backward"], KERNELS["l1_loss_backward"]


def attached(name: str) -> type[Formula] | None:
    """The formula of an operator's derivative by its first tensor, for `apply(tensor, (result, arguments))`. None where no gradient is declared, or
    one operator computes the derivatives by several tensors.
    """
    operator = find_operator(name)
    if operator.gradient is None:
        return None
    derivative = Derivative(operator, operator.gradient)
    if derivative.has_several:
        return None
    kernel, taken = derivative.kernel, derivative.taken
    tensors = [place for place in kernel.tensors if place != derivative.incoming]
    saved = [source for source, _ in taken[: len(tensors)] if source is not None]
    options = [
        (source, default, convert)
        for (source, default), convert in zip(taken, derivative.converted, strict=True)
    ][len(saved) :]
    assert derivative.incoming == 0
    assert len(saved) == len(tensors) == max(tensors)  # tensors stand before options

    @quick
    class Attached(Formula):
        @staticmethod
        def forward(ctx: Any, x: Any, constants: Any) -> Any:
            result, arguments = constants
            every = (*arguments, result)
            ctx.to_save = tuple([every[place] for place in saved])
            ctx.options = [
                default if source is None else every[source] if convert is None else convert(every[source])
                for source, default, convert in options
            ]  # fmt: skip
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return kernel.gradient(gradient, *ctx.saved_tensors, *ctx.options), None

    return Attached


@quick
class EluInPlace(Formula):
    """ELU that overwrites its input; the gradient is computed from the result."""

    @staticmethod
    def forward(ctx: Any, x: Any, arguments: Any) -> Any:
        KERNELS["elu"].into(x, *arguments)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        _, *ctx.options = arguments
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (result,) = ctx.saved_tensors
        return _elu_backward.gradient(gradient, result, *ctx.options, True), None


class Loss(Formula):
    """A loss for `apply(tensor, (result, further tensors to save, what `ctx.kept` keeps))`."""

    @staticmethod
    def forward(ctx: Any, x: Any, constants: Any) -> Any:
        result, beside, ctx.kept = constants
        ctx.to_save = x, *beside
        return result


@quick
class L1(Loss):
    """The absolute error as a function of the difference, which is saved, as PyTorch does it: both tensors may be overwritten."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (difference,) = ctx.saved_tensors
        zeros = difference.new_zeros(())
        return _l1_backward.gradient(gradient, difference, zeros, *ctx.kept), None


@quick
class Likelihood(Loss):
    """The negative log-likelihood of rows or pixels, by the gradient's kernel for either. All calls without weights share one tensor of ones, which is
    not saved by autograd: its saved-tensor hooks might write to it.
    """

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        kernel, total, factors, (reduction, ignored) = ctx.kept
        if weight is None:
            weight = factors.clone() if torch.is_grad_enabled() else factors
        return kernel.gradient(gradient, x, target, weight, reduction, ignored, total), None


@quick
class CrossEntropy(Loss):
    """Cross entropy of logits, which are saved; two numbers of each row are kept."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        top, rest, options = ctx.kept
        return _LOGITS_GRAD.gradient(gradient, x, top, rest, target, weight, *options), None


@quick
class CrossEntropyOverLogits(CrossEntropy):
    """Cross entropy whose gradient is written into the logits' memory."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if torch.is_grad_enabled():  # gradients of gradients read the logits
            return CrossEntropy.backward(ctx, gradient)
        x, target, weight = ctx.saved_tensors
        by_input, (top, rest, options) = x.detach(), ctx.kept
        _LOGITS_GRAD.into(by_input, gradient, x, top, rest, target, weight, *options)
        return by_input, None
