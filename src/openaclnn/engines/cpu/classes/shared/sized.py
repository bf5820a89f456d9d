"""Class kernels over operands of any size, with any numbers, as builtins: row-major ones, and few elements of any strides.

A kernel's parameter block is made once for a kind of call. A call copies it and writes the slots that its sizes and numbers
decide: machine code, since Python takes 10 us for that.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import (
    AXES,
    CLASS_STEP,
    FIRST_STEP,
    LAST_STEP,
    OFFSET,
)
from openaclnn.engines.cpu.launching import control as at
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.launching.launcher import TINY, Launch
from openaclnn.engines.cpu.registry import SizedRunner
from openaclnn.engines.machine.builtins import EmitBuiltin, address_of_function, builtin, integer_of
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import TAKING_WORDS
from openaclnn.engines.machine.objects import FLOAT_VALUE, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.shared import publish
from openaclnn.engines.machine.values import Value

__all__ = [
    "IMAGES", "Fitted", "LaidRunner", "Problem", "Sizing", "at_least_one", "laid_runner", "put_ignored", "put_smoothing", "row_major",
    "sized_runner",
]  # fmt: skip

LaidRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[int], Sequence[float]], int]
"""A `SizedRunner` of addresses, a stream, the sizes of the positions' axes and the classes, every operand's strides along them, in
elements, and numbers."""

# A builtin's own block: what it calls, its template, then the kernels, 0 until they are compiled.
CONTROL, FALLBACK, FLOAT, ALLOCATE, RELEASE, NO_MEMORY, TEMPLATE, SUMS, CLEAR, FINISH, WAYS = range(
    11
)
MAX_WAYS = 2
ROOM = 256  # bytes of scratch memory in the frame, which no call has to allocate
OPERANDS = WAYS + MAX_WAYS  # of any strides: the first of each one's slots, and its itemsize


class Fitted(NamedTuple):
    """The launches that a problem takes."""

    way: Value  # which of the kernels
    pieces: Value
    grain: Value
    sum_blocks: Value | None = None  # of sums that are made first; 0: none are
    spans: Value | None = None  # of the output, cleared first; 0: it is not
    left: Value | None = None  # bytes of scratch memory for a last kernel; 0: there is none


class Problem:
    """A call being written: its sizes and numbers, and the parameters that follow. `shape` is that of row-major operands."""

    def __init__(self, code: Code, shape: list[Value], block: Array, slots: Mapping[str, int]):
        self.code, self.shape, self.slots = code, shape, slots
        self._block = block

    def __getitem__(self, name: str) -> Value:
        return self._block.read(self.slots[name])

    def __setitem__(self, name: str, value: Value) -> None:
        self._block.write(self.slots[name], value)

    def put_double(self, name: str, value: Value) -> None:
        self[name] = value.bits_as("i64")


def at_least_one(number: Value) -> Value:
    return (number > 1).choose(number, 1)


def put_ignored(problem: Problem, number: Value) -> None:
    """What most kernels take of the numbers: the target that counts for nothing."""
    problem["ignore_index"] = number


def put_smoothing(problem: Problem, number: Value) -> None:
    """And what cross entropies take besides."""
    problem.put_double("smoothing", number)


def row_major(
    block: array[int], plan: Plan, slots: Mapping[str, int], places: Mapping[str, int], fixed: Mapping[str, int]
) -> array[int]:  # fmt: skip
    """A plan's block as the template for row-major operands of every size: neighbouring positions and classes lie side by side.
    `fixed` is what else holds for all."""
    for operand in plan.operands:
        first, item = places[operand.parameter], operand.dtype.itemsize
        if operand.role == "positions":
            block[first + LAST_STEP] = item
        elif operand.role == "classes":
            block[first + CLASS_STEP] = item
    for name, value in fixed.items():
        block[slots[name]] = value
    return block


IMAGES = -1
"""Images, classes, and pixels of any number of axes: the shape is of these three."""


class Sizing(NamedTuple):
    """How a kernel's parameters follow from sizes and numbers, as code."""

    name: str
    slots: Mapping[str, int]
    axes: int  # of row-major operands, or IMAGES; 0: they lie anyhow, and what says where was written before
    fit: Callable[[Problem], Fitted]
    # Each of the plan's free numbers into the slots that hold it: an integer, or a FLOAT as float64.
    numbers: Sequence[tuple[str, Callable[[Problem, Value], None]]]


Kernels = Callable[[tuple[int, ...]], tuple[int, ...]]
"""Compiles: which way a shape goes, the kernel of it, the one for sums, the one that clears, the one that finishes."""


def sized_runner(
    sizing: Sizing, template: array[int], kernels: Kernels, keep: Any = None
) -> SizedRunner:
    """What runs a kernel for any shape, given the block of one."""
    return _made(sizing, template, kernels, keep, ())


def laid_runner(
    sizing: Sizing,
    template: array[int],
    kernels: Kernels,
    operands: Sequence[Operand],
    places: Mapping[str, int],
    keep: Any = None,
) -> LaidRunner:
    """What runs a kernel for any sizes and strides, given the block of a plan with these operands."""
    words = []
    for operand in operands:
        first = places[operand.parameter]
        template[first + OFFSET] = 0  # an output that was walked backwards had one
        words += [first, operand.dtype.itemsize]
    return _made(sizing, template, kernels, keep, words)


def _made(
    sizing: Sizing, template: array[int], kernels: Kernels, keep: Any, operands: Sequence[int]
) -> Callable[..., int]:
    own = array("q", [*[0] * OPERANDS, *operands])

    def fallback(
        addresses: Sequence[int], stream: int, shape: Sequence[int], *more: Sequence[Any]
    ) -> int:
        """What runs until the builtin has all that it needs."""
        pool.ensure_started()
        way, write, *others = kernels(tuple(shape))
        own[SUMS : SUMS + len(others)] = array("q", others)
        publish(own.buffer_info()[0] + own.itemsize * (WAYS + way), write)
        given = [tuple(one) for one in (*more, ())[: _number(sizing) - 3]]
        return run(tuple(addresses), stream, tuple(shape), *given)

    own[:SUMS] = array(
        "q",
        (
            pool.control_address(), id(fallback), id(float), *_memory_functions(),
            template.buffer_info()[0],
        ),
    )  # fmt: skip
    held = _Held(sizing, own, template, fallback, keep)
    run: Callable[..., int] = builtin(
        f"{sizing.name}.sized", _emitter(sizing), own.buffer_info()[0], held
    )
    return run


@dataclass(eq=False)
class _Held:
    """What a builtin relies on."""

    sizing: Sizing
    own: array[int]
    template: array[int]
    fallback: Any
    keep: Any
    words: dict[bool, tuple[int, int]] = field(default_factory=dict)  # `_taking_words`, once asked

    def without_objects(self) -> tuple[int, int]:
        """A runner for row-major operands as a function for machine code, and its block; 0 for a function where there is none.

        `run(block, addresses, how many, shape, axes, numbers, how many, stream)` returns the status word, or -1 where it has to be
        called as a builtin. Numbers are integers, or the bits of floats.
        """
        return self._taking_words(locked=False)

    def with_lock(self) -> tuple[int, int]:
        """The same for callers that hold the interpreter's lock, which is given back while large kernels run."""
        return self._taking_words(locked=True)

    def _taking_words(self, locked: bool) -> tuple[int, int]:
        found = self.words.get(locked)
        if found is None:
            found = self.words[locked] = self._compiled(locked) if self.sizing.axes else (0, 0)
        return found

    def _compiled(self, locked: bool) -> tuple[int, int]:
        name = f"{self.sizing.name}.words{'.locked' if locked else ''}"
        emit = functools.partial(_emit_words, self.sizing, locked)
        return compiled(name, emit, TAKING_WORDS), self.own.buffer_info()[0]


def _emit_words(sizing: Sizing, locked: bool, code: Code, arguments: Sequence[Value]) -> None:
    own, *rest, _ = arguments
    given = _Words(code, locked, *rest)
    fits = given.axes > 1 if sizing.axes == IMAGES else given.axes == sizing.axes
    with code.when(fits):
        _run(code, sizing, code.slots(own), given, (), code.leave)
    code.leave(code.integer(-1))


def _number(sizing: Sizing) -> int:
    """Of a builtin's arguments."""
    return 4 if sizing.axes else 5


@functools.cache
def _memory_functions() -> tuple[int, ...]:
    api = ctypes.pythonapi
    functions = api.PyMem_RawMalloc, api.PyMem_RawFree, api.PyErr_NoMemory
    return tuple(map(address_of_function, functions))


def _emitter(sizing: Sizing) -> EmitBuiltin:
    def emit(code: Code, own: Array, given: Array, number: Value) -> None:
        """The builtin `run(addresses, stream, shape, numbers)`, or with strides before the numbers."""
        control, count = code.slots(own.read(CONTROL)), _number(sizing)
        with code.when(number == count):
            tuples = [code.slots(given.read(index)) for index in (0, *range(2, count))]
            known = code.integer(0) == 0
            for one in tuples:
                known = known & (one.read(OBJECT_TYPE) == control.read(at.TUPLE))
            length = tuples[1].read(TUPLE_LENGTH)
            fits = length > 1
            if not sizing.axes:
                fits = fits & (length <= AXES + 1)
            elif sizing.axes != IMAGES:
                fits = length == sizing.axes
            with code.when(known & fits):
                addresses, shape, *steps, numbers = tuples
                objects = _Objects(code, own, addresses, shape, numbers)

                def leave(status: Value) -> None:
                    code.leave(control.call(at.FROM_INT64, "i64", status))

                _run(code, sizing, own, objects, steps, leave)
        code.leave(control.call(at.VECTORCALL, "i64", own.read(FALLBACK), given, number, 0))

    return emit


class _Objects:
    """A call's arguments as Python's objects: tuples of numbers."""

    locked = True  # the interpreter is

    def __init__(
        self, code: Code, own: Array, addresses: Array, shape: Array, numbers: Array
    ) -> None:
        self.code, self.own, self.shape = code, own, shape
        self.addresses, self.numbers = addresses, numbers
        self.operands, self.axes, self.count = (
            one.read(TUPLE_LENGTH) for one in (addresses, shape, numbers)
        )

    def address(self, place: Value) -> Value:
        return integer_of(self.code, self.addresses.read(place + TUPLE_ITEMS))

    def size(self, axis: Value) -> Value:
        return integer_of(self.code, self.shape.read(axis + TUPLE_ITEMS))

    def number(self, index: int, kind: str) -> Value:
        item = self.numbers.read(TUPLE_ITEMS + index)
        return integer_of(self.code, item) if kind == "i64" else _float(self.code, self.own, item)

    def without_memory(self) -> Value:
        """What is returned where there is none."""
        return self.own.call(NO_MEMORY, "i64")


class _Words:
    """The same as plain words, from callers that hold the interpreter's lock or do not."""

    def __init__(
        self, code: Code, locked: bool, addresses: Value, operands: Value, shape: Value, axes: Value, numbers: Value, count: Value
    ) -> None:  # fmt: skip
        self.code, self.locked = code, locked
        self.addresses, self.shape, self.numbers = map(code.slots, (addresses, shape, numbers))
        self.operands, self.axes, self.count = operands, axes, count

    def address(self, place: Value) -> Value:
        return self.addresses.read(place)

    def size(self, axis: Value) -> Value:
        return self.shape.read(axis)

    def number(self, index: int, kind: str) -> Value:
        word = self.numbers.read(index)
        return word if kind == "i64" else word.bits_as("f64").to("f32").to("f64")

    def without_memory(self) -> Value:
        return self.code.integer(-1)


def _run(
    code: Code, sizing: Sizing, own: Array, given: _Objects | _Words, steps: Sequence[Array],
    leave: Callable[[Value], None],
) -> None:  # fmt: skip
    """Run the launches and leave with the status word, if all that they take is there."""
    control, count = code.slots(own.read(CONTROL)), len(sizing.slots)
    block = code.frame("i64", count)
    code.move(own.read(TEMPLATE), block.address(), code.integer(8 * count))
    first = 2 if sizing.axes == IMAGES else sizing.axes
    sizes = [given.size(code.integer(axis)) for axis in range(first)]
    if sizing.axes == IMAGES:
        pixels = code.variable(1)
        with code.loop(first, given.axes) as axis:
            pixels.set(pixels.get() * given.size(axis))
        sizes.append(pixels.get())
    problem = Problem(code, sizes, block, sizing.slots)
    if steps:
        _lay(problem, own, block, given.shape, steps[0], given.operands)
    with code.when(given.count == len(sizing.numbers)):
        for index, (kind, put) in enumerate(sizing.numbers):
            put(problem, given.number(index, kind))
    fitted = sizing.fit(problem)
    launch = Launch(code, control, given.locked)
    launch.arguments.write(0, block.address())
    launch.arguments.write(1, 0)
    with code.loop(0, given.operands) as place:
        launch.arguments.write(place + 2, given.address(place))
    kernel = code.read_shared(own, fitted.way + WAYS)  # what it takes besides was written before it
    with code.when((kernel != 0) & launch.ready(fitted.pieces, fitted.grain)):
        scratch = code.variable(0)
        if fitted.sum_blocks is not None:
            with code.when(fitted.sum_blocks > 0):
                scratch.set(own.call(ALLOCATE, "i64", fitted.sum_blocks * totals.STRIDE))
                launch.arguments.write(1, scratch.get())
            with code.when(scratch.get() != 0):  # without memory each piece sums for itself
                launch.execute(own.read(SUMS), fitted.sum_blocks, code.integer(totals.GRAIN))
        if fitted.spans is not None:
            with code.when(fitted.spans > 0):
                launch.execute(own.read(CLEAR), fitted.spans, code.integer(1))
        if fitted.left is not None:
            launch.arguments.write(1, code.frame("i64", ROOM // 8).address())
            with code.when(fitted.left > ROOM):
                scratch.set(own.call(ALLOCATE, "i64", fitted.left))
                launch.arguments.write(1, scratch.get())
                with code.when(scratch.get() == 0, likely=False):
                    code.leave(given.without_memory())
        status = launch.execute(kernel, fitted.pieces, fitted.grain)
        if fitted.left is not None:
            with code.when(fitted.left > 0):
                launch.execute(own.read(FINISH), code.integer(1), code.integer(TINY))
        with code.when(scratch.get() != 0):
            own.call(RELEASE, None, scratch.get())
        leave(status)


def _lay(
    problem: Problem, own: Array, block: Array, shape: Array, steps: Array, operands: Value
) -> None:
    """The parameters of operands of any strides: sizes, and steps in bytes, missing axes first."""
    code, slots = problem.code, problem.slots
    axes, positions = shape.read(TUPLE_LENGTH) - 1, code.variable(1)
    sizes, missing = block.at(slots["size0"]), code.integer(AXES) - axes
    with code.loop(0, code.integer(AXES)) as axis:
        sizes.write(axis, 1)
    with code.loop(0, axes) as axis:
        size = integer_of(code, shape.read(axis + TUPLE_ITEMS))
        sizes.write(missing + axis, size)
        positions.set(positions.get() * size)
    problem["positions"] = positions.get()
    problem["classes"] = integer_of(code, shape.read(axes + TUPLE_ITEMS))
    with code.loop(0, operands) as operand:
        record = own.at(operand * 2 + OPERANDS)
        first, item = block.at(record.read(0)), record.read(1)
        taken = steps.at(operand * (axes + 1) + TUPLE_ITEMS)
        first.write(CLASS_STEP, integer_of(code, taken.read(axes)) * item)
        with code.loop(0, code.integer(AXES)) as axis:
            first.at(FIRST_STEP).write(axis, 0)
        with code.loop(0, axes) as axis:
            step = integer_of(code, taken.read(axis)) * item
            first.at(FIRST_STEP).write(missing + axis, step)


def _float(code: Code, own: Array, item: Value) -> Value:
    """A Python number as FLOAT, in float64."""
    value = code.variable(code.double(0.0))
    with code.either(code.slots(item).read(OBJECT_TYPE) == own.read(FLOAT)) as (
        floating,
        other,
    ):
        with floating:
            value.set(code.slots(item).read(FLOAT_VALUE).bits_as("f64"))
        with other:
            value.set(integer_of(code, item).to("f64"))
    return value.get().to("f32").to("f64")
