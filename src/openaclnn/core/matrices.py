"""Plans with matrix products: steps that array libraries compute (`engines/arrays.py`) beside row formulas, with scratch memory between them.

A matrix product is a plan over (rows, columns, terms), along which its operands have strides, 0 where they lack the axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.core.plan import Operand, Plan, Step, class_plan
from openaclnn.core.tensor import Tensor, extent

__all__ = ["MATRIX_PRODUCT", "PLACED_TARGETS", "RESTORED_TARGETS", "Place", "Steps", "chunks"]

MATRIX_PRODUCT = "matrix_product"
PLACED_TARGETS = "placed_targets"
"""Of targets: columns from `first` on, 64-bit, -1 for those that are none of `columns`; a bit for each row, 1 for those, eight rows in a
byte, least significant first; and columns of the targets' dtype, 0 for those."""
RESTORED_TARGETS = "restored_targets"
"""Of such bits, or truth values, and columns: the first of these."""

CHUNK = 1 << 27  # elements of what is computed of all rows and columns, and held for some rows
LINE = 64  # bytes


def chunks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """From where to where rows are taken at once."""
    return pairwise([*range(0, rows, max(1, CHUNK // columns)), rows])


class Place(NamedTuple):
    """A tensor, in which of a plan's operands (or in scratch memory, which is behind them) it lies, and where it begins there, in elements."""

    place: int
    name: str
    tensor: Tensor
    offset: int = 0
    is_turned: bool = False

    def rows(self, begin: int, end: int) -> Place:
        tensor = self.tensor
        view = Tensor.view((end - begin, *tensor.shape[1:]), tensor.dtype, tensor.strides, 0, None, tensor.device)  # fmt: skip
        return self._replace(tensor=view, offset=self.offset + begin * tensor.strides[0])

    @property
    def turned(self) -> Place:
        tensor = self.tensor
        view = Tensor.view(
            tensor.shape[::-1], tensor.dtype, tensor.strides[::-1], 0, None, tensor.device
        )
        return self._replace(tensor=view, is_turned=not self.is_turned)

    def operand(self, strides: tuple[int, ...]) -> Operand:
        tensor = self.tensor
        return Operand(
            self.name, tensor.dtype, strides, 0, self.offset, *extent(tensor), "positions"
        )


class Steps:
    """The steps of an operator's call on tensors by name, as they are written down."""

    def __init__(self, operator: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:  # fmt: skip
        self.operator = operator
        self.inputs = len(inputs)
        self.places = [
            Place(place, *named) for place, named in enumerate([*inputs.items(), *outputs.items()])
        ]
        self.steps: list[Step] = []
        self.bytes = 0

    def __getitem__(self, name: str) -> Place:
        return next(place for place in self.places if place.name == name)

    def scratch(self, shape: tuple[int, ...], dtype: DType) -> Place:
        """Scratch memory; rows begin at lines."""
        count = LINE // dtype.itemsize
        pitch = -(-shape[-1] // count) * count
        begin, size = self.bytes // dtype.itemsize, pitch * (shape[0] if len(shape) > 1 else 1)
        self.bytes += size * dtype.itemsize
        strides = (pitch, 1)[-len(shape) :]
        return Place(len(self.places), "", Tensor.view(shape, dtype, strides, 0, None, ""), begin)

    def add(self, plan: Plan, places: Sequence[Place]) -> None:
        self.steps.append(Step(plan, tuple([each.place for each in places])))

    def multiply(self, left: Place, right: Place, out: Place, more: Place | None = None) -> None:
        """out = left (rows, terms) times right (terms, columns), and `more` added; in FLOAT, rounded once."""
        (rows, terms), (_, columns) = left.tensor.shape, right.tensor.shape
        places = [left, right, *([] if more is None else [more]), out]
        strides = [(left.tensor.strides[0], 0, left.tensor.strides[1]), (0, *right.tensor.strides[::-1])]  # fmt: skip
        strides += [(*each.tensor.strides, 0) for each in places[2:]]
        *read, written = [each.operand(walk) for each, walk in zip(places, strides, strict=True)]
        shape, turned = (rows, columns, terms), {"turned": (left.is_turned, right.is_turned)}
        self.add(Plan(self.operator, MATRIX_PRODUCT, FLOAT, shape, tuple(read), written, turned, fixed=True), places)  # fmt: skip

    def walk(self, kernel: str, inputs: Sequence[tuple[Place, str]], outputs: Sequence[tuple[Place, str]], numbers: Mapping[str, Any]) -> None:  # fmt: skip
        """A row formula, over the rows of its first operand; operands have roles."""
        both = [*inputs, *outputs]
        named = [(place.name, place.tensor, role) for place, role in both]
        shape = inputs[0][0].tensor.shape
        count = len(inputs)
        plan = class_plan(self.operator, kernel, FLOAT, named[:count], named[count:], shape, 1, -1, numbers, fixed=True)  # fmt: skip
        moved = [operand._replace(offset=operand.offset + place.offset) for operand, (place, _) in zip(plan.operands, both, strict=True)]  # fmt: skip
        plan = replace(plan, inputs=tuple(moved[:count]), output=moved[count], more=tuple(moved[count + 1 :]))  # fmt: skip
        self.add(plan, [place for place, _ in both])

    def compute(self, kernel: str, inputs: Sequence[Place], outputs: Sequence[Place], numbers: Mapping[str, Any]) -> None:  # fmt: skip
        """A kernel of vectors."""
        places = [*inputs, *outputs]
        operands = [each.operand(each.tensor.strides) for each in places]
        count, shape = len(inputs), outputs[0].tensor.shape
        plan = Plan(self.operator, kernel, FLOAT, shape, tuple(operands[:count]), operands[count], numbers, more=tuple(operands[count + 1 :]), fixed=True)  # fmt: skip
        self.add(plan, places)

    def plan(self, kernel: str, shape: tuple[int, ...], spared: Sequence[Operand] = ()) -> Plan:
        """All steps under one name, over a shape that says how much there is to do."""
        operands = [each.operand(each.tensor.strides) for each in self.places]
        first = self.inputs
        return Plan(
            self.operator, kernel, FLOAT, shape, tuple(operands[:first]), operands[first], {}, more=tuple(operands[first + 1 :]), spared=tuple(spared),
            steps=tuple(self.steps), scratch=self.bytes, fixed=True,
        )  # fmt: skip
