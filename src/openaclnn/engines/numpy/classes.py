"""NumPy kernels with a class axis. Each gets its inputs' views by name and its outputs' in order, and returns whether a
target was out of range.

They compute in float32, those from logits in float64; see the references in `operators/` for the formulas. Sums run in float64 in
NumPy's fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.interop import strided_view
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.numpy.elementwise import BLOCK, blocks, narrow

Array = np.ndarray[Any, Any]


def counted_targets(target: Array, plan: Plan) -> tuple[Array, Array, bool]:
    """Targets as int64, which of them count, and whether one is neither a class nor the ignored value."""
    indices = target.astype(np.int64)
    heeded = indices != plan.numbers["ignore_index"]
    inside = (indices >= 0) & (indices < plan.classes)
    return indices, heeded & inside, bool((heeded & ~inside).any())


def row_blocks(plan: Plan) -> Iterator[tuple[int | slice, ...]]:
    """Index tuples of some positions with all their classes: one line of positions after another."""
    step = max(1, BLOCK // plan.classes)
    for line in np.ndindex(plan.shape[:-1]):
        for start in range(0, plan.shape[-1], step):
            yield (*line, slice(start, start + step))


def per_position(values: Array, plan: Plan) -> Array:
    """One value for each position, where there may be one for all of them."""
    return np.broadcast_to(values, plan.shape)


def weight_of_targets(weights: Array, target: Array, plan: Plan) -> np.float32:
    """The sum of the counted targets' weights."""
    total = 0.0
    for index in blocks(plan.shape):
        indices, counted, _ = counted_targets(target[index], plan)
        total += float(weights[indices[counted]].sum(dtype=np.float64))
    return np.float32(total)


def nll_loss2d_backward(plan: Plan, views: Mapping[str, Array], output: Array) -> bool:
    target, gradient = views["target"], per_position(views["gradOutput"], plan)
    weights = views["weight"].astype(np.float32)
    divisor: Any = None
    if plan.numbers["mean"]:
        if plan.numbers["total_weight_given"]:
            divisor = views["totalWeight"].astype(np.float32)
        else:
            divisor = weight_of_targets(weights, target, plan)
    output[...] = 0
    stray = False
    for index in blocks(plan.shape):
        indices, counted, out_of_range = counted_targets(target[index], plan)
        stray |= out_of_range
        factor = gradient[index].astype(np.float32)
        if divisor is not None:
            factor = factor / divisor
        values = -(factor[counted] * weights[indices[counted]])
        output[index][(*np.nonzero(counted), indices[counted])] = narrow(
            values, plan.compute, plan.output.dtype
        )
    return stray


def nll_loss(plan: Plan, views: Mapping[str, Array], *outputs: Array) -> bool:
    """The loss of each position or their sum or mean, and the sum of the counted targets' weights."""
    target, values = views["target"], views["self"]
    weights = views["weight"].astype(np.float64)
    losses, total_weight = outputs
    total = total_of_weights = np.float64(0)
    stray = False
    for index in blocks(plan.shape):
        indices, counted, out_of_range = counted_targets(target[index], plan)
        stray |= out_of_range
        weight_of_target = weights[indices[counted]]
        picked = values[index][(*np.nonzero(counted), indices[counted])].astype(np.float64)
        products = -(weight_of_target * picked)
        total_of_weights = total_of_weights + weight_of_target.sum()
        if plan.reduction:
            total = total + products.sum()
        else:
            each = np.zeros(counted.shape, np.float32)
            each[counted] = products
            losses[index] = narrow(each, plan.compute, plan.output.dtype)
    if plan.reduction:
        total = total / total_of_weights if plan.reduction == "mean" else total
        losses[...] = narrow(np.asarray(total, np.float32), plan.compute, plan.output.dtype)
    rounded = np.asarray(total_of_weights, np.float32)
    total_weight[...] = narrow(rounded, plan.compute, plan.more[0].dtype)
    return stray


def times_all(smooth: Array, weights: Array, weight_sum: Any) -> Array:
    """The sum of smooth * weight over all classes, of which each term may be infinite, or NaN."""
    infinite = (np.float64(np.inf) * weights).sum()
    return np.asarray(np.where(np.isinf(smooth), smooth * infinite, smooth * weight_sum))


def cross_entropy_loss_grad(plan: Plan, views: Mapping[str, Array], output: Array) -> bool:
    numbers = plan.numbers
    target, log_prob = views["target"], views["logProb"]
    gradients = per_position(views["gradLoss"], plan)
    smoothing = np.float32(numbers["label_smoothing"])
    if numbers["weighted"]:
        weights = views["weightOptional"].astype(np.float32)
    else:
        weights = np.ones(plan.classes, np.float32)
    weight_sum = weights.sum(dtype=np.float64)  # as FLOAT it may be infinite, and 0 times it NaN
    total = rows_counted = np.float32(1)
    if numbers["mean"]:
        total = weight_of_targets(weights, target, plan)
        rows_counted = np.float32(
            sum(int(counted_targets(target[index], plan)[1].sum()) for index in blocks(plan.shape))
        )
    stray = False
    for index in row_blocks(plan):
        indices, counted, out_of_range = counted_targets(target[index], plan)
        stray |= out_of_range
        mask = counted.astype(np.float32)
        gradient = gradients[index].astype(np.float32)
        target_weight = np.where(counted, weights[np.where(counted, indices, 0)], np.float32(0))
        nll = gradient * (np.float32(1) - smoothing) / total * mask * target_weight
        # Without smoothing this is 0, or NaN where the gradient or the total makes it so, as in the formula.
        smooth = gradient / total * smoothing / np.float32(plan.classes) * mask
        spread = times_all(smooth.astype(np.float64), weights, weight_sum).astype(np.float32)
        others, infinite = spread, nll * np.inf + spread * np.inf
        if numbers["zloss_scale"]:
            zloss = gradient
            if numbers["grad_zloss_given"]:
                of_zloss = per_position(views["gradZlossOptional"], plan)
                zloss = zloss + of_zloss[index].astype(np.float32)
            lse = views["lseForZlossOptional"][index].astype(np.float32)
            scale = np.float32(2 * numbers["zloss_scale"])
            more = scale * lse * mask * (zloss / rows_counted)
            others, infinite = others + more, infinite + more * np.inf
        values = log_prob[index].astype(np.float32)
        # Where exp is infinite in float64 too, each of a row's terms is multiplied by that, not their sum.
        beyond = values > 709.78
        hits = np.nonzero(counted)[0], indices[counted]
        # p - 1 at the target loses digits as p nears 1, so that one element is made in float64, and by expm1.
        hit, own_nll = values[hits].astype(np.float64), nll[counted].astype(np.float64)
        exact = np.expm1(hit) * own_nll + (own_nll - own_nll)  # NaN where nll is infinite
        exact += np.exp(hit) * others[counted].astype(np.float64)
        exact = np.where(beyond[hits], infinite[counted] - own_nll, exact)
        np.exp(values, out=values)
        values *= (nll + others)[:, None]
        np.copyto(values, infinite[:, None], where=beyond)
        if smoothing != 0:
            values -= smooth[:, None] * weights
            exact -= smooth[counted].astype(np.float64) * weights[indices[counted]]
        values[hits] = exact.astype(np.float32)
        output[index] = narrow(values, plan.compute, plan.output.dtype)
    return stray


def _weights(plan: Plan, views: Mapping[str, Array]) -> Array:
    if plan.numbers["weighted"]:
        return views["weightOptional"].astype(np.float64)
    return np.ones(plan.classes)


def cross_entropy_loss(plan: Plan, views: Mapping[str, Array], *outputs: Array) -> bool:
    """The loss of each row or their sum or mean, log-probabilities; and the z-loss and log-sum-exp, where asked for."""
    numbers, target, values = plan.numbers, views["target"], views["input"]
    smoothing, scale = np.float64(numbers["label_smoothing"]), np.float64(numbers["zloss_scale"])
    weights = _weights(plan, views)
    # Sums over rows: of the two parts of the loss, of the z-loss; of weights, of rows.
    totals, stray = np.zeros(5), False
    dtypes = [operand.dtype for operand in plan.outputs]
    for index in row_blocks(plan):
        indices, counted, out_of_range = counted_targets(target[index], plan)
        stray |= out_of_range
        shifted, top, rest = shifted_rows(values[index].astype(np.float64))
        log_prob, lse = shifted - rest[:, None], top + rest
        outputs[1][index] = narrow(log_prob.astype(np.float32), plan.compute, dtypes[1])
        rows, safe = np.arange(len(indices)), np.where(counted, indices, 0)
        weight_of_target = np.where(counted, weights[safe], 0.0)
        likely = np.where(counted, -(weight_of_target * log_prob[rows, safe]), 0.0)
        smooth = np.zeros(len(indices))
        if smoothing:
            smooth = np.where(counted, -(log_prob * weights).sum(axis=1), 0.0)
        zloss = np.where(counted, scale * lse * lse, 0.0) if scale else np.zeros(len(indices))
        totals += [own_sum.sum() for own_sum in (likely, smooth, zloss, weight_of_target, counted)]
        if not plan.reduction:
            loss = (1 - smoothing) * likely + smoothing / plan.classes * smooth + zloss
            outputs[0][index] = narrow(loss.astype(np.float32), plan.compute, dtypes[0])
        if numbers["return_zloss"]:
            outputs[3][index] = narrow(lse.astype(np.float32), plan.compute, dtypes[3])
            if not plan.reduction:
                outputs[2][index] = narrow(zloss.astype(np.float32), plan.compute, dtypes[2])
    if plan.reduction:
        nll, every, squares, weight, count = totals
        divisors = (weight, count) if plan.reduction == "mean" else (1.0, 1.0)
        whole = ((1 - smoothing) * nll + smoothing / plan.classes * every) / divisors[0]
        squares = squares / divisors[1]
        results = [whole + squares if scale else whole, squares]
        for number, value in enumerate(results[: 1 + bool(numbers["return_zloss"])]):
            rounded = np.asarray(value, np.float32)
            outputs[2 * number][...] = narrow(rounded, plan.compute, dtypes[2 * number])
    return stray


def shifted_rows(values: Array) -> tuple[Array, Array, Array]:
    """Rows less their largest class, that class, and what log-sum-exp is above it. The largest stays out of the sum, whose
    rest is all that tells a probability near 1 from 1."""
    rows = np.arange(len(values))
    largest = values.argmax(axis=1)
    top = values[rows, largest]
    shifted = values - top[:, None]
    powers = np.exp(shifted)
    powers[rows, largest] = 0
    return shifted, top, np.log1p(powers.sum(axis=1))


def cross_entropy_logits(
    plan: Plan, views: Mapping[str, Array], losses: Array, tops: Array, rests: Array
) -> bool:
    """The loss of each row or their sum or mean, and two numbers of each row."""
    numbers, weights = plan.numbers, _weights(plan, views)
    smoothing, scale = numbers["label_smoothing"], numbers["zloss_scale"]
    # Sums over rows: of losses, of squares; of weights, of rows.
    totals, stray = np.zeros(4), False
    for index in row_blocks(plan):
        indices, counted, out_of_range = counted_targets(views["target"][index], plan)
        stray |= out_of_range
        x = views["input"][index].astype(np.float64)
        every, safe = np.arange(len(x)), np.where(counted, indices, 0)
        shifted, top, rest = shifted_rows(x)
        rest = rest + (top - top)
        top = np.where(np.isnan(rest), rest, top)
        tops[index], rests[index] = top, rest
        weight_of_target = np.where(counted, weights[safe], 0.0)
        loss = -(weight_of_target * (shifted[every, safe] - rest))
        if smoothing:
            spread = -((shifted - rest[:, None]) * weights).sum(axis=1)
            loss = (1 - smoothing) * loss + smoothing / plan.classes * spread
        square = scale * (top + rest) ** 2 if scale else np.zeros(len(x))
        loss, square = (np.where(counted, part, 0.0) for part in (loss, square))
        totals += loss.sum(), square.sum(), weight_of_target.sum(), counted.sum()
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
        indices, counted, out_of_range = counted_targets(views["target"][index], plan)
        stray |= out_of_range
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


def multilabel_margin_loss(plan: Plan, views: Mapping[str, Array], *outputs: Array) -> bool:
    """Row by row: labels against all classes that are none."""
    losses, masks = outputs
    one = np.float32(1)
    for row in np.ndindex(plan.shape):
        target, x = views["target"][row].astype(np.int64), views["self"][row].astype(np.float32)
        listed = target[np.cumsum(target == -1) == 0]
        listed = listed[(listed >= 0) & (listed < plan.classes)]
        mask = np.zeros(plan.classes, bool)
        mask[listed] = True
        others, total = x[~mask], 0.0
        step = max(1, BLOCK // max(others.size, 1))
        for start in range(0, listed.size, step):
            margins = (one - x[listed[start : start + step]])[:, None] + others
            total += np.where(margins > 0, margins, 0).sum(dtype=np.float64)
        masks[row] = mask
        loss = np.asarray(total / plan.classes, np.float32)
        losses[row] = narrow(loss, plan.compute, plan.output.dtype)
    return False


KERNELS: dict[str, Callable[..., bool]] = {
    "cross_entropy_loss": cross_entropy_loss,
    "multilabel_margin_loss": multilabel_margin_loss,
    "nll_loss": nll_loss,
    "nll_loss2d_backward": nll_loss2d_backward,
    "nll_loss_backward": nll_loss2d_backward,
    "cross_entropy_loss_grad": cross_entropy_loss_grad,
    "cross_entropy_logits": cross_entropy_logits,
    "cross_entropy_logits_pixels": cross_entropy_logits,
    "cross_entropy_logits_grad": cross_entropy_logits_grad,
}


def view(plan: Plan, operand: Operand, address: int) -> Array:
    """An operand's elements by its role: positions, positions and classes, classes alone, or one."""
    start = address + operand.offset * operand.dtype.itemsize
    shape, strides = {
        "full": ((*plan.shape, plan.classes), (*operand.strides, operand.class_stride)),
        "positions": (plan.shape, operand.strides),
        "classes": ((plan.classes,), (operand.class_stride,)),
        "single": ((), ()),
    }[operand.role]
    return strided_view(start, operand.dtype, shape, strides)


def runner(plan: Plan) -> Callable[[Sequence[int], int], int]:
    kernel = KERNELS[plan.kernel]

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        views = {
            operand.parameter: view(plan, operand, address)
            for operand, address in zip(plan.inputs, addresses, strict=False)
        }
        with np.errstate(all="ignore"):
            places = zip(plan.outputs, addresses[len(plan.inputs) :], strict=True)
            return int(kernel(plan, views, *(view(plan, *place) for place in places)))

    return run
