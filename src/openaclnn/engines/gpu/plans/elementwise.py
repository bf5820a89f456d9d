"""How elementwise kernels are launched: over dense data, or else by tiles."""

from __future__ import annotations

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.formulas.compiled import precision
from openaclnn.engines.gpu.formulas.tuned import Form, form_of
from openaclnn.engines.gpu.kernels.elementwise import flat_kernel
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Sizes,
    anywhere,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, elementwise_slots
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner
from openaclnn.engines.gpu.plans import tiles


def runner(plan: Plan) -> Runner:
    """What queues the plan on a stream."""
    if not is_flat(plan):
        return runner_of(list(tiles.launches(plan)))
    form = form_of(plan)
    flat, (count,) = Flat(plan, form), plan.shape
    launch = Launch(flat.family, *flat.sizes(count, form.numbers))
    if flat.vector and count > tiles.FEW:
        sizes = flat.shifted_sizes(count, form.numbers)
        launch = launch._replace(shifted=Launch(flat.shifted, *sizes), together=flat.wide)
    return runner_of([launch])


def is_flat(plan: Plan) -> bool:
    """Whether every operand lies in a row or is one element."""
    operands = (*plan.inputs, plan.output)
    return len(plan.shape) == 1 and all(own.strides[0] in (0, 1) for own in operands)


def flat_shape(plan: Plan) -> tuple[int, int]:
    """Elements of a program, and warps."""
    # 512-1024 elements on 4-8 warps were equal (4.38 TB/s, a copy 4.24); evict_first loads lost 7%.
    # These give each thread one 16-byte load of each operand.
    return 1024, 8 if plan.output.dtype.itemsize >= 4 else 4


class Flat:
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
