"""Launches of sums along some axes of an elementwise formula's last result: a program's tile, and in how many parts the elements are added up."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import chain

from openaclnn.core.plan import Operand, Plan, collapse
from openaclnn.engines.gpu.formulas.compiled import Names, precision
from openaclnn.engines.gpu.formulas.tuned import Form, form_of
from openaclnn.engines.gpu.kernels.axis_sums import (
    AXES,
    Walk,
    axis_sums_kernel,
    few_sums_kernel,
    finish_kernel,
)
from openaclnn.engines.gpu.launchers.geometry import (
    NUMBERS_ARGS,
    STRIDES_ARGS,
    DynamicLaunch,
    Elements,
    Launches,
    LaunchParams,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launchers.launcher import FormulaLauncher
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    KernelSpec,
    launched,
    next_power_of_two,
    pointers_of,
    scratch_of,
)
from openaclnn.engines.gpu.launching.runners import Runner, runner_of
from openaclnn.engines.machine.numbers import least

# Elements of a program at a time, and programs: as many as an H200 runs at once, if there is more than a tile for each. Where columns are kept (not summed), a program has
# more to do before and after its loop.
TILE, PROGRAMS = 1024, 2112
KEPT_TILE, KEPT_PROGRAMS = 2048, 1056
ROW_BYTES = 2048  # bytes of a tile's row if columns are kept: each thread adds up whole columns
WARPS = 4
FINISHED = 2048  # elements of the last launch's tile, parts by kept elements
FLOAT64_BYTES = 8


def _columns(size: int, widest: int) -> int:
    """How many elements of an axis a tile has, so that tiles have little padding."""
    width = min(next_power_of_two(size), widest)
    while width > 128 and -(-size // width) * width * 15 > size * 16:
        width //= 2
    return width


FEW, FEW_PROGRAMS, FEW_COLUMNS = "few", 2112, 1024


def launch_few(g: Elements) -> Launches:
    """One launch: a program for each sum, if there are not too many, by a kernel for all strides."""
    sizes = {f"size_{axis}": size for axis, size in enumerate(g.sizes)}
    args = {**sizes, STRIDES_ARGS: 0, NUMBERS_ARGS: 0}
    return Launches([LaunchParams(FEW, least(g.count, FEW_PROGRAMS), args, {"COLUMNS": FEW_COLUMNS}, WARPS)])  # fmt: skip


class AxisSums(FormulaLauncher):
    """The launcher of plans whose last output is the sum of a formula's last result along the axes where that output has stride 0."""

    limit, position_axes = 1 << 13, AXES
    dynamic_launches = (
        functools.partial(DynamicLaunch, "", launch_few, {FEW: None}),
        functools.partial(DynamicLaunch, "axis_sums", launch_few, {FEW: None}, axes=AXES, limit=limit),
    )  # fmt: skip

    def runner(self, plan: Plan) -> Runner:
        """Axes are in the order that calls with dynamic strides have, which that of sums is."""
        run = self.dynamic_runner(plan, strided=True)
        sizes, strides, offsets = collapse(plan.shape, [operand.strides for operand in plan.operands])  # fmt: skip
        if run is None or any(offsets):
            return axis_sums(plan)
        few, steps = run, tuple(chain(*strides))

        def run_few(addresses: Sequence[int], stream: int = 0) -> int:
            return few(tuple(addresses), stream, sizes, steps)

        return run_few

    def serves_row_major(self, plan: Plan) -> bool:
        return False

    def specs(self, plan: Plan, form: Form, strided: bool) -> dict[str, KernelSpec]:
        known = (*form.switches, *precision(plan))
        return {FEW: KernelSpec(few_sums_kernel(form.formula), pointers_of(plan), known, fused=False)}  # fmt: skip

    def static(self, plan: Plan, strided: bool) -> dict[str, int]:
        return {}


AXIS_SUMS = AxisSums()


def axis_sums(plan: Plan) -> Runner:
    """The runner of a plan of more elements."""
    shape, total = plan.shape, plan.outputs[-1]
    kept = [axis for axis, step in enumerate(total.strides) if step]
    summed = [axis for axis, step in enumerate(total.strides) if not step]
    last = len(shape) - 1
    keeps_columns = last in kept
    walk = Walk(
        len(kept), len(summed), keeps_columns,
        tuple([_walked(operand, kept, summed, last) for operand in plan.operands]),
    )  # fmt: skip
    itemsize = max(operand.dtype.itemsize for operand in plan.operands)
    columns = shape[last]
    tile, programs = (KEPT_TILE, KEPT_PROGRAMS) if keeps_columns else (TILE, PROGRAMS)
    count = math.prod([shape[axis] for axis in kept])
    if keeps_columns:
        rows = math.prod([shape[axis] for axis in summed])
        tall = min(next_power_of_two(rows), tile)
        width = _columns(columns, min(max(ROW_BYTES // itemsize, tile // tall), tile))
        height = min(tall, tile // width)
        blocks = count // columns * -(-columns // width)
        turns, step = -(-rows // height), height
    else:
        width = _columns(columns, tile)
        height = min(next_power_of_two(count), tile // width)
        blocks = -(-count // height)
        turns = -(-columns // width) * math.prod([shape[axis] for axis in summed[:-1]])
        step = 1
    span = -(-turns // max(1, min(programs // blocks, turns)))
    parts = -(-turns // span)
    # Operands that are contiguous along the columns need no stride there, and are read by vectors where all their other strides are multiples of the unit.
    others = [
        tuple([step if axis < last or step != 1 else 0 for axis, step in enumerate(operand.strides)])
        for operand in plan.operands[:-1]
    ]  # fmt: skip
    near = [operand.strides[last] == 1 for operand in plan.operands[:-1]]
    unit = power_of_two_divisor(columns, *(step for steps, by_vectors in zip(others, near, strict=True) if by_vectors for step in steps))  # fmt: skip
    divided = [[step // (unit if by_vectors else 1) for step in steps] for steps, by_vectors in zip(others, near, strict=True)]  # fmt: skip
    form = form_of(plan)
    names = Names(form.formula)
    walked = [*form.formula.values, *names.results]
    marks = [
        *((f"k{place}", axis) for place, axis in enumerate(kept)),
        *((f"s{place}", axis) for place, axis in enumerate(summed)),
    ]
    sizes = {f"size_{mark}": shape[axis] // (unit if axis == last else 1) for mark, axis in marks}
    strides = {
        f"stride_{name}_{mark}": steps[axis]
        for name, steps in zip(walked, (*divided, total.strides), strict=True)
        for mark, axis in marks if name != walked[-1] or axis in kept
    }  # fmt: skip
    slots = pointers_of(plan, lambda operand: True)
    parts_slot = scratch_of(plan)
    reach = max(sum(abs(step) * (size - 1) for step, size in zip(operand.strides, shape, strict=True)) for operand in plan.operands)  # fmt: skip
    wide = max(reach, math.prod(shape)) + 2 * tile >= INT32_LIMIT
    compute, precise = precision(plan)
    taken = (*slots, parts_slot if parts > 1 else None, *form.numbers, *form.switches)
    named = {
        **dict(zip((*names.pointers, *names.outs, "sums", *names.numbers, *names.switches), taken, strict=True)), **sizes, **strides,
        "span": span * step, "kept_size": count, "COMPUTE": compute, "PRECISE": precise, "ALONE": parts == 1, "UNIT": unit, "WIDE": wide,
        "ROWS": height, "COLUMNS": width,
    }  # fmt: skip
    add = launched(
        axis_sums_kernel(form.formula, walk), blocks * parts, named, max(1, min(WARPS, height * width // 128)), fused=False, overlapped=parts > 1
    )  # fmt: skip
    if parts == 1:
        return runner_of([add])
    each = min(next_power_of_two(-(-count // 128)), 64)
    several = min(next_power_of_two(parts), FINISHED // each)
    lies = {f"size_k{place}": shape[axis] for place, axis in enumerate(kept)}
    lies |= {f"stride_out_k{place}": total.strides[axis] for place, axis in enumerate(kept)}
    named = {
        "sums": parts_slot, "out": slots[-1]._replace(wide=False), "parts": parts, "kept_size": count, **lies, "COMPUTE": compute,
        "PARTS": several, "KEPT": each,
    }  # fmt: skip
    finish = launched(finish_kernel(len(kept)), -(-count // each), named, 4, follows=True)
    return runner_of([add, finish], parts * count * FLOAT64_BYTES)


def _walked(
    operand: Operand, kept: Sequence[int], summed: Sequence[int], last: int
) -> tuple[bool, bool, int]:
    steps = operand.strides
    column = steps[last] if steps[last] in (0, 1) else 2
    return any(steps[axis] for axis in kept), any(steps[axis] for axis in summed), column
