"""Runners of dynamic shapes and dynamic strides in machine code: they compute the launches from a call's sizes, strides and numbers.

`DynamicLaunchCode` calls a launch function (`geometry.py`) with values of the code being written; `LauncherBlock` makes a builtin of that code. Calls that the code does
not serve, and those whose kernels are not compiled yet, fall back to Python (`launcher.py`).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.formulas.tuned import CHOICES, form_of
from openaclnn.engines.gpu.launchers.geometry import (
    CLASS_AXIS,
    IGNORED,
    INTEGERS,
    MISSING,
    NUMBERS_ARGS,
    STRIDES_ARGS,
    DynamicLaunch,
    LaunchParams,
    elements_of,
    geometry_of,
    ignored_class,
    is_float,
    key_words,
)
from openaclnn.engines.gpu.launching import code as at, native, scratch
from openaclnn.engines.gpu.launching.code import (
    ADDRESSES,
    MAX_NUMBERS,
    NUMBERS,
    PLAN_NUMBERS,
    Block,
    LaunchCode,
    NoRoomError,
    Step,
)
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    KEY_WORDS,
    MAX_KEYS,
    VECTOR_BYTES,
    KernelSpec,
    Launch,
)
from openaclnn.engines.gpu.launching.native import word
from openaclnn.engines.gpu.launching.variants import are_64_bit
from openaclnn.engines.machine import callers
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.numbers import Number
from openaclnn.engines.machine.values import Value

MOST_ELEMENTS = 1 << 40  # products of sizes and strides stay in 64 bits


# Where a formula's numbers are read, behind those of the call: 1 / count, and the number that a choice between forms derives.
RECIPROCAL, DERIVED, VALUE_COUNT = range(MAX_NUMBERS, MAX_NUMBERS + 3)


class DynamicLaunchCode(LaunchCode):
    """The code of a `DynamicLaunch`, being written; launch functions read the call from it as from a `geometry.Call`. `choice`: the key in CHOICES of a kernel
    whose form a number chooses, or an empty string."""

    form: Number = 0  # the index of the form that is launched

    def __init__(self, code: Code, arguments: Sequence[Value], dynamic: DynamicLaunch, choice: str) -> None:  # fmt: skip
        super().__init__(code, arguments)
        self.dynamic, self.choice = dynamic, choice

    @property
    def axes(self) -> Value:
        """How many sizes a call has."""
        return self.call.axes

    def static_value(self, name: str) -> Value:
        """One static parameter."""
        return self.control.read(at.STATIC + [*self.dynamic.static].index(name))

    def static(self) -> dict[str, Value]:
        static, roles = self.dynamic.static, self.dynamic.roles
        return {name: self.static_value(name) for name in static if name not in roles}

    def size(self, axis: Value | int) -> Value:
        return self.call.shape.read(axis)

    def single(self, index: int) -> Value:
        """The call's number at an index, rounded to FLOAT."""
        return self.numbers.read(index).bits_as("f64").to("f32")

    # The launch function's result, written to the call's frame.

    def compute_launches(self) -> None:
        self.expect_axes()
        with self.while_served():
            self.product(0, self.axes, self.dynamic.limit or MOST_ELEMENTS - 1)
            if self.dynamic.limit:
                self.read_strides()
        with self.while_served():
            geometry = self.geometry()
            with self.while_served():
                launches = self.dynamic.launch(geometry)
                for step in launches.steps:
                    if step.when is not False:
                        self.put(step)
                offsets = zip(self.scratch_offsets, launches.scratch_offsets, strict=False)
                for variable, offset in offsets:
                    variable.set(self.written(offset))
                self.scratch.set(self.written(launches.scratch))

    def geometry(self) -> Any:
        """The launch function's input."""
        if not self.dynamic.roles:
            g = elements_of(self, *self.offsets())
            self.set_values(g.static, g.count)
            return g
        numbers = {
            name: self.numbers.read(place) if name in INTEGERS else self.single(place)
            for place, name in enumerate(self.dynamic.numbers)
        }
        if IGNORED in numbers:
            numbers[IGNORED] = ignored_class(numbers[IGNORED])
        return geometry_of(self, numbers)

    def written(self, number: Number) -> Value:
        """A number or truth of a launch as an integer of 64 bits."""
        if isinstance(number, int):
            return self.code.integer(int(number))
        integer: Value = number.to("i64")
        return integer

    def offset(self, place: int) -> Value:
        return self.addresses.read(place) & VECTOR_BYTES - 1

    def put(self, params: LaunchParams) -> None:
        """Write one launch's arguments, its grid, and the key of its variant."""
        code, index = self.code, [*self.dynamic.kernels].index(params.kernel)
        step, kernel = self.step(index), self.dynamic.kernels[params.kernel]
        when = self.written(params.when)
        with code.when(when != 0):
            step.wanted.write(0, when)
            self.beyond = code.integer(0)  # the bits above the lower 32 of all arguments
            self.put_arguments(step, kernel, params.args)
            self.expect((self.beyond >> 32) == 0)
            self.expect((self.written(params.grid) > 0) & (self.written(params.grid) < INT32_LIMIT))
            step.grid.write(0, self.written(params.grid))
            constexprs = {name: self.written(number) for name, number in params.constexprs.items()}
            options = [self.written(number) for number in (self.form, params.warps, params.aligned)]
            bits = code.integer(0)
            for number in (*constexprs.values(), *options):
                bits = bits | number
            self.expect((bits >> 16) == 0)
            for place, key in enumerate(key_words(constexprs, *options)):
                step.key.write(place, key)
            # The key's last word: a mask for the bits of misaligned addresses, all or none of which tell variants apart.
            step.key.write(KEY_WORDS - 1, -self.written(params.aligned))

    def put_arguments(self, step: Step, kernel: Any, args: Mapping[str, Number]) -> None:
        """Write a kernel's arguments in its order, then the hidden ones. Elementwise formulas have no kernel here, since one code serves formulas of any numbers of
        operands and numbers: theirs are in the order of `args`."""
        code, place = self.code, 0 if kernel else self.code.integer(0)
        names = [name for name in kernel.arg_names if name in args] if kernel else [*args]
        assert len(names) == len(args), args
        for name in names:
            number = args[name]
            if name == NUMBERS_ARGS:
                form = self.control.at(self.form * at.FORM_SLOTS + at.FORMS)
                with code.loop(0, form.read(0)) as index:
                    source = form.at(at.FORM_SOURCES).read(index)
                    step.arguments.write(place + index, form.at(at.FORM_WORDS).read(index))
                    with code.when(source >= 0):
                        step.arguments.write(place + index, self.values.read(source))
                place = place + form.read(0)
            elif name == STRIDES_ARGS:
                length = (self.control.read(ADDRESSES) - number) * self.dynamic.axes
                with code.loop(0, length) as index:
                    step.arguments.write(place + index, self.table.read(index))
                place = place + length
            else:
                step.arguments.write(place, self.argument(name, number))
                place = place + 1
        step.hide(place)

    def argument(self, name: str, number: Number) -> Value:
        """An argument as the driver takes it: the bits of a FLOAT, or an integer, which is noted in `beyond`."""
        if is_float(name):
            bits: Value = number.bits_as("i32").unsigned("i64")
            return bits
        integer = self.written(number)
        if not isinstance(number, int):
            self.beyond = self.beyond | (integer + INT32_LIMIT)
        return integer

    # The call's sizes and strides.

    def expect_axes(self) -> None:
        """Serve only calls of as many axes as the launch takes."""
        dynamic = self.dynamic
        if dynamic.limit and dynamic.position_axes != 1:
            self.expect((self.axes >= (2 if dynamic.roles else 1)) & (self.axes <= dynamic.axes))
        elif dynamic.axes:
            self.expect(self.axes == dynamic.axes)
        elif dynamic.roles:
            class_axis = self.static_value(CLASS_AXIS) if CLASS_AXIS in dynamic.static else 1
            self.expect(self.axes > class_axis)

    def product(self, start: Value | int, stop: Value, limit: int = MOST_ELEMENTS) -> Value:
        """The number of elements along some axes. Serves only calls of at most `limit` elements, with sizes from 1 to 2^31 - 1."""
        count = self.code.variable(self.code.integer(1))
        with self.code.loop(start, stop) as axis:
            size = self.size(axis)
            self.expect((size > 0) & (size < INT32_LIMIT))
            count.set((count.get() * size).least(limit + 1))
        self.expect(count.get() <= limit)
        return count.get()

    def read_strides(self) -> None:
        """Read every operand's strides, which must fit into 32 bits, into `table`, padded in front with 0 to the launch's number of axes."""
        code, count, depth = self.code, self.control.read(ADDRESSES), self.dynamic.axes
        self.expect(self.call.stride_count == count * self.axes)
        self.table = code.frame("i64", (MISSING + 1) * depth)
        for entry in range((MISSING + 1) * depth):
            self.table.write(entry, 0)
        with self.while_served():
            missing = code.integer(depth) - self.axes
            with code.loop(0, count) as operand, code.loop(0, self.axes) as place:
                stride = self.call.strides.read(operand * self.axes + place)
                self.expect(abs(stride) < INT32_LIMIT)
                self.table.write(operand * depth + missing + place, stride)

    def sizes(self) -> tuple[Value, ...]:
        code, depth = self.code, self.dynamic.axes
        sizes = code.frame("i64", depth)
        for axis in range(depth):
            sizes.write(axis, 1)
        with code.loop(0, self.axes) as place:
            sizes.write(code.integer(depth) - self.axes + place, self.size(place))
        return tuple(sizes.read(axis) for axis in range(depth))

    def strides(self, name: str) -> tuple[Value, ...]:
        depth, operand = self.dynamic.axes, self.static_value(name)
        return tuple(self.table.read(operand * depth + axis) for axis in range(depth))

    # What elementwise formulas need beside these.

    def flat_inputs(self) -> Value:
        """Whether there is one axis, along which every input has stride 1."""
        code, depth, others = self.code, self.dynamic.axes, self.code.variable(self.code.integer(0))
        with code.loop(0, self.control.read(ADDRESSES) - 1) as operand:
            stride = self.table.read(operand * depth + (depth - 1))
            others.set(others.get() | (stride - 1))
        return (self.axes == 1) & (others.get() == 0)

    def offsets(self) -> tuple[Value, Value]:
        """Whether an address that the first launch reads or writes by vectors is misaligned, and whether all these are misaligned by the same bytes."""
        code, step = self.code, self.step(0)
        low, high = code.variable(code.integer(VECTOR_BYTES)), code.variable(code.integer(0))
        with code.loop(0, step.pointers) as index:
            mask = step.block.at(at.MASKS).read(index)
            off = self.addresses.read(step.block.at(at.PLACES).read(index)) & mask
            with code.when(mask != 0):
                low.set(low.get().least(off))
                high.set((off > high.get()).choose(off, high.get()))
        return high.get() > 0, low.get() == high.get()

    def set_values(self, static: Mapping[str, Number], count: Value) -> None:
        """Write to `values` all numbers that a form may take, and choose the form."""
        code, self.values = self.code, self.code.frame("i64", VALUE_COUNT)
        numbers = [self.single(index) for index in range(MAX_NUMBERS)]
        values = *numbers, (1.0 / count.to("f64")).to("f32")
        self.form = code.integer(0)
        if self.choice:
            self.form, derived = CHOICES[self.choice].choose(static["exact"] != 0, numbers[0])
            values = *values, derived
        for place, number in enumerate(values):
            self.values.write(place, number.bits_as("i32").unsigned("i64"))


# Builtins.

_DOUBLE = struct.Struct("=d")


class LauncherBlock(Block):
    """The builtin of a `DynamicLaunch`: its control block, and the compiled variants that are entered there."""

    def __init__(self, dynamic: DynamicLaunch, plan: Plan) -> None:
        self._dynamic, self._entered = dynamic, set[tuple[Any, ...]]()
        self._choice = plan.kernel if plan.kernel in CHOICES and not dynamic.limit else ""
        self.name = f"{dynamic.name}.{self._choice}"
        if len(dynamic.static) > at.MAX_STATIC:
            raise NoRoomError
        takes = callers.SHAPE | (callers.STRIDES if dynamic.limit else 0)
        takes |= callers.FREE_NUMBERS if dynamic.takes_numbers else 0
        super().__init__(len(plan.operands), len(dynamic.kernels), at.MAX_VARIANTS, takes)
        values = array("q", dynamic.static.values())
        self._block[at.STATIC : at.STATIC + len(values)] = values
        self._set_numbers([plan.numbers[name] for name in dynamic.numbers])
        for specs in dynamic.specs:
            self._set_kernels(specs)
        if dynamic.forms:
            self._set_forms(plan)

    def write(self, code: Code, arguments: Sequence[Value]) -> None:
        DynamicLaunchCode(code, arguments, self._dynamic, self._choice).write()

    def _set_numbers(self, numbers: Sequence[int | float]) -> None:
        """Enter the plan's numbers, which hold for calls that pass none."""
        if len(numbers) > MAX_NUMBERS:
            raise NoRoomError
        block, integers = self._block, self._dynamic.integer_count
        block[NUMBERS], block[callers.INTEGER_NUMBERS] = len(numbers), (1 << integers) - 1
        for place, number in enumerate(numbers):
            if place < integers:
                block[PLAN_NUMBERS + place] = min(ignored_class(int(number)), INT32_LIMIT)
            else:
                _DOUBLE.pack_into(block, 8 * (PLAN_NUMBERS + place), number)

    def _set_kernels(self, specs: Mapping[str, KernelSpec]) -> None:
        """Enter which pointers the kernels take, and how many arguments."""
        for name, spec in specs.items():
            arguments, decided = spec.names
            # Beside the constexprs: the form, the warps, and whether addresses may be aligned.
            if len(decided) + 3 > MAX_KEYS:
                raise NoRoomError
            self.set_step(self._step_of(name), spec.slots, len(arguments))
            if any(slot and slot.place >= self._block[ADDRESSES] for slot in spec.slots):
                self.set_scratch(*scratch.functions())

    def _set_forms(self, plan: Plan) -> None:
        """Enter where each form's numbers are read: among the call's values, or, where the plan fixes a number, its bits."""
        names_of_forms = [form.formula.numbers for form in self._dynamic.forms]
        if len(names_of_forms) > at.MAX_FORMS or max(map(len, names_of_forms)) > at.MAX_FORM_NUMBERS:  # fmt: skip
            raise NoRoomError
        places = {name: place for place, name in enumerate(self._dynamic.numbers)}
        places |= {CHOICES[self._choice].derived: DERIVED} if self._choice else {}
        places |= {plan.reciprocal: RECIPROCAL} if plan.reciprocal else {}
        planned = form_of(plan)
        fixed = {**plan.numbers, **dict(zip(planned.formula.numbers, planned.numbers, strict=True))}  # fmt: skip
        for index, names in enumerate(names_of_forms):
            sources = [places.get(name, -1) for name in names]
            words = [0 if name in places else word(float_of(fixed[name])) for name in names]
            pad = [0] * (at.MAX_FORM_NUMBERS - len(names))
            form, begin = [len(names), *words, *pad, *sources], at.FORMS + index * at.FORM_SLOTS
            self._block[begin : begin + len(form)] = array("q", form)

    def _step_of(self, kernel: str) -> int:
        return [*self._dynamic.kernels].index(kernel)

    def enter_variant(
        self, name: str, form: int, launch: Launch, kernel: native.Kernel, misaligned: int
    ) -> None:
        """Enter a compiled variant of a kernel under its key, if it takes its arguments as the code writes them."""
        variant = name, form, kernel, launch.constexprs, launch.aligned, misaligned
        if variant in self._entered:
            return
        self._entered.add(variant)
        spec, constexprs = launch.spec, map(int, launch.constexprs)
        arguments, names = spec.names
        if kernel.floats() == [*map(is_float, arguments)] and not any(are_64_bit(launch.numbers)):
            named = dict(zip(names, constexprs, strict=True))
            key = key_words(named, form, launch.warps, int(launch.aligned))
            self.enter(self._step_of(name), kernel, [*key, misaligned])
