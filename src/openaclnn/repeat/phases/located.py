"""Phase one on NumPy's arrays, PyTorch's tensors or descriptors of ours: a builtin reads them, finds the kind of call, and
says where they lie.

It compares what the short road of plain calls compares, by the same records and code, and runs nothing. Descriptors of
arrays are made only if somebody asks for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.interface import Parameter
from openaclnn.core.interop import as_tensor
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.kinds.records import Given, record_of
from openaclnn.repeat.kinds.road import BY_VALUE, Road, nothing_chosen
from openaclnn.repeat.phases.descriptors import DescriptorCode, descriptors_are_readable
from openaclnn.repeat.phases.sizes import Kind
from openaclnn.repeat.words import slots as at

__all__ = ["Locating"]


class Locating(Road):
    """The road of an operator's phase one: `call(*arrays, *attributes, None)` finds the kind and gives a tuple of six:

    - the kind; the lead's shape, and its number of elements;
    - the numbers that its runner takes, where they are others than the kind's;
    - the addresses of all operands;
    - of descriptors the owners of their memory, None where a rule of memory may be broken.
    """

    by_value = BY_VALUE | {bytes, Scalar}

    def __init__(self, declared: Operator) -> None:
        super().__init__(declared)
        attributes = [p.name for p in declared.parameters if not p.is_tensor]
        self._order = itemgetter(*[declared.places[name] for name in (*self._names, *attributes)])

    def _parameters(self, declared: Operator) -> list[Parameter]:
        """Tensors, the output last, then attributes."""
        own = declared.parameters
        places = (*declared.input_places, *declared.output_places)
        return [*[own[place] for place in places], *[p for p in own if not p.is_tensor]]

    def _code(self) -> tuple[str, Any]:
        return "locating", emit_locating

    def _open(self) -> None:
        super()._open()
        self._control[at.DESCRIPTOR], self._control[at.SCALAR] = id(Tensor), id(Scalar)

    def _callable(self) -> Callable[..., Any]:
        return self._begin

    def _begin(self, *arguments: Any) -> Any:
        """The first call: a program that makes no second one need not wait for the machine code."""
        self.call = super()._callable()
        return self.call(*arguments)

    def _library_of(self, arrays: Sequence[Any]) -> int:
        ours = {*map(type, arrays)} - {type(None)} == {Tensor}
        return at.OURS if ours else super()._library_of(arrays)

    def locate(self, arguments: Sequence[Any]) -> Any:
        """What `call` gives for phase one's arguments, in C order; NotImplemented where nothing is known of them."""
        return self.call(*self._order(arguments), None)

    def learn(self, kind: Kind, arguments: Sequence[Any]) -> bool:
        """Let the next call of this kind be located; False where that cannot be, or was tried with such arguments before."""
        given, count = self._order(arguments), len(self._arrays)
        arrays, options = given[:count], given[count:]
        types = frozenset(map(type, arrays))
        if types in kind.learned or not nothing_chosen():
            return False
        kind.learned.add(types)
        if not descriptors_are_readable():
            return False
        views = [None if array is None else as_tensor(array) for array in arrays]
        library = self._library(arrays, options)
        if not library or any(view and view.rank > at.MAX_AXES for view in views):
            return False
        if kind.attributes is None:
            kind.attributes = options
        if library == at.OURS and sys.intern(kind.device) is not kind.device:
            return False  # another string may say the same
        plan = kind.plan
        given = Given(library, arrays, self._places_of(plan), kind.attributes, self._options)
        layout, record, kept = record_of(given, plan, kind.choice, views, any_size=kind.any_size)
        if kind.any_size and record[at.LEAD] == self._inputs:  # sizes are part of it
            return False
        if library == at.OURS:
            record[at.HOME] = id(kind.device)
        self._enter(layout, record, (kind, kept), library)
        return True


def emit_locating(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `locate(*arrays, *attributes, None)`, the outputs last of the arrays."""
    _Locating(code, control, given).write(number)


class _Locating(DescriptorCode):
    """The function being written."""

    def run(self, record: Array) -> None:
        """Make the tuple. The record may change while Python code runs: what is needed of it is read before."""
        code, control = self.code, self.control
        keep, count, library = (record.read(own) for own in (at.KEEP, at.ADDRESSES, at.OWN_LIBRARY))
        lead, operands = self.view(record.read(at.LEAD)), code.frame("i64", at.MAX_ARRAYS)
        owners = code.variable(control.read(at.NONE))
        held, ours = code.frame("i64", at.MAX_ARRAYS), library == at.OURS
        with code.when(ours), code.loop(0, self.arrays) as index:  # their offsets count elements
            view, item = self.view(index), self.own(record, index).read(at.ITEM)
            view.write(at.OFFSET, view.read(at.OFFSET) * item)
        native, constants = record.read(at.KERNEL) != 0, record.read(at.CONSTANTS)
        numbers = self.numbers(record)
        self.expect_free(record)
        with code.loop(0, self.arrays) as index:
            place = self.own(record, index).read(at.PLACE)
            with code.when(place >= 0):
                operands.write(place, self.address(self.view(index)))
                with code.when(ours):
                    self.expect_allocated(record, index, held.at(place))
        with code.when(ours):
            with self.doubt.when_none():
                owners.set(self.hold(held, count))
            self.doubt.reset()  # whoever asked looks at the memory
        with self.doubt.when_none():
            control.call(at.INCREF, None, keep)
            with code.when(owners.get() == control.read(at.NONE)):
                control.call(at.INCREF, None, owners.get())
            made = control.call(at.TUPLE_NEW, "i64", 6)
            with code.when(made == 0):
                for own in (keep, owners.get()):
                    self.drop(own)
            self.fail_without(made)
            self.result.set(made)
            control.call(at.TUPLE_SET, "i32", made, 0, keep)
            control.call(at.TUPLE_SET, "i32", made, 5, owners.get())
        with self.doubt.when_none(), code.when(library == at.TORCH):
            self.expect_no_graph()
        with self.doubt.when_none():
            self.expect_untracked(library)  # else it is refused in phase one
        with self.doubt.when_none():
            size = control.call(at.FROM_INT64, "i64", lead.read(at.SIZE))
            self.fail_without(size)
            shape, addresses = self.tuple_of(lead, at.SHAPE_AT), self.pack(operands, count)
            parts = shape, size, self.other_numbers(native, constants, numbers), addresses
            for slot, item in enumerate(parts, 1):
                control.call(at.TUPLE_SET, "i32", self.result.get(), slot, item)

    def other_numbers(self, native: Value, constants: Value, numbers: tuple[Array, Value]) -> Value:
        """A kernel's constants if they are others than the kind's, or the numbers that a sized runner takes."""
        made = self.code.variable(0)
        with self.code.either(native) as (flat, sized):
            with flat:
                made.set(self.pack(self.derived, self.moved.get().choose(constants, 0)))
            with sized:
                made.set(self.taken(*numbers))
        return made.get()
