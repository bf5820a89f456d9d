"""Kernels for PyTorch's operators as machine code, in the form of its stable C interface: `kernel(stack, arguments, results)`.

What the fast path serves is computed by `repeat.native`, without Python. For the rest the kernel calls the operator's fallback by the
dispatcher, which is a function in Python (`native.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from openaclnn.core.interface import REDUCTIONS
from openaclnn.engines.machine.builtins import (
    external_block,
    let_exceptions_pass,
    object_of_python,
    python,
)
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import native_slots as at
from openaclnn.repeat.code.native import NativeTensor
from openaclnn.repeat.code.read_copy_update import take_back
from openaclnn.repeat.code.recognise import guarded
from openaclnn.torch.signatures import (
    AXIS,
    DTYPE,
    FLOAT,
    OPTIONAL,
    REDUCTION,
    TENSOR,
    UNSET,
    WEIGHT,
    Signature,
)

EXPONENT_AT, INFINITE = 52, 0x7FF  # of a double: its exponent, and that of what is not finite
BFLOAT = 4  # DLPack's code of BFLOAT16
# Exponents of what is not finite.
INFINITE_FLOAT, INFINITE_HALF, INFINITE_BFLOAT = 0x7F800000, 0x7C00, 0x7F80
ONE_FLOAT, ONE_HALF, ONE_BFLOAT = 0x3F800000, 0x3C00, 0x3F80

MOST_CHECKED = 1 << 14
"""Of more losses than these Python asks PyTorch's sum whether they are finite, which is quicker."""


def stable_kernel(block: str, schema: Signature) -> int:
    """The address of the kernel whose block has this name."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        let_exceptions_pass(code)
        _Kernel(code, external_block(code, block), schema, code.slots(arguments[0])).write()

    return compiled(f"{block}.{schema.kinds}", emit, signature(None, "i64", "i64", "i64"))


class _Kernel:
    """The function being written. The stack has a word for each argument: a tensor's handle, where one may be missing the address of
    that word, or 0; an integer, or a float's bits. Handles are the kernel's.
    """

    def __init__(self, code: Code, block: Array, schema: Signature, stack: Array) -> None:
        self.code, self.block, self.schema, self.stack = code, block, schema, stack
        self.results = code.frame("i64", at.MAX_RESULTS)

    def write(self) -> None:
        code, block = self.code, self.block
        for index in range(at.MAX_RESULTS):
            self.results.write(index, 0)
        with guarded(code) as self.guard:
            self.arguments = [self.argument(place) for place in range(len(self.schema.kinds))]
            words = self.words()
            self.expect_no_other_dtype()
            alone = self.each_for_itself() if self.schema.results > 1 else None
            if self.schema.checked:
                self.expect_few_losses()
            self.guard.expect(block.call(at.CORE, "i64", block, words, self.results) == 0)
            with guarded(code) as self.guard:
                if self.schema.checked:
                    self.check_losses()
                if alone is not None:
                    with code.when(alone):
                        self.clear_second()
                self.finish()
                code.leave()
            take_back(code, block.at(at.COUNT))
            for index in range(self.schema.results):
                block.call(at.DELETE, "i32", self.results.read(index))
        self.fall_back()
        code.leave()

    def argument(self, place: int) -> Value:
        """The word of an argument. Of a tensor that is missing it is 0; autograd hands over one that is not defined."""
        word = self.stack.read(place)
        if self.schema.kinds[place] not in (OPTIONAL, WEIGHT):
            return word
        handle = self.code.variable(0)
        with self.code.when(word != 0):
            weight = self.tensor_of(self.code.slots(word).read(0))
            with self.code.when((weight.ask(at.IS_DEFINED) & 0xFF) != 0):
                handle.set(weight.handle)
        return handle.get()

    def words(self) -> Array:
        """The fast path's arguments: its arrays, no output, its options."""
        words = self.code.frame("i64", sum(self.schema.words))
        inputs, outputs, _ = self.schema.words
        for place in range(outputs):
            words.write(inputs + place, 0)
        for place, source in enumerate(self.schema.order):
            where = place + outputs * (place >= inputs)
            words.write(where, self.word(self.schema.kinds[source], self.arguments[source]))
        return words

    def word(self, kind: str, value: Value) -> Value:
        if kind == FLOAT:  # others than finite ones Python declines
            self.guard.expect((value >> EXPONENT_AT & INFINITE) != INFINITE)
        elif kind == REDUCTION:
            self.guard.expect(value.below(len(REDUCTIONS)))
            return self.block.at(at.REDUCTIONS).read(value)
        elif kind == AXIS:
            self.expect_few_classes(value)
        elif kind == WEIGHT:
            weight = self.code.variable(value)
            with self.code.when(value == 0):
                weight.set(self.ones())
            return weight.get()
        return value

    def expect_few_classes(self, value: Value) -> None:
        """That PyTorch's kernel is not the faster one, along this axis of the first tensor."""
        tensor = self.tensor(0)
        axes, sizes = tensor.axes, self.code.slots(tensor.ask(at.GET_SIZES))
        axis = (value < 0).choose(value + axes, value)
        self.guard.expect(axis.below(axes))
        self.guard.expect(sizes.read(axis) <= self.block.read(at.MOST_CLASSES))

    def expect_no_other_dtype(self) -> None:
        """That nobody asks for a result of another dtype than the first tensor's."""
        for kind, value in zip(self.schema.kinds, self.arguments, strict=True):
            if kind == UNSET:
                self.guard.expect((value & 0xFF) == 0)
            elif kind == DTYPE:
                self.guard.expect((value & 0xFFFFFFFF) == self.tensor(0).dtype)

    def ones(self) -> Value:
        """The handle of a weight for each class that changes nothing, if Python has made one."""
        code, block = self.code, self.block
        # It comes before the target and this.
        tensor = self.tensor(self.schema.kinds.index(WEIGHT) - 2)
        ones, axes, dtype, index = code.variable(0), tensor.axes, tensor.dtype, tensor.index
        sizes = tensor.ask(at.GET_SIZES)
        self.guard.expect(axes > 0)
        classes = code.slots(sizes).read((axes > 1).to("i64"))
        with code.loop(0, at.MAX_ONES) as number, code.when(ones.get() == 0):
            kept = block.at(number * at.ONES_SLOTS + at.ONES)
            same = (code.read_shared(kept, 0) == classes) & (kept.read(1) == dtype)
            with code.when(same & (kept.read(2) == index)):
                ones.set(kept.read(3))
        self.guard.expect(ones.get() != 0)
        return ones.get()

    def each_for_itself(self) -> Value:
        """Whether each position has a loss of its own: then the second result is 0, unless there is no axis of positions. Of pixels on
        a GPU PyTorch leaves it as it was allocated.
        """
        kinds = self.schema.kinds
        alone = self.arguments[kinds.index(REDUCTION)] == 0
        axes = self.tensor(kinds.index(WEIGHT) - 1).axes
        self.guard.expect((axes != 0) | ~alone)
        return alone & ((axes == 1) | (self.block.read(at.DEVICE_KIND) == 0))

    def clear_second(self) -> None:
        """A fresh tensor of one element; on a GPU by PyTorch, in its turn on the stream."""
        code, block, result = self.code, self.block, self.results.read(1)
        with code.either(block.read(at.DEVICE_KIND) == 0) as (host, other):
            with host:
                second = self.tensor_of(result)
                bits = block.at(at.DTYPES).read(second.dtype) >> 40 & 0xFF  # DLPack's
                code.clear(second.ask(at.GET_DATA), bits >> 3)
            with other:
                self.guard.expect(block.call(at.ZERO, "i32", result) == 0)

    def expect_few_losses(self) -> None:
        tensor, reduction = self.tensor(0), self.arguments[self.schema.kinds.index(REDUCTION)]
        few = self.elements(tensor) <= MOST_CHECKED
        if self.schema.of_shares:
            self.guard.expect(few)
            self.expect_rows(self.tensor(1))
        else:
            self.guard.expect(few | (reduction != 0))

    def expect_rows(self, tensor: NativeTensor) -> None:
        """That a tensor lies row-major."""
        code, step, axes = self.code, self.code.variable(1), tensor.axes
        sizes, strides = (code.slots(tensor.ask(each)) for each in (at.GET_SIZES, at.GET_STRIDES))
        with code.loop(0, axes) as index:
            size, stride = sizes.read(axes - 1 - index), strides.read(axes - 1 - index)
            self.guard.expect((size == 1) | (stride == step.get()))
            step.set(step.get() * size)

    def elements(self, tensor: NativeTensor) -> Value:
        code, many = self.code, self.code.variable(1)
        axes, sizes = tensor.axes, code.slots(tensor.ask(at.GET_SIZES))
        with code.loop(0, axes) as axis:
            many.set(many.get() * sizes.read(axis))
        return many.get()

    def check_losses(self) -> None:
        """That losses are finite, and targets shares."""
        code, block, strange = self.code, self.block, self.code.variable(False)
        made = self.tensor_of(self.results.read(0))
        kind, many, first = block.at(at.DTYPES).read(made.dtype), self.elements(made), made.ask(at.GET_DATA)  # fmt: skip
        is_bfloat = (kind >> 32 & 0xFF) == BFLOAT
        half, one = is_bfloat.choose(INFINITE_BFLOAT, INFINITE_HALF), is_bfloat.choose(ONE_BFLOAT, ONE_HALF)  # fmt: skip
        told = ("i32", 4, code.integer(INFINITE_FLOAT), code.integer(ONE_FLOAT)), ("i16", 2, half, one)  # fmt: skip
        target = self.tensor(1)
        with code.either((kind >> 40 & 0xFF) == 32) as ways:
            for way, (word, size, exponent, most) in zip(ways, told, strict=True):
                with way:
                    with code.loop(0, many) as index:
                        bits = code.load(first + index * size, word).to("i64") & exponent
                        strange.set(strange.get() | (bits == exponent))
                    if self.schema.of_shares:
                        sign, begin = 1 << (8 * size - 1), target.ask(at.GET_DATA)
                        with code.loop(0, self.elements(target)) as index:
                            bits = code.load(begin + index * size, word).to("i64") & (2 * sign - 1)
                            strange.set(strange.get() | ((bits > most) & (bits != sign)))
        self.guard.expect(~strange.get())

    def tensor(self, place: int) -> NativeTensor:
        return self.tensor_of(self.arguments[place])

    def tensor_of(self, handle: Value) -> NativeTensor:
        return NativeTensor(self.code, handle, self.block, self.guard)

    def finish(self) -> None:
        """Let go of the arguments, and hand the results over."""
        code, block = self.code, self.block
        for place, kind in enumerate(self.schema.kinds):
            if kind == TENSOR:
                block.call(at.DELETE, "i32", self.arguments[place])
            elif kind in (OPTIONAL, WEIGHT):
                word = self.stack.read(place)
                with code.when(word != 0):
                    block.call(at.DELETE, "i32", code.slots(word).read(0))
                    block.call(at.FREE, "i32", word)
        for index in range(self.schema.results):
            self.stack.write(index, self.results.read(index))

    def fall_back(self) -> None:
        """Hand the arguments to the fallback, which gives results. What it raised C++ raises here, or Python where it runs next in this
        thread."""
        code, block = self.code, self.block
        names = block.read(at.FALLBACK), block.read(at.OVERLOAD)
        status = block.call(at.DISPATCH, "i32", *names, self.stack, block.read(at.VERSION))
        text = code.variable(block.read(at.PLACE))
        with code.when(status == 0):
            state = python(self.code, "PyGILState_Ensure", "i32")
            text.set(self.text_raised())
            self.raise_later()
            python(self.code, "PyGILState_Release", None, state)
            with code.when(text.get() != 0):
                for index in range(self.schema.results):
                    block.call(at.DELETE, "i32", self.stack.read(index))
        with code.when(text.get() != 0, likely=False):
            place, never = block.read(at.PLACE), code.integer(0).to("i32")
            block.call(at.CHECK, None, never, place, place, never, text.get())

    def text_raised(self) -> Value:
        """Where the text of an error is; 0 where there is none."""
        code, text = self.code, self.code.variable(0)
        raised = self.raised(at.TEXT)
        with code.when(raised != object_of_python(self.code, "None")):
            text.set(python(self.code, "PyBytes_AsString", "i64", raised))
        python(self.code, "Py_DecRef", None, raised)  # which the thread keeps
        return text.get()

    def raise_later(self) -> None:
        later = self.raised(at.LATER)
        with self.code.when(later != object_of_python(self.code, "None")):
            thread = python(self.code, "PyThread_get_thread_ident", "i64")
            python(self.code, "PyThreadState_SetAsyncExc", "i32", thread, later)
        python(self.code, "Py_DecRef", None, later)

    def raised(self, attribute: int) -> Value:
        """What the fallback left in this thread."""
        block = self.block
        return python(
            self.code, "PyObject_GetAttr", "i64", block.read(at.RAISED), block.read(attribute)
        )
