"""Phase one on NumPy's arrays or PyTorch's tensors: a builtin reads them, finds the kind of call, and says where they lie.

It compares what the short road of plain calls compares, by the same records and code, and runs nothing. Descriptors of the
arrays are made only if somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.interface import Parameter
from openaclnn.core.interop import as_tensor
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.code import RoadCode
from openaclnn.repeat.kinds import Road
from openaclnn.repeat.records import record_of
from openaclnn.repeat.sizes import AnySize

__all__ = ["Locating"]


class Locating(Road):
    """Of an operator: `call(*arrays, *attributes, None)` gives the kind, the output's shape and all addresses, in one tuple."""

    def __init__(self, declared: Operator) -> None:
        super().__init__(declared)
        self._order = itemgetter(*[declared.places[p.name] for p in self._parameters(declared)])

    def _parameters(self, declared: Operator) -> list[Parameter]:
        """Tensors, the output last, then attributes."""
        own = declared.parameters
        places = (*declared.input_places, *declared.output_places)
        return [*[own[place] for place in places], *[p for p in own if not p.is_tensor]]

    def _code(self) -> tuple[str, Any]:
        return "locating", emit_locating

    @staticmethod
    def serves(declared: Operator) -> bool:
        """Whether each of an operator's arrays stands for itself: one output, which is written alone."""
        return declared.result_type is None and not declared.output.in_place

    def locate(self, arguments: Sequence[Any]) -> Any:
        """Of phase one's arguments, in C order; NotImplemented where nothing is known of them."""
        return self.call(*self._order(arguments), None)

    def learn(self, kind: AnySize, arguments: Sequence[Any]) -> None:
        """Let the next call like this one, which is of a kind, be located."""
        given, count = self._order(arguments), len(self._arrays)
        arrays, options = given[:count], given[count:]
        views = [None if array is None else as_tensor(array) for array in arrays]
        library = self._library(arrays, views, options)
        if not library:
            return
        choice = kind.choice._replace(sized=lambda: kind.sized)
        # Nameless: no attribute may be another number.
        record, kept = record_of(
            self._places(kind.plan), kind.plan, choice, arrays, views, options, [""] * len(options),
            library,
        )  # fmt: skip
        if record[at.LEAD] != count - 1:  # sizes are no part of it
            self._enter(record, (kind, kept), library)


def emit_locating(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `locate(*arrays, *attributes, None)`, the output last of the arrays."""
    _Locating(code, control, given).write(number)


class _Locating(RoadCode):
    """The function being written."""

    def run(self, record: Array) -> None:
        """What the record keeps, the shape and the addresses; records may change while Python code runs."""
        code, control = self.code, self.control
        keep, count, library = (record.read(own) for own in (at.KEEP, at.ADDRESSES, at.OWN_LIBRARY))
        lead, operands = self.view(record.read(at.LEAD)), code.frame("i64", at.MAX_ARRAYS)
        self.expect_free(record)
        with code.loop(0, self.arrays) as index:
            place = self.own(record, index).read(at.PLACE)
            with code.when(place >= 0):
                operands.write(place, self.address(self.view(index)))
        with self.doubt.when_none():
            control.call(at.INCREF, None, keep)
            made = control.call(at.TUPLE_NEW, "i64", 3)
            with code.when(made.equals(0)):
                self.drop(keep)
            self.fail_without(made)
            self.result.set(made)
            control.call(at.TUPLE_SET, "i32", made, 0, keep)
        with self.doubt.when_none(), code.when(library.equals(at.TORCH)):
            self.expect_no_graph()
            # What autograd would not let be written is refused in phase one.
            self.expect_false(at.REQUIRES_GRAD, self.given.read(self.last))
        with self.doubt.when_none():
            parts = (self.tuple_of(lead, at.SHAPE_AT), self.pack(operands, count))
            for slot, item in enumerate(parts, 1):
                control.call(at.TUPLE_SET, "i32", self.result.get(), slot, item)
