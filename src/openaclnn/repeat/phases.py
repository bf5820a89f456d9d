"""The fast path of two-phase calls: machine code for row-major arrays and PyTorch's tensors, a dictionary by layout for descriptors and any other layout.

The dictionary's key is what decides a call's checks and its plan: the operator, the product and engine in force, the types of the arguments, the options by
value, and of each tensor its dtype, format, device and whether it is row-major. Where all tensors are row-major, the entry (`AnySize`) serves every size: it
compares shapes with the shape source's, and its runner takes the size. Any other entry (`OneSize`) is for the very shapes and strides that it was made of. Of arrays
with an `AnySize` machine code finds the entry in a `PhaseCache`, as it does for plain calls. Phase two runs what phase one found; what holds memory in between is in
`calls/`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from math import prod
from operator import add, itemgetter
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.interop import HeldStorage
from openaclnn.core.plan import (
    HALVES,
    BoundedCache,
    Plan,
    broadcast_shapes,
    collapse,
    covered_elements,
)
from openaclnn.core.products import chosen_product, listeners
from openaclnn.core.tensor import Scalar, Tensor, contiguous_strides
from openaclnn.engines.dispatch import Choice, Runner, chosen_engine
from openaclnn.repeat import slots as at
from openaclnn.repeat.cache import CallCache, nothing_chosen
from openaclnn.repeat.specialize import (
    CallArguments,
    Patterns,
    Replanned,
    Work,
    entry_of,
    patterns_of,
)

Extents = Sequence[tuple[int, int]]
"""The bytes that each of a kernel's tensors covers, from its first element on."""

Launch = tuple[Runner | None, tuple[int, ...], int]
"""What runs a call's kernel (None where there is nothing to do), over which shape, and how many elements that has."""

CheckedMemory = tuple[tuple[int, ...], Sequence[Any]]
"""Where a kernel's tensors lie, and what keeps that memory alive until the kernel is done."""

Layout = tuple[tuple[Any, Any], Any, Sequence[int]]
"""The sizes of merged axes and every operand's strides along them; the same as a geometry of `layouts.gathered`; and how many bytes behind its tensor's first
element each operand begins."""

Signature = tuple[Hashable, list[Tensor]]
"""What decides a call's checks and plan but for shapes and strides, and its tensors."""

_FLOAT, _WORD = struct.Struct("f"), struct.Struct("I")
_BY_VALUE = frozenset((float, int, bool, str, bytes, type(None)))
_MOST = 1024  # a training loop has a handful, a test suite thousands
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
        """The bytes of each operand, where the kernel runs over a shape of so many elements: a descriptor may say something else by then."""
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
    """An entry that serves every size: all tensors are row-major. `patterns` say how those of these names have their shapes from the source's."""

    def __init__(
        self, operator: Operator, exact: OneSize, work: Work, arguments: Sequence[Any], names: Sequence[str], patterns: Patterns
    ) -> None:  # fmt: skip
        super().__init__(operator, exact.plan, exact.device)
        self.work = work
        if work.flat is not None:
            from openaclnn.engines.cpu.launching import pool

            # What has to start workers first, and what need not: the difference is 0.4 us.
            self._starts = pool.launch, pool.native()
        by_name = dict(zip(names, patterns.each, strict=True))
        # Of each tensor: how its shape follows from the source's, and the shape that it must have where it does not.
        self._shapes = {
            parameter.name: (by_name[parameter.name], value.shape)
            for parameter, value in zip(operator.parameters, arguments, strict=True)
            if type(value) is Tensor
        }
        tensors = [*self._shapes]
        self._source = tensors.index(names[patterns.source]) if patterns.source < len(names) else -1
        # Where the source is no tensor, it is what these stretch to, or half of the first.
        self._read = [tensors.index(each.parameter) for each in exact.plan.inputs]
        self._axes, self._strided = patterns.axes, patterns.strided
        self._all_dense = all(pattern.lies == at.DENSE for pattern, _ in self._shapes.values())
        self._layouts: BoundedCache[tuple[int, ...], Layout] = BoundedCache(_MOST)

    def served(self, shapes: Sequence[tuple[int, ...]]) -> Launch | None:
        """What runs a call on tensors of such shapes; None where the guard on shapes fails."""
        shape = self._source_shape(shapes)
        if shape is None or len(shape) > at.MAX_AXES:
            return None
        count, (least, beyond) = prod(shape), self.work.counts
        if not least <= count < beyond or len(shape) != (self._axes or len(shape)):
            return None
        if not (self._all_dense and shapes.count(shape) == len(shapes)):
            for sizes, (pattern, same) in zip(shapes, self._shapes.values(), strict=True):
                if pattern.lies == at.ONE:
                    if prod(sizes) != 1 or len(sizes) > len(shape):
                        return None
                elif sizes != (same if pattern.lies == at.SAME else pattern.shape(shape)):
                    return None
                elif pattern.lies == at.LAID and prod(sizes) == count:
                    return None  # it stretches no more, and may be where the output is
        flat, constants = self.work.flat, ()
        if flat is not None:
            constants, where = flat.constants, flat.reciprocal
            if where >= 0:
                (share,) = _WORD.unpack(_FLOAT.pack(1.0 / count))
                constants = (*constants[:where], share, *constants[where + 1 :])
        return self.launch(shape, count, constants, ())

    def _source_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        if self._source >= 0:
            return shapes[self._source]
        read, axis = [shapes[place] for place in self._read], self.plan.class_axis
        if not self.plan.halved:
            return broadcast_shapes(*read)
        whole = read[0]
        return (*whole[:axis], whole[axis] // 2, *whole[axis + 1 :]) if axis < len(whole) else None

    def launch(
        self, shape: tuple[int, ...], count: int, constants: tuple[int, ...], numbers: tuple[Any, ...]
    ) -> Launch | None:  # fmt: skip
        """What runs a call of this size: with a flat kernel's constants, or with other numbers than the first call's; None where the slow path has to."""
        work = self.work
        told: tuple[Any, Any] = (shape, numbers)
        sized, kernel, grain = work.runner, work.kernel, work.grain
        if isinstance(sized, Replanned):
            runner = sized.of_size(shape)
            return None if runner is None else (runner, shape, count)
        geometry: Any = None
        shifts: Sequence[int] = ()
        if self._strided:
            told, geometry, shifts = self._layout(shape)
            if work.gathering:
                kernel, constants = work.gathering, (geometry.buffer_info()[0], *constants)

        def run_sized(addresses: Sequence[int], stream: int) -> int:
            status: int = sized(addresses, stream, *told)
            return status

        def run_flat(addresses: Sequence[int], stream: int, keep: Any = (work, geometry)) -> int:
            return self._starts[count <= grain](kernel, count, grain, *constants, *addresses)

        run: Runner = run_sized if work.flat is None else run_flat
        if not any(shifts):
            return run, shape, count

        def run_shifted(addresses: Sequence[int], stream: int) -> int:
            return run(tuple(map(add, addresses, shifts)), stream)

        return run_shifted, shape, count

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        layout = self._layouts.get(shape)
        if layout is None:
            layout = self._layouts[shape] = self._laid(shape)
        return layout

    def _laid(self, shape: tuple[int, ...]) -> Layout:
        from openaclnn.engines.cpu.layouts import gathered

        plan, walks, shifts = self.plan, [], []
        for operand in plan.operands:
            pattern, _ = self._shapes[operand.parameter]
            sizes, walk = pattern.shape(shape), [0] * len(shape)
            for axis, size, step in zip(
                pattern.axes, sizes, contiguous_strides(sizes), strict=False
            ):
                if size != 1:
                    walk[axis & at.MAX_AXES - 1] = step
            half = shape[plan.class_axis] * walk[plan.class_axis] * operand.dtype.itemsize
            walks.append(tuple(walk))
            shifts.append(half if operand.role == HALVES[1] else 0)
        merged, strides, _ = collapse(shape, walks)
        items = [operand.dtype.itemsize for operand in plan.operands]
        geometry = gathered.geometry(
            self.work.kernel, len(self.work.constants), len(plan.outputs), merged, items, strides
        )
        return (merged, tuple(chain(*strides))), geometry, shifts

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        covered = []
        for operand in self.plan.operands:
            pattern, same = self._shapes[operand.parameter]
            size = count
            if pattern.lies != at.DENSE:
                size = prod(pattern.shape(shape) if pattern.axes else same)
            covered.append((0, operand.dtype.itemsize * size))
        return covered


_any_size: BoundedCache[Hashable, tuple[AnySize, ...]] = BoundedCache(_MOST)
_one_size: BoundedCache[Hashable, OneSize] = BoundedCache(_MOST)
listeners += (_any_size.clear, _one_size.clear)


def signature_of(
    operator: Operator, passed: Sequence[Any], arguments: Sequence[Any]
) -> Signature | None:
    """What decides checks and plan; None where it cannot be told cheaply. `arguments` are those that were passed, with arrays as tensors."""
    key: list[Any] = [operator.name, chosen_product(), chosen_engine(), *map(type, passed)]
    tensors: list[Tensor] = []
    for value in arguments:
        kind = type(value)
        if kind is Tensor:
            if not value.alive:
                return None
            key += (value.dtype, value.format, value.device, value.writable, value.contiguous)
            tensors.append(value)
        elif kind in _BY_VALUE:
            key.append(value or repr(value))  # 0.0 and -0.0 are two
        elif kind is Scalar and value.alive:
            key += (value.dtype, value.value.tobytes())
        else:
            return None
    return tuple(key), tensors


def look_up(signature: Signature) -> tuple[Specialization, Launch] | None:
    """The entry that serves a call, and what runs it; None where the call is the first of its kind."""
    key, tensors = signature
    entries = _any_size.get(key)
    if entries is not None:
        shapes = [tensor.shape for tensor in tensors]
        for entry in entries:
            launch = entry.served(shapes)
            if launch is not None:
                return entry, launch
    exact = _one_size.get((key, *_layouts(tensors)))
    return None if exact is None else (exact, exact.launch)


def remember(
    signature: Signature, operator: Operator, passed: Sequence[Any], arguments: Sequence[Any], exact: OneSize, choice: Choice | None
) -> None:  # fmt: skip
    """Let the next call like this one be found, of any size where that can be."""
    key, tensors = signature
    entry = (
        None if choice is None else _phase_cache(operator).enter(passed, arguments, exact, choice)
    )
    if entry is None:
        _one_size[key, *_layouts(tensors)] = exact
    else:
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

    @undivided
    def enter(
        self, passed: Sequence[Any], arguments: Sequence[Any], exact: OneSize, choice: Choice
    ) -> AnySize | None:
        """The entry for every size, where shapes and strides need not be part of the key; machine code finds it for arrays like these, if
        it can."""
        plan, count, ordered = exact.plan, len(self._arrays), self.ordered(passed)
        arrays, options, views = ordered[:count], ordered[count:], self.ordered(arguments)[:count]
        places = self._places(plan)
        if not places:
            return None
        patterns = patterns_of(plan, self._inputs, places, views)
        if patterns.source < 0 or not all(view is None or view.contiguous for view in views):
            return None
        values = dict(zip([p.name for p in self._declared.parameters], arguments, strict=True))
        work = self._work(plan, choice, patterns, exact.device, values)
        if work is None:
            return None
        entry = AnySize(self._declared, exact, work, arguments, self._names, patterns)
        library = self._library(arrays, options) if nothing_chosen() else 0
        if library:
            call = CallArguments(
                library, arrays, places, options, self._options, len(self._outputs)
            )
            known = entry_of(call, plan, views, patterns, work)
            known.relies_on = entry, library, known.relies_on
            self._enter(known, library)
        return entry


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
    known, shape, words, numbers = located[-4:]
    entry, library, _ = known.relies_on
    owners = located[:-4]
    if library == at.TORCH:
        owners = [
            _new_held(HeldStorage, owners[first : first + 4]) for first in range(0, len(owners), 4)
        ]
    first = len(entry.work.constants)
    launch = entry.launch(shape, prod(shape), words[:first], numbers)
    if launch is None:
        return None
    return entry, launch, (words[first:], owners)


_new_held = tuple.__new__  # a third of the time


def _layouts(tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    return [side for tensor in tensors for side in (tensor.shape, tensor.strides)]
