"""What one process computes of cross entropy on its classes: the two numbers of a row, sums, and the gradient.

Our kernels do it where they can. Smoothing (whose sums run over classes elsewhere too) and float64 take PyTorch's
operations, in blocks of rows, so that nothing of the logits' size is held beside the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from openaclnn.torch.kernels import KERNELS
from openaclnn.torch.parallel.place import Place, picked

__all__ = ["RowGradient", "largest", "weighted_sum", "with_empty_rows"]

IGNORED = -100

_forward = KERNELS["cross_entropy_logits"].plain
_backward = KERNELS["cross_entropy_logits_grad"].plain

# Elements of a block: it stays in a core's cache, and on a GPU outweighs the launches.
CPU_BLOCK, GPU_BLOCK = 2**17, 2**24


def _blocks(logits: Tensor) -> Iterator[slice]:
    rows, classes = logits.shape
    elements = CPU_BLOCK if logits.device.type == "cpu" else GPU_BLOCK
    step = max(1, elements // max(1, classes))
    return (slice(start, start + step) for start in range(0, rows, step))


def _wide(values: Tensor) -> Tensor:
    """A copy to work in."""
    work = torch.float64 if values.dtype == torch.float64 else torch.float32
    return values.to(work, copy=True)


def largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each row, and what the others add to exp(0) = 1, its own share of the sum of exp(x - top)."""
    if logits.numel() == 0:
        top = logits.new_full(logits.shape[:1], -math.inf, dtype=torch.float64)
        return top, torch.zeros_like(top)
    if logits.dtype != torch.float64:
        return _largest_by_kernel(logits)
    pairs = [_largest_of_block(logits[block]) for block in _blocks(logits)]
    tops, others = zip(*pairs, strict=True)
    return torch.cat(tops), torch.cat(others)


def _largest_by_kernel(logits: Tensor) -> tuple[Tensor, Tensor]:
    targets = torch.full(logits.shape[:1], IGNORED, device=logits.device)
    _, top, rest = _forward(logits, targets, reduction="none", ignore_index=IGNORED)
    return top.double(), rest.double().expm1()


def _largest_of_block(logits: Tensor) -> tuple[Tensor, Tensor]:
    wide = _wide(logits)
    top, place = wide.max(dim=1, keepdim=True)
    powers = wide.sub_(top).exp_().scatter_(1, place, 0.0)
    return top[:, 0].double(), powers.sum(dim=1, dtype=torch.float64)


def with_empty_rows(top: Tensor, logits: Tensor) -> Tensor:
    """`top` with -inf where a row has nothing else here: the kernel says NaN, but other processes may have more of it."""
    lost = top.isnan()
    if logits.numel() and lost.any():
        top[lost] = logits[lost].amax(dim=1).double()
    return top


def weighted_sum(logits: Tensor, top: Tensor, weight: Tensor | None) -> Tensor:
    """Sum of weight * (x - top) over the classes, row by row."""
    result = torch.zeros_like(top)
    for block in _blocks(logits):
        wide = _wide(logits[block])
        wide.sub_(top[block, None].to(wide.dtype))
        if weight is not None:
            wide.mul_(weight.to(wide.dtype))
        result[block] = wide.sum(dim=1, dtype=torch.float64)
    return result


@dataclass(frozen=True)
class RowGradient:
    """The gradient of a row: p * (nll + whole) - share * weight, and nll less at the target, in this process or not.

    `whole` is what smoothing and z-loss add to the factor of the probabilities; None where there is no such term.
    """

    top: Tensor
    rest: Tensor
    place: Place
    nll: Tensor
    whole: Tensor | None
    share: Tensor | None
    weight: Tensor | None

    def of(self, logits: Tensor) -> Tensor:
        gradient = torch.empty_like(logits)
        if logits.numel():
            factor = self.nll if self.whole is None else self.nll + self.whole
            if self.share is None and logits.dtype != torch.float64:
                self._by_kernel(logits, factor, gradient)
            else:
                self._by_blocks(logits, factor, gradient)
            own = self._at_target(logits).to(gradient.dtype)
            gradient.scatter_(1, self.place.at[:, None], own[:, None])
        return gradient

    def _by_kernel(self, logits: Tensor, factor: Tensor, gradient: Tensor) -> None:
        """All but the class `at`, which the kernel takes for the target: factor * p.

        Its factor has the dtype of the logits. With 16 bits that is too coarse for ours, whose logarithm goes into the
        exponent instead: sign * exp((x - top) - (rest - log(factor))).
        """
        rest = self.rest
        if logits.dtype != torch.float32:
            factor, rest = factor.sign(), rest - factor.abs().log()
        targets = torch.where(self.place.counted, self.place.at, IGNORED)
        _backward(
            factor.to(logits.dtype), logits, self.top.float(), rest.float(), targets,
            reduction="none", ignore_index=IGNORED, out=gradient,
        )  # fmt: skip

    def _by_blocks(self, logits: Tensor, factor: Tensor, gradient: Tensor) -> None:
        """All but the class `at`."""
        for block in _blocks(logits):
            wide = _wide(logits[block])
            work = wide.dtype
            wide.sub_(self.top[block, None].to(work)).sub_(self.rest[block, None].to(work)).exp_()
            wide.mul_(factor[block, None].to(work))
            if self.share is not None:
                share = self.share[block, None].to(work)
                wide.sub_(share if self.weight is None else share * self.weight.to(work))
            gradient[block] = wide.masked_fill_(~self.place.counted[block, None], 0.0)

    def _at_target(self, logits: Tensor) -> Tensor:
        """The value at class `at`: the target where it is here. p - 1 is expm1 there: p near 1 keeps its precision."""
        log_prob = (picked(logits, self.place.at) - self.top) - self.rest
        probability = log_prob.exp()
        value = torch.where(self.place.owned, log_prob.expm1(), probability) * self.nll
        if self.whole is not None:
            value += probability * self.whole
        if self.share is not None:
            value -= self.share if self.weight is None else self.share * self.weight[self.place.at]
        return torch.where(self.place.counted, value, 0.0)
