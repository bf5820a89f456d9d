# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Elementwise kernels for dense data, and the choice between them and tiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import triton
import triton.language as tl

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS, Formula
from openaclnn.engines.gpu.fits.fitting import ALIGNED, ALIKE, ANYWHERE, Fitting, flat_fitting
from openaclnn.engines.gpu.formulas.compiled import Names, compiled, precision, widen
from openaclnn.engines.gpu.formulas.source import constants, define, listed
from openaclnn.engines.gpu.formulas.tuned import TUNED, Form, as_float, as_floats, form_of
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Sizes,
    anywhere,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, elementwise_slots
from openaclnn.engines.gpu.launching.queues import Queue, SizedRunner, queue_of, remembered
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner
from openaclnn.engines.gpu.plans import tiles


@triton.jit
def _read(pointer, index, inside, COMPUTE: tl.constexpr, STEP: tl.constexpr):
    if STEP:
        values = tl.load(pointer + index, inside)
    else:
        values = tl.load(pointer)
    return widen(values, COMPUTE)


FLAT = '''
def flat_{name}(
    {pointers}out, count, {numbers}
    {constants}UNIT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    """Operands that lie one after another (step 1), or are one element for all (step 0)."""
    block = tl.program_id(0)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    count = count * UNIT
    index = block * BLOCK + tl.arange(0, BLOCK)
    if UNIT % 16 == 0:
        flat_block({pointers}out, index, index < count, {numbers}{known})
    elif (block + 1) * BLOCK <= count:
        # A mask that can end anywhere forbids vectors, so only the last block has one.
        flat_block({pointers}out, index, None, {numbers}{known})
    else:
        flat_block({pointers}out, index, index < count, {numbers}{known})


{block}'''

SHIFTED = '''
def shifted_{name}(
    {pointers}out, count, {numbers}
    {constants}WIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    """The same where all that lie one after another begin equally far from a vector's bounds: blocks begin at those before."""
    block = tl.program_id(0)
    ITEMSIZE: tl.constexpr = out.dtype.element_ty.primitive_bitwidth // 8
    head = (out.to(tl.int64) % 16) // ITEMSIZE
    out = tl.multiple_of(out - head, 16)
{moved}
    head = head.to(tl.int32)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    index = block * BLOCK + tl.arange(0, BLOCK)
    if (block > 0) & ((block + 1) * BLOCK <= head + count):
        flat_block({pointers}out, index, None, {numbers}{known})
    else:
        flat_block({pointers}out, index, (index >= head) & (index < head + count), {numbers}{known})


{block}'''

BLOCK = """
def flat_block({pointers}out, index, inside, {numbers}{constants}):
{reads}
    result = {call}
    tl.store(out + index, result.to(COMPUTE), inside)
""".lstrip()


@functools.cache
def flat_kernel(formula: Formula, shifted: bool = False) -> Any:
    """The formula's kernel for dense operands; `shifted` for those that begin equally far from a vector's bounds."""
    names = Names(formula)
    known = [*names.switches, *(f"STEP_{own}" for own in formula.values), "COMPUTE", "PRECISE"]
    reads = (
        f"    value_{own} = read(from_{own}, index, inside, COMPUTE, STEP_{own})"
        for own in formula.values
    )
    moved = (
        f"    if STEP_{own}:\n        from_{own} = tl.multiple_of(from_{own} - head, 16)"
        for own in formula.values
    )
    words = {
        "name": formula.name, "pointers": listed(names.pointers), "numbers": listed(names.numbers),
        "constants": constants(known), "known": listed(known), "reads": "\n".join(reads), "call": names.call(),
        "moved": "\n".join(moved),
    }  # fmt: skip
    text = (SHIFTED if shifted else FLAT).format(block=BLOCK.format(**words), **words)
    scope = {"formula": compiled(formula), "read": _read}
    return define(text, scope, do_not_specialize=["count"])


def runner(plan: Plan) -> Runner:
    """What queues the plan on a stream."""
    if not _is_flat(plan):
        return runner_of(list(tiles.launches(plan)))
    form = form_of(plan)
    flat, (count,) = _Flat(plan, form), plan.shape
    launch = Launch(flat.family, *flat.sizes(count, form.numbers))
    if flat.vector and count > tiles.FEW:
        sizes = flat.shifted_sizes(count, form.numbers)
        launch = launch._replace(shifted=Launch(flat.shifted, *sizes), together=flat.wide)
    return runner_of([launch])


def sized(plan: Plan) -> SizedRunner | None:
    """What queues the plan's kernel over row-major operands, of one element where the plan's are, and any shape."""
    operands = (*plan.inputs, plan.output)
    # One element is no pattern: it may lie for one or for all.
    if not _is_flat(plan) or plan.shape == (1,) or any(own.offset for own in operands):
        return None
    return remembered(plan, _sized)


def few(plan: Plan) -> tuple[int, ...] | None:
    """The shape for the plan's sized runner, if that is as good as launches of its own."""
    return plan.shape if len(plan.shape) == 1 and plan.shape[0] <= tiles.FEW else None


def _sized(plan: Plan) -> SizedRunner:
    own_form = form_of(plan)
    own_flat = _Flat(plan, own_form)
    fitting = flat_fitting(
        plan, own_form, own_flat.family, own_flat.block, own_flat.warps, tiles.FEW, own_flat.vector
    )
    vector, wide = own_flat.vector, own_flat.wide
    form_with = _forms(plan, own_form, fitting)

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        count = prod(shape)
        flat, queue, queue_few, queue_shifted, own = form_with(numbers)
        if flat.share >= 0:
            own = (*own[: flat.share], as_float(1.0 / count), *own[flat.share + 1 :])
        bits = 0
        for place in wide:
            bits |= addresses[place]
        if bits % VECTOR_BYTES:
            if count <= tiles.FEW:
                queue = queue_few or queue
            elif vector and len({addresses[place] % VECTOR_BYTES for place in wide}) == 1:
                queue_shifted(addresses, stream, *flat.shifted_sizes(count, own))
                return 0
        queue(addresses, stream, *flat.sizes(count, own))
        return 0

    return fitting.function(run)


_Found = tuple["_Flat", Queue, Queue | None, Queue, tuple[float, ...]]
"""A form's kernel, what queues it, what queues few elements anywhere where a builtin does so too, what queues many that begin
equally far from a vector's bounds, and its numbers."""


def _forms(plan: Plan, own_form: Form, fitting: Fitting) -> Callable[[Sequence[Any]], _Found]:
    """What finds the form of a plan with other numbers."""
    names = tuple([own.option for own in plan.free])
    # Where the formula takes the options themselves, and has one form, they need but be rounded.
    direct = plan.kernel not in TUNED and names == FORMULAS[plan.kernel].numbers
    made: dict[tuple[str, tuple[bool, ...]], tuple[_Flat, Queue, Queue | None, Queue]] = {}

    def find(form: Form) -> _Found:
        key = form.formula.name, form.switches
        found = made.get(key)
        if found is None:
            flat = _Flat(plan, form)
            aligned, off, alike = (fitting.ready((key, own)) for own in (ALIGNED, ANYWHERE, ALIKE))
            found = made[key] = (
                flat,
                queue_of(flat.family, aligned),
                None if off is None else queue_of(anywhere(flat.family), off),
                queue_of(flat.shifted, alike),
            )
        return *found, form.numbers

    before: tuple[Sequence[Any], _Found] = (), find(own_form)

    def form_with(numbers: Sequence[Any]) -> _Found:
        nonlocal before
        known, found = before
        if numbers != known or 0 in numbers:  # which has two signs
            if direct and numbers:
                found = (*found[:-1], as_floats(numbers))
            else:
                own = {**plan.numbers, **dict(zip(names, numbers, strict=False))}
                found = find(form_of(plan, own))
            before = numbers, found
        return found

    return form_with


def _is_flat(plan: Plan) -> bool:
    """Whether every operand lies in a row or is one element."""
    operands = (*plan.inputs, plan.output)
    return len(plan.shape) == 1 and all(own.strides[0] in (0, 1) for own in operands)


def flat_shape(plan: Plan) -> tuple[int, int]:
    """Elements of a program, and warps."""
    # 512-1024 elements on 4-8 warps were equal (4.38 TB/s, a copy 4.24); evict_first loads lost 7%.
    # These give each thread one 16-byte load of each operand.
    return 1024, 8 if plan.output.dtype.itemsize >= 4 else 4


class _Flat:
    """The flat kernel of a plan's form, whatever the count."""

    def __init__(self, plan: Plan, form: Form) -> None:
        steps = [operand.strides[0] for operand in plan.inputs]
        # Which number is one over the count.
        self.share = form.formula.numbers.index(plan.reciprocal) if plan.reciprocal else -1
        self.block, self.warps = flat_shape(plan)
        self.family = Family(
            flat_kernel(form.formula),
            elementwise_slots(plan, [*(step == 1 for step in steps), True], [0] * (len(steps) + 1)),
            (*form.switches, *steps, *precision(plan)),
            fused=False,
        )
        self.shifted = anywhere(self.family)._replace(kernel=flat_kernel(form.formula, True))
        operands = (*plan.inputs, plan.output)
        self.wide = tuple([n for n, slot in enumerate(self.family.slots) if slot and slot.wide])
        sizes = {operands[place].dtype.itemsize for place in self.wide}
        # Elements of a vector; 0 where operands have different ones.
        self.vector = VECTOR_BYTES // sizes.pop() if len(sizes) == 1 else 0

    def sizes(self, count: int, numbers: tuple[float, ...]) -> Sizes:
        block, unit = self.block, power_of_two_divisor(count)
        wide = count + block >= INT32_LIMIT
        return -(-count // block), (count // unit, *numbers), (unit, wide, block), self.warps

    def shifted_sizes(self, count: int, numbers: tuple[float, ...]) -> Sizes:
        """Of what begins off a vector's bounds: the last block may be one more."""
        block = self.block
        wide = count + 2 * block >= INT32_LIMIT
        programs = -(-(count + self.vector - 1) // block)
        return programs, (count, *numbers), (wide, block), self.warps
