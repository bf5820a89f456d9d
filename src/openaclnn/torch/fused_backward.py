"""Cross entropy whose gradient is written while the logits are read for the loss.

On a GPU it is written for the gradient of the loss that the last backward pass of such losses on the device was given, once two in a row were the
same: 1, or the factor by which losses are scaled or averaged, as a rule. Backward looks, on the device, whether it is given that one,
and writes the gradient anew if not, in the same steps: which of the two it was shows in the time alone, for which logits are
read once or twice. Where each row has a loss, it looks at the gradients of all of them.

On a CPU it is written for a gradient of 1, of rows that stay in a cache, and multiplied with another one if that loses no digits.
"""

from __future__ import annotations

import functools
from math import frexp, prod
from typing import Any

import torch

from openaclnn.calls.plain import make_plain_function
from openaclnn.core.dtypes import FLOAT16, FLOATS, dtype_of_torch
from openaclnn.core.interface import REDUCTIONS
from openaclnn.engines import cpu, gpu
from openaclnn.engines.dispatch import current_engine
from openaclnn.engines.machine.host import machine
from openaclnn.operators.logit_steps import ROW_STEP, STEP, STEP_GRAD
from openaclnn.torch.dispatch import is_index, is_memory, is_tracked
from openaclnn.torch.gradients import Loss, quick
from openaclnn.torch.kernels import KERNELS, PLAIN, Kernel, intercepted

LEAST = 3 << 22  # bytes: what fewer take is less than what a step costs on the host
# Images of many classes are read by few programs where loss and gradient are two kernels: 108 us for (48, 600, 7, 7), where one takes 15.
LEAST_OF_IMAGES, MANY_CLASSES = 3 << 19, 128
# Many positions are many programs where loss and gradient are two kernels, whatever their bytes: 40 us for (32768, 2), where one takes 6; on the host it takes 15 to 30 us more.
LEAST_POSITIONS = 1 << 15
LEAST_OF_LONG_ROWS = (
    1 << 28
)  # with a program or several for each: few rows are better shared out among all

_memories: dict[Any, torch.Tensor] = {}
_logits, _logits_grad = KERNELS["cross_entropy_logits"], KERNELS["cross_entropy_logits_grad"]


def may_be_ahead(input: torch.Tensor) -> bool:
    """Whether logits on a GPU are so many that a step in one kernel gains."""
    classes = input.shape[1] if input.dim() > 1 else 0
    image = input.dim() > 2 and classes >= MANY_CLASSES
    positions = input.numel() // classes if classes else 0
    return input.nbytes >= (LEAST_OF_IMAGES if image else LEAST) or positions >= LEAST_POSITIONS


def loss_ahead(input: Any, target: Any, weight: Any, options: tuple[Any, ...]) -> Any:
    """The loss, which autograd knows; None where it is not computed so."""
    if not is_tracked(input) or input.dim() < 2 or (weight is not None and weight.requires_grad):
        return None
    memory = _memories.get((input.device, input.shape[1], options[0]))
    results = NotImplemented
    if memory is not None:
        places = _places(input) or (None, None, None)
        results = _step.cache.call(input, target, memory, weight, *places, *options, None)
    if results is NotImplemented:  # the first of its kind, if it is one
        if not _is_step(input, target, weight, options):
            return None
        memory = _memory(input, options[0])
        if memory is None:
            return None
        results = _step(input, target, memory, weight=weight, out=_places(input), **_named(options))
    loss, kept, gradient = results
    return CrossEntropyAhead.apply(input, (loss, (target, weight), [options, kept, memory, gradient]))  # fmt: skip


NUMBERS = frozenset((float, int))
_step: Any = make_plain_function(STEP)
_step_grad: Any = make_plain_function(STEP_GRAD)


def _named(options: tuple[Any, ...]) -> dict[str, Any]:
    names = "reduction", "ignore_index", "label_smoothing", "zloss_scale"
    return dict(zip(names, options, strict=True))


def _places(input: Any) -> Any:
    """Where results are written, if that is not for the call to decide: a gradient lies as its logits do."""
    return None if input.is_contiguous() else (None, None, torch.empty_like(input))


def _is_loss(input: Any, target: Any, weight: Any, options: tuple[Any, ...]) -> bool:
    """Whether all is plain memory of one device, nobody stands between, and shapes and numbers are those of a loss; weights are as PyTorch takes them."""
    reduction, ignored, smoothing, scale = options
    tensors = [input, target] if weight is None else [input, target, weight]
    return (
        all(type(each) in PLAIN and each.device == input.device and not each.is_neg() for each in tensors)
        and not intercepted() and target.dtype is torch.int64 and target.shape == input.shape[:1] + input.shape[2:]
        and (weight is None or (weight.dtype is input.dtype and weight.shape == input.shape[1:2]))
        and reduction in REDUCTIONS and is_index(ignored) and {type(smoothing), type(scale)} <= NUMBERS and 0 <= smoothing <= 1
    )  # fmt: skip


def _is_step(input: Any, target: Any, weight: Any, options: tuple[Any, ...]) -> bool:
    """Whether loss and gradient are computed in one go."""
    return (
        _is_loss(input, target, weight, options)
        and target.is_contiguous()
        and (weight is None or weight.is_contiguous())
        and current_engine() in (None, "triton")
        and gpu.unavailable() is None
        and _serves(input.dtype, input.shape, input.stride(), options, weight is not None)
    )


@functools.lru_cache(64)
def _serves(dtype: Any, shape: Any, strides: Any, options: tuple[Any, ...], weighted: bool) -> bool:
    """Not where logits have gaps, or shapes are not those of a loss that is computed so."""
    from openaclnn.engines.gpu.launchers import fused_backward, steps

    images, classes, *pixels = shape
    reduction, _, smoothing, scale = options
    input = torch.empty_strided(shape, strides, device="meta")
    # Where the classes of a position lie side by side, pixels are rows.
    by_class, own_dtype = input.movedim(1, -1).is_contiguous(), dtype_of_torch(dtype)
    if 0 in shape or not (by_class or input.is_contiguous()) or own_dtype not in FLOATS:
        return False
    assert own_dtype is not None
    if steps.serves(by_class, images, prod(pixels), classes):
        return True
    plain = reduction != "none" and not (weighted or smoothing or scale)
    long = by_class and plain and dtype.itemsize * prod(shape) >= LEAST_OF_LONG_ROWS
    return long and fused_backward.serves(own_dtype, images * prod(pixels), classes)


def _memory(input: Any, reduction: str) -> torch.Tensor | None:
    """What backward passes leave for the next loss of as many classes: first that they were given 1. None while a graph is captured that would
    have it for its own."""
    key = input.device, input.shape[1], reduction
    memory = _memories.get(key)
    if memory is None and not (input.is_cuda and torch.cuda.is_current_stream_capturing()):
        with torch.inference_mode(False):
            memory = torch.ones(2, device=input.device)
        if input.is_cuda:
            torch.cuda.current_stream(input.device).synchronize()  # other streams will read it
        _memories[key] = memory
    return memory


@quick
class CrossEntropyAhead(Loss):
    """With a gradient that is written already, if it is the right one."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        options, kept, memory, by_input = ctx.kept
        x, target, weight = ctx.saved_tensors
        if torch.is_grad_enabled() or not _is_plain(gradient):
            return _by_two_kernels(gradient, x, target, weight, options), None
        if by_input is None:  # it was handed out before: in other memory nothing is written yet
            by_input, kept = torch.empty_like(x), kept.clone()
            kept[SURE] = 0
        ctx.kept[-1] = None
        read = gradient.contiguous(), x, target, kept, memory
        if _step_grad.cache.call(*read, weight, by_input, *options, None) is NotImplemented:
            _step_grad(*read, weight=weight, out=by_input, **_named(options))
        return by_input, None


SURE = 1  # which of what is kept says whether a gradient was written ahead


def _by_two_kernels(
    gradient: Any, x: Any, target: Any, weight: Any, options: tuple[Any, ...]
) -> Any:
    """The gradient, which may be differentiated."""
    factors = None if weight is None else weight.float()
    _, top, rest = _logits.call(x.detach(), target, factors, *options)
    return _logits_grad.gradient(gradient, x, top, rest, target, factors, *options)


def _is_plain(gradient: Any) -> bool:
    return type(gradient) is torch.Tensor and not (gradient.is_neg() or intercepted())


# On a CPU.

MOST_CLASSES, MOST_OF_IMAGES = (1 << 14) - 1, 1 << 10
"""Classes up to which one kernel is faster than two: of rows and of images of up to 256 classes (AVX2: 512) it keeps the exponentials, where two kernels compute each twice,
1.1 to 1.6 times as fast on one x86-64 thread (with 200 classes 0.95); of images of more it computes them twice, too, 1 to 1.5 times as fast."""

_row_step = Kernel(ROW_STEP)


def loss_of_rows(input: Any, target: Any, weight: Any, options: tuple[Any, ...]) -> Any:
    """The loss of logits that autograd tracks; None where it is not computed so."""
    reduction, ignored, smoothing, scale = options
    shape = input.shape
    if (
        scale or reduction == "none" or len(shape) < 2 or shape[1] > (MOST_CLASSES if len(shape) == 2 else MOST_OF_IMAGES)
        or not takes_weight(input, weight)
    ):  # fmt: skip
        return None
    factors = weight if weight is None or weight.dtype is torch.float32 else weight.float()
    arguments = input, target, factors, reduction, ignored, smoothing
    results = _row_step.fast(*arguments)
    if results is NotImplemented:  # the first of its kind, if it is one
        if input.is_contiguous():
            results = first_loss(_row_step, arguments, weight, options)
        if results is NotImplemented:
            return None
    loss, ahead = results
    return CrossEntropyOfRows.apply(input, (loss, (target, weight), [options, ahead]))


def first_loss(
    kernel: Kernel, arguments: tuple[Any, ...], weight: Any, options: tuple[Any, ...]
) -> Any:
    """What a CPU's kernel computes in a call unlike all before, whose arguments begin with input and target, if it takes them; else NotImplemented."""
    input, target, *_ = arguments
    fits = _is_served(input, target) and input.dim() > 1 and input.numel()
    if not (fits and _is_loss(input, target, weight, options)):
        return NotImplemented
    return kernel.call(*arguments)


def takes_weight(input: Any, weight: Any) -> bool:
    """Whether weights are those that PyTorch takes, and learn nothing."""
    return weight is None or (type(weight) in PLAIN and weight.dtype is input.dtype and not weight.requires_grad)  # fmt: skip


def _is_served(input: Any, target: Any) -> bool:
    """Whether the CPU engine has kernels for this dtype, and for positions of three axes or what is like one."""
    if not (is_memory(input) and is_memory(target)):
        return False
    known = dtype_of_torch(input.dtype)
    return (
        cpu.unavailable() is None and current_engine() in (None, "cpu") and known in FLOATS and (known is not FLOAT16 or machine().half)
        and (input.dim() < 5 or (input.is_contiguous() and target.is_contiguous()))
    )  # fmt: skip


@quick
class CrossEntropyOfRows(Loss):
    """With a gradient that is written for a gradient of the loss of 1."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, target, weight = ctx.saved_tensors
        options, by_input = ctx.kept
        ctx.kept[1] = None  # it is handed out once
        if by_input is None or torch.is_grad_enabled() or not _is_plain(gradient) or not _may_scale(by_input, factor := gradient.item()):  # fmt: skip
            return _by_two_kernels(gradient, x, target, weight, options), None
        return by_input if factor == 1 else by_input.mul_(factor), None


def _may_scale(gradient: Any, factor: float) -> bool:
    """Whether a gradient times this is as exact as one that is written for it, but for a rounding in FLOAT."""
    return 0 < abs(factor) <= 1 and (
        gradient.dtype is torch.float32 or abs(frexp(factor)[0]) == 0.5
    )
