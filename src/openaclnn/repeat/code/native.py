"""The fast path for C++: the same cache entries, looked for by a function that is given handles of PyTorch's tensors and
plain numbers, and makes tensors. PyTorch's dispatcher calls it, by way of `openaclnn.torch.entries`.

It does without the interpreter's lock: what it reads never changes (`read_copy_update.py`), or is this call's alone. It takes the lock for
a runner that is a function of Python's, and for a context that may have something chosen.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.modes import is_standard, read_mode
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import native_slots as block_at, slots as at
from openaclnn.repeat.code.fast_path import FastPath
from openaclnn.repeat.code.read_copy_update import arrive, depart
from openaclnn.repeat.code.recognise import Guard, guarded


class Arguments(NamedTuple):
    """How many there are: arrays that are read, outputs, options. Each has a word, in this order."""

    inputs: int
    outputs: int
    options: int


def native_fast_path(many: Arguments) -> int:
    """`core(block, words, results)`: 0 if the call was served, and tensors made."""
    emit = functools.partial(_emit, many)
    name = ".".join(map(str, ("fast_path.native", *many)))
    return compiled(name, emit, signature("i64", "i64", "i64", "i64"))


def _emit(many: Arguments, code: Code, arguments: Sequence[Value]) -> None:
    block, words, results = (code.slots(argument) for argument in arguments)
    cache = block.read(block_at.CACHE)
    # No cache yet, or another mode than IEEE 754's: the way through Python knows what to do.
    with code.when((cache == 0) | ~is_standard(read_mode(code))):
        code.leave(code.integer(1))
    NativeCode(code, block, code.slots(cache), words, results, many).write_native()


class NativeCode(FastPath):
    """The function being written. Arrays are handles of C++ tensors, 0 where there is none; options are an integer, the
    bits of a float, or an object."""

    has_lock = False

    def __init__(
        self, code: Code, block: Array, control: Array, words: Array, results: Array, many: Arguments
    ) -> None:  # fmt: skip
        super().__init__(code, control, words)
        self.inputs, self.outputs, self.options = map(code.integer, many)
        self.arrays = code.integer(many.inputs + many.outputs)
        self.block, self.results = block, results
        self.absent = code.integer(0)
        self.readers = block.at(block_at.COUNT)

    def write_native(self) -> None:
        code = self.code
        self.turn = arrive(code, self.readers)
        with guarded(code) as self.guard:
            self.expect_nothing_chosen()
            self.serve()
            depart(code, self.readers, self.turn, served=True)
            code.leave(code.integer(0))
        self.leave_unserved()

    def leave_unserved(self) -> None:
        """Give back what was made."""
        code = self.code
        depart(code, self.readers, self.turn, served=False)
        for index in range(block_at.MAX_RESULTS):
            tensor = self.results.read(index)
            with code.when(tensor != 0):
                self.block.call(block_at.DELETE, "i32", tensor)
                self.results.write(index, 0)
        code.leave(code.integer(1))

    def write_failure(self) -> None:
        """Leave unserved where Python raised."""
        self.leave_unserved()

    def is_chosen(self) -> Value:
        state = self.python("PyGILState_Ensure", "i32")
        chosen = super().is_chosen()
        self.python("PyGILState_Release", None, state)
        return chosen

    def hold(self, entry: Array) -> None:
        """While this reader is counted, its list is kept."""

    def expect_no_graph(self) -> None:
        """Whoever records the operation that this kernel is of stands above it, and has recorded it."""

    def find_stream(self, place: Value, stream: Array) -> None:
        with self.code.when(self.block.read(block_at.STREAM) != 0):
            which = (place >> 32).to("i32")
            failed = self.block.call(block_at.STREAM, "i32", which, stream)
            self.guard.expect(failed == 0)

    # Tensors.

    def look_at(self, item: Value, view: Array) -> None:
        """Of a tensor on the kernel's kind of device, where elements lie of a dtype that kernels read."""
        block, guard = self.block, self.guard
        tensor = NativeTensor(self.code, item, block, guard)
        device, dtype = tensor.ask(block_at.GET_DEVICE), tensor.dtype
        guard.expect(device == block.read(block_at.DEVICE_KIND))
        guard.expect(dtype.below(at.MAX_DTYPES))
        kind = block.at(block_at.DTYPES).read(dtype)
        guard.expect(kind != 0)
        for slot, value in (
            (at.DATA, tensor.ask(block_at.GET_DATA)), (at.KIND, kind + tensor.axes),
            (at.SHAPE_AT, tensor.ask(block_at.GET_SIZES)), (at.STRIDES_AT, tensor.ask(block_at.GET_STRIDES)),
            (at.DEVICE, block.read(block_at.DEVICE_WORD) + (tensor.index << 32)),
        ):  # fmt: skip
            view.write(slot, value)
        offset, size = tensor.ask(block_at.GET_OFFSET), tensor.ask(block_at.GET_BYTES)
        view.write(at.OFFSET, 0)
        view.write(at.LIBRARY, at.TORCH)
        view.write(at.WRITABLE, 1)
        view.write(at.IS_CONTIGUOUS, self.measure(view).to("i64"))
        self.expect_in_storage(view, offset, size)
        guard.expect(view.read(at.SIZE) != 0)

    # Numbers.

    def read_options(self) -> None:
        with self.code.loop(0, self.options) as index:
            kind = self.block.at(block_at.OPTION_TYPES).read(index)
            self.option_types.write(index, kind)
            self.option_words.write(index, self.option(index))

    # Results.

    def expect_untracked(self, library: Value) -> None:
        """Autograd is above the dispatcher's kernels, and knows."""

    def count_writes(self, library: Value) -> None:
        """So is who counts what is written."""

    def begin_results(self, many: Value) -> None:
        self.guard.expect(many <= block_at.MAX_RESULTS)

    def make_output(
        self, entry: Array, array: Array, view: Array, dtype: Value, index: Value
    ) -> Value:
        """Large ones have memory that Python keeps: they are not made here."""
        any_size = entry.read(at.MAKE) == entry.read(at.MAKE_LARGE)
        self.guard.expect(any_size | ~self.is_large(entry, array, view))
        number, kind = self.dtype_number(dtype), self.block.read(block_at.DEVICE_KIND)
        which = self.array_of(entry, self.inputs).read(at.FIRST) >> 32
        result = self.results.at(index)
        status = self.block.call(
            block_at.EMPTY, "i32", self.axes(view), view.at(at.SIZES), view.at(at.STEPS), number.to("i32"), kind.to("i32"), which.to("i32"), result
        )  # fmt: skip
        self.guard.expect(status == 0)
        made = NativeTensor(self.code, result.read(0), self.block, self.guard)
        return made.ask(block_at.GET_DATA)

    def pass_output(self, entry: Array, index: Value) -> None:
        """Whoever gave it has it."""
        self.guard.expect(self.is_given(self.inputs + index))

    def dtype_number(self, dtype: Value) -> Value:
        """PyTorch's number of one of Python's dtypes."""
        number = self.code.variable(-1)
        for place in range(len(block_at.DTYPE_NAMES)):
            known = self.block.at(block_at.DTYPE_OBJECTS + 2 * place)
            with self.code.when(known.read(0) == dtype):
                number.set(known.read(1))
        self.guard.expect(number.get() >= 0)
        return number.get()


class NativeTensor:
    """What the functions of a kernel's block say of a tensor; where one of them fails, a guard does."""

    def __init__(self, code: Code, handle: Value, block: Array, guard: Guard) -> None:
        self.code, self.handle, self.block, self.guard = code, handle, block, guard

    def ask(self, function: int) -> Value:
        """A word, or the low half of one."""
        answer = self.code.frame("i64", 1)
        answer.write(0, 0)
        status = self.block.call(function, "i32", self.handle, answer)
        self.guard.expect(status == 0)
        return answer.read(0)

    @property
    def axes(self) -> Value:
        return self.ask(block_at.GET_DIM)

    @property
    def dtype(self) -> Value:
        return self.ask(block_at.GET_DTYPE)

    @property
    def index(self) -> Value:
        """Which device of its kind it is on; there is one CPU, whatever it is said to be."""
        index = self.code.variable(0)
        with self.code.when(self.block.read(block_at.DEVICE_KIND) != 0):
            index.set(self.ask(block_at.GET_INDEX))
        return index.get()
