"""Derivatives: which operator is whose gradient. Where a declaration names its gradient, both follow from that; the losses' are here.
What an operator has none for is refused.

The gradients' own derivatives are PyTorch's operations, so that gradients of gradients are right to any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch.nn.functional import nll_loss as torch_nll_loss

from openaclnn.core.declare import Gradient, Operator
from openaclnn.operators import find_operator, registry
from openaclnn.torch.expressions import WIDE, expression
from openaclnn.torch.kernels import KERNELS, OF_ROWS, Kernel
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
        self.kernel = KERNELS[find_operator(gradient.operator).python_name]
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


def _declared(operator: Operator) -> dict[str, type[Formula]]:
    """An operator and its gradients, as they are declared."""
    assert operator.gradient is not None
    kernel = KERNELS[operator.python_name]
    inputs, places = len(kernel.parameters), [p.name for p in kernel.parameters]
    first = Derivative(operator, operator.gradient)
    derivatives = {0: first} | {
        places.index(name): Derivative(operator, other)
        for name, other in operator.gradient.others.items()
    }
    read = {place for each in derivatives.values() for place, _ in each.taken}
    results = range(inputs, inputs + len(operator.outputs))
    saved = [place for place in (*kernel.tensors, *results) if place in read]
    several = operator.result_type is not None

    @quick
    class Forward(Formula):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            result = kernel.call(*arguments)
            every = (*arguments, *(result if several else (result,)))
            ctx.save_for_backward(*[every[place] for place in saved])
            ctx.options = [
                None if place in saved else argument for place, argument in enumerate(arguments)
            ]
            ctx.set_materialize_grads(not several)
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Any, *others: Any) -> Any:
            every = dict(enumerate(ctx.options)) | dict(zip(saved, ctx.saved_tensors, strict=True))
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
            saved = zip(kernel.tensors, ctx.saved_tensors, strict=True)
            tensors = {place: tensor for place, tensor in saved if tensor is not None}

            def computed(*values: Any) -> Any:
                arguments = list(ctx.options)
                for place, value in zip(tensors, values, strict=True):
                    arguments[place] = value
                written_out = WIDE.get(name) if several else None
                if written_out is not None:
                    return written_out(*arguments)
                return expression(kernel.operator, arguments)

            given_back = torch.func.vjp(computed, *tensors.values())[1]
            derivatives = given_back(outer if several else outer[0])
            every: list[Any] = [None] * len(ctx.options)
            for place, derivative in zip(tensors, derivatives, strict=True):
                every[place] = derivative
            return tuple(every)

    return Backward


def _likelihood(name: str) -> tuple[type[Formula], type[Formula]]:
    """The negative log-likelihood and its gradient, of rows or of pixels."""
    kernel, backward_kernel = KERNELS[name], KERNELS[f"{name}_backward"]

    @quick
    class Loss(Formula):
        @staticmethod
        def forward(
            ctx: Any, x: Any, target: Any, weight: Any, reduction: str, ignored: int
        ) -> Any:
            loss, total = kernel.call(x, target, weight, reduction, ignored)
            ctx.save_for_backward(x, target, weight, total)
            ctx.mark_non_differentiable(total)
            ctx.set_materialize_grads(False)
            ctx.options = reduction, ignored
            return loss, total

        @staticmethod
        def backward(ctx: Any, gradient: Any, _: Any) -> Any:
            if gradient is None:
                return (None,) * 5
            x, target, weight, total = ctx.saved_tensors
            by_x = backward_kernel.gradient(gradient, x, target, weight, *ctx.options, total)
            return by_x, None, None, None, None

    @quick
    class Backward(Formula):
        @staticmethod
        def forward(ctx: Any, gradient: Any, *rest: Any) -> Any:
            _, target, weight, reduction, ignored, total = rest
            ctx.save_for_backward(target, weight, total)
            ctx.options, ctx.shape = (reduction, ignored), gradient.shape
            return backward_kernel.call(gradient, *rest)

        @staticmethod
        def backward(ctx: Any, outer: Any) -> Any:
            target, weight, total = ctx.saved_tensors
            reduction, ignored = ctx.options
            by_sum = "none" if reduction == "none" else "sum"
            by_gradient = torch_nll_loss(outer, target.long(), weight, None, ignored, None, by_sum)
            if reduction == "mean":
                counted = target.long() != ignored
                if total is None:
                    total = weight[target.long() * counted].mul(counted).sum()
                by_gradient = by_gradient / total
            # The loss is linear in the log-probabilities: their second derivative is zero.
            return by_gradient.reshape(ctx.shape), torch.zeros_like(outer), *(None,) * 5

    return Loss, Backward


NllLoss, NllLossBackward = _likelihood("nll_loss")
NllLoss2d, NllLoss2dBackward = _likelihood("nll_loss2d")


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


@quick
class CrossEntropyLogits(Formula):
    """From logits: those are kept, and two numbers a row."""

    @staticmethod
    def forward(ctx: Any, x: Any, target: Any, weight: Any, *options: Any) -> Any:
        loss, top, rest = _LOGITS.call(x, target, weight, *options)
        ctx.save_for_backward(x, top, rest, target, weight)
        ctx.mark_non_differentiable(top, rest)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return loss, top, rest

    @staticmethod
    def backward(ctx: Any, gradient: Any, *_: Any) -> Any:
        if gradient is None:
            return (None,) * 7
        by_x = _LOGITS_GRAD.gradient(gradient, *ctx.saved_tensors, *ctx.options)
        return by_x, *(None,) * 6


@quick
class CrossEntropyLogitsGrad(Formula):
    """Whose own derivative is that of its formula, in which the two numbers of a row are made of its logits."""

    @staticmethod
    def forward(ctx: Any, gradient: Any, x: Any, top: Any, rest: Any, *others: Any) -> Any:
        target, weight, *ctx.options = others
        ctx.save_for_backward(gradient, x, target, weight)
        return _LOGITS_GRAD.call(gradient, x, top, rest, *others)

    @staticmethod
    def backward(ctx: Any, outer: Any) -> Any:
        grad_loss, x, target, weight = ctx.saved_tensors
        wide = torch.float64  # whose digits outlast the steps of the formula and its derivative
        weight = None if weight is None else weight.to(wide)

        def computed(gradient: Any, x: Any) -> Any:
            _, *sides = WIDE["cross_entropy_logits"](x, target, weight, *ctx.options)
            return WIDE["cross_entropy_logits_grad"](
                gradient, x, *sides, target, weight, *ctx.options
            )

        given_back = torch.func.vjp(computed, grad_loss.to(wide), x.to(wide))[1]
        by_gradient, by_x = given_back(outer.to(wide))
        return by_gradient.to(grad_loss.dtype), by_x.to(x.dtype), *(None,) * 8


def _of_rows(forward: Operator, backward: Operator) -> type[Formula]:
    """Numbers of rows, whose gradient takes gradients of the first of them, then what the forward takes and gives."""
    kernel, gradient_kernel = KERNELS[forward.python_name], KERNELS[backward.python_name]
    inputs, outputs = len(kernel.tensors), len(forward.outputs)
    differentiable = len(gradient_kernel.tensors) - inputs - outputs
    options = len(kernel.parameters) - inputs

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
            return gradient_kernel.gradient(*every, *saved, *ctx.options), *nothing

    return Rows


FORMULAS: dict[str, type[Formula]] = {
    "nll_loss": NllLoss,
    "nll_loss_backward": NllLossBackward,
    "nll_loss2d": NllLoss2d,
    "nll_loss2d_backward": NllLoss2dBackward,
    "cross_entropy_loss": CrossEntropyLoss,
    "cross_entropy_logits": CrossEntropyLogits,
    "cross_entropy_logits_grad": CrossEntropyLogitsGrad,
    **{
        forward.python_name: _of_rows(forward, backward)
        for forward, backward in zip(OF_ROWS[::2], OF_ROWS[1::2], strict=True)
    },
}
"""The operators that can be differentiated; each formula names the operator that computes its gradient."""

DECLARED: set[str] = set()
"""Those whose formulas follow from declarations, and have derivatives by all tensors that the gradients are of."""

for _operator in registry():
    if _operator.gradient is not None:
        _declarations = _declared(_operator)
        FORMULAS.update(_declarations)
        DECLARED |= {*_declarations}


# The losses and ELU for autograd, where nothing stands between caller and kernel: what `functional` takes as a rule.
#
# Each is given what has derivatives, and in one tuple all else, the loss that was computed before among it: autograd spends
# time on every argument, and would take a tensor for an input. What it saves is written where `save_for_backward` writes it,
# which takes as long again. What is derived how is what the formulas above say, and gradients of gradients go through them.


_elu_backward, _l1_backward = KERNELS["elu_backward"], KERNELS["l1_loss_backward"]
_logits_grad = KERNELS["cross_entropy_logits_grad"]


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


@quick
class L1(Formula):
    """Of the difference, which is kept, as PyTorch's own loss does: both tensors may be written over."""

    @staticmethod
    def forward(ctx: Any, apart: Any, constants: Any) -> Any:
        loss, ctx.options = constants
        ctx.to_save = (apart,)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (apart,) = ctx.saved_tensors
        return _l1_backward.gradient(gradient, apart, apart.new_zeros(()), *ctx.options), None


@quick
class Likelihood(Formula):
    """Of rows or of pixels, by the gradient's kernel for them. The ones in the place of weights that nobody gave are all calls': hooks of
    what autograd saves, which may write, do not see them.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, constants: tuple[Any, Kernel, Any, Any, Any, Any]) -> Any:
        (loss, total), kernel, target, weight, factors, options = constants
        ctx.kept = kernel, total, factors, options
        ctx.to_save = x, target, weight
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        kernel, total, factors, (reduction, ignored) = ctx.kept
        if weight is None:
            weight = factors.clone() if torch.is_grad_enabled() else factors
        return kernel.gradient(gradient, x, target, weight, reduction, ignored, total), None


@quick
class CrossEntropy(Formula):
    """From logits, which are kept, with two numbers a row."""

    @staticmethod
    def forward(ctx: Any, x: Any, constants: Any) -> Any:
        (loss, top, rest), target, weight, options = constants
        ctx.kept = top, rest, options
        ctx.to_save = x, target, weight
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        top, rest, (reduction, ignored, smoothing, scale) = ctx.kept
        return _logits_grad.gradient(
            gradient, x, top, rest, target, weight, reduction, ignored, smoothing, scale
        ), None


@quick
class CrossEntropyOverLogits(CrossEntropy):
    """The same, with the gradient written into the logits' memory."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if torch.is_grad_enabled():  # gradients of gradients read the logits
            return CrossEntropy.backward(ctx, gradient)
        x, target, weight = ctx.saved_tensors
        by_input, (top, rest, options) = x.detach(), ctx.kept
        _logits_grad.into(by_input, gradient, x, top, rest, target, weight, *options)
        return by_input, None
