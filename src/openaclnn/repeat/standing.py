"""Tensors of PyTorch's between the two phases: what holds their memory, and what tells that it is the same in phase two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from openaclnn.core.interop import Held

__all__ = ["Standing"]


class Standing(NamedTuple):
    """What phase two asks of located tensors: their storages, which stay if `.data` is replaced, and what tells whether all is as in
    phase one, and autograd that outputs are written; `given` is what it takes, first where each storage is, and had what."""

    storages: list[Any]
    announce: Callable[..., Any]
    given: tuple[Any, ...]

    def announced(self) -> bool:
        """Whether every tensor has its storage still, and that its memory, and autograd was told; else nothing was."""
        return self.announce(*self.given) is None

    def held(self) -> list[Held]:
        """The storages with what they had, for whoever looks closer."""
        words, *tensors = self.given
        return [
            Held(storage, tensor, *words[3 * place + 1 : 3 * place + 3])
            for place, (storage, tensor) in enumerate(zip(self.storages, tensors, strict=False))
        ]
