"""The machine code of the short road: read the arrays, find the kind of call, take or make the outputs, run.

Whatever is not as a kind wants it gives NotImplemented, and the call takes the full way.
"""

from __future__ import annotations

from typing import NamedTuple

from openaclnn.engines.cpu.launching.launcher import Launch
from openaclnn.engines.cpu.layouts import gathered
from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.outputs import Outputs
from openaclnn.repeat.words import slots as at

__all__ = ["RoadCode", "emit_road"]

HOST = 1  # DLPack's number for the CPU


def emit_road(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `road(*arrays, *options, product)`. Outputs are the last of the arrays; several may be one tuple."""
    RoadCode(code, control, given).write(number)


class _Work(NamedTuple):
    """What runs a kind, as its record has it."""

    kernel: Value  # 0: the runner does it
    runner: Value
    grain: Value
    constants: Value  # how many
    addresses: Value  # how many
    sized: Value  # what the runner takes besides
    gathering: Value  # what brings elements of any strides to the kernel; 0: nothing
    laid: Value  # whether sizes and strides are read
    lead: Array
    numbers: tuple[Array, Value]
    extent: Value  # what the kernel runs over: elements, or units
    launch: Launch


class RoadCode(Outputs):
    """The function being written."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        super().__init__(code, control, given)
        # What a runner is called with, and how many these are; what it is for words, and its block.
        self.items, self.prepared = code.frame("i64", 5), code.variable(0)
        self.words, self.words_block = (code.variable(0) for _ in range(2))

    def write(self, number: Value) -> None:
        code, control, doubt = self.code, self.control, self.doubt
        alone = number == self.arrays + self.options + 1
        together = (number == self.inputs + self.options + 2) & ~alone
        doubt.expect(alone | together)
        with doubt.when_none():
            # Another product or engine than the process's own: the full way knows what that means.
            doubt.expect(self.given.read(number - 1) == control.read(at.NONE))
            self.out.set(self.given.read(self.inputs))
            self.expect_nothing_chosen()
        places = self.widen(together)
        with doubt.when_none(), code.when(together):
            self.spread(places)
        self.serve()
        with doubt.when_none():
            code.leave(self.result.get())
        with code.when(self.result.get() != 0):
            self.drop(self.result.get())
        control.call(at.INCREF, None, control.read(at.NOT_IMPLEMENTED))
        code.leave(control.read(at.NOT_IMPLEMENTED))

    def serve(self) -> None:
        """Read the arrays, find the kind of call, run."""
        code, doubt = self.code, self.doubt
        with code.loop(0, self.arrays) as index, doubt.when_none():
            self.look(index, self.view(index))
        found = code.variable(-1)
        with doubt.when_none():
            self.search(found)
        doubt.expect(found.get() >= 0)
        with doubt.when_none():
            self.run(self.record(found.get()))

    def run(self, record: Array) -> None:
        """Run the kernel of a record. It may change while Python code runs in between: what is needed of it is read before."""
        code, doubt = self.code, self.doubt
        keep, kernel, runner = (record.read(own) for own in (at.KEEP, at.KERNEL, at.RUNNER))
        self.hold_kind(keep)
        fresh, library = record.read(at.FRESH), record.read(at.OWN_LIBRARY)
        work = self.work(record, kernel, runner)
        own_record = self.kept_record(record, work.laid)
        operands = self.write_arguments(record, work)
        stream = code.frame("i64", 1)
        stream.write(0, 0)
        self.ask_stream(library, self.own(record, self.inputs).read(at.FIRST), stream)
        with doubt.when_none():
            self.expect_free(record)
        with doubt.when_none():
            self.expect_untracked(library)
        with doubt.when_none(), code.when(fresh != 0):
            self.expect_ordered(record)
        with doubt.when_none(), code.when(fresh != 0):
            self.make_outputs(record, work.lead, library, operands)
        with doubt.when_none():
            self.take_outputs(fresh, library)
        with doubt.when_none():
            self.execute(own_record, work, operands, stream)
        self.leave_kind(keep)

    def work(self, record: Array, kernel: Value, runner: Value) -> _Work:
        grain, constants = record.read(at.GRAIN), record.read(at.CONSTANTS)
        addresses, sized = record.read(at.ADDRESSES), record.read(at.SIZED)
        lead, numbers = self.view(record.read(at.LEAD)), self.numbers(record)
        units, elements = record.read(at.UNITS), lead.read(at.SIZE)
        extent = (units == 0).choose(elements, units)
        launch, gathering = self.launch(), record.read(at.GATHERING)
        laid = (gathering != 0) | (sized == at.BY_LAYOUT) | (sized == at.BY_CLASSES)
        return _Work(
            kernel, runner, grain, constants, addresses, sized, gathering, laid, lead, numbers, extent, launch
        )  # fmt: skip

    def write_arguments(self, record: Array, work: _Work) -> Array:
        """The kernel's constants and operands; where the latter are. Fresh outputs are not there yet."""
        code, moved = self.code, self.moved.get()
        # What gathers elements takes their geometry first, then what the kernel takes.
        arguments = work.launch.arguments.at((work.gathering != 0).to("i64"))
        with code.loop(0, work.constants) as index:
            own, other = record.at(at.CONSTANT).read(index), self.derived.read(index)
            arguments.write(index, moved.choose(other, own))
        with code.when(record.read(at.RECIPROCAL) >= 0):
            share = code.double(1.0) / work.lead.read(at.SIZE).to("f64")
            bits = share.to("f32").bits_as("i32").unsigned("i64")
            arguments.write(record.read(at.RECIPROCAL), bits)
        operands = arguments.at(work.constants)
        with code.loop(0, self.arrays) as index:
            place = self.own(record, index).read(at.PLACE)
            with code.when((place >= 0) & self.is_given(index)):
                operands.write(place, self.address(self.view(index)))
        return operands

    def execute(self, record: Array, work: _Work, operands: Array, stream: Array) -> None:
        """Launch the kernel, or call the runner."""
        code, doubt, launch, gathering = self.code, self.doubt, work.launch, work.gathering
        entry = code.variable(work.kernel)
        geometry = code.frame("i64", gathered.GEOMETRY_SLOTS)
        with code.when(work.laid):
            self.lay(record, work.lead, geometry)
        with code.when(work.sized == at.BY_CLASSES):
            self.expect_forwards(record)
        with code.when(gathering != 0):
            words = work.kernel, work.constants, work.addresses
            for where, word in enumerate(words, gathered.KERNEL):
                geometry.write(where, word)
            launch.arguments.write(0, geometry.address())
            entry.set(gathering)
        with doubt.when_none(), code.when(work.kernel != 0):
            # Before the workers run, the full way starts them.
            doubt.expect(launch.ready(work.extent, work.grain))
        # Two turns at the most: a runner that is not ready for words is called with objects then.
        with_objects = code.variable((work.kernel == 0) & (self.words.get() == 0))
        left = code.variable(True)
        with code.repeat_while(left.get):
            left.set(False)
            with doubt.when_none():
                called = with_objects.get()
                with code.when(called):
                    self.take_lock()
                    self.prepare(work, operands, stream, geometry)
                self.look_again()
                with code.when(called):
                    self.call_prepared(work)
                    self.give_lock()
                with code.when(~called), doubt.when_none():
                    status = code.variable(0)
                    with code.either(work.kernel != 0) as (launched, given_words):
                        with launched:
                            status.set(launch.execute(entry.get(), work.extent, work.grain))
                        with given_words:
                            status.set(self.call_with_words(work, operands, stream))
                            unready = status.get() < 0
                            with_objects.set(unready)
                            left.set(unready)
                    # More than 0: a target out of range. The full way says which.
                    doubt.expect(status.get() <= 0)

    def hold_kind(self, keep: Value) -> None:
        """Keep alive what a record relies on while its kernel runs."""
        self.control.call(at.INCREF, None, keep)
        self.keep.set(keep)

    def kept_record(self, record: Array, wanted: Value) -> Array:
        """A copy of what the record says of arrays, if that is `wanted` after Python code may have run."""
        code, own = self.code, self.code.frame("i64", at.FIRST_OPTION)
        count = self.arrays * at.ARRAY_SLOTS + at.FIRST_ARRAY
        with code.when(wanted), code.loop(0, count) as index:
            own.write(index, record.read(index))
        return own

    def leave_kind(self, keep: Value) -> None:
        self.drop(keep)

    def launch(self) -> Launch:
        return Launch(self.code, self.code.slots(self.control.read(at.POOL)))

    def numbers(self, record: Array) -> tuple[Array, Value]:
        """Which options a sized runner takes, and how many, and what it is for words; the record may be another soon."""
        self.words.set(record.read(self.taking_words))
        self.words_block.set(record.read(at.WORDS_BLOCK))
        found, count = self.code.frame("i64", at.MAX_DERIVED), record.read(at.DERIVED)
        with self.code.loop(0, count) as index:
            found.write(index, record.at(at.SOURCE).read(index))
        return found, count

    taking_words = at.LOCKED_WORDS

    def word(self, option: Value) -> Value:
        """An option that a runner takes, as a word: an integer, or a float's bits."""
        item, found = self.number(option), self.code.variable(0)
        kind = self.code.slots(item).read(objects.OBJECT_TYPE)
        with self.code.either(kind == self.control.read(at.FLOAT)) as (floating, integer):
            with floating:
                found.set(self.code.slots(item).read(objects.FLOAT_VALUE))
            with integer:
                found.set(self.control.call(at.AS_INT64, "i64", item))
        return found.get()

    def taken(self, options: Array, count: Value) -> Value:
        """Options that a runner takes, as a tuple."""
        items = self.code.frame("i64", at.MAX_DERIVED)
        with self.code.loop(0, count) as index:
            items.write(index, self.number(options.read(index)))
        return self.hold(items, count)

    def take_lock(self) -> None:
        """The interpreter's, which whoever calls this has."""

    def give_lock(self) -> None:
        """Back, where it was taken."""

    def call_with_words(self, work: _Work, operands: Array, stream: Array) -> Value:
        """What a runner says that takes words; less than 0 where it lacks something yet."""
        code, (sources, count) = self.code, work.numbers
        given = code.frame("i64", at.MAX_DERIVED)
        with code.loop(0, count) as index:
            given.write(index, self.word(sources.read(index)))
        shape, axes = work.lead.read(at.SHAPE_AT), self.axes(work.lead)
        return code.call(
            self.words.get(), "i64", self.words_block.get(), operands, work.addresses, shape, axes, given, count,
            stream.read(0),
        )  # fmt: skip

    def ask_stream(self, library: Value, place: Value, stream: Array) -> None:
        """PyTorch's current stream on a device, unless it is the host; nobody must be recording what is done there."""
        with self.code.when(library == at.TORCH):
            self.expect_no_graph()
            self.find_stream(place, stream)

    def find_stream(self, place: Value, stream: Array) -> None:
        device, which = place.to("i32"), (place >> 32).to("i32")
        with self.code.when(device != HOST):
            status = self.control.call(at.CURRENT_STREAM, "i32", device, which, stream)
            self.expect_success(status)

    def prepare(self, work: _Work, operands: Array, stream: Array, geometry: Array) -> None:
        """What a runner takes: `runner(addresses, stream)`, and more if it serves any size (`slots.SIZED`)."""
        code, items, sized = self.code, self.items, work.sized
        items.write(0, self.pack(operands, work.addresses))
        items.write(1, self.control.call(at.FROM_INT64, "i64", stream.read(0)))
        self.fail_without(items.read(1))
        self.prepared.set(code.integer(2))
        with code.when(sized == at.BY_SHAPE):
            items.write(2, self.tuple_of(work.lead, at.SHAPE_AT))
            items.write(3, self.taken(*work.numbers))
        with code.when((sized == at.BY_LAYOUT) | (sized == at.BY_CLASSES)):
            axes = geometry.read(gathered.AXES)
            items.write(2, self.pack(geometry.at(gathered.SIZES), axes))
            items.write(3, self.pack_steps(geometry, work.addresses, axes))
        with code.when(sized != 0):
            self.prepared.set(code.integer(4))
        with code.when(sized == at.BY_CLASSES):
            items.write(4, self.taken(*work.numbers))
            self.prepared.set(code.integer(5))

    def call_prepared(self, work: _Work) -> None:
        """Call a runner with what was prepared, unless something speaks against it; what it raises is raised."""
        code, control, count = self.code, self.control, self.prepared.get()
        status = code.variable(0)
        with self.doubt.when_none():
            called = control.call(at.VECTORCALL, "i64", work.runner, self.items, count, 0)
            status.set(called)
        with code.loop(0, count) as index:
            self.drop(self.items.read(index))
        with self.doubt.when_none():
            self.fail_without(status.get())
            # Not 0: a target out of range. The full way says which.
            self.doubt.expect(control.call(at.AS_INT64, "i64", status.get()) == 0)
            self.drop(status.get())

    def pack_steps(self, geometry: Array, operands: Value, axes: Value) -> Value:
        """Every operand's strides along the axes, in elements, one after the other."""
        code, items = self.code, geometry.at(gathered.ITEMS)
        flat = code.frame("i64", gathered.MAX_OPERANDS * gathered.MAX_AXES)
        with code.loop(0, operands) as place, code.loop(0, axes) as axis:
            stride = self.steps(geometry, place).read(axis) // items.read(place)
            flat.write(place * axes + axis, stride)
        return self.pack(flat, operands * axes)
