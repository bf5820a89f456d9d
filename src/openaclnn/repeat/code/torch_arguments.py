"""PyTorch's tensors as arguments of the fast path: read, asked for their stream, and announced to autograd when they are written."""

from __future__ import annotations

from typing import Any

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.outputs import Outputs
from openaclnn.repeat.code.recognise import guarded
from openaclnn.repeat.code.tensors import NativeTensor
from openaclnn.repeat.words import slots as at
from openaclnn.repeat.words.readers import GRAPH_KEYS, HANDLE
from openaclnn.repeat.words.tensors import DEVICES, TABLE_DEVICE, TABLE_DTYPES, TensorWords

__all__ = ["TorchArguments"]

HOST = 1  # DLPack's number for the CPU


class TorchArguments(Outputs):
    """The function being written, as far as it is about PyTorch."""

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
                known = self.read_words(item, view)
                with self.code.when(known == 0):
                    self.expect_success(self.control.call(at.FROM_PYTHON, "i32", item, view))

    def look_at_torch(self, item: Value, view: Array) -> None:
        code, known = self.code, self.read_words(item, view) != 0
        with code.when(~known):
            self.ask_torch(item, view)
        view.write(at.LIBRARY, at.TORCH)
        view.write(at.WRITABLE, 1)
        view.write(at.DENSELY, self.measure(view).to("i64"))
        with code.either(known) as (plain, other):
            with plain:
                tensor = self.tensor(item)
                self.expect_in_storage(view, tensor.offset, tensor.storage_bytes)
            with other:
                self.expect_inside(item + HANDLE, view)

    def ask_torch(self, item: Value, view: Array) -> None:
        """What PyTorch's functions say of a tensor."""
        self.expect_success(self.control.call(at.FROM_PYTHON, "i32", item, view))
        self.guard.expect(~self.is_so(at.IS_NEGATED, item + HANDLE))
        self.guard.expect(view.read(at.STRIDES_AT) != 0)

    def read_words(self, item: Value, view: Array) -> Value:
        """The same from its own words, in a tenth of the time: not 0 if it is plain memory of the CPU's or of a GPU's, and these are known."""
        code, table = self.code, self.control.read(at.TENSOR_WORDS)
        known, words = code.variable(0), code.slots(table)
        with code.when(table != 0), guarded(code) as guard:
            tensor = self.tensor(item)
            tensor.expect_plain(guard, tensor.where.table, tensor.where.storage_table)
            guard.expect(tensor.device.below(len(DEVICES)))
            guard.expect(tensor.dtype.below(at.MAX_DTYPES))
            kind = words.at(TABLE_DTYPES).read(tensor.dtype)
            device = words.at(TABLE_DEVICE).read(tensor.device)
            guard.expect((kind != 0) & (device != 0))
            view.write(at.DEVICE, device + (tensor.index << 32))
            self.describe(tensor, kind, view)
            known.set(code.integer(1))
        return known.get()

    def describe(self, tensor: NativeTensor, kind: Value, view: Array) -> None:
        """Where a tensor's elements lie; `kind` is DLPack's word for their dtype."""
        sizes, strides = tensor.sides()
        for slot, value in (
            (at.DATA, tensor.data(self.item_size(kind))), (at.KIND, kind + tensor.axes), (at.SHAPE_AT, sizes),
            (at.STRIDES_AT, strides),
        ):  # fmt: skip
            view.write(slot, value)
        view.write(at.OFFSET, 0)

    def tensor(self, item: Value) -> NativeTensor:
        """A tensor whose words are known."""
        words = self.code.slots(self.control.read(at.TENSOR_WORDS))
        where: Any = TensorWords._make(words.read(place) for place in range(TABLE_DEVICE))
        return NativeTensor(self.code, item + HANDLE, where)

    def expect_inside(self, handle: Value, view: Array) -> None:
        """A tensor lies inside its storage, which may have been made shorter."""
        words = self.code.frame("i64", 2)
        for place, function in enumerate((at.STORAGE_SIZE, at.STORAGE_OFFSET)):
            self.expect_success(self.control.call(function, "i32", handle, words.at(place)))
        self.expect_in_storage(view, words.read(1), words.read(0))

    def expect_in_storage(self, view: Array, offset: Value, size: Value) -> None:
        """The same, by where in its storage it begins, and how many bytes that has."""
        code, beyond = self.code, self.code.variable(view.read(at.SIZE))
        with code.when(view.read(at.DENSELY) == 0):
            beyond.set(code.integer(1))  # elements from the first to beyond the last
            with code.loop(0, self.axes(view)) as axis:
                reach = (view.at(at.SIZES).read(axis) - 1) * view.at(at.STEPS).read(axis)
                beyond.set(beyond.get() + reach)
        inside = (offset + beyond.get()) * self.item_size(view.read(at.KIND)) <= size
        self.guard.expect(inside | (view.read(at.SIZE) == 0))

    def is_so(self, function: int, place: Value) -> Value:
        """What one of PyTorch's C++ functions says of a tensor. Python's would let modes run, which may change what was read."""
        said = self.control.call(function, "i32", place)
        return (said & 0xFF) != 0

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
            self.expect_no_graph()
            self.find_stream(place, stream)

    def expect_no_graph(self) -> None:
        """Nobody records PyTorch's operations in this thread."""
        control, keys = self.control, self.control.read(at.GRAPH_KEYS)
        for place in range(len(GRAPH_KEYS)):
            key = (keys >> 16 * place & 0xFFFF).to("i32")
            included = control.call(at.KEY_IS_INCLUDED, "i32", key) & 0xFF
            self.guard.expect(included == 0)

    def find_stream(self, place: Value, stream: Array) -> None:
        device, which = place.to("i32"), (place >> 32).to("i32")
        with self.code.when(device != HOST):
            status = self.control.call(at.CURRENT_STREAM, "i32", device, which, stream)
            self.expect_success(status)

    def expect_untracked(self, library: Value) -> None:
        """What autograd would not let be written is left to the slow path."""

        def visit(index: Value) -> None:
            tensor = self.code.slots(self.given.read(index) + HANDLE).read(0)
            self.guard.expect(~self.is_so(at.REQUIRES_GRAD, tensor))

        with self.code.when(library == at.TORCH):
            self.each_given(visit)

    def count_writes(self, library: Value) -> None:
        with self.code.when(library == at.TORCH):
            self.each_given(lambda index: self.count_write(self.given.read(index)))

    def count_write(self, item: Value) -> None:
        """Tell autograd that a tensor is written."""
        code, control = self.code, self.control
        # C++ raises an exception for those whose changes are not counted, which no frame of ours may meet.
        with code.either(self.is_so(at.IS_INFERENCE, item + HANDLE)) as (uncounted, counted):
            with uncounted:
                self.note_python(True)
                told = self.call_object(control.read(at.WRITTEN), item)
                self.fail_without(told)
                self.drop(told)
            with counted:
                control.call(at.COUNT_WRITE, None, item + HANDLE)

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
