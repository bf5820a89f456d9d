"""Which of a DTensor's axes lie over which processes, and what that makes of the tensors beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from openaclnn.torch.parallel.exchange import Spread

__all__ = ["Layout", "on_mesh"]


@dataclass(frozen=True)
class Layout:
    """The axis of `input` that each dimension of the mesh divides; None where all its processes have the same."""

    mesh: DeviceMesh
    axes: tuple[int | None, ...]
    class_axis: int | None

    @staticmethod
    def mesh_of(input: Tensor) -> DeviceMesh:
        if not isinstance(input, DTensor):
            kind = type(input).__name__
            raise TypeError(
                f"input is a {kind}, expected a DTensor; plain tensors are served by openaclnn.torch.functional, "
                "and parts of one by the functions that take a group"
            )
        return input.device_mesh

    @classmethod
    def of(cls, input: Tensor, class_axis: int | None) -> Layout:
        mesh = cls.mesh_of(input)
        placements: Sequence[Placement] = input.placements  # type: ignore[attr-defined]
        axes = tuple(
            _axis(placement, index, input.ndim) for index, placement in enumerate(placements)
        )
        layout = cls(mesh, axes, class_axis)
        if class_axis is not None and axes.count(class_axis) > 1:
            raise NotImplementedError(
                f"input has placements {placements}: classes may be divided by one dimension of the mesh only"
            )
        return layout

    @property
    def spread(self) -> Spread:
        return Spread(
            next((self._group(i) for i, axis in self._divided() if axis == self.class_axis), None),
            tuple(self._group(i) for i, axis in self._divided() if axis != self.class_axis),
        )

    def _divided(self) -> list[tuple[int, int]]:
        return [(index, axis) for index, axis in enumerate(self.axes) if axis is not None]

    def _group(self, index: int) -> ProcessGroup:
        return self.mesh.get_group(index)

    @property
    def of_input(self) -> list[Placement]:
        return [Replicate() if axis is None else Shard(axis) for axis in self.axes]

    @property
    def of_positions(self) -> list[Placement]:
        """Where targets and single losses lie: they have no axis of classes."""
        if self.class_axis is None:
            return self.of_input
        return [
            Replicate() if axis in (None, self.class_axis) else Shard(axis - (axis > self.class_axis))
            for axis in self.axes
        ]  # fmt: skip

    @property
    def of_weights(self) -> list[Placement]:
        divided = [axis is not None and axis == self.class_axis for axis in self.axes]
        return [Shard(0) if own else Replicate() for own in divided]

    @property
    def of_number(self) -> list[Placement]:
        return [Replicate()] * self.mesh.ndim

    def part(self, name: str, tensor: Tensor, placements: Sequence[Placement]) -> Tensor:
        """This process's part of a tensor, moved to `placements` first. A plain one is the same in all processes."""
        placed = on_mesh(self.mesh, tensor)
        if placed.device_mesh != self.mesh:
            raise ValueError(f"{name} lies on another mesh than input")
        if list(placed.placements) != list(placements):
            placed = placed.redistribute(self.mesh, placements)
        local: Tensor = _Local.apply(placed)  # type: ignore[no-untyped-call]
        # What an exchange still writes is a class of its own, which can be waited for.
        wait: Callable[[], Tensor] | None = getattr(local, "wait", None)
        return local if wait is None else wait()

    def whole(self, loss: Tensor, shape: Sequence[int], each: bool) -> Tensor:
        """The loss of all as a DTensor: one at each position, of `shape`, or a number."""
        shape = torch.Size(shape if each else ())
        placements = tuple(self.of_positions if each else self.of_number)
        strides = torch.empty(shape, device="meta").stride()
        whole: Tensor = _Whole.apply(  # type: ignore[no-untyped-call]
            loss.contiguous(), self.mesh, placements, shape, strides
        )
        return whole


def on_mesh(mesh: DeviceMesh, tensor: Tensor) -> DTensor:
    """A tensor that is the same in every process, as a DTensor; one that is a DTensor as it is."""
    if isinstance(tensor, DTensor):
        return tensor
    return DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)


class _Local(torch.autograd.Function):
    """A DTensor's own part.

    PyTorch 2.11's `to_local` takes the strides of the whole gradient from an uneven part, and then every process gathers all of
    it to set them right. Its `from_local` and `redistribute` end the graph of a gradient that is differentiated again: a penalty
    on it vanishes.
    """

    @staticmethod
    def forward(ctx: Any, whole: DTensor) -> Tensor:
        ctx.layout = whole.device_mesh, whole.placements, whole.shape, whole.stride()
        return whole.to_local()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Whole.apply(gradient, *ctx.layout)  # type: ignore[no-untyped-call]


class _Whole(torch.autograd.Function):
    """The DTensor whose own part this is: the other way round."""

    @staticmethod
    def forward(
        ctx: Any,
        local: Tensor,
        mesh: DeviceMesh,
        placements: Sequence[Placement],
        shape: torch.Size,
        stride: tuple[int, ...],
    ) -> DTensor:
        ctx.mesh, ctx.placements = mesh, placements
        return DTensor.from_local(
            local, mesh, placements, run_check=False, shape=shape, stride=stride
        )

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple[Tensor | None, ...]:
        if list(gradient.placements) != list(ctx.placements):
            gradient = gradient.redistribute(ctx.mesh, ctx.placements)
        return _Local.apply(gradient), None, None, None, None  # type: ignore[no-untyped-call]


def _axis(placement: Placement, index: int, rank: int) -> int | None:
    if type(placement) is Replicate:
        return None
    if type(placement) is Shard:
        return placement.dim % rank
    raise NotImplementedError(
        f"input has placement {placement!r} on dimension {index} of the mesh, expected Replicate or Shard: "
        "redistribute it first"
    )
