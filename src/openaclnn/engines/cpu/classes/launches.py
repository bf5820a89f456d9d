"""`ClassKernel`: a kernel with a class axis, and its runners for one plan, for dynamic shapes (row-major operands), and for dynamic strides (few elements).

A kernel has one function that divides its work into pieces (`ClassKernel.cut`), by its parameters. For one plan these are ints. For a builtin they are values of the
machine code being written: at each call it copies a parameter block, which was made once for the specialization, writes the slots that depend on sizes, strides and
numbers, and launches. Python takes 10 us for the same.
"""

from __future__ import annotations

import itertools
import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from openaclnn.core.dtypes import DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.parameters import (
    AXES,
    CLASS_STEP,
    FIRST_STEP,
    LAST_STEP,
    OFFSET,
    objection,
    pack,
    places,
)
from openaclnn.engines.cpu.launching import control as at, pool
from openaclnn.engines.cpu.launching.launcher import TINY, Launch
from openaclnn.engines.cpu.registry import Runner, SizedRunner
from openaclnn.engines.machine.builtins import publish, python
from openaclnn.engines.machine.callers import (
    CALL_HEADER,
    FREE_NUMBERS,
    NOT_READY,
    RAISED,
    SHAPE,
    STRIDES,
    CallBlock,
    CallWords,
)
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.numbers import Number, ceil_div, flag, inverse, least, most, where
from openaclnn.engines.machine.values import Value

StridedRun = Callable[[Sequence[int], int, Sequence[int], Sequence[int], Sequence[float]], int]
"""A function of addresses, a stream, the sizes of the positions' axes and then the classes, the strides along them of one operand after the other, in
elements, and numbers."""

ALONE = 1 << 15  # elements up to which one thread is faster than two
IMAGES = -1
"""A value of `ClassKernel.axes`: operands have the shape (images, classes, pixels), where images and pixels may be any number of axes."""


class Kernels(NamedTuple):
    """The addresses of the functions that are launched; 0 where there is none."""

    write: int
    sums: int = 0  # leaves sums in scratch memory
    clear: int = 0  # clears the output
    finish: int = 0  # adds up what `write` left in scratch memory


class Launches(NamedTuple):
    """What a call launches, in how many pieces. A Python 0 says that no call of the kernel has such a launch."""

    variant: Number  # which of the kernels
    pieces: Number
    grain: Number  # pieces up to which one thread is faster than two
    sum_blocks: Number = 0  # blocks of sums that are added up first; 0: none are
    spans: Number = 0  # spans of the output that are cleared first; 0: it is not
    left: Number = 0  # bytes that pieces leave for a last kernel; 0: there is none
    # The grain on an OpenMP team, whose threads spin, where workers sleep; 0: the same.
    grain_of_team: Number = 0


class Words(Protocol):
    """The memory of parameters: an array, or the frame of a builtin."""

    def read(self, index: int) -> Number: ...

    def write(self, index: int, value: Number) -> None: ...


class _Ints:
    """A parameter block of ints."""

    def __init__(self, words: array[int]) -> None:
        self.read, self.write = words.__getitem__, words.__setitem__


class Problem:
    """The parameters of a call, by their names. `shape` is that of row-major operands; `plan` is None for the calls of a builtin."""

    def __init__(
        self, words: Words, slots: Mapping[str, int], shape: tuple[Number, ...] = (), plan: Plan | None = None
    ) -> None:  # fmt: skip
        self._words, self.slots, self.shape, self.plan = words, slots, shape, plan

    def __getitem__(self, name: str) -> Number:
        return self._words.read(self.slots[name])

    def __setitem__(self, name: str, value: Number) -> None:
        self._words.write(self.slots[name], value)

    def put(self, **values: Number) -> None:
        for name, value in values.items():
            self[name] = value


def example(
    kernel: str, dtype: DType, classes: int, inputs: Sequence[tuple[str, DType, str]],
    outputs: Sequence[tuple[str, DType, str]], positions: int = 2, reduction: str = "",
) -> Plan:  # fmt: skip
    """A plan for compiling ahead, from operands' parameters, dtypes and roles. The role "planes" is that of a full operand whose positions are contiguous, not its classes."""
    steps = {"full": (classes, 1), "planes": (1, positions), "positions": (1, 0), "classes": (0, 1), "single": (0, 0)}  # fmt: skip

    def operand(parameter: str, kind: DType, role: str) -> Operand:
        step, class_step = steps[role]
        role = "full" if role == "planes" else role
        return Operand(parameter, kind, (step,), class_step, role=role)

    numbers = {
        "ignore_index": -100, "mean": True, "weighted": False, "label_smoothing": 0.0, "zloss_scale": 0.0,
        "grad_zloss_given": False, "total_weight_given": False,
    }  # fmt: skip
    first, *more = (operand(*described) for described in outputs)
    return Plan(
        "", kernel, dtype, (positions,), tuple(operand(*described) for described in inputs), first, numbers, classes, 0,
        more=tuple(more), reduction=reduction,
    )  # fmt: skip


def cut_tiles(
    problem: Problem, tile: Number, chunk: Number, chunks: Number = 1
) -> tuple[Number, Number]:
    """The number of pieces, each a tile of positions by a chunk of classes, and the number up to which one thread is faster than two."""
    positions = problem["positions"]
    problem["tile"] = tile
    grain = most(ALONE // (least(tile, positions) * chunk), 1)
    return ceil_div(positions, tile) * chunks, grain


class ClassKernel:
    """A kernel with a class axis. `operands` maps the names that its code uses to the parameters of plans; `name` is the key of its builtins' code.

    A subclass computes parameters from a plan (`numbers`), divides the work (`cut`), and compiles the code (`kernels`).
    """

    axes = 2  # of the operands with classes: 2, or IMAGES
    any_axis = False  # whether the class axis may be another than the second
    strided = False  # whether it serves dynamic strides, too
    free: Sequence[tuple[str, str, float]] = (("ignore_index", "i64", 1),)
    """Each of the plan's free numbers: its slot, its type there, and a factor that it is multiplied by."""

    def __init__(self, name: str, slots: Mapping[str, int], operands: Mapping[str, str]) -> None:
        self.name, self.slots, self.operands = name, slots, operands
        self.places = places(slots, operands)

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        """The parameters of a plan that depend neither on sizes nor on strides."""
        raise NotImplementedError

    def cut(self, problem: Problem) -> Launches:
        """The launches for these parameters; it also writes the parameters that tell the kernel how the work is divided."""
        raise NotImplementedError

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        """The compiled functions of a variant that `cut` has chosen."""
        raise NotImplementedError

    def called(self, plan: Plan, variant: int) -> Mapping[str, int]:
        """The addresses of compiled functions that the variant calls, as parameters."""
        return {}

    def variants(self) -> Iterator[Plan]:
        """Plans that together need all of its code, for compiling ahead."""
        raise NotImplementedError

    def declines(self, plan: Plan) -> str | None:
        """Why it does not serve a plan; None if it does."""
        return objection(plan, AXES if self.axes == IMAGES else 1)

    def runner(self, plan: Plan) -> Runner:
        """The runner of a plan."""
        words = self._block(plan)
        problem = Problem(_Ints(words), self.slots, plan=plan)
        launches = self.cut(problem)
        problem.put(**self.called(plan, launches.variant))
        return _PlanBlock(words, launches, self.kernels(plan, launches.variant)).runner()

    def dynamic_shapes(self, plan: Plan) -> SizedRunner | None:
        """The runner of dynamic shapes, for row-major operands; None where they are not served."""
        if plan.class_axis != 1 and not (self.any_axis and plan.class_axis >= 0):
            return None
        template = self._block(plan)
        template[self.slots["size0"]] = 1
        for operand, first in zip(plan.operands, self.first_slots(plan), strict=True):
            item = operand.dtype.itemsize
            if operand.role == "positions":
                template[first + LAST_STEP] = item
            elif operand.role != "single":
                template[first + CLASS_STEP] = item
        return _builtin_of(self, plan, template)

    def dynamic_strides(self, plan: Plan) -> StridedRun | None:
        """The runner of dynamic strides; None where they are not served."""
        if not self.strided:
            return None
        template, operands = self._block(plan), []
        for operand, first in zip(plan.operands, self.first_slots(plan), strict=True):
            template[first + OFFSET] = 0  # the plan has one for an output with a negative stride
            operands += [first, operand.dtype.itemsize]
        return _builtin_of(self, plan, template, operands)

    def free_numbers(self, plan: Plan) -> Sequence[tuple[str, str, float]]:
        """`free` for one plan."""
        return self.free

    def is_dense(self, plan: Plan) -> bool:
        """Whether positions are contiguous in all operands that have them."""
        operands = [operand for operand in plan.operands if operand.role in ("full", "positions")]
        return all(operand.strides[-1] == 1 for operand in operands)

    def _block(self, plan: Plan) -> array[int]:
        """The parameters of a plan, but for those that `cut` writes, which are 0."""
        known = {"dense": int(self.is_dense(plan)), "item": plan.compute.itemsize}
        return pack(self.slots, plan, self.first_slots(plan), {**known, **self.numbers(plan)})

    def first_slots(self, plan: Plan) -> Sequence[int]:
        """The index of the first slot of each of the plan's operands."""
        return [self.places[operand.parameter] for operand in plan.operands]

    def place_row_major(self, problem: Problem) -> None:
        """Write the sizes, and the steps in bytes of row-major operands. The template has an element's bytes as the step between classes of an operand with classes
        and positions, and as the step between positions of one without classes; of a single element both are 0.

        Images of one class, and images of one pixel, merge to one image, as in a plan: sums are added in the order of its pieces.
        """
        images, classes, pixels = problem.shape
        positions, one_pixel, one_class = images * pixels, pixels == 1, classes == 1
        flat = one_pixel | one_class
        problem.put(
            classes=classes, positions=positions, dense=flag(inverse(one_pixel) | one_class),
            size1=where(flat, 1, images), size2=where(flat, positions, pixels),
        )  # fmt: skip
        for name in self.operands:
            if name in self.full:
                item = problem[f"{name}.class_step"]
                problem[f"{name}.step1"] = pixels * classes * item
                problem[f"{name}.step2"] = where(one_pixel, classes * item, item)
                problem[f"{name}.class_step"] = pixels * item
            else:
                problem[f"{name}.step1"] = problem[f"{name}.step2"] * pixels

    full: tuple[str, ...] = ()
    """Operands that have classes and positions."""


# The control block of a builtin, after the header that its callers need: the pool's block, the parameter template, the class axis, the variant that a call needed but was not
# compiled, then the kernels, 0 until they are compiled. The block of one plan has its parameters in the template's place, and after its only variant the pieces of each launch.
CONTROL, TEMPLATE, CLASS_AXIS, MISSING_VARIANT, SUMS, CLEAR, FINISH, VARIANTS = range(
    CALL_HEADER, CALL_HEADER + 8
)
COUNTS = VARIANTS + 1
MAX_VARIANTS = 4
ROOM = 256  # bytes of scratch memory in the frame; more is allocated
OPERANDS = VARIANTS + MAX_VARIANTS  # for dynamic strides: each operand's first slot and itemsize


def _builtin_of(
    kernel: ClassKernel, plan: Plan, template: array[int], operands: Sequence[int] = ()
) -> Callable[..., int]:
    """The builtin `run(addresses, stream, shape, numbers)`; with `operands` that of dynamic strides, `run(addresses, stream, sizes, strides, numbers)`."""

    def fallback(
        addresses: Sequence[int], stream: int, shape: Sequence[int], *more: Sequence[Any]
    ) -> int:
        """Serves calls until the builtin has its kernels and workers, and those with more axes than it takes."""
        *strides, numbers = (*more, ())[: 1 + bool(operands)]
        if len(numbers) == len(code.free):  # of whichever types: the builtin takes ints and floats
            numbers = [int(number) if kind == "i64" else float(number) for number, (_, kind, _) in zip(numbers, code.free, strict=True)]  # fmt: skip
        rest = *map(tuple, strides), tuple(numbers)
        if operands and len(shape) > AXES + 1:
            return _over_outer_axes(run, addresses, stream, shape, operands[1::2], *rest)
        pool.ensure_started()
        # If another thread has come in between, this is its variant, and this call falls back once more.
        variant = block.missing_variant
        Problem(_Ints(template), kernel.slots).put(**kernel.called(plan, variant))
        block.enter(variant, kernel.kernels(plan, variant))
        return run(tuple(addresses), stream, tuple(shape), *rest)

    code = _BuiltinCode(kernel, bool(operands), kernel.free_numbers(plan))
    block = _Block(code, template, plan.class_axis, operands)
    run = block.callable(code.name, code.emit, fallback)
    return run


def bound(run: StridedRun, plan: Plan, numbers: Sequence[float] = ()) -> Runner:
    """A plan's runner that calls a runner of dynamic strides."""
    sizes = (*plan.shape, plan.classes)
    steps = tuple([step for one in plan.operands for step in (*one.strides, one.class_stride)])
    shifts = [operand.offset * operand.dtype.itemsize for operand in plan.operands]

    def run_plan(addresses: Sequence[int], stream: int = 0) -> int:
        if any(shifts):
            addresses = [place + shift for place, shift in zip(addresses, shifts, strict=True)]
        return run(tuple(addresses), stream, sizes, steps, numbers)

    return run_plan


def _over_outer_axes(
    run: StridedRun, addresses: Sequence[int], stream: int, shape: Sequence[int], items: Sequence[int],
    steps: Sequence[int], numbers: Sequence[Any],
) -> int:  # fmt: skip
    """Call a runner of dynamic strides for each index along the outer axes that it does not take."""
    axes, outer = len(shape), len(shape) - 1 - AXES
    each = [steps[start : start + axes] for start in range(0, len(steps), axes)]
    inner = tuple(step for one in each for step in one[outer:])
    status = 0
    for index in itertools.product(*map(range, shape[:outer])):
        moved = [
            address + item * sum(map(operator.mul, index, one))
            for address, item, one in zip(addresses, items, each, strict=True)
        ]
        status |= run(tuple(moved), stream, tuple(shape[outer:]), inner, numbers)
    return status


class _Block(CallBlock):
    """The control block of a builtin for dynamic shapes or strides."""

    def __init__(
        self, code: _BuiltinCode, template: array[int], class_axis: int, operands: Sequence[int]
    ) -> None:
        takes = SHAPE | (STRIDES if code.strided else 0) | FREE_NUMBERS
        integers = sum(1 << place for place, (_, kind, _) in enumerate(code.free) if kind == "i64")
        super().__init__(OPERANDS + len(operands), takes, integers)
        first = pool.control_address(), template.buffer_info()[0], class_axis
        self._block[CONTROL : CONTROL + len(first)] = array("q", first)
        self._block[OPERANDS:] = array("q", operands)
        self._held.append(template)

    @property
    def missing_variant(self) -> int:
        """The variant whose kernel the last call needed, and did not find."""
        return self._block[MISSING_VARIANT]

    def enter(self, variant: int, kernels: Kernels) -> None:
        """From now on, launch these functions for calls that need the variant."""
        write, *others = kernels
        self._block[SUMS : SUMS + len(others)] = array("q", others)
        publish(self.address + 8 * (VARIANTS + variant), write)


class _PlanBlock(CallBlock):
    """The control block of the launches of one plan."""

    def __init__(self, words: array[int], launches: Launches, kernels: Kernels) -> None:
        counts = launches[1:]
        super().__init__(COUNTS + len(counts), takes=0)
        write, *others = kernels
        known = pool.control_address(), words.buffer_info()[0], 0, 0, *others, write, *counts
        self._block[CONTROL:] = array("q", known)
        self._held.append(words)

    def runner(self) -> Runner:
        def fallback(addresses: Sequence[int], stream: int = 0) -> int:
            """Serves calls until there are workers."""
            pool.ensure_started()
            return run(tuple(addresses), stream)

        run = self.callable("classes.plan", emit_plan, fallback)
        return run


def emit_plan(code: Code, arguments: Sequence[Value]) -> None:
    """Write the function that makes the launches of a plan, for a call's addresses."""
    call = CallWords(code, arguments)
    state, many = call.block, len(Launches._fields) - 1
    launches = Launches(0, *(state.read(COUNTS + place) for place in range(many)))
    _launch(code, call, state.read(TEMPLATE), state.read(VARIANTS), launches)
    code.leave(code.integer(NOT_READY))


def _launch(
    code: Code, call: CallWords, parameters: Value, write: Value, launches: Launches
) -> None:
    """Write all launches, in order; the function leaves with the status if the workers run."""
    state = call.block
    _, pieces, grain, sum_blocks, spans, left, grain_of_team = launches
    launch = Launch(code, code.slots(state.read(CONTROL)), call.locked != 0)
    spins = (launch.control.read(at.TEAM) != 0) & (grain_of_team > 0)
    grain = spins.choose(grain_of_team, grain)
    launch.arguments.write(0, parameters)
    launch.arguments.write(1, 0)
    with code.loop(0, call.operands) as place:
        launch.arguments.write(place + 2, call.addresses.read(place))
    with code.when(launch.ready(pieces, grain)):
        scratch = code.variable(0)
        size = most(left, sum_blocks * totals.STRIDE)
        with code.when(size > 0):
            launch.arguments.write(1, code.frame("i64", ROOM // 8).address())
        with code.when(size > ROOM):
            scratch.set(python(code, "PyMem_RawMalloc", "i64", size))
            launch.arguments.write(1, scratch.get())
            with code.when((scratch.get() == 0) & (left > 0), likely=False):
                with code.when(call.locked == 0):
                    code.leave(code.integer(NOT_READY))
                python(code, "PyErr_NoMemory", "i64")
                code.leave(code.integer(RAISED))
        # Without memory each piece adds up the sums itself.
        with code.when((sum_blocks > 0) & (launch.arguments.read(1) != 0)):
            launch.execute(state.read(SUMS), sum_blocks, code.integer(totals.GRAIN))
        with code.when(spans > 0):
            launch.execute(state.read(CLEAR), spans, code.integer(1))
        status = launch.execute(write, pieces, grain)
        with code.when(left > 0):
            launch.execute(state.read(FINISH), code.integer(1), code.integer(TINY))
        with code.when(scratch.get() != 0):
            python(code, "PyMem_RawFree", None, scratch.get())
        code.leave(status)


class _BuiltinCode:
    """Writes the function of words of a kernel's builtin."""

    def __init__(
        self, kernel: ClassKernel, strided: bool, free: Sequence[tuple[str, str, float]]
    ) -> None:
        self.kernel, self.strided, self.free = kernel, strided, free
        self.name = f"{kernel.name}.{'dynamic_strides' if strided else 'dynamic_shapes'}"
        if free != kernel.free:
            self.name += "".join(f".{slot}" for slot, *_ in free)

    def emit(self, code: Code, arguments: Sequence[Value]) -> None:
        call, axes = CallWords(code, arguments), self.kernel.axes
        fits = call.axes > (1 if self.strided else call.block.read(CLASS_AXIS))
        if self.strided:
            fits = fits & (call.axes <= AXES + 1)
            fits = fits & (call.stride_count == call.operands * call.axes)
        elif axes != IMAGES:
            fits = call.axes == axes
        with code.when(fits):
            self._run(code, call)
        code.leave(code.integer(NOT_READY))

    def _run(self, code: Code, call: CallWords) -> None:
        """Write the parameters and the launches; the function leaves with the status if the kernels are compiled and the workers run."""
        kernel, state = self.kernel, call.block
        count = len(kernel.slots)
        block = code.frame("i64", count)
        code.move(state.read(TEMPLATE), block.address(), code.integer(8 * count))
        if self.strided:
            problem = Problem(block, kernel.slots)
            _place_strided(code, problem, call, block)
        else:
            problem = Problem(block, kernel.slots, self._shape(code, call))
            kernel.place_row_major(problem)
        with code.when(call.number_count == len(self.free)):
            for index, (slot, kind, factor) in enumerate(self.free):
                word = call.numbers.read(index)
                if kind == "f64":  # as FLOAT
                    number = word.bits_as("f64").to("f32").to("f64")
                    word = (number if factor == 1 else number * factor).bits_as("i64")
                problem[slot] = word
        launches = Launches(*map(code.as_integer, kernel.cut(problem)))
        # The other functions of the variant were written before this one.
        write = code.read_shared(state, launches.variant + VARIANTS)
        with code.when(write == 0, likely=False):
            state.write(MISSING_VARIANT, launches.variant)
        with code.when(write != 0):
            _launch(code, call, block.address(), write, launches)

    def _shape(self, code: Code, call: CallWords) -> tuple[Number, ...]:
        """The call's shape as images, classes, pixels; rows have one pixel."""
        if self.kernel.axes != IMAGES:
            return *(call.shape.read(axis) for axis in range(2)), 1
        classes = call.block.read(CLASS_AXIS)

        def product(start: Value | int, stop: Value) -> Value:
            size = code.variable(1)
            with code.loop(start, stop) as axis:
                size.set(size.get() * call.shape.read(axis))
            return size.get()

        return product(0, classes), call.shape.read(classes), product(classes + 1, call.axes)


def _place_strided(code: Code, problem: Problem, call: CallWords, block: Array) -> None:
    """Write the parameters of strided operands: sizes, and steps in bytes; axes that the call lacks come first."""
    axes, positions = call.axes - 1, code.variable(1)
    sizes, missing = block.at(problem.slots["size0"]), code.integer(AXES) - axes
    with code.loop(0, code.integer(AXES)) as axis:
        sizes.write(axis, 1)
    with code.loop(0, axes) as axis:
        size = call.shape.read(axis)
        sizes.write(missing + axis, size)
        positions.set(positions.get() * size)
    problem["positions"] = positions.get()
    problem["classes"] = call.shape.read(axes)
    with code.loop(0, call.operands) as operand:
        record = call.block.at(operand * 2 + OPERANDS)
        first, item = block.at(record.read(0)), record.read(1)
        taken = call.strides.at(operand * call.axes)
        first.write(CLASS_STEP, taken.read(axes) * item)
        with code.loop(0, code.integer(AXES)) as axis:
            first.at(FIRST_STEP).write(axis, 0)
        with code.loop(0, axes) as axis:
            first.at(FIRST_STEP).write(missing + axis, taken.read(axis) * item)
