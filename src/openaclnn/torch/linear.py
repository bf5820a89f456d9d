"""Cross entropy of a linear layer without its logits: rows are taken in chunks, so that logits of one chunk are all there is.

Of a chunk, PyTorch multiplies inputs and weights, our kernels turn logits into losses and, in the same memory, into their gradient, and PyTorch
multiplies that with weights and inputs. Gradients are computed with the loss and scaled by what backward is given; where each row has a
loss of its own, backward computes them. What this does not serve is computed from the logits.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as torch_functional
from torch.overrides import has_torch_function_variadic

from openaclnn.core.dtypes import BFLOAT16, FLOAT16
from openaclnn.core.interface import REDUCTIONS
from openaclnn.engines.machine.host import multiplies
from openaclnn.operators.linear import SCALED, SOFT_CAP, SOFT_CAP_BACKWARD
from openaclnn.torch.dispatch import (
    FUNCTIONS,
    autocast_dtype,
    is_index,
    is_memory,
    is_number,
    needs_dispatcher,
    overridable,
    parallel_for,
)
from openaclnn.torch.kernels import KERNELS, Kernel
from openaclnn.torch.private import forward_mode, transformed

# The three matrix products of a linear layer's chunk of rows: logits, and the gradients of inputs and weights.
#
# Results of 16 bits are rounded once. On a GPU, PyTorch's products of 16 bits can have FLOAT results. On CPUs they cannot: a chunk's product would be
# rounded before it is added to those of other chunks. There operands become FLOAT, a block of classes at a time: for the gradient of
# weights always, for the rest where the CPU has no instructions for products of 16 bits.


BLOCK = 1 << 20  # elements of a block
scaled = Kernel(SCALED)


def logits_into(out: Any, input: Any, weight: Any, bias: Any) -> None:
    """input @ weight.t() + bias."""
    if not _is_widened(input):
        if bias is None:
            torch.mm(input, weight.t(), out=out)
        else:
            torch.addmm(bias, input, weight.t(), out=out)
        return
    input = input.float()
    for block in _blocks(weight, input):
        part = torch.mm(input, weight[block].float().t())
        out[:, block] = part if bias is None else part.add_(bias[block])


def input_gradient_into(out: Any, gradient: Any, weight: Any, scale: Any) -> None:
    """gradient @ weight, times a number on the device if there is one."""
    if scale is None and not _is_widened(gradient):
        torch.mm(gradient, weight, out=out)
        return
    product = input_gradient(gradient, weight)
    if scale is None:
        out.copy_(product)
    else:
        scaled.into(out, product, scale)


def input_gradient(gradient: Any, weight: Any) -> Any:
    """gradient @ weight, in FLOAT where the device computes it so."""
    if gradient.is_cuda and gradient.dtype is not torch.float32:
        return torch.mm(gradient, weight, out_dtype=torch.float32)
    if not _is_widened(gradient):
        return torch.mm(gradient, weight)
    total = gradient.new_zeros(len(gradient), weight.shape[1], dtype=torch.float32)
    for block in _blocks(weight, gradient):
        total.addmm_(gradient[:, block].float(), weight[block].float())
    return total


def plus_weight_gradient(total: Any, gradient: Any, input: Any, wide: bool) -> Any:
    """total + gradient.t() @ input, in FLOAT where that is asked for, in the memory of the total, which is nothing at first."""
    left, wide = gradient.t(), wide and gradient.dtype is not torch.float32
    if not (wide or _is_widened(gradient)):
        return torch.mm(left, input) if total is None else total.addmm_(left, input)
    if gradient.is_cuda:
        if total is None:
            return torch.mm(left, input, out_dtype=torch.float32)
        return torch.addmm(total, left, input, out_dtype=torch.float32, out=total)
    first, input = total is None, input.float()
    if first:
        total = torch.empty(len(left), input.shape[1], dtype=torch.float32 if wide else gradient.dtype, device=input.device)  # fmt: skip
    for block in _blocks(left, input):
        part, place = left[block].float(), total[block]
        if wide:
            torch.addmm(place, part, input, beta=0.0 if first else 1.0, out=place)
        else:
            place.copy_(torch.mm(part, input) if first else torch.addmm(place.float(), part, input))
    return total


def _blocks(by_class: Any, by_row: Any) -> Iterator[slice]:
    """Of classes."""
    step = max(1, BLOCK // max(1, by_class.shape[1], len(by_row)))
    return (slice(begin, begin + step) for begin in range(0, len(by_class), step))


@functools.cache
def _has_instructions(dtype: torch.dtype) -> bool:
    return multiplies(BFLOAT16 if dtype is torch.bfloat16 else FLOAT16)


def _is_widened(tensor: Any) -> bool:
    """Whether products of FLOAT are faster: without instructions for them, products of BFLOAT16 take 4 times as long (AVX-512), of FLOAT16 70 times."""
    return tensor.dtype is not torch.float32 and not tensor.is_cuda and not _has_instructions(tensor.dtype)  # fmt: skip


_FORWARD, _BACKWARD = KERNELS["cross_entropy_logits"], KERNELS["cross_entropy_logits_grad"]
_soft_cap, _soft_cap_backward = map(Kernel, (SOFT_CAP, SOFT_CAP_BACKWARD))
SINGLES = frozenset((torch.float32, torch.float16, torch.bfloat16))
_count = FUNCTIONS["linear_cross_entropy"]
PARTS = 4  # chunks at least, unless the caller allows more memory
MOST_ROWS = 4096  # of a chunk: matrix products gain nothing from more
ALIGNED = 8  # elements: with another number of classes matrix products of 16 bits take several times as long on a GPU


class Options(NamedTuple):
    """What does not depend on data. `memory`: bytes of a chunk of logits, 0 for the default; `accumulated`: whether the weights'
    gradient is added up in FLOAT over chunks; `dtype`: the loss's."""

    reduction: str
    ignored: int
    smoothing: float
    zloss_scale: float
    softcap: float
    memory: int
    rows: int
    accumulated: bool
    dtype: torch.dtype

    def chunks(self, tensors: Tensors, gradient: Any, wanted: Sequence[bool]) -> Computed:
        return _chunks(tensors, gradient, wanted, self)

    def composed(self, tensors: Tensors) -> Any:
        return _composed(tensors, self)


class Tensors(NamedTuple):
    """What data there are."""

    input: Any
    linear_weight: Any
    bias: Any
    target: Any
    weight: Any
    token_weight: Any
    denominator: Any


@overridable
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
    zloss_scale: float = 0.0,
    softcap: float = 0.0,
    token_weight: Tensor | None = None,
    denominator: Tensor | float | None = None,
    memory: int | None = None,
    accumulate: torch.dtype | None = None,
    return_z_loss: bool = False,
) -> Any:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target, ...)` without the logits, for inputs (..., features).

    Up to `options` the arguments are those of PyTorch's function of this name; of its options the rows of a chunk and the dtype of
    sums count. `zloss_scale` and `return_z_loss` are as in `cross_entropy`; `softcap` makes logits softcap * tanh(logits / softcap). `token_weight`, of the targets'
    shape, multiplies the losses; "mean" divides by the sum of the weights of what counts, or by the `denominator`, if one is given: the
    number of tokens in all parts of a batch, say. `memory` is how many bytes a chunk of logits may take; by
    default a quarter of all logits or, if that is more, what the 16-bit gradient of weights takes later, of 4,096 rows at most. That gradient is added up in FLOAT, in as many bytes; `accumulate=linear_weight.dtype` saves
    them. BFLOAT16 rows that are twice the features at most are one chunk, which takes no more than those sums.

    >>> linear_cross_entropy(torch.ones(3, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 1, 2]))
    tensor(1.2181)
    """
    parallel = None if target.is_floating_point() else parallel_for(linear_weight)
    if parallel is not None:
        _count.serve()
        return parallel.linear_cross_entropy(
            input, linear_weight, target, linear_bias=linear_bias, weight=weight, reduction=reduction,
            ignore_index=-100 if ignore_index is None else ignore_index, label_smoothing=label_smoothing, zloss_scale=zloss_scale, softcap=softcap,
            token_weight=token_weight, denominator=denominator, memory=memory, accumulate=accumulate, return_z_loss=return_z_loss,
        )  # fmt: skip
    arguments = Tensors(
        input, linear_weight, linear_bias, target, weight, token_weight, denominator
    )
    both = _loss(arguments, _composed, reduction, ignore_index, label_smoothing, options, zloss_scale, softcap, memory, accumulate)  # fmt: skip
    return with_z_loss(*both) if return_z_loss else both[0]


def with_z_loss(loss: Any, zloss: Any) -> tuple[Any, Any]:
    """A loss and its z-loss's part, which is None where there is none: to be looked at, without a gradient."""
    return loss, torch.zeros_like(loss.detach()) if zloss is None else zloss.detach()


def in_place_of_theirs(
    input: Any, linear_weight: Any, target: Any, *, linear_bias: Any = None, weight: Any = None, reduction: str = "mean", ignore_index: Any = None,
    label_smoothing: float = 0.0, options: Any = None,
) -> Any:  # fmt: skip
    """The same under PyTorch's signature; TypeError says why where that has to compute it, or to say what is wrong."""
    tensors = Tensors(input, linear_weight, linear_bias, target, weight, None, None)
    if has_torch_function_variadic(*[each for each in tensors if each is not None]) or input.dim() > 2:  # fmt: skip
        raise TypeError("tensors that PyTorch hands on, or refuses")
    return _loss(tensors, None, reduction, ignore_index, label_smoothing, options)[0]


def _loss(
    tensors: Tensors, composed: Any, reduction: str, ignored: Any, smoothing: float, options: Any, zloss_scale: float = 0.0, softcap: float = 0.0,
    memory: int | None = None, accumulate: Any = None,
) -> Any:  # fmt: skip
    """The loss and its z-loss's part, by chunks or, where they do not serve, by what composes it of tensors and options; without that TypeError says why."""
    input, linear_weight, bias, target, weight, token_weight, denominator = tensors
    check_shapes(input, linear_weight, target, bias, token_weight, ignored, memory)
    dtype = input.dtype if autocast_dtype(input) is None else torch.float32
    input, linear_weight, bias = as_autocast(input, linear_weight, bias)
    if isinstance(denominator, (int, float)):
        denominator = torch.full((), float(denominator), device=input.device)
    accumulate = accumulate or getattr(options, "acc_dtype", None) or torch.float32
    asked = Options(
        reduction, -100 if ignored is None else ignored, smoothing, zloss_scale, softcap, memory or 0,
        getattr(options, "batch_chunk_size", None) or 0, accumulate is torch.float32, dtype,
    )  # fmt: skip
    tensors = Tensors(input, linear_weight, bias, target, weight, token_weight, denominator)
    with without_autocast(input):
        reason = _unserved(tensors, asked)
        if reason is not None:
            if composed is None:
                raise TypeError(reason)
            _count.decline(reason)
            return composed(tensors, asked)
        if composed is not None:
            _count.serve()
        rows = input.reshape(-1, input.shape[-1])
        by_row = None if token_weight is None else token_weight.reshape(-1)
        flat = tensors._replace(input=rows, target=target.reshape(-1), token_weight=by_row)
        if needs_dispatcher() or input.is_meta:
            wanted = [each is not None and each.requires_grad for each in flat[:3]]
            loss, zloss, *_ = _step(*flat, *asked, wanted if torch.is_grad_enabled() else [False] * 3)  # fmt: skip
            zloss = zloss if zloss_scale else None
        else:
            loss, zloss = by_chunks(flat, asked)
    return in_shape(loss, zloss, target, reduction)


def in_shape(loss: Any, zloss: Any, target: Any, reduction: str) -> tuple[Any, Any]:
    """Both in the shape of the targets where each has a loss."""
    if reduction != "none":
        return loss, zloss
    return loss.reshape(target.shape), None if zloss is None else zloss.reshape(target.shape)


def check_shapes(
    input: Any,
    linear_weight: Any,
    target: Any,
    bias: Any,
    token_weight: Any,
    ignored: Any,
    memory: Any,
) -> None:
    """Shapes, as PyTorch's function says them; inputs may have any rank here."""
    if input.dim() < 1:
        raise RuntimeError(
            f"expected input with dimensionality 1 or more, got {input.dim()} dimensions"
        )
    if linear_weight.dim() < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}"
        )
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    classes = tuple(linear_weight.shape[:-1])
    if bias is not None and tuple(bias.shape) != classes:
        raise RuntimeError(f"expected linear_bias shape {classes}, got {tuple(bias.shape)}")
    if len(classes) > 1 and input.dim() != 2:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got input with shape {tuple(input.shape)}"
        )
    if token_weight is not None and token_weight.shape != target.shape:
        raise RuntimeError(
            f"expected token_weight of the shape of target, {tuple(target.shape)}, got {tuple(token_weight.shape)}"
        )
    if ignored is not None and target.is_floating_point():
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if memory is not None and memory <= 0:
        raise RuntimeError(f"expected memory to be a number of bytes above 0, got {memory}")


def as_autocast(input: Any, *others: Any) -> tuple[Any, ...]:
    """These as autocast multiplies them; what is None stays so."""
    narrow = autocast_dtype(input)
    if narrow is None:
        return input, *others
    return tuple([None if each is None else each.to(narrow) for each in (input, *others)])


def without_autocast(input: Any) -> contextlib.AbstractContextManager[Any]:
    device = input.device.type
    casts = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if casts else contextlib.nullcontext()


def capped(logits: Any, softcap: float) -> Any:
    """By operations that autograd knows."""
    return torch.tanh(logits / softcap) * softcap if softcap else logits


def unserved_tensors(input: Any, present: Sequence[Any]) -> str | None:
    """Why chunks do not take these tensors, whatever is computed of them; None if they do."""
    if parallel_for(input) is not None or not all(map(is_memory, present)):
        return "tensors that are no plain memory"
    if input.dtype not in SINGLES or not (input.is_cpu or input.is_cuda or input.is_meta):
        return f"{input.dtype} on {input.device.type}"
    if forward_mode() or transformed():
        return "derivatives in forward mode, or transforms of torch.func"
    return None


def _unserved(tensors: Tensors, options: Options) -> str | None:
    """Why this is computed from the logits, or None."""
    input, linear_weight, bias, target, weight, token_weight, denominator = tensors
    present = [each for each in tensors if each is not None]
    if linear_weight.dim() > 2 or target.is_floating_point():
        return "a loss of several dimensions" if linear_weight.dim() > 2 else "class probabilities"
    reason = unserved_tensors(input, present)
    if reason is not None:
        return reason
    numbers = options.smoothing, options.zloss_scale, options.softcap
    if not (all(map(is_number, numbers)) and is_index(options.ignored)):
        return "numbers that are none"
    learnt = [each for each in (weight, token_weight, denominator) if each is not None]
    two_means = weight is not None and options.zloss_scale and options.reduction == "mean"
    fits = (
        linear_weight.dtype is input.dtype
        and (bias is None or bias.dtype is input.dtype)
        and target.dtype is torch.int64
        and target.shape == input.shape[:-1]
        and input.numel() > 0
        and (weight is None or weight.shape == linear_weight.shape[:1])
        and not any(each.requires_grad for each in learnt)
        and not (two_means and token_weight is None and denominator is None)
        and all(each.device == input.device for each in present)
        and options.reduction in REDUCTIONS
        and 0.0 <= options.smoothing <= 1.0
    )
    return None if fits else "arguments that chunks do not serve"


def _composed(tensors: Tensors, options: Options) -> Any:
    """The same from the logits, by operations that autograd knows."""
    input, linear_weight, bias, target, weight, token_weight, denominator = tensors
    classes = linear_weight.shape[:-1]
    flat = linear_weight.reshape(-1, linear_weight.shape[-1])
    logits = torch_functional.linear(input, flat, None if bias is None else bias.reshape(-1))
    if len(classes) > 1:
        logits = logits.reshape(*input.shape[:-1], *classes)
    elif input.dim() > 2:
        logits, target = logits.reshape(-1, *classes), target.reshape(-1, *target.shape[input.dim() - 1 :])  # fmt: skip
        token_weight = None if token_weight is None else token_weight.reshape(-1)
    logits = capped(logits, options.softcap).to(options.dtype)
    weight = None if weight is None else weight.to(options.dtype)
    whole = is_whole(token_weight, denominator, options.reduction)
    losses, lse = _of_logits(logits, target, weight, options.reduction if whole else "none", options)  # fmt: skip
    both = finished(losses, lse, (target, weight, token_weight, denominator), classes[0], options, whole)  # fmt: skip
    if options.reduction == "none" and input.dim() > 2:
        return tuple([None if each is None else each.reshape(input.shape[:-1]) for each in both])
    return both


def _of_logits(
    logits: Any, target: Any, weight: Any, reduction: str, options: Options
) -> tuple[Any, Any]:
    """Cross entropy; only ours has a z-loss, of class indices, with the log-sum-exp that it is made of."""
    if not options.zloss_scale:
        return torch_functional.cross_entropy(
            logits, target, weight, ignore_index=options.ignored, reduction=reduction, label_smoothing=options.smoothing
        ), None  # fmt: skip
    if target.is_floating_point():
        raise RuntimeError("zloss_scale: the z-loss is for class indices, got class probabilities")
    single = logits.dim() == 1
    if single:
        logits, target = logits[None], target[None]
    if weight is not None:
        weight = weight.to(torch.promote_types(logits.dtype, torch.float32))
    numbers = options.ignored, options.smoothing, options.zloss_scale
    loss, top, rest = _FORWARD.op(logits, target, weight, reduction, *numbers)
    lse = (top + rest).detach()
    return loss[0] if single and reduction == "none" else loss, lse[0] if single else lse


def counted_targets(target: Any, classes: int, ignored: int) -> Any:
    return (target != ignored) & (target >= 0) & (target < classes)


def is_whole(token_weight: Any, denominator: Any, reduction: str) -> bool:
    """Whether a loss is what the kernel reduces; else it is made of rows' losses."""
    return token_weight is None and (denominator is None or reduction != "mean")


class Asked(NamedTuple):
    """What becomes of rows' losses."""

    reduction: str
    ignored: int
    zloss_scale: float
    dtype: torch.dtype


def finished(losses: Any, lse: Any, beside: Any, classes: int, asked: Asked | Options, whole: bool) -> tuple[Any, Any]:  # fmt: skip
    """The loss, of rows' losses unless it is whole; and the z-loss's part, of rows' log-sum-exps if there are any. A mean of that without a denominator is
    the mean of rows that count. Beside are targets, weights of classes and of tokens, and the denominator."""
    target, weight, token_weight, denominator = beside
    mean = asked.reduction == "mean"
    if mean and not whole and denominator is None:
        denominator = denominator_of(target, weight, token_weight, classes, asked.ignored)
    if token_weight is not None:
        losses = losses * token_weight
    if asked.reduction != "none" and not whole:
        short = losses.dtype in (torch.float16, torch.bfloat16)
        losses = losses.sum(dtype=torch.float32 if short else None)
        losses = losses / denominator if mean else losses
    if lse is None:
        return losses.to(asked.dtype), None
    counted = counted_targets(target, classes, asked.ignored)
    zloss = torch.where(counted, asked.zloss_scale * lse.square(), 0.0)
    if token_weight is not None:
        zloss = zloss * token_weight
    if asked.reduction != "none":
        zloss = zloss.sum() / ((counted.sum() if denominator is None else denominator) if mean else 1)  # fmt: skip
    return losses.to(asked.dtype), zloss.to(asked.dtype)


def denominator_of(
    target: Any, weight: Any, token_weight: Any, classes: int, ignored: int
) -> Tensor:
    """The sum of the weights of targets that count, in FLOAT."""
    counted = counted_targets(target, classes, ignored)
    shares = counted.float()
    if weight is not None:
        shares = shares * weight.float()[torch.where(counted, target, 0)]
    if token_weight is not None:
        shares = shares * token_weight.float()
    total: Tensor = shares.sum()
    return total


def by_chunks(flat: Tensors, options: Any) -> Any:
    """The loss of rows, for autograd; where nobody asks for gradients, none is computed."""
    if not torch.is_grad_enabled():
        flat = Tensors(*[None if each is None else each.detach() for each in flat])
    return _LinearCrossEntropy.apply(*flat, options)  # type: ignore[no-untyped-call]


class _LinearCrossEntropy(torch.autograd.Function):
    """With gradients that are computed with the loss, handed out once, and computed again for whoever asks again. Options know how."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        flat, options = Tensors(*arguments[:-1]), arguments[-1]
        wanted = ctx.needs_input_grad[:3] if options.reduction != "none" else (False,) * 3
        loss, zloss, ctx.sums = options.chunks(flat, None, wanted)
        ctx.save_for_backward(*flat)
        ctx.options, ctx.ready = options, any(wanted)
        if zloss is not None:
            ctx.mark_non_differentiable(zloss)
        return loss, zloss

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        flat, options, wanted = Tensors(*ctx.saved_tensors), ctx.options, ctx.needs_input_grad[:3]
        rest = (None,) * 5
        if torch.is_grad_enabled():  # gradients of gradients: by operations that have them
            learnt = [each for each, asked in zip(flat, wanted, strict=False) if asked]
            loss, _ = options.composed(flat)
            derivatives = iter(torch.autograd.grad(loss, learnt, gradient, create_graph=True))
            return *(next(derivatives) if asked else None for asked in wanted), *rest
        if options.reduction == "none":
            return *options.chunks(flat, gradient, wanted).sums.gradients(None), *rest
        sums, ready = ctx.sums, ctx.ready
        ctx.sums, ctx.ready = None, False
        if not ready:
            sums = options.chunks(flat, None, wanted).sums
        return *sums.gradients(
            gradient if gradient.is_cuda or gradient.item() != 1 else None
        ), *rest


class Sums(NamedTuple):
    """Gradients, those of weights and bias as they were added up: with all columns of a chunk, in the dtype of sums, and to be scaled."""

    of_input: Any
    of_weight: Any
    of_bias: Any
    scale: Any
    classes: int
    dtype: torch.dtype

    def gradients(self, factor: Any) -> tuple[Any, Any, Any]:
        """For a gradient of the loss, which may be None for 1. It writes over what is here."""
        if factor is not None:
            factor = factor.float()
        if factor is not None and self.of_input is not None:
            scaled.into(self.of_input, self.of_input, factor)
        if self.scale is not None:
            factor = self.scale if factor is None else self.scale * factor
        return self.of_input, *(self._rounded(each, factor) for each in self[1:3])

    def _rounded(self, total: Any, factor: Any) -> Any:
        if total is None:
            return None
        total = total[: self.classes]
        fits = total.dtype is self.dtype and total.untyped_storage().nbytes() == total.nbytes
        if factor is None:
            return total if fits else total.to(self.dtype, copy=True)
        rounded = total if fits else torch.empty_like(total, dtype=self.dtype)
        scaled.into(rounded, total, factor)
        return rounded


class Computed(NamedTuple):
    """The loss, its z-loss's part if there is any, and gradients."""

    loss: Any
    zloss: Any
    sums: Sums


def _chunk_rows(rows: int, row_bytes: int, memory: int, asked: int, spare: int) -> int:
    """How many rows a chunk has, of so many bytes at the most or of so many rows; by default a part of all, or those that take no more than memory that is spare; many are
    a multiple of 128."""
    size = asked or (
        memory // row_bytes if memory else min(max(-(-rows // PARTS), spare), MOST_ROWS)
    )
    size = size // 128 * 128 if size > 128 else size
    return max(1, min(size, rows))


def _pitch(classes: int, aligned: bool) -> int:
    """Columns of a chunk: as many as classes, or filled up to a multiple of some."""
    return -(-classes // ALIGNED) * ALIGNED if aligned else classes


class Layer:
    """A linear layer's logits chunk by chunk, and what becomes of the gradients of these."""

    def __init__(
        self, input: Any, linear_weight: Any, bias: Any, wanted: Sequence[bool], softcap: float, memory: int = 0, rows: int = 0,
        accumulated: bool = True, ahead: int = 0,
    ) -> None:  # fmt: skip
        """`ahead` chunks of logits stay as they are while the next ones are computed."""
        self.input, self.linear_weight, self.bias, self.wanted = input, linear_weight, bias, wanted
        self.softcap, self.classes = softcap, linear_weight.shape[0]
        self.short = input.dtype is not torch.float32
        self.pitch = pitch = _pitch(self.classes, self.short and input.is_cuda)
        more = pitch - self.classes
        if more:
            self.linear_weight = torch_functional.pad(linear_weight, (0, 0, 0, more))
            self.bias = None if bias is None else torch_functional.pad(bias, (0, more))
        self.held = 1 + ahead
        self.uncapped = bool(softcap) and any(wanted)
        buffers = self.held * (1 + self.uncapped)
        # The 16-bit gradient of weights that are added up in FLOAT takes its memory when chunks have left theirs: so many rows of logits. Twice as many
        # take no more than the FLOAT sums and those: if these are all, BFLOAT16 has nothing to add up.
        spare = input.shape[1] // buffers if self.short and accumulated and wanted[1] else 0
        alone = input.dtype is torch.bfloat16 and not ahead
        self.step = len(input)
        if not alone or memory or rows or len(input) > 2 * spare:
            self.step = _chunk_rows(len(input), buffers * pitch * input.dtype.itemsize, memory, rows, spare)  # fmt: skip
        self.accumulated = accumulated and not (alone and self.step == len(input))
        self.memory = input.new_empty(buffers, self.step, pitch)
        self.of_input: Any = None
        self.of_weight: Any = None
        self.of_bias: Any = None
        if wanted[0]:
            self.of_input = torch.empty_like(input, memory_format=torch.contiguous_format)

    def __iter__(self) -> Iterator[tuple[int, int, Any]]:
        """Each chunk's first row, the one behind its last, and its logits with all columns."""
        rows = len(self.input)
        for turn, (begin, end) in enumerate(itertools.pairwise([*range(0, rows, self.step), rows])):
            x, whole = self.input[begin:end], self.memory[turn % self.held, : end - begin]
            product = self._product_of(begin, end) if self.uncapped else whole
            logits_into(product, x, self.linear_weight, self.bias)
            if self.softcap:
                _soft_cap.into(whole, product, self.softcap)
            yield begin, end, whole

    def _product_of(self, begin: int, end: int) -> Any:
        """Where a chunk's logits stay as they were before the soft cap, whose gradient is made of them: rounded results near the cap would
        have lost what it is."""
        return self.memory[self.held + begin // self.step % self.held, : end - begin]

    def take(self, begin: int, end: int, gradient: Any, columns: int, scale: Any) -> None:
        """Add the gradient of a chunk, with so many columns that were written over its logits, to those that are wanted."""
        if self.uncapped:
            ours = gradient[:, : self.classes]
            _soft_cap_backward.into(ours, ours, self._product_of(begin, end)[:, : self.classes], self.softcap)  # fmt: skip
        if columns != self.pitch:
            gradient[:, self.classes :] = 0  # what is no number there would spread
        if self.of_input is not None:
            input_gradient_into(self.of_input[begin:end], gradient, self.linear_weight, scale)
        if self.wanted[1]:
            self.of_weight = plus_weight_gradient(self.of_weight, gradient, self.input[begin:end], self.accumulated)  # fmt: skip
        if self.wanted[2]:
            part = gradient.sum(0, dtype=torch.float32 if self.short else torch.float64)
            self.of_bias = part if self.of_bias is None else self.of_bias.add_(part)

    def sums(self, scale: Any) -> Sums:
        of_bias = None if self.of_bias is None else self.of_bias.float()
        return Sums(self.of_input, self.of_weight, of_bias, scale, self.classes, self.input.dtype)


def _chunks(tensors: Tensors, gradient: Any, wanted: Sequence[bool], options: Options) -> Computed:
    """The loss, and the gradients that are wanted of inputs, weights and bias: of the loss itself, or, with a number for each row, of their losses."""
    input, linear_weight, bias, target, weight, token_weight, denominator = tensors
    layer = Layer(input, linear_weight, bias, wanted, options.softcap, options.memory, options.rows, options.accumulated)  # fmt: skip
    rows, classes = input.shape[0], layer.classes
    scale = None  # of sums, which is a number on the device
    if options.reduction == "mean" and gradient is None:
        if denominator is None:
            denominator = denominator_of(target, weight, token_weight, classes, options.ignored)
        scale = denominator.float().reciprocal()
    factors = None if weight is None else weight.float()
    # Classes that are none have no share in a row, but would in what smoothing spreads; targets must not be among them.
    columns = classes if options.smoothing else layer.pitch
    if columns != classes:
        factors = None if factors is None else torch_functional.pad(factors, (0, columns - classes))
        target = torch.where(target < classes, target, options.ignored)
    shares = torch.ones(rows, device=input.device) if gradient is None else gradient.float()
    if token_weight is not None:
        shares = shares * token_weight.float()
    if scale is not None and input.dtype is not torch.float16:
        # In FLOAT16 small numbers would be lost: its sums are scaled before they are rounded.
        shares, scale = shares * scale, None
    losses = torch.empty(rows, dtype=torch.float32, device=input.device)
    lse = torch.empty_like(losses) if options.zloss_scale else None
    for begin, end, whole in layer:
        t = target[begin:end]
        if columns != classes:
            whole[:, classes:] = -math.inf
        logits = whole[:, :columns]
        numbers = "none", options.ignored, options.smoothing, options.zloss_scale
        loss, top, rest = _FORWARD.call(logits, t, factors, *numbers)
        if layer.short and not options.smoothing:
            loss = exact_losses(logits, t, top, rest, factors, options.ignored, options.zloss_scale)
        losses[begin:end] = loss
        if lse is not None:
            lse[begin:end] = top + rest
        if any(wanted):
            _BACKWARD.into(logits, shares[begin:end], logits, top, rest, t, factors, *numbers)
            layer.take(begin, end, whole, columns, scale)
    both = finished(losses.double(), lse, (target, weight, token_weight, denominator), classes, options, False)  # fmt: skip
    return Computed(*both, layer.sums(scale))


def exact_losses(
    logits: Any, target: Any, top: Any, rest: Any, weight: Any, ignored: int, zloss_scale: float
) -> Any:
    """The losses of 16-bit logits (C,) or (N, C, ...) in FLOAT; with smoothing all classes would have to be read again."""
    axis = min(1, logits.dim() - 1)
    counted = counted_targets(target, logits.shape[axis], ignored)
    safe = torch.where(counted, target, 0)
    losses = (top - logits.gather(axis, safe.unsqueeze(axis)).squeeze(axis)) + rest
    if weight is not None:
        losses = losses * weight.float()[safe]
    if zloss_scale:
        losses = losses + zloss_scale * (top + rest).square()
    return torch.where(counted, losses, 0.0)


# For graphs: what PyTorch compiles, exports or transforms.
_ARGUMENTS = (
    "Tensor input, Tensor linear_weight, Tensor? linear_bias, Tensor target, Tensor? weight, Tensor? token_weight, Tensor? denominator, "
    "str reduction, int ignored, float smoothing, float zloss_scale, float softcap, int memory, int rows, bool accumulated, ScalarType dtype, "
    "bool[3] wanted"
)


def _taken_apart(arguments: Any) -> tuple[Tensors, Options, Sequence[bool]]:
    return Tensors(*arguments[:7]), Options(*arguments[7:-1]), arguments[-1]


def filled(gradients: Sequence[Any], like: Any) -> tuple[Any, ...]:
    """Those that are not wanted as tensors of no elements, which graphs can hold."""
    return tuple(like.new_empty(0) if each is None else each for each in gradients)


@torch.library.custom_op(
    "openaclnn::linear_cross_entropy",
    mutates_args=(),
    schema=f"({_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _step(*arguments: Any) -> Any:
    flat, options, wanted = _taken_apart(arguments)
    if options.reduction == "none":
        wanted = [False] * 3
    loss, zloss, sums = _chunks(flat, None, wanted, options)
    return loss, *filled([zloss, *sums.gradients(None)], flat[0])


@torch.library.custom_op(
    "openaclnn::linear_cross_entropy_backward",
    mutates_args=(),
    schema=f"(Tensor gradient, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
)
def _step_backward(gradient: Any, *arguments: Any) -> Any:
    flat, options, wanted = _taken_apart(arguments)
    return filled(_chunks(flat, gradient, wanted, options).sums.gradients(None), flat[0])


@_step.register_fake
def _shapes_of_step(*arguments: Any) -> Any:
    flat, options, wanted = _taken_apart(arguments)
    whole = options.reduction != "none"
    loss = flat[0].new_empty(() if whole else flat[0].shape[:1], dtype=options.dtype)
    zloss = torch.empty_like(loss) if options.zloss_scale else flat[0].new_empty(0)
    return loss, zloss, *shapes_of(flat, wanted if whole else [False] * 3)


@_step_backward.register_fake
def _shapes_of_gradients(gradient: Any, *arguments: Any) -> Any:
    return tuple(shapes_of(arguments[:7], arguments[-1]))


def shapes_of(flat: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    """Tensors like the gradients of these, without data; those that are not wanted have no elements."""
    return [
        each.new_empty(each.shape) if asked else flat[0].new_empty(0)
        for each, asked in zip(flat, wanted, strict=False)
    ]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options, ctx.wanted = inputs[7:-1], inputs[-1]
    ctx.save_for_backward(*inputs[:7], *output[2:])


def _handed_out(ctx: Any, gradient: Any, *_: Any) -> Any:
    saved = ctx.saved_tensors
    gradients = saved[7:]
    if ctx.options[0] == "none":
        gradients = _step_backward(gradient, *saved[:7], *ctx.options, ctx.wanted)
    else:
        gradients = [(each * gradient).to(each.dtype) for each in gradients]
    derivatives = [
        each if asked else None for each, asked in zip(gradients, ctx.wanted, strict=True)
    ]
    return *derivatives, *[None] * (4 + len(ctx.options) + 1)


_step.register_autograd(_handed_out, setup_context=_keep)
