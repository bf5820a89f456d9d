"""Calls in pieces along the first axis, where an operator's results do not depend on the rest: for arrays larger than
memory, and for oracles whose float64 in between should stay small."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import openaclnn
from openaclnn.core.call import product_of
from openaclnn.core.declare import Operator
from openaclnn.core.plan import Plan
from openaclnn.core.products import Product, current_product
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.testing.data.goldens import by_output, plan_of
from openaclnn.testing.judging.figures import Array, Computed

__all__ = ["oracle_in_chunks", "out_argument", "run_in_chunks"]


def run_in_chunks(
    operator: Operator,
    arguments: Mapping[str, Any],
    outputs: Sequence[Array | None],
    elements: int,
    product: str | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> bool:
    """Run a plain call into its outputs in pieces of about so many elements; all at once, and False, where that cannot
    be. None stands for an output that is not computed.

    The bits are those of the whole call: pieces are taken only where every element has its value without the others, so
    not for a mean.
    """
    function = getattr(openaclnn, operator.python_name)
    if operator.output.in_place:
        [memory] = outputs
        assert memory is not None
        name = operator.output.python_name
        memory[...] = arguments[name]
        arguments = {**arguments, name: memory}
    places = [place for place in outputs if place is not None]
    size = sum(place.size for place in places)
    dense = all(place.flags.c_contiguous for place in places)
    shapes = [place.shape for place in places]
    profile = product_of(operator, product)
    cut = _cut(operator, arguments, shapes, elements, profile) if dense else None
    if cut is None:
        function(**arguments, **out_argument(operator, outputs), product=product)
        done(size)
        return False
    targets = [None if place is None else cut.of(place) for place in outputs]
    for where, part in cut.pieces():
        pieces = [None if target is None else target[where] for target in targets]
        function(**part, **out_argument(operator, pieces), product=product)
        done(sum(piece.size for piece in pieces if piece is not None))
    return True


def out_argument(operator: Operator, outputs: Sequence[Array | None]) -> dict[str, Any]:
    """The plain call's `out` for these outputs; an operator that works in place has none."""
    if operator.output.in_place:
        return {}
    return {"out": outputs[0] if operator.result_type is None else tuple(outputs)}


def oracle_in_chunks(
    operator: Operator, arguments: Mapping[str, Any]
) -> dict[str, Array | Computed]:
    """The oracle's answers by the outputs' C names; what is not computed is not among them.

    What an operator computes of each element is computed in blocks that threads share: when it is looked at, or at once where
    sums are made of it, which are added up in the blocks' order. The references of operators with classes have blocks of their own.
    """
    product = current_product()
    plan = plan_of(operator, arguments, product)
    whole = operator.reference_arguments(product=product, copied=False, **arguments)
    names = [operator[operand.parameter].python_name for operand in plan.inputs]
    if plan.empty or plan.classes or plan.of_one_size:
        return by_output(operator, operator.reference(**whole))
    shape = np.broadcast_shapes(*(whole[name].shape for name in names))
    count = math.prod(shape)
    blocks = blocks_of(count)
    if len(blocks) < 2:
        return by_output(operator, operator.reference(**whole))
    if plan.reduction or plan.reciprocal:  # the mean's division is of all elements
        [reduction] = [p.python_name for p in operator.parameters if p.choices]
        whole[reduction] = "sum"
    if operator.output.in_place:  # what is read now will be written over
        whole[operator.output.python_name] = whole[operator.output.python_name].copy()
    whole |= {name: whole[name].reshape(-1) for name in names if whole[name].size == 1}
    lines = {n: _line(np.broadcast_to(whole[n], shape)) for n in names if whole[n].size > 1}

    def exact(block: slice) -> Any:
        return operator.reference(**{**whole, **{n: line[block] for n, line in lines.items()}})

    if plan.reduction:
        sums = map_in_order(exact, blocks)
        with np.errstate(all="ignore"):
            total = np.array(list(sums)).sum()
            return {operator.output.name: total / count if plan.reduction == "mean" else total}
    share = 1.0 / count if plan.reciprocal else 1.0

    def compute(stretch: slice) -> Array:
        answer = np.empty(stretch.stop - stretch.start)
        with np.errstate(all="ignore"):
            for block in blocks_of(answer.size):
                here = slice(stretch.start + block.start, stretch.start + block.stop)
                np.multiply(exact(here), share, out=answer[block])
        return answer

    return {operator.output.name: Computed(shape, compute)}


def _line(array: Array) -> Any:
    """Elements that can be sliced in one line, without a copy of the whole."""
    return array.reshape(-1) if array.flags.c_contiguous else array.flat


@dataclass(frozen=True)
class _Cut:
    """How a call is cut: which arrays, into how many rows, and whether all axes were made one before."""

    arguments: dict[str, Any]
    sliced: list[str]
    flat: bool
    length: int
    rows: int

    def of(self, out: Array) -> Array:
        return out.reshape(-1) if self.flat else out

    def pieces(self) -> Iterator[tuple[slice, dict[str, Any]]]:
        for start in range(0, self.length, self.rows):
            where = slice(start, start + self.rows)
            part = {name: self.arguments[name][where] for name in self.sliced}
            yield where, {**self.arguments, **part}


def _cut(
    operator: Operator,
    arguments: Mapping[str, Any],
    shapes: Sequence[tuple[int, ...]],
    elements: int,
    product: Product,
) -> _Cut | None:
    """None where the call is small, or must be made whole: one result is of all elements."""
    shape = max(shapes, key=math.prod)
    size = math.prod(shape)
    if size <= elements:
        return None
    plan = plan_of(operator, arguments, product)
    if (
        plan.empty
        or plan.reciprocal
        or plan.fixed
        or plan.steps
        or plan.reduction
        or plan.numbers.get("mean")
    ):
        return None
    if plan.class_axis == 0 or any(operand.role == "single" for operand in plan.outputs):
        return None
    sliced = _sliced(operator, arguments, shape, plan)
    if not sliced:
        return None
    values = dict(arguments)
    whole = [n for n, v in values.items() if n not in sliced and isinstance(v, np.ndarray)]
    dense = all(values[n].shape == shape and values[n].flags.c_contiguous for n in sliced)
    if plan.classes or plan.halved or not dense or any(values[name].size != 1 for name in whole):
        return _Cut(values, sliced, False, shape[0], max(elements * shape[0] // size, 1))
    values |= {name: values[name].reshape(-1) for name in sliced}
    values |= {name: values[name].reshape(()) for name in whole}
    return _Cut(values, sliced, True, size, elements)


def _sliced(
    operator: Operator, arguments: Mapping[str, Any], shape: tuple[int, ...], plan: Plan
) -> list[str]:
    """The arrays that are cut along the first axis with the output."""
    names = []
    for operand in plan.inputs:
        name = operator[operand.parameter].python_name
        array = arguments[name]
        if plan.classes:
            cut = operand.role not in ("classes", "single")
        else:
            whole = operand.role == "channels"
            cut = np.ndim(array) == len(shape) and array.shape[0] == shape[0] and not whole
        if cut:
            names.append(name)
    read = {operator[operand.parameter].python_name for operand in plan.inputs}
    for name, array in arguments.items():  # shapes are checked of tensors that are not read, too
        if name not in read and isinstance(array, np.ndarray) and array.shape == shape:
            names.append(name)
    return names
