"""How sums over all elements are launched: of what a formula gives, of the negative log-likelihood; and fills."""

from __future__ import annotations

import math
from collections.abc import Sequence

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.formulas.compiled import TRITON_TYPES, precision
from openaclnn.engines.gpu.formulas.tuned import Form, form_of
from openaclnn.engines.gpu.kernels.reductions import (
    fill_one,
    finish_nll,
    finish_reduction,
    nll_losses,
)
from openaclnn.engines.gpu.kernels.summed import summed_kernel
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
# And where sizes may be new: on an H200 it took 3 to 5 us more of the GPU for 131,072 to 262,144; another plan takes 300 of the host.
LAID = 1 << 18
AXES = 5
NLL_AXES = 3  # of positions


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
