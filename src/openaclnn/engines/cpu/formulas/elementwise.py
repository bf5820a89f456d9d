"""Elementwise kernels: which form serves a plan, and its runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any

from openaclnn.core.dtypes import FLOAT, FLOAT16, FLOATS, DType
from openaclnn.core.plan import BoundedCache, Operand, Plan, covered_elements, numbers_key
from openaclnn.engines.cpu.formulas import sums
from openaclnn.engines.cpu.formulas.forms import (
    TUNED,
    Flat,
    Form,
    Signature,
    constants,
    derive_address,
    formula_form,
    kernel_address,
    past_from,
    plain_derivation,
)
from openaclnn.engines.cpu.layouts import tiles
from openaclnn.engines.cpu.layouts.gathered import MOST, gathering
from openaclnn.engines.cpu.registry import Runner, SizedRunner
from openaclnn.engines.formulas import FORMULAS, Formula
from openaclnn.engines.machine.host import last_cache, machine


def plain_form(plan: Plan) -> Form:
    """The formula as it is written."""
    formula = FORMULAS[plan.kernel]
    numbers = plan.numbers
    return formula_form(
        formula, formula.numbers_of(numbers), formula.switches_of(numbers),
        plain_derivation(formula, plan.free),
    )  # fmt: skip


def form_of(plan: Plan) -> Form:
    """The first tuned form that serves a plan, or the plain one."""
    for tuned in TUNED.get(plan.kernel, ()):
        form = tuned.choose(plan)
        if form is not None:
            return form
    return plain_form(plan)


_SERVED = frozenset(FLOATS)
_dtype_of = attrgetter("dtype")


class Elementwise:
    """The kernel of a formula."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self._flats: BoundedCache[tuple[Any, ...], Flat | None] = BoundedCache(
            256
        )  # by all that they follow from

    def declines(self, plan: Plan) -> str | None:
        """Why it does not serve a plan; None if it does."""
        dtypes = {*map(_dtype_of, plan.operands)}
        if not _SERVED.issuperset(dtypes):
            return "integer, DOUBLE and COMPLEX operands are served by NumPy"
        lacks_half = FLOAT16 in dtypes and not machine().half
        return "this CPU has no float16 conversions" if lacks_half else None

    def runner(self, plan: Plan) -> Runner:
        """What runs a plan."""
        return self._runner(plan, None)

    def offer(self, plan: Plan) -> tuple[Callable[[], Runner], Flat | None]:
        """What makes the same, and the kernel for any size."""
        single = tiles.singles(plan)
        reciprocal = plan.reciprocal  # whoever takes a kernel for any size computes it of the size
        key = (
            plan.compute, plan.output.dtype, plan.reduction, reciprocal, plan.free, single,
            numbers_key(plan.numbers, reciprocal), *map(_dtype_of, (*plan.inputs, *plan.more)),
        )  # fmt: skip
        flat = self._flats.get(key)
        if flat is not None:
            # A sum of more elements than its kernel takes has that form, too.
            least, beyond = flat.keep.counts if plan.reduction else flat.counts
            if least <= covered_elements(plan) < beyond:
                form = None if reciprocal else flat.keep
                return partial(self._runner, plan, form), flat
        form = form_of(plan)
        flat = (sums.flat if plan.reduction else _flat)(plan, form, single)
        if form.table is None:  # which is large
            self._flats[key] = flat
        return partial(self._runner, plan, form), flat

    def _runner(self, plan: Plan, form: Form | None) -> Runner:
        """What runs a plan by a form, which is found if it is not known."""
        run = sums.runner if plan.reduction else runner_of
        return run(plan, form_of(plan) if form is None else form)

    def dynamic_shapes(self, plan: Plan) -> SizedRunner | None:
        """What adds up more row-major elements than a flat kernel does."""
        return sums.dynamic_shapes(plan, form_of) if plan.reduction else None

    def variants(self) -> Iterator[Plan]:
        """Plans of one dtype throughout, dense and with one first value, by all forms; and strided ones."""
        count = len(self.formula.values)
        switches = [
            dict(zip(self.formula.switches, on, strict=True))
            for on in product((False, True), repeat=len(self.formula.switches))
        ]
        plain = [dict.fromkeys(self.formula.numbers, 1.0) | chosen for chosen in switches]
        examples = [chosen for form in TUNED.get(self.formula.name, ()) for chosen in form.examples]
        sizes = 2, tiles.GRAIN, last_cache()  # so many results go past the caches
        for dtype in FLOATS:
            for numbers in [*plain, *examples]:
                for steps in ([1] * count, [0] + [1] * (count - 1)):
                    for size in sizes if dtype is FLOAT else sizes[:2]:
                        yield self._dense(dtype, numbers, size, steps)
            # A strided and a transposed geometry bring in the driver and the copies.
            turned = Operand("x", dtype, (1, 64))
            output = Operand("out", dtype, (128, 2))
            yield Plan(
                "", self.formula.name, dtype, (64, 64), (turned,) * count, output, plain[0],
                more=(output,) * (self.formula.results - 1),
            )  # fmt: skip

    def _dense(
        self, dtype: DType, numbers: Mapping[str, Any], count: int, steps: Sequence[int]
    ) -> Plan:
        inputs = tuple(Operand("x", dtype, (step,)) for step in steps)
        output = Operand("out", dtype, (1,))
        more = (output,) * (self.formula.results - 1)
        return Plan("", self.formula.name, dtype, (count,), inputs, output, numbers, more=more)


def _flat(plan: Plan, form: Form, single: tuple[int, ...]) -> Flat:
    """The kernel for any size."""
    layout = tiles.arrange(plan)
    signature = _signature(plan, single)
    past, counts = _past(plan, layout, signature, form)
    reciprocal = form.names.index(plan.reciprocal) if plan.reciprocal else -1
    derived = () if form.derive is None else form.derive.numbers
    return Flat(
        kernel_address(form, signature, past=past), tiles.GRAIN, constants(form), reciprocal, counts, form,
        derive_address(form), derived, partial(kernel_address, form, signature._replace(single=())), gathering, MOST,
    )  # fmt: skip


def runner_of(plan: Plan, form: Form) -> Runner:
    """What runs a plan by a form."""
    layout = tiles.arrange(plan)
    signature = _signature(plan, layout.single)
    kernel = kernel_address(form, signature, _past(plan, layout, signature, form)[0])
    return tiles.runner(plan, layout, kernel, constants(form), keep=form)


def _past(
    plan: Plan, layout: tiles.Arrangement, signature: Signature, form: Form
) -> tuple[bool, tuple[int, int]]:
    """Whether a plan's results go past the caches, and for how many elements that is so."""
    least, beyond = form.counts
    limit = past_from(signature)
    if layout.flat and plan.shape[0] >= limit:
        return True, (max(least, limit), beyond)
    return False, (least, min(beyond, limit))


def _signature(plan: Plan, single: tuple[int, ...]) -> Signature:
    dtypes, more = (
        tuple([operand.dtype.short for operand in operands])
        for operands in (plan.inputs, plan.more)
    )
    return Signature(dtypes, plan.compute.short, plan.output.dtype.short, single, more)
