"""nll_loss: what each position's class says, weighted; summed block by block, in the order of `totals`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from openaclnn.core.dtypes import FLOATS, INT32, INT64, UINT8
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import (
    IMAGES,
    ClassKernel,
    Kernels,
    Launches,
    Problem,
    example,
)
from openaclnn.engines.cpu.classes.parameters import (
    AXES,
    Parameters,
    Targets,
    fields,
    objection,
    target_kind,
)
from openaclnn.engines.cpu.launching.launcher import BRIEF, TINY
from openaclnn.engines.cpu.registry import KERNELS
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.numbers import where
from openaclnn.engines.machine.values import Value

NAME = "nll_loss"
OPERANDS = {
    "target": "target", "values": "self", "weight": "weight", "out": "out", "total": "totalWeightOut",
}  # fmt: skip
SLOTS = fields(tuple(OPERANDS), ("mean",))
AHEAD = 16  # positions
GRAIN = 2  # blocks that one thread does sooner than two: each position waits for memory


def emit_blocks(dtype: str, target: str, each: bool) -> Emit:
    """The kernel that leaves a block's sums of losses and weights in scratch memory, and writes losses if each counts."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        targets = Targets(code, parameters, target)
        positions, weights = parameters["positions"], parameters.address("weight")
        class_step, weight_step = parameters["values.class_step"], parameters["weight.class_step"]
        steps = {name: parameters[f"{name}.step2"] for name in ("target", "values", "out")}
        losses, total = (code.variable(code.double(0.0)) for _ in range(2))

        def stretch(addresses: list[Value], count: Value) -> None:
            with code.loop(0, count) as index:
                # Each value waits for memory of its own: it is asked for some positions before.
                later = (index + AHEAD).least(count - 1)
                label = targets.at(addresses[0] + later * steps["target"]).label
                code.prefetch(addresses[1] + later * steps["values"] + label * class_step)
                place, values, out = (
                    address + index * step
                    for address, step in zip(addresses, steps.values(), strict=True)
                )
                labelled = targets.at(place)
                with code.when(labelled.stray, likely=False):
                    parameters.report_stray()
                label = labelled.counted.choose(labelled.label, 0)
                weight = code.load(weights + label * weight_step, dtype).to("f64")
                value = code.load(values + label * class_step, dtype).to("f64")
                loss = labelled.counted.choose(-(weight * value), 0.0)
                losses.set(losses.get() + loss)
                total.set(total.get() + labelled.counted.choose(weight, 0.0))
                if each:
                    code.store(loss.to("f32"), out, dtype)

        with code.loop(first, last) as number:
            start = number * totals.BLOCK
            for sum_ in (losses, total):
                sum_.set(code.double(0.0))
            stop = (start + totals.BLOCK).least(positions)
            totals.runs(code, parameters, start, stop, tuple(steps), stretch)
            place = parameters.scratch + number * totals.STRIDE
            code.store(losses.get(), place, "f64")
            code.store(total.get(), place + 8, "f64")

    return emit


def emit_finish(compute: str, outputs: Sequence[str], each: bool) -> Emit:
    """The kernel that adds up the blocks' sums, one after another, and writes the results, rounded to the computation type and then to
    their own."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameters = Parameters(code, arguments[0], SLOTS)
        blocks = totals.block_count(parameters["positions"])
        loss, total = totals.added_up(code, parameters.scratch, blocks, 2)
        results = {"out": loss / parameters.flag("mean").choose(total, 1.0), "total": total}
        if each:
            del results["out"]
        rounded = code.buffer(compute, 1)
        for (name, value), output in zip(results.items(), outputs[-len(results) :], strict=True):
            code.store(value.to("f32"), rounded, compute)
            code.store(code.load(rounded, compute), parameters.address(name), output)

    return emit


class NllLoss(ClassKernel):
    axes, strided, full = IMAGES, True, ("values",)

    def declines(self, plan: Plan) -> str | None:
        for output in plan.outputs:
            if output.dtype not in (FLOATS if plan.reduction else (plan.compute,)):
                return f"it computes in {plan.compute} and writes {output.dtype}"
        # A sum is rounded to what is computed in, then to its own dtype.
        return objection(plan, AXES, rounds=True)

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        return {"mean": plan.reduction == "mean"}

    def cut(self, problem: Problem) -> Launches:
        positions = problem["positions"]
        blocks = totals.block_count(positions)
        grain = where(positions <= BRIEF, TINY, GRAIN)
        return Launches(0, blocks, grain, left=blocks * totals.STRIDE)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        dtype, target = plan.compute.short, target_kind(plan)
        outputs = [output.dtype.short for output in plan.outputs]
        each = not plan.reduction
        how = "each" if each else "sum"
        write = emit_blocks(dtype, target, each)
        finish = emit_finish(dtype, outputs, each)
        return Kernels(
            compiled(f"nll_loss.{dtype}.{target}.{how}", write),
            finish=compiled(f"nll_loss.finish.{dtype}.{'.'.join(outputs)}.{how}", finish),
        )

    def variants(self) -> Iterator[Plan]:
        for dtype, target, reduction in product(FLOATS, (INT64, INT32, UINT8), ("", "mean")):
            loss = "single" if reduction else "positions"
            yield example(
                NAME, dtype, 2,
                [("target", target, "positions"), ("self", dtype, "full"), ("weight", dtype, "classes")],
                [("out", dtype, loss), ("totalWeightOut", dtype, "single")], reduction=reduction,
            )  # fmt: skip


KERNELS[NAME] = NllLoss(NAME, SLOTS, OPERANDS)
