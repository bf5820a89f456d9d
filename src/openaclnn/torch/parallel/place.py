"""Where the targets are: in this process's classes, in another's, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from openaclnn.torch.parallel.exchange import Extent
from openaclnn.torch.parallel.options import check_targets

__all__ = ["Place", "picked"]


@dataclass(frozen=True)
class Place:
    """Which positions count, which of their targets are classes of this process, and which; 0 for the others."""

    counted: Tensor
    owned: Tensor
    at: Tensor
    width: int

    @classmethod
    def of(cls, target: Tensor, width: int, extent: Extent, ignore_index: int) -> Place:
        target = target.long()
        counted = (target != ignore_index) & (target >= 0) & (target < extent.classes)
        check_targets(target, counted, ignore_index)
        here = target - extent.start.long()
        owned = counted & (here >= 0) & (here < width)
        return cls(counted, owned, torch.where(owned, here, 0), width)

    def owned_of(self, table: Tensor) -> Tensor:
        """The target's entry of (N, classes, ...), or of (classes,), in float64 where it is here; 0 elsewhere."""
        if self.width == 0:
            return torch.zeros_like(self.at, dtype=torch.float64)
        found = table[self.at].double() if table.ndim == 1 else picked(table, self.at)
        return torch.where(self.owned, found, 0.0)


def picked(values: Tensor, at: Tensor) -> Tensor:
    """The value of class `at` at each position, in float64."""
    return values.gather(1, at[:, None])[:, 0].double()
