"""Calls on arrays larger than memory: in pieces along the first axis, where the operator's results do not depend on the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import openaclnn
from openaclnn.core.declare import Operator
from openaclnn.core.plan import Plan
from openaclnn.testing.goldens import plan_of

__all__ = ["run_in_chunks"]

Array = np.ndarray[Any, Any]


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
    plan, _ = plan_of(operator, dict(arguments))
    sliced = _sliced(operator, arguments, out, plan)
    if sliced is None or out.size <= elements:
        function(**arguments, out=out, product=product)
        done(out.size)
        return False
    given, target = dict(arguments), out
    whole = [n for n, v in given.items() if n not in sliced and isinstance(v, np.ndarray)]
    dense = all(given[name].shape == out.shape for name in sliced)
    if not plan.classes and dense and all(given[name].size == 1 for name in whole):
        given |= {name: given[name].reshape(-1) for name in sliced}
        given |= {name: given[name].reshape(()) for name in whole}
        target = out.reshape(-1)
    rows = max(elements * len(target) // target.size, 1)
    for start in range(0, len(target), rows):
        part = {name: given[name][start : start + rows] for name in sliced}
        piece = target[start : start + rows]
        function(**{**given, **part}, out=piece, product=product)
        done(piece.size)
    return True


def _sliced(
    operator: Operator, arguments: Mapping[str, Any], out: Array, plan: Plan
) -> list[str] | None:
    """The arrays that are cut along the first axis with the output; None where the call must be made whole."""
    if plan.empty or plan.reciprocal or plan.numbers.get("mean") or not out.ndim or not out.flags.c_contiguous:  # fmt: skip
        return None
    found = []
    for operand in plan.inputs:
        name = operator[operand.parameter].python_name
        array = arguments[name]
        if plan.classes:
            whole = operand.role in ("classes", "single")
        else:
            whole = np.ndim(array) < out.ndim or array.shape[0] != len(out)
        if not whole:
            found.append(name)
    read = {operator[operand.parameter].python_name for operand in plan.inputs}
    for name, array in arguments.items():  # shapes are checked of tensors that are not read, too
        if name not in read and isinstance(array, np.ndarray) and array.shape == out.shape:
            found.append(name)
    return found or None
