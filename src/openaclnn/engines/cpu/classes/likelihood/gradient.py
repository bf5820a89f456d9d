"""The gradient of the negative log-likelihood of a class per pixel: see `operators/nll_loss2d_backward.py`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping

from openaclnn.core.dtypes import FLOATS, INT32, INT64, UINT8, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.classes.likelihood import scatter
from openaclnn.engines.cpu.classes.likelihood.select import Select
from openaclnn.engines.cpu.classes.likelihood.sizes import (
    ALONE,
    COMPARED,
    FEW,
    IN_CACHE,
    LAYING,
    MANY,
    PLACES,
    ROWS,
    SCATTERED,
    SIZING,
    SLOTS,
    SPAN,
    UNIT,
    compares,
)
from openaclnn.engines.cpu.classes.likelihood.writer import Writer, emit_pieces
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import AXES, Parameters, few, objection, pack
from openaclnn.engines.cpu.classes.shared.passes import Passes, runner_of
from openaclnn.engines.cpu.classes.shared.sized import (
    LaidRunner,
    laid_runner,
    row_major,
    sized_runner,
)
from openaclnn.engines.cpu.classes.shared.targets import target_kind
from openaclnn.engines.cpu.registry import KERNELS, Runner, SizedRunner
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

NAME = "nll_loss2d_backward"


def single_gradient(dtype: str, target: str) -> Callable[[Code, Parameters], Value]:
    """The one gradient of all positions, divided by the total weight for mean: FLOAT, as documented."""

    def emit(code: Code, parameters: Parameters) -> Value:
        gradient = code.variable(code.load(parameters.address("gradient"), dtype))
        given = parameters.flag("total_given")
        positions, zero = parameters["positions"], code.integer(0)
        with code.when(parameters.flag("mean")):
            total, _ = totals.in_blocks(
                code, given.choose(zero, positions), parameters.scratch, zero, 2,
                lambda start, stop: totals.sum_targets(code, parameters, start, stop, target, dtype),
            )  # fmt: skip
            divisor = code.variable(total.to("f32"))
            with code.when(given):
                divisor.set(code.load(parameters.address("total"), dtype))
            gradient.set(gradient.get() / divisor.get())
        return gradient.get()

    return emit


def _without_gaps(plan: Plan) -> bool:
    """Whether the output's elements fill one span of memory that begins at its first element."""
    out = plan.output
    axes = zip((*out.strides, out.class_stride), (*plan.shape, plan.classes), strict=True)
    reach = 1
    for stride, size in sorted(axes):
        if size > 1:
            if stride != reach:
                return False
            reach *= size
    return True


def _side_by_side(plan: Plan) -> bool:
    """Whether positions lie side by side in all operands that have them."""
    operands = (*plan.inputs, plan.output)
    walked = [operand for operand in operands if operand.role in ("full", "positions")]
    return all(operand.strides[-1] == 1 for operand in walked)


def _cut(images: int, pixels: int, column: int) -> tuple[int, int]:
    """The same for row-major images: positions of a piece, and how it clears its output."""
    if images * pixels * column <= IN_CACHE:
        return images * pixels, scatter.SPAN
    if images > 1 and pixels * column <= IN_CACHE:
        return pixels, scatter.SPAN
    return _share_of(images * pixels, SCATTERED), scatter.LEAVE


def _share_of(count: int, bounds: tuple[int, int]) -> int:
    """A 64th of it, within bounds, which are multiples of 64, too."""
    return min(max((count + 4095) >> 12 << 6, bounds[0]), bounds[1])


def _pieces(plan: Plan) -> dict[str, int]:
    """How the work is cut: positions of a piece, and how a piece clears its output."""
    out, column = plan.output, plan.classes * plan.output.dtype.itemsize
    if not _without_gaps(plan):
        return {"unit": max(1, min(UNIT, (1 << 18) // plan.classes)), "clear": scatter.STRIDED}
    if len(plan.shape) == 1 and out.strides[0] == plan.classes:  # classes side by side
        return {"unit": max(1, IN_CACHE // column), "clear": scatter.SPAN}
    pixels = plan.shape[-1]
    apart = len(plan.shape) == 2 and out.strides[0] == plan.classes * pixels
    images, pixels = (plan.shape[0], pixels) if apart else (1, element_count(plan.shape))
    unit, clear = _cut(images, pixels, column)
    return {"unit": unit, "clear": clear}


class NllLoss2d:
    def declines(self, plan: Plan) -> str | None:
        return objection(plan, AXES)

    def runner(self, plan: Plan) -> Runner:
        numbers = plan.numbers
        positions = element_count(plan.shape)
        item = plan.output.dtype.itemsize
        size = positions * plan.classes * item
        by_comparing = _side_by_side(plan) and compares(item, plan.classes, plan.shape[-1], size)
        whole = {"unit": _share_of(positions, COMPARED), "clear": scatter.LEAVE}
        way = whole if by_comparing else _pieces(plan)
        span = _share_of(size, SPAN)
        block = _block(plan, {"bytes": size, "span": span, **way})
        write, sums, clear = _kernels(plan, by_comparing)
        pieces = -(-positions // way["unit"])
        grain = max(1, ALONE // (min(way["unit"], positions) * plan.classes))
        summed = numbers["mean"] and not numbers["total_weight_given"]
        sums_first = summed and pieces > grain and positions > totals.BLOCK
        clears_first = way["clear"] == scatter.LEAVE and not by_comparing
        one = Passes(
            write, pieces, grain, sums if sums_first else 0, totals.block_count(positions),
            clear if clears_first else 0, -(-size // span),
        )  # fmt: skip
        return runner_of(block, one)

    def sized(self, plan: Plan) -> SizedRunner | None:
        """What runs row-major operands of any (N, C, H, W)."""

        def kernels(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
            images, classes, height, width = shape
            pixels = height * width
            by_comparing = compares(item, classes, pixels, images * classes * pixels * item)
            return int(by_comparing), *_kernels(plan, by_comparing)

        item = plan.output.dtype.itemsize
        fixed = {"out.step2": item}
        return sized_runner(SIZING, _template(plan, fixed), kernels)

    def laid(self, plan: Plan) -> LaidRunner:
        """What runs few operands of any sizes and strides."""

        def kernels(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
            return 0, *_kernels(plan, by_comparing=False)

        return laid_runner(LAYING, _template(plan, {}), kernels, plan.operands, PLACES)

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32, UINT8):
                for classes in (FEW, MANY + 1):
                    for single in (False, True):
                        yield _example(dtype, target, classes, single)


def _block(plan: Plan, cut: Mapping[str, int]) -> array[int]:
    """The parameters of a plan."""
    numbers = plan.numbers
    return pack(
        SLOTS, plan, PLACES,
        {
            "weighted": 1,
            "mean": int(numbers["mean"]),
            "total_given": int(numbers["total_weight_given"]),
            **cut,
        },
    )  # fmt: skip


def _template(plan: Plan, fixed: Mapping[str, int]) -> array[int]:
    """The parameters of a plan for any size, with those that hold for all."""
    block = _block(plan, {"bytes": 0, "span": 0, "unit": 1, "clear": scatter.LEAVE})
    return row_major(block, plan, SLOTS, PLACES, {"size0": 1, **fixed})


def _kernels(plan: Plan, by_comparing: bool) -> tuple[int, int, int]:
    """The kernels that write, that leave sums, and that clear."""
    dtype, target = plan.output.dtype.short, target_kind(plan)
    gradient = next(operand for operand in plan.inputs if operand.parameter == "gradOutput")
    return _compiled(dtype, target, gradient.role == "single", by_comparing)


def _compiled(dtype: str, target: str, single: bool, by_comparing: bool) -> tuple[int, int, int]:
    writer: type[Writer] = Select if by_comparing else scatter.Scatter
    kind = f"{dtype}.{target}.{'single' if single else 'each'}"
    write = compiled(
        f"nll.{writer.__name__}.{kind}",
        emit_pieces(writer, dtype, target, single, SLOTS, single_gradient(dtype, target)),
        few=few,
    )
    sums = compiled(f"totals.nll.{dtype}.{target}", totals.emit_totals(target, dtype, SLOTS))
    return write, sums, compiled("nll.clear", scatter.emit_clear(SLOTS))


def _example(dtype: DType, target: DType, classes: int, single: bool) -> Plan:
    """A plan of many pixels."""
    size = 1 << 17
    numbers = {"ignore_index": -100, "mean": single, "total_weight_given": False}
    role = "single" if single else "positions"
    inputs = (
        Operand("target", target, (1,), role="positions"),
        Operand("gradOutput", dtype, (0 if single else 1,), role=role),
        Operand("weight", dtype, (0,), 1, role="classes"),
    )
    output = Operand("out", dtype, (1,), size)
    return Plan("", NAME, dtype, (size,), inputs, output, numbers, classes, 0)


class NllLoss(NllLoss2d):
    """The same for rows: one image, whose pixels have their classes side by side."""

    def sized(self, plan: Plan) -> SizedRunner | None:
        """What runs row-major operands of any (N, C)."""
        if plan.class_axis != 1:  # classes alone, of one position
            return None

        def kernels(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
            return 0, *_kernels(plan, by_comparing=False)

        fixed = {"out.class_step": plan.output.dtype.itemsize, "size1": 1}
        return sized_runner(ROWS, _template(plan, fixed), kernels)

    def variants(self) -> Iterator[Plan]:
        """Its code is that of images."""
        return iter(())


KERNELS[NAME] = NllLoss2d()
KERNELS["nll_loss_backward"] = NllLoss()
