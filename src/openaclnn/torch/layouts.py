"""Calls of a layout that was seen before, for operators that the short road of plain calls does not serve."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from openaclnn.core import results
from openaclnn.engines.dispatch import Runner

__all__ = ["Layout"]

_SMALL = 1024  # elements


class Layout:
    """What is known of a call of one layout: who runs it, where its addresses come from, what is made for it."""

    def __init__(
        self, runner: Runner, places: list[int], made: tuple[Any, ...], several: bool
    ) -> None:
        self.runner, self.places, self.several = runner, places, several
        self.index = made[0].device.index if made[0].is_cuda else -1
        self.makes = [_maker_of(own) for own in made]

    def run(self, arguments: tuple[Any, ...]) -> Any:
        """The results; None where the whole way has to say what is wrong."""
        if not all(_lies_inside(own) for own in arguments if isinstance(own, torch.Tensor)):
            return None
        made = [make() for make in self.makes]
        arrays = (*arguments, *made)
        addresses = tuple([arrays[place].data_ptr() for place in self.places])
        stream = 0 if self.index < 0 else torch._C._cuda_getCurrentRawStream(self.index)
        if 0 in addresses or self.runner(addresses, stream):
            return None
        return tuple(made) if self.several else made[0]


def _lies_inside(tensor: torch.Tensor) -> bool:
    """Whether a tensor of at least one element is inside its storage, which may have been made shorter."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    beyond = (tensor.storage_offset() + last + 1) * tensor.itemsize
    return beyond <= tensor.untyped_storage().nbytes()


def _maker_of(own: torch.Tensor) -> Callable[[], torch.Tensor]:
    """What makes a tensor like it. Another one is the quickest model; large ones are not kept for it, nor memory of CUDA graphs."""
    if own.is_cpu and own.numel() <= _SMALL:
        return partial(torch.empty_like, torch.empty_like(own))
    if own.is_cpu:
        return partial(results.empty_tensor, own.shape, own.stride(), own.dtype)
    return partial(torch.empty, own.shape, dtype=own.dtype, device=own.device)
