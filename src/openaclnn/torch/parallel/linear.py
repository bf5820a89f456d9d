"""Cross entropy of a linear layer whose classes, the rows of its weight, are sharded over processes: without the logits, chunk by chunk.

A process holds logits of its classes of two chunks of rows. While the largest logits of a chunk are exchanged, the gradients of the one before are
computed; while its sums are, the next chunk's product. The weights' gradient stays in its process; that of the input is added up over them, chunk by
chunk, in FLOAT. What this does not serve is computed from the logits of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, ReduceOp
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn import functional as torch_functional

from openaclnn.torch.dispatch import is_memory
from openaclnn.torch.linear import (
    MOST_ROWS,
    PARTS,
    SINGLES,
    Computed,
    Layer,
    Tensors,
    as_autocast,
    by_chunks,
    capped,
    check_shapes,
    in_shape,
    input_gradient,
    with_z_loss,
    without_autocast,
)
from openaclnn.torch.parallel.collectives import (
    ClassRange,
    Groups,
    Options,
    Targets,
    begun,
    local_weights,
    loss_dtype,
    max_over_classes,
    shared_by,
    sum_over,
    sum_together,
    summed_by,
    sums_begun,
)
from openaclnn.torch.parallel.cross_entropy import (
    Factors,
    RowStatistics,
    cross_entropy_of_positions,
    gradient_into,
    local_largest,
    local_sums,
    losses_of,
    statistics_of,
)
from openaclnn.torch.parallel.dtensors import Layout
from openaclnn.torch.parallel.groups import known_group
from openaclnn.torch.private import uncompiled


@uncompiled
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    group: ProcessGroup | None = None,
    data_group: ProcessGroup | None = None,
    averaged: bool = False,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    zloss_scale: float = 0.0,
    softcap: float = 0.0,
    token_weight: Tensor | None = None,
    denominator: Tensor | float | None = None,
    memory: int | None = None,
    accumulate: torch.dtype | None = None,
    return_z_loss: bool = False,
) -> Any:
    """`functional.linear_cross_entropy` of a weight of which each process of `group` has the next classes.

    `linear_weight` (classes of this process, features) and `linear_bias` are parts, in the order of ranks, of any number of classes; or
    `linear_weight` is a DTensor, sharded along its first axis. `input` and `target` are the same in all processes of the group, and so are the loss and the
    gradient of the input. `weight` is that of the process's classes or of all. Where processes of a `data_group` have other rows, a mean or sum is that of all of
    them; `averaged` is as in `batch_parallel_cross_entropy`. `memory` is what a process's logits may take at a time. `accumulate=input.dtype` saves half of what
    is exchanged for the gradient of 16-bit inputs, and what the weights' sums take.
    """
    options = Options(reduction, ignore_index, label_smoothing, zloss_scale)
    check_shapes(input, linear_weight, target, linear_bias, token_weight, None, memory)
    if linear_weight.dim() != 2 or target.is_floating_point() or target.shape != input.shape[:-1]:
        raise ValueError(
            f"expected a weight (classes, features), and class indices of shape {tuple(input.shape[:-1])}, that of input's rows; "
            f"got a weight of shape {tuple(linear_weight.shape)} and a target of {target.dtype}, shape {tuple(target.shape)}"
        )
    tensors = Tensors(input, linear_weight, linear_bias, target, weight, token_weight, denominator)
    asked = {"softcap": softcap, "memory": memory or 0, "accumulated": accumulate in (None, torch.float32)}  # fmt: skip
    if isinstance(linear_weight, DTensor):
        if group is not None or data_group is not None:
            raise ValueError("group and data_group: a DTensor's mesh says them")
        layout = _layout_of(input, linear_weight)
        local = _local_parts(layout, tensors)
        loss, zloss = (
            part if part is None else layout.whole(part, target.shape, reduction == "none")
            for part in _loss(local, _Asked(options, layout.groups, **asked))  # type: ignore[arg-type]
        )
        return with_z_loss(loss, zloss) if return_z_loss else loss
    rows = () if data_group is None else (data_group,)
    groups = Groups(known_group(group), rows, averaged)
    loss, zloss = _loss(tensors, _Asked(options, groups, **asked))  # type: ignore[arg-type]
    return with_z_loss(loss, zloss) if return_z_loss else loss


# DTensors.


def _layout_of(input: Tensor, linear_weight: DTensor) -> Layout:
    """Of logits, which nobody has: as the weight's placements divide classes, and the input's rows where those are whole."""
    mesh, classes = linear_weight.device_mesh, input.dim() - 1
    of_rows = list(input.placements) if isinstance(input, DTensor) else [Replicate()] * mesh.ndim
    axes: list[int | None] = []
    for index, (placement, row) in enumerate(zip(linear_weight.placements, of_rows, strict=True)):
        if type(placement) not in (Shard, Replicate) or placement.is_shard(1):
            raise NotImplementedError(
                f"linear_weight has placement {placement!r} on dimension {index} of the mesh, expected Replicate or Shard(0): redistribute it first"
            )
        if placement.is_shard():
            axes.append(classes)
        elif type(row) is Shard and row.dim % input.dim() != classes:
            axes.append(row.dim % input.dim())
        else:
            axes.append(None)
    if axes.count(classes) > 1:
        raise NotImplementedError(
            f"linear_weight has placements {linear_weight.placements}: classes may be divided by one dimension of the mesh only"
        )
    return Layout(mesh, tuple(axes), classes)


def _local_parts(layout: Layout, tensors: Tensors) -> Tensors:
    """Parts of this process. Parts of the weight that several processes have for other rows have gradients that are added up."""

    def local(name: str, tensor: Any, placements: Any) -> Any:
        return tensor if tensor is None else layout.local(name, tensor, placements)

    rows, columns = layout.of_positions, layout.of_weights
    sharing = list(layout.groups.rows)
    matrix, bias = (
        tensor if tensor is None or not sharing else shared_by(sharing, tensor)
        for tensor in (local("linear_weight", tensors.linear_weight, columns), local("linear_bias", tensors.bias, columns))
    )  # fmt: skip
    return Tensors(
        local("input", tensors.input, rows), matrix, bias, local("target", tensors.target, rows), local("weight", tensors.weight, columns),
        local("token_weight", tensors.token_weight, rows), tensors.denominator,
    )  # fmt: skip


# Parts of one process.


@dataclass(frozen=True)
class _Asked:
    """What does not depend on data."""

    options: Options
    groups: Groups
    softcap: float
    memory: int
    accumulated: bool
    dtype: torch.dtype = torch.float32  # the loss's

    @property
    def reduction(self) -> str:
        return self.options.reduction

    def chunks(self, tensors: Tensors, gradient: Any, wanted: Sequence[bool]) -> Computed:
        return _chunks(tensors, gradient, wanted, self)

    def composed(self, tensors: Tensors) -> Any:
        return _composed(tensors, self)


def _loss(tensors: Tensors, asked: _Asked) -> tuple[Any, Any]:
    input = tensors.input
    asked = replace(asked, dtype=loss_dtype(input))
    narrow, matrix, bias = as_autocast(*tensors[:3])
    tensors = tensors._replace(input=narrow, linear_weight=matrix, bias=bias)
    if isinstance(tensors.denominator, (int, float)):
        tensors = tensors._replace(denominator=torch.full((), float(tensors.denominator), device=input.device))  # fmt: skip
    by_row = None if tensors.token_weight is None else tensors.token_weight.reshape(-1)
    flat = tensors._replace(
        input=tensors.input.reshape(-1, input.shape[-1]), target=tensors.target.reshape(-1), token_weight=by_row
    )  # fmt: skip
    with without_autocast(input):
        loss, zloss = by_chunks(flat, asked) if _is_served(flat) else _composed(flat, asked)
    return in_shape(loss, zloss, tensors.target, asked.reduction)


def _is_served(flat: Tensors) -> bool:
    """By nothing that one process has and another has not, but for the lengths of parts: all must go one way."""
    input, linear_weight, bias = flat[:3]
    present = [tensor for tensor in flat if tensor is not None]
    learnt = [tensor for tensor in flat[4:] if tensor is not None and tensor.requires_grad]
    return (
        all(is_memory(tensor) for tensor in present)
        and input.dtype in SINGLES
        and all(tensor is None or tensor.dtype is input.dtype for tensor in (linear_weight, bias))
        and not learnt
    )


class _Divisors(NamedTuple):
    """What a mean's losses are divided by, and its z-losses; None where there is no mean."""

    weight: Any = None
    count: Any = None


def _divisors(targets: Targets, weight: Any, token_weight: Any, denominator: Any, asked: _Asked) -> _Divisors:  # fmt: skip
    """Of all rows of the data groups."""
    if asked.reduction != "mean":
        return _Divisors()
    if denominator is not None:
        return _Divisors(denominator.double(), denominator.double())
    shares = targets.counted.double()
    if weight is not None:
        (shares,) = sum_together([targets.local_of(weight)], asked.groups.classes)
    if token_weight is not None:
        shares = shares * token_weight.double()
    by_weight, by_count = sum_over(asked.groups.rows, [shares.sum(), targets.counted.double().sum()])  # fmt: skip
    return _Divisors(by_weight, by_weight if token_weight is not None else by_count)


def _chunks(tensors: Tensors, gradient: Any, wanted: Sequence[bool], asked: _Asked) -> Computed:
    """The loss, and the gradients that are wanted of input, weights and bias: of the loss itself, or, with a number for each row, of their losses."""
    input, linear_weight, bias, target, weight, token_weight, denominator = tensors
    options, groups, (rows, width) = asked.options, asked.groups, (len(input), len(linear_weight))
    no_rows = input.new_zeros(0, dtype=torch.float64)
    _, classes = max_over_classes(no_rows, width, groups.classes)
    targets = Targets.of(target, width, classes, options.ignore_index)
    weight = None if weight is None else local_weights(weight, width, classes)
    divisors = _divisors(targets, weight, token_weight, denominator, asked)
    # The same in all processes, whichever has most classes or learns nothing.
    step = min(-(-rows // PARTS), MOST_ROWS)
    if asked.memory:  # for two chunks, and as many before the soft cap
        held = 4 if asked.softcap else 2
        step = max(1, asked.memory // (held * max(1, int(classes.widest)) * input.dtype.itemsize))
    layer = Layer(input, linear_weight, bias, wanted, asked.softcap, 0, step, asked.accumulated, ahead=1)  # fmt: skip
    shares = input.new_ones(rows, dtype=torch.float64) if gradient is None else gradient.double()
    if token_weight is not None:
        shares = shares * token_weight.double()
    scale = None  # of sums
    if asked.reduction != "none":
        scale = torch.as_tensor(groups.gradient_factor, device=input.device)
        if divisors.weight is not None:
            scale = scale / divisors.weight
        # FLOAT's digits bear it; sums of 16 bits are scaled before they are rounded.
        if not layer.short:
            shares, scale = shares * scale, None
    square = 2.0 * options.zloss_scale
    if options.zloss_scale and divisors.weight is not None:
        square = square * divisors.weight / divisors.count
    pipeline = _Pipeline(layer, asked, classes, targets, weight, shares, square, scale)
    if not rows:  # other processes have some
        layer.of_weight = torch.zeros_like(linear_weight) if wanted[1] else None
        layer.of_bias = torch.zeros_like(bias) if wanted[2] else None
    for begin, end, whole in layer:
        pipeline.push(slice(begin, end), whole)
    pipeline.finish()
    losses, zlosses = pipeline.losses
    if token_weight is not None:
        losses, zlosses = losses * token_weight.double(), zlosses * token_weight.double()
    sums = layer.sums(None if scale is None else scale.float())._replace(of_input=pipeline.of_input)
    if asked.reduction != "none":
        losses, zlosses = sum_over(groups.rows, [losses.sum(), zlosses.sum()])
    if divisors.weight is not None:
        losses, zlosses = losses / divisors.weight, zlosses / divisors.count
    if not options.zloss_scale:
        return Computed(losses.to(asked.dtype), None, sums)
    return Computed((losses + zlosses).to(asked.dtype), zlosses.to(asked.dtype), sums)


class _Pipeline:
    """Chunks on their way: one whose largest logits are exchanged, one whose sums are, one whose input's gradient is."""

    def __init__(
        self, layer: Layer, asked: _Asked, classes: ClassRange, targets: Targets, weight: Tensor | None, shares: Tensor, square: Any, scale: Any
    ) -> None:  # fmt: skip
        self.layer, self.asked, self.classes, self.targets = layer, asked, classes, targets
        self.weight, self.shares, self.square, self.scale = weight, shares, square, scale
        self.group = asked.groups.classes
        self.losses = torch.empty_like(shares), torch.empty_like(shares)
        # Its chunks are added up over processes before they are written.
        self.of_input: Any = layer.of_input
        layer.of_input = None
        self.summed: Callable[[], None] = lambda: None
        self.added: Callable[[], None] = lambda: None

    def push(self, rows: slice, whole: Tensor) -> None:
        """A chunk's logits, whose product is queued."""
        logits, targets = whole[:, : self.layer.classes], self.targets.of_rows(rows)
        local = local_largest(logits, self.group)
        largest = begun(local[0].clone(), ReduceOp.MAX, self.group)
        self.summed()  # the chunk before
        top = largest()
        columns = local_sums(logits, local, top, targets, self.weight, self.asked.options)
        sums = sums_begun(columns, self.group)

        def finish() -> None:
            row = statistics_of(sums(), top, self.classes, targets, self.weight, self.asked.options)
            self._take(rows, whole, logits, row)

        self.summed = finish

    def _take(self, rows: slice, whole: Tensor, logits: Tensor, row: RowStatistics) -> None:
        options, layer = self.asked.options, self.layer
        for place, loss in zip(self.losses, losses_of(row, options), strict=True):
            place[rows] = loss
        if not any(layer.wanted):
            return
        factors = Factors(
            nll=(1.0 - options.label_smoothing) * row.target_weight,
            share=options.label_smoothing / row.classes,
            square=self.square,
        )
        gradient_into(logits, logits, self.shares[rows], row, factors, options)
        layer.take(rows.start, rows.stop, whole, layer.classes, None)
        self.added()
        self.added = lambda: None
        if self.of_input is not None:
            dtype = torch.float32 if self.asked.accumulated else whole.dtype
            product = input_gradient(whole, layer.linear_weight).to(dtype)
            added = begun(product, ReduceOp.SUM, self.group)
            self.added = lambda: self._write(rows, added())

    def _write(self, rows: slice, total: Tensor) -> None:
        self.of_input[rows] = total if self.scale is None else total * self.scale.float()

    def finish(self) -> None:
        self.summed()
        self.added()


def _composed(tensors: Tensors, asked: _Asked) -> tuple[Any, Any]:
    """The same from the logits of all rows, by operations that autograd knows."""
    loss = _of_all_logits(tensors, asked)
    if not asked.options.zloss_scale:
        return loss, None
    with torch.no_grad():
        without = replace(asked, options=replace(asked.options, zloss_scale=0.0))
        return loss, loss - _of_all_logits(tensors, without)


def _of_all_logits(tensors: Tensors, asked: _Asked) -> Any:
    input, linear_weight, bias, target, weight, token_weight, denominator = tensors
    options, groups = asked.options, asked.groups
    logits = torch_functional.linear(shared_by(groups.sharing_rows, input), linear_weight, bias)
    logits = capped(logits, asked.softcap).to(asked.dtype)
    if token_weight is None and denominator is None:
        return cross_entropy_of_positions(logits, target, weight, options, groups)
    each = replace(options, reduction="none")
    losses = cross_entropy_of_positions(logits, target, weight, each, Groups(groups.classes))
    if token_weight is not None:
        losses = losses * token_weight
    if asked.reduction == "none":
        return losses.to(asked.dtype)
    total = losses.sum(dtype=torch.float64)
    if groups.rows:
        factor = groups.gradient_factor
        total = summed_by(list(groups.rows), total * factor, factor)
    if asked.reduction == "mean":
        width = len(linear_weight)
        _, classes = max_over_classes(total.new_zeros(0), width, groups.classes)
        targets = Targets.of(target, width, classes, options.ignore_index)
        weight = None if weight is None else local_weights(weight, width, classes)
        total = total / _divisors(targets, weight, token_weight, denominator, asked).weight
    return total.to(asked.dtype)
