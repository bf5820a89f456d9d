"""The machine code of launches of any size or strides: reads sizes, strides and numbers, and says what they decide.

A launch function (`geometry.py`), called with values of the code, says how launches follow from sizes; whatever the code does not serve,
Python does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openaclnn.engines.gpu.formulas.tuned import CHOICES
from openaclnn.engines.gpu.launchers.geometry import (
    CLASS_AXIS,
    FORM,
    MISSING,
    NUMBERS_ARGS,
    STRIDES_ARGS,
    Elements,
    Geometry,
    LaunchParams,
    Layout,
    Pattern,
    Targets,
    is_float,
    padded,
)
from openaclnn.engines.gpu.launching import code as at
from openaclnn.engines.gpu.launching.code import (
    ADDRESSES,
    MAX_NUMBERS,
    NUMBERS,
    OWN_NUMBERS,
    WHOLE,
    Entry,
    Step,
)
from openaclnn.engines.gpu.launching.launch import INT32_LIMIT, KEY_WORDS, MAX_KEYS, VECTOR_BYTES
from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.numbers import Number
from openaclnn.engines.machine.objects import FLOAT_VALUE, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

_EXACT = 1 << 53  # integers up to it are floats
MOST_ELEMENTS = 1 << 40  # products of sizes and strides stay in 64 bits


class PatternEntry(Entry):
    """The builtin `run(addresses, stream, shape, numbers)` being written, or one with strides before the numbers: what a pattern's launch
    function says."""

    pattern: Pattern
    form: Number = 0  # which of a kernel's forms launches
    more: tuple[str, ...] = ("shape", "numbers")

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.numbers = code.frame("i64", MAX_NUMBERS)

    def known(self, name: str) -> Value:
        """What the plan decides."""
        place = (*self.pattern.operands, *self.pattern.static).index(name)
        return self.control.read(at.STATIC + place)

    def take_shape(self, shape: Array) -> None:
        self.shape, self.axes = shape.at(TUPLE_ITEMS), shape.read(TUPLE_LENGTH)

    def size(self, axis: Value | int) -> Value:
        return integer_of(self.code, self.shape.read(axis))

    def take_numbers(self, given: Array) -> None:
        """The call's numbers; without any, the plan's own."""
        code, control = self.code, self.control
        count, own = given.read(TUPLE_LENGTH), control.read(NUMBERS)
        self.expect((count == 0) | (count == own))
        for place in range(MAX_NUMBERS):
            self.numbers.write(place, control.read(OWN_NUMBERS + place))
        with self.when_fit(), code.loop(0, count) as index:
            item = given.read(index + TUPLE_ITEMS)
            kind = code.slots(item).read(OBJECT_TYPE)
            whole = control.read(WHOLE).bit(index)
            with code.either(kind == control.read(at.FLOAT)) as (floating, other):
                with floating:
                    self.expect(~whole)
                    self.numbers.write(index, code.slots(item).read(FLOAT_VALUE))
                with other:
                    self.expect(kind == control.read(at.INTEGER))
                    with self.when_fit():
                        value = integer_of(code, item)
                        with code.when(value == -1):  # or too large for 64 bits
                            self.expect(control.call(at.ERROR, "i64") == 0)
                            control.call(at.CLEAR, None)
                        self.expect(whole | (abs(value) <= _EXACT))
                        bits = value.to("f64").bits_as("i64")
                        self.numbers.write(index, whole.choose(value, bits))

    def single(self, index: int) -> Value:
        """A number as FLOAT."""
        return self.numbers.read(index).bits_as("f64").to("f32")

    # What the launch function says.

    def fit(self) -> None:
        with self.when_fit():
            geometry = self.geometry()
            with self.when_fit():
                found = self.pattern.launch(geometry)
                for step in found.steps:
                    self.put(step)
                for place, own in zip(self.places, found.places, strict=False):
                    place.set(self.written(own))
                self.scratch.set(self.written(found.scratch))

    def geometry(self) -> Any:
        """What the launch function gets."""
        pattern = self.pattern
        layout, targets = self.strided() if pattern.limit else self.row_major()
        numbers = tuple(
            self.numbers.read(place) if place < pattern.whole else self.single(place)
            for place in range(MAX_NUMBERS)
        )
        static = {name: self.known(name) for name in pattern.static}
        return Geometry(layout, targets, static, numbers, self.offset, pattern.limit > 0)

    def written(self, number: Number) -> Value:
        """A number of a launch, or a truth, as a value."""
        if isinstance(number, int):
            return self.code.integer(int(number))
        whole: Value = number.to("i64")
        return whole

    def offset(self, place: int) -> Value:
        where = self.code.integer(place) if place >= 0 else self.control.read(ADDRESSES) + place
        return self.addresses.read(where) & VECTOR_BYTES - 1

    def put(self, params: LaunchParams) -> None:
        """One launch: its arguments, its grid, and the key of its kernel."""
        code, index = self.code, [*self.pattern.kernels].index(params.kernel)
        step, kernel = self.step(index), self.pattern.kernels[params.kernel]
        when = self.written(params.when)
        with code.when(when != 0):
            step.wanted.set(when)
            self.beyond = code.integer(0)  # the bits above the lower 32 of all arguments
            self.put_arguments(step, kernel, params.args)
            self.expect((self.beyond >> 32) == 0)
            self.expect((self.written(params.grid) > 0) & (self.written(params.grid) < INT32_LIMIT))
            step.grid.set(self.written(params.grid))
            named = {**params.constexprs, FORM: self.form}
            constexprs = [named[name] for name in sorted(named)]
            several = [self.written(own) for own in (*constexprs, params.warps, params.aligned)]
            assert len(several) <= MAX_KEYS, params
            bits = code.integer(0)
            for own in several:
                bits = bits | own
            self.expect((bits >> 16) == 0)
            for word in range(KEY_WORDS - 1):
                key = code.integer(0)
                for place, own in enumerate(several[4 * word : 4 * word + 4]):
                    key = key | own << 16 * place
                step.key.write(word, key)
            # Which of the bits for misaligned addresses count: all, or none.
            step.key.write(KEY_WORDS - 1, -self.written(params.aligned))

    def put_arguments(self, step: Step, kernel: Any, args: Mapping[str, Number]) -> None:
        """A kernel's arguments, each by the name that the kernel has for it, and its hidden ones."""
        names = [own for own in kernel.arg_names if own in args]
        assert len(names) == len(args), args
        for place, name in enumerate(names):
            step.arguments.write(place, self.argument(name, args[name]))
        step.hide(len(names))

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

    def elements(self, sizes: Sequence[Value], limit: int) -> None:
        """Expect so many at most."""
        total = self.code.integer(1)
        for size in sizes:
            self.expect((size > 0) & (size < INT32_LIMIT))
            total = (total * size).least(limit + 1)
        self.expect(total <= limit)

    def row_major(self) -> tuple[Layout, Targets]:
        pattern, code = self.pattern, self.code
        class_axis = self.known(CLASS_AXIS) if CLASS_AXIS in pattern.static else code.integer(1)
        self.expect(self.axes == pattern.axes if pattern.axes else self.axes > class_axis)
        before, classes, behind = (code.variable(code.integer(1)) for _ in range(3))
        with self.when_fit():
            classes.set(self.size(class_axis))
            for sides, start, stop in (
                (before, 0, class_axis),
                (behind, class_axis + 1, self.axes),
            ):
                with code.loop(start, stop) as axis:
                    side = self.size(axis)
                    self.expect((side > 0) & (side < INT32_LIMIT))
                    sides.set((sides.get() * side).least(MOST_ELEMENTS + 1))
        sizes = before.get(), classes.get(), behind.get()
        self.expect((sizes[1] > 0) & (sizes[1] < INT32_LIMIT))
        total = code.integer(1)
        for size in sizes:
            self.expect(size <= MOST_ELEMENTS)
            total = (total * size.least(INT32_LIMIT - 1)).least(MOST_ELEMENTS + 1)
        self.expect(total <= MOST_ELEMENTS)
        each = {name: self.known(name) for name in pattern.operands}
        assert pattern.row_major is not None
        layout = pattern.row_major(sizes[:2], sizes[2], each)
        return layout, Targets((1, 1, sizes[0] * sizes[2]), (0, 0, 1), 1)

    def take_strides(self, given: Array) -> None:
        """Every operand's strides along the axes, as 32 bits; the missing axes come before the others."""
        code, count, depth = self.code, self.control.read(ADDRESSES), self.pattern.axes
        fewest = 2 if self.pattern.operands else 1
        self.expect(
            self.axes == depth
            if self.pattern.exactly
            else (self.axes >= fewest) & (self.axes <= depth)
        )
        self.expect(given.read(TUPLE_LENGTH) == count * self.axes)
        self.table = code.frame("i64", (MISSING + 1) * depth)
        for entry in range((MISSING + 1) * depth):
            self.table.write(entry, 0)
        with self.when_fit():
            missing = code.integer(depth) - self.axes
            with code.loop(0, count) as operand, code.loop(0, self.axes) as place:
                stride = integer_of(code, given.read(operand * self.axes + place + TUPLE_ITEMS))
                self.expect(abs(stride) < INT32_LIMIT)
                self.table.write(operand * depth + missing + place, stride)

    def sizes(self) -> tuple[Value, ...]:
        """Of all axes that a pattern of strides has; up to its limit of elements."""
        code, depth = self.code, self.pattern.axes
        found = code.frame("i64", depth)
        for axis in range(depth):
            found.write(axis, 1)
        with code.loop(0, self.axes) as place:
            found.write(code.integer(depth) - self.axes + place, self.size(place))
        several = tuple(found.read(axis) for axis in range(depth))
        self.elements(several, self.pattern.limit)
        return several

    def strided(self) -> tuple[Layout, Targets]:
        pattern, depth = self.pattern, self.pattern.axes
        *sizes, classes = self.sizes()
        strides: dict[str, tuple[Any, ...]] = {
            name: tuple(self.table.read(self.known(name) * depth + axis) for axis in range(depth))
            for name in pattern.operands
        }
        along = strides[pattern.operands[0]][:-1]
        targets = Targets(padded(sizes, 3, 1), padded(along, 3, 0), 3)
        return Layout(tuple(sizes), classes, strides), targets


# Those values are the call's numbers, one over the count, and what a choice of forms makes.
SHARE, MADE, KNOWN = MAX_NUMBERS, MAX_NUMBERS + 1, MAX_NUMBERS + 4


class FormulaEntry(PatternEntry):
    """The same of kernels that are made from formulas: these have as many operands and numbers as the formula has. A kernel may have
    several forms, which a number chooses from."""

    choice = ""

    def geometry(self) -> Elements:
        code, pattern = self.code, self.pattern
        sizes: tuple[Value, ...] = ()
        count = code.variable(code.integer(1))
        in_a_row: Value | bool = True
        if pattern.limit:
            sizes = self.sizes()
            for size in sizes:
                count.set(count.get() * size)
            in_a_row = self.lies_in_a_row()
        else:
            with code.loop(0, self.axes) as axis:
                size = self.size(axis)
                self.expect((size > 0) & (size < INT32_LIMIT))
                count.set((count.get() * size).least(MOST_ELEMENTS))
            self.expect(count.get() < MOST_ELEMENTS)
        self.take_known(count.get())
        static = {name: self.known(name) for name in pattern.static}
        return Elements(count.get(), static, *self.offsets(), in_a_row, sizes)

    def lies_in_a_row(self) -> Value:
        """Whether inputs have one axis, and a step of 1 along it."""
        code, depth, apart = self.code, self.pattern.axes, self.code.variable(self.code.integer(0))
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

    def take_known(self, count: Value) -> None:
        """What a form's numbers may be, and the form."""
        code, self.values = self.code, self.code.frame("i64", KNOWN)
        numbers = [self.single(index) for index in range(MAX_NUMBERS)]
        made: list[Value] = []
        self.form = code.integer(0)
        if self.choice:
            exact = self.known("exact") != 0
            self.form, made = CHOICES[self.choice].write(code, exact, numbers[0])
        share = (code.double(1.0) / count.to("f64")).to("f32")
        for place, number in enumerate((*numbers, share, *made)):
            self.values.write(place, number.bits_as("i32").unsigned("i64"))

    def put_arguments(self, step: Step, kernel: Any, args: Mapping[str, Number]) -> None:
        """In the order of formulas' kernels."""
        code, place = self.code, self.code.integer(0)
        for name, number in args.items():
            if name == NUMBERS_ARGS:
                own = self.control.at(self.form * at.FORM_SLOTS + at.FORMS)
                with code.loop(0, own.read(0)) as index:
                    source = own.at(at.FORM_SOURCES).read(index)
                    step.arguments.write(place + index, own.at(at.FORM_WORDS).read(index))
                    with code.when(source >= 0):
                        step.arguments.write(place + index, self.values.read(source))
                place = place + own.read(0)
            elif name == STRIDES_ARGS:
                length = (self.control.read(ADDRESSES) - number) * self.pattern.axes
                with code.loop(0, length) as index:
                    step.arguments.write(place + index, self.table.read(index))
                place = place + length
            else:
                step.arguments.write(place, self.argument(name, number))
                place = place + 1
        step.hide(place)


_entries: dict[str, type[PatternEntry]] = {}


def entry_of(pattern: Pattern) -> type[PatternEntry]:
    """The code of a pattern's launches."""
    more = ("shape", "strides", "numbers") if pattern.limit else ("shape", "numbers")
    return _entry(PatternEntry, pattern.name, {"pattern": pattern, "more": more})


def formula_entry_of(pattern: Pattern, kernel: str) -> type[PatternEntry]:
    """The same for a formula's kernel, which may choose among forms by its numbers."""
    choice = kernel if kernel in CHOICES and not pattern.limit else ""
    name = f"{pattern.name}.{choice}" if choice else pattern.name
    more = ("shape", "strides") if pattern.limit else ("shape", "numbers")
    return _entry(FormulaEntry, name, {"pattern": pattern, "more": more, "choice": choice})


def _entry(base: type[PatternEntry], name: str, known: Mapping[str, Any]) -> type[PatternEntry]:
    if name not in _entries:
        _entries[name] = type(base.__name__, (base,), {"name": name, **known})
    return _entries[name]
