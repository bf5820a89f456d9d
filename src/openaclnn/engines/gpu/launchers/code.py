"""The machine code of launches of any size or strides: reads sizes, strides and numbers, and says what they decide.

A launch function (`geometry.py`), called with values of the code, says how launches follow from sizes; whatever the code does not serve,
Python does. `LauncherBlock` makes builtins of it.
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
    Kind,
    LaunchParams,
    elements_of,
    geometry_of,
    ignored,
    is_float,
    key_words,
)
from openaclnn.engines.gpu.launching import code as at, native, scratch
from openaclnn.engines.gpu.launching.code import (
    ADDRESSES,
    MAX_NUMBERS,
    NUMBERS,
    OWN_NUMBERS,
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
from openaclnn.engines.gpu.launching.variants import kinds_of
from openaclnn.engines.machine import callers
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.numbers import Number
from openaclnn.engines.machine.values import Value

MOST_ELEMENTS = 1 << 40  # products of sizes and strides stay in 64 bits


# What formulas' numbers may be: the call's, one over the count, and what a choice of forms derives.
SHARE, DERIVED, KNOWN = range(MAX_NUMBERS, MAX_NUMBERS + 3)


class KindCode(LaunchCode):
    """What a kind's launch function says, being written. `choice`: the kernel whose forms a number chooses from."""

    form: Number = 0  # which of a kernel's forms launches

    def __init__(self, code: Code, arguments: Sequence[Value], kind: Kind, choice: str) -> None:
        super().__init__(code, arguments)
        self.kind, self.choice = kind, choice

    @property
    def axes(self) -> Value:
        """How many sizes a call has."""
        return self.call.axes

    def known(self, name: str) -> Value:
        """What the plan decides."""
        return self.control.read(at.STATIC + [*self.kind.known].index(name))

    def static(self) -> dict[str, Value]:
        return {name: self.known(name) for name in self.kind.known if name not in self.kind.roles}

    def size(self, axis: Value | int) -> Value:
        return self.call.shape.read(axis)

    def single(self, index: int) -> Value:
        """A number as FLOAT."""
        return self.numbers.read(index).bits_as("f64").to("f32")

    # What the launch function says.

    def fit(self) -> None:
        self.expect_axes()
        with self.when_fit():
            self.product(0, self.axes, self.kind.limit or MOST_ELEMENTS - 1)
            if self.kind.limit:
                self.take_strides()
        with self.when_fit():
            geometry = self.geometry()
            with self.when_fit():
                launches = self.kind.launch(geometry)
                for step in launches.steps:
                    if step.when is not False:
                        self.put(step)
                for place, begin in zip(self.places, launches.places, strict=False):
                    place.set(self.written(begin))
                self.scratch.set(self.written(launches.scratch))

    def geometry(self) -> Any:
        """What the launch function gets."""
        if not self.kind.roles:
            g = elements_of(self, *self.offsets())
            self.take_known(g.static, g.count)
            return g
        numbers = {
            name: self.numbers.read(place) if name in INTEGERS else self.single(place)
            for place, name in enumerate(self.kind.numbers)
        }
        if IGNORED in numbers:
            numbers[IGNORED] = ignored(numbers[IGNORED])
        return geometry_of(self, numbers)

    def written(self, number: Number) -> Value:
        """A number of a launch, or a truth, as a value."""
        if isinstance(number, int):
            return self.code.integer(int(number))
        whole: Value = number.to("i64")
        return whole

    def offset(self, place: int) -> Value:
        return self.addresses.read(place) & VECTOR_BYTES - 1

    def put(self, params: LaunchParams) -> None:
        """One launch: its arguments, its grid, and the key of its kernel."""
        code, index = self.code, [*self.kind.kernels].index(params.kernel)
        step, kernel = self.step(index), self.kind.kernels[params.kernel]
        when = self.written(params.when)
        with code.when(when != 0):
            step.wanted.write(0, when)
            self.beyond = code.integer(0)  # the bits above the lower 32 of all arguments
            self.put_arguments(step, kernel, params.args)
            self.expect((self.beyond >> 32) == 0)
            self.expect((self.written(params.grid) > 0) & (self.written(params.grid) < INT32_LIMIT))
            step.grid.write(0, self.written(params.grid))
            constexprs = {name: self.written(number) for name, number in params.constexprs.items()}
            several = [self.written(number) for number in (self.form, params.warps, params.aligned)]
            bits = code.integer(0)
            for number in (*constexprs.values(), *several):
                bits = bits | number
            self.expect((bits >> 16) == 0)
            for place, key in enumerate(key_words(constexprs, *several)):
                step.key.write(place, key)
            # Which of the bits for misaligned addresses count: all, or none.
            step.key.write(KEY_WORDS - 1, -self.written(params.aligned))

    def put_arguments(self, step: Step, kernel: Any, args: Mapping[str, Number]) -> None:
        """A kernel's arguments, each by the name that the kernel has for it, and its hidden ones; those of formulas, which have as many operands and numbers as
        the formula has, are in their kernels' order."""
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
                length = (self.control.read(ADDRESSES) - number) * self.kind.axes
                with code.loop(0, length) as index:
                    step.arguments.write(place + index, self.table.read(index))
                place = place + length
            else:
                step.arguments.write(place, self.argument(name, number))
                place = place + 1
        step.hide(place)

    def argument(self, name: str, number: Number) -> Value:
        """As the driver takes it."""
        if is_float(name):
            bits: Value = number.bits_as("i32").unsigned("i64")
            return bits
        whole = self.written(number)
        if not isinstance(number, int):
            self.beyond = self.beyond | (whole + INT32_LIMIT)
        return whole

    # Where elements lie.

    def expect_axes(self) -> None:
        """As many as the kind takes."""
        kind = self.kind
        if kind.limit and kind.positions != 1:
            self.expect((self.axes >= (2 if kind.roles else 1)) & (self.axes <= kind.axes))
        elif kind.axes:
            self.expect(self.axes == kind.axes)
        elif kind.roles:
            self.expect(self.axes > (self.known(CLASS_AXIS) if CLASS_AXIS in kind.known else 1))

    def product(self, start: Value | int, stop: Value, limit: int = MOST_ELEMENTS) -> Value:
        """Not more than the limit, and along each axis less than 32 bits count."""
        count = self.code.variable(self.code.integer(1))
        with self.code.loop(start, stop) as axis:
            size = self.size(axis)
            self.expect((size > 0) & (size < INT32_LIMIT))
            count.set((count.get() * size).least(limit + 1))
        self.expect(count.get() <= limit)
        return count.get()

    def take_strides(self) -> None:
        """Every operand's strides along the axes, as 32 bits; the missing axes come before the others."""
        code, count, depth = self.code, self.control.read(ADDRESSES), self.kind.axes
        self.expect(self.call.stride_count == count * self.axes)
        self.table = code.frame("i64", (MISSING + 1) * depth)
        for entry in range((MISSING + 1) * depth):
            self.table.write(entry, 0)
        with self.when_fit():
            missing = code.integer(depth) - self.axes
            with code.loop(0, count) as operand, code.loop(0, self.axes) as place:
                stride = self.call.strides.read(operand * self.axes + place)
                self.expect(abs(stride) < INT32_LIMIT)
                self.table.write(operand * depth + missing + place, stride)

    def sizes(self) -> tuple[Value, ...]:
        code, depth = self.code, self.kind.axes
        sizes = code.frame("i64", depth)
        for axis in range(depth):
            sizes.write(axis, 1)
        with code.loop(0, self.axes) as place:
            sizes.write(code.integer(depth) - self.axes + place, self.size(place))
        return tuple(sizes.read(axis) for axis in range(depth))

    def strides(self, name: str) -> tuple[Value, ...]:
        depth = self.kind.axes
        return tuple(self.table.read(self.known(name) * depth + axis) for axis in range(depth))

    # What formulas are told.

    def in_a_row(self) -> Value:
        """Whether inputs have one axis, and a step of 1 along it."""
        code, depth, apart = self.code, self.kind.axes, self.code.variable(self.code.integer(0))
        with code.loop(0, self.control.read(ADDRESSES) - 1) as operand:
            step = self.table.read(operand * depth + (depth - 1))
            apart.set(apart.get() | (step - 1))
        return (self.axes == 1) & (apart.get() == 0)

    def offsets(self) -> tuple[Value, Value]:
        """Whether any of the first launch's addresses is off a vector's bounds where that matters, and whether all are, equally far."""
        code, step = self.code, self.step(0)
        low, high = code.variable(code.integer(VECTOR_BYTES)), code.variable(code.integer(0))
        with code.loop(0, step.pointers) as index:
            mask = step.block.at(at.MASKS).read(index)
            off = self.addresses.read(step.block.at(at.PLACES).read(index)) & mask
            with code.when(mask != 0):
                low.set(low.get().least(off))
                high.set((off > high.get()).choose(off, high.get()))
        return high.get() > 0, low.get() == high.get()

    def take_known(self, static: Mapping[str, Number], count: Value) -> None:
        """What a form's numbers may be, and the form."""
        code, self.values = self.code, self.code.frame("i64", KNOWN)
        numbers = [self.single(index) for index in range(MAX_NUMBERS)]
        known = *numbers, (1.0 / count.to("f64")).to("f32")
        self.form = code.integer(0)
        if self.choice:
            self.form, derived = CHOICES[self.choice].choose(static["exact"] != 0, numbers[0])
            known = *known, derived
        for place, number in enumerate(known):
            self.values.write(place, number.bits_as("i32").unsigned("i64"))


# Builtins.

_DOUBLE = struct.Struct("=d")


class LauncherBlock(Block):
    """The builtin for calls of a kind being made."""

    def __init__(self, kind: Kind, plan: Plan) -> None:
        self._kind, self._entered = kind, set[tuple[Any, ...]]()
        self._choice = plan.kernel if plan.kernel in CHOICES and not kind.limit else ""
        self.name = f"{kind.name}.{self._choice}"
        if len(kind.known) > at.MAX_STATIC:
            raise NoRoomError
        takes = callers.SHAPE | (callers.STRIDES if kind.limit else 0)
        takes |= callers.TOLD_NUMBERS if kind.takes_numbers else 0
        super().__init__(len(plan.operands), len(kind.kernels), at.MAX_VARIANTS, takes)
        self._block[at.STATIC : at.STATIC + len(kind.known)] = array("q", kind.known.values())
        self._take_numbers([plan.numbers[name] for name in kind.numbers])
        for specs in kind.specs:
            self._take_kernels(specs)
        if kind.forms:
            self._take_forms(plan)

    def write(self, code: Code, arguments: Sequence[Value]) -> None:
        KindCode(code, arguments, self._kind, self._choice).write()

    def _take_numbers(self, numbers: Sequence[int | float]) -> None:
        """The plan's own numbers."""
        if len(numbers) > MAX_NUMBERS:
            raise NoRoomError
        block, whole = self._block, self._kind.whole
        block[NUMBERS], block[callers.WHOLE] = len(numbers), (1 << whole) - 1
        for place, number in enumerate(numbers):
            if place < whole:
                block[OWN_NUMBERS + place] = min(ignored(int(number)), INT32_LIMIT)
            else:
                _DOUBLE.pack_into(block, 8 * (OWN_NUMBERS + place), number)

    def _take_kernels(self, specs: Mapping[str, KernelSpec]) -> None:
        """Their pointers, and how many arguments they have."""
        for name, spec in specs.items():
            arguments, decided = spec.names
            # Beside the constexprs: the form, the warps, and whether addresses may be aligned.
            if len(decided) + 3 > MAX_KEYS:
                raise NoRoomError
            self.take_step(self._step_of(name), spec.slots, len(arguments))
            if any(slot and slot.place >= self._block[ADDRESSES] for slot in spec.slots):
                self.take_scratch(*scratch.functions())

    def _take_forms(self, plan: Plan) -> None:
        """The numbers of each form by their names: those of the call, of a choice, one over the count, or the plan's own."""
        several = [form.formula.numbers for form in self._kind.forms]
        if len(several) > at.MAX_FORMS or max(map(len, several)) > at.MAX_FORM_NUMBERS:
            raise NoRoomError
        known = {name: place for place, name in enumerate(self._kind.numbers)}
        known |= {CHOICES[self._choice].derived: DERIVED} if self._choice else {}
        known |= {plan.reciprocal: SHARE} if plan.reciprocal else {}
        planned = form_of(plan)
        fixed = {**plan.numbers, **dict(zip(planned.formula.numbers, planned.numbers, strict=True))}  # fmt: skip
        for index, names in enumerate(several):
            sources = [known.get(name, -1) for name in names]
            words = [0 if name in known else word(float_of(fixed[name])) for name in names]
            pad = [0] * (at.MAX_FORM_NUMBERS - len(names))
            form, begin = [len(names), *words, *pad, *sources], at.FORMS + index * at.FORM_SLOTS
            self._block[begin : begin + len(form)] = array("q", form)

    def _step_of(self, kernel: str) -> int:
        return [*self._kind.kernels].index(kernel)

    def ready(
        self, name: str, form: int, launch: Launch, kernel: native.Kernel, misaligned: int
    ) -> None:
        """Enter a compiled variant of a kernel, which is found by a key."""
        variant = name, form, kernel, launch.constexprs, launch.aligned, misaligned
        if variant in self._entered:
            return
        self._entered.add(variant)
        spec, constexprs = launch.spec, map(int, launch.constexprs)
        arguments, names = spec.names
        if kernel.floats() == [*map(is_float, arguments)] and not any(kinds_of(launch.numbers)):
            known = dict(zip(names, constexprs, strict=True))
            key = key_words(known, form, launch.warps, int(launch.aligned))
            self.enter(self._step_of(name), kernel, [*key, misaligned])
