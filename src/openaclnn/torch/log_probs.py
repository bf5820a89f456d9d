"""Functions of rows of logits: log-probabilities of chosen classes and entropies, by one reading of them and one for their gradients; divergences from
another row; cross entropy against shares of classes.

Classes lie along the last axis. Results are FLOAT for logits of 16 bits, too: ratios of probabilities are made of their differences, of which 16 bits
keep hardly any digit. What our kernels do not serve (float64, derivatives in forward mode, transforms of torch.func) is computed by PyTorch's operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from openaclnn.torch.counts import FUNCTIONS, Count
from openaclnn.torch.dispatch import (
    FLOATS,
    is_index,
    is_memory,
    is_number,
    is_tracked,
    needs_dispatcher,
    parallel_for,
)
from openaclnn.torch.expressions import expression
from openaclnn.torch.gradients import FORMULAS
from openaclnn.torch.kernels import KERNELS
from openaclnn.torch.private import forward_mode, transformed

__all__ = [
    "distillation_kl",
    "entropy",
    "log_probs_and_entropy",
    "selected_log_probs",
    "soft_cross_entropy",
]

MAX_AXES = 8


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


def entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """The entropy of each row of logits (..., C): minus the sum of p log p, with p = `softmax(logits / temperature, -1)`.

    The result is FLOAT for logits of 16 bits. A class of probability 0, whose logit is minus infinity, adds nothing.

    >>> entropy(torch.tensor([[0.0, 0.0], [0.0, -torch.inf]]))
    tensor([0.6931, 0.0000])
    """
    result: Tensor = _of_logits(entropy, "row_entropy", (logits,), temperature)
    return result


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
    if has_torch_function_variadic(*tensors):
        return handle_torch_function(function, tensors, *(*tensors, temperature, *ignored))
    logits, target = (*tensors, None)[:2]
    excess = checked(logits, target, temperature, ignored[0] if ignored else 0)
    first, second, *_ = of_rows(function.__name__, name, tensors, ignored, excess)
    return (first, second) if function is log_probs_and_entropy else first


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
    if has_torch_function_variadic(*tensors):
        overridden: Tensor = handle_torch_function(distillation_kl, tensors, *tensors, temperature, beta)  # fmt: skip
        return overridden
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
    first = tensors[0]
    if parallel_for(first) is not None or not all(map(is_memory, tensors)):
        return "tensors that are no plain memory"
    if first.dtype not in FLOATS or first.dtype is torch.float64:
        return str(first.dtype)
    if not (first.is_cpu or first.is_cuda or first.is_meta):
        return f"on {first.device.type}"
    if any(is_tracked(tensor) for tensor in tensors[1:]):
        return "derivatives by other tensors than the first"
    if forward_mode() or transformed():
        return "derivatives in forward mode, or transforms of torch.func"
    return None
