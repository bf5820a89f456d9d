"""nll_loss: what each position's class says, weighted; summed block by block, in the order of `totals`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT16, FLOATS, INT32, INT64, UINT8, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import AXES, Parameters, fields, pack, places
from openaclnn.engines.cpu.classes.shared.sized import (
    IMAGES,
    Fitted,
    LaidRunner,
    Problem,
    Sizing,
    laid_runner,
    put_ignored,
    row_major,
    sized_runner,
)
from openaclnn.engines.cpu.classes.shared.targets import Targets, target_kind
from openaclnn.engines.cpu.formulas.sums import write_one
from openaclnn.engines.cpu.launching import in_turn, pool
from openaclnn.engines.cpu.launching.launcher import BRIEF, TINY
from openaclnn.engines.cpu.registry import KERNELS, Runner, SizedRunner
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

    def runner(self, plan: Plan) -> Runner:
        words = _block(plan)
        kernel, positions = _kernel(plan), element_count(plan.shape)
        blocks = totals.block_count(positions)
        if blocks == 1 and _plain(plan):
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

    def sized(self, plan: Plan) -> SizedRunner | None:
        """What runs row-major operands of any (N, C, ...)."""
        if plan.class_axis != 1 or not _plain(plan):
            return None
        fixed = {"size0": 1, "values.step2": plan.compute.itemsize}
        block = row_major(_block(plan), plan, SLOTS, PLACES, fixed)
        return sized_runner(SIZING, block, _compiling(plan))

    def laid(self, plan: Plan) -> LaidRunner | None:
        """The same with any strides."""
        if not _plain(plan):
            return None
        return laid_runner(LAYING, _block(plan), _compiling(plan), plan.operands, PLACES)

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32, UINT8):
                for reduction in ("", "mean"):
                    yield _example(dtype, target, reduction)


def _block(plan: Plan) -> array[int]:
    """The parameters of a plan."""
    return pack(SLOTS, plan, PLACES, {"mean": plan.reduction == "mean"})


def _plain(plan: Plan) -> bool:
    """Whether results have the dtype that is computed in."""
    return all(own.dtype is plan.compute for own in plan.outputs)


def _compiling(plan: Plan) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    return lambda shape: (0, _kernel(plan), 0, 0, _finish(plan))


def _fit(problem: Problem) -> Fitted:
    """The parameters of row-major images; rows are the pixels of one image that has its classes side by side."""
    images, classes, pixels = problem.shape
    rows, item = pixels == 1, problem["values.step2"]
    pitch = classes * pixels * item
    for name, value in (
        ("classes", classes), ("positions", images * pixels),
        ("size1", rows.choose(1, images)), ("size2", rows.choose(images, pixels)),
        ("target.step1", problem["target.step2"] * pixels), ("out.step1", problem["out.step2"] * pixels),
        ("values.step1", pitch), ("values.step2", rows.choose(pitch, item)),
        ("values.class_step", pixels * item),
    ):  # fmt: skip
        problem[name] = value
    return _fit_laid(problem)


def _fit_laid(problem: Problem) -> Fitted:
    """The launches over positions that lie anyhow."""
    code, positions = problem.code, problem["positions"]
    blocks = totals.block_count(positions)
    grain = (positions <= BRIEF).choose(code.integer(TINY), GRAIN)
    return Fitted(code.integer(0), blocks, grain, left=blocks * totals.STRIDE)


NUMBERS = (("i64", put_ignored),)
SIZING = Sizing("nll_loss", SLOTS, IMAGES, _fit, NUMBERS)
LAYING = Sizing("nll_loss.laid", SLOTS, 0, _fit_laid, NUMBERS)


def emit_finish(dtype: str, each: bool) -> Emit:
    """The kernel that adds up the blocks' sums, one after another, and writes the results."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameters = Parameters(code, arguments[0], SLOTS)
        sums = [code.variable(code.double(0.0)) for _ in range(2)]
        with code.loop(0, totals.block_count(parameters["positions"])) as number:
            block = code.array(parameters.scratch + number * totals.STRIDE, "f64")
            for slot, sum_ in enumerate(sums):
                sum_.set(sum_.get() + block.read(slot))
        loss, total = (sum_.get() for sum_ in sums)
        if not each:
            divisor = parameters.flag("mean").choose(total, 1.0)
            code.store((loss / divisor).to("f32"), parameters.address("out"), dtype)
        code.store(total.to("f32"), parameters.address("total"), dtype)

    return emit


def _finish(plan: Plan) -> int:
    dtype, each = plan.compute.short, not plan.reduction
    return compiled(f"nll_loss.finish.{dtype}.{each}", emit_finish(dtype, each))


def _kernel(plan: Plan) -> int:
    dtype, target = plan.compute.short, target_kind(plan)
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
