"""The multi-label margin loss: labels of a row against all classes that are none. The mask of labels is a result, and what tells these classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from openaclnn.core.dtypes import FLOATS, INT32, INT64
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import (
    ALONE,
    ClassKernel,
    Kernels,
    Launches,
    Problem,
    example,
)
from openaclnn.engines.cpu.classes.parameters import (
    KINDS,
    Parameters,
    ParametersOnce,
    fields,
)
from openaclnn.engines.cpu.registry import KERNELS
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.numbers import most
from openaclnn.engines.machine.values import Value

NAME = "multilabel_margin_loss"
RECORD = 8  # bytes that a row leaves of a sum
OPERANDS = {"values": "self", "labels": "target", "loss": "out", "mask": "isTarget"}
SLOTS = fields(tuple(OPERANDS), ("reduces", "mean"))


def emit_rows(dtype: str, target: str, loss: str) -> Emit:
    """The kernel: some rows, from the first to before the last."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameter_block, first, last = arguments
        parameters = ParametersOnce(code, parameter_block, SLOTS)
        classes = parameters["classes"]
        step = {name: parameters[f"{name}.class_step"] for name in ("values", "labels", "mask")}

        def each_label(labels: Value, body: Callable[[Value], None]) -> None:
            """Those up to the first -1 that are classes."""
            place = code.variable(0)

            def is_label() -> Value:
                inside = place.get() < classes
                safe = inside.choose(place.get(), 0)
                return inside & (code.load(labels + safe * step["labels"], target) != -1)

            with code.repeat_while(is_label):
                label = code.load(labels + place.get() * step["labels"], target)
                with code.when(label.below(classes)):
                    body(label)
                place.set(place.get() + 1)

        with code.loop(first, last) as row:
            values, labels, mask = (parameters.position(name, row) for name in ("values", "labels", "mask"))  # fmt: skip
            zero, one = (code.constant("f32", number, 1).lane(0) for number in (0.0, 1.0))
            with code.loop(0, classes) as place:
                code.store(zero, mask + place * step["mask"], dtype)
            each_label(labels, lambda label: code.store(one, mask + label * step["mask"], dtype))
            total = code.variable(code.double(0.0))

            def against_others(label: Value) -> None:
                below = 1.0 - code.load(values + label * step["values"], dtype)
                with code.loop(0, classes) as place:
                    margin = below + code.load(values + place * step["values"], dtype)
                    other = code.load(mask + place * step["mask"], dtype) == 0.0
                    added = (other & (margin > 0.0)).choose(margin, 0.0)
                    total.set(total.get() + added.to("f64"))

            each_label(labels, against_others)
            row_loss = total.get() / classes.to("f64")
            with code.either(parameters.flag("reduces")) as (added_up, apart):
                with added_up:
                    code.store(row_loss, parameters.scratch + row * RECORD, "f64")
                with apart:
                    code.store(row_loss.to("f32"), parameters.position("loss", row), loss)

    return emit


def emit_finish(loss: str) -> Emit:
    """The kernel that adds up the losses of rows."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameters = Parameters(code, arguments[0], SLOTS)
        rows = parameters["positions"]
        (total,) = totals.added_up(code, parameters.scratch, rows, 1)
        divisor = parameters.flag("mean").choose(rows.to("f64"), 1.0)
        code.store((total / divisor).to("f32"), parameters.address("loss"), loss)

    return emit


class MultilabelMargin(ClassKernel):
    """One row a piece."""

    axes, full, strided = 2, ("values", "labels", "mask"), True

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        return {"reduces": int(bool(plan.reduction)), "mean": int(plan.reduction == "mean")}

    def cut(self, problem: Problem) -> Launches:
        rows = problem["positions"]
        left = rows * problem["reduces"] * RECORD
        return Launches(0, rows, most(ALONE // problem["classes"], 1), left=left)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        values, target = plan.inputs
        kinds = values.dtype.short, KINDS[target.dtype], plan.output.dtype.short
        write = compiled(f"{NAME}.{'.'.join(kinds)}", emit_rows(*kinds))
        finish = compiled(f"{NAME}.finish.{kinds[-1]}", emit_finish(kinds[-1]))
        return Kernels(write, finish=finish)

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32):
                inputs = [("self", dtype, "full"), ("target", target, "full")]
                outputs = [("out", dtype, "positions"), ("isTarget", dtype, "full")]
                yield example(NAME, dtype, 2, inputs, outputs)


KERNELS[NAME] = MultilabelMargin(NAME, SLOTS, OPERANDS)
