"""The fast path of two-phase calls: machine code for row-major arrays and PyTorch's tensors, a dictionary by layout for descriptors and any other layout.

The dictionary's key is what decides a call's checks and its plan: the operator, the product and engine in force, the options by value, and of each
tensor its dtype, format, device and whether it is row-major. Where all tensors are row-major, the entry (`AnySize`) serves every size: it compares shapes with
the shape source's, and its runner takes the size. Any other entry (`OneSize`) is for the very shapes and strides that it was made of. What became an `AnySize`
machine code finds among the entries of a `PhaseCache`, as it does for plain calls. Phase two runs what phase one found; what holds memory in between is in `calls/`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from operator import itemgetter
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.interop import HeldStorage
from openaclnn.core.plan import BoundedCache, Plan, covered_elements
from openaclnn.core.products import chosen_product, listeners
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import Choice, Runner, chosen_engine
from openaclnn.repeat.cache import CallCache, nothing_chosen
from openaclnn.repeat.specialize import (
    CallArguments,
    Work,
    entry_of,
    patterns_of,
    work_of,
)
from openaclnn.repeat.words import slots as at

__all__ = [
    "Extents",
    "CheckedMemory",
    "Launch",
    "Signature",
    "Specialization",
    "locate",
    "look_up",
    "remember",
    "signature_of",
]

Extents = Sequence[tuple[int, int]]
"""The bytes that each of a kernel's tensors covers, from its first element on."""

Launch = tuple[Runner | None, tuple[int, ...], int]
"""What runs a call's kernel (None where there is nothing to do), over which shape, and how many elements that has."""

CheckedMemory = tuple[tuple[int, ...], Sequence[Any]]
"""Where a kernel's tensors lie, and what keeps that memory alive until the kernel is done."""

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
        self, operator: Operator, plan: Plan, device: str, choice: Choice, work: Work, arguments: Sequence[Any],
        patterns: Mapping[str, tuple[int, int]], source: str,
    ) -> None:  # fmt: skip
        super().__init__(operator, plan, device)
        self._flat, self._runner, self._counts = work.flat, work.runner, work.counts
        self.work, self.choice = work, choice
        self.learned: set[frozenset[type]] = set()  # the types of arguments that machine code knows
        if work.flat is not None:
            from openaclnn.engines.cpu.launching import pool

            # What has to start workers first, and what need not: the difference is 0.4 us.
            self._starts = pool.launch, pool.native()
        self._class_axis = plan.class_axis
        present = {
            parameter.name: value.shape
            for parameter, value in zip(operator.parameters, arguments, strict=True)
            if type(value) is Tensor
        }
        self._source, self._axes = (
            [*present].index(source),
            len(present[source]) if plan.classes else 0,
        )
        # Of each tensor: how its shape follows from the source's, by which axes, and the shape that it must have where it does not.
        self._shapes = [
            (pattern, [axis for axis in range(at.MAX_AXES) if mask >> axis & 1], shape)
            for (pattern, mask), shape in (
                (patterns[name], shape) for name, shape in present.items()
            )
        ]
        self._all_dense = all(pattern == at.DENSE for pattern, _, _ in self._shapes)
        # Of each operand: which of the counts it has, and its itemsize.
        roles = [
            "single" if patterns[operand.parameter][0] == at.ONE else operand.role
            for operand in plan.operands
        ]
        self._reach = [
            (_ROLES.index(role), operand.dtype.itemsize)
            for role, operand in zip(roles, plan.operands, strict=True)
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
            for sizes, (pattern, axes, same) in zip(shapes, self._shapes, strict=True):
                if pattern == at.ONE:
                    if prod(sizes) != 1 or len(sizes) > len(shape):
                        return None
                elif pattern == at.SOME:
                    if sizes != tuple([shape[axis] for axis in axes]):
                        return None
                elif sizes != (shape if pattern == at.DENSE else same):
                    return None
        flat, constants = self._flat, ()
        if flat is not None:
            constants, where = flat.constants, flat.reciprocal
            if where >= 0:
                (share,) = _WORD.unpack(_FLOAT.pack(1.0 / count))
                constants = (*constants[:where], share, *constants[where + 1 :])
        return self.launch(shape, count, constants, ())

    def launch(
        self, shape: tuple[int, ...], count: int, constants: tuple[int, ...], numbers: tuple[Any, ...]
    ) -> Launch:  # fmt: skip
        """What runs a call of this size: with a flat kernel's constants, or with other numbers than the first call's."""
        flat, sized = self._flat, self._runner
        if flat is None:

            def run_sized(addresses: Sequence[int], stream: int) -> int:
                status: int = sized(addresses, stream, shape, numbers)
                return status

            return run_sized, shape, count
        kernel, grain = flat.kernel, flat.grain
        start = self._starts[count <= grain]

        def run_flat(addresses: Sequence[int], stream: int, keep: Any = flat) -> int:
            return start(kernel, count, grain, *constants, *addresses)

        return run_flat, shape, count

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


def look_up(
    signature: Signature, operator: Operator, passed: Sequence[Any], arguments: Sequence[Any]
) -> tuple[Specialization, Launch] | None:
    """The entry that serves a call, and what runs it; None where the call is the first of its kind. `passed` are its arguments as the caller has them."""
    key, tensors = signature
    known = _any_size.get(key)
    if known is not None:
        shapes = [tensor.shape for tensor in tensors]
        for entry in known:
            launch = entry.served(shapes)
            if launch is not None:
                _phase_cache(operator).learn(entry, passed, arguments)
                return entry, launch
    one = _one_size.get((key, *_layouts(tensors)))
    return None if one is None else (one, one.launch)


def remember(
    signature: Signature, passed: Sequence[Any], operator: Operator, arguments: Sequence[Any], one: OneSize, choice: Choice | None
) -> None:  # fmt: skip
    """Let the next call like this one be found, of any size where that can be."""
    key, tensors = signature
    cache = _phase_cache(operator)
    entry = None if choice is None else cache.any_size(arguments, one, choice)
    if entry is None:
        _one_size[key, *_layouts(tensors)] = one
    else:
        cache.learn(entry, passed, arguments)
        _any_size[key] = (entry, *_any_size.get(key, ())[: _MAX_ENTRIES - 1])


class PhaseCache(CallCache):
    """The fast path of an operator's phase one on arrays: `call(*arrays, *options)`, or NotImplemented."""

    def __init__(self, declared: Operator) -> None:
        super().__init__(declared)
        numbers = {p.python_name: number for number, p in enumerate(declared.parameters)}
        places = [declared.places[name] for name in self._names]
        self.ordered = itemgetter(*places, *[numbers[name] for name in self._options])

    def _callable(self) -> Callable[..., Any]:
        return self._begin

    @undivided
    def _begin(self, *arguments: Any) -> Any:
        """The second call: a program that makes one need not wait for machine code."""
        from openaclnn.engines.machine.builtins import builtin
        from openaclnn.repeat.code.fast_path import emit_phase_one

        control = self._control.buffer_info()[0]
        self.call = self._builtin = builtin("fast_path.phase_one", emit_phase_one, control, self)
        return self.call(*arguments)

    def any_size(self, arguments: Sequence[Any], one: OneSize, choice: Choice) -> AnySize | None:
        """The entry for every size, where shapes and strides need not be part of the key."""
        plan, tensors = one.plan, self.ordered(arguments)[: len(self._arrays)]
        patterns, source, _ = patterns_of(plan, self._places(plan), tensors)
        if source < 0 or not all(tensor is None or tensor.contiguous for tensor in tensors):
            return None
        if not _SERVED.issuperset(pattern for pattern, _ in patterns):
            return None
        work = work_of(plan, choice, source, strided=False)
        if work is None:
            return None
        by_name = dict(zip(self._names, patterns, strict=True))
        return AnySize(
            self._declared, plan, one.device, choice, work, arguments, by_name, self._names[source]
        )

    @undivided
    def learn(self, entry: AnySize, passed: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Let machine code find an entry for arrays like these, if it can; `arguments` has their views."""
        types, count = frozenset(map(type, passed)), len(self._arrays)
        if types in entry.learned or not nothing_chosen():
            return
        entry.learned.add(types)
        ordered = self.ordered(passed)
        arrays, options = ordered[:count], ordered[count:]
        library = self._library(arrays, options)
        if library:
            plan, work = entry.plan, entry.work
            call = CallArguments(library, arrays, self._places(plan), options, self._options)
            views = self.ordered(arguments)[:count]
            layout, words, kept = entry_of(call, plan, entry.choice, views, work=work)
            self._enter(layout, words, (entry, library, kept), library)


@functools.cache
def _phase_cache(operator: Operator) -> PhaseCache:
    return PhaseCache(operator)


def locate(
    operator: Operator, arguments: tuple[Any, ...]
) -> tuple[Specialization, Launch, CheckedMemory] | None:
    """The entry that machine code finds of a call on arrays, what runs the call, and where its memory is."""
    cache = _phase_cache(operator)
    located = cache.call(*cache.ordered(arguments))
    if located is NotImplemented:
        return None
    ((entry, library, _),), shape, words, numbers = located[-4:]
    owners = located[:-4]
    if library == at.TORCH:
        owners = [
            _new_held(HeldStorage, owners[first : first + 4]) for first in range(0, len(owners), 4)
        ]
    first = len(entry.work.constants)
    launch = entry.launch(shape, prod(shape), words[:first], numbers)
    return entry, launch, (words[first:], owners)


_new_held = tuple.__new__  # a third of the time


def _layouts(tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    return [side for tensor in tensors for side in (tensor.shape, tensor.strides)]
