"""Run: the fast path as a builtin, which recognises a call, takes or makes its outputs, and runs its kernel.

What no cache entry serves gives NotImplemented, and the call takes the slow path.
"""

from __future__ import annotations

from typing import NamedTuple

from openaclnn.engines.machine import callers
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.code.outputs import Outputs
from openaclnn.repeat.code.recognise import guarded

HOST = 1  # DLPack's number for the CPU


class Layout(NamedTuple):
    """What a runner is told of sizes and strides, and how many of each."""

    sizes: Array
    axes: Value
    strides: Array
    stride_count: Value


def emit_plain_call(code: Code, control: Array, arguments: Array, number: Value) -> None:
    """The builtin `call(*arrays, *options, product)`. Outputs are the last of the arrays; the result of several is a tuple."""
    FastPath(code, control, arguments).write(number)


class FastPath(Outputs):
    """The function being written."""

    has_lock = True  # the interpreter's

    def write(self, number: Value) -> None:
        code = self.code
        with guarded(code) as self.guard:
            self.take_arguments(number)
            self.expect_nothing_chosen()
            self.serve()
            self.drop(self.keep.get())
            code.leave(self.result.get())
        self.release()
        self.python("Py_IncRef", None, self.object("NotImplemented"))
        code.leave(self.object("NotImplemented"))

    def take_arguments(self, number: Value) -> None:
        self.guard.expect(number == self.arrays + self.options + 1)
        self.expect_no_product(self.arguments.read(number - 1))

    def expect_no_product(self, product: Value) -> None:
        """Another product than the process's is the slow path's. It is None, or False where a kernel of PyTorch's dispatcher calls: modes,
        tracers, autograd and what resolves negations are above it."""
        self.below.set(product == self.object("False"))
        self.guard.expect(self.below.get() | (product == self.object("None")))

    def serve(self) -> None:
        """Find the entry, run its kernel."""
        code, entry = self.code, self.recognise()
        operands = self.enter_operands(entry)
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
        self.execute(entry, operands, stream)

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
        self.python("Py_IncRef", None, entry.read(at.KEEP))
        self.keep.set(entry.read(at.KEEP))

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

    def enter_operands(self, entry: Array) -> Array:
        """Where the operands begin. Fresh outputs are not there yet."""
        code, operands = self.code, self.code.frame("i64", at.MAX_OPERANDS)
        with code.loop(0, self.arrays) as index:
            array = self.array_of(entry, index)
            with code.when((array.read(at.PLACE) >= 0) & self.is_given(index)):
                self.enter_operand(entry, array, self.view(index), operands)
        return operands

    def execute(self, entry: Array, operands: Array, stream: Array) -> None:
        """Call the runner."""
        code, told = self.code, self.told_layout(entry)
        # Two turns at the most: a runner that is not ready for words is called with objects then.
        by_objects = code.variable(entry.read(at.BLOCK) == 0)
        with code.forever() as done:
            called, status = by_objects.get(), code.variable(0)
            with code.when(called):
                self.take_lock()
                self.prepare(entry, operands, stream, told)
            self.look_again()
            with code.either(called) as (objects, words):
                with objects:
                    status.set(self.call_runner(entry))
                    self.give_lock()
                with words:
                    status.set(self.call_in_words(entry, operands, stream, told))
            # More than 0: a target out of range. The slow path says which.
            self.guard.expect(status.get() <= 0)
            with code.when(called | (status.get() == 0)):
                done()
            by_objects.set(True)

    def take_lock(self) -> None:
        """The interpreter's, which whoever calls this has."""

    def give_lock(self) -> None:
        """Back, where it was taken."""

    def told_layout(self, entry: Array) -> Layout:
        """What a runner is told of sizes and strides."""
        code, takes, many = self.code, entry.read(at.TAKES), entry.read(at.ADDRESSES)
        source = self.view(entry.read(at.SHAPE_SOURCE))
        sizes, axes = code.variable(source.read(at.SHAPE_AT)), code.variable(0)
        strides, stride_count = code.frame("i64", at.MAX_OPERANDS * at.MAX_AXES), code.variable(0)
        with code.when((takes & at.TAKES_SIZES) != 0):
            axes.set(self.axes(source))
        with code.when((takes & at.TAKES_STRIDES) != 0):
            merged = self.lay(entry, source)
            sizes.set(self.sizes.address())
            axes.set(merged)
            stride_count.set(many * merged)
            with code.loop(0, self.arrays) as index:
                array = self.array_of(entry, index)
                for place in (array.read(at.PLACE), array.read(at.OTHER_PLACE)):
                    with code.when(place >= 0), code.loop(0, merged) as axis:
                        stride = self.steps(place).read(axis) // array.read(at.ITEM)
                        strides.write(place * merged + axis, stride)
            with code.when(entry.read(at.CLASS_AXIS) >= 0):
                self.expect_forwards(entry)
        return Layout(code.slots(sizes.get()), axes.get(), strides, stride_count.get())

    def call_in_words(self, entry: Array, operands: Array, stream: Array, told: Layout) -> Value:
        """What a runner says that takes words; less than 0 where it lacks something yet. What Python raised is raised again by the builtin; once all is
        done, there is nothing left to do."""
        block, (sizes, axes, strides, stride_count) = self.code.slots(entry.read(at.BLOCK)), told
        status = block.call(
            callers.RUN, "i64", block, operands, entry.read(at.ADDRESSES), sizes, axes, self.numbers, self.number_count(entry), stream.read(0), strides,
            stride_count, int(self.has_lock),
        )  # fmt: skip
        with self.code.when(status < callers.NOT_READY):
            self.python("PyErr_Clear", None)
        return (status == callers.RAISED_LATE).choose(0, status)

    def prepare(self, entry: Array, operands: Array, stream: Array, told: Layout) -> None:
        """What a runner takes: `runner(addresses, stream)`, and what TAKES says."""
        self.push(self.pack(operands, entry.read(at.ADDRESSES)))
        self.push(self.python("PyLong_FromLongLong", "i64", stream.read(0)))
        self.push_told(entry, told)

    def push_told(self, entry: Array, told: Layout) -> None:
        code, takes, (sizes, axes, strides, stride_count) = self.code, entry.read(at.TAKES), told
        with code.when((takes & at.TAKES_SIZES) != 0):
            self.push(self.pack(sizes, axes))
        with code.when((takes & at.TAKES_STRIDES) != 0):
            self.push(self.pack(strides, stride_count))
        many, wanted = entry.read(at.DERIVED), (takes & at.TAKES_NUMBERS) != 0
        constants = entry.read(at.CONSTANTS)
        with code.when(wanted), code.either(constants != 0) as (words, options):
            with words:
                self.push(self.pack(self.numbers, constants))
            with options:
                numbers = self.new_tuple(many)
                with code.loop(0, many) as index:
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
        self.python("Py_IncRef", None, item)
        return item

    def call_runner(self, entry: Array) -> Value:
        """Call a runner with what was prepared; its status, or what it raises is raised."""
        runner = entry.read(at.RUNNER)
        answer = self.python(
            "PyObject_Vectorcall", "i64", runner, self.items, self.prepared.get(), 0
        )
        self.drop_items()
        self.fail_without(answer)
        status = self.python("PyLong_AsLongLong", "i64", answer)
        self.drop(answer)
        return (status == 0).choose(0, 1)
