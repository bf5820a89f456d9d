"""Losses and ELU as functions of PyTorch's signatures, whose forward and backward are our kernels on the CPU and CUDA.

What these kernels do not have (other dtypes and devices, class probabilities as targets, weights of L1) PyTorch's own
functions compute, and what is wrong they refuse, so that its words and exception types are the user's.
"""

from __future__ import annotations

import warnings
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as torch_functional
from torch.overrides import (
    handle_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)

from openaclnn.core.interface import REDUCTIONS
from openaclnn.torch.counts import FUNCTIONS, Count
from openaclnn.torch.direct import L1, Elu, EluInPlace, SmoothL1
from openaclnn.torch.gradients import Formula
from openaclnn.torch.kernels import KERNELS, PLAIN, Kernel
from openaclnn.torch.of_classes import check_targets, cross_entropy, nll_loss
from openaclnn.torch.refusals import UnservedError, reduction_of
from openaclnn.torch.roads import (
    is_memory,
    is_number,
    is_ours,
    is_tracked,
    may_be_short,
    needs_dispatcher,
    of_a_leaf,
    parallel_for,
    why_not,
)

__all__ = ["check_targets", "cross_entropy", "elu", "l1_loss", "nll_loss", "smooth_l1_loss"]

MAX_AXES = 8

_ELU, _L1, _SMOOTH = KERNELS["elu"], KERNELS["l1_loss"], KERNELS["smooth_l1_loss"]


_elu_count, _l1_count, _smooth_count = (
    FUNCTIONS[name] for name in ("elu", "l1_loss", "smooth_l1_loss")
)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.elu` by our kernels: x where x > 0, else `alpha` * (exp(x) - 1).

    An `alpha` that is infinite or no number, and what our kernels do not have, is computed by PyTorch.

    >>> elu(torch.tensor([-1.0, 0.0, 2.0]), alpha=0.5)
    tensor([-0.3161,  0.0000,  2.0000])
    """
    if not inplace and may_be_short(input):
        made: Any = _ELU.short(input, alpha, 1.0, 1.0)
        if made is not NotImplemented and isfinite(alpha):
            _elu_count.ours += 1
            found: Tensor = Elu.apply(input, (made, alpha)) if is_tracked(input) else made
            return found
    slow: Tensor = _elu(input, alpha, inplace)
    return slow


def _elu(input: Any, alpha: float, inplace: bool) -> Any:
    if has_torch_function_unary(input):
        return handle_torch_function(elu, (input,), input, alpha=alpha, inplace=inplace)
    # The operator has a rule then; PyTorch's in place has its own.
    spread = parallel_for(input) is not None
    own = is_ours(input) and is_number(alpha) and isfinite(alpha) and input.dim() <= MAX_AXES
    if not own or (spread and inplace):
        _elu_count.decline(why_not(input))
        return torch_functional.elu(input, alpha, inplace)
    if inplace:
        return _elu_in_place(input, alpha)
    try:
        if needs_dispatcher():
            made = _ELU.op(input, alpha)
        else:
            made = _ELU.call(input, alpha, 1.0, 1.0)
            made = Elu.apply(input, (made, alpha)) if is_tracked(input) else made
    except UnservedError as error:
        _elu_count.decline(error)
        return torch_functional.elu(input, alpha)
    _elu_count.serve()
    return made


def _elu_in_place(x: Tensor, alpha: float) -> Any:
    tracked = is_tracked(x)
    # Asked for first: `is_neg`, while PyTorch compiles, would end the graph.
    strange = needs_dispatcher() or type(x) not in PLAIN or x.is_meta or x.is_neg()
    if strange or (tracked and of_a_leaf(x)):
        _elu_count.decline("in place, of a leaf or where somebody records or transforms")
        return torch_functional.elu(x, alpha, True)
    _elu_count.serve()
    if tracked:
        return EluInPlace.apply(x, alpha)
    _ELU.into(x, x, alpha, 1.0, 1.0)
    return x


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`torch.nn.functional.l1_loss` by our kernels: the mean absolute difference, with "sum" the sum, with "none" each.

    As PyTorch does, it keeps the difference for backward: `input` and `target` may be written over. With weights PyTorch computes it.

    >>> l1_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
    tensor(1.5000)
    """
    if size_average is None and reduce is None and weight is None and may_be_short(input):
        made: Any = _L1.short(input, target, reduction)
        if made is not NotImplemented and input.shape == target.shape:
            _l1_count.ours += 1
            found: Tensor = _attached(L1, made, input, target, reduction)
            return found
    slow: Tensor = _l1_loss(input, target, size_average, reduce, reduction, weight)
    return slow


def l1_by_kernels(input: Any, target: Any, reduction: str) -> Any:
    """The same of plain tensors of one shape; None where PyTorch has to compute it, or to say what is wrong."""
    if not _a_pair(input, target, reduction) or input.shape != target.shape:
        return None
    return _computed(_L1, L1, input, target, reduction)


def _l1_loss(
    input: Any, target: Any, size_average: Any, reduce: Any, reduction: str, weight: Any
) -> Any:
    if has_torch_function_variadic(input, target):
        return handle_torch_function(
            l1_loss, (input, target), input, target, size_average, reduce, reduction, weight
        )
    if weight is not None:
        _l1_count.decline("weights")
        theirs: Any = torch_functional.l1_loss
        return theirs(input, target, size_average, reduce, reduction, weight=weight)
    return _of_a_pair(_L1, L1, _l1_count, input, target, size_average, reduce, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """`torch.nn.functional.smooth_l1_loss` by our kernels: square below `beta`, absolute above; with 0 it is `l1_loss`.

    >>> smooth_l1_loss(torch.zeros(3), torch.tensor([0.5, 1.0, 2.0]), reduction="none")
    tensor([0.1250, 0.5000, 1.5000])
    """
    if size_average is None and reduce is None and may_be_short(input):
        made: Any = _SMOOTH.short(input, target, reduction, beta)
        fits = made is not NotImplemented and 0 < beta < inf
        if fits and input.shape == target.shape:
            _smooth_count.ours += 1
            found: Tensor = _attached(SmoothL1, made, input, target, reduction, beta)
            return found
    slow: Tensor = _smooth_l1_loss(input, target, size_average, reduce, reduction, beta)
    return slow


def _smooth_l1_loss(
    input: Any, target: Any, size_average: Any, reduce: Any, reduction: str, beta: float
) -> Any:
    if has_torch_function_variadic(input, target):
        return handle_torch_function(
            smooth_l1_loss, (input, target), input, target, size_average, reduce, reduction, beta
        )
    pair = input, target, size_average, reduce, reduction
    if is_number(beta) and beta == 0:  # PyTorch's word, too
        return _of_a_pair(_L1, L1, _smooth_count, *pair)
    return _of_a_pair(_SMOOTH, SmoothL1, _smooth_count, *pair, beta=beta)


def _of_a_pair(
    kernel: Kernel, formula: type[Formula], count: Count, input: Any, target: Any, size_average: Any, reduce: Any,
    reduction: str, **options: float,
) -> Any:  # fmt: skip
    """A loss between two tensors: over many devices, by our kernel, or PyTorch's."""
    if size_average is not None or reduce is not None:
        reduction = reduction_of(size_average, reduce)
    name, parallel = kernel.operator.python_name, parallel_for(input)
    if parallel is not None:
        count.serve()
        return getattr(parallel, name)(input, target, reduction=reduction, **options)
    reason: object = why_not(input)
    beta = options.get("beta", 0.0)  # PyTorch refuses a negative one
    if is_number(beta) and 0 <= beta < inf and _a_pair(input, target, reduction):
        try:
            found = _computed(kernel, formula, input, target, reduction, *options.values())
            count.serve()
            return found
        except UnservedError as error:
            reason = error
    count.decline(reason)
    return getattr(torch_functional, name)(input, target, reduction=reduction, **options)


def _computed(kernel: Kernel, formula: type[Formula], *arguments: Any) -> Any:
    if needs_dispatcher():
        return kernel.op(*arguments)
    return _attached(formula, kernel.call(*arguments), *arguments)


def _attached(formula: type[Formula], made: Any, input: Any, target: Any, *options: Any) -> Any:
    """A loss that was computed, for autograd if that wants to know."""
    if not (is_tracked(input) or is_tracked(target)):
        return made
    if formula is L1:
        return L1.apply(torch.sub(input, target), (made, options))
    return formula.apply(input, target, (made, options))


def _a_pair(input: Tensor, target: Tensor, reduction: str) -> bool:
    """Whether the kernels take these two. Other shapes than one are no good idea, which PyTorch says by a warning."""
    if not (
        is_ours(input)
        and is_memory(target)
        and target.dtype is input.dtype
        and target.device == input.device
        and reduction in REDUCTIONS
        and input.dim() <= MAX_AXES
        and target.dim() <= MAX_AXES
    ):
        return False
    if input.shape != target.shape:
        if not _broadcasts(input.shape, target.shape):
            return False
        if torch.compiler.is_compiling():
            return True  # a warning would end the graph
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). "
            "This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=5,
        )
    return True


def _broadcasts(one: Any, other: Any) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)
