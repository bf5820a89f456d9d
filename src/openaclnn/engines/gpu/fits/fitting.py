"""Which builtins (`fitted.py`) launch a plan's kernels at any size: one for each access pattern, if there can be one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas.tuned import CHOICES, TUNED, Form, as_float
from openaclnn.engines.gpu.launchers.launcher import can_be_emitted
from openaclnn.engines.gpu.launching.launch import Family, Sizes
from openaclnn.engines.gpu.launching.queues import Ready

__all__ = [
    "ALIGNED", "ALIKE", "ANYWHERE", "MAIN", "Fitting", "can_be_fitted", "flat_fitting", "tiled_fitting",
]  # fmt: skip


Run = TypeVar("Run", bound=Callable[..., int])


class Fitting:
    """What is told compiled kernels, and makes the builtin; without a builtin, nothing is told and Python runs alone."""

    def __init__(self, made: Any = None, ready: Mapping[Any, Ready] | None = None) -> None:
        self._made, self._ready = made, ready or {}

    def ready(self, which: Any) -> Ready | None:
        return self._ready.get(which)

    def function(self, run: Run) -> Run:
        """The builtin, or what it falls back to."""
        made: Run = run if self._made is None else self._made.function(run)
        return made


NOTHING = Fitting()

MAIN = "main"
ALIGNED, ANYWHERE, ALIKE = "aligned", "anywhere", "alike"
"""How a launch takes its addresses: all on a vector's bounds; no matter how; equally far off them."""


def can_be_fitted() -> bool:
    """Whether machine code can call the driver."""
    return can_be_emitted()


def _parts() -> tuple[Any, Any, Any] | None:
    """`fitted`, `flat` and `strided`, which import llvmlite."""
    if not can_be_emitted():
        return None
    from openaclnn.engines.gpu.fits import flat, strided
    from openaclnn.engines.gpu.launchers import fitted

    return fitted, flat, strided


def flat_fitting(
    plan: Plan, form: Form, family: Family, block: int, warps: int, few: int, vector: int
) -> Fitting:
    """Of an elementwise kernel over dense operands; kernels are told by their formula's name and switches, and what they take
    addresses as: aligned; anyhow, for few elements; alike, with so many elements in a vector (0: they never are)."""
    parts = _parts()
    choice = CHOICES.get(plan.kernel)
    names = tuple([own.option for own in plan.free])
    if choice is None:
        made_names: tuple[str, ...] = ()
        forms: Sequence[tuple[Formula, tuple[bool, ...]]] = [(form.formula, form.switches)]
        served = plan.kernel not in TUNED and not {*names} & {*form.formula.switches}
    else:
        made_names, forms, served = choice.made, choice.forms, {*names} <= {choice.number}
        names = (choice.number,)
    most = max(len(formula.numbers) for formula, _ in forms)
    if parts is None or not served:
        return NOTHING
    fitted, flat, *_ = parts
    if (
        not fitted.takes(family.slots, 1 + most, names)
        or most > flat.MAX_FORM_NUMBERS
        or len(forms) > flat.MAX_FORMS
    ):
        return NOTHING
    made = fitted.Fitted(
        flat.flat_fit(plan.kernel), len(plan.inputs) + 1, (block, plan.compute is FLOAT, few, vector),
        len(forms) * flat.FORM_SLOTS,
    )  # fmt: skip
    made.take_numbers([plan.numbers[name] for name in names], 0)
    made.take_step(0, family.slots, (0,) * (1 + most))
    ready = {}
    known = {name: place for place, name in enumerate(names)}
    known |= {name: place for place, name in enumerate(made_names, flat.MADE)}
    known[plan.reciprocal] = flat.SHARE
    for index, (formula, switches) in enumerate(forms):
        made.take_words(index * flat.FORM_SLOTS, _form_words(plan, formula, known, flat))
        numbers, key = (0, *(0.0,) * len(formula.numbers)), (formula.name, switches)
        for lying, begin in ((ALIGNED, 0), (ANYWHERE, flat.ANYWHERE)):
            ways = {
                ((1 << power, False, block), warps): begin + index * flat.UNITS + power
                for power in range(flat.UNITS)
            }
            ready[key, lying] = made.ready(0, ways, numbers)
        alike = {((False, block), warps): flat.ALIKE + index}
        ready[key, ALIKE] = made.ready(0, alike, numbers)
    return Fitting(made, ready)


def _form_words(plan: Plan, formula: Formula, known: Mapping[str, int], flat: Any) -> list[int]:
    """A form's numbers: known in the call, or the plan's own."""
    from openaclnn.engines.gpu.launching.native import word

    sources = [known.get(name, -1) for name in formula.numbers]
    words = [
        word(as_float(plan.numbers[name])) if source < 0 else 0
        for name, source in zip(formula.numbers, sources, strict=True)
    ]
    pad = [0] * (flat.MAX_FORM_NUMBERS - len(words))
    return [len(words), *words, *pad, *sources]


def tiled_fitting(
    plan: Plan, form: Form, family: Family, sizes: Sizes, facts: Sequence[int]
) -> Fitting:
    """Of an elementwise kernel over few elements of any strides."""
    parts = _parts()
    _, numbers, *constants = sizes
    if parts is None or not parts[0].takes(family.slots, len(numbers), ()):
        return NOTHING
    fitted, _, strided = parts
    share = form.formula.numbers.index(plan.reciprocal) if plan.reciprocal else -1
    place = len(numbers) - len(form.numbers) + share if share >= 0 else -1
    made = fitted.Fitted(strided.TileFit, len(plan.inputs) + 1, (place, *facts))
    made.take_step(0, family.slots, numbers)
    return Fitting(made, {MAIN: made.ready(0, {tuple(constants): 0}, numbers)})
