"""The losses of DTensors of any placements; named and written as PyTorch's. What they return are DTensors.

What our kernels do not have (class probabilities as targets, one row alone, other dtypes, tensors of different shapes) PyTorch's
functions compute, of tensors that are gathered first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.nn import functional as torch_functional

from openaclnn.core.declare import Operator
from openaclnn.core.interface import Parameter
from openaclnn.operators import registry
from openaclnn.operators.logits import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from openaclnn.torch.dispatch import FLOATS
from openaclnn.torch.parallel.collectives import Groups, Options, check_classes
from openaclnn.torch.parallel.cross_entropy import cross_entropy_of_positions
from openaclnn.torch.parallel.groups import difference_of_elements, nll_of_positions
from openaclnn.torch.private import remember_options, uncompiled
from openaclnn.torch.schema import arguments_of, name_of


@uncompiled
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    zloss_scale: float = 0.0,
) -> Tensor:
    """Cross entropy of logits (N, C, ...) sharded over the batch, the classes (one mesh dimension at most), or both.

    `target` and `weight` are DTensors of any placements, or plain tensors that are the same in every process.
    """
    options = Options(reduction, ignore_index, label_smoothing, zloss_scale)
    if target.is_floating_point() or input.ndim < 2:
        if zloss_scale:
            raise TypeError(
                f"zloss_scale: expected class indices and logits (N, C, ...), got a target of {target.dtype} "
                f"and logits of shape {tuple(input.shape)}"
            )
        return _by_pytorch(
            torch_functional.cross_entropy, input, target, weight,
            ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing,
        )  # fmt: skip
    return _of_classes(cross_entropy_of_positions, input, target, weight, options)


@uncompiled
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of log-probabilities (N, C, ...) sharded over the batch, the classes, or both."""
    options = Options(reduction, ignore_index)
    if input.ndim < 2:
        return _by_pytorch(
            torch_functional.nll_loss, input, target, weight,
            ignore_index=ignore_index, reduction=reduction,
        )  # fmt: skip
    return _of_classes(nll_of_positions, input, target, weight, options)


@uncompiled
def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Absolute error of a tensor sharded over any axes."""
    return _of_pair("l1_loss", input, target, reduction)


@uncompiled
def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Smooth absolute error of a tensor sharded over any axes."""
    return _of_pair("smooth_l1_loss", input, target, reduction, beta=beta)


def _of_classes(
    loss: Callable[[Tensor, Tensor, Tensor | None, Options, Groups], Tensor],
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: Options,
) -> Tensor:
    layout = Layout.of(input, class_axis=1)
    check_classes(input, target, weight)
    if weight is not None:
        weight = layout.local("weight", weight, layout.of_weights)
    value = loss(
        layout.local("input", input, layout.of_input),
        layout.local("target", target, layout.of_positions),
        weight,
        options,
        layout.groups,
    )
    return layout.whole(value, target.shape, options.reduction == "none")


def _of_pair(name: str, input: Tensor, target: Tensor, reduction: str, **beta: float) -> Tensor:
    same = input.dtype is target.dtype and input.shape == target.shape
    if not same or input.dtype not in FLOATS:
        function = getattr(torch_functional, name)
        return _by_pytorch(function, input, target, reduction=reduction, **beta)
    layout = Layout.of(input, class_axis=None)
    value = difference_of_elements(
        name,
        layout.local("input", input, layout.of_input),
        layout.local("target", target, layout.of_input),
        reduction,
        layout.groups,
        *beta.values(),
    )
    return layout.whole(value, input.shape, reduction == "none")


def _by_pytorch(
    function: Callable[..., Any], input: Tensor, *tensors: Tensor | None, **options: Any
) -> Tensor:
    """PyTorch's own function, which takes DTensors alone, on whole tensors: of parts of several lengths it averages means."""
    mesh = _mesh_of(input)
    everywhere = [Replicate()] * mesh.ndim
    gathered = [
        None if tensor is None else _on_mesh(mesh, tensor).redistribute(mesh, everywhere)
        for tensor in (input, *tensors)
    ]
    loss: Tensor = function(*gathered, **options)
    return loss


# Placements: which of a DTensor's axes are sharded over which processes, and what that makes of the tensors beside it.


def _mesh_of(input: Tensor) -> DeviceMesh:
    if not isinstance(input, DTensor):
        raise TypeError(
            f"input is a {type(input).__name__}, expected a DTensor; plain tensors are served by openaclnn.torch.functional, "
            "and parts of one by the functions that take a group"
        )
    return input.device_mesh


def _on_mesh(mesh: DeviceMesh, tensor: Tensor) -> DTensor:
    """A tensor that is the same in every process, as a DTensor; one that is a DTensor as it is."""
    if isinstance(tensor, DTensor):
        return tensor
    return DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _sharded_axis(placement: Placement, index: int, rank: int) -> int | None:
    if type(placement) is Replicate:
        return None
    if type(placement) is Shard:
        return placement.dim % rank
    raise NotImplementedError(
        f"input has placement {placement!r} on dimension {index} of the mesh, expected Replicate or Shard: "
        "redistribute it first"
    )


@dataclass(frozen=True)
class Layout:
    """The axis of `input` that each dimension of the mesh shards; None where all its processes have the same."""

    mesh: DeviceMesh
    axes: tuple[int | None, ...]
    class_axis: int | None

    @classmethod
    def of(cls, input: Tensor, class_axis: int | None) -> Layout:
        mesh = _mesh_of(input)
        placements: Sequence[Placement] = input.placements  # type: ignore[attr-defined]
        axes = tuple(
            _sharded_axis(placement, index, input.ndim)
            for index, placement in enumerate(placements)
        )
        if class_axis is not None and axes.count(class_axis) > 1:
            raise NotImplementedError(
                f"input has placements {placements}: classes may be divided by one dimension of the mesh only"
            )
        return cls(mesh, axes, class_axis)

    @property
    def groups(self) -> Groups:
        sharded = [
            (axis, self.mesh.get_group(index))
            for index, axis in enumerate(self.axes)
            if axis is not None
        ]
        return Groups(
            next((group for axis, group in sharded if axis == self.class_axis), None),
            tuple(group for axis, group in sharded if axis != self.class_axis),
        )

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
        return [Shard(0) if axis == self.class_axis else Replicate() for axis in self.axes]

    def local(self, name: str, tensor: Tensor, placements: Sequence[Placement]) -> Tensor:
        """This process's part of a tensor, redistributed to `placements` first. A plain one is the same in all processes."""
        placed = _on_mesh(self.mesh, tensor)
        if placed.device_mesh != self.mesh:
            raise ValueError(f"{name} lies on another mesh than input")
        if list(placed.placements) != list(placements):
            placed = placed.redistribute(self.mesh, placements)
        local: Tensor = _Local.apply(placed)  # type: ignore[no-untyped-call]
        # What an asynchronous collective still writes is a class of its own, which can be waited for.
        wait: Callable[[], Tensor] | None = getattr(local, "wait", None)
        return local if wait is None else wait()

    def whole(self, loss: Tensor, shape: Sequence[int], each: bool) -> Tensor:
        """The loss of all as a DTensor: one at each position, of `shape`, or a number."""
        shape = torch.Size(shape if each else ())
        placements = tuple(self.of_positions if each else [Replicate()] * self.mesh.ndim)
        strides = torch.empty(shape, device="meta").stride()
        whole: Tensor = _Whole.apply(  # type: ignore[no-untyped-call]
            loss.contiguous(), self.mesh, placements, shape, strides
        )
        return whole


class _Local(torch.autograd.Function):
    """A DTensor's local part.

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
    """The DTensor whose local part this is: the other way round."""

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


# Sharding rules of `torch.ops.openaclnn`: what the operators may do with the parts of DTensors, from their declarations.
#
# Elements and rows know nothing of each other, so any part of them is served where it lies; what adds them up gives partial
# sums. A mean over parts is not the mean: its tensors are gathered first, and the functions above are for that.


Rule = tuple[list[Placement], list[Placement]]
ELSE_ONE = ", else "  # in the words on a shape: with a reduction it is one element


def register_rules() -> list[str]:
    """Give PyTorch the rules of all operators that are among its own; their names."""
    names = []
    for operator in (*registry(), CROSS_ENTROPY, CROSS_ENTROPY_GRAD):
        packet = getattr(torch.ops.openaclnn, operator.python_name, None)
        if packet is not None and not operator.output.in_place:
            _register(packet.default, operator)
            names.append(operator.python_name)
    return names


def _register(overload: Any, operator: Operator) -> None:
    parameters = arguments_of(operator)
    first = next((n for n, p in enumerate(parameters) if not p.is_tensor), len(parameters))
    if remember_options(overload, first) or not any(p.choices for p in parameters):
        register_sharding(overload)(partial(_rules, operator, parameters))
        remember_options(overload, first)  # which registering overwrites


def _rules(
    operator: Operator, parameters: Sequence[Parameter], *arguments: Any, **named: Any
) -> list[Rule]:
    """What PyTorch may choose from, for one dimension of a mesh: nothing divided, or one axis of all."""
    called = {name_of(p): p for p in parameters}
    values = dict(zip(called, arguments, strict=False)) | named
    tensors = [
        (called[n], value)
        for n, value in values.items()
        if called[n].is_tensor and value is not None
    ]
    choice = next((n for n, p in called.items() if p.choices), None)
    reduction = "none" if choice is None else values.get(choice, called[choice].default)
    rules: list[Rule] = [([Replicate()] * len(operator.outputs), [Replicate()] * len(tensors))]
    # A gradient that is told the total weight needs nothing else of other rows.
    if reduction == "mean" and values.get("total_weight") is None:
        return rules
    if any(_has_rows(p) for p, _ in tensors):
        return rules + _of_rows(operator, tensors, reduction)
    along = operator.axis
    axis = None if along is None else values.get(along.python_name, along.default)
    return rules + _of_elements(operator, [tensor.shape for _, tensor in tensors], reduction, axis)


def _has_rows(parameter: Parameter) -> bool:
    return parameter.shape.startswith("(N")


def _of_rows(
    operator: Operator, tensors: list[tuple[Parameter, Any]], reduction: str
) -> list[Rule]:
    """The first axis divided of all that has rows."""

    def placed(parameter: Parameter, one: Placement) -> Placement:
        if _has_rows(parameter):
            return one if ELSE_ONE in parameter.shape and reduction != "none" else Shard(0)
        return Shard(0) if parameter.shape == "same as self" else one

    single = any(tensor.ndim < 2 for p, tensor in tensors if p.shape.startswith("(N, C)"))
    if single:
        return []
    outputs = [placed(p, Partial()) for p in operator.outputs]
    return [(outputs, [placed(p, Replicate()) for p, _ in tensors])]


def _of_elements(
    operator: Operator, shapes: Sequence[Sequence[int]], reduction: str, rows: int | None
) -> list[Rule]:
    """Any axis divided but that of rows, where a tensor has it and is not stretched along it."""
    whole = shapes[0] if rows is not None else torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    reduced = ELSE_ONE in operator.output.shape and reduction != "none"
    rules: list[Rule] = []
    for axis in range(len(whole)):
        if rows is not None and axis == rows % len(whole):
            continue
        inputs: list[Placement] = []
        for shape in shapes:
            aligned = axis - (len(whole) - len(shape))
            there = aligned >= 0 and shape[aligned] == whole[axis]
            inputs.append(Shard(aligned) if there else Replicate())
        result: Placement = Partial() if reduced else Shard(axis)
        rules.append(([result] * len(operator.outputs), inputs))
    return rules
