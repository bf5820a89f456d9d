"""Calls in pieces along the first axis, where an operator's results do not depend on the rest: for arrays larger than
memory, and for oracles whose float64 in between should stay small."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import openaclnn
from openaclnn.core.declare import Operator
from openaclnn.core.plan import Plan
from openaclnn.testing.goldens import plan_of

__all__ = ["oracle_in_chunks", "run_in_chunks"]

Array = np.ndarray[Any, Any]
_ORACLE = 1 << 16  # elements: their float64 stay in a core's cache


def run_in_chunks(
    operator: Operator,
    arguments: Mapping[str, Any],
    out: Array,
    elements: int,
    product: str | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> bool:
    """Run a plain call into `out` in pieces of about so many elements; all at once, and False, where that cannot be.

    The bits are those of the whole call: pieces are taken only where every element has its value without the others, so
    not for a mean.
    """
    function = getattr(openaclnn, operator.python_name)
    found = _cut(operator, arguments, out.shape, elements) if out.flags.c_contiguous else None
    if found is None:
        function(**arguments, out=out, product=product)
        done(out.size)
        return False
    target = found.of(out)
    for where, part in found.pieces():
        piece = target[where]
        function(**part, out=piece, product=product)
        done(piece.size)
    return True


def oracle_in_chunks(
    operator: Operator, arguments: Mapping[str, Any], shape: tuple[int, ...]
) -> Array:
    """The oracle's answer, of this shape."""
    found = _cut(operator, arguments, shape, _ORACLE)
    if found is None:
        whole: Array = operator.oracle(**arguments)
        return whole
    answer = np.empty(shape)
    target = found.of(answer)
    for where, part in found.pieces():
        target[where] = operator.oracle(**part)
    return answer


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
    operator: Operator, arguments: Mapping[str, Any], shape: tuple[int, ...], elements: int
) -> _Cut | None:
    """None where the call is small, or must be made whole."""
    size = math.prod(shape)
    if size <= elements:
        return None
    plan, _ = plan_of(operator, dict(arguments))
    if plan.empty or plan.reciprocal or plan.numbers.get("mean"):
        return None
    sliced = _sliced(operator, arguments, shape, plan)
    if not sliced:
        return None
    given = dict(arguments)
    whole = [n for n, v in given.items() if n not in sliced and isinstance(v, np.ndarray)]
    dense = all(given[n].shape == shape and given[n].flags.c_contiguous for n in sliced)
    if plan.classes or not dense or any(given[name].size != 1 for name in whole):
        return _Cut(given, sliced, False, shape[0], max(elements * shape[0] // size, 1))
    given |= {name: given[name].reshape(-1) for name in sliced}
    given |= {name: given[name].reshape(()) for name in whole}
    return _Cut(given, sliced, True, size, elements)


def _sliced(
    operator: Operator, arguments: Mapping[str, Any], shape: tuple[int, ...], plan: Plan
) -> list[str]:
    """The arrays that are cut along the first axis with the output."""
    found = []
    for operand in plan.inputs:
        name = operator[operand.parameter].python_name
        array = arguments[name]
        if plan.classes:
            cut = operand.role not in ("classes", "single")
        else:
            cut = np.ndim(array) == len(shape) and array.shape[0] == shape[0]
        if cut:
            found.append(name)
    read = {operator[operand.parameter].python_name for operand in plan.inputs}
    for name, array in arguments.items():  # shapes are checked of tensors that are not read, too
        if name not in read and isinstance(array, np.ndarray) and array.shape == shape:
            found.append(name)
    return found
