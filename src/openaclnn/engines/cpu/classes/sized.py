"""Class kernels over row-major operands of any size, with any numbers, as builtins.

A kernel's parameter block is made once for a kind of call. A call copies it and writes the slots that its sizes and numbers
decide: machine code, since Python takes 10 us for that.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu import control as at
from openaclnn.engines.cpu import pool
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.launcher import Launch
from openaclnn.engines.machine.builtins import Emit, address_of_function, builtin, integer_of
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.objects import FLOAT_VALUE, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

__all__ = ["Fitted", "Problem", "SizedRunner", "at_least_one", "row_major", "sized_runner"]

SizedRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[float]], int]
"""Of the operands' addresses, a stream, the output's shape and the plan's free numbers; not 0 where a target was out of
range. Without numbers, those of the plan hold."""

# A builtin's own block: what it calls, its template, then the kernels, 0 until they are compiled.
CONTROL, FALLBACK, FLOAT, ALLOCATE, RELEASE, TEMPLATE, SUMS, CLEAR, WAYS = range(9)
MAX_WAYS = 2


class Fitted(NamedTuple):
    """The launches that a problem takes."""

    way: Value  # which of the kernels
    pieces: Value
    grain: Value
    sum_blocks: Value  # of sums that are made first; 0: none are
    spans: Value  # of the output, cleared first; 0: it is not


class Problem:
    """A call being written: its sizes and numbers, and the parameters that follow."""

    def __init__(self, code: Code, shape: list[Value], block: Array, slots: Mapping[str, int]):
        self.code, self.shape = code, shape
        self._block, self._slots = block, slots

    def __getitem__(self, name: str) -> Value:
        return self._block.read(self._slots[name])

    def __setitem__(self, name: str, value: Value) -> None:
        self._block.write(self._slots[name], value)

    def put_double(self, name: str, value: Value) -> None:
        self[name] = value.bits_as("i64")


def at_least_one(number: Value) -> Value:
    return (number > 1).choose(number, 1)


def row_major(plan: Plan, names: Mapping[str, str], slots: Mapping[str, int]) -> dict[int, int]:
    """Slots that hold for every size: neighbouring positions and classes lie side by side."""
    found = {}
    parameters = {parameter: name for name, parameter in names.items()}
    for operand in (*plan.inputs, plan.output):
        name, item = parameters[operand.parameter], operand.dtype.itemsize
        if operand.role == "positions":
            found[slots[f"{name}.step2"]] = item
        elif operand.role == "classes":
            found[slots[f"{name}.class_step"]] = item
    return found


class Sizing(NamedTuple):
    """How a kernel's parameters follow from sizes and numbers, as code."""

    name: str
    slots: Mapping[str, int]
    axes: int
    fit: Callable[[Problem], Fitted]
    # Each of the plan's free numbers into the slots that hold it: an integer, or a FLOAT as float64.
    numbers: Sequence[tuple[str, Callable[[Problem, Value], None]]]


def sized_runner(
    sizing: Sizing,
    template: array[int],
    kernels: Callable[[tuple[int, ...]], tuple[int, int, int, int]],
    keep: Any,
) -> SizedRunner:
    """What runs a kernel for any shape, given the block of one.

    `kernels(shape)` compiles: which way a shape goes, the kernel of it, the one for sums, the one that clears.
    """
    own = array("q", [0] * (WAYS + MAX_WAYS))

    def fallback(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[float] = ()
    ) -> int:
        """Before all is there that the builtin needs."""
        pool.ensure_started()
        way, write, own[SUMS], own[CLEAR] = kernels(tuple(shape))
        own[WAYS + way] = write
        return run(tuple(addresses), stream, tuple(shape), tuple(numbers))

    own[:SUMS] = array(
        "q",
        (
            pool.control_address(), id(fallback), id(float), *_memory_functions(),
            template.buffer_info()[0],
        ),
    )  # fmt: skip
    held = (own, template, fallback, keep)
    run: SizedRunner = builtin(f"{sizing.name}.sized", _emitter(sizing), own.buffer_info()[0], held)
    return run


@functools.cache
def _memory_functions() -> tuple[int, int]:
    api = ctypes.pythonapi
    return address_of_function(api.PyMem_RawMalloc), address_of_function(api.PyMem_RawFree)


def _emitter(sizing: Sizing) -> Emit:
    def emit(code: Code, own: Array, given: Array, number: Value) -> None:
        """The builtin `run(addresses, stream, shape, numbers)`."""
        control = code.slots(own.read(CONTROL))
        with code.when(number.equals(4)):
            addresses, shape, numbers = (code.slots(given.read(index)) for index in (0, 2, 3))
            known = code.integer(0).equals(0)
            for one in (addresses, shape, numbers):
                known = known & one.read(OBJECT_TYPE).equals(control.read(at.TUPLE))
            with code.when(known & shape.read(TUPLE_LENGTH).equals(sizing.axes)):
                _run(code, sizing, own, addresses, shape, numbers)
        code.leave(control.call(at.VECTORCALL, "i64", own.read(FALLBACK), given, number, 0))

    return emit


def _run(
    code: Code, sizing: Sizing, own: Array, addresses: Array, shape: Array, numbers: Array
) -> None:
    """Return the status word, if all is there that it takes."""
    control, count = code.slots(own.read(CONTROL)), len(sizing.slots)
    block, template = code.frame("i64", count), code.slots(own.read(TEMPLATE))
    with code.loop(0, code.integer(count)) as slot:
        block.write(slot, template.read(slot))
    sizes = [integer_of(code, shape.read(TUPLE_ITEMS + axis)) for axis in range(sizing.axes)]
    problem = Problem(code, sizes, block, sizing.slots)
    with code.when(numbers.read(TUPLE_LENGTH).equals(len(sizing.numbers))):
        for index, (kind, put) in enumerate(sizing.numbers):
            item = numbers.read(TUPLE_ITEMS + index)
            put(problem, integer_of(code, item) if kind == "i64" else _float(code, own, item))
    fitted = sizing.fit(problem)
    launch = Launch(code, control)
    launch.arguments.write(0, block.address())
    launch.arguments.write(1, 0)
    with code.loop(0, addresses.read(TUPLE_LENGTH)) as place:
        address = integer_of(code, addresses.read(place + TUPLE_ITEMS))
        launch.arguments.write(place + 2, address)
    kernel = own.read(fitted.way + WAYS)
    with code.when(kernel.differs(0) & launch.ready(fitted.pieces, fitted.grain)):
        scratch = code.variable(code.integer(0))
        with code.when(fitted.sum_blocks > 0):
            scratch.set(own.call(ALLOCATE, "i64", fitted.sum_blocks * totals.STRIDE))
            launch.arguments.write(1, scratch.get())
        with code.when(scratch.get().differs(0)):  # without memory each piece sums for itself
            launch.execute(own.read(SUMS), fitted.sum_blocks, code.integer(totals.GRAIN))
        with code.when(fitted.spans > 0):
            launch.execute(own.read(CLEAR), fitted.spans, code.integer(1))
        status = launch.execute(kernel, fitted.pieces, fitted.grain)
        with code.when(scratch.get().differs(0)):
            own.call(RELEASE, None, scratch.get())
        code.leave(control.call(at.FROM_INT64, "i64", status))


def _float(code: Code, own: Array, item: Value) -> Value:
    """A Python number as FLOAT, in float64."""
    value = code.variable(code.double(0.0))
    with code.either(code.slots(item).read(OBJECT_TYPE).equals(own.read(FLOAT))) as (
        floating,
        other,
    ):
        with floating:
            value.set(code.slots(item).read(FLOAT_VALUE).bits_as("f64"))
        with other:
            value.set(integer_of(code, item).to("f64"))
    return value.get().to("f32").to("f64")
