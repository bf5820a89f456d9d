"""The short road for C++: the same kinds and records, looked for by a function that is given handles of PyTorch's tensors and
plain numbers, and makes tensors. PyTorch's dispatcher calls it, by way of `openaclnn.torch.entries`.

It does without the interpreter's lock: what it reads never changes (`published.py`), or is this call's own. It takes the lock for
a runner that is a function of Python's, and for a context that may have something chosen.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from openaclnn.engines.cpu.launching.launcher import Launch
from openaclnn.engines.machine import objects
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.modes import is_standard, read_mode
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.doubt import Doubt
from openaclnn.repeat.code.published import arrive, depart
from openaclnn.repeat.code.road import RoadCode
from openaclnn.repeat.code.tensors import NativeTensor
from openaclnn.repeat.words import native as block_at
from openaclnn.repeat.words import slots as at

__all__ = ["Arguments", "native_road"]


class Arguments(NamedTuple):
    """How many there are: arrays that are read, outputs, options. Each has a word, in this order."""

    inputs: int
    outputs: int
    options: int


def native_road(many: Arguments) -> int:
    """`core(block, words, results)`: 0 if the call was served, and tensors made."""
    emit = functools.partial(_emit, many)
    name = ".".join(map(str, ("road.native", *many)))
    return compiled(name, emit, signature("i64", "i64", "i64", "i64"))


def _emit(many: Arguments, code: Code, arguments: Sequence[Value]) -> None:
    block, words, results = (code.slots(own) for own in arguments)
    road = block.read(block_at.ROAD)
    # No road yet, or another mode than IEEE 754's: the way through Python knows what to do.
    with code.when((road == 0) | ~is_standard(read_mode(code))):
        code.leave(code.integer(1))
    NativeCode(code, block, code.slots(road), words, results, many).write_native()


class NativeCode(RoadCode):
    """The function being written. Arrays are handles of C++ tensors, 0 where there is none; options are an integer, the
    bits of a float, or an object."""

    def __init__(
        self, code: Code, block: Array, control: Array, words: Array, results: Array, many: Arguments
    ) -> None:  # fmt: skip
        super().__init__(code, control, words)
        self.inputs, self.outputs, self.options = map(code.integer, many)
        self.arrays = code.integer(many.inputs + many.outputs)
        self.block, self.results = block, results
        self.absent = code.integer(0)
        self.state = code.variable(0)  # what the lock is given back with
        self.readers = block.at(block_at.COUNT)

    def write_native(self) -> None:
        code, doubt = self.code, self.doubt
        self.expect_nothing_chosen()
        self.turn = arrive(code, self.readers)
        self.list = code.slots(code.read_shared(code.slots(self.block.read(block_at.RECORDS)), 0))
        self.serve()
        with doubt.when_none():
            depart(code, self.readers, self.turn, served=True)
            code.leave(code.integer(0))
        self.leave_unserved()

    def leave_unserved(self) -> None:
        """Give back what was made."""
        depart(self.code, self.readers, self.turn, served=False)
        for index in range(block_at.MAX_RESULTS):
            made = self.results.read(index)
            with self.code.when(made != 0):
                self.block.call(block_at.DELETE, "i32", made)
                self.results.write(index, 0)
        self.code.leave(self.code.integer(1))

    def write_failure(self) -> None:
        """Leave unserved where Python gave nothing. The lock is held, since Python was asked."""
        self.control.call(at.CLEAR, None)
        self.give_lock()
        self.leave_unserved()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """With the interpreter's lock."""
        self.take_lock()
        yield
        self.give_lock()

    def take_lock(self) -> None:
        self.state.set(self.block.call(block_at.ENSURE, "i32").to("i64"))

    def give_lock(self) -> None:
        self.block.call(block_at.RELEASE, None, self.state.get().to("i32"))

    def ask_context(self) -> None:
        with self.locked():
            super().ask_context()

    # Records.

    def kinds(self) -> Value:
        return self.list.read(0)

    def record(self, index: Value) -> Array:
        return self.code.slots(self.list.read(index + 1))

    def hold_kind(self, keep: Value) -> None:
        """Nothing to do: while this reader is counted, its list is kept."""

    def leave_kind(self, keep: Value) -> None:
        """Nothing to do."""

    def kept_record(self, record: Array, wanted: Value) -> Array:
        return record

    def expect_no_graph(self) -> None:
        """Whoever records the operation that this kernel is of stands above it, and has recorded it."""

    def launch(self) -> Launch:
        return Launch(self.code, self.code.slots(self.control.read(at.POOL)), locked=False)

    def find_stream(self, place: Value, stream: Array) -> None:
        with self.code.when(self.block.read(block_at.STREAM) != 0):
            which = (place >> 32).to("i32")
            failed = self.block.call(block_at.STREAM, "i32", which, stream)
            self.doubt.expect(failed == 0)

    # Tensors.

    def look(self, index: Value, view: Array, first: bool = True) -> None:
        item = self.given.read(index)
        for own in (at.LIBRARY, at.KIND, at.SIZE):
            view.write(own, at.ABSENT)
        with self.code.when(item != self.absent):
            self.look_at_tensor(item, view)
            with self.doubt.when_none():
                self.doubt.expect(view.read(at.SIZE) != 0)

    def look_at_tensor(self, item: Value, view: Array) -> None:
        doubt, tensor = self.doubt, NativeTensor(self.code, item, self.block)
        self.describe_native(tensor, view)
        view.write(at.WRITABLE, 1)
        with doubt.when_none():
            view.write(at.DENSELY, self.measure(view).to("i64"))
        with doubt.when_none():
            offset, size = tensor.ask(block_at.GET_OFFSET), tensor.ask(block_at.GET_BYTES)
            doubt.expect(tensor.known.get())
            self.expect_in_storage(view, offset, size)

    def describe_native(self, tensor: NativeTensor, view: Array) -> None:
        """Where a tensor's elements lie, if it is on the kernel's kind of device and of a dtype that kernels read."""
        doubt, block, dtype = self.doubt, self.block, tensor.dtype
        doubt.expect(tensor.ask(block_at.GET_DEVICE) == block.read(block_at.DEVICE_KIND))
        doubt.expect(tensor.known.get() & dtype.below(at.MAX_DTYPES))
        with doubt.when_none():
            kind = block.at(block_at.DTYPES).read(dtype)
            doubt.expect(kind != 0)
            for own, value in (
                (at.DATA, tensor.ask(block_at.GET_DATA)), (at.KIND, kind + tensor.axes),
                (at.SHAPE_AT, tensor.ask(block_at.GET_SIZES)), (at.STRIDES_AT, tensor.ask(block_at.GET_STRIDES)),
                (at.DEVICE, block.read(block_at.DEVICE_WORD) + (tensor.index << 32)),
            ):  # fmt: skip
                view.write(own, value)
            view.write(at.OFFSET, 0)
            view.write(at.LIBRARY, at.TORCH)
            doubt.expect(tensor.known.get())

    # Numbers.

    def compare_option(self, differs: Doubt, record: Array, index: Value) -> None:
        code = self.code
        own = record.at(index * at.OPTION_SLOTS + at.FIRST_OPTION)
        word, kind = self.given.read(self.arrays + index), self.option_type(index)
        differs.expect(own.read(at.TYPE) == kind)
        with differs.when_none(), code.either(kind == 0) as (an_object, number):
            with an_object:
                differs.expect(word == own.read(at.OBJECT))
            with number, code.when(word != own.read(at.BITS)):
                self.compare_other(differs, own, word, kind == self.control.read(at.FLOAT))

    def compare_other(self, differs: Doubt, own: Array, word: Value, is_float: Value) -> None:
        """Another number than a kind was remembered with."""
        with self.code.either(is_float) as (floating, integer):
            with floating:
                self.moved.set(True)
                self.compare_number(differs, own, word.bits_as("f64"))
            with integer:
                differs.expect(own.flag(at.FREE))

    def option_type(self, index: Value) -> Value:
        return self.block.at(block_at.OPTION_TYPES).read(index)

    def free_number(self, index: Value) -> Value:
        return self.given.read(self.arrays + index).bits_as("f64")

    taking_words = at.WORDS

    def word(self, option: Value) -> Value:
        return self.number(option)

    def taken(self, options: Array, count: Value) -> Value:
        code, block = self.code, self.block
        made = self.new_tuple(count)
        with code.loop(0, count) as index:
            option, item = options.read(index), code.variable(0)
            word = self.word(option)
            is_float = self.option_type(option) == self.control.read(at.FLOAT)
            with code.either(is_float) as (floating, integer):
                with floating:
                    item.set(block.call(block_at.FROM_DOUBLE, "i64", word.bits_as("f64")))
                with integer:
                    item.set(block.call(block_at.FROM_INT64, "i64", word))
            self.put(made, index, item.get())
        return made

    # Results.

    def expect_untracked(self, library: Value) -> None:
        """Autograd is above the dispatcher's kernels, and knows."""

    def take_outputs(self, fresh: Value, library: Value) -> None:
        """Whoever gave an output has it."""

    def make_outputs(self, record: Array, lead: Array, library: Value, operands: Array) -> None:
        code = self.code
        many, how, shapes = (record.read(own) for own in (at.RESULTS, at.MAKE_DTYPE, at.SHAPES))
        first = self.own(record, self.inputs).read(at.PLACE)
        self.doubt.expect(many <= block_at.MAX_RESULTS)
        with code.loop(0, many) as index, self.doubt.when_none():
            result, mask = self.results.at(index), shapes >> index * at.RESULT_BITS
            each = code.variable(how)
            with code.when(many > 1):
                each.set(code.slots(how).read(index + objects.TUPLE_ITEMS))
            self.doubt.expect(mask.bit(at.MADE_BIT))
            view = self.view(self.inputs + index)
            with self.doubt.when_none():
                self.make_output(record, lead, each.get(), mask, result, view)
            with self.doubt.when_none():
                operands.write(first + index, view.read(at.DATA))

    def make_output(
        self, record: Array, lead: Array, how: Value, mask: Value, result: Array, view: Array
    ) -> None:
        device = self.own(record, self.inputs).read(at.FIRST)
        known = record.read(at.LEAD) == self.inputs
        with self.code.either(known) as (alone, beside):
            with alone:
                self.make_ready(self.code.slots(how), device, result, view)
            with beside:
                self.make_like(record, lead, how, mask, device, result, view)

    def make_ready(self, call: Array, device: Value, result: Array, view: Array) -> None:
        """By a call that lies ready for Python: a function, a shape, strides and a dtype."""
        code, items = self.code, call.at(objects.TUPLE_ITEMS)
        self.doubt.expect(items.read(0) != self.block.read(block_at.KEPT))
        shape, strides = (code.slots(items.read(own)) for own in (1, 2))
        axes = shape.read(objects.TUPLE_LENGTH)
        sizes, steps = (code.frame("i64", at.MAX_AXES) for _ in range(2))
        with self.locked(), code.loop(0, axes) as axis:
            for own, numbers in ((sizes, shape), (steps, strides)):
                number = numbers.read(axis + objects.TUPLE_ITEMS)
                own.write(axis, self.control.call(at.AS_INT64, "i64", number))
        self.make(axes, sizes, steps, items.read(3), device, result, view)

    def make_like(
        self, record: Array, lead: Array, dtype: Value, mask: Value, device: Value, result: Array, view: Array
    ) -> None:  # fmt: skip
        """Row-major over axes of the lead's; large ones have memory that Python keeps."""
        sizes, strides, axes, count = self.row_major(lead, mask)
        item, most = self.own(record, self.inputs).read(at.ITEM), record.read(at.LARGE_FROM)
        any_size = record.read(at.MAKE) == record.read(at.MAKE_LARGE)
        self.doubt.expect(any_size | (count * item < most))
        with self.doubt.when_none():
            self.make(axes, sizes, strides, dtype, device, result, view)

    def make(
        self, axes: Value, shape: Array, strides: Array, dtype: Value, device: Value, result: Array, view: Array
    ) -> None:  # fmt: skip
        """A tensor, and what is known of it into a view."""
        number = self.code.variable(-1)
        for place in range(len(block_at.DTYPE_NAMES)):
            known = self.block.at(block_at.DTYPE_OBJECTS + 2 * place)
            with self.code.when(known.read(0) == dtype):
                number.set(known.read(1))
        self.doubt.expect(number.get() >= 0)
        kind, which = self.block.read(block_at.DEVICE_KIND), device >> 32
        with self.doubt.when_none():
            status = self.block.call(
                block_at.EMPTY, "i32", axes, shape, strides, number.get().to("i32"), kind.to("i32"), which.to("i32"), result
            )  # fmt: skip
            self.doubt.expect(status == 0)
        with self.doubt.when_none():
            tensor = NativeTensor(self.code, result.read(0), self.block)
            for own, value in (
                (at.DATA, tensor.ask(block_at.GET_DATA)), (at.KIND, axes), (at.SHAPE_AT, shape.address()),
                (at.STRIDES_AT, strides.address()),
            ):  # fmt: skip
                view.write(own, value)
            view.write(at.OFFSET, 0)
            view.write(at.LIBRARY, at.TORCH)
            self.measure(view)  # which copies sizes and strides
            self.doubt.expect(view.read(at.DATA) != 0)
