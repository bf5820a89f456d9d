"""How sums over all elements are launched: of what a formula gives, of the negative log-likelihood; and fills."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas.compiled import TRITON_TYPES, Names, compiled, precision, widen
from openaclnn.engines.gpu.formulas.source import constants, define, listed
from openaclnn.engines.gpu.formulas.tuned import Form, form_of
from openaclnn.engines.gpu.kernels.reductions import (
    fill_one,
    finish_nll,
    finish_reduction,
    nll_losses,
    store_sum,
)
from openaclnn.engines.gpu.kernels.sums import let_next_start
from openaclnn.engines.gpu.launching.launch import (
    Family,
    Launch,
    Sizes,
    Slot,
    anywhere,
    next_power_of_two,
)
from openaclnn.engines.gpu.launching.operands import ignored, pointer_type, stride_of
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner

PARTS = 1024  # at most, each of a program of its own
BLOCK = 1024  # elements of a program at once
# Elements or positions that one program adds up and finishes, in less time than one more launch takes.
ALONE = 2 * BLOCK
FLOAT64_BYTES = 8
NLL_SUMS = 2  # of losses and of weights
FEW = 1 << 16  # elements for which one kernel takes AXES axes, whatever their strides
AXES = 5
NLL_AXES = 3  # of positions

SUMMED = '''
def summed_{name}(
    {pointers}sums, count, parts, {numbers}{sizes}{strides}
    OVERLAPPED: tl.constexpr, ALONE: tl.constexpr, MEAN: tl.constexpr, {constants}BLOCK: tl.constexpr,
):
    """One part of the sum; part p takes every block whose number is p modulo `parts`."""
    let_next_start(OVERLAPPED)
    part = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float64)
    whole = count // BLOCK * BLOCK
    # A mask that can end anywhere forbids vectors, so only the last block has one.
    for start in range(part.to(tl.int64) * BLOCK, whole, parts * BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += summed_block({pointers}index, None, {numbers}{sizes}{strides}{known})
    if part == 0:
        index = whole + tl.arange(0, BLOCK)
        inside = index < count
        last = summed_block({pointers}index, inside, {numbers}{sizes}{strides}{known})
        total += tl.where(inside, last, 0.0)
    store_sum(sums, part, tl.sum(total), count, ALONE, MEAN, COMPUTE)


{block}'''

SHIFTED = '''
def shifted_{name}(
    {pointers}sums, count, parts, {numbers}
    OVERLAPPED: tl.constexpr, ALONE: tl.constexpr, MEAN: tl.constexpr, {constants}BLOCK: tl.constexpr,
):
    """The same where all that lie in a row begin equally far from a vector's bounds: blocks begin at those before."""
    let_next_start(OVERLAPPED)
    part = tl.program_id(0)
    ITEMSIZE: tl.constexpr = {lead}.dtype.element_ty.primitive_bitwidth // 8
    head = ({lead}.to(tl.int64) % 16) // ITEMSIZE
{moved}
    total = tl.zeros([BLOCK], tl.float64)
    end = head + count
    whole = end // BLOCK * BLOCK
    first = tl.where(part == 0, parts, part)
    for start in range(first.to(tl.int64) * BLOCK, whole, parts * BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += summed_block({pointers}index, None, {numbers}{known})
    if part == 0:
        for start in range(0, end, tl.maximum(whole, BLOCK)):  # the first block and the last, if that is another
            index = start + tl.arange(0, BLOCK)
            inside = (index >= head) & (index < end)
            last = summed_block({pointers}index, inside, {numbers}{known})
            total += tl.where(inside, last, 0.0)
    store_sum(sums, part, tl.sum(total), count, ALONE, MEAN, COMPUTE)


{block}'''

SUMMED_BLOCK = """
def summed_block({pointers}index, inside, {numbers}{sizes}{strides}{constants}):
{places}
{reads}
    result = {call}
    return result.to(tl.float64)
""".lstrip()


@functools.cache
def summed_kernel(
    formula: Formula, axes: int, single: tuple[bool, ...], shifted: bool = False
) -> Any:
    """The kernel of a formula over so many axes; 0: all operands lie in a row. `single` ones are one element, and `shifted` is
    for others that begin equally far from a vector's bounds."""
    names = Names(formula)
    known = [*names.switches, "COMPUTE", "PRECISE"]
    sizes = [f"size_{axis}" for axis in range(axes)]
    strides = [f"stride_{own}_{axis}" for own in formula.values for axis in range(axes)]
    places, reads, rest = [], [], "index"
    for axis in reversed(range(axes)):
        places.append(f"    rest_{axis} = ({rest}) // size_{axis}")
        places.append(f"    at_{axis} = ({rest}) - rest_{axis} * size_{axis}")
        rest = f"rest_{axis}"
    for own, one in zip(formula.values, single, strict=True):
        place = " + ".join(f"at_{axis} * stride_{own}_{axis}" for axis in range(axes)) or "index"
        read = f"tl.load(from_{own})" if one else f"tl.load(from_{own} + {place}, inside)"
        reads.append(f"    value_{own} = widen({read}, COMPUTE)")
    in_a_row = [name for name, one in zip(names.pointers, single, strict=True) if not one]
    moved = [f"    {name} = tl.multiple_of({name} - head, 16)" for name in in_a_row]
    words = {
        "name": formula.name, "pointers": listed(names.pointers), "numbers": listed(names.numbers),
        "sizes": listed(sizes), "strides": listed(strides), "constants": constants(known), "known": listed(known),
        "places": "\n".join(places), "reads": "\n".join(reads), "call": names.call(), "moved": "\n".join(moved),
        "lead": in_a_row[0] if in_a_row else "",
    }  # fmt: skip
    text = (SHIFTED if shifted else SUMMED).format(block=SUMMED_BLOCK.format(**words), **words)
    scope = {
        "formula": compiled(formula),
        "widen": widen,
        "let_next_start": let_next_start,
        "store_sum": store_sum,
    }
    return define(text, scope, do_not_specialize=["count", "parts", *sizes, *strides])


def _slots(plan: Plan, wide: bool) -> list[Slot]:
    """All operands, inputs first."""
    return [
        Slot(place, pointer_type(own), own.offset * own.dtype.itemsize, wide and place < len(plan.inputs))
        for place, own in enumerate(plan.operands)
    ]  # fmt: skip


def is_alone(count: int) -> bool:
    """Whether so many elements or positions are added up by one program, which finishes, too."""
    return count <= ALONE


def parts_of(count: int) -> int:
    """In how many parts so many elements or positions are added up."""
    return 1 if is_alone(count) else min(-(-count // BLOCK), PARTS)


def lies_in_a_row(plan: Plan) -> bool:
    """Whether each input's elements lie side by side, or are one."""
    return len(plan.shape) == 1 and all(own.strides[0] in (0, 1) for own in plan.inputs)


def single_of(count: int, steps: Sequence[int]) -> tuple[bool, ...]:
    """Which inputs are one element for all, of those that lie in a row."""
    return tuple(count > 1 and not step for step in steps)


def add_family(
    plan: Plan, form: Form, axes: int = 0, single: tuple[bool, ...] = (), alone: bool = False
) -> Family:
    """The kernel that adds up what a form gives, over so many axes; 0: all elements lie in a row, or are one. `alone`: there is one
    part, and it finishes."""
    *inputs, out = _slots(plan, wide=False)
    single = single or (False,) * len(inputs)
    own = [slot._replace(wide=not (axes or one)) for slot, one in zip(inputs, single, strict=True)]
    return Family(
        summed_kernel(form.formula, axes, single), (*own, out if alone else _sums(plan)),
        (alone, alone and plan.reduction == "mean", *form.switches, *precision(plan)), fused=False, overlapped=not alone,
    )  # fmt: skip


def shifted_family(plan: Plan, form: Form, single: tuple[bool, ...]) -> Family:
    """The kernel for elements in a row that begin equally far from a vector's bounds."""
    return anywhere(add_family(plan, form, single=single))._replace(
        kernel=summed_kernel(form.formula, 0, single, shifted=True)
    )


def in_a_row(plan: Plan, single: tuple[bool, ...]) -> tuple[int, ...]:
    """Which inputs can be read by whole vectors that begin alike; none where their elements have different sizes."""
    places = [place for place, one in enumerate(single) if not one]
    sizes = {plan.inputs[place].dtype.itemsize for place in places}
    return tuple(places) if len(sizes) == 1 else ()


def finish_family(plan: Plan) -> Family:
    """The kernel that adds up the parts."""
    compute, out = TRITON_TYPES[plan.compute], _slots(plan, wide=False)[-1]
    return Family(finish_reduction, (_sums(plan), out), (compute,), overlapped=True, follows=True)


def _sums(plan: Plan) -> Slot:
    """Where the parts' sums are, behind all operands."""
    return Slot(len(plan.operands), "float64")


def padded(missing: int, shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Sizes and each input's strides, behind so many axes of one element."""
    steps = [step for own in strides for step in (*(0,) * missing, *own)]
    return (*(1,) * missing, *shape, *steps)


def add_sizes(count: int, numbers: tuple[float, ...], geometry: tuple[int, ...] = ()) -> Sizes:
    parts = parts_of(count)
    return parts, (count, parts, *numbers, *geometry), (BLOCK,), 4


def finish_sizes(plan: Plan, count: int) -> Sizes:
    parts, divisor = parts_of(count), count if plan.reduction == "mean" else 1
    return 1, (parts, divisor), (next_power_of_two(parts),), 4


def runner(plan: Plan) -> Runner:
    """What queues the sum or mean of a formula over a plan's shape."""
    count, form = math.prod(plan.shape), form_of(plan)
    alone = is_alone(count)
    if lies_in_a_row(plan):
        single = single_of(count, [own.strides[0] for own in plan.inputs])
        sizes, together = add_sizes(count, form.numbers), in_a_row(plan, single)
        add = Launch(add_family(plan, form, single=single, alone=alone), *sizes)
        if together and count > FEW and not alone:
            shifted = Launch(shifted_family(plan, form, single), *sizes)
            add = add._replace(shifted=shifted, together=together)
    else:
        # One kernel serves few elements whatever their axes; to many, missing ones would cost time.
        missing = max(0, AXES - len(plan.shape)) if count <= FEW else 0
        geometry = padded(missing, plan.shape, [own.strides for own in plan.inputs])
        family = add_family(plan, form, len(plan.shape) + missing, alone=alone)
        add = Launch(family, *add_sizes(count, form.numbers, geometry))
    if alone:
        return runner_of([add])
    finish = Launch(finish_family(plan), *finish_sizes(plan, count))
    return runner_of([add, finish], parts_of(count) * FLOAT64_BYTES)


def nll_family(plan: Plan, alone: bool = False) -> Family:
    """The kernel that adds up positions' losses and weights, and writes them if each counts; `alone`, it finishes, too."""
    target, values, weight, out, total = _slots(plan, wide=False)
    each, *known = nll_finish_family(plan).constants
    slots = target, values, weight, out if each or alone else None, total if alone else _sums(plan)
    return Family(nll_losses, slots, (alone, each, *known), overlapped=not alone)


def nll_finish_family(plan: Plan) -> Family:
    """The kernel that adds up the parts."""
    *_, out, total = _slots(plan, wide=False)
    each, mean, compute = not plan.reduction, plan.reduction == "mean", TRITON_TYPES[plan.compute]
    return Family(
        finish_nll, (_sums(plan), None if each else out, total), (each, mean, compute), overlapped=True, follows=True
    )  # fmt: skip


def nll_sizes(
    shape: tuple[int, ...], strides: tuple[int, ...], class_strides: tuple[int, int], classes: int, ignore_index: int
) -> Sizes:  # fmt: skip
    """Of positions of three axes: strides of targets, values and results along them, of values and weights along classes."""
    count = math.prod(shape)
    parts = parts_of(count)
    numbers = (
        count, *shape[1:], *strides, *class_strides, classes, ignored(ignore_index), parts,
    )  # fmt: skip
    return parts, numbers, (BLOCK,), 4


def nll_finish_sizes(count: int) -> Sizes:
    parts = parts_of(count)
    return 1, (parts,), (next_power_of_two(parts),), 4


def nll_runner(plan: Plan) -> Runner:
    """What queues the negative log-likelihood: each position's, or the sum or mean, and the total weight."""
    shape = (1,) * (NLL_AXES - len(plan.shape)) + plan.shape
    count = math.prod(shape)
    strides = tuple(
        stride_of(plan.operands[place], axis) for place in (0, 1, 3) for axis in (-3, -2, -1)
    )
    along = plan.inputs[1].class_stride, plan.inputs[2].class_stride
    sizes = nll_sizes(shape, strides, along, plan.classes, plan.numbers["ignore_index"])
    if is_alone(count):
        return runner_of([Launch(nll_family(plan, alone=True), *sizes)])
    add = Launch(nll_family(plan), *sizes)
    finish = Launch(nll_finish_family(plan), *nll_finish_sizes(count))
    return runner_of([add, finish], NLL_SUMS * parts_of(count) * FLOAT64_BYTES)


def filling(plan: Plan) -> Runner:
    """What writes a number into each output of one element."""
    return runner_of(
        [
            Launch(Family(fill_one, (slot,)), 1, (float(plan.numbers[own.parameter]),), (), 1)
            for slot, own in zip(_slots(plan, wide=False), plan.outputs, strict=True)
        ]
    )
