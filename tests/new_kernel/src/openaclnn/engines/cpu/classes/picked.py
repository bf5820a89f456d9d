"""The smallest kernel with a class axis: of each position, the value of its target's class. CONTRIBUTING.md walks through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from openaclnn.core.dtypes import FLOATS, INT32, INT64
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.classes.shared.parameters import (
    AXES,
    Parameters,
    fields,
    objection,
    pack,
    places,
)
from openaclnn.engines.cpu.classes.shared.passes import Passes, runner_of
from openaclnn.engines.cpu.classes.shared.targets import Targets, target_kind
from openaclnn.engines.cpu.registry import KERNELS, Runner
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

NAME = "picked"
OPERANDS = {"target": "target", "values": "self", "out": "out"}
SLOTS = fields(tuple(OPERANDS), ())
PLACES = places(SLOTS, OPERANDS)
ALONE = 1 << 12  # positions that one thread does sooner than two


def emit_picked(dtype: str, target: str) -> Emit:
    """The kernel: some positions, from the first to before the last."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        given, first, last = arguments
        parameters = Parameters(code, given, SLOTS)
        targets = Targets(code, parameters, target)
        with code.loop(first, last) as position:
            found = targets.at(parameters.position("target", position))
            with code.when(found.stray, likely=False):
                parameters.report_stray()
            # What does not count reads the first class, never memory outside.
            label = found.counted.choose(found.label, 0)
            values = parameters.position("values", position)
            value = code.load(values + label * parameters["values.class_step"], dtype)
            out = parameters.position("out", position)
            code.store(found.counted.choose(value, 0.0), out, dtype)

    return emit


class Picked:
    def declines(self, plan: Plan) -> str | None:
        return objection(plan, AXES)

    def runner(self, plan: Plan) -> Runner:
        dtype, target = plan.compute.short, target_kind(plan)
        kernel = compiled(f"{NAME}.{dtype}.{target}", emit_picked(dtype, target))
        block = pack(SLOTS, plan, PLACES, {})
        return runner_of(block, Passes(kernel, element_count(plan.shape), ALONE))

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32):
                inputs = (
                    Operand("target", target, (1,), role="positions"),
                    Operand("self", dtype, (2,), 1),
                )
                out = Operand("out", dtype, (1,), role="positions")
                yield Plan("", NAME, dtype, (2,), inputs, out, {"ignore_index": -100}, 2, 0)


KERNELS[NAME] = Picked()
