"""What one process computes of cross entropy on its classes: the two numbers of a row, sums, and the gradient.

Work is float32 (float64 for float64 logits), in blocks of rows where more than a number a row is needed, so that nothing
of the logits' size is held beside the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from openaclnn.torch.parallel.place import Place, picked

__all__ = ["RowGradient", "largest", "weighted_sum"]

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
    top = logits.new_full(logits.shape[:1], -math.inf, dtype=torch.float64)
    others = torch.zeros_like(top)
    if logits.numel():
        for block in _blocks(logits):
            wide = _wide(logits[block])
            own, place = wide.max(dim=1, keepdim=True)
            powers = wide.sub_(own).exp_().scatter_(1, place, 0.0)
            top[block] = own[:, 0].double()
            others[block] = powers.sum(dim=1, dtype=torch.float64)
    return top, others


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
            self._bulk(logits, gradient)
            own = self._at_target(logits).to(gradient.dtype)
            gradient.scatter_(1, self.place.at[:, None], own[:, None])
        return gradient

    def _factor(self) -> Tensor:
        return self.nll if self.whole is None else self.nll + self.whole

    def _bulk(self, logits: Tensor, gradient: Tensor) -> None:
        """All but the target's class."""
        factor = self._factor()
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
