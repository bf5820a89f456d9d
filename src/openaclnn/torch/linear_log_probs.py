"""Log-probabilities of chosen classes and entropies of a linear layer without its logits, in the chunks of linear cross entropy.

Numbers a row are kept; backward, which is given a gradient for each row, computes the logits of a chunk again, its kernels write their gradient
over them, and PyTorch multiplies that with weights and inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as torch_functional
from torch.overrides import handle_torch_function, has_torch_function_variadic

from openaclnn.torch.counts import FUNCTIONS
from openaclnn.torch.dispatch import is_number
from openaclnn.torch.kernels import KERNELS
from openaclnn.torch.linear import (
    Layer,
    as_autocast,
    capped,
    check_shapes,
    filled,
    unserved_tensors,
    without_autocast,
)
from openaclnn.torch.log_probs import checked, of_rows

__all__ = ["linear_entropy", "linear_log_probs_and_entropy", "linear_selected_log_probs"]

LOG_PROBS, ENTROPY, BOTH = "selected_log_probs", "row_entropy", "log_probs_and_entropy"
DIFFERENTIABLE = {LOG_PROBS: 1, ENTROPY: 1, BOTH: 2}  # of an operator's results


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
    present = [tensor for tensor in tensors if tensor is not None]
    if has_torch_function_variadic(*present):
        arguments = [input, linear_weight] if target is None else [input, linear_weight, target]
        options: dict[str, Any] = {} if target is None else {"ignore_index": ignored}
        result = handle_torch_function(
            function, present, *arguments, linear_bias=bias, temperature=temperature, softcap=softcap, memory=memory, accumulate=accumulate, **options
        )  # fmt: skip
        return result if name == BOTH else (result,)
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
        reason = _unserved(input, linear_weight, bias, target)
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


def _unserved(input: Any, linear_weight: Any, bias: Any, target: Any) -> str | None:
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
    if (
        input.dtype is torch.float16
    ):  # whose exponents do not reach to what many rows' gradients are
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
    return [
        tensor.new_empty(tensor.shape) if asked else input.new_empty(0)
        for tensor, asked in zip((input, linear_weight, bias), options[-1], strict=True)
    ]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[4:]
    ctx.save_for_backward(*inputs[:4], *output)


def _handed_out(ctx: Any, gradients: Any) -> Any:
    inputs, results, options = ctx.saved_tensors[:4], ctx.saved_tensors[4:], ctx.options
    many = DIFFERENTIABLE[options[0]]
    every = [torch.zeros_like(result) if by is None else by.contiguous() for result, by in zip(results[:many], gradients, strict=False)]  # fmt: skip
    wanted = list(ctx.needs_input_grad[:3])
    found = _log_probs_backward(every, list(results), *inputs, *options, wanted)
    asked = [gradient if needed else None for gradient, needed in zip(found, wanted, strict=True)]
    return *asked, *[None] * (1 + len(options))


_log_probs.register_autograd(_handed_out, setup_context=_keep)
