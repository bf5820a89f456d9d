"""Run: the fast path as a builtin, which recognises a call, takes or makes its outputs, and calls its runner.

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
        code, (sizes, axes, strides, stride_count) = self.code, self.told_layout(entry)
        self.look_again()
        status = callers.call_block(
            code, code.slots(entry.read(at.BLOCK)), operands, entry.read(at.ADDRESSES), sizes, axes, self.numbers, self.number_count(entry), stream.read(0),
            strides, stride_count, int(self.has_lock),
        )  # fmt: skip
        with code.when(status == callers.RAISED, likely=False):
            self.fail()
        with code.when(status == callers.RAISED_LATE, likely=False):  # there is nothing left to do
            self.python("PyErr_Clear", None)
        # More than 0: a target out of range. The slow path says which.
        self.guard.expect(status <= 0)

    def told_layout(self, entry: Array) -> Layout:
        """What a runner is told of sizes and strides."""
        code, takes, many = self.code, entry.read(at.TAKES), entry.read(at.ADDRESSES)
        source = self.view(entry.read(at.SHAPE_SOURCE))
        sizes, axes = code.variable(source.at(at.SIZES).address()), code.variable(0)
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
            with code.when(entry.read(at.CLASS_AXIS) != at.NO_AXIS):
                self.expect_forwards(entry)
        return Layout(code.slots(sizes.get()), axes.get(), strides, stride_count.get())
