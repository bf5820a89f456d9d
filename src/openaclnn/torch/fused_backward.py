"""Cross entropy of long rows on a GPU: the gradient is written while the logits are read for the loss.

It is written for the gradient of the loss that the last backward pass on the device was given, once two in a row were the same:
1, or the factor by which losses are scaled or averaged, as a rule. Backward looks, on the device, whether it is given that one,
and writes the gradient anew if not, in the same steps: which of the two it was shows in the time alone, for which logits are
read once or twice.
"""

from __future__ import annotations

from typing import Any

import torch

from openaclnn.core.dtypes import FLOATS, dtype_of_torch
from openaclnn.core.interop import stream_of
from openaclnn.engines import gpu
from openaclnn.engines.dispatch import current_engine
from openaclnn.torch.autograd import CrossEntropy
from openaclnn.torch.dispatch import is_tracked
from openaclnn.torch.gradients import quick
from openaclnn.torch.kernels import PLAIN, disturbed

__all__ = ["LEAST", "loss_ahead"]

LEAST = 1 << 28  # bytes: what fewer take is less than what a step costs on the host

_memories: dict[torch.device, torch.Tensor] = {}


def loss_ahead(input: Any, target: Any, weight: Any, options: tuple[Any, ...]) -> Any:
    """The loss, which autograd knows; None where it is not computed so."""
    reduction, ignored, *others = options
    if (
        weight is not None
        or reduction not in ("mean", "sum")
        or others != [0.0, 0.0]
        or type(ignored) is not int
        or not (is_tracked(input) and _fits(input, target))
        or current_engine() not in (None, "triton")
        or gpu.unavailable() is not None
    ):
        return None
    from openaclnn.engines.gpu.launchers import fused_backward as ahead

    rows, classes = input.shape
    if not ahead.serves(input.element_size(), rows, classes):
        return None
    memory = _memory(input.device, ahead)
    if memory is None:
        return None
    kind = dtype_of_torch(input.dtype), rows, classes, reduction == "mean", ignored
    loss, kept = input.new_empty(()), input.new_empty(ahead.kept(rows), dtype=torch.float32)
    gradient = torch.empty_like(input, requires_grad=False)
    places = input, target, loss, kept, memory, gradient
    ahead.loss_runner(*kind)([own.data_ptr() for own in places], stream_of(input))
    return CrossEntropyAhead.apply(input, (loss, target, options, kind, kept, memory, gradient))


def _fits(input: Any, target: Any) -> bool:
    """Whether both are plain memory that lies row by row, and nobody stands between."""
    return (
        type(input) in PLAIN
        and type(target) is torch.Tensor
        and dtype_of_torch(input.dtype) in FLOATS
        and target.dtype is torch.int64
        and input.dim() == 2
        and target.shape == input.shape[:1]
        and target.device == input.device
        and input.is_contiguous()
        and target.is_contiguous()
        and input.data_ptr() % 16 == 0
        and not (input.is_neg() or target.is_neg() or disturbed())
    )


def _memory(device: torch.device, ahead: Any) -> torch.Tensor | None:
    """What backward passes leave for the next loss: first that they were given 1. None while a graph is captured that would have
    it for its own."""
    found = _memories.get(device)
    if found is None and not torch.cuda.is_current_stream_capturing():
        with torch.inference_mode(False):
            found = torch.ones(ahead.MEMORY, device=device)
        torch.cuda.current_stream(device).synchronize()  # other streams will read it
        _memories[device] = found
    return found


@quick
class CrossEntropyAhead(CrossEntropy):
    """With a gradient that is written already, if it is the right one."""

    @staticmethod
    def forward(ctx: Any, x: Any, own: Any) -> Any:
        loss, target, ctx.options, *ctx.ahead = own
        ctx.to_save = x, target, None
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        kind, kept, memory, found = ctx.ahead
        if torch.is_grad_enabled() or not _is_plain(gradient):
            rows = kind[1]
            ctx.kept = *kept[: 2 * rows].split(rows), ctx.options
            return CrossEntropy.backward(ctx, gradient)
        from openaclnn.engines.gpu.launchers import fused_backward as ahead

        x, target, _ = ctx.saved_tensors
        if found is None:  # it was handed out before: in other memory nothing is written yet
            found, kept = torch.empty_like(x), kept.clone()
            kept[ahead.sure_at(kind[1])] = 0
        ctx.ahead[-1] = None
        places = gradient, x, target, kept, memory, found
        ahead.gradient_runner(*kind)([own.data_ptr() for own in places], stream_of(x))
        return found, None


def _is_plain(gradient: Any) -> bool:
    return type(gradient) is torch.Tensor and not (gradient.is_neg() or disturbed())
