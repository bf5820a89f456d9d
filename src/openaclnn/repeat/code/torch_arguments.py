"""PyTorch's tensors as arguments of the fast path: read, asked for their stream, and announced to autograd when they are written."""

from __future__ import annotations

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.outputs import Outputs
from openaclnn.repeat.words import slots as at

__all__ = ["TorchArguments"]

HOST = 1  # DLPack's number for the CPU


class TorchArguments(Outputs):
    """The function being written, as far as it is about PyTorch."""

    asks = True  # whether what is being written reads an argument for the first time

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        super().__init__(code, control, given)
        self.undisturbed = code.variable(False)  # nobody's Python code hears what tensors are asked
        self.below = code.variable(False)  # a kernel of PyTorch's dispatcher is calling

    def expect_no_product(self, product: Value) -> None:
        """None, or False where a kernel of PyTorch's dispatcher calls: modes, tracers, autograd and what resolves negations are above it."""
        self.below.set(product == self.control.read(at.FALSE))
        self.guard.expect(self.below.get() | (product == self.control.read(at.NONE)))

    def look_again(self) -> None:
        """Of a tensor, what DLPack tells is enough to see that it is as before: a storage that was resized has other memory."""
        self.asks = False
        super().look_again()
        self.asks = True

    def look_at(self, item: Value, view: Array) -> None:
        code, control = self.code, self.control
        kind = code.slots(item).read(objects.OBJECT_TYPE)
        with code.either(kind == control.read(at.NDARRAY)) as (numpy, other):
            with numpy:
                self.look_at_numpy(item, view)
            with other:
                types = (control.read(slot) for slot in (at.TENSOR, at.PARAMETER))
                tensor, parameter = (kind == known for known in types)
                self.guard.expect(tensor | parameter)
                self.look_at_torch(item, view)

    def read_fresh(self, item: Value, view: Array, library: Value) -> None:
        with self.code.either(library == at.NUMPY) as (numpy, torch):
            with numpy:
                self.look_at_numpy(item, view)
            with torch:
                self.describe(item, view)

    def look_at_torch(self, item: Value, view: Array) -> None:
        storage = self.code.frame("i64", 2)
        if self.asks:
            with self.code.when(~self.below.get()):
                self.expect_plain(item)
            self.measure_storage(item, storage)
        self.describe(item, view)
        self.guard.expect(view.read(at.STRIDES_AT) != 0)
        view.write(at.LIBRARY, at.TORCH)
        view.write(at.WRITABLE, 1)
        view.write(at.IS_CONTIGUOUS, self.measure(view).to("i64"))
        if self.asks:
            self.expect_in_storage(view, storage.read(0), storage.read(1))

    def describe(self, item: Value, view: Array) -> None:
        """What DLPack tells of a tensor."""
        self.expect_success(self.control.call(at.FROM_PYTHON, "i32", item, view))

    def expect_plain(self, item: Value) -> None:
        """That a tensor's memory says what its elements are. Where a mode's Python code would hear what is asked, and might
        change what was read, nothing is asked.
        """
        with self.code.when(~self.undisturbed.get()):
            self.expect_false(at.HAS_MODE, item)
            self.undisturbed.set(True)
        self.expect_false(at.IS_NEGATED, item)

    def measure_storage(self, item: Value, words: Array) -> None:
        """Where in its storage a tensor begins, and how many bytes that has: it may have been made shorter."""
        words.write(0, self.number_of(self.ask(at.STORAGE_OFFSET, item)))
        storage = self.ask(at.STORAGE, item)
        self.note_python(self.control.flag(at.COLLECTS))
        size = self.control.call(at.LENGTH, "i64", storage)
        self.leave_storage(item, storage)
        self.expect_success((size < 0).to("i64"))
        words.write(1, size)

    def leave_storage(self, item: Value, storage: Value) -> None:
        """A tensor's storage was asked for what is wanted of it."""
        self.drop(storage)

    def expect_in_storage(self, view: Array, offset: Value, size: Value) -> None:
        """A tensor lies inside its storage, by where it begins there and how many bytes that has, and the storage in memory."""
        code, beyond = self.code, self.code.variable(view.read(at.SIZE))
        with code.when(view.read(at.IS_CONTIGUOUS) == 0):
            beyond.set(code.integer(1))  # elements from the first to beyond the last
            with code.loop(0, self.axes(view)) as axis:
                reach = (view.at(at.SIZES).read(axis) - 1) * view.at(at.STEPS).read(axis)
                beyond.set(beyond.get() + reach)
        item = self.item_size(view.read(at.KIND))
        inside = (offset + beyond.get()) * item <= size
        inside = inside & (view.read(at.DATA) + view.read(at.OFFSET) != offset * item)
        self.guard.expect(inside | (view.read(at.SIZE) == 0))

    # PyTorch's functions.

    def ask(self, function: int, *items: Value) -> Value:
        """What one of them answers, owned."""
        return self.answer(self.call_object(self.control.read(function), *items))

    def answer(self, item: Value) -> Value:
        """An object; what was raised instead nobody is to see."""
        with self.code.when(item == 0, likely=False):
            self.control.call(at.CLEAR, None)
            self.guard.fail()
        return item

    def expect_false(self, function: int, *items: Value) -> None:
        answer = self.ask(function, *items)
        self.drop(answer)
        self.guard.expect(answer == self.control.read(at.FALSE))

    def number_of(self, answer: Value) -> Value:
        """The integer that an answer is."""
        number = self.control.call(at.AS_INT64, "i64", answer)
        self.drop(answer)
        return number

    def item_size(self, kind: Value) -> Value:
        """By DLPack's number of bits."""
        return (kind >> 40 & 0xFF) >> 3

    def expect_success(self, status: Value) -> None:
        """Of a function of PyTorch's: 0, or an exception that nobody is to see."""
        with self.code.when(status != 0, likely=False):
            self.control.call(at.CLEAR, None)
            self.guard.fail()

    # Streams and autograd.

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

    def expect_untracked(self, library: Value) -> None:
        """What autograd would not let be written is left to the slow path."""

        def visit(index: Value) -> None:
            item, name = self.given.read(index), self.control.read(at.REQUIRES_GRAD)
            tracked = self.answer(self.control.call(at.GET_ATTRIBUTE, "i64", item, name))
            self.drop(tracked)
            self.guard.expect(tracked == self.control.read(at.FALSE))

        with self.code.when((library == at.TORCH) & ~self.below.get()):
            self.each_given(visit)

    def count_writes(self, library: Value) -> None:
        with self.code.when((library == at.TORCH) & ~self.below.get()):
            self.each_given(lambda index: self.count_write(self.given.read(index)))

    def count_write(self, item: Value) -> None:
        """Tell autograd that a tensor is written."""
        self.note_python(True)
        told = self.call_object(self.control.read(at.COUNT_WRITE), item)
        self.fail_without(told)
        self.drop(told)

    # Fresh outputs.

    def made_of(
        self, library: Value, make: Value, shape: Value, strides: tuple[Array, Value], dtype: Value
    ) -> Value:
        """By `make(shape, dtype)` of NumPy or `make(shape, strides, dtype)` of PyTorch."""
        fresh = self.code.variable(0)
        with self.code.either(library == at.NUMPY) as (numpy, torch):
            with numpy:
                fresh.set(self.call_object(make, shape, dtype))
            with torch:
                steps = self.pack(*strides)
                fresh.set(self.call_object(make, shape, steps, dtype))
                self.drop(steps)
        return fresh.get()
