"""Launches of elementwise formulas: the flat kernel for contiguous operands, whatever their size; and for strided operands a kernel with tiles over two axes, of which one
tile serves all sizes and strides of small problems."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence, Set
from itertools import product

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.formulas import FORMULAS, Formula
from openaclnn.engines.formulas.words import WORDS
from openaclnn.engines.gpu.formulas.compiled import precision
from openaclnn.engines.gpu.formulas.tuned import Form, form_of
from openaclnn.engines.gpu.kernels.elementwise import AXES, flat_kernel, tiled_kernel
from openaclnn.engines.gpu.launchers.geometry import (
    NUMBERS_ARGS,
    STRIDES_ARGS,
    DynamicLaunch,
    Elements,
    Launches,
    LaunchParams,
    launch_of,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launchers.launcher import FormulaLauncher
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    KernelSpec,
    Launch,
    next_power_of_two,
    pointers_of,
)
from openaclnn.engines.gpu.launching.runners import Runner, runner_of
from openaclnn.engines.machine.numbers import Number, all_of, ceil_div, inverse

SMALL = 1 << 16  # elements up to which one compiled kernel serves all alignments
HEAVY = frozenset(WORDS) - {"where", "fma", "abs", "sign", "minimum", "maximum"}
# Formulas with these words take 0.3 to 3% less time if whole blocks have code without masks, others as much; logit 5% more, whose 35 registers a thread are then too many.
UNMASKED = frozenset(("erfinv", "gelu", "gelu_slope", "gelu_tanh", "softplus"))

# Contiguous operands.

FLAT, SHIFTED = "flat", "shifted"


def launch(g: Elements) -> Launches:
    """One launch: the flat kernel, or the shifted one, for many elements that are all misaligned by the same bytes."""
    count, block, vector = g.count, g.static["block"], g.static["vector"]
    small, unit = count <= SMALL, power_of_two_divisor(count)
    shifted = all_of(g.misaligned, g.same_offset, vector > 0, inverse(small))
    flat = LaunchParams(
        FLAT, ceil_div(count, block), {"count": count // unit, NUMBERS_ARGS: 0},
        {"UNIT": unit, "MASKED": g.static["masked"], "WIDE": count + block >= INT32_LIMIT, "BLOCK": block}, g.static["warps"],
        inverse(shifted), inverse(all_of(g.share_small, small, g.misaligned)),
    )  # fmt: skip
    # Blocks begin at the aligned address before the first element, so that there may be one more.
    other = LaunchParams(
        SHIFTED, ceil_div(count + vector - 1, block), {"count": count, NUMBERS_ARGS: 0},
        {"WIDE": count + 2 * block >= INT32_LIMIT, "BLOCK": block}, g.static["warps"], shifted, aligned=False,
    )  # fmt: skip
    return Launches([flat, other])


def has_words(plan: Plan, words: Set[str]) -> bool:
    """Whether the plan's formula calls one of these words."""
    formula = FORMULAS[plan.kernel]
    return not words.isdisjoint(_words(formula, *formula.switches_of(plan.numbers).items()))


@functools.cache
def _words(formula: Formula, *switches: tuple[str, bool]) -> Set[str]:
    return formula.words(dict(switches))


def flat_shape(plan: Plan) -> tuple[int, int]:
    """Elements of a program, and warps."""
    # 8 elements in a thread share what each program does once: functions of some 40 instructions 0.99 of a copy (4 elements 0.91 to 0.95), without any
    # as much as before (4.38 TB/s, a copy 4.24); 16 have too many registers (softplus 0.98, and 0.99). 16 elements of 16 bits: tanh 0.93 (8 elements 0.83), logit 0.99 (0.95).
    # evict_first loads lost 7%, programs that take one block after another and ask for the next one early 5 to 13%. Without functions 8 elements of 16 bits in a thread take 0.5% less
    # time than 16 (leaky_relu_backward, hardtanh_backward).
    if plan.output.dtype.itemsize < 4:
        return 2048, 4 if has_words(plan, HEAVY) else 8
    return 1024, 4


# Strided operands.

INLINE_AXES = len(AXES)  # axes that the kernel takes; over others there is a launch for each index
# Elements up to which one tile shape is good enough, whatever the strides: on an H200 it took 0.8 us more of the GPU than the best for 131,072 (1.8 with gaps
# along the last axis), 1.6 (10) for 524,288; another plan takes 300 us of the host.
STRIDED_LIMIT = 1 << 18
FEW_ROWS, FEW_COLUMNS = 8, 128


def _tile_axes(plan: Plan) -> tuple[int, int, bool]:
    """The axes that tiles cover (the output's fastest one as columns), and whether an operand is transposed."""
    shape = plan.shape
    column = len(shape) - 1
    others = range(column)
    if not others:
        return -1, column, False
    for operand in plan.inputs:
        distances = [abs(stride) for stride in operand.strides]
        if distances[column] > 1:
            nearest = min((distances[axis] or INT32_LIMIT, axis) for axis in others)
            if nearest[0] < distances[column]:
                return nearest[1], column, True
    if shape[column] * shape[column - 1] >= 512:
        return column - 1, column, False
    return max(others, key=lambda axis: shape[axis]), column, False


def tile_shape(
    itemsize: int, rows: int, columns: int, transposed: bool, thin: bool, outputs: int = 1
) -> tuple[int, int, int]:
    """Rows and columns of a tile, and warps; the fractions are of a copy's bandwidth.

    `thin` tiles are read as a row, a column or one element each, and only written as a whole.
    """
    tall, wide = next_power_of_two(rows), next_power_of_two(columns)
    if transposed:
        # Whole 128-byte lines of what is read and of what is written. FLOAT 64 x 64: 1.01 (128 x 64:
        # 0.75). BF16 128 x 64: 1.01 (64 x 64 on 8 warps: 0.88).
        area, height = (4096, 64) if itemsize >= 4 else (8192, 128)
        height = min(tall, height)
        width = min(wide, area // height)
        height = min(tall, area // width)
        warps = 8
    elif thin:
        # BF16 16 x 256 on 4 warps: 1.09 (1 x 2048 on 8: 0.63, most of it what a program does once).
        # FLOAT 16 x 256 on 8 warps: 1.08 (1 x 2048: 1.06).
        width = min(wide, 256)
        height = min(tall, 4096 // width)
        width = min(wide, 4096 // height)
        warps = 8 if itemsize >= 4 else 4
    elif outputs > 1:
        # 16 bytes of each operand in a thread: both outputs of GeGLU 0.988 FLOAT, its gradient of 6 operands 1.03 and 1.02 BF16 (32 bytes: 0.982; 1.02 and 0.98).
        width = min(wide, 4096 // itemsize)
        height = min(tall, 4096 // itemsize // width)
        warps = 8
    else:
        # Rows of 2 KiB, four of them: half rows 1.02-1.03, one of three operands a row 0.99 FLOAT
        # and 1.00 BF16 (1 x 2048: 0.97 and 0.95).
        width = min(wide, 2048 // itemsize)
        height = min(tall, 8192 // itemsize // width)
        warps = 8
    return height, width, max(1, min(warps, height * width // 128))


def host_axes(plan: Plan, kept: Sequence[int]) -> list[int]:
    """The axes beyond what the kernel takes: the shortest of those that tiles do not cover."""
    free = sorted(set(range(len(plan.shape))) - set(kept), key=lambda axis: plan.shape[axis])
    return free[: max(0, len(free) - (INLINE_AXES - 2))]


def _step(stride: int) -> int:
    return stride if stride in (0, 1) else 2


TILES = "tiles"


def tiles(
    sizes: Sequence[Number], tile: tuple[int, int, int], units: tuple[int, int, int] = (1, 1, 1), batched: bool = True, wide: bool = True
) -> LaunchParams:  # fmt: skip
    """The launch over two axes by tiles, and three more. Strides, rows and columns are divided by units."""
    (first, second, third, rows, columns), (height, width, warps) = sizes, tile
    unit, rows_unit, columns_unit = units
    row_tiles, column_tiles = ceil_div(rows, height), ceil_div(columns, width)
    args = {
        "rows": rows // rows_unit, "columns": columns // columns_unit, "row_tiles": row_tiles, "column_tiles": column_tiles,
        "second_size": second, "third_size": third, STRIDES_ARGS: 0, NUMBERS_ARGS: 0,
    }  # fmt: skip
    constexprs = {
        "UNIT": unit, "ROWS_UNIT": rows_unit, "COLUMNS_UNIT": columns_unit, "BATCHED": batched, "WIDE": wide, "ROWS": height,
        "COLUMNS": width,
    }  # fmt: skip
    grid = first * second * third * row_tiles * column_tiles
    return LaunchParams(TILES, grid, args, constexprs, warps)


def _tile_spec(plan: Plan, form: Form, steps: Sequence[int], wide: bool) -> KernelSpec:
    """The spec of the tiled kernel; `steps` are the strides of each operand along a tile's rows and columns: 0, 1, or 2 for any other."""
    known = (*form.switches, *precision(plan), *steps)
    return KernelSpec(
        tiled_kernel(form.formula), pointers_of(plan, lambda operand: wide), known, fused=False
    )


def tiles_of(plan: Plan) -> Iterator[Launch]:
    """The launches of one plan: one, or one for each index along the axes that the kernel does not take."""
    operands = plan.operands
    row, column, transposed = _tile_axes(plan)
    walked = host_axes(plan, [row, column])
    inline = [axis for axis in range(len(plan.shape)) if axis not in (row, column, *walked)]
    # None: an axis that the plan lacks, of size 1.
    axes = [None] * (INLINE_AXES - 2 - len(inline)) + [*inline, None if row < 0 else row, column]
    sizes = [1 if axis is None else plan.shape[axis] for axis in axes]
    table = [
        [0 if axis is None else operand.strides[axis] for axis in axes] for operand in operands
    ]
    *batch, rows, columns = sizes
    thin = all(0 in steps[-2:] for steps in table[: len(plan.inputs)])
    tile = tile_shape(
        plan.output.dtype.itemsize, rows, columns, transposed, thin, len(plan.outputs)
    )
    # A stride that is a constexpr is passed as 0.
    strides = [
        stride if place < INLINE_AXES - 2 or _step(stride) == 2 else 0
        for steps in table
        for place, stride in enumerate(steps)
    ]
    unit = power_of_two_divisor(*strides)
    reach = max(tile[0] * abs(steps[-2]) + tile[1] * abs(steps[-1]) for steps in table)
    params = tiles(
        sizes, tile, (unit, power_of_two_divisor(rows), power_of_two_divisor(columns)), math.prod(batch) > 1, reach >= INT32_LIMIT
    )  # fmt: skip
    form = form_of(plan)
    spec = _tile_spec(plan, form, [_step(stride) for steps in table for stride in steps[-2:]], True)
    divided = tuple([stride // unit for stride in strides])
    launch = launch_of(spec, params, Elements(1, {}, numbers=form.numbers, strides=divided))
    for position in product(*(range(plan.shape[axis]) for axis in walked)):
        slots = [
            slot._replace(shift=slot.shift + sum(at * operand.strides[axis] for at, axis in zip(position, walked, strict=True)) * operand.dtype.itemsize)
            for slot, operand in zip(pointers_of(plan, lambda operand: True), operands, strict=True)
        ]  # fmt: skip
        yield launch._replace(spec=spec._replace(slots=tuple(slots)))


def launch_strided(g: Elements) -> Launches:
    """The launch with dynamic strides: one tile shape and one compiled kernel for all; axes are in the output's order."""
    return Launches([tiles(g.sizes, (FEW_ROWS, FEW_COLUMNS, 4))])


class Elementwise(FormulaLauncher):
    """The launcher of elementwise formulas without a reduction."""

    limit, position_axes = STRIDED_LIMIT, INLINE_AXES
    dynamic_launches = (
        functools.partial(DynamicLaunch, "flat", launch, {FLAT: None, SHIFTED: None}),
        functools.partial(DynamicLaunch, "tiles", launch_strided, {TILES: None}, axes=INLINE_AXES, limit=STRIDED_LIMIT),
    )  # fmt: skip

    def runner(self, plan: Plan) -> Runner:
        if not self.is_flat(plan):
            return runner_of(list(tiles_of(plan)))
        form = form_of(plan)
        return self.plan_runner(plan, form, launch, self.specs(plan, form, False))

    def small_shape(self, plan: Plan) -> tuple[int, ...] | None:
        # Beyond the limit, the kernel of any strides does not take its place.
        return plan.shape if len(plan.shape) == 1 and plan.shape[0] <= STRIDED_LIMIT else None

    def is_flat(self, plan: Plan) -> bool:
        return len(plan.shape) == 1 and all(
            operand.strides[0] in (0, 1) for operand in plan.operands
        )

    def specs(self, plan: Plan, form: Form, strided: bool) -> dict[str, KernelSpec]:
        if strided:  # strides are known at run time only
            return {TILES: _tile_spec(plan, form, (2, 2) * len(plan.operands), False)}
        slots = pointers_of(plan, lambda operand: _is_wide(plan, operand))
        known = (*form.switches, *(operand.strides[0] for operand in plan.inputs), *precision(plan))
        flat = KernelSpec(flat_kernel(form.formula), slots, known, fused=False)
        return {FLAT: flat, SHIFTED: flat._replace(kernel=flat_kernel(form.formula, True))}

    def static(self, plan: Plan, strided: bool) -> dict[str, int]:
        if strided:
            return {}
        sizes = {operand.dtype.itemsize for operand in plan.operands if _is_wide(plan, operand)}
        block, warps = flat_shape(plan)
        # Elements of a vector; 0 where operands have different ones.
        vector = VECTOR_BYTES // sizes.pop() if len(sizes) == 1 else 0
        return {"block": block, "warps": warps, "vector": vector, "exact": int(plan.compute is FLOAT), "masked": int(not (plan.compute is FLOAT and has_words(plan, UNMASKED)))}  # fmt: skip


ELEMENTWISE = Elementwise()


def _is_wide(plan: Plan, operand: Operand) -> bool:
    """Whether an operand is read or written by vectors."""
    return operand.strides[0] == 1 or any(operand is out for out in plan.outputs)
