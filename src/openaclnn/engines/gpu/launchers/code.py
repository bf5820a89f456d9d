"""The machine code of `blocks.py`: reads sizes, numbers and addresses, writes what they decide, calls the CUDA driver.

A launch function (`geometry.py`), called with values of the code, says how launches follow from sizes; whatever the code does not serve, Python does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from openaclnn.engines.gpu.formulas.tuned import CHOICES
from openaclnn.engines.gpu.launchers.geometry import (
    FLOATS,
    FORM,
    KEY_WORDS,
    MISSING,
    NUMBERS_ARGS,
    STRIDES_ARGS,
    Elements,
    Geometry,
    LaunchParams,
    Layout,
    Number,
    Pattern,
    Targets,
    padded,
)  # fmt: skip
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES
from openaclnn.engines.gpu.launching.native_code import (
    CONFIG_SLOTS,
    CONFIG_STREAM,
    MAX_POINTERS,
    Entry,
    Memory,
)
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.objects import FLOAT_VALUE, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

# The control block, one int64 a slot: functions and objects by address, then what a plan decides.
(
    LAUNCH, SAVE, RESTORE, VECTORCALL, FROM_INT64, ERROR, CLEAR, DECREF, TUPLE, FLOAT, INTEGER, FALLBACK,
    ALLOCATE, RELEASE, ADDRESSES, SUMMED, NUMBERS, WHOLE,
) = range(18)  # fmt: skip
OWN_NUMBERS, MAX_NUMBERS = 18, 4  # integers where WHOLE has a bit, else float64 by their bits
STATIC, MAX_STATIC = 22, 32  # what a launch function is told of the plan
HEADER = STATIC + MAX_STATIC

# Of each launch: which addresses it takes and how they must be aligned, how many arguments, and the variants that it chooses from, one
# after the other as they were ENTERED.
POINTERS, VALUES, ENTERED, PLACES = range(4)
MASKS, VARIANTS = PLACES + MAX_POINTERS, PLACES + 2 * MAX_POINTERS
MAX_VALUES, MAX_VARIANTS, MAX_HIDDEN = 48, 40, 4
MAX_SCRATCH = 4  # addresses behind those of a call
FUNCTION, KEY, CONFIG = 0, 1, 1 + KEY_WORDS  # FUNCTION: 0 until it is compiled
VARIANT_SLOTS = CONFIG + CONFIG_SLOTS
STEP_SLOTS = VARIANTS + MAX_VARIANTS * VARIANT_SLOTS
MAX_STEPS = 5
FORMS = HEADER + MAX_STEPS * STEP_SLOTS  # of formulas

_ONE_ROW = 1 << 32  # of a grid, whose second number is in the upper half
_EXACT = 1 << 53  # integers up to it are floats
MOST_ELEMENTS = 1 << 40  # products of sizes and strides stay in 64 bits

# What a call has of each launch: whether there is one, its variant, the grid, the variant's key, then pointers, arguments and hidden ones.
WANTED_AT, VARIANT_AT, GRID_AT, KEY_AT = range(4)
VALUES_AT = KEY_AT + KEY_WORDS
MAX_PARAMETERS = MAX_POINTERS + MAX_VALUES + MAX_HIDDEN
CALL_SLOTS = VALUES_AT + MAX_PARAMETERS


class Cell:
    """One number of a frame."""

    def __init__(self, frame: Array, place: int) -> None:
        self.frame, self.place = frame, place

    def get(self) -> Value:
        return self.frame.read(self.place)

    def set(self, value: Value | int) -> None:
        self.frame.write(self.place, value)


class Step:
    """A launch being written."""

    def __init__(self, code: Code, control: Array, frame: Array, index: Value | int) -> None:
        self.code, self.block = code, control.at(index * STEP_SLOTS + HEADER)
        own = frame.at(index * CALL_SLOTS)
        self.wanted, self.variant, self.grid = (
            Cell(own, place) for place in (WANTED_AT, VARIANT_AT, GRID_AT)
        )
        self.key, self.values = own.at(KEY_AT), own.at(VALUES_AT)
        self.pointers, self.count = self.block.read(POINTERS), self.block.read(VALUES)
        self.arguments = self.values.at(self.pointers)

    def search(self) -> None:
        """The variant that has the key; the first where none has."""
        self.variant.set(0)
        with self.code.loop(0, self.block.read(ENTERED)) as index:
            own = self.block.at(index * VARIANT_SLOTS + VARIANTS)
            with self.code.when(self.has_key(own)):
                self.variant.set(index)

    def has_key(self, variant: Array) -> Value:
        """Whether a variant is the one that the key says."""
        apart = self.code.integer(0)
        for place in range(KEY_WORDS):
            apart = apart | (variant.read(KEY + place) ^ self.key.read(place))
        return apart == 0

    def chosen(self) -> Array:
        """The kernel that launches."""
        return self.block.at(self.variant.get() * VARIANT_SLOTS + VARIANTS)

    def point(self, addresses: Array) -> Value:
        """Pointers in their places; a bit for each that is off a vector's bounds."""
        misaligned = self.code.variable(self.code.integer(0))
        with self.code.loop(0, self.pointers) as index:
            address = addresses.read(self.block.at(PLACES).read(index))
            self.values.write(index, address)
            off = ((address & self.block.at(MASKS).read(index)) != 0).to("i64")
            misaligned.set(misaligned.get() | off << index)
        return misaligned.get()

    def start(self, control: Array, stream: Value) -> Value:
        """The driver's code as an int64."""
        code, chosen = self.code, self.chosen()
        config = code.frame("i64", CONFIG_SLOTS)
        places = code.frame("i64", MAX_PARAMETERS)
        for slot in range(CONFIG_SLOTS):
            config.write(slot, chosen.read(CONFIG + slot))
        config.write(0, self.grid.get() + _ONE_ROW)
        config.write(CONFIG_STREAM, stream)
        with code.loop(0, self.pointers + self.count + MAX_HIDDEN) as index:
            places.write(index, self.values.address(index))
        function = chosen.read(FUNCTION)
        return control.call(LAUNCH, "i32", config, function, places, 0).unsigned("i64")


class Launcher(Entry):
    """The builtin `run(addresses, stream, shape, numbers)` being written, or one with strides before the numbers: what a pattern's launch
    function says."""

    pattern: Pattern
    name = ""
    more: tuple[str, ...] = ("numbers",)  # what it takes after the shape
    memory = Memory(FROM_INT64, VECTORCALL, DECREF, ALLOCATE, RELEASE)

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.frame = code.frame("i64", MAX_STEPS * CALL_SLOTS)
        for index in range(len(self.pattern.kernels)):
            self.frame.write(index * CALL_SLOTS + WANTED_AT, 0)
        self.addresses = code.frame("i64", MAX_POINTERS + MAX_SCRATCH)
        self.numbers = code.frame("i64", MAX_NUMBERS)
        # Bytes between launches, and where in them pointers begin.
        self.scratch, *self.places = (code.variable(code.integer(0)) for _ in range(1 + MAX_SCRATCH))  # fmt: skip

    def write(self, given: Array, number: Value) -> None:
        code, control = self.code, self.control
        # Whoever calls differently from a runner's protocol meets the fallback.
        self.expect(number == 3 + len(self.more))
        with self.when_fit():
            places = 0, 2, *range(3, 3 + len(self.more))
            addresses, shape, *others = (code.slots(given.read(index)) for index in places)
            for one in (addresses, shape, *others):
                self.expect(one.read(OBJECT_TYPE) == control.read(TUPLE))
            with self.when_fit():
                axes, count = shape.read(TUPLE_LENGTH), control.read(ADDRESSES)
                self.expect(addresses.read(TUPLE_LENGTH) == count)
                for name, one in zip(self.more, others, strict=True):
                    with self.when_fit():
                        getattr(self, f"take_{name}")(one, axes)
                with self.when_fit():
                    with code.loop(0, count) as index:
                        item = addresses.read(index + TUPLE_ITEMS)
                        self.addresses.write(index, integer_of(code, item))
                    self.fit_all(shape.at(TUPLE_ITEMS), axes)
        with self.when_fit():
            self.run(given.read(1))
        code.leave(control.call(VECTORCALL, "i64", control.read(FALLBACK), given, number, 0))

    def fit_all(self, shape: Array, axes: Value) -> None:
        """The kernels that launch, if all are there."""
        self.fit(shape, axes)
        with self.when_fit(), self.each_step() as step:
            misaligned = step.point(self.addresses)
            step.key.write(KEY_WORDS - 1, step.key.read(KEY_WORDS - 1) & misaligned)
            step.search()
            chosen = step.chosen()
            self.expect(self.code.read_shared(chosen, FUNCTION) != 0)
            self.expect(step.has_key(chosen))

    def when_scratch(self) -> AbstractContextManager[None]:
        return self.code.when(self.scratch.get() != 0)

    def step(self, index: Value | int) -> Step:
        return Step(self.code, self.control, self.frame, index)

    @contextmanager
    def each_step(self) -> Iterator[Step]:
        """Those that a call has, in order."""
        code = self.code
        with code.loop(0, code.integer(len(self.pattern.kernels))) as index:
            step = self.step(index)
            with code.when(step.wanted.get() != 0):
                yield step

    def known(self, name: str) -> Value:
        """What the plan decides."""
        place = (*self.pattern.operands, *self.pattern.static).index(name)
        return self.control.read(STATIC + place)

    def size(self, shape: Array, axis: Value | int) -> Value:
        return integer_of(self.code, shape.read(axis))

    def take_numbers(self, given: Array, axes: Value) -> None:
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
            with code.either(kind == control.read(FLOAT)) as (floating, other):
                with floating:
                    self.expect(~whole)
                    self.numbers.write(index, code.slots(item).read(FLOAT_VALUE))
                with other:
                    self.expect(kind == control.read(INTEGER))
                    with self.when_fit():
                        value = integer_of(code, item)
                        with code.when(value == -1):  # or too large for 64 bits
                            self.expect(control.call(ERROR, "i64") == 0)
                            control.call(CLEAR, None)
                        self.expect(whole | (abs(value) <= _EXACT))
                        bits = value.to("f64").bits_as("i64")
                        self.numbers.write(index, whole.choose(value, bits))

    def single(self, index: int) -> Value:
        """A number as FLOAT."""
        return self.numbers.read(index).bits_as("f64").to("f32")

    def share_out(self, memory: Value, addresses: Array) -> None:
        """Where in scratch memory launches find what others leave."""
        for place, own in enumerate(self.places):
            addresses.write(place, memory + own.get())

    def start(self, queue: Value) -> None:
        """All launches, as long as none fails."""
        with self.each_step() as step, self.when_fit():
            self.mark(step.start(self.control, queue))

    def run(self, stream: Value) -> None:
        """All launches on a stream that is a Python integer."""
        self.queue_all(integer_of(self.code, stream), stream)
        with self.when_fit():
            self.code.leave(self.control.call(FROM_INT64, "i64", 0))

    def queue_all(self, queue: Value, stream: Value) -> None:
        """All launches, with scratch memory that is given back as soon as they are queued. `stream` is the queue as a Python integer, where
        there is such memory."""
        code, control = self.code, self.control
        memory = code.variable(code.integer(0))
        with self.when_scratch():
            memory.set(self.take_memory(self.scratch.get(), stream))
            own = self.addresses.at(control.read(ADDRESSES))
            self.share_out(integer_of(code, memory.get()), own)
            with self.each_step() as step:
                step.point(self.addresses)
        # A full queue makes the driver wait, perhaps for a host function that needs the interpreter.
        saved = control.call(SAVE, "i64")
        self.start(queue)
        control.call(RESTORE, None, saved)
        with code.when(memory.get() != 0):
            self.give_back(memory.get())

    # What the launch function says.

    def fit(self, shape: Array, axes: Value) -> None:
        """All steps, from the sizes as Python has them."""
        with self.when_fit():
            geometry = self.geometry(shape, axes)
            with self.when_fit():
                found = self.pattern.launch(geometry)
                for step in found.steps:
                    self.put(step)
                for place, own in zip(self.places, found.places, strict=False):
                    place.set(self.written(own))
                self.scratch.set(self.written(found.scratch))

    def geometry(self, shape: Array, axes: Value) -> Any:
        """What the launch function gets."""
        pattern = self.pattern
        layout, targets = (self.strided if pattern.limit else self.row_major)(shape, axes)
        numbers = self.numbers.read(0), *(self.single(place) for place in range(1, MAX_NUMBERS))
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
            constexprs = [params.constexprs[name] for name in sorted(params.constexprs)]
            several = [self.written(own) for own in (*constexprs, params.warps, params.aligned)]
            assert len(several) <= 4 * (KEY_WORDS - 1), params
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
        for hidden in range(MAX_HIDDEN):
            step.arguments.write(len(names) + hidden, 0)

    def argument(self, name: str, number: Number) -> Value:
        """As the driver takes it."""
        if name in FLOATS:
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

    def row_major(self, shape: Array, axes: Value) -> tuple[Layout, Targets]:
        pattern, code = self.pattern, self.code
        self.expect(axes == pattern.axes if pattern.axes else axes >= 2)
        first, second, area = (code.variable(code.integer(1)) for _ in range(3))
        with self.when_fit():
            first.set(self.size(shape, 0))
            second.set(self.size(shape, 1))
            with code.loop(2, axes) as axis:
                side = self.size(shape, axis)
                self.expect((side > 0) & (side < INT32_LIMIT))
                area.set((area.get() * side).least(MOST_ELEMENTS + 1))
        sizes = first.get(), second.get()
        self.expect(area.get() <= MOST_ELEMENTS)
        self.elements((*sizes, area.get().least(INT32_LIMIT - 1)), MOST_ELEMENTS)
        each = {name: self.known(name) for name in pattern.operands}
        assert pattern.row_major is not None
        layout = pattern.row_major(sizes, area.get(), each)
        return layout, Targets((1, 1, sizes[0] * area.get()), (0, 0, 1), 1)

    def take_strides(self, given: Array, axes: Value) -> None:
        """Every operand's strides along the axes, as 32 bits; the missing axes come before the others."""
        code, count, depth = self.code, self.control.read(ADDRESSES), self.pattern.axes
        fewest = 2 if self.pattern.operands else 1
        self.expect(axes == depth if self.pattern.exactly else (axes >= fewest) & (axes <= depth))
        self.expect(given.read(TUPLE_LENGTH) == count * axes)
        self.table = code.frame("i64", (MISSING + 1) * depth)
        for entry in range((MISSING + 1) * depth):
            self.table.write(entry, 0)
        with self.when_fit():
            missing = code.integer(depth) - axes
            with code.loop(0, count) as operand, code.loop(0, axes) as place:
                stride = integer_of(code, given.read(operand * axes + place + TUPLE_ITEMS))
                self.expect(abs(stride) < INT32_LIMIT)
                self.table.write(operand * depth + missing + place, stride)

    def sizes(self, shape: Array, axes: Value) -> tuple[Value, ...]:
        """Of all axes that a pattern of strides has; up to its limit of elements."""
        code, depth = self.code, self.pattern.axes
        found = code.frame("i64", depth)
        for axis in range(depth):
            found.write(axis, 1)
        with code.loop(0, axes) as place:
            found.write(code.integer(depth) - axes + place, self.size(shape, place))
        several = tuple(found.read(axis) for axis in range(depth))
        self.elements(several, self.pattern.limit)
        return several

    def strided(self, shape: Array, axes: Value) -> tuple[Layout, Targets]:
        pattern, depth = self.pattern, self.pattern.axes
        *sizes, classes = self.sizes(shape, axes)
        strides: dict[str, tuple[Any, ...]] = {
            name: tuple(self.table.read(self.known(name) * depth + axis) for axis in range(depth))
            for name in pattern.operands
        }
        along = strides[pattern.operands[0]][:-1]
        targets = Targets(padded(sizes, 3, 1), padded(along, 3, 0), 3)
        return Layout(tuple(sizes), classes, strides), targets


MAX_FORM_NUMBERS, MAX_FORMS = 12, 5
# Of each form: how many numbers, then each one's word, and which of the values known at the call it is instead, or -1.
FORM_WORDS, FORM_SOURCES, FORM_SLOTS = 1, 1 + MAX_FORM_NUMBERS, 1 + 2 * MAX_FORM_NUMBERS
# Those values are the call's numbers, one over the count, and what a choice of forms makes.
SHARE, MADE, KNOWN = MAX_NUMBERS, MAX_NUMBERS + 1, MAX_NUMBERS + 4


class FormulaLauncher(Launcher):
    """The same of kernels that are made from formulas: these have as many operands and numbers as the formula has. A kernel may have
    several forms, which a number chooses from."""

    choice = ""

    def geometry(self, shape: Array, axes: Value) -> Elements:
        code, pattern = self.code, self.pattern
        sizes: tuple[Value, ...] = ()
        count = code.variable(code.integer(1))
        in_a_row: Value | bool = True
        if pattern.limit:
            sizes = self.sizes(shape, axes)
            for size in sizes:
                count.set(count.get() * size)
            in_a_row = self.lies_in_a_row(axes)
        else:
            with code.loop(0, axes) as axis:
                size = self.size(shape, axis)
                self.expect((size > 0) & (size < INT32_LIMIT))
                count.set((count.get() * size).least(MOST_ELEMENTS))
            self.expect(count.get() < MOST_ELEMENTS)
        self.take_known(count.get())
        static = {name: self.known(name) for name in pattern.static}
        return Elements(count.get(), static, *self.offsets(), in_a_row, sizes)

    def lies_in_a_row(self, axes: Value) -> Value:
        """Whether inputs have one axis, and a step of 1 along it."""
        code, depth, apart = self.code, self.pattern.axes, self.code.variable(self.code.integer(0))
        with code.loop(0, self.control.read(ADDRESSES) - 1) as operand:
            step = self.table.read(operand * depth + (depth - 1))
            apart.set(apart.get() | (step - 1))
        return (axes == 1) & (apart.get() == 0)

    def offsets(self) -> tuple[Value, Value]:
        """Whether any of the first launch's addresses is off a vector's bounds where that matters, and whether all are, equally far."""
        code, step = self.code, self.step(0)
        low, high = code.variable(code.integer(VECTOR_BYTES)), code.variable(code.integer(0))
        with code.loop(0, step.pointers) as index:
            mask = step.block.at(MASKS).read(index)
            off = self.addresses.read(step.block.at(PLACES).read(index)) & mask
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

    def put(self, params: LaunchParams) -> None:
        super().put(params._replace(constexprs={**params.constexprs, FORM: self.form}))

    def put_arguments(self, step: Step, kernel: Any, args: Mapping[str, Number]) -> None:
        """In the order of formulas' kernels."""
        code, at = self.code, self.code.integer(0)
        for name, number in args.items():
            if name == NUMBERS_ARGS:
                own = self.control.at(self.form * FORM_SLOTS + FORMS)
                with code.loop(0, own.read(0)) as index:
                    source = own.at(FORM_SOURCES).read(index)
                    step.arguments.write(at + index, own.at(FORM_WORDS).read(index))
                    with code.when(source >= 0):
                        step.arguments.write(at + index, self.values.read(source))
                at = at + own.read(0)
            elif name == STRIDES_ARGS:
                length = (self.control.read(ADDRESSES) - number) * self.pattern.axes
                with code.loop(0, length) as index:
                    step.arguments.write(at + index, self.table.read(index))
                at = at + length
            else:
                step.arguments.write(at, self.argument(name, number))
                at = at + 1
        for hidden in range(MAX_HIDDEN):
            step.arguments.write(at + hidden, 0)


_codes: dict[str, type[Launcher]] = {}


def code_of(pattern: Pattern) -> type[Launcher]:
    """The code of a pattern's launches."""
    if pattern.name not in _codes:
        more = ("strides", "numbers") if pattern.limit else ("numbers",)
        own = {"name": pattern.name, "pattern": pattern, "more": more}
        _codes[pattern.name] = type("PatternLauncher", (Launcher,), own)
    return _codes[pattern.name]


def formula_code_of(pattern: Pattern, kernel: str) -> type[Launcher]:
    """The same for a formula's kernel, which may choose among forms by its numbers."""
    choice = kernel if kernel in CHOICES and not pattern.limit else ""
    name = f"{pattern.name}.{choice}" if choice else pattern.name
    if name not in _codes:
        more = ("strides",) if pattern.limit else ("numbers",)
        own = {"name": name, "pattern": pattern, "more": more, "choice": choice}
        _codes[name] = type("FormulaLauncher", (FormulaLauncher,), own)
    return _codes[name]
