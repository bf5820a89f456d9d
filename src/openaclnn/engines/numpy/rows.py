"""Row formulas on NumPy: value by value, over blocks of rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas.rows import ROW_FORMULAS, Graph, Node
from openaclnn.engines.formulas.words import WORDS
from openaclnn.engines.numpy.classes import row_blocks, view
from openaclnn.engines.numpy.elementwise import narrow, widen

Array = np.ndarray[Any, Any]

OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "neg": operator.neg,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&": operator.and_, "|": operator.or_, "~": operator.invert,
}  # fmt: skip


def evaluate(
    graph: Graph, inputs: Mapping[str, Array], numbers: Mapping[str, Any], work: Any, compute: DType = FLOAT
) -> list[Array]:  # fmt: skip
    """The results of rows: arrays of (rows, classes), or of (rows, 1) for what differs between rows alone."""
    values: list[Any] = []
    classes = next(inputs[n.name].shape[1] for n in graph.nodes if n.kind == "Row")
    for node in graph.nodes:
        operands = [values[each.index] for each in node.of]
        if node.what == "rounded":
            values.append(widen(operands[0], compute))
        else:
            values.append(_value(node, operands, inputs, numbers, classes, work))
    return [values[result.index] for result in graph.results]


def _value(
    node: Node, operands: list[Any], inputs: Mapping[str, Array], numbers: Mapping[str, Any], classes: int, work: Any
) -> Any:  # fmt: skip
    match node.what:
        case "input":
            return inputs[node.name]
        case "number":
            return np.full((1, 1), numbers[node.name], work)
        case "constant":
            return np.full((1, 1), node.name, work)
        case "classes":
            return np.full((1, 1), classes, work)
        case "total":
            # In float64, so that the error does not grow with the length of the row.
            return _whole(operands[0], classes).sum(axis=1, keepdims=True, dtype=np.float64).astype(work)  # fmt: skip
        case "largest":
            return operands[0].max(axis=1, keepdims=True)
        case "is_target":
            return np.arange(classes) == operands[0]
        case "is_counted":
            target = operands[0]
            return (target >= 0) & (target < classes) & (target != numbers["ignore_index"])
        case "is_inside":
            return (operands[0] >= 0) & (operands[0] < classes)
        case "index_of":
            (target,) = operands
            return np.where((target >= 0) & (target < classes), target, 0)
        case "at":
            row, target = operands
            inside = (target >= 0) & (target < classes)
            picked = np.take_along_axis(row, np.where(inside, target, 0), axis=1)
            return np.where(inside, picked, work(0))
        case what:
            return (OPERATORS.get(what) or WORDS[what])(*operands)


def _whole(value: Array, classes: int) -> Array:
    """What is the same for all classes counts for each."""
    return np.broadcast_to(value, (value.shape[0], classes))


def runner(plan: Plan) -> Callable[[Sequence[int], int], int]:
    formula = ROW_FORMULAS[plan.kernel]
    graph = formula.graph(plan.numbers)
    work = np.float32 if plan.compute in FLOATS else np.float64
    kinds = dict(formula.operands)

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        places = list(zip(plan.operands, addresses, strict=True))
        views = [view(plan, *place) for place in places]
        inputs, outputs = views[: len(plan.inputs)], views[len(plan.inputs) :]
        with np.errstate(all="ignore"):
            for index in row_blocks(plan):
                block: dict[str, Array] = {}
                for (name, kind), array in zip(kinds.items(), inputs, strict=True):
                    block[name] = _block(kind, array, index, plan)
                results = evaluate(graph, block, plan.numbers, work, plan.compute)
                for values, output, operand in zip(results, outputs, plan.outputs, strict=True):
                    part = output[index]
                    rounded = narrow(values, plan.compute, operand.dtype)
                    part[...] = rounded.reshape(part.shape) if values.shape[1] == 1 else rounded
        return 0

    return run


def _block(kind: str, array: Array, index: Any, plan: Plan) -> Array:
    """An operand's part of some rows, as (rows, classes), (1, classes) or (rows, 1)."""
    if kind == "PerClass":
        return widen(array, plan.compute)[None, :]
    part = array[index] if array.ndim else np.broadcast_to(array, plan.shape)[index]
    if kind == "Row":
        return widen(part, plan.compute)
    if kind == "Target" and "first_class" in plan.numbers:
        part = part.astype(np.int64) - plan.numbers["first_class"]
    return part[:, None] if kind == "Target" else widen(part, plan.compute)[:, None]
