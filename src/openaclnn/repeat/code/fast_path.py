"""Run: the fast path as a builtin, which recognises a call, takes or makes its outputs, and runs its kernel.

What no cache entry serves gives NotImplemented, and the call takes the slow path.
"""

from __future__ import annotations

from openaclnn.engines.cpu.launching.launcher import Launch
from openaclnn.engines.cpu.layouts import gathered
from openaclnn.engines.machine import callers
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.code.outputs import Outputs
from openaclnn.repeat.code.recognise import guarded

HOST = 1  # DLPack's number for the CPU


def emit_plain_call(code: Code, control: Array, arguments: Array, number: Value) -> None:
    """The builtin `call(*arrays, *options, product)`. Outputs are the last of the arrays; the result of several is a tuple."""
    FastPath(code, control, arguments).write(number)


class FastPath(Outputs):
    """The function being written."""

    has_lock = True  # the interpreter's

    def write(self, number: Value) -> None:
        code, control = self.code, self.control
        with guarded(code) as self.guard:
            self.take_arguments(number)
            self.expect_nothing_chosen()
            self.serve()
            self.drop(self.keep.get())
            code.leave(self.result.get())
        self.release()
        control.call(at.INCREF, None, control.read(at.NOT_IMPLEMENTED))
        code.leave(control.read(at.NOT_IMPLEMENTED))

    def take_arguments(self, number: Value) -> None:
        self.guard.expect(number == self.arrays + self.options + 1)
        self.expect_no_product(self.arguments.read(number - 1))

    def expect_no_product(self, product: Value) -> None:
        """Another product than the process's is the slow path's. It is None, or False where a kernel of PyTorch's dispatcher calls: modes,
        tracers, autograd and what resolves negations are above it."""
        self.below.set(product == self.control.read(at.FALSE))
        self.guard.expect(self.below.get() | (product == self.control.read(at.NONE)))

    def serve(self) -> None:
        """Find the entry, run its kernel."""
        code, entry, launch = self.code, self.recognise(), self.launch()
        # What gathers elements takes their geometry first, then what the kernel takes.
        arguments = launch.arguments.at((entry.read(at.GATHERING) != 0).to("i64"))
        operands = self.write_arguments(entry, arguments)
        fresh, library = entry.read(at.MAKE) != 0, entry.read(at.ENTRY_LIBRARY)
        stream = code.frame("i64", 1)
        stream.write(0, 0)
        self.ask_stream(library, self.array_of(entry, self.inputs).read(at.FIRST), stream)
        self.expect_free(entry)
        self.expect_untracked(library)
        with code.when(fresh):
            self.expect_ordered(entry)
        self.make_outputs(entry, operands)
        self.count_writes(library)
        self.execute(entry, launch, operands, stream)

    def recognise(self) -> Array:
        """Read the arguments, and find their entry."""
        with self.code.loop(0, self.arrays) as index:
            self.look(index, self.view(index))
        self.read_options()
        entry = self.search()
        self.hold(entry)
        return entry

    def hold(self, entry: Array) -> None:
        """Keep an entry, and so what it relies on: Python code may run from here on, and make the cache forget it."""
        self.control.call(at.INCREF, None, entry.read(at.KEEP))
        self.keep.set(entry.read(at.KEEP))

    def launch(self) -> Launch:
        return Launch(self.code, self.code.slots(self.control.read(at.POOL)))

    def ask_stream(self, library: Value, place: Value, stream: Array) -> None:
        """PyTorch's current stream on a device, unless it is the host; nobody must be recording what is done there."""
        with self.code.when(library == at.TORCH):
            with self.code.when(~self.below.get()):
                self.expect_no_graph()
            self.find_stream(place, stream)

    def expect_no_graph(self) -> None:
        """Nobody records PyTorch's operations in this thread: tracers and modes would not see ours. `make_fx` before dispatch has no mode
        among those, but one of functions, for which all tensors were asked (HAS_MODE).
        """
        self.expect_false(at.IS_TRACING)
        self.guard.expect(self.number_of(self.ask(at.MODES)) == 0)

    def find_stream(self, place: Value, stream: Array) -> None:
        device, which = place.to("i32"), (place >> 32).to("i32")
        with self.code.when(device != HOST):
            status = self.control.call(at.CURRENT_STREAM, "i32", device, which, stream)
            self.expect_success(status)

    def write_arguments(self, entry: Array, arguments: Array) -> Array:
        """The kernel's constants and operands; where the latter are. Fresh outputs are not there yet."""
        code, constants = self.code, entry.read(at.CONSTANTS)
        with code.loop(0, constants) as index:
            known, other = entry.at(at.CONSTANT).read(index), self.derived.read(index)
            arguments.write(index, self.moved.get().choose(other, known))
        with code.when(entry.read(at.RECIPROCAL) >= 0):
            share = code.double(1.0) / self.view(entry.read(at.SHAPE_SOURCE)).read(at.SIZE).to(
                "f64"
            )
            bits = share.to("f32").bits_as("i32").unsigned("i64")
            arguments.write(entry.read(at.RECIPROCAL), bits)
        operands = arguments.at(constants)
        with code.loop(0, self.arrays) as index:
            array = self.array_of(entry, index)
            with code.when((array.read(at.PLACE) >= 0) & self.is_given(index)):
                self.enter_operand(entry, array, self.view(index), operands)
        return operands

    def execute(self, entry: Array, launch: Launch, operands: Array, stream: Array) -> None:
        """Launch the kernel, or call the runner."""
        code, source = self.code, self.view(entry.read(at.SHAPE_SOURCE))
        kernel, gathering, block = (
            entry.read(slot) for slot in (at.KERNEL, at.GATHERING, at.BLOCK)
        )
        count, grain = source.read(at.SIZE), entry.read(at.GRAIN)
        function, geometry = code.variable(kernel), self.geometry_of(entry, source)
        with code.when(gathering != 0):
            launch.arguments.write(0, geometry.address())
            function.set(gathering)
        with code.when(kernel != 0):
            self.guard.expect(launch.ready(count, grain))  # the slow path starts the workers
        told = self.told_layout(entry, source, geometry)
        # Two turns at the most: a runner that is not ready for words is called with objects then.
        by_objects = code.variable((kernel == 0) & (block == 0))
        with code.forever() as done:
            called = by_objects.get()
            with code.when(called):
                self.take_lock()
                self.prepare(entry, operands, stream, told)
            self.look_again()
            status = code.variable(0)
            with code.either(called) as (runner, direct):
                with runner:
                    status.set(self.call_runner(entry))
                    self.give_lock()
                with direct, code.either(kernel != 0) as (launched, in_words):
                    with launched:
                        status.set(launch.execute(function.get(), count, grain))
                    with in_words:
                        status.set(self.call_in_words(entry, operands, stream, told))
            # More than 0: a target out of range. The slow path says which.
            self.guard.expect(status.get() <= 0)
            with code.when(called | (status.get() == 0)):
                done()
            by_objects.set(True)

    def geometry_of(self, entry: Array, source: Array) -> Array:
        """Where elements lie, for what gathers them and for runners that are told strides."""
        code, gathering = self.code, entry.read(at.GATHERING) != 0
        geometry = code.frame("i64", gathered.GEOMETRY_SLOTS)
        strided = (entry.read(at.TAKES) & at.TAKES_STRIDES) != 0
        with code.when(gathering | strided):
            self.lay(entry, source, geometry)
        with code.when(strided & (entry.read(at.CLASS_AXIS) >= 0)):
            self.expect_forwards(entry)
        with code.when(gathering):
            for slot, word in (
                (gathered.KERNEL, at.KERNEL), (gathered.CONSTANTS, at.CONSTANTS), (gathered.OPERANDS, at.ADDRESSES), (gathered.OUTPUTS, at.WRITTEN),
            ):  # fmt: skip
                geometry.write(slot, entry.read(word))
        return geometry

    def take_lock(self) -> None:
        """The interpreter's, which whoever calls this has."""

    def give_lock(self) -> None:
        """Back, where it was taken."""

    def told_layout(
        self, entry: Array, source: Array, geometry: Array
    ) -> tuple[Array, Value, Array, Value]:
        """What a runner is told of sizes and strides, and how many of each."""
        code, takes, many = self.code, entry.read(at.TAKES), entry.read(at.ADDRESSES)
        sizes, axes = code.variable(source.read(at.SHAPE_AT)), code.variable(self.axes(source))
        strides = code.frame("i64", gathered.MAX_OPERANDS * gathered.MAX_AXES)
        stride_count = code.variable(0)
        with code.when((takes & at.TAKES_SIZES) == 0):
            axes.set(code.integer(0))
        with code.when((takes & at.TAKES_STRIDES) != 0):
            merged, items = geometry.read(gathered.AXES), geometry.at(gathered.ITEMS)
            sizes.set(geometry.address(gathered.SIZES))
            axes.set(merged)
            stride_count.set(many * merged)
            with code.loop(0, many) as place, code.loop(0, merged) as axis:
                stride = self.steps(geometry, place).read(axis) // items.read(place)
                strides.write(place * merged + axis, stride)
        return code.slots(sizes.get()), axes.get(), strides, stride_count.get()

    def call_in_words(
        self, entry: Array, operands: Array, stream: Array, told: tuple[Array, Value, Array, Value]
    ) -> Value:
        """What a runner says that takes words; less than 0 where it lacks something yet. What Python raised is raised again by the builtin; once all is
        done, there is nothing left to do."""
        code, count, block = (
            self.code,
            entry.read(at.DERIVED),
            self.code.slots(entry.read(at.BLOCK)),
        )
        numbers, (sizes, axes, strides, stride_count) = code.frame("i64", at.MAX_DERIVED), told
        with code.loop(0, count) as index:
            numbers.write(index, self.derived_from(entry, index))
        status = block.call(
            callers.RUN, "i64", block, operands, entry.read(at.ADDRESSES), sizes, axes, numbers, count, stream.read(0), strides,
            stride_count, int(self.has_lock),
        )  # fmt: skip
        with code.when(status < callers.NOT_READY):
            self.control.call(at.CLEAR, None)
        return (status == callers.RAISED_LATE).choose(0, status)

    def prepare(
        self, entry: Array, operands: Array, stream: Array, told: tuple[Array, Value, Array, Value]
    ) -> None:
        """What a runner takes: `runner(addresses, stream)`, and what TAKES says."""
        self.push(self.pack(operands, entry.read(at.ADDRESSES)))
        self.push(self.control.call(at.FROM_INT64, "i64", stream.read(0)))
        self.push_told(entry, told)

    def push_told(self, entry: Array, told: tuple[Array, Value, Array, Value]) -> None:
        takes, (sizes, axes, strides, stride_count) = entry.read(at.TAKES), told
        with self.code.when((takes & at.TAKES_SIZES) != 0):
            self.push(self.pack(sizes, axes))
        with self.code.when((takes & at.TAKES_STRIDES) != 0):
            self.push(self.pack(strides, stride_count))
        with self.code.when((takes & at.TAKES_NUMBERS) != 0):
            numbers = self.new_tuple(entry.read(at.DERIVED))
            with self.code.loop(0, entry.read(at.DERIVED)) as index:
                self.put(numbers, index, self.number_object(entry.at(at.SOURCE).read(index)))
            self.push(numbers)

    def push(self, item: Value) -> None:
        """One more of the arguments that a runner is called with, which are owned."""
        self.fail_without(item)
        self.items.write(self.prepared.get(), item)
        self.prepared.set(self.prepared.get() + 1)

    def number_object(self, option: Value) -> Value:
        """An option that a runner takes, owned."""
        item = self.option(option)
        self.control.call(at.INCREF, None, item)
        return item

    def call_runner(self, entry: Array) -> Value:
        """Call a runner with what was prepared; its status, or what it raises is raised."""
        control, runner = self.control, entry.read(at.RUNNER)
        answer = control.call(at.VECTORCALL, "i64", runner, self.items, self.prepared.get(), 0)
        self.drop_items()
        self.fail_without(answer)
        status = control.call(at.AS_INT64, "i64", answer)
        self.drop(answer)
        return (status == 0).choose(0, 1)
