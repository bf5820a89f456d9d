"""nll_loss: what each position's class says, weighted; summed block by block, in the order of `totals`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT16, FLOATS, INT32, INT64, UINT8, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu import in_turn, pool
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.parameters import AXES, Parameters, fields, pack, places
from openaclnn.engines.cpu.classes.targets import Targets
from openaclnn.engines.cpu.registry import KERNELS, Runner
from openaclnn.engines.cpu.sums import write_one
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.values import Value

NAME = "nll_loss"
OPERANDS = {
    "target": "target", "values": "self", "weight": "weight", "out": "out", "total": "totalWeightOut",
}  # fmt: skip
SLOTS = fields(tuple(OPERANDS), ("mean",))
PLACES = places(SLOTS, OPERANDS)
TARGETS = {"INT64": "i64", "INT32": "i32", "UINT8": "u8"}
AHEAD = 16  # positions
GRAIN = 2  # blocks that one thread does sooner than two: each position waits for memory


def emit_blocks(dtype: str, target: str, output: str, each: bool) -> Emit:
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
                own, values, out = (
                    address + index * step
                    for address, step in zip(addresses, steps.values(), strict=True)
                )
                found = targets.at(own)
                with code.when(found.stray, likely=False):
                    parameters.report_stray()
                label = found.counted.choose(found.label, 0)
                weight = code.load(weights + label * weight_step, dtype).to("f64")
                value = code.load(values + label * class_step, dtype).to("f64")
                loss = found.counted.choose(-(weight * value), 0.0)
                losses.set(losses.get() + loss)
                total.set(total.get() + found.counted.choose(weight, 0.0))
                if each:
                    code.store(loss.to("f32"), out, output)

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


class NllLossForward:
    def declines(self, plan: Plan) -> str | None:
        """Why it does not serve a plan; None if it does."""
        if len(plan.shape) > AXES:
            return f"its positions have {len(plan.shape)} axes"
        for output in plan.outputs:
            if output.dtype not in FLOATS or (
                not plan.reduction and output.dtype is not plan.compute
            ):
                return f"it computes in {plan.compute} and writes {output.dtype}"
        if plan.compute is FLOAT16 and not machine().half:
            return "this CPU does not convert FLOAT16"
        return None

    def runner(self, plan: Plan, lanes: int = 0) -> Runner:
        words = pack(SLOTS, plan, PLACES, {"mean": plan.reduction == "mean"})
        kernel, positions = _kernel(plan), element_count(plan.shape)
        blocks = totals.block_count(positions)
        if blocks == 1 and all(own.dtype is plan.compute for own in plan.outputs):
            finish, block = _finish(plan), words.buffer_info()[0]
            return in_turn.bind_both(kernel, 1, finish, block, len(plan.operands), positions, words)

        def run(addresses: Sequence[int], stream: int = 0, keep: Any = words) -> int:
            sums = np.empty((blocks, 2))
            block, scratch = words.buffer_info()[0], sums.ctypes.data
            status = pool.launch(kernel, blocks, GRAIN, block, scratch, *addresses)
            loss, total = sums.sum(axis=0)
            with np.errstate(all="ignore"):
                if plan.reduction:
                    loss = loss / total if plan.reduction == "mean" else loss
                    write_one(plan.output, addresses[-2], loss, plan.compute)
                write_one(plan.more[0], addresses[-1], total, plan.compute)
            return status

        return run

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32, UINT8):
                for reduction in ("", "mean"):
                    yield _example(dtype, target, reduction)


def emit_finish(dtype: str, each: bool) -> Emit:
    """The kernel that writes the results of one block's sums."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameters = Parameters(code, arguments[0], SLOTS)
        loss, total = (code.load(parameters.scratch + 8 * slot, "f64") for slot in range(2))
        if not each:
            divisor = parameters["mean"].differs(0).choose(total, 1.0)
            code.store((loss / divisor).to("f32"), parameters.address("out"), dtype)
        code.store(total.to("f32"), parameters.address("total"), dtype)

    return emit


def _finish(plan: Plan) -> int:
    dtype, each = plan.compute.short, not plan.reduction
    return compiled(f"nll_loss.finish.{dtype}.{each}", emit_finish(dtype, each))


def _kernel(plan: Plan) -> int:
    dtype, target = plan.compute.short, TARGETS[plan.inputs[plan.targets].dtype.name]
    each = not plan.reduction
    name = f"nll_loss.{dtype}.{target}.{'each' if each else 'sum'}"
    return compiled(name, emit_blocks(dtype, target, plan.output.dtype.short, each))


def _example(dtype: DType, target: DType, reduction: str) -> Plan:
    """A plan of two rows."""
    inputs = (
        Operand("target", target, (1,), role="positions"),
        Operand("self", dtype, (2,), 1),
        Operand("weight", dtype, (0,), 1, role="classes"),
    )
    out = Operand(
        "out", dtype, (0 if reduction else 1,), role="single" if reduction else "positions"
    )
    total = Operand("totalWeightOut", dtype, (0,), role="single")
    return Plan(
        "", NAME, dtype, (2,), inputs, out, {"ignore_index": -100}, 2, 0, more=(total,),
        reduction=reduction,
    )  # fmt: skip


KERNELS[NAME] = NllLossForward()
