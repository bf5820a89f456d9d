"""Cross entropy from logits and its gradient in NumPy, in float64: see the references in `operators/logits.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.plan import Plan
from openaclnn.engines.numpy.classes import (
    KERNELS,
    Array,
    counted_targets,
    per_position,
    row_blocks,
    shifted_rows,
    times_all,
    weight_of_targets,
)
from openaclnn.engines.numpy.elementwise import narrow

__all__: list[str] = []


def _weights(plan: Plan, views: Mapping[str, Array]) -> Array:
    if plan.numbers["weighted"]:
        return views["weightOptional"].astype(np.float64)
    return np.ones(plan.classes)


def cross_entropy_logits(
    plan: Plan, views: Mapping[str, Array], losses: Array, tops: Array, rests: Array
) -> bool:
    """The loss of each row or their sum or mean, and two numbers of each row."""
    numbers, weights = plan.numbers, _weights(plan, views)
    smoothing, scale = numbers["label_smoothing"], numbers["zloss_scale"]
    # Sums over rows: of losses, of squares; of weights, of rows.
    totals, stray = np.zeros(4), False
    for index in row_blocks(plan):
        indices, counted, found = counted_targets(views["target"][index], plan)
        stray |= found
        x = views["input"][index].astype(np.float64)
        every, safe = np.arange(len(x)), np.where(counted, indices, 0)
        shifted, top, rest = shifted_rows(x)
        rest = rest + (top - top)
        top = np.where(np.isnan(rest), rest, top)
        tops[index], rests[index] = top, rest
        own = np.where(counted, weights[safe], 0.0)
        loss = -(own * (shifted[every, safe] - rest))
        if smoothing:
            spread = -((shifted - rest[:, None]) * weights).sum(axis=1)
            loss = (1 - smoothing) * loss + smoothing / plan.classes * spread
        square = scale * (top + rest) ** 2 if scale else np.zeros(len(x))
        loss, square = (np.where(counted, part, 0.0) for part in (loss, square))
        totals += loss.sum(), square.sum(), own.sum(), counted.sum()
        if not plan.reduction:
            both = (loss + square).astype(np.float32)
            losses[index] = narrow(both, plan.compute, plan.output.dtype)
    if plan.reduction:
        whole, squares, weight, count = totals
        if plan.reduction == "mean":
            whole, squares = whole / weight, squares / count
        rounded = np.asarray(whole + squares if scale else whole, np.float32)
        losses[...] = narrow(rounded, plan.compute, plan.output.dtype)
    return stray


def cross_entropy_logits_grad(plan: Plan, views: Mapping[str, Array], output: Array) -> bool:
    numbers, weights = plan.numbers, _weights(plan, views)
    smoothing, scale = numbers["label_smoothing"], numbers["zloss_scale"]
    total = number = np.float64(1)
    if numbers["mean"]:
        total = np.float64(weight_of_targets(weights, views["target"], plan))
        number = np.float64(weight_of_targets(np.ones(plan.classes), views["target"], plan))
    weight_sum, stray = weights.sum(), False
    for index in row_blocks(plan):
        indices, counted, found = counted_targets(views["target"][index], plan)
        stray |= found
        top, rest, gradient = (
            per_position(views[name], plan)[index].astype(np.float64)
            for name in ("top", "rest", "gradLoss")
        )
        values = views["input"][index].astype(np.float64)
        every, safe = np.arange(len(values)), np.where(counted, indices, 0)
        nll = gradient * (1 - smoothing) / total * weights[safe]
        smooth: Any = gradient / total * smoothing / plan.classes if smoothing else nll * 0
        square: Any = 2 * scale * (top + rest) * gradient / number if scale else 0.0
        values -= top[:, None]
        values -= rest[:, None]
        at_target = values[every, safe]
        exact = np.expm1(at_target) * nll + np.exp(at_target) * square
        factor = nll + square
        np.exp(values, out=values)
        if smoothing:
            spread = times_all(smooth, weights, weight_sum)
            exact += values[every, safe] * spread - smooth * weights[safe]
            values *= (factor + spread)[:, None]
            values -= smooth[:, None] * weights
        else:
            values *= factor[:, None]
        values[every, safe] = exact
        values[~counted] = 0
        output[index] = narrow(values.astype(np.float32), plan.compute, plan.output.dtype)
    return stray


KERNELS.update(
    cross_entropy_logits=cross_entropy_logits,
    cross_entropy_logits_pixels=cross_entropy_logits,
    cross_entropy_logits_grad=cross_entropy_logits_grad,
    cross_entropy_logits_grad_pixels=cross_entropy_logits_grad,
)
