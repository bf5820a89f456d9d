"""Row formulas on NumPy: value by value, over blocks of rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.interop import strided_view
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.formulas.rows import ROW_FORMULAS, Graph, Node
from openaclnn.engines.formulas.words import WORDS
from openaclnn.engines.numpy.elementwise import BLOCK, narrow, widen

Array = np.ndarray[Any, Any]

OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "neg": operator.neg,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&": operator.and_, "|": operator.or_, "~": operator.invert,
}  # fmt: skip


def row_blocks(plan: Plan, read: int) -> Iterator[tuple[int | slice, ...]]:
    """Index tuples of some positions, of each of which so many classes are read: one line of positions after another."""
    step = max(1, BLOCK // read)
    for line in np.ndindex(plan.shape[:-1]):
        for start in range(0, plan.shape[-1], step):
            yield (*line, slice(start, start + step))


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


def evaluate(
    graph: Graph, inputs: Mapping[str, Array], numbers: Mapping[str, Any], work: Any, compute: DType = FLOAT
) -> list[Array]:  # fmt: skip
    """The results of rows: arrays of (rows, classes), or of (rows, 1) for what differs between rows alone."""
    values: dict[int, Any] = {}
    classes = next(inputs[n.name].shape[1] for n in graph.nodes if n.kind == "Row")
    needed = graph.needed(graph.results)
    # Of an operand that is read at targets alone nothing else is converted.
    whole = {each.index for node in needed for each in node.of[node.what == "at" :]}
    whole |= {result.index for result in graph.results}
    for node in needed:
        if node.index in whole or node.what != "input":
            operands: list[Any] = [values.get(each.index) for each in node.of]
            if node.what == "rounded":
                values[node.index] = widen(operands[0], compute)
            else:
                values[node.index] = _value(node, operands, inputs, numbers, classes, work)
    return [values[result.index] for result in graph.results]


def _value(
    node: Node, operands: list[Any], inputs: Mapping[str, Array], numbers: Mapping[str, Any], classes: int, work: Any
) -> Any:  # fmt: skip
    match node.what:
        case "input":
            held = inputs[node.name]
            return held if node.kind == "Target" else held.astype(work, copy=False)
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
            target = operands[1]
            inside = (target >= 0) & (target < classes)
            picked = np.take_along_axis(inputs[node.of[0].name], np.where(inside, target, 0), 1)
            return np.where(inside, picked.astype(work, copy=False), work(0))
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
            for index in row_blocks(plan, plan.classes):
                block: dict[str, Array] = {}
                for (name, kind), array in zip(kinds.items(), inputs, strict=True):
                    part = part_of(kind, array, index, plan)
                    block[name] = part if kind == "Target" else widen(part, plan.compute)
                results = evaluate(graph, block, plan.numbers, work, plan.compute)
                for values, output, operand in zip(results, outputs, plan.outputs, strict=True):
                    write_rows(output[index], values, plan.compute, operand.dtype)
        return 0

    return run


def part_of(kind: str, array: Array, index: Any, plan: Plan) -> Array:
    """An operand's part of some rows, as (rows, classes), (1, classes) or (rows, 1)."""
    if kind == "PerClass":
        return array[None, :]
    part: Array = array[index] if array.ndim else np.broadcast_to(array, plan.shape)[index]
    if kind == "Target":
        part = part.astype(np.int64) - plan.numbers.get("first_class", 0)
    return part if kind == "Row" else part[:, None]


def write_rows(part: Array, values: Array, compute: DType, output: DType) -> None:
    """What was computed of some rows into their part of an output."""
    rounded = narrow(values, compute, output)
    part[...] = rounded.reshape(part.shape) if values.shape[1] == 1 else rounded
