"""Launches of sums and means over all elements: of elementwise formulas (`Summed`) and of the negative log-likelihood (`NllLauncher`); and of fills.

A program leaves one partial sum in scratch memory, and a last launch adds these up in their order; of few elements one program does both.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping

import triton.language as tl

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.formulas.cross_entropy import OPERANDS
from openaclnn.engines.formulas.likelihood import nll_loss
from openaclnn.engines.gpu.formulas.compiled import TRITON_TYPES, precision
from openaclnn.engines.gpu.formulas.tuned import CHOICES, Form, form_of
from openaclnn.engines.gpu.kernels.reductions import (
    fill,
    finish_nll,
    finish_reduction,
    summed_kernel,
)
from openaclnn.engines.gpu.kernels.row_source import Signature, Traversal, kernel_of
from openaclnn.engines.gpu.launchers.elementwise import has_words
from openaclnn.engines.gpu.launchers.geometry import (
    NUMBERS_ARGS,
    STRIDES_ARGS,
    DynamicLaunch,
    Elements,
    Geometry,
    Launches,
    LaunchParams,
    Specs,
    padded,
    power_of_two_above,
)
from openaclnn.engines.gpu.launchers.launcher import FormulaLauncher, Launcher
from openaclnn.engines.gpu.launchers.row_formulas import (
    STRIDED_AXES,
    RowFormulas,
    RowLauncher,
    Tile,
)
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    KernelSpec,
    launched,
    pointers_of,
    scratch_of,
    spec_of,
)
from openaclnn.engines.gpu.launching.runners import Runner, runner_of
from openaclnn.engines.machine.numbers import Number, Truth, all_of, ceil_div, inverse, least, where

BLOCK = 1024  # positions of a program at once
# Elements of a program at once, programs at most, and warps, for FLOAT and for 16 bits, by the formula: LIGHT ones have few instructions; those IN FOURS have logarithms, and add up four
# elements or more before they convert them to float64; LONG ones have LONG_WORDS in FLOAT, whose conversions cost nothing more, and need the registers of smaller programs. Shares of a copy of 2^25 elements, H200, bare kernels in turn without
# the last launch: L1 1.02 and 1.01, binary cross entropy 1.03 (1.02 by 8 warps) and 0.99, with logits 1.00 and 0.99, soft margin 1.01 and 1.02. The programs of 16 bits ask for the next block before one is added up
# (`summed_kernel`), and must all run at once: 8 of 4 warps on a processor, which have 64 registers a thread. Not told so they had up to 88, and 0.94, 0.82 and 1.01; with 1024 elements
# 0.87, 0.93 and 0.98; with two blocks in a turn, which saves the moves between registers, binary cross entropy 0.94 and 0.96, with logits 0.97 (0.99). Of any strides these are what they have.
LIGHT = (1024, 1024, 4), (2048, 528, 8)
LONG = (1024, 1188, 4)
FOURS, REGISTERS = (LONG, (2048, 1056, 4)), 64
STRIDED_FOURS = LONG, (1024, 1056, 4)
LONG_WORDS = frozenset(("softened", "softplus"))
MOST_PARTS = 4096  # programs at most; for positions, 1024 took 8% more for (2,80,2048,2048), as much for the others
HEAVY = LONG_WORDS | {"exp", "log", "low_log"}
# Elements or positions up to which one program adds up all and finishes, in less time than one more launch takes.
ALONE = 2 * BLOCK
FLOAT64_BYTES = 8
NLL_SUMS = 2  # of losses and of weights
SMALL = 1 << 16  # elements up to which one plan of strided operands has the kernel of AXES axes
# And up to which calls with dynamic strides have it: on an H200 it took 3 to 5 us more of the GPU for 131,072 to 262,144; another plan takes 300 of the host.
STRIDED_LIMIT = 1 << 18
AXES = 5
ADDING, FINISHING, WHOLE = "add", "finish", "alone"
"""Keys of kernels: one that adds up parts; one that finishes; one that does both."""
SHIFTED, STRIDED, WHOLE_STRIDED = "shifted", "add.strided", "alone.strided"
"""Keys of those for elements that are all misaligned by the same bytes, or are strided."""


def parts_of(
    count: Number, block: Number = BLOCK, most: Number = MOST_PARTS
) -> tuple[Number, Truth]:
    """In how many parts elements or positions are added up, and whether that is one part, whose program finishes, too."""
    alone = count <= ALONE
    return where(alone, 1, least(ceil_div(count, block), most)), alone


def in_parts(
    add: LaunchParams, parts: Number, alone: Truth, finish: Mapping[str, Number], several: int
) -> Launches:
    """The launches of a sum: `add` by many programs, or by one alone, and the one that finishes, with the arguments `finish`. Each part leaves `several` sums."""
    last = LaunchParams(
        FINISHING, 1, {"parts": parts, **finish}, {"BLOCK": power_of_two_above(parts, MOST_PARTS)}, 4, inverse(alone)
    )  # fmt: skip
    steps = [add._replace(when=inverse(alone)), add._replace(kernel=WHOLE, when=alone), last]
    return Launches(steps, where(alone, 0, parts * (several * FLOAT64_BYTES)), (0,))


# Sums of elementwise formulas.


def launch_sum(g: Elements) -> Launches:
    """The launches over flat operands, or over strided ones (`g.sizes`). A call with dynamic strides whose operands are flat has the kernels of these, and their bits."""
    block, warps = g.static["block"], g.static["warps"]
    parts, alone = parts_of(g.count, block, g.static["most"])
    args = {"count": g.count, "parts": parts, NUMBERS_ARGS: 0}
    add = LaunchParams(
        ADDING, parts, args, {"BLOCK": block}, warps, aligned=inverse(all_of(not g.sizes, g.share_small, g.misaligned))
    )  # fmt: skip
    launches = in_parts(add, parts, alone, {"divisor": _divisor(g)}, 1)
    add, whole, finish = launches.steps
    if g.sizes:
        sizes = {f"size_{axis}": size for axis, size in enumerate(g.sizes)}
        steps = [step._replace(when=all_of(step.when, g.flat_inputs)) for step in (add, whole)]
        steps += [
            step._replace(
                kernel=kernel,
                args={**args, **sizes, STRIDES_ARGS: 1},
                when=all_of(step.when, inverse(g.flat_inputs)),
            )
            for step, kernel in ((add, STRIDED), (whole, WHOLE_STRIDED))
        ]
    else:
        shifted = all_of(
            g.misaligned, g.same_offset, g.static["together"] > 0, g.count > SMALL, inverse(alone)
        )
        by_vectors = add._replace(kernel=SHIFTED, when=shifted, aligned=False)
        steps = [add._replace(when=all_of(add.when, inverse(shifted))), by_vectors, whole]
    return launches._replace(steps=[*steps, finish])


def _divisor(g: Elements) -> Number:
    return where(g.static["mean"] > 0, g.count, 1)


PROGRAM = ("block", "most", "warps")


def _add_spec(
    plan: Plan, form: Form, axes: int = 0, single: tuple[bool, ...] = (), alone: bool = False
) -> KernelSpec:
    """The spec of the kernel that adds up a form's results, over so many axes; 0: operands are flat, and `single` says which have one element. `alone`: there is one
    part, whose program finishes, too."""
    *inputs, out = pointers_of(plan)
    single = single or (False,) * len(inputs)
    slots = [
        slot._replace(wide=not (axes or one)) for slot, one in zip(inputs, single, strict=True)
    ]
    in_fours = _in_fours(plan) and not alone
    return KernelSpec(
        summed_kernel(form.formula, axes, single), (*slots, out if alone else scratch_of(plan)),
        (alone, alone and plan.reduction == "mean", in_fours, *form.switches, *precision(plan)), fused=False, overlapped=not alone,
        registers=REGISTERS if in_fours and not axes and plan.compute is not FLOAT else None,
    )  # fmt: skip


def _finish_spec(plan: Plan) -> KernelSpec:
    named = {"sums": scratch_of(plan), "out": pointers_of(plan)[-1], "COMPUTE": TRITON_TYPES[plan.compute]}  # fmt: skip
    return spec_of(finish_reduction, named, follows=True)


def _together(plan: Plan, single: tuple[bool, ...]) -> bool:
    """Whether all inputs have elements of one size, so that they can be misaligned by the same bytes and read by the SHIFTED kernel."""
    sizes = {
        operand.dtype.itemsize for operand, one in zip(plan.inputs, single, strict=True) if not one
    }
    return len(sizes) == 1


def _single_of(plan: Plan) -> tuple[bool, ...]:
    """Which inputs of a flat plan are one element that serves all positions."""
    has_positions = math.prod(plan.shape) > 1
    return tuple(has_positions and not operand.strides[0] for operand in plan.inputs)


def _is_light(plan: Plan) -> bool:
    return not has_words(plan, HEAVY)


def _in_fours(plan: Plan) -> bool:
    """Whether four elements are added up in FLOAT before they are in float64."""
    return not _is_light(plan) and not (plan.compute is FLOAT and has_words(plan, LONG_WORDS))


def _program(plan: Plan, strided: bool) -> tuple[int, int, int]:
    """Elements of a program at once, how many programs at most, and warps."""
    if not _is_light(plan) and not _in_fours(plan):
        return LONG
    of_float, of_16_bits = LIGHT if _is_light(plan) else STRIDED_FOURS if strided else FOURS
    return of_float if plan.compute is FLOAT else of_16_bits


class Summed(FormulaLauncher):
    """The launcher of an elementwise formula's sum or mean."""

    reduces = True
    limit, position_axes = STRIDED_LIMIT, AXES
    dynamic_launches = (
        functools.partial(DynamicLaunch, "summed", launch_sum, dict.fromkeys((ADDING, SHIFTED, WHOLE, FINISHING))),
        functools.partial(DynamicLaunch, "summed.strided", launch_sum, dict.fromkeys((ADDING, WHOLE, STRIDED, WHOLE_STRIDED, FINISHING)), axes=AXES, limit=STRIDED_LIMIT),
    )  # fmt: skip

    def runner(self, plan: Plan) -> Runner:
        form = form_of(plan)
        if self.is_flat(plan):
            return self.plan_runner(plan, form, launch_sum, self.specs(plan, form, False))
        # Small plans share the kernel of AXES axes; for larger ones, axes of size 1 would cost time.
        axes = max(AXES, len(plan.shape)) if covered_elements(plan) <= SMALL else len(plan.shape)
        strides = tuple(
            [step for operand in plan.operands for step in padded(operand.strides, axes, 0)]
        )
        specs, sizes = _strided_specs(plan, form, axes), padded(plan.shape, axes, 1)
        return self.plan_runner(
            plan, form, launch_sum, specs, flat_inputs=False, sizes=sizes, strides=strides
        )

    def serves_row_major(self, plan: Plan) -> bool:
        return plan.kernel not in CHOICES and super().serves_row_major(plan)

    def is_flat(self, plan: Plan) -> bool:
        return len(plan.shape) == 1 and all(operand.strides[0] in (0, 1) for operand in plan.inputs)

    def specs(self, plan: Plan, form: Form, strided: bool) -> dict[str, KernelSpec]:
        single = (False,) * len(plan.inputs) if strided else _single_of(plan)
        add = _add_spec(plan, form, single=single)
        specs = {ADDING: add, WHOLE: _add_spec(plan, form, single=single, alone=True)}
        if strided:
            return {**specs, **_strided_specs(plan, form, AXES)}
        if _together(plan, single):
            specs[SHIFTED] = add._replace(kernel=summed_kernel(form.formula, 0, single, shifted=True))  # fmt: skip
        return {**specs, FINISHING: _finish_spec(plan)}

    def static(self, plan: Plan, strided: bool) -> dict[str, int]:
        program = zip(PROGRAM, _program(plan, strided), strict=True)
        static = {"mean": int(plan.reduction == "mean"), **dict(program)}
        return static if strided else {**static, "together": int(_together(plan, _single_of(plan)))}


def _strided_specs(plan: Plan, form: Form, axes: int) -> dict[str, KernelSpec]:
    return {
        STRIDED: _add_spec(plan, form, axes), WHOLE_STRIDED: _add_spec(plan, form, axes, alone=True),
        FINISHING: _finish_spec(plan),
    }  # fmt: skip


# Sums of the negative log-likelihood.


class NllLauncher(RowLauncher):
    """The launcher of NLL's loss: each position's loss and weight, and their sums; without a reduction the losses are written, too."""

    def __init__(self, operands: tuple[str, ...], axes: int) -> None:
        kinds, graph = dict(nll_loss.operands), nll_loss.graph({"weighted": True})
        signature = Signature(
            nll_loss.name, tuple([(name, kinds[name]) for name in operands]), nll_loss.targets, (), True
        )  # fmt: skip
        kernel = kernel_of(signature, graph, Traversal(False, False, axes or 2, summed=True))
        self.others = {ADDING: kernel, WHOLE: kernel, FINISHING: finish_nll}
        super().__init__("summed.nll", signature, graph, axes)

    def traversals(self) -> list[Traversal]:
        return []

    def specs(self, plan: Plan, offset: int = 0) -> Specs:
        *inputs, out, total = pointers_of(plan)
        each, kernel, parts = not plan.reduction, self.others[ADDING], scratch_of(plan)
        named = {
            **dict(zip(kernel.arg_names, inputs, strict=False)), "to_0": out, "to_1": total, "sums": None, "COMPUTE": tl.float32, "PRECISE": True,
            "MEAN": plan.reduction == "mean", "PARTS": 1, "ALONE": True, "EACH": each, "KIND": TRITON_TYPES[plan.compute],
        }  # fmt: skip
        add = {**named, "to_0": out if each else None, "to_1": None, "sums": parts, "ALONE": False}
        finish = {**named, "sums": parts, "out": None if each else out, "total": total}
        return {
            ADDING: spec_of(kernel, add), WHOLE: spec_of(kernel, named, overlapped=False), FINISHING: spec_of(finish_nll, finish, follows=True),
        }  # fmt: skip

    def launch(self, g: Geometry) -> Launches:
        walk = self.walk(g.layout, False)
        parts, alone = parts_of(walk.positions)
        far = True if g.strided else walk.reach(Tile(BLOCK, 1, 1, False, 4)) >= INT32_LIMIT
        args = {**self.args(g, walk, 1, 1, ()), "blocks": ceil_div(walk.positions, BLOCK), "parts": parts}  # fmt: skip
        constexprs = {
            "UNIT": 1, "WIDE": far, **{f"NEAR_{name}": 0 for name, _ in self.kinds}, "CLASSES": 0, "CUT": False, "VECTOR": 1, "POSITIONS": BLOCK,
            "HELD": 1, "LANES": 1,
        }  # fmt: skip
        # More warps where targets are transposed, so that each is in another line of memory: (16,21,512,512) 44 us (55), others 36 (33).
        warps = where(all_of(not g.strided, walk.last_stride("target") != 1), 8, 4)
        add = LaunchParams(ADDING, parts, args, constexprs, warps)
        return in_parts(add, parts, alone, {}, NLL_SUMS)


_nll_launcher = functools.cache(NllLauncher)


class _Likelihood(RowFormulas):
    reduces = True

    def _launcher(self, plan: Plan, axes: int) -> RowLauncher:
        operands = tuple([OPERANDS[operand.parameter] for operand in plan.inputs])
        return _nll_launcher(operands, axes and max(axes, STRIDED_AXES))

    def _serves_numbers(self, plan: Plan) -> bool:
        return True


NLL = _Likelihood()


class Filling(Launcher):
    """The launcher of fills: it writes the plan's number for each output to all of its elements."""

    def runner(self, plan: Plan) -> Runner:
        *outer, count = plan.shape
        block = min(BLOCK, 1 << (count - 1).bit_length())
        launches = []
        for slot, output in zip(pointers_of(plan), plan.outputs, strict=True):
            named = {"number": float(plan.numbers[output.parameter]), "count": count, "stride": output.strides[-1], "BLOCK": block}  # fmt: skip
            for index in itertools.product(*map(range, outer)):
                steps = sum(map(operator.mul, index, output.strides))
                place = slot._replace(shift=slot.shift + steps * output.dtype.itemsize)
                launches.append(launched(fill, ceil_div(count, block), {**named, "out": place}, 1))
        return runner_of(launches)


SUMMED, FILLING = Summed(), Filling()
