"""How the gradients of cross entropy, from log-probabilities or from logits, are launched: which rows and classes a program takes."""

from __future__ import annotations

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.gpu.formulas.tuned import as_float
from openaclnn.engines.gpu.kernels.rows import cross_entropy_loss_grad
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Sizes,
    Slot,
    anywhere,
    next_power_of_two,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import (
    INT32_LIMIT,
    ignored,
    operand_of,
    slots_of,
    step_of,
    stride_of,
)
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner
from openaclnn.engines.gpu.plans.sums import (
    NO_SUMS,
    sum_launches,
)


def row_tile(
    itemsize: int, rows: int, classes: int, transposed: bool, anywhere: bool, logits: bool
) -> tuple[int, int, int]:
    """Rows and classes of a program, and warps; `anywhere` for long rows that begin there."""
    if transposed:
        # FLOAT 64 x 64: 0.95 of a copy (on 8 warps 0.80); BF16 128 x 32: 0.92 (64 x 64: 0.84). With
        # a thread for each row, what is common to a row is not computed several times. Several
        # blocks of classes one after another lost 10-25%.
        tall, wide = (64, 64) if itemsize >= 4 else (128, 32)
        return tall, min(next_power_of_two(classes), wide), 4
    # One row a program with class blocks fastest: 0.97-1.00 of a copy; rows fastest 0.91. Of 512 to
    # 8192 classes on 1 to 8 warps these were within 0.5% of the best for 4096 and 50257 classes, FLOAT.
    # BF16 2048 on 4 warps: 5001 classes 0.79, 5000 0.91, 50257 1.01, 151643 1.00; 1024 on 2: 0.94, 0.98,
    # 1.00, 1.00.
    # Where rows begin anywhere and are short, what is done once a program weighs more: half the warps, 5001 classes
    # 0.96 for 0.95 in FLOAT, 0.95 for 0.90 in BF16; 4099 0.93 for 0.85 and 0.85 for 0.78; from 50257 on 2-5% less.
    if anywhere and 1024 < classes < 1 << 14:
        return 1, 1024, 2 if itemsize >= 4 else 1
    if itemsize < 4 and classes > 1024:
        # From logits a program has more to do before its block. BF16 of 8192 x 32000, 4096 x 128256 and 16384 x 50257: 1.03,
        # 1.01 and 1.05 of a copy's time with 2048 on 2 warps; 1024 on 2 took 1.12, 1.08 and 1.22, 4096 on 4 1.04, 1.03 and 1.08.
        return (1, 2048, 2) if logits and classes >= 1 << 14 else (1, 1024, 2)
    most = 1024 if itemsize >= 4 else 2048
    wide = min(next_power_of_two(classes), most)
    tall = min(most // wide, next_power_of_two(rows))
    return tall, wide, max(1, min(4, tall * wide // 128))


# Elements of an output for which nothing is chosen by its sizes, so that no size compiles anything.
FEW = 1 << 16
FEW_TILE = 8, 128, 4
SHORT_ROW = 16  # vectors: rows shorter than that are mostly edges
LOG_PROB, OUT = 2, 9  # among the slots
WEIGHT = "weightOptional"
NUMBERS = "ignore_index", "label_smoothing", "zloss_scale"


class Rows:
    """The kernel of a plan, whatever its sizes."""

    def __init__(self, plan: Plan, sums: Slot | None, steps: tuple[int, ...]) -> None:
        """`steps` along rows of the inputs of `by_row`, in their order, and along classes of the weights."""
        numbers, output = plan.numbers, plan.output
        target, gradient, log_prob = plan.inputs[:3]
        smooths = as_float(numbers["label_smoothing"]) != 0
        *slots, out = slots_of(
            plan,
            {
                target.parameter: False, gradient.parameter: False, log_prob.parameter: True,
                WEIGHT: smooths, "lseForZlossOptional": False, "gradZlossOptional": False, "top": False,
                "rest": False, output.parameter: True,
            },
        )  # fmt: skip
        self.family = Family(
            cross_entropy_loss_grad,
            (*slots, sums, out),
            (
                numbers["mean"],
                smooths,
                plan.compute is FLOAT,
                as_float(numbers["zloss_scale"]) != 0,
            ),
            overlapped=sums is not None,
            follows=sums is not None,
        )
        self.itemsize = output.dtype.itemsize
        self.vector = VECTOR_BYTES // self.itemsize
        self.logits = operand_of(plan, "top") is not None
        self.alike = log_prob.dtype.itemsize == self.itemsize
        self._steps = steps
        self._weight_step = step_of(steps[-1])

    def sizes(
        self,
        rows: int,
        classes: int,
        strides: tuple[int, int, int, int],
        last: tuple[int | float, ...],
        parts: int,
        vector: int = 0,
        few: bool = False,
    ) -> Sizes:
        """Strides of logProb along rows and classes, then of out; `vector` for rows that begin anywhere.

        With `few` elements all constants are the same whatever the sizes.
        """
        log_prob_row, log_prob_class, out_row, out_class = strides
        transposed = (log_prob_row == 1 != log_prob_class) or (out_row == 1 != out_class)
        longest = classes + vector - 1 if vector else classes
        tall, wide, warps = (
            FEW_TILE
            if few
            else row_tile(self.itemsize, rows, longest, transposed, vector > 0, self.logits)
        )
        class_blocks = -(-longest // wide)
        # A stride of 1 is known to the kernel; 0 is as good a number as any then.
        apart = [0 if stride == 1 else stride for stride in strides]
        unit = classes_unit = 1
        if not few:
            unit, classes_unit = power_of_two_divisor(*apart), power_of_two_divisor(classes)
        # Only where rows are neighbours has a vector's mask to do with their number.
        rows_unit = power_of_two_divisor(rows) if transposed and not few else 1
        reach = wide * max(abs(log_prob_class), abs(out_class))
        return (
            class_blocks * -(-rows // tall),
            (
                rows // rows_unit, classes // classes_unit, class_blocks, *self._steps,
                *[stride // unit for stride in apart], *last,
            ),
            (
                parts, step_of(log_prob_row), step_of(log_prob_class),
                step_of(out_row), step_of(out_class), self._weight_step, unit,
                rows_unit, classes_unit, reach >= INT32_LIMIT, vector, tall, wide,
            ),
            warps,
        )  # fmt: skip


def last_numbers(
    ignore_index: int, label_smoothing: float, zloss_scale: float
) -> tuple[int | float, ...]:
    """The kernel's last numbers: the ignored class, what smoothing keeps and takes, the z-loss's factor."""
    smoothing = as_float(label_smoothing)
    # Of two FLOATs the sum in float64 is rounded to FLOAT as their own sum is.
    return (
        ignored(ignore_index), as_float(1 - smoothing), smoothing, as_float(2 * as_float(zloss_scale)),
    )  # fmt: skip


def last_of(plan: Plan) -> tuple[int | float, ...]:
    return last_numbers(*(plan.numbers[name] for name in NUMBERS))


def is_summed(plan: Plan) -> bool:
    return bool(plan.numbers["mean"] or operand_of(plan, WEIGHT))


def by_row(plan: Plan) -> list[Operand | None]:
    """The inputs with one number a row, or one for all: target, gradient, the two of z-loss, the two of logits."""
    names = "lseForZlossOptional", "gradZlossOptional", "top", "rest"
    return [*plan.inputs[:2], *(operand_of(plan, own) for own in names)]


def runner(plan: Plan) -> Runner:
    """What queues the plan on a stream."""
    log_prob, output = plan.inputs[2], plan.output
    weight = operand_of(plan, WEIGHT)
    sums = sum_launches(plan, WEIGHT) if is_summed(plan) else NO_SUMS
    steps = *(stride_of(own, -1) for own in by_row(plan)), weight.class_stride if weight else 0
    kernel = Rows(plan, sums.slot, steps)
    (rows,) = plan.shape
    gaps = log_prob.strides[-1], output.strides[-1]
    strides = gaps[0], log_prob.class_stride, gaps[1], output.class_stride
    last = last_of(plan)
    launch = Launch(kernel.family, *kernel.sizes(rows, plan.classes, strides, last, sums.parts))
    vector = kernel.vector
    if (
        kernel.alike
        and strides[1] == strides[3] == 1
        and (gaps[0] - gaps[1]) % vector == 0
        and plan.classes >= SHORT_ROW * vector
    ):
        sizes = kernel.sizes(rows, plan.classes, strides, last, sums.parts, vector)
        launch = launch._replace(
            shifted=Launch(anywhere(kernel.family), *sizes), together=(LOG_PROB, OUT), ragged=gaps[0] % vector != 0
        )  # fmt: skip
    return runner_of([*sums.launches, launch], sums.scratch)
