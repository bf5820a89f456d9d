"""Cross entropy, its gradients and the negative log-likelihood: kernels of the row formulas in `engines/formulas/{cross_entropy,likelihood}.py`.

A plan chooses which of a formula's operands and results there are. What a formula takes of all positions, the sums of their weights, is computed before it
(`totals.py`). A loss that is a sum or mean of all positions is left by each piece of work as a record of sums, which are added up last, in order.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64, UINT8, DType
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import Kernels, Launches, Problem, StridedRun, example
from openaclnn.engines.cpu.classes.parameters import AXES, Parameters, objection, target_kind
from openaclnn.engines.cpu.classes.row_formulas import Names, RowKernel, example_classes
from openaclnn.engines.cpu.registry import KERNELS, Runner, SizedRunner
from openaclnn.engines.formulas import cross_entropy, likelihood
from openaclnn.engines.formulas.cross_entropy import COUNTED, LOSS, OPERANDS, SQUARE, WEIGHT
from openaclnn.engines.formulas.rows import RowFormula
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.numbers import Number
from openaclnn.engines.machine.values import Value

LIKELIHOOD, TOTAL = range(2)
"""The results of the negative log-likelihood's formula."""
RESULTS = {**cross_entropy.RESULTS, "out": 0, "totalWeightOut": TOTAL}
ADDED_UP = {
    "cross_entropy_loss": {LOSS: "", COUNTED: "", WEIGHT: "weighted", SQUARE: "squares"}, "nll_loss": {LIKELIHOOD: "", TOTAL: ""},
}  # fmt: skip
"""What is added up over positions, with the switch without which nobody asks for it."""
OF_POSITIONS, OF_WEIGHTS = (
    ("total_weight", "rows_counted"),
    ("weight_sum", "infinite_sum"),
)  # as `totals.Sums` has them
FREE = {"lse_square_scale_for_zloss": "zloss_scale"}  # options that formulas call otherwise


class LossKernel(RowKernel):
    """Of plans with the same operands, results and switches."""

    own_slots: tuple[str, ...] = ()

    def __init__(
        self, formula: RowFormula, switches: tuple[tuple[str, bool], ...], inputs: tuple[tuple[str, str], ...],
        outputs: tuple[tuple[str, str], ...], target: str, dtype: str,
    ) -> None:  # fmt: skip
        graph, kinds = formula.graph(dict(switches)), dict(formula.operands)
        self.target, self.dtype = target, dtype
        written = [name for name, role in outputs if role != "single"]
        self.singles = [name for name, role in outputs if role == "single"]
        self.reduces = bool(self.singles)
        self.added_up = [
            result for result, switch in ADDED_UP.get(formula.name, {}).items() if self.reduces and dict(switches).get(switch, True)
        ]  # fmt: skip
        results = [RESULTS[name] for name in written] + self.added_up
        chosen = dataclasses.replace(graph, results=tuple(graph.results[k] for k in results))
        singles = [name for name, role in inputs if role == "single"]
        named = Names(
            {name: kinds[name] for name, _ in inputs}, written, [name for name, _ in outputs], singles
        )  # fmt: skip
        taken = {node.name for node in chosen.needed(chosen.results) if node.what == "number"}
        self.of_sums = taken & {*OF_POSITIONS, *OF_WEIGHTS}
        # Sums over weights read these slots, which say nothing where there are none.
        absent = [f"weight.{slot}" for slot in ("at", "offset", "class_step") if "weight" not in named.inputs]  # fmt: skip
        more = ("mean", "weighted", "records", "records_at", *absent, *self.own_slots)
        super().__init__(formula, chosen, named, more)
        self.name += "".join(f".{name}" for name in (target, *singles, *(name for name, _ in outputs)))  # fmt: skip

    def share(self, code: Code, parameters: Parameters) -> Mapping[str, Value]:
        shared = {"class_count": parameters["classes"].to("f64")}
        none = code.integer(0)
        if self.of_sums - {*OF_WEIGHTS}:
            # A loss's scratch memory is for its records, behind sums where these were made before.
            made = parameters.flag("records_at").choose(parameters.scratch, none)
            scratch = made if self.reduces else parameters.scratch
            sums = totals.sums_of(code, parameters, self.target, scratch)
            shared |= dict(zip(OF_POSITIONS + OF_WEIGHTS, sums, strict=True))
        elif self.of_sums:
            sums_of_weights = totals.sums_of_weights(code, parameters, none)
            shared |= dict(zip(OF_WEIGHTS, sums_of_weights, strict=True))
        return shared

    def free_numbers(self, plan: Plan) -> Sequence[tuple[str, str, float]]:
        return [(FREE.get(slot, slot), kind, by) for slot, kind, by in super().free_numbers(plan)]

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        mean = plan.reduction == "mean" or plan.numbers.get("mean", False)
        return {**super().numbers(plan), "mean": int(mean), "weighted": int("weight" in self.named.inputs)}  # fmt: skip

    def cut(self, problem: Problem) -> Launches:
        launches = super().cut(problem)
        blocks: Number = 0
        if self.of_sums - {*OF_WEIGHTS}:
            mean, weighted = problem["mean"], problem["weighted"]
            positions, classes = problem["positions"], problem["classes"]
            shared = launches.pieces > launches.grain
            blocks = totals.blocks_first(mean, weighted, positions, classes, shared)
        launches = launches._replace(sum_blocks=blocks)
        if not self.reduces:
            return launches
        problem.put(records=launches.pieces, records_at=blocks * totals.STRIDE)
        left = blocks * totals.STRIDE + launches.pieces * (8 * len(self.added_up))
        return launches._replace(left=left)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        kernels = super().kernels(plan, variant)
        if self.reduces:
            dtypes = ".".join(each.short for each in (plan.compute, *(one.dtype for one in plan.outputs)))  # fmt: skip
            finish = compiled(f"{self.name}.finish.{dtypes}", emit_finish(self, plan))
            kernels = kernels._replace(finish=finish)
        if not self.of_sums - {*OF_WEIGHTS}:
            return kernels
        sums = totals.emit_totals(self.target, "f32", self.slots)
        return kernels._replace(sums=compiled(f"{self.name}.totals", sums))


def emit_finish(kernel: LossKernel, plan: Plan) -> Emit:
    """The kernel that adds up records, one after another, and writes what follows from the sums, rounded to what is computed in and then to its own dtype."""
    kinds = {operand.parameter: operand.dtype.short for operand in plan.outputs}

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameters = Parameters(code, arguments[0], kernel.slots)
        records = parameters.scratch + parameters["records_at"]
        sums = totals.added_up(code, records, parameters["records"], len(kernel.added_up))
        known = dict(zip(kernel.added_up, sums, strict=True))
        opaque = numerics.Opaque(code)
        results = finished(code, kernel.formula.name, known, parameters.flag("mean"))
        for name in kernel.singles:
            number = numerics.rounded(results[name].to("f32").splat(1), plan.compute.short, opaque)
            code.store(number.lane(0), parameters.address(name), kinds[name])

    return emit


def finished(code: Code, formula: str, known: Mapping[int, Value], mean: Value) -> Mapping[str, Value]:  # fmt: skip
    """Results by what was added up, and whether it is divided by weights or counts."""
    if formula == "nll_loss":
        return {"out": known[LIKELIHOOD] / mean.choose(known[TOTAL], 1.0), "totalWeightOut": known[TOTAL]}  # fmt: skip
    loss = known[LOSS] / mean.choose(known.get(WEIGHT, known[COUNTED]), 1.0)
    square = known.get(SQUARE, code.double(0.0)) / mean.choose(known[COUNTED], 1.0)
    return {"lossOut": loss + square if SQUARE in known else loss, "zlossOut": square}


class RowLoss:
    """The kernels of a formula, one for each combination of operands, results and switches. Plans are those of `example`."""

    kernel = LossKernel
    targets: Sequence[DType] = (INT64, INT32)

    def __init__(self, formula: RowFormula, plan: Mapping[str, Any], **switches: bool) -> None:
        self.formula, self.plan, self.switches = formula, plan, switches

    def declines(self, plan: Plan) -> str | None:
        return objection(plan, AXES)

    def runner(self, plan: Plan) -> Runner:
        return self._kernel(plan).runner(self.computed(plan))

    def dynamic_shapes(self, plan: Plan) -> SizedRunner | None:
        return self._kernel(plan).dynamic_shapes(self.computed(plan))

    def dynamic_strides(self, plan: Plan) -> StridedRun | None:
        return self._kernel(plan).dynamic_strides(self.computed(plan))

    def computed(self, plan: Plan) -> Plan:
        """In FLOAT, and rounded once: what a loss keeps for its gradient has all its digits."""
        return dataclasses.replace(plan, compute=FLOAT)

    def _kernel(self, plan: Plan) -> LossKernel:
        switches = cross_entropy.switches_of(self.formula, plan, **self.switches)
        inputs = tuple((OPERANDS[one.parameter], one.role) for one in plan.inputs)
        outputs = tuple((one.parameter, one.role) for one in plan.outputs)
        return _kernel_of(
            self.kernel,
            self.formula,
            switches,
            inputs,
            outputs,
            target_kind(plan),
            plan.compute.short,
        )

    def variants(self) -> Iterator[Plan]:
        """Rows of each length."""
        name, inputs, outputs = (self.plan[key] for key in ("name", "inputs", "outputs"))
        reduced = next(iter(outputs)) if self.formula.name in ADDED_UP else ""
        reductions = ("", "mean") if reduced in ("lossOut", "out") else ("",)
        for dtype, target, reduction, classes in product(FLOATS, self.targets, reductions, example_classes()):  # fmt: skip
            single = {reduced: "single"} if reduction else {}
            kinds = {"target": target, **dict.fromkeys(("top", "rest", "topOut", "restOut"), FLOAT)}
            taken, written = (
                [(each, kinds.get(each, dtype), (roles | single)[each]) for each in roles]
                for roles in (inputs, outputs)
            )
            yield example(name, dtype, classes, taken, written, reduction=reduction)


class Likelihood(RowLoss):
    """The negative log-likelihood: its sums are rounded to what is computed in before their own dtype, and targets may be of 8 bits."""

    targets = INT64, INT32, UINT8

    def declines(self, plan: Plan) -> str | None:
        for output in plan.outputs:
            if output.dtype not in (FLOATS if plan.reduction else (plan.compute,)):
                return f"it computes in {plan.compute} and writes {output.dtype}"
        return objection(plan, AXES, rounds=True)

    def computed(self, plan: Plan) -> Plan:
        return plan


@functools.cache
def _kernel_of(kind: type[LossKernel], *described: Any) -> LossKernel:
    return kind(*described)


def _enter(
    name: str, formula: RowFormula, inputs: str, outputs: Mapping[str, str], kind: type[RowLoss] = RowLoss, **switches: bool
) -> None:  # fmt: skip
    taken = {
        "target": "positions", "gradLoss": "single", "top": "positions", "rest": "positions", "weight": "classes",
    }  # fmt: skip
    roles = {each: taken.get(each, "full") for each in inputs.split()}
    plan = {"name": name, "inputs": roles, "outputs": outputs}
    KERNELS[name] = kind(formula, plan, **switches)


_enter(
    "cross_entropy_loss", cross_entropy.cross_entropy_loss, "target input",
    {"lossOut": "positions", "logProbOut": "full"},
)  # fmt: skip
_enter(
    "cross_entropy_loss_grad", cross_entropy.cross_entropy_loss_grad, "target gradLoss logProb", {"out": "full"}
)  # fmt: skip
_enter(
    "cross_entropy_row_step", cross_entropy.cross_entropy_loss, "target input", {"lossOut": "single", "gradInputOut": "full"},
)  # fmt: skip
_enter(
    "cross_entropy_alone",
    cross_entropy.cross_entropy_loss,
    "target input",
    {"lossOut": "positions"},
)
for _name in ("cross_entropy_logits", "cross_entropy_logits_pixels"):
    _enter(
        _name, cross_entropy.cross_entropy_loss, "target input", {"lossOut": "positions", "topOut": "positions", "restOut": "positions"},
    )  # fmt: skip
_enter(
    "cross_entropy_logits_grad", cross_entropy.cross_entropy_logits_grad, "target gradLoss input top rest", {"out": "full"}
)  # fmt: skip
_enter(
    "nll_loss", likelihood.nll_loss, "target self weight", {"out": "positions", "totalWeightOut": "single"}, Likelihood
)  # fmt: skip
_enter("nll_loss_alone", likelihood.nll_loss, "target input", {"out": "positions"}, Likelihood)
