"""Tensors of PyTorch's between the two phases: what holds their memory, and what tells that it is the same in phase two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from openaclnn.core.interop import Held

__all__ = ["Standing"]


class Standing(NamedTuple):
    """What phase two asks of located tensors."""

    storages: list[Any]  # held, since a tensor may get another (`.data`) in between
    # `announcing.py`: is all as in phase one? then tells autograd of writes. It takes the words of each storage in phase one,
    # the operands, the outputs.
    announce: Callable[..., Any]
    given: tuple[Any, ...]

    def announced(self) -> bool:
        """Whether every tensor still has its storage, and that its memory. If so, autograd was told of the writes; if not, it was not."""
        return self.announce(*self.given) is None

    def held(self) -> list[Held]:
        """The storages with the memory that they had in phase one, for whoever looks closer."""
        words, *tensors = self.given
        return [
            Held(storage, tensor, *words[3 * place + 1 : 3 * place + 3])
            for place, (storage, tensor) in enumerate(zip(self.storages, tensors, strict=False))
        ]
