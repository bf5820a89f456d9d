"""The functions of `openaclnn.torch.functional`. Losses of class indices are written here, with PyTorch's signatures and forward and backward by our
kernels on the CPU and CUDA; all other functions are imported.

PyTorch's own functions compute what our kernels do not support (other dtypes and devices), and raise the errors for wrong arguments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from openaclnn.core.interface import REDUCTIONS
from openaclnn.core.results import undisturbed
from openaclnn.operators import likelihood, logits as of_logits
from openaclnn.torch import elementwise
from openaclnn.torch.dispatch import (
    FLOATS,
    FUNCTIONS,
    SlowPath,
    is_cast_alone,
    is_index,
    is_memory,
    is_number,
    is_supported,
    is_tracked,
    lies_apart,
    may_take_fast_path,
    needs_dispatcher,
    parallel_for,
    why_declined,
    writes_to_leaf,
)
from openaclnn.torch.elementwise import *  # noqa: F403
from openaclnn.torch.fused_backward import (
    LEAST,
    first_loss,
    loss_ahead,
    loss_of_rows,
    may_be_ahead,
    takes_weight,
)
from openaclnn.torch.gradients import CrossEntropy, CrossEntropyOverLogits, Likelihood
from openaclnn.torch.kernels import KERNELS, PLAIN, Kernel, intercepted
from openaclnn.torch.linear import (
    Asked,
    exact_losses,
    finished,
    is_whole,
    linear_cross_entropy,
)
from openaclnn.torch.log_probs import (
    distillation_kl,
    entropy,
    linear_entropy,
    linear_log_probs_and_entropy,
    linear_selected_log_probs,
    log_probs_and_entropy,
    selected_log_probs,
    soft_cross_entropy,
)
from openaclnn.torch.refusals import UnservedError

__all__ = [
    *elementwise.__all__, "check_targets", "cross_entropy", "distillation_kl", "entropy", "linear_cross_entropy", "linear_entropy",
    "linear_log_probs_and_entropy", "linear_selected_log_probs", "log_probs_and_entropy", "nll_loss", "selected_log_probs",
]  # fmt: skip

_ROWS = KERNELS["nll_loss"], KERNELS["nll_loss_backward"]
_PIXELS = KERNELS["nll_loss2d"], KERNELS["nll_loss2d_backward"]
_BY_RANK = {2: _ROWS, 4: _PIXELS}
_NLL_ALONE, _ENTROPY_ALONE = Kernel(likelihood.LOSS_ALONE), Kernel(of_logits.LOSS_ALONE)
_LOGITS = KERNELS["cross_entropy_logits"]
_nll_count, _entropy_count = FUNCTIONS["nll_loss"], FUNCTIONS["cross_entropy"]


# Losses of class indices.


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`torch.nn.functional.nll_loss` by our kernels: of log-probabilities (C,), (N, C) or (N, C, d1, ...).

    On CUDA a class index out of range counts for nothing, unless `check_targets(True)` asks for an error.

    >>> nll_loss(torch.tensor([[-0.5, -1.5], [-2.0, -0.25]]), torch.tensor([0, 1]))
    tensor(0.3750)
    """
    of_rank = None
    plain = size_average is None and reduce is None and type(ignore_index) is int
    if plain and may_take_fast_path(input) and not _checked:
        if weight is None and input.is_cpu and not is_tracked(input):
            # This kernel needs no weights of ones and computes no total of them, which the gradient alone uses.
            alone: Any = _NLL_ALONE.fast(input, target, reduction, ignore_index)
            if alone is NotImplemented:
                options = reduction, ignore_index
                alone = first_loss(
                    _NLL_ALONE, (input, target, *options), None, (*options, 0.0, 0.0)
                )
            if alone is not NotImplemented:
                _nll_count.ours += 1
                return alone  # type: ignore[no-any-return]
        of_rank = _BY_RANK.get(input.dim())
    if of_rank is not None:
        kernel, backward = of_rank
        factors = _latest_ones if weight is None else weight
        result = kernel.fast(input, target, factors, reduction, ignore_index)
        if result is NotImplemented and weight is None and not intercepted():  # other ones needed
            factors = ones_for(input)
            result = kernel.fast(input, target, factors, reduction, ignore_index)
        if result is not NotImplemented and _accepted_by_torch(target, weight):
            _nll_count.ours += 1
            loss: Tensor = result[0]
            if is_tracked(input):
                kept = backward, result[1], factors, (reduction, ignore_index)
                loss = Likelihood.apply(input, (loss, (target, weight), kept))
            return loss
    slow: Tensor = _slow_nll(input, target, weight, size_average, ignore_index, reduce, reduction)
    return slow


def _nll_loss(
    input: Any, target: Any, weight: Any, _: Any, ignore_index: int, __: Any, reduction: str
) -> Any:  # fmt: skip
    """The loss, or a text that says why PyTorch has to compute it."""
    fits = is_index(ignore_index) and _fits(input, target, weight, reduction)
    if not fits or (weight is not None and weight.dtype is not input.dtype):
        return why_declined(input)
    log_prob, indices, rank = input, target, input.dim()
    _check_indices(target, input.shape[1 if rank > 1 else 0], ignore_index)
    if rank > 2 and rank != 4:  # the kernel of pixels takes (N, C, H, W)
        log_prob = input.reshape(input.shape[0], input.shape[1], 1, -1)
        indices = target.reshape(target.shape[0], 1, -1)
    dispatched = needs_dispatcher()
    fresh = dispatched or type(input) not in PLAIN
    factors = ones_for(input, fresh) if weight is None else weight
    kernel, backward = _ROWS if rank < 3 else _PIXELS
    options = reduction, ignore_index
    result = (kernel.op if dispatched else kernel.call)(log_prob, indices, factors, *options)
    loss, total = result
    if not dispatched and is_tracked(input):
        kept = backward, total, factors, options
        loss = Likelihood.apply(log_prob, (loss, (indices, weight), kept))
    return loss.reshape(target.shape) if reduction == "none" and log_prob is not input else loss


_OF_CLASSES = "input", "target", "weight", "ignore_index", "reduction"
_slow_nll = SlowPath(nll_loss, _nll_loss, _OF_CLASSES)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    zloss_scale: float = 0.0,
    inplace: bool = False,
    token_weight: Tensor | None = None,
    denominator: Tensor | float | None = None,
    return_z_loss: bool = False,
) -> Tensor:
    """`torch.nn.functional.cross_entropy` by our kernels: of logits (C,), (N, C) or (N, C, d1, ...).

    Logits and two numbers a row are kept for backward. `zloss_scale` adds that many times the square of the log-sum-exp;
    `inplace` lets the gradient be written into the logits' memory, whose values are gone then. On CUDA a class index out of range
    counts for nothing, unless `check_targets(True)` asks for an error. Targets may be class probabilities, of the logits' shape and dtype.

    `token_weight` and `denominator` are as in `linear_cross_entropy`: factors of the losses, and what "mean" divides their sum by. With `return_z_loss` the z-loss's
    part comes beside the loss, to be looked at: it has no gradient.

    >>> cross_entropy(torch.tensor([[0.0, 0.0], [5.0, 1.0]]), torch.tensor([0, 1]), label_smoothing=0.1)
    tensor(2.2556)
    """
    plain = size_average is None and reduce is None and type(ignore_index) is int
    if plain and not inplace and token_weight is None and denominator is None and not return_z_loss:
        loss = quick_cross_entropy(
            input, target, weight, (reduction, ignore_index, label_smoothing, zloss_scale)
        )
        if loss is not NotImplemented:
            _entropy_count.ours += 1
            quick: Tensor = loss
            return quick
    slow: Tensor = _slow_entropy(
        input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing, zloss_scale, inplace, token_weight, denominator,
        return_z_loss,
    )  # fmt: skip
    return slow


def cross_entropy_by_kernels(
    input: Any, target: Any, weight: Any, reduction: str, ignore_index: int, label_smoothing: float
) -> Any:  # fmt: skip
    """Cross entropy of plain tensors by our kernels; None where PyTorch has to compute it, or to raise its error."""
    return _by_kernels(
        input, target, weight, (reduction, ignore_index, label_smoothing, 0.0), False
    )


def quick_cross_entropy(input: Any, target: Any, weight: Any, options: tuple[Any, ...]) -> Any:
    """The loss by the fast path, or by a kernel that computes its gradient too; NotImplemented where neither serves."""
    if not may_take_fast_path(input) or _checked:
        return NotImplemented
    if input.is_cuda and may_be_ahead(input):
        loss = loss_ahead(input, target, weight, options)
        if loss is not None:
            return loss
    elif input.is_cpu and is_tracked(input):
        loss = loss_of_rows(input, target, weight, options)
        if loss is not None:
            return loss
    elif input.is_cpu and takes_weight(input, weight):
        arguments = input, target, weight if weight is None else weight.float(), *options
        loss = _ENTROPY_ALONE.fast(*arguments)
        if loss is NotImplemented:
            loss = first_loss(_ENTROPY_ALONE, arguments, weight, options)
        if loss is not NotImplemented:
            return loss
    reduction, ignore_index, label_smoothing, zloss_scale = options
    result = _LOGITS.fast(
        input, target, weight, reduction, ignore_index, label_smoothing, zloss_scale
    )
    if result is NotImplemented or not _accepted_by_torch(target, weight):
        return NotImplemented
    if weight is not None and weight.dtype is not input.dtype:
        return NotImplemented
    loss, top, rest = result
    if is_tracked(input):
        return CrossEntropy.apply(input, (loss, (target, weight), (top, rest, options)))
    return loss


def _cross_entropy(
    input: Any, target: Any, weight: Any, _: Any, ignore_index: int, __: Any, reduction: str, label_smoothing: float, zloss_scale: float,
    inplace: bool, token_weight: Any, denominator: Any, return_z_loss: bool,
) -> Any:  # fmt: skip
    """The loss, or a text that says why PyTorch has to compute it."""
    if inplace and is_memory(input) and is_tracked(input) and writes_to_leaf(input):
        raise RuntimeError("inplace: a leaf that requires grad keeps its values, got one as input, or a view of one")  # fmt: skip
    options = reduction, ignore_index, label_smoothing, zloss_scale
    if token_weight is not None or denominator is not None or return_z_loss:
        return _with_token_weights(input, target, weight, options, inplace, token_weight, denominator, return_z_loss)  # fmt: skip
    loss = _by_kernels(input, target, weight, options, inplace)
    if loss is not None:
        return loss
    if zloss_scale:
        torch_functional.cross_entropy(input, target, weight, None, ignore_index, None, reduction, label_smoothing)  # fmt: skip
        raise RuntimeError(
            "zloss_scale: the z-loss is for floating logits and class indices on the CPU or CUDA, not in forward mode; "
            f"got {input.dtype} {tuple(input.shape)} and {target.dtype} {tuple(target.shape)} on {input.device}"
        )
    floating = isinstance(target, torch.Tensor) and target.is_floating_point()
    return "class probabilities as targets" if floating else why_declined(input)


_slow_entropy = SlowPath(cross_entropy, _cross_entropy, (*_OF_CLASSES, "label_smoothing", "zloss_scale"))  # fmt: skip


def _with_token_weights(
    input: Any, target: Any, weight: Any, options: tuple[Any, ...], inplace: bool, token_weight: Any, denominator: Any, return_z_loss: bool
) -> Any:  # fmt: skip
    """Cross entropy with factors of tokens, another denominator, or the z-loss as a second result."""
    reduction, ignored, smoothing, scale = options
    if token_weight is not None and token_weight.shape != target.shape:
        raise RuntimeError(f"expected token_weight of the shape of target, {tuple(target.shape)}, got {tuple(token_weight.shape)}")  # fmt: skip
    whole = is_whole(token_weight, denominator, reduction)
    asked = options if whole else ("none", *options[1:])
    results = None
    if parallel_for(input) is None and not target.is_floating_point():
        results = _by_kernels(input, target, weight, asked, inplace, sides=True)
    if results is None:
        raise RuntimeError(
            "token_weight, denominator, return_z_loss: for floating logits and class indices on one CPU or CUDA device, not in forward mode; "
            f"got {input.dtype} {tuple(input.shape)} and {target.dtype} {tuple(target.shape)} on {input.device}"
        )
    loss, top, rest = results
    dtype, classes = loss.dtype, input.shape[min(1, input.dim() - 1)]
    if dtype in (torch.float16, torch.bfloat16) and not (whole or smoothing):
        # The 16-bit losses take the values computed in FLOAT, and keep their gradient.
        exact = exact_losses(input.detach(), target, top, rest, weight, ignored, scale)
        loss = loss.float() + (exact - loss.float()).detach()
    beside, asked_for = (target, weight, token_weight, denominator), Asked(reduction, ignored, scale, dtype)  # fmt: skip
    loss, zloss = finished(loss, (top + rest).detach() if return_z_loss else None, beside, classes, asked_for, whole)  # fmt: skip
    return (loss, zloss.detach()) if return_z_loss else loss


def _by_kernels(
    input: Any, target: Any, weight: Any, options: tuple[Any, ...], inplace: bool, sides: bool = False
) -> Any:  # fmt: skip
    """The loss, or None where our kernels do not support the arguments. With `sides`, a tuple of the loss and the two numbers of each row."""
    reduction, ignore_index, label_smoothing, zloss_scale = options
    numbers = is_index(ignore_index) and is_number(label_smoothing)
    if numbers and is_memory(target) and target.is_floating_point() and is_supported(input):
        plain = ignore_index < 0 and not zloss_scale and reduction in REDUCTIONS
        return soft_cross_entropy(input, target, weight, reduction, label_smoothing) if plain else None  # fmt: skip
    if not (numbers and 0.0 <= label_smoothing <= 1.0 and _fits(input, target, weight, reduction)):
        return None
    logits, rows, rank = input, target, input.dim()
    _check_indices(target, input.shape[1 if rank > 1 else 0], ignore_index)
    if weight is not None and weight.dtype is not input.dtype and not _are_cast(input, weight):
        return None
    wide = torch.promote_types(input.dtype, torch.float32)
    factors = weight if weight is None or weight.dtype is wide else weight.to(wide)
    # The size is compared last: while a graph is recorded, the comparison would become a guard of the graph.
    if not sides and is_cast_alone(input) and 4 * input.numel() >= LEAST:
        loss = loss_ahead(input.float(), target, factors, options)
        if loss is not None:
            return loss
    if rank == 1:
        logits, rows = input.unsqueeze(0), target.unsqueeze(0)
    elif rank > 2:
        logits, rows = _images(input, target)
    if rows.dtype is _UINT8:
        rows = rows.long()
    try:
        if needs_dispatcher():
            loss, *sums = _LOGITS.op(logits, rows, factors, *options)
        else:
            loss, *sums = _LOGITS.call(logits, rows, factors, *options)
            if is_tracked(input):
                formula = CrossEntropyOverLogits if inplace and lies_apart(logits) else CrossEntropy
                loss = formula.apply(logits, (loss, (rows, factors), (*sums, options)))
    except UnservedError:
        return None
    loss = loss.reshape(target.shape) if reduction == "none" and logits is not input else loss
    return (loss, *(side.reshape(target.shape) for side in sums)) if sides else loss


def _are_cast(*tensors: Tensor) -> bool:
    """Whether autocast converts these to one dtype."""
    device = tensors[0].device.type
    narrow = all(tensor.dtype is not torch.float64 for tensor in tensors)
    return narrow and device in ("cpu", "cuda") and torch.is_autocast_enabled(device)


# A GPU thread computes a pixel or two and loops over all classes, so that few pixels of many classes would take long.
_FEW_PIXELS, _MANY_CLASSES = 1 << 16, 256


def _images(input: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and targets of images in a form that kernels take, without a copy where possible: as rows if classes lie last in memory, or with at most three
    axes of positions, which kernels that add up targets on a GPU take."""
    last = input.movedim(1, -1)
    few = input.is_cuda and input.shape[1] > _MANY_CLASSES and target.numel() < _FEW_PIXELS
    if few or last.is_contiguous():
        return last.reshape(-1, input.shape[1]), target.reshape(-1)
    if input.is_contiguous() and (input.dim() < 5 or target.is_contiguous()):
        return input, target
    return input.flatten(2), target.flatten(1)


_INT64, _UINT8 = torch.int64, torch.uint8


def are_indices(target: Any) -> bool:
    """Whether PyTorch takes class indices of this dtype: int64, and uint8 for rows alone."""
    dtype = target.dtype
    return dtype is _INT64 or (dtype is _UINT8 and target.dim() < 2)


def _accepted_by_torch(target: Any, weight: Any) -> bool:
    """Whether PyTorch, too, takes tensors that the fast path took: class indices of its dtypes, and weights that require no gradient."""
    return are_indices(target) and (weight is None or not weight.requires_grad)


def _fits(input: Any, target: Any, weight: Any, reduction: str) -> bool:
    """Whether our kernels take these shapes, dtypes and devices."""
    if not (is_supported(input) and is_memory(target) and (weight is None or is_memory(weight))):
        return False
    if not (are_indices(target) and target.device == input.device):
        return False
    shape = input.shape
    rank = len(shape)
    if rank == 2:
        fits = target.dim() == 1 and target.shape[0] == shape[0] and shape[1] > 0
    elif rank > 2:
        fits = target.shape == shape[:1] + shape[2:] and input.numel() > 0
    else:
        fits = rank == 1 and target.dim() == 0 and shape[0] > 0
    if weight is not None and fits:
        fits = weight.shape == (shape[1 if rank > 1 else 0],) and weight.device == input.device
        fits = fits and weight.dtype in FLOATS
        fits = fits and not is_tracked(weight)  # PyTorch raises: weights have no gradient
    return fits and reduction in REDUCTIONS


_checked = False


def check_targets(check: bool) -> None:
    """Whether class indices on CUDA are compared with the number of classes, which waits for the device.

    On the CPU they always are; on CUDA one out of range counts for nothing otherwise.
    """
    global _checked
    _checked = check


def _check_indices(target: Any, classes: int, ignored: int) -> None:
    """IndexError for a class index out of range on CUDA, if `check_targets` asks for it."""
    if _checked and target.is_cuda and not torch.compiler.is_compiling():
        target = target.long()  # `ignored` may be beyond a byte
        stray = target[((target < 0) | (target >= classes)) & (target != ignored)]
        if stray.numel():
            raise IndexError(f"Target {stray.flatten()[0].item()} is out of bounds.")


_MOST_ONES = 64
_ones: dict[Any, torch.Tensor] = {}
_latest_ones: torch.Tensor | None = None  # tried first, without a look at the count of classes


def ones_for(input: torch.Tensor, fresh: bool = False) -> torch.Tensor:
    """Weights of one for each class. Calls with as many classes share a tensor, unless it must be fresh."""
    global _latest_ones
    ones = None if fresh else cached_ones(input)
    if ones is not None:
        _latest_ones = ones
        return ones
    return _new_ones(input, fresh)


def _new_ones(input: torch.Tensor, fresh: bool) -> torch.Tensor:
    classes = input.shape[1 if input.dim() > 1 else 0]
    if type(input) not in PLAIN:
        return input.new_ones(classes)  # of the subclass, whose tensors may have no memory
    if fresh or not (input.is_cpu or input.is_cuda):
        return torch.ones(classes, dtype=input.dtype, device=input.device)
    with undisturbed(), torch.inference_mode(False):
        ones = torch.ones(classes, dtype=input.dtype, device=input.device)
    if input.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            return ones  # in the graph's memory, which is not for other calls
        torch.cuda.current_stream(input.device).synchronize()  # other streams may read it next
    if len(_ones) >= _MOST_ONES:
        _ones.clear()
    _ones[classes, input.dtype, input.device] = ones
    return ones


def cached_ones(input: torch.Tensor) -> torch.Tensor | None:
    """The weights of one that calls share, if there are any for so many classes."""
    return _ones.get((input.size(1 if input.dim() > 1 else 0), input.dtype, input.device))
