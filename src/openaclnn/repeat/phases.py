"""The fast path of two-phase calls: a dictionary by layout, in Python.

Phase one looks a call up by what decides its checks and its plan: the operator, the product and engine in force, the options by value, and of each
tensor its dtype, format, device and whether it is row-major. Where all tensors are row-major, the entry (`AnySize`) serves every size: it compares shapes with
the shape source's, and its runner takes the size. Any other entry (`OneSize`) is for the very shapes and strides that it was made of. Phase two
runs what phase one found; what holds memory in between is in `calls/`.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.plan import BoundedCache, Plan, covered_elements
from openaclnn.core.products import chosen_product, listeners
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import Choice, Runner, chosen_engine
from openaclnn.repeat.specialize import Work, patterns_of, places_of, work_of
from openaclnn.repeat.words import slots as at

__all__ = [
    "Extents",
    "Launch",
    "Signature",
    "Specialization",
    "look_up",
    "remember",
    "signature_of",
]

Extents = Sequence[tuple[int, int]]
"""The bytes that each of a kernel's tensors covers, from its first element on."""

Launch = tuple[Runner | None, tuple[int, ...], int]
"""What runs a call's kernel (None where there is nothing to do), over which shape, and how many elements that has."""

Signature = tuple[Hashable, list[Tensor]]
"""What decides a call's checks and plan but for shapes and strides, and its tensors."""

_FLOAT, _WORD = struct.Struct("f"), struct.Struct("I")
_ROLES = ("full", "positions", "classes", "single")
_SERVED = frozenset((at.MISSING, at.SAME, at.DENSE, at.ONE, at.SOME))
_BY_VALUE = frozenset((float, int, bool, str, bytes, type(None)))
_MAX_ENTRIES = 8
"""Of any size under one key: they differ in their number of axes or in what stretches."""


class Specialization:
    """A cache entry: what is the same for all calls that it serves."""

    def __init__(self, operator: Operator, plan: Plan, device: str) -> None:
        operands = () if plan.empty else plan.operands
        self.plan = plan  # of the first call
        self.device = device
        # The kernel's tensors, outputs last, by their number among the arguments.
        self.operands = tuple([operator.places[operand.parameter] for operand in operands])

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        """The bytes of each operand, where the kernel runs over a shape of so many elements."""
        raise NotImplementedError


class OneSize(Specialization):
    """An entry whose shapes and strides are part of its key; `choice` is None where there is nothing to compute."""

    def __init__(self, operator: Operator, plan: Plan, device: str, choice: Choice | None) -> None:
        super().__init__(operator, plan, device)
        operands = () if choice is None else plan.operands
        self._extents = tuple([(operand.low, operand.high) for operand in operands])
        runner = None if choice is None else choice.prepare()
        self.launch: Launch = (runner, (), covered_elements(plan))

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        return self._extents


class AnySize(Specialization):
    """An entry that serves every size: all tensors are row-major. `patterns` say by parameter how each has its shape from the source's."""

    def __init__(
        self, operator: Operator, plan: Plan, device: str, work: Work, arguments: Sequence[Any],
        patterns: Mapping[str, tuple[int, int]], source: str,
    ) -> None:  # fmt: skip
        super().__init__(operator, plan, device)
        self._flat, self._runner, self._counts = work.flat, work.runner, work.counts
        self._class_axis = plan.class_axis
        present = {
            own.name: value.shape
            for own, value in zip(operator.parameters, arguments, strict=True)
            if type(value) is Tensor
        }
        self._source, self._axes = (
            [*present].index(source),
            len(present[source]) if plan.classes else 0,
        )
        # Of each tensor: how its shape follows from the source's, by which axes, and the shape that it must have where it does not.
        self._shapes = [
            (pattern, [axis for axis in range(at.MAX_AXES) if mask >> axis & 1], shape)
            for (pattern, mask), shape in ((patterns[name], own) for name, own in present.items())
        ]
        self._all_dense = all(pattern == at.DENSE for pattern, _, _ in self._shapes)
        # Of each operand: which of the counts it has, and its itemsize.
        roles = [
            "single" if patterns[own.parameter][0] == at.ONE else own.role for own in plan.operands
        ]
        self._reach = [
            (_ROLES.index(role), own.dtype.itemsize)
            for role, own in zip(roles, plan.operands, strict=True)
        ]

    def served(self, shapes: Sequence[tuple[int, ...]]) -> Launch | None:
        """What runs a call on tensors of such shapes; None where the guard on shapes fails."""
        shape = shapes[self._source]
        count, (least, beyond) = prod(shape), self._counts
        if not least <= count < beyond or len(shape) != (self._axes or len(shape)):
            return None
        if len(shape) > at.MAX_AXES:
            return None
        if not (self._all_dense and shapes.count(shape) == len(shapes)):
            for own, (pattern, axes, same) in zip(shapes, self._shapes, strict=True):
                if pattern == at.ONE:
                    if prod(own) != 1 or len(own) > len(shape):
                        return None
                elif pattern == at.SOME:
                    if own != tuple([shape[axis] for axis in axes]):
                        return None
                elif own != (shape if pattern == at.DENSE else same):
                    return None
        return self._runner_of(shape, count), shape, count

    def _runner_of(self, shape: tuple[int, ...], count: int) -> Runner:
        flat, sized = self._flat, self._runner
        if flat is None:

            def run_sized(addresses: Sequence[int], stream: int) -> int:
                status: int = sized(addresses, stream, shape, ())
                return status

            return run_sized
        from openaclnn.engines.cpu.launching.pool import launch

        kernel, grain, constants, where = flat.kernel, flat.grain, flat.constants, flat.reciprocal
        if where >= 0:
            (share,) = _WORD.unpack(_FLOAT.pack(1.0 / count))
            constants = (*constants[:where], share, *constants[where + 1 :])

        def run_flat(addresses: Sequence[int], stream: int, keep: Any = flat) -> int:
            return launch(kernel, count, grain, *constants, *addresses)

        return run_flat

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        classes = shape[self._class_axis] if self._class_axis >= 0 else 1
        counts = (count, count // classes, classes, 1)
        return [(0, counts[role] * item) for role, item in self._reach]


_MOST = 1024  # a training loop has a handful, a test suite thousands
_any_size: BoundedCache[Hashable, tuple[AnySize, ...]] = BoundedCache(_MOST)
_one_size: BoundedCache[Hashable, OneSize] = BoundedCache(_MOST)
listeners += (_any_size.clear, _one_size.clear)


def signature_of(operator: Operator, arguments: tuple[Any, ...]) -> Signature | None:
    """What decides checks and plan; None where it cannot be told cheaply."""
    key: list[Any] = [operator.name, chosen_product(), chosen_engine()]
    tensors: list[Tensor] = []
    for value in arguments:
        kind = type(value)
        if kind is Tensor:
            if not value.alive:
                return None
            key += (value.dtype, value.format, value.device, value.writable, value.contiguous)
            tensors.append(value)
        elif kind in _BY_VALUE:
            key += (kind, value or repr(value))  # 0.0 and -0.0 are two
        elif kind is Scalar and value.alive:
            key += (value.dtype, value.value.tobytes())
        else:
            return None
    return tuple(key), tensors


def look_up(signature: Signature) -> tuple[Specialization, Launch] | None:
    """The entry that serves a call, and what runs it; None where the call is the first of its kind."""
    key, tensors = signature
    known = _any_size.get(key)
    if known is not None:
        shapes = [own.shape for own in tensors]
        for entry in known:
            launch = entry.served(shapes)
            if launch is not None:
                return entry, launch
    one = _one_size.get((key, *_layouts(tensors)))
    return None if one is None else (one, one.launch)


def remember(
    signature: Signature, operator: Operator, arguments: Sequence[Any], one: OneSize, choice: Choice | None
) -> None:  # fmt: skip
    """Let the next call like this one be found, of any size where that can be."""
    key, tensors = signature
    entry = None if choice is None else _any_size_of(operator, arguments, one, choice)
    if entry is None:
        _one_size[key, *_layouts(tensors)] = one
    else:
        _any_size[key] = (entry, *_any_size.get(key, ())[: _MAX_ENTRIES - 1])


def _any_size_of(
    operator: Operator, arguments: Sequence[Any], one: OneSize, choice: Choice
) -> AnySize | None:
    """The entry for every size, where shapes and strides need not be part of the key."""
    plan = one.plan
    read, written = (
        [own.name for own in group]
        for group in ([p for p in operator.parameters if p.is_read], operator.outputs)
    )
    names = (*read, *written)
    tensors = [arguments[operator.places[name]] for name in names]
    patterns, source, _ = patterns_of(plan, places_of(plan, read, written), tensors)
    if source < 0 or not all(own is None or own.contiguous for own in tensors):
        return None
    if not _SERVED.issuperset(pattern for pattern, _ in patterns):
        return None
    work = work_of(plan, choice, source, strided=False)
    if work is None:
        return None
    by_name = dict(zip(names, patterns, strict=True))
    return AnySize(operator, plan, one.device, work, arguments, by_name, names[source])


def _layouts(tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    return [side for own in tensors for side in (own.shape, own.strides)]
