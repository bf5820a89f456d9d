"""The launches of the multi-label margin loss: a program for each row or, where losses are added up, for one or more, and one more launch that adds up."""

from __future__ import annotations

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.formulas.compiled import TRITON_TYPES
from openaclnn.engines.gpu.kernels.multilabel import margin_rows
from openaclnn.engines.gpu.kernels.reductions import finish_reduction
from openaclnn.engines.gpu.launchers.geometry import (
    Geometry,
    Launches,
    LaunchParams,
    Specs,
    power_of_two_above,
)
from openaclnn.engines.gpu.launchers.launcher import ClassLauncher, is_row_major_2d
from openaclnn.engines.gpu.launchers.reductions import FINISHING, FLOAT64_BYTES, MOST_PARTS
from openaclnn.engines.gpu.launching.launch import pointers_of, scratch_of, spec_of
from openaclnn.engines.machine.numbers import least, where

LONGEST = 1024  # classes at a time
ONE_WARP = 128  # classes up to which one has no idle threads
FEW = 1 << 16  # elements with strides of any sort
ROWS = "rows"
ROLES = {"x": "full", "target": "full", "loss": "positions", "mask": "full"}


def _launch(g: Geometry) -> Launches:
    (rows,), classes, strides = g.layout
    reduces = g.static["reduces"] > 0
    parts = where(reduces, least(rows, MOST_PARTS), rows)
    args = {"rows": rows, "classes": classes, "loss_row": strides["loss"][0]}
    for name in ("x", "target", "mask"):
        args[f"{name}_row"], args[f"{name}_class"] = strides[name]
    chunk = {"CHUNK": power_of_two_above(classes, LONGEST)}
    divisor = where(g.static["mean"] > 0, rows, 1)
    finish = {"parts": parts, "divisor": divisor}
    return Launches(
        [
            LaunchParams(ROWS, parts, args, chunk, where(classes > ONE_WARP, 4, 1)),
            LaunchParams(FINISHING, 1, finish, {"BLOCK": power_of_two_above(parts, MOST_PARTS)}, 4, reduces),
        ],
        where(reduces, parts * FLOAT64_BYTES, 0), (0,),
    )  # fmt: skip


def _specs(plan: Plan, offset: int = 0) -> Specs:
    slots, parts = dict(zip(("x", "target", "loss", "mask"), pointers_of(plan), strict=True)), scratch_of(plan)  # fmt: skip
    summed = bool(plan.reduction)
    rows = {**slots, "sums": parts if summed else None, "SUMMED": summed}
    finish = {"sums": parts, "out": slots["loss"], "COMPUTE": TRITON_TYPES[plan.compute]}
    return {ROWS: spec_of(margin_rows, rows, overlapped=summed), FINISHING: spec_of(finish_reduction, finish, follows=True)}  # fmt: skip


def _static(plan: Plan) -> dict[str, int]:
    return {"reduces": int(bool(plan.reduction)), "mean": int(plan.reduction == "mean")}


def _of_rows(plan: Plan) -> bool:
    return plan.class_axis == 1 and is_row_major_2d(plan)


MULTILABEL = ClassLauncher(
    "multilabel", _launch, {ROWS: margin_rows, FINISHING: finish_reduction}, ROLES, placed=4, numbers=(), position_axes=1, specs=_specs,
    static=_static, is_row_major=_of_rows, limit=FEW, reduces=True, axes=1,
)  # fmt: skip
