"""The smallest kernel with a class axis: of each position, the value of its target's class. CONTRIBUTING.md walks through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from openaclnn.core.dtypes import FLOATS, INT32, INT64
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.classes.launches import (
    IMAGES,
    ClassKernel,
    Kernels,
    Launches,
    Problem,
)
from openaclnn.engines.cpu.classes.parameters import Parameters, Targets, fields, target_kind
from openaclnn.engines.cpu.registry import KERNELS
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

NAME = "picked"
OPERANDS = {"target": "target", "values": "self", "out": "out"}
SLOTS = fields(tuple(OPERANDS), ())
ALONE = 1 << 12  # positions that one thread does sooner than two


def emit_picked(dtype: str, target: str) -> Emit:
    """The kernel: some positions, from the first to before the last."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        targets = Targets(code, parameters, target)
        with code.loop(first, last) as position:
            target_class = targets.at(parameters.position("target", position))
            with code.when(target_class.stray, likely=False):
                parameters.report_stray()
            # What does not count reads the first class, never memory outside.
            label = target_class.counted.choose(target_class.label, 0)
            values = parameters.position("values", position)
            value = code.load(values + label * parameters["values.class_step"], dtype)
            out = parameters.position("out", position)
            code.store(target_class.counted.choose(value, 0.0), out, dtype)

    return emit


class Picked(ClassKernel):
    axes, full = IMAGES, ("values",)

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        return {}

    def cut(self, problem: Problem) -> Launches:
        return Launches(0, problem["positions"], ALONE)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        dtype, target = plan.compute.short, target_kind(plan)
        return Kernels(compiled(f"{NAME}.{dtype}.{target}", emit_picked(dtype, target)))

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32):
                inputs = (
                    Operand("target", target, (1,), role="positions"),
                    Operand("self", dtype, (2,), 1),
                )
                out = Operand("out", dtype, (1,), role="positions")
                yield Plan("", NAME, dtype, (2,), inputs, out, {"ignore_index": -100}, 2, 0)


KERNELS[NAME] = Picked(NAME, SLOTS, OPERANDS)
