"""How CrossEntropyLossGrad is launched: the shape of a program's block, and rows that begin anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import triton

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.gpu.launch import VECTOR_BYTES, Launch, power_of_two_divisor
from openaclnn.engines.gpu.operands import INT32_LIMIT, operand_of, slot_of, step_of, stride_of
from openaclnn.engines.gpu.row_kernel import cross_entropy_loss_grad
from openaclnn.engines.gpu.runners import runner_of
from openaclnn.engines.gpu.sums import sum_launches


def row_tile(plan: Plan, log_prob: Operand, classes: int) -> tuple[int, int, int]:
    """Rows and classes of a program, and warps."""
    for operand in (log_prob, plan.output):
        if operand.class_stride != 1 and operand.strides[-1] == 1:  # transposed
            # FLOAT 64 x 64: 0.95 of a copy (on 8 warps 0.80); BF16 128 x 32: 0.92 (64 x 64: 0.84). With
            # a thread for each row, what is common to a row is not computed several times. Several
            # blocks of classes one after another lost 10-25%.
            tall, wide = (64, 64) if plan.output.dtype.itemsize >= 4 else (128, 32)
            return tall, min(triton.next_power_of_2(classes), wide), 4
    # One row a program with class blocks fastest: 0.97-1.00 of a copy; rows fastest 0.91. Of 512 to
    # 4096 classes on 2 to 8 warps these were within 0.5% of the best for 4096 and 50257 classes;
    # 4096 lost 3%.
    most = 1024 if plan.output.dtype.itemsize >= 4 else 2048
    wide = min(triton.next_power_of_2(classes), most)
    tall = min(most // wide, triton.next_power_of_2(plan.shape[0]))
    return tall, wide, max(1, min(4, tall * wide // 128))


SHORT_ROW = 16  # vectors: rows shorter than that are mostly edges


def runner(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """What queues the plan on a stream."""
    numbers, output = plan.numbers, plan.output
    target, gradient, log_prob = plan.inputs[:3]
    weight = operand_of(plan, "weightOptional")
    lse, grad_zloss = operand_of(plan, "lseForZlossOptional"), operand_of(plan, "gradZlossOptional")
    (rows,) = plan.shape
    tall, wide, warps = row_tile(plan, log_prob, plan.classes)
    class_blocks = -(-plan.classes // wide)
    strides = log_prob.strides[-1], log_prob.class_stride, output.strides[-1], output.class_stride
    steps = [step_of(stride) for stride in strides]
    unit = power_of_two_divisor(stride for stride in strides if stride != 1)
    rows_unit, classes_unit = power_of_two_divisor([rows]), power_of_two_divisor([plan.classes])
    reach = wide * max(abs(log_prob.class_stride), abs(output.class_stride))
    summed = bool(numbers["mean"] or weight)
    before, sums, parts, scratch = (
        sum_launches(plan, "weightOptional") if summed else ([], None, 1, 0)
    )
    smoothing = np.float32(numbers["label_smoothing"])
    slots = (
        slot_of(plan, target.parameter),
        slot_of(plan, gradient.parameter),
        slot_of(plan, log_prob.parameter, wide=True),
        slot_of(plan, "weightOptional", wide=bool(smoothing)),
        slot_of(plan, "lseForZlossOptional"),
        slot_of(plan, "gradZlossOptional"),
        sums,
        slot_of(plan, output.parameter, wide=True),
    )
    launch = Launch(
        cross_entropy_loss_grad,
        class_blocks * -(-rows // tall),
        slots,
        (
            rows // rows_unit, plan.classes // classes_unit, class_blocks,
            *(stride_of(operand, -1) for operand in (target, gradient, lse, grad_zloss)),
            weight.class_stride if weight else 0,
            *(0 if stride == 1 else stride // unit for stride in strides),
            numbers["ignore_index"],
            float(np.float32(1) - smoothing), float(smoothing),
            float(np.float32(2 * numbers["zloss_scale"])),
        ),
        {
            "MEAN": numbers["mean"], "SMOOTHED": bool(smoothing != 0), "PARTS": parts,
            "PRECISE": plan.compute is FLOAT,
            "LOG_PROB_ROW": steps[0], "LOG_PROB_CLASS": steps[1],
            "OUT_ROW": steps[2], "OUT_CLASS": steps[3],
            "WEIGHT_STEP": step_of(weight.class_stride if weight else 0), "UNIT": unit,
            "ROWS_UNIT": rows_unit, "CLASSES_UNIT": classes_unit, "WIDE": reach >= INT32_LIMIT, "OVERLAPPED": summed,
            "VECTOR": 0, "ROWS": tall, "CLASSES": wide,
        },
        warps,
        follows=summed,
    )  # fmt: skip
    return runner_of([*before, _with_shifted(launch, plan, log_prob)], scratch)


def _with_shifted(launch: Launch, plan: Plan, log_prob: Operand) -> Launch:
    """The launch, with one for rows that begin anywhere where that can use vectors."""
    output, itemsize = plan.output, plan.output.dtype.itemsize
    vector = VECTOR_BYTES // itemsize
    gaps = [own.strides[-1] for own in (log_prob, output)]
    if (
        log_prob.dtype.itemsize != itemsize
        or (log_prob.class_stride, output.class_stride) != (1, 1)
        or (gaps[0] - gaps[1]) % vector
        or plan.classes < SHORT_ROW * vector
    ):
        return launch
    longest = plan.classes + vector - 1
    tall, wide, warps = row_tile(plan, log_prob, longest)
    class_blocks = -(-longest // wide)
    shifted = replace(
        launch,
        programs=class_blocks * -(-plan.shape[0] // tall),
        slots=tuple(slot and slot._replace(wide=False) for slot in launch.slots),
        numbers=(*launch.numbers[:2], class_blocks, *launch.numbers[3:]),
        constants={**launch.constants, "VECTOR": vector, "ROWS": tall, "CLASSES": wide},
        warps=warps,
    )
    return replace(launch, shifted=shifted, together=(2, 7), ragged=gaps[0] % vector != 0)
