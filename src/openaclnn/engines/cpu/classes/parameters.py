"""The parameters of a kernel with a class axis, and how it reads targets.

Parameters are a block of int64 slots, written once and read by name. A kernel's first argument is the block's address, its second that of scratch memory; the operands'
addresses follow in the plan's order. A target is a class index, which counts or is ignored.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from openaclnn.core.dtypes import FLOAT16, INT32, INT64, UINT8
from openaclnn.core.plan import Plan
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value

FIRST_ARGUMENT = 1  # slot 0 of a launch is its status word
FIRST_OPERAND = 3  # after the parameter block and the scratch memory
NOTHING_IGNORED = -1  # no class; for plans without ignore_index
AXES = 3  # positions have at most this many axes; missing ones have size 1

_OPERAND_FIELDS = ("at", "offset", "class_step", *(f"step{axis}" for axis in range(AXES)))
OFFSET, CLASS_STEP, FIRST_STEP = 1, 2, 3  # among an operand's fields
LAST_STEP = FIRST_STEP + AXES - 1


def objection(plan: Plan, axes: int, rounds: bool = False) -> str | None:
    """Why a kernel for positions of at most so many axes does not serve a plan; None if it does. A kernel that `rounds` may write another
    dtype than it computes in."""
    if len(plan.shape) > axes:
        return f"its positions have {len(plan.shape)} axes"
    if plan.compute is not plan.output.dtype and not rounds:
        return f"it computes in {plan.compute} and writes {plan.output.dtype}"
    if plan.compute is FLOAT16 and not machine().half:
        return "this CPU does not convert FLOAT16"
    return None


def fields(operands: Sequence[str], others: Sequence[str]) -> dict[str, int]:
    """The slot of each field by its name: sizes, six fields for each operand, whether positions are contiguous in all operands, the bytes of an
    element, then `others`."""
    names = [
        "classes", "ignore_index", "positions", *(f"size{axis}" for axis in range(AXES)),
        *(f"{operand}.{field}" for operand in operands for field in _OPERAND_FIELDS),
        "dense", "item", *others,
    ]  # fmt: skip
    return {name: slot for slot, name in enumerate(names)}


def places(slots: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    """The first slot of each operand, by its parameter. `names` maps the kernel's names of operands to parameters."""
    return {parameter: slots[f"{name}.at"] for name, parameter in names.items()}


def pack(
    slots: Mapping[str, int],
    plan: Plan,
    places: Sequence[int],
    others: Mapping[str, int],
) -> array[int]:
    """The block of a plan; `places` has the first slot of each operand. Steps are in bytes. If there are more axes than AXES, it has the last ones."""
    words = [0] * len(slots)
    shape = ((1,) * AXES + plan.shape)[-AXES:]
    ignored = plan.numbers.get("ignore_index", NOTHING_IGNORED)
    words[: 3 + AXES] = plan.classes, ignored, math.prod(shape), *shape
    for number, (operand, first) in enumerate(
        zip(plan.operands, places, strict=True), FIRST_OPERAND
    ):
        item = operand.dtype.itemsize
        words[first : first + 3] = number, operand.offset * item, operand.class_stride * item
        last, steps = first + len(_OPERAND_FIELDS), operand.strides[-AXES:]
        words[last - len(steps) : last] = [step * item for step in steps]
    for name, value in others.items():
        words[slots[name]] = value
    return array("q", words)


def double(number: float) -> int:
    """The bits of a FLOAT64 as an int64, for a slot."""
    bits: int = struct.unpack("q", struct.pack("d", number))[0]
    return bits


class Parameters:
    """A kernel's arguments in machine code: parameters by their names, and addresses of operands."""

    def __init__(self, code: Code, arguments: Value, slots: Mapping[str, int]) -> None:
        self.code, self.slots = code, slots
        self.arguments = code.array(arguments, "i64").address()
        self.block = self.argument(0)
        self.scratch = self.argument(1)

    def argument(self, index: int) -> Value:
        return self.code.load(self.arguments + 8 * (FIRST_ARGUMENT + index), "i64")

    def __getitem__(self, name: str) -> Value:
        return self.code.load(self.block + 8 * self.slots[name], "i64")

    def flag(self, name: str) -> Value:
        """Whether a slot is not 0."""
        return self[name] != 0

    def double(self, name: str) -> Value:
        return self.code.load(self.block + 8 * self.slots[name], "f64")

    def address(self, operand: str) -> Value:
        """The address of an operand's first element; if the plan lacks the operand, a number that must not be read from."""
        address = self.code.load(self.arguments + self[f"{operand}.at"] * 8, "i64")
        return address + self[f"{operand}.offset"]

    def position(self, operand: str, index: Value) -> Value:
        """The address of an operand's element at a position."""
        return self.place(operand, self.split(index))

    def split(self, index: Value) -> tuple[Value, ...]:
        """The index along each axis of a position's number."""
        rest = index.unsigned_div(self["size2"])
        first = rest.unsigned_div(self["size1"])
        return first, rest - first * self["size1"], index - rest * self["size2"]

    def place(self, operand: str, at: Sequence[Value]) -> Value:
        """The address of an operand's element at an index along each axis."""
        place = self.address(operand)
        for axis, where in enumerate(at):
            place = place + where * self[f"{operand}.step{axis}"]
        return place

    def stretches(
        self, start: Value, stop: Value, operands: Iterable[str], body: Callable[[list[Value], Value, Value], None]
    ) -> None:  # fmt: skip
        """`body(places, count, left)` for each part of positions [start, stop) that is on one last axis: the addresses of the operands' elements at its first position, its number
        of positions, and how many the axis has from there. Divisions for each position would take as long as a short row."""
        code, size = self.code, self["size2"]
        following = code.variable(start)
        with code.repeat_while(lambda: following.get() < stop):
            first = following.get()
            left = size - self.split(first)[-1]
            count = (stop - first).least(left)
            body([self.position(operand, first) for operand in operands], count, left)
            following.set(first + count)

    def report_stray(self) -> None:
        """Set the status: a target is neither a class nor the ignored value. Every thread writes the same 1."""
        self.code.store(self.code.integer(1), self.arguments, "i64")


class ParametersOnce(Parameters):
    """`Parameters` that are each read once, at the kernel's start: LLVM must assume that any store may change them, and would read them again."""

    def __init__(self, code: Code, arguments: Value, slots: Mapping[str, int]) -> None:
        self.known: dict[tuple[str, str], Value] = {}
        with code.once():
            super().__init__(code, arguments, slots)

    def _once(self, what: str, name: str) -> Value:
        if (what, name) not in self.known:
            with self.code.once():
                self.known[what, name] = getattr(super(), what)(name)
        return self.known[what, name]

    def __getitem__(self, name: str) -> Value:
        return self._once("__getitem__", name)

    def double(self, name: str) -> Value:
        return self._once("double", name)

    def address(self, operand: str) -> Value:
        return self._once("address", operand)


GROUP = 8  # neighbouring targets that are compared together
KINDS = {INT64: "i64", INT32: "i32", UINT8: "u8"}
"""The machine language's names of integer dtypes."""


def target_kind(plan: Plan) -> str:
    """The machine language's name of the dtype of a plan's targets."""
    return KINDS[plan.inputs[plan.targets].dtype]


class Target(NamedTuple):
    """A target: one that counts is a class and not the ignored value; a stray one is neither."""

    label: Value
    inside: Value  # whether it is a class
    heeded: Value  # whether it is not the ignored value

    @property
    def counted(self) -> Value:
        return self.inside & self.heeded

    @property
    def stray(self) -> Value:
        return self.heeded & ~self.inside


class Targets:
    """Reads targets of one integer dtype."""

    def __init__(self, code: Code, parameters: Parameters, kind: str) -> None:
        self.code, self.kind, self.size = code, kind, SIZE[kind]
        # The first class that rows have, if they have only some of all.
        self.first = parameters["first_class"] if "first_class" in parameters.slots else None
        self.classes, self.ignored = parameters["classes"], parameters["ignore_index"]

    def at(self, place: Value) -> Target:
        return self.of(self.code.load(place, self.kind))

    def of(self, label: Value) -> Target:
        if self.first is not None:
            label = label - self.first
        return Target(label, label.below(self.classes), label != self.ignored)

    def of_vector(self, labels: Value) -> Target:
        """The same of a vector of targets, which is not converted yet."""
        return self.of(labels.unsigned("i64") if self.kind == "u8" else labels.to("i64"))

    def alike(self, place: Value) -> Value:
        """Whether GROUP contiguous targets are all equal."""
        group = self.code.array(place, self.kind).load(self.code.integer(0), Shape(1, GROUP))
        return (group ^ group.lane(0)).reduce("or") == 0
