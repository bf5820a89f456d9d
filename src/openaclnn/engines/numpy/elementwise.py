"""Elementwise kernels: one driver that walks any geometry block by block and calls the formula as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.interop import strided_view
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.formulas import FORMULAS

Array = np.ndarray[Any, Any]

# Elements per block: the float32 temporaries of one block stay in a second-level cache.
BLOCK = 1 << 16


def widen(array: Array, compute: DType) -> Array:
    """Values as float32: first rounded to the computation type where theirs is another one. DOUBLE and integers are
    computed with as they are."""
    values = array.astype(compute.numpy, copy=False)
    return values.astype(np.float32, copy=False) if compute in FLOATS else values


def narrow(values: Array, compute: DType, output: DType) -> Array:
    """The two roundings: to the computation type, then to the output's. Integers are what is left of numbers towards 0, and the nearest
    that there is for those beyond. NaN is the usual one: which sign NumPy gives it depends on where in memory numbers lie."""
    if values.dtype.kind == "f" and (lost := np.isnan(values)).any():
        values = np.where(lost, values.dtype.type(np.nan), values)
    if compute is not FLOAT:
        values = _whole(values, compute) if compute.kind == "integer" else values.astype(compute.numpy)  # fmt: skip
    if output.kind == "integer":
        return _whole(values, output)
    return values.astype(output.numpy, copy=False)


def _whole(values: Array, dtype: DType) -> Array:
    """Integers of numbers, by the rule above; NaN is 0. Those of other integers wrap around."""
    if values.dtype.kind in "iub":
        return values.astype(dtype.numpy, copy=False)
    values = values.astype(np.float64, copy=False)
    bounds = np.iinfo(dtype.numpy)
    held = np.nan_to_num(np.clip(values, bounds.min, bounds.max)).astype(dtype.numpy)
    # The largest integer may be more than the floating number next to it, which is beyond.
    return np.where(values >= bounds.max, bounds.max, held).astype(dtype.numpy)


def view(operand: Operand, address: int, shape: tuple[int, ...]) -> Array:
    """The operand's elements in the plan's order."""
    start = address + operand.offset * operand.dtype.itemsize
    return strided_view(start, operand.dtype, shape, operand.strides)


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Index tuples that cut a shape into pieces of about BLOCK elements."""
    inner = int(np.prod(shape[1:], dtype=np.int64))
    if inner > BLOCK:
        for index in range(shape[0]):
            for rest in blocks(shape[1:]):
                yield (index, *rest)
        return
    step = max(1, BLOCK // max(inner, 1))
    for start in range(0, shape[0], step):
        yield (slice(start, start + step),)


def _computed(plan: Plan) -> Callable[[Sequence[Array], Any], Array]:
    """The formula of some inputs' views at an index: its result, or a tuple of several."""
    formula = FORMULAS[plan.kernel]
    # Arrays of one element: beside Python's numbers they stay FLOAT, which NumPy 1's scalars do not.
    # Whole numbers beside integers are integers.
    whole = plan.compute.kind == "integer"
    with np.errstate(over="ignore"):
        options = {
            name: np.full(1, plan.numbers[name], plan.compute.numpy)
            if whole and isinstance(plan.numbers[name], int)
            else np.full(1, number, np.float32)
            for name, number in formula.numbers_of(plan.numbers).items()
        } | formula.switches_of(plan.numbers)

    def at(inputs: Sequence[Array], index: Any) -> Array:
        values: Array = formula.function(
            *(widen(a[index], plan.compute) for a in inputs), **options
        )
        return values

    return at


def runner(plan: Plan) -> Callable[[Sequence[int], int], int]:
    # Integers are cut off towards 0, unless the plan asks for the nearest.
    computed, nearest = _computed(plan), plan.numbers.get("nearest", False)

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        views = [
            view(operand, address, plan.shape)
            for operand, address in zip(plan.operands, addresses, strict=True)
        ]
        inputs, outputs = views[: len(plan.inputs)], views[len(plan.inputs) :]
        with np.errstate(all="ignore"):
            for index in blocks(plan.shape):
                results: Any = computed(inputs, index)
                results = results if plan.more else (results,)
                for values, output, operand in zip(results, outputs, plan.outputs, strict=True):
                    rounded = np.rint(values) if nearest else values
                    output[index] = narrow(rounded, plan.compute, operand.dtype)
        return 0

    return run


def reducer(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """The sum or mean of what the formula gives: blocks in float64 in NumPy's order, then block after block."""
    computed, whole = _computed(plan), plan.compute.kind == "integer"
    count = int(np.prod(plan.shape, dtype=np.int64))

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        inputs = [
            view(operand, address, plan.shape)
            for operand, address in zip(plan.inputs, addresses, strict=False)
        ]
        total: Any = np.int64(0) if whole else np.float64(0)
        with np.errstate(all="ignore"):
            for index in blocks(plan.shape):
                total = total + computed(inputs, index).sum(dtype=total.dtype)
            if plan.reduction == "mean":
                total = total / count
            write_one(plan, plan.output, addresses[-1], total)
        return 0

    return run


def write_one(plan: Plan, output: Operand, address: int, number: Any) -> None:
    """An output of one element: rounded to FLOAT, then to the computation type, then to its own."""
    value = np.asarray(number)
    if plan.compute in FLOATS:
        value = narrow(value.astype(np.float32), plan.compute, output.dtype)
    strided_view(address, output.dtype, (), ())[...] = value.astype(output.dtype.numpy)


def filling(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """Outputs of one element, each with the number under its name, or one of several."""

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        for operand, address in zip(plan.operands, addresses, strict=True):
            number = np.asarray(plan.numbers[operand.parameter])
            view(operand, address, plan.shape)[...] = number.astype(operand.dtype.numpy)
        return 0

    return run
