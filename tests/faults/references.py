"""References: calls of every kind, those that are refused too, leave as many of them as they found, and as many blocks of memory.

python -m faults references                       every operator
python -m faults references --operator elu
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import openaclnn
from conftest import places_for, plain
from faults.bits import SMALL
from openaclnn import acl
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.interface import Kind
from test_interop import to_torch
from test_two_phase_kinds import both, in_c_order

__all__ = ["growth", "kinds", "main"]

CALLS = 1000
SHARED = [
    None, True, False, NotImplemented, Ellipsis, (), "", "mean", "none", *range(-5, 257), 0.0, math.nan,
    np.ndarray, np.generic, *map(np.dtype, "?bBhHiIlLefdFD"), object, type, int, float, str, tuple, dict, list,
]  # fmt: skip


def _libraries() -> Iterator[tuple[str, Callable[[Any], Any], list[Any]]]:
    yield "NumPy", lambda array: array, []
    with contextlib.suppress(ImportError):
        import torch

        dtypes = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]
        yield "PyTorch", to_torch, [torch.Tensor, torch.strided, *dtypes]


def kinds(operator: Operator) -> Iterator[tuple[str, Callable[[], Any], list[Any]]]:
    """A call of each kind, and what it is made of. What it answers is its own affair."""
    for library, convert, shared in _libraries():
        for name, call, values in _of(operator, convert):
            yield f"{operator.python_name}, {library}, {name}", call, values + shared


def _of(
    operator: Operator, convert: Callable[[Any], Any]
) -> Iterator[tuple[str, Callable[[], Any], list[Any]]]:
    work = operator.workloads
    variant = next(iter(work.VARIANTS))
    inputs = work.make(np.random.default_rng(5), FLOAT, SMALL[work.PATTERN], variant)
    places = list(places_for(operator, inputs))
    arrays = {name: convert(value) if isinstance(value, np.ndarray) else value for name, value in inputs.items()}  # fmt: skip
    outs = [convert(place) for place in places]
    out: Any = outs[0] if operator.result_type is None else tuple(outs)
    function = plain(operator)
    yield "a result", lambda: function(**arrays), [*arrays.values()]
    for what, changed in [("", {}), *_mistakes(operator, inputs, convert)]:
        arguments = arrays | changed
        refused = f" with {what}" if what else ""
        yield f"an output{refused}", _plain(function, arguments, out), [*arguments.values(), *outs]
        if set(arguments) <= {parameter.python_name for parameter in operator.parameters}:
            ordered = in_c_order(operator, arguments, out)
            yield f"two phases{refused}", _phases(operator, ordered), [*arguments.values(), *outs]
    if convert(places[0]) is places[0]:  # PyTorch has no tensors that are read alone
        locked = [place.copy() for place in places]
        for array in locked:
            array.flags.writeable = False
        sealed: Any = locked[0] if operator.result_type is None else tuple(locked)
        if not operator.output.in_place:
            yield "an output that is read alone", _plain(function, arrays, sealed), locked
            yield "two phases that write what is read alone", _phases(operator, in_c_order(operator, arrays, sealed)), locked  # fmt: skip


def _mistakes(
    operator: Operator, inputs: dict[str, Any], convert: Callable[[Any], Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options that are no numbers or too large, tensors that the last check refuses."""
    options = [
        parameter
        for parameter in operator.parameters
        if not parameter.is_tensor and parameter.kind is not Kind.OUTPUT
    ]
    numbers = [parameter.python_name for parameter in options if not parameter.choices]
    if numbers:
        yield "NaN", {numbers[-1]: math.nan}
        yield "a huge number", {numbers[-1]: 1 << 80}
    if "target" in inputs and inputs["target"].dtype.kind == "i":
        stray = inputs["target"].copy()
        stray.flat[-1] = 99
        yield "a stray target", {"target": convert(stray)}
    *_, (last, array) = [
        (name, value) for name, value in inputs.items() if isinstance(value, np.ndarray)
    ]
    if not operator.output.in_place or last != operator.output.python_name:
        yield "another dtype", {last: convert(array.astype(np.complex64))}
        yield "another shape", {last: convert(np.zeros((2, 3, 5, 7, 9), array.dtype))}


def _plain(function: Any, arguments: dict[str, Any], out: Any) -> Callable[[], Any]:
    def call() -> None:
        with contextlib.suppress(Exception):
            function(**arguments, out=out)

    return call


def _phases(operator: Operator, arguments: list[Any]) -> Callable[[], Any]:
    return lambda: both(operator, arguments)


def growth(call: Callable[[], Any], values: list[Any], calls: int = CALLS) -> dict[str, int]:
    """What there is more or less of with every so many calls, after as many. Some comes and goes; what a call loses is lost each time."""
    counted = [*SHARED, *values]
    # Blocks come last. The room for all counts is there before the first.
    before, after = (array("q", bytes(8 * (len(counted) + 1))) for _ in range(2))

    def count(counts: Any) -> None:
        for _ in range(calls):
            call()
        gc.collect()
        for place, value in enumerate(counted):
            counts[place] = sys.getrefcount(value)
        counts[-1] = sys.getallocatedblocks()

    kept = gc.get_freeze_count()  # by the suite
    gc.freeze()  # a collection looks at what came since
    try:
        count(before)
        for _ in range(8):  # Python 3.14 has more of its own for some hundred calls
            count(after)
            lost = {repr(value)[:40]: last - first for value, first, last in zip([*counted, "blocks"], before, after, strict=True) if abs(last - first) > calls // 2}  # fmt: skip
            if not lost:
                break
            before, after = after, before
    finally:
        if not kept:
            gc.unfreeze()
    return lost


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="faults references")
    parser.add_argument("--operator", action="append")
    options = parser.parse_args(arguments)
    acl.aclrtSetDevice(0)
    operators = [operator for operator in openaclnn.registry() if not options.operator or operator.python_name in options.operator]  # fmt: skip
    tried = bad = 0
    for operator in operators:
        for name, call, values in kinds(operator):
            tried += 1
            grown = growth(call, values)
            if grown:
                bad += 1
                print(f"{name}: {grown}", flush=True)
    print(f"references: {len(operators)} operators, {tried} kinds of calls, {bad} findings")
    return 1 if bad else 0
