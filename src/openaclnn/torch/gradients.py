"""Derivatives: which operator is whose gradient. Where a declaration names its gradient, both follow from that; the losses' are here.
What an operator has none for is refused.

The gradients' own derivatives are PyTorch's operations, so that gradients of gradients are right to any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import torch

from openaclnn.core.declare import Gradient, Operator
from openaclnn.core.interface import python_name
from openaclnn.operators import find_operator, registry
from openaclnn.torch.expressions import WIDE, expression
from openaclnn.torch.kernels import KERNELS, OF_ROWS, PLAIN, Kernel, disturbed
from openaclnn.torch.private import Function, transformed, tuned


class Formula(Function):  # type: ignore[misc]
    """An operator and its derivative, of the schema's arguments in order."""

    apply: ClassVar[Any]  # made by PyTorch

    @staticmethod
    def _compiled_autograd_key(ctx: Any) -> tuple[Any, ...]:
        """As `torch.autograd.Function` has it: what tells formulas apart where PyTorch compiles backward passes."""
        return (ctx._autograd_function_id,)


_FormulaType = TypeVar("_FormulaType", bound=type[Formula])


def quick(formula: _FormulaType) -> _FormulaType:
    """A formula that takes PyTorch less time to apply."""
    tuned(formula)
    return formula


_CROSS_ENTROPY, _CROSS_ENTROPY_GRAD = (
    KERNELS["cross_entropy_loss"],
    KERNELS["cross_entropy_loss_grad"],
)
_LOGITS, _LOGITS_GRAD = KERNELS["cross_entropy_logits"], KERNELS["cross_entropy_logits_grad"]


class Derivative:
    """What computes the derivative by one of a forward's tensors, or by the first of them, and of what."""

    def __init__(self, operator: Operator, gradient: Gradient) -> None:
        kernel = KERNELS[operator.python_name]
        self.kernel = KERNELS[python_name(gradient.operator)]
        self.expanded = gradient.expanded
        self.several = self.kernel.operator.result_type is not None
        places = {p.name: place for place, p in enumerate(kernel.parameters)}
        # Of its arguments but the incoming gradient: where each is among the forward's, whose results are behind them, or its default.
        places |= {name: place for place, name in enumerate(operator.output_names, len(places))}
        names = [p.name for p in self.kernel.parameters]
        self.incoming = names.index(gradient.incoming) if gradient.incoming else 0
        self.taken: list[tuple[int | None, Any]] = []
        self.converted: list[Any] = []  # what an option is made by, where it is not the forward's
        for parameter in self.kernel.parameters:
            name = gradient.sources.get(parameter.name, parameter.name)
            if parameter.name != names[self.incoming]:
                self.taken.append((places.get(name), parameter.default))
                self.converted.append(gradient.converted.get(parameter.name))

    def of(self, gradient: Any, every: Mapping[int, Any]) -> Any:
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
        if self.several:  # of which all have one dtype
            arguments = [
                argument.to(gradient.dtype) if torch.is_tensor(argument) else argument
                for argument in arguments
            ]
        arguments.insert(self.incoming, gradient)
        return self.kernel.gradient(*arguments)


def _by_others(operator: Operator, arguments: list[Any], gradients: tuple[Any, ...]) -> Any:
    """The derivative by the first tensor of the outputs behind the first, which no operator computes; those of None count for nothing."""

    def computed(first: Any) -> list[Any]:
        _, *others = expression(operator, [first, *arguments[1:]])
        return [tensor for tensor, by in zip(others, gradients, strict=True) if by is not None]

    (derivative,) = torch.func.vjp(computed, arguments[0])[1](
        [by for by in gradients if by is not None]
    )
    return derivative


def _declared(operator: Operator, gradient: Gradient, alone: bool) -> dict[str, type[Formula]]:
    """An operator and its gradients; `alone`: outputs behind the first have no derivatives."""
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
            if first.several:
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
    """A gradient, whose own derivative is that of its formula."""
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
            learnt = [place for place, needed in enumerate(ctx.needs_input_grad) if needed]

            def computed(*values: Any) -> Any:
                arguments = list(every)
                for place, value in zip(learnt, values, strict=True):
                    arguments[place] = value
                if written_out is None:
                    return expression(kernel.operator, arguments)
                return written_out(*map(_wide, arguments))

            result, given_back = torch.func.vjp(computed, *[every[place] for place in learnt])  # type: ignore[misc]
            by = [each.to(of.dtype) for each, of in zip(outer, result if several else [result], strict=True)]  # fmt: skip
            derivatives = dict(
                zip(learnt, given_back(tuple(by) if several else by[0]), strict=True)
            )
            return tuple([derivatives.get(place) for place in range(len(every))])

    return Backward


def _wide(argument: Any) -> Any:
    """In float64, whose digits outlast the steps of formulas that are written out and their derivatives."""
    floating = isinstance(argument, torch.Tensor) and argument.is_floating_point()
    return argument.double() if floating else argument


def _logits_grad_of(gradient: Any, x: Any, top: Any, rest: Any, *others: Any) -> Any:
    """The gradient of cross entropy, in whose formula the two numbers of a row are made of its logits."""
    _, *sides = WIDE["cross_entropy_logits"](x, *others)
    return WIDE["cross_entropy_logits_grad"](gradient, x, *sides, *others)


@quick
class CrossEntropyLoss(Formula):
    """With the log-probabilities that the gradient is made from; those and the log-sum-exp have none of their own."""

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
        if transformed():  # whose levels all differentiate this: what refuses at one of them would be a constant to others
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
            by_x = Once.apply(by_x, x, gradient, by_zloss)
        return by_x, *(None,) * 7


@quick
class Once(Formula):
    """A gradient that is not differentiated: it hangs on what it was made from, and says so when asked."""

    @staticmethod
    def forward(ctx: Any, gradient: Any, *causes: Any) -> Any:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, outer: Any) -> Any:
        raise RuntimeError(
            "this gradient has no derivative; openaclnn.torch.functional.cross_entropy has one, to any order"
        )


def _of_rows(forward: Operator, backward: Operator) -> type[Formula]:
    """Numbers of rows, whose gradient takes gradients of the first of them, then what the forward takes and gives."""
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
            nothing = (None,) * (inputs - 1 + options)
            if torch.is_grad_enabled():  # gradients of gradients: by operations that have them
                results = expression(forward, [*saved[:inputs], *ctx.options])
                wanted = [
                    result
                    for result, by in zip(results, by_results, strict=False)
                    if by is not None
                ]
                outer = [by for by in by_results if by is not None]
                (by_input,) = torch.autograd.grad(wanted, saved[0], outer, create_graph=True)
                return by_input, *nothing
            # Those of a sum are one number for all rows: as rows of their own, kernels have them side by side.
            every = [torch.zeros_like(result) if by is None else by.contiguous() for result, by in zip(saved[inputs:], by_results, strict=False)]  # fmt: skip
            arguments = *every, *saved, *ctx.options
            place = _place_of_classes(saved[0]) if behind_rows and not disturbed() else None
            if place is not None:
                return gradient_kernel.into(place, *arguments), *nothing
            return gradient_kernel.gradient(*arguments), *nothing

    return Rows


def _place_of_classes(rows: Any) -> Any:
    """Memory for the gradient of images whose classes were moved behind their pixels, which lies as PyTorch's: row-major before that was done;
    None where there are no pixels, or nothing that is plain memory."""
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
        for forward, backward in zip(OF_ROWS[::2], OF_ROWS[1::2], strict=True)
    },
}
"""The operators that can be differentiated; each formula names the operator that computes its gradient."""

DECLARED: set[str] = set()
"""Those whose formulas follow from declarations, and have derivatives by all tensors that the gradients are of."""

for _name, _gradient in _OF_CLASSES.items():
    FORMULAS.update(_declared(KERNELS[_name].operator, _gradient, alone=True))
for _operator in registry():
    if _operator.gradient is not None:
        _declarations = _declared(_operator, _operator.gradient, alone=False)
        FORMULAS.update(_declarations)
        DECLARED |= {*_declarations}


# The losses and ELU for autograd, where nothing stands between caller and kernel: what `functional` takes as a rule.
#
# Each is given what has derivatives, and in one tuple all else, the result that was computed before among it: autograd spends
# time on every argument, and would take a tensor for an input. What it saves is written where `save_for_backward` writes it,
# which takes as long again. What is derived how is what the formulas above say, and gradients of gradients go through them.


_elu_backward, _l1_backward = KERNELS["elu_backward"], KERNELS["l1_loss_backward"]


def attached(name: str) -> type[Formula] | None:
    """The derivative by the first tensor of an operator that declares it, for `apply(tensor, (result, arguments))`; None where one operator
    computes several derivatives, or there is none.
    """
    operator = find_operator(name)
    if operator.gradient is None:
        return None
    derivative = Derivative(operator, operator.gradient)
    if derivative.several:
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
    """Written over its input: the gradient is made from the result."""

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
    """For `apply(tensor, (result, what is saved beside the tensor, what is kept))`."""

    @staticmethod
    def forward(ctx: Any, x: Any, constants: Any) -> Any:
        result, beside, ctx.kept = constants
        ctx.to_save = x, *beside
        return result


@quick
class L1(Loss):
    """Of the difference, which is kept, as PyTorch's own loss does: both tensors may be written over."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (apart,) = ctx.saved_tensors
        return _l1_backward.gradient(gradient, apart, apart.new_zeros(()), *ctx.kept), None


@quick
class Likelihood(Loss):
    """Of rows or of pixels, by the gradient's kernel for them. The ones in the place of weights that nobody gave are all calls': hooks of
    what autograd saves, which may write, do not see them.
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
    """From logits, which are saved, with two numbers a row, which are kept."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        top, rest, options = ctx.kept
        return _LOGITS_GRAD.gradient(gradient, x, top, rest, target, weight, *options), None


@quick
class CrossEntropyOverLogits(CrossEntropy):
    """The same, with the gradient written into the logits' memory."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if torch.is_grad_enabled():  # gradients of gradients read the logits
            return CrossEntropy.backward(ctx, gradient)
        x, target, weight = ctx.saved_tensors
        by_input, (top, rest, options) = x.detach(), ctx.kept
        _LOGITS_GRAD.into(by_input, gradient, x, top, rest, target, weight, *options)
        return by_input, None
