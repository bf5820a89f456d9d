"""NumPy kernels with a class axis. Each gets its inputs' views by name and its outputs' in order, and returns whether a target was out of range.

Losses of class indices and their gradients are their row formulas, in float64. The gradient of the negative log-likelihood writes one value a row, in FLOAT: by its
formula 4,096 rows of 1,000 classes took 20 ms where they take 2. Sums over positions run in float64 in NumPy's fixed order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import cross_entropy, likelihood
from openaclnn.engines.formulas.cross_entropy import COUNTED, LOSS, OPERANDS, SQUARE, WEIGHT
from openaclnn.engines.formulas.rows import RowFormula
from openaclnn.engines.numpy.elementwise import BLOCK, blocks, narrow
from openaclnn.engines.numpy.rows import evaluate, part_of, row_blocks, view, write_rows

Array = np.ndarray[Any, Any]
Kernel = Callable[..., bool]


def counted_targets(target: Array, plan: Plan) -> tuple[Array, Array, bool]:
    """Targets as int64, which of them count, and whether one is neither a class nor the ignored value."""
    indices = target.astype(np.int64)
    heeded = indices != plan.numbers["ignore_index"]
    inside = (indices >= 0) & (indices < plan.classes)
    return indices, heeded & inside, bool((heeded & ~inside).any())


def sums_of_targets(weights: Array, target: Array, plan: Plan) -> tuple[float, float]:
    """The sum of the counted targets' weights, and how many count."""
    total = rows_counted = 0.0
    for index in blocks(plan.shape):
        indices, counted, _ = counted_targets(target[index], plan)
        total += float(weights[indices[counted]].sum(dtype=np.float64))
        rows_counted += float(counted.sum())
    return total, rows_counted


def nll_gradient(plan: Plan, views: Mapping[str, Array], output: Array) -> bool:
    target, gradient = views["target"], np.broadcast_to(views["gradOutput"], plan.shape)
    weights, divisor = views["weight"].astype(np.float32), np.asarray(1, np.float32)
    if plan.numbers["mean"] and plan.numbers["total_weight_given"]:
        divisor = views["totalWeight"].astype(np.float32)
    elif plan.numbers["mean"]:
        divisor = np.asarray(sums_of_targets(weights, target, plan)[0], np.float32)
    output[...] = 0
    stray = False
    for index in blocks(plan.shape):
        indices, counted, out_of_range = counted_targets(target[index], plan)
        stray |= out_of_range
        factor = gradient[index][counted].astype(np.float32) / divisor
        values = narrow(-(factor * weights[indices[counted]]), plan.compute, plan.output.dtype)
        output[index][(*np.nonzero(counted), indices[counted])] = values
    return stray


def _of_targets(formula: RowFormula, rounds: bool = False) -> Kernel:
    """The kernel of a formula of class indices. What `rounds` is rounded to what is computed in before it is to an output's own dtype."""

    def kernel(plan: Plan, views: Mapping[str, Array], *outputs: Array) -> bool:
        switches = dict(cross_entropy.switches_of(formula, plan))
        singles = [operand.parameter for operand in plan.outputs if operand.role == "single"]
        written = [
            (operand, output)
            for operand, output in zip(plan.outputs, outputs, strict=True)
            if operand.role != "single"
        ]
        graph, added_up = formula.graph(switches), _ADDED_UP[formula.name] if singles else ()
        wanted = [_RESULTS[operand.parameter] for operand, _ in written]
        graph = dataclasses.replace(
            graph, results=tuple([graph.results[k] for k in (*wanted, *added_up)])
        )
        inputs = {OPERANDS[name]: each for name, each in views.items()}
        numbers, kinds = _numbers(plan, inputs), dict(formula.operands)
        compute = plan.compute if rounds else FLOAT
        whole = any(
            node.what != "input" and "c" in node.axes for node in graph.needed(graph.results)
        )
        totals, stray = np.zeros(len(added_up)), False
        for index in row_blocks(plan, plan.classes if whole else 1):
            stray |= counted_targets(inputs["target"][index], plan)[2]
            block = {name: part_of(kinds[name], each, index, plan) for name, each in inputs.items()}
            results = evaluate(graph, block, numbers, np.float64)
            for (operand, output), values in zip(written, results, strict=False):
                write_rows(output[index], values.astype(np.float32), compute, operand.dtype)
            totals += [values.sum(dtype=np.float64) for values in results[len(written) :]]
        known = _finished(formula.name, totals, plan.reduction == "mean", switches) if singles else {}  # fmt: skip
        for operand, output in zip(plan.outputs, outputs, strict=True):
            if operand.parameter in singles:
                rounded = np.asarray(known[operand.parameter], np.float32)
                output[...] = narrow(rounded, compute, operand.dtype)
        return stray

    return kernel


_LIKELIHOOD, _TOTAL = range(2)
"""The results of the negative log-likelihood's formula."""
_RESULTS = {**cross_entropy.RESULTS, "out": _LIKELIHOOD, "totalWeightOut": _TOTAL}
_ADDED_UP = {
    "cross_entropy_loss": (LOSS, SQUARE, WEIGHT, COUNTED),
    "nll_loss": (_LIKELIHOOD, _TOTAL),
}
"""What is added up over positions for an output of one element."""


def _numbers(plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """What formulas take beside operands: a plan's numbers, and sums of all weights and of all targets."""
    weights = inputs["weight"].astype(np.float64) if "weight" in inputs else np.ones(plan.classes)
    mean = plan.numbers.get("mean", False)
    total, count = sums_of_targets(weights, inputs["target"], plan) if mean else (1.0, 1.0)
    return {
        **plan.numbers, "class_count": plan.classes, "weight_sum": weights.sum(), "infinite_sum": (np.inf * weights).sum(),
        "total_weight": total, "rows_counted": count,
    }  # fmt: skip


def _finished(formula: str, sums: Array, mean: bool, switches: Mapping[str, bool]) -> Mapping[str, Any]:  # fmt: skip
    """Outputs of one element, of what was added up."""
    if formula == "nll_loss":
        total, weight = sums
        return {"out": total / weight if mean else total, "totalWeightOut": weight}
    loss, square, weight, count = sums
    if mean:
        loss, square = loss / weight, square / count
    return {"lossOut": loss + square if switches["squares"] else loss, "zlossOut": square}


def multilabel_margin_loss(plan: Plan, views: Mapping[str, Array], *outputs: Array) -> bool:
    """Row by row: labels against all classes that are none."""
    result, masks = outputs
    losses, one = np.empty(plan.shape), np.float32(1)
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
        losses[row] = total / plan.classes
    if plan.reduction:
        losses = losses.sum() / (losses.size if plan.reduction == "mean" else 1)
    result[...] = narrow(np.asarray(losses, np.float32), plan.compute, plan.output.dtype)
    return False


_loss = _of_targets(cross_entropy.cross_entropy_loss)
KERNELS: dict[str, Kernel] = {
    "cross_entropy_loss": _loss,
    "cross_entropy_logits": _loss,
    "cross_entropy_logits_pixels": _loss,
    "cross_entropy_loss_grad": _of_targets(cross_entropy.cross_entropy_loss_grad),
    "cross_entropy_logits_grad": _of_targets(cross_entropy.cross_entropy_logits_grad),
    "nll_loss": _of_targets(likelihood.nll_loss, rounds=True),
    "nll_loss_backward": nll_gradient,
    "nll_loss2d_backward": nll_gradient,
    "multilabel_margin_loss": multilabel_margin_loss,
}


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
