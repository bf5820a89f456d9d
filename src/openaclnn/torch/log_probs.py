"""Functions of rows of logits: log-probabilities of chosen classes and entropies, by one reading of them and one for their gradients; divergences from
another row; cross entropy against shares of classes.

Classes lie along the last axis. Results are FLOAT for logits of 16 bits, too: ratios of probabilities are made of their differences, of which 16 bits
keep hardly any digit. What our kernels do not serve (float64, derivatives in forward mode, transforms of torch.func) is computed by PyTorch's operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from openaclnn.repeat.slots import MAX_AXES
from openaclnn.torch.dispatch import (
    FUNCTIONS,
    Count,
    is_index,
    is_number,
    is_tracked,
    needs_dispatcher,
    overridable,
)
from openaclnn.torch.expressions import expression
from openaclnn.torch.gradients import FORMULAS
from openaclnn.torch.kernels import KERNELS
from openaclnn.torch.linear import (
    Layer,
    as_autocast,
    capped,
    check_shapes,
    filled,
    shapes_of,
    unserved_tensors,
    without_autocast,
)


@overridable
def selected_log_probs(
    logits: Tensor, target: Tensor, temperature: float = 1.0, ignore_index: int = -100
) -> Tensor:
    """The log-probability of each row's class: `log_softmax(logits / temperature, -1)` at `target`, of logits (..., C) and class indices (...).

    The result is FLOAT for logits of 16 bits. Rows whose target is `ignore_index` give 0, and have no gradient.

    >>> selected_log_probs(torch.tensor([[0.0, 0.0], [1.0, 3.0]]), torch.tensor([0, -100]))
    tensor([-0.6931,  0.0000])
    """
    result: Tensor = _of_logits(selected_log_probs, "selected_log_probs", (logits, target), temperature, ignore_index)  # fmt: skip
    return result


@overridable
def entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """The entropy of each row of logits (..., C): minus the sum of p log p, with p = `softmax(logits / temperature, -1)`.

    The result is FLOAT for logits of 16 bits. A class of probability 0, whose logit is minus infinity, adds nothing.

    >>> entropy(torch.tensor([[0.0, 0.0], [0.0, -torch.inf]]))
    tensor([0.6931, 0.0000])
    """
    result: Tensor = _of_logits(entropy, "row_entropy", (logits,), temperature)
    return result


@overridable
def log_probs_and_entropy(
    logits: Tensor, target: Tensor, temperature: float = 1.0, ignore_index: int = -100
) -> tuple[Tensor, Tensor]:
    """`selected_log_probs` and `entropy` by one reading of the logits; where the target is `ignore_index`, both are 0, and have no gradient.

    >>> log_probs_and_entropy(torch.tensor([[0.0, 0.0], [1.0, 3.0]]), torch.tensor([0, -100]))
    (tensor([-0.6931,  0.0000]), tensor([0.6931, 0.0000]))
    """
    both: tuple[Tensor, Tensor] = _of_logits(
        log_probs_and_entropy, "log_probs_and_entropy", (logits, target), temperature, ignore_index
    )
    return both


def _of_logits(
    function: Any, name: str, tensors: tuple[Any, ...], temperature: float, *ignored: int
) -> Any:
    """One of the three above, of logits and, if it has an index to ignore, of targets."""
    logits, target = (*tensors, None)[:2]
    excess = checked(logits, target, temperature, ignored[0] if ignored else 0)
    first, second, *_ = of_rows(function.__name__, name, tensors, ignored, excess)
    return (first, second) if function is log_probs_and_entropy else first


@overridable
def distillation_kl(
    student: Tensor, teacher: Tensor, temperature: float = 1.0, beta: float = 0.0
) -> Tensor:
    """The divergence of each row of a student's logits (..., C) from the teacher's: with 0 for `beta` KL(teacher, student), with 1 KL(student, teacher),
    and between them the generalized Jensen-Shannon divergence, beta * KL(teacher, m) + (1 - beta) * KL(student, m) with m = beta * teacher + (1 - beta) * student.

    Probabilities are those of the logits divided by the temperature; whoever wants gradients of one size multiplies by its square. The result is
    FLOAT for logits of 16 bits; a class of probability 0 adds nothing to what it weighs. Gradients of the teacher are PyTorch's.

    >>> distillation_kl(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]]), temperature=2.0)
    tensor([0.0303])
    """
    tensors = student, teacher
    excess = checked(student, None, temperature, 0)
    checked(teacher, None, temperature, 0)
    if student.shape != teacher.shape:
        raise RuntimeError(f"expected teacher of the shape of student, {tuple(student.shape)}, got {tuple(teacher.shape)}")  # fmt: skip
    if not (is_number(beta) and 0.0 <= beta <= 1.0):
        raise RuntimeError(f"expected beta to be a number in [0, 1], got {beta}")
    result: Tensor
    result, *_ = of_rows("distillation_kl", "divergence", tensors, (float(beta),), excess)
    return result


def soft_cross_entropy(
    input: Any, target: Any, weight: Any, reduction: str, label_smoothing: float
) -> Any:
    """Cross entropy against shares of classes, which lie along the second axis, or the only one; None where PyTorch has to compute it."""
    if _narrowed(input):
        input, target = input.float(), target.float()
    alike = target.dtype is input.dtype and target.shape == input.shape
    if not (alike and input.numel() > 0 and 0.0 <= label_smoothing <= 1.0):
        return None
    axis = min(1, input.dim() - 1)
    tensors, name = [input.movedim(axis, -1), target.movedim(axis, -1)], "soft_cross_entropy"
    if weight is not None:
        if weight.shape != input.shape[axis : axis + 1] or not weight.is_floating_point():
            return None
        tensors, name = [*tensors, weight.float()], f"weighted_{name}"
    if _unserved(tensors) is not None:
        return None
    smoothing = 1.0 - label_smoothing, label_smoothing / input.shape[axis]
    losses, *_ = of_rows(None, name, tensors, smoothing)
    if reduction == "sum":
        losses = losses.sum()
    elif reduction == "mean":
        losses = losses.mean()
    return losses.to(input.dtype)


def _narrowed(tensor: Any) -> bool:
    """Whether autocast computes losses of this in FLOAT."""
    device = tensor.device.type
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device) and tensor.dtype in (torch.float16, torch.bfloat16)  # fmt: skip


def checked(logits: Any, target: Any, temperature: Any, ignored: Any) -> float:
    """Refuse what is wrong, in words; what the operators call the temperature."""
    if not (isinstance(logits, Tensor) and logits.is_floating_point() and logits.dim() > 0 and logits.shape[-1] > 0):  # fmt: skip
        got = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else repr(logits)  # fmt: skip
        raise RuntimeError(f"expected floating logits (..., C) with a class at least, got {got}")
    if target is not None and target.shape != logits.shape[:-1]:
        raise RuntimeError(
            f"expected target of shape {tuple(logits.shape[:-1])}, got {tuple(target.shape)}"
        )
    if target is not None and target.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            f"expected target of class indices, torch.int64 or torch.int32, got {target.dtype}"
        )
    if not (is_number(temperature) and 0.0 < temperature < float("inf")):
        raise RuntimeError(f"expected temperature to be a number above 0, got {temperature}")
    if not is_index(ignored):
        raise RuntimeError(f"expected ignore_index to be an integer, got {ignored}")
    return float(1.0 / temperature - 1.0)


def of_rows(
    function: str | None, name: str, tensors: Sequence[Any], options: Sequence[Any], excess: float | None = None
) -> tuple[Any, ...]:  # fmt: skip
    """An operator's results for rows of the first tensor, of any rank; calls are counted as the function's."""
    shape, kernel, count = tensors[0].shape[:-1], KERNELS[name], FUNCTIONS[function] if function else Count()  # fmt: skip
    if len(shape) >= MAX_AXES:
        tensors = [tensor.reshape(-1, *tensor.shape[len(shape) :]) if tensor.dim() >= len(shape) else tensor for tensor in tensors]  # fmt: skip
    reason = _unserved(tensors)
    results: tuple[Any, ...]
    if reason is not None:
        count.decline(reason)
        if excess:  # which the operators know as FLOAT alone
            tensors = [
                tensor * (1.0 + excess) if tensor.is_floating_point() else tensor
                for tensor in tensors
            ]
        results = expression(kernel.operator, (*tensors, *options, *(() if excess is None else (0.0,))))  # fmt: skip
    else:
        count.serve()
        arguments = (*tensors, *options, *(() if excess is None else (excess,)))
        if needs_dispatcher():
            results = kernel.op(*arguments)
        elif is_tracked(tensors[0]):
            results = FORMULAS[name].apply(*arguments)
        else:
            results = kernel.call(*arguments)
    return (
        results if len(shape) < MAX_AXES else tuple([result.reshape(shape) for result in results])
    )


def _unserved(tensors: Sequence[Any]) -> str | None:
    """Why PyTorch's operations compute it, or None."""
    if any(is_tracked(tensor) for tensor in tensors[1:]):
        return "derivatives by other tensors than the first"
    return unserved_tensors(tensors[0], tensors)


# Log-probabilities of chosen classes and entropies of a linear layer without its logits, in the chunks of linear cross entropy.
#
# Numbers a row are kept; backward, which is given a gradient for each row, computes the logits of a chunk again, its kernels write their gradient
# over them, and PyTorch multiplies that with weights and inputs.


LOG_PROBS, ENTROPY, BOTH = "selected_log_probs", "row_entropy", "log_probs_and_entropy"
DIFFERENTIABLE = {LOG_PROBS: 1, ENTROPY: 1, BOTH: 2}  # of an operator's results


@overridable
def linear_selected_log_probs(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    softcap: float = 0.0,
    memory: int | None = None,
    accumulate: torch.dtype | None = None,
) -> Tensor:
    """`selected_log_probs(linear(input, linear_weight, linear_bias), target, temperature, ignore_index)` without the logits, for inputs (..., features).

    `softcap`, `memory` and `accumulate` are as in `linear_cross_entropy`. Backward computes the logits again.

    >>> linear_selected_log_probs(torch.ones(1, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([2]))
    tensor([-0.5514])
    """
    tensors = input, linear_weight, linear_bias, target
    (log_prob,) = _linear(linear_selected_log_probs, LOG_PROBS, tensors, temperature, ignore_index, softcap, memory, accumulate)  # fmt: skip
    return log_prob


@overridable
def linear_entropy(
    input: Tensor,
    linear_weight: Tensor,
    *,
    linear_bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    memory: int | None = None,
    accumulate: torch.dtype | None = None,
) -> Tensor:
    """`entropy(linear(input, linear_weight, linear_bias), temperature)` in the same way.

    >>> linear_entropy(torch.ones(1, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]))
    tensor([1.0986])
    """
    tensors = input, linear_weight, linear_bias, None
    (entropy_of_rows,) = _linear(
        linear_entropy, ENTROPY, tensors, temperature, 0, softcap, memory, accumulate
    )
    return entropy_of_rows


@overridable
def linear_log_probs_and_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    softcap: float = 0.0,
    memory: int | None = None,
    accumulate: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """`log_probs_and_entropy(linear(input, linear_weight, linear_bias), target, temperature, ignore_index)` in the same way.

    >>> linear_log_probs_and_entropy(torch.ones(1, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), torch.tensor([0]))
    (tensor([-1.0986]), tensor([1.0986]))
    """
    tensors = input, linear_weight, linear_bias, target
    log_prob, entropy_of_rows = _linear(linear_log_probs_and_entropy, BOTH, tensors, temperature, ignore_index, softcap, memory, accumulate)  # fmt: skip
    return log_prob, entropy_of_rows


def _linear(
    function: Any, name: str, tensors: tuple[Any, ...], temperature: float, ignored: int, softcap: float, memory: int | None, accumulate: Any
) -> Sequence[Tensor]:  # fmt: skip
    input, linear_weight, bias, target = tensors
    check_shapes(input, linear_weight, target, bias, None, None, memory)
    if linear_weight.dim() != 2:
        raise RuntimeError(f"expected linear_weight (classes, features), got {tuple(linear_weight.shape)}")  # fmt: skip
    if not is_number(softcap):
        raise RuntimeError(f"expected softcap to be a number, got {softcap}")
    rows = input.shape[:-1]
    excess = checked(input.new_empty(1).expand(*rows, len(linear_weight)), target, temperature, ignored)  # fmt: skip
    count = FUNCTIONS[function.__name__]
    input, linear_weight, bias = as_autocast(input, linear_weight, bias)
    with without_autocast(input):
        reason = _unserved_layer(input, linear_weight, bias, target)
        if reason is not None:
            count.decline(reason)
            logits = capped(torch_functional.linear(input, linear_weight, bias), softcap)
            of_logits, numbers = ((logits,), ()) if target is None else ((logits, target), (ignored,))  # fmt: skip
            return of_rows(None, name, of_logits, numbers, excess)[: DIFFERENTIABLE[name]]
        count.serve()
        flat = input.reshape(-1, input.shape[-1])
        by_row = None if target is None else target.reshape(-1)
        results = _log_probs(
            flat, linear_weight, bias, by_row, name, ignored, excess, float(softcap), memory or 0, accumulate in (None, torch.float32)
        )  # fmt: skip
        return [result.reshape(rows) for result in results[: DIFFERENTIABLE[name]]]


def _unserved_layer(input: Any, linear_weight: Any, bias: Any, target: Any) -> str | None:
    """Why this is computed from the logits, or None."""
    present = [tensor for tensor in (input, linear_weight, bias, target) if tensor is not None]
    reason = unserved_tensors(input, present)
    if reason is not None:
        return reason
    alike = all(tensor.dtype is input.dtype for tensor in present if tensor.is_floating_point())
    near = all(tensor.device == input.device for tensor in present)
    return None if alike and near and input.numel() > 0 else "arguments that chunks do not serve"


_ARGUMENTS = (
    "Tensor input, Tensor linear_weight, Tensor? linear_bias, Tensor? target, str name, int ignored, float excess, float softcap, int memory, "
    "bool accumulated"
)


def _of_chunk(layer: Layer, whole: Any, target: Any, ignored: int) -> tuple[Any, Any]:
    """A chunk's logits with columns that are no classes as such of probability 0, and its targets, none of which is among these."""
    if layer.pitch != layer.classes:
        whole[:, layer.classes :] = -math.inf
        target = None if target is None else torch.where(target < layer.classes, target, ignored)
    return whole, target


@torch.library.custom_op(
    "openaclnn::linear_log_probs", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor[]"
)
def _log_probs(
    input: Any, linear_weight: Any, bias: Any, target: Any, name: str, ignored: int, excess: float, softcap: float, memory: int, accumulated: bool
) -> Any:  # fmt: skip
    kernel = KERNELS[name]
    results = _shapes(input, linear_weight, bias, target, name)
    layer = Layer(input, linear_weight, bias, (False,) * 3, softcap, memory)
    for begin, end, whole in layer:
        part = None if target is None else target[begin:end]
        logits, part = _of_chunk(layer, whole, part, ignored)
        options = (excess,) if part is None else (part, ignored, excess)
        kernel.into(tuple(result[begin:end] for result in results), logits, *options)
    return results


@_log_probs.register_fake
def _shapes(input: Any, linear_weight: Any, bias: Any, target: Any, name: str, *options: Any) -> list[Any]:  # fmt: skip
    return [input.new_empty(input.shape[:1], dtype=torch.float32) for _ in KERNELS[name].operator.outputs]  # fmt: skip


@torch.library.custom_op(
    "openaclnn::linear_log_probs_backward",
    mutates_args=(),
    schema=f"(Tensor[] gradients, Tensor[] results, {_ARGUMENTS}, bool[3] wanted) -> Tensor[]",
)
def _log_probs_backward(
    gradients: Any, results: Any, input: Any, linear_weight: Any, bias: Any, target: Any, name: str, ignored: int, excess: float,
    softcap: float, memory: int, accumulated: bool, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    kernel, scale = KERNELS[f"{name}_grad"], None
    layer = Layer(input, linear_weight, bias, wanted, softcap, memory, 0, accumulated)
    if input.dtype is torch.float16:  # its exponents do not reach to many rows' gradients
        scale = torch.stack([gradient.abs().max() for gradient in gradients]).max().clamp(min=1e-30)
        gradients = [gradient / scale for gradient in gradients]
    for begin, end, whole in layer:
        part = None if target is None else target[begin:end]
        logits, part = _of_chunk(layer, whole, part, ignored)
        before = [gradient[begin:end] for gradient in gradients]
        known = [result[begin:end] for result in results]
        classes, numbers = ((), (excess,)) if part is None else ((part,), (ignored, excess))
        kernel.into(whole, *before, logits, *classes, *known, *numbers)
        layer.take(begin, end, whole, layer.pitch, scale)
    return list(filled(layer.sums(scale).gradients(None), input))


@_log_probs_backward.register_fake
def _shapes_of_gradients(gradients: Any, results: Any, input: Any, linear_weight: Any, bias: Any, *options: Any) -> Any:  # fmt: skip
    return shapes_of((input, linear_weight, bias), options[-1])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[4:]
    ctx.save_for_backward(*inputs[:4], *output)


def _handed_out(ctx: Any, gradients: Any) -> Any:
    inputs, results, options = ctx.saved_tensors[:4], ctx.saved_tensors[4:], ctx.options
    many = DIFFERENTIABLE[options[0]]
    every = [torch.zeros_like(result) if by is None else by.contiguous() for result, by in zip(results[:many], gradients, strict=False)]  # fmt: skip
    wanted = list(ctx.needs_input_grad[:3])
    derivatives = _log_probs_backward(every, list(results), *inputs, *options, wanted)
    asked = [
        gradient if needed else None for gradient, needed in zip(derivatives, wanted, strict=True)
    ]
    return *asked, *[None] * (1 + len(options))


_log_probs.register_autograd(_handed_out, setup_context=_keep)
