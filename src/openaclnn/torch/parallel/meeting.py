"""The two exchanges of cross entropy: what a row's classes in all processes come to. No process sees a whole row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from openaclnn.torch.parallel import exchange
from openaclnn.torch.parallel.exchange import Extent
from openaclnn.torch.parallel.options import Options
from openaclnn.torch.parallel.place import Place
from openaclnn.torch.parallel.rows import largest, weighted_sum, with_empty_rows

__all__ = ["Meeting", "meet", "own_weights"]


@dataclass(frozen=True)
class Meeting:
    """A row's numbers over all classes: log_prob = (x - top) - rest; the same in every process but `place`, `weight`."""

    place: Place
    weight: Tensor | None  # of this process's classes
    classes: Tensor
    top: Tensor
    rest: Tensor
    difference: Tensor  # x - top of the target
    target_weight: Tensor
    all_weights: Tensor
    weighted: Tensor | None  # sum of weight * (x - top), for smoothing


def meet(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: Options,
    group: ProcessGroup | None,
) -> Meeting:
    """One exchange of largest logits, one of sums. Without a group all classes are here, and none is needed."""
    width = logits.shape[1]
    own_top, own_others = largest(logits)
    if group is not None:
        own_top = with_empty_rows(own_top, logits)
    top, extent = exchange.tops(own_top, width, group)
    place = Place.of(target, width, extent, options.ignore_index)
    if weight is not None:
        weight = own_weights(weight.double(), width, extent)
    columns = [
        _share(own_top, own_others, top),
        (own_top == top).double(),
        torch.where(place.owned, place.owned_of(logits) - top, 0.0),
    ]
    if options.label_smoothing:
        columns.append(weighted_sum(logits, top, weight))
    if weight is not None:
        columns += [place.owned_of(weight), weight.sum()]
    others, ties, difference, *more = exchange.sums(columns, group)
    # Each process with the largest logit left it out of its sum, but the row may leave it out once. A row without a
    # finite one has no probabilities.
    rest = (others + (ties - 1)).log1p() + (top - top)
    weighted = more.pop(0) if options.label_smoothing else None
    target_weight, all_weights = more or (torch.ones_like(top), extent.classes)
    target_weight = torch.where(place.counted, target_weight, 0.0)
    return Meeting(
        place, weight, extent.classes, top, rest, difference, target_weight, all_weights, weighted
    )


def _share(own_top: Tensor, own_others: Tensor, top: Tensor) -> Tensor:
    """What a process adds to the sum of exp(x - top), the largest class left out where it has it.

    That one is exp(0) = 1: with it, a sum of others far below 1 would be lost. Classes that are all -inf add nothing.
    """
    elsewhere = (own_top - top).exp() * (1.0 + own_others)
    share = torch.where(own_top == top, own_others, elsewhere)
    return torch.where((own_top == -torch.inf) & (top != -torch.inf), 0.0, share)


def own_weights(weight: Tensor, width: int, extent: Extent) -> Tensor:
    """This process's part of the weights, which may be that already."""
    if weight.numel() == width:
        return weight
    classes, start = int(extent.classes), int(extent.start)
    if weight.numel() != classes:
        raise ValueError(
            f"weight has {weight.numel()} elements, expected {classes}, the number of all classes, "
            f"or {width}, that of the process's own"
        )
    return weight[start : start + width]
