"""What runs the calls of a kind: a kernel, launched by the road itself, or a runner that Python calls."""

from __future__ import annotations

from typing import Any, NamedTuple

from openaclnn.core.plan import ANY_COUNT, Plan, covered_elements
from openaclnn.engines.cpu.launching.control import MAX_ARGUMENTS, bound_kernel
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat.words import slots as at

__all__ = ["Work", "work_of"]


class Work(NamedTuple):
    """The words of a record under these names in `slots.py`, and the objects that they rely on."""

    lead: int  # the argument that sizes are read of; -1: they are part of the kind
    counts: tuple[int, int]  # of elements that it serves: from, below
    kernel: int = 0
    grain: int = 0
    reciprocal: int = -1
    constants: tuple[int, ...] = ()
    units: int = 0
    takes: int = 0  # SIZED
    gathering: int = 0
    runner: Any = None  # what Python calls where there is no kernel; of sizes, where it takes some
    flat: Any = None  # what the kernel's constants derive from


def work_of(plan: Plan, choice: Choice, lead: int, laid: bool) -> Work:
    """What runs a kind whose sizes are read of this argument, or are part of it (-1); one of its operands may be not row-major."""
    flat: Any = choice.flat
    counts, count = ANY_COUNT, covered_elements(plan)
    if flat is not None and len(flat.constants) > at.MAX_CONSTANTS:
        flat = None
    elif flat is not None and count >= flat.counts[1]:
        flat, counts = None, (flat.counts[1], ANY_COUNT[1])  # for a sized runner
    work: Work | None = None
    if laid:
        work = _gathered(plan, flat, lead, count) or _laid(plan, choice, lead)
    elif lead >= 0 and flat is not None:
        kernel, grain, constants, reciprocal, served, *_ = flat
        work = Work(lead, served, kernel, grain, reciprocal, constants, flat=flat)
    elif lead >= 0 and choice.sized is not None:
        sized = choice.sized(plan)
        work = sized and Work(lead, counts, takes=at.BY_SHAPE, runner=sized)
    return work or _one_size(choice, counts)


def _gathered(plan: Plan, flat: Any, lead: int, count: int) -> Work | None:
    """A flat kernel on few elements, which are gathered before it runs."""
    from openaclnn.engines.cpu.layouts import gathered

    operands = len(plan.inputs) + 1
    if flat is None or count > flat.gathers or operands > gathered.MAX_OPERANDS:
        return None
    if 1 + len(flat.constants) + operands > MAX_ARGUMENTS:
        return None
    least, beyond = flat.counts
    return Work(
        lead, (least, min(beyond, flat.gathers + 1)), flat.dense(), flat.grain, flat.reciprocal,
        flat.constants, gathering=flat.gathering(), flat=flat,
    )  # fmt: skip


def _laid(plan: Plan, choice: Choice, lead: int) -> Work | None:
    """A runner that is told sizes and strides."""
    offer = None if choice.laid is None else choice.laid(plan)
    if offer is None:
        return None
    runner, most = offer
    takes = at.BY_CLASSES if plan.classes else at.BY_LAYOUT
    return Work(lead, (1, most + 1), takes=takes, runner=runner)


def _one_size(choice: Choice, counts: tuple[int, int]) -> Work:
    """What runs the plan as it is: launched without the runner where one launch is all that does, since it would be called
    with a tuple of Python's integers.
    """
    runner = choice.prepare()
    bound = bound_kernel(runner)
    if bound is None or len(bound.constants) > at.MAX_CONSTANTS:
        return Work(-1, counts, runner=runner)
    return Work(
        -1, counts, bound.kernel, bound.grain, -1, bound.constants, bound.units, runner=runner
    )
