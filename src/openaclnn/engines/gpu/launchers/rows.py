"""The gradients of cross entropy, from log-probabilities or from logits: which rows and classes a program takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openaclnn.core.dtypes import FLOAT, float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.rows import COUNTED, cross_entropy_loss_grad
from openaclnn.engines.gpu.launchers import sums
from openaclnn.engines.gpu.launchers.geometry import (
    Geometry,
    Launches,
    LaunchParams,
    Layout,
    clamp,
    power_of_two_above,
    power_of_two_divisor,
    where_all,
)
from openaclnn.engines.gpu.launchers.launcher import ClassLauncher, lies_row_major
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    KernelSpec,
    operand_of,
    slots_of,
)
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    any_of,
    ceil_div,
    inverse,
    least,
    most,
    where,
)

__all__ = ["NUMBERS", "ROWS", "WEIGHT", "is_summed", "of_rows"]

# Elements of an output for which nothing is chosen by its sizes, so that no size compiles anything.
FEW = 1 << 16
FEW_TILE = 8, 128, 4
SHORT_ROW = 16  # vectors: rows shorter than that are mostly edges
WEIGHT = "weightOptional"
NUMBERS = "ignore_index", "label_smoothing", "zloss_scale"
LOG_PROB, OUT = 2, -1  # among a plan's operands
BY_ROW = "target", "gradient", "lseForZlossOptional", "gradZlossOptional", "top", "rest"
"""The inputs with one number a row, or one for all: target, gradient, the two of z-loss, the two of logits."""
BY_ROW_ARGS = tuple(
    (f"{name}_stride", own)
    for name, own in zip(("target", "gradient", "lse", "grad_zloss", "top", "rest"), BY_ROW, strict=True)
)  # fmt: skip
COUNTING, MAIN = "counting", "main"


def row_tile(
    itemsize: Number, rows: Number, classes: Number, transposed: Truth, unaligned: Truth, logits: Truth
) -> tuple[Number, ...]:  # fmt: skip
    """Rows and classes of a program, and warps; `unaligned` for long rows that begin anywhere."""
    narrow, long = itemsize < 4, classes > 1024
    # One row a program with class blocks fastest: 0.97-1.00 of a copy; rows fastest 0.91. Of 512 to
    # 8192 classes on 1 to 8 warps these were within 0.5% of the best for 4096 and 50257 classes, FLOAT.
    limit = where(narrow, 2048, 1024)
    wide = least(power_of_two_above(classes, 2048), limit)
    tall = least(power_of_two_above(rows, 2048), limit // wide)
    tile: tuple[Number, ...] = tall, wide, clamp(tall * wide // 128, 1, 4)
    # BF16 2048 on 4 warps: 5001 classes 0.79, 5000 0.91, 50257 1.01, 151643 1.00; 1024 on 2: 0.94, 0.98,
    # 1.00, 1.00.
    # From logits a program has more to do before its block. BF16 of 8192 x 32000, 4096 x 128256 and 16384 x 50257: 1.03,
    # 1.01 and 1.05 of a copy's time with 2048 on 2 warps; 1024 on 2 took 1.12, 1.08 and 1.22, 4096 on 4 1.04, 1.03 and 1.08.
    one_row = where(all_of(logits, classes >= 1 << 14), 2048, 1024)
    tile = where_all(all_of(narrow, long), (1, one_row, 2), tile)
    # Where rows begin anywhere and are short, what is done once a program weighs more: half the warps, 5001 classes
    # 0.96 for 0.95 in FLOAT, 0.95 for 0.90 in BF16; 4099 0.93 for 0.85 and 0.85 for 0.78; from 50257 on 2-5% less.
    brief = all_of(unaligned, long, classes < 1 << 14)
    tile = where_all(brief, (1, 1024, where(narrow, 1, 2)), tile)
    # FLOAT 64 x 64: 0.95 of a copy (on 8 warps 0.80); BF16 128 x 32: 0.92 (64 x 64: 0.84). With
    # a thread for each row, what is common to a row is not computed several times. Several
    # blocks of classes one after another lost 10-25%.
    across = least(power_of_two_above(classes, 64), where(narrow, 32, 64))
    return where_all(transposed, (where(narrow, 128, 64), across, 4), tile)


def launch(g: Geometry) -> Launches:
    """The sums, if it takes any, and the gradient; a few targets that weigh 1 are counted by every program, which takes less
    than a launch that counts them."""
    (rows,), classes, strides = g.layout
    log_prob, out, static = strides["log_prob"], strides["out"], g.static
    vector, weight_step = static["vector"], strides[WEIGHT][1]
    small = g.strided or (g.few and rows * classes <= FEW)
    counts = all_of(not g.strided, g.few, small, rows <= static["most_counted"])
    found, parts = sums.with_sums(g, WEIGHT, all_of(static["summed"] > 0, inverse(counts)))

    transposed = any_of(
        *(all_of(own[0] == 1, own[1] != 1) for own in (log_prob, out))
    )  # fmt: skip
    # Rows that begin anywhere, but both at the same offset, move whole vectors all the same.
    off = g.offset(LOG_PROB)
    shifted = all_of(
        not g.strided, inverse(small), static["same_itemsize"] > 0, log_prob[1] == 1, out[1] == 1,
        (abs(log_prob[0] - out[0]) % vector) == 0, classes >= SHORT_ROW * vector,
        off == g.offset(OUT), any_of(off != 0, (abs(log_prob[0]) % vector) != 0),
    )  # fmt: skip
    longest = classes + where(shifted, vector - 1, 0)
    # With few elements all constexprs are the same whatever the sizes.
    tall, wide, warps = FEW_TILE
    if small is not True:
        tile = row_tile(
            static["itemsize"], rows, longest, transposed, shifted, static["logits"] > 0
        )
        tall, wide, warps = where_all(small, FEW_TILE, tile)
    class_blocks = ceil_div(longest, wide)
    several = *log_prob, *out
    # A stride of 1 is known to the kernel; 0 is as good a number as any then.
    apart = several if g.strided else [where(own == 1, 0, own) for own in several]
    unit = where(small, 1, power_of_two_divisor(*apart))
    classes_unit = where(small, 1, power_of_two_divisor(classes))
    # Only where rows are neighbours has a vector's mask to do with their number.
    rows_unit = where(all_of(transposed, inverse(small)), power_of_two_divisor(rows), 1)
    reach = wide * most(abs(log_prob[1]), abs(out[1]))

    def step(stride: Number) -> Number:
        return 2 if g.strided else where(stride == 1, 1, 2)

    args = {
        "rows": rows // rows_unit, "classes": classes // classes_unit, "class_blocks": class_blocks,
        **{name: strides[own][0] for name, own in BY_ROW_ARGS},
        "weight_stride": weight_step,
        "log_prob_row": apart[0] // unit, "log_prob_class": apart[1] // unit,
        "out_row": apart[2] // unit, "out_class": apart[3] // unit,
        **sums.gradient_numbers(g),
    }  # fmt: skip
    constexprs = {
        "PARTS": parts, "LOG_PROB_ROW": step(log_prob[0]), "LOG_PROB_CLASS": step(log_prob[1]), "OUT_ROW": step(out[0]),
        "OUT_CLASS": step(out[1]), "WEIGHT_STEP": step(weight_step), "UNIT": unit, "ROWS_UNIT": rows_unit,
        "CLASSES_UNIT": classes_unit, "WIDE": True if g.strided else reach >= INT32_LIMIT,
        "VECTOR": where(shifted, vector, 0), "ROWS": tall, "CLASSES": wide,
    }  # fmt: skip
    grid, aligned = class_blocks * ceil_div(rows, tall), inverse(any_of(small, shifted))
    main = [
        LaunchParams(name, grid, args, constexprs, warps, when, aligned)
        for name, when in ((COUNTING, counts), (MAIN, inverse(counts)))
        if when is not False
    ]
    return found._replace(steps=[*found.steps, *main])


def _row_major(sizes: Sequence[Number], area: Number, each: Mapping[str, Number]) -> Layout:
    rows, classes = sizes
    strides: dict[str, tuple[Number, ...]] = {name: (each[name], 0) for name in BY_ROW}
    strides |= {WEIGHT: (0, each[WEIGHT]), "log_prob": (classes, 1), "out": (classes, 1)}
    return Layout((rows,), classes, strides)


def _specs(plan: Plan, offset: int = 0) -> dict[str, KernelSpec]:
    """The kernels of a plan, with targets that begin so many elements off."""
    numbers, output = plan.numbers, plan.output
    target, gradient, log_prob = plan.inputs[:3]
    smooths = float_of(numbers["label_smoothing"]) != 0
    *slots, out = slots_of(
        plan,
        {
            target.parameter: False, gradient.parameter: False, log_prob.parameter: True,
            WEIGHT: smooths, "lseForZlossOptional": False, "gradZlossOptional": False, "top": False,
            "rest": False, output.parameter: True,
        },
    )  # fmt: skip
    known = numbers["mean"], smooths, plan.compute is FLOAT, float_of(numbers["zloss_scale"]) != 0
    counting = KernelSpec(
        cross_entropy_loss_grad, (*slots, None, out), known, overlapped=False, follows=False
    )
    if not is_summed(plan):
        return {MAIN: counting}
    main = counting._replace(
        slots=(*slots, sums.sums_slot(plan), out), overlapped=True, follows=True
    )
    found = {**sums.specs(plan, WEIGHT, offset), MAIN: main}
    return found if operand_of(plan, WEIGHT) else {**found, COUNTING: counting}


def _static(plan: Plan) -> dict[str, int]:
    itemsize, log_prob = plan.output.dtype.itemsize, plan.inputs[2]
    summed, weighted = is_summed(plan), operand_of(plan, WEIGHT) is not None
    return {
        "itemsize": itemsize, "vector": VECTOR_BYTES // itemsize, "same_itemsize": int(log_prob.dtype.itemsize == itemsize),
        "logits": int(operand_of(plan, "top") is not None), "summed": int(summed), "sums": sums.sums_of(plan, WEIGHT),
        "weighted": int(weighted),
        "most_counted": COUNTED.value if summed and not weighted else 0,
    }  # fmt: skip


def is_summed(plan: Plan) -> bool:
    return bool(plan.numbers["mean"] or operand_of(plan, WEIGHT))


def of_rows(plan: Plan) -> bool:
    """Whether a plan lies as row-major rows do."""
    return len(plan.shape) == 1 and lies_row_major(plan, plan.shape[0], 1)


ROWS = ClassLauncher(
    "rows", launch, {**sums.KERNELS, COUNTING: cross_entropy_loss_grad, MAIN: cross_entropy_loss_grad},
    ("target", "gradient", "log_prob", *BY_ROW[2:], WEIGHT, "out"), 3, NUMBERS, 1, _specs, _static, _row_major, of_rows,
    limit=FEW, few_elements=FEW,
)  # fmt: skip
