"""Which builtins (`fitted.py`) launch a plan's kernels at any size: one for each access pattern, if there can be one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import triton

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu import scratch
from openaclnn.engines.gpu.launch import Family, Sizes
from openaclnn.engines.gpu.operands import INT32_LIMIT, ignored, operand_of
from openaclnn.engines.gpu.queues import Ready
from openaclnn.engines.gpu.sums import FEW_PARTS, add_family
from openaclnn.engines.gpu.tuned import CHOICES, TUNED, Form, as_float

__all__ = [
    "MAIN", "SUMS", "Fitting", "can_be_fitted", "class_fitting", "flat_fitting", "tiled_fitting",
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


def can_be_fitted() -> bool:
    """Whether machine code can call the driver."""
    if triton.knobs.runtime.interpret:
        return False
    try:
        from openaclnn.engines.gpu import native
    except ImportError:  # no llvmlite
        return False
    return native.driver() is not None


def _parts() -> tuple[Any, Any, Any] | None:
    """`fitted`, `fits` and `strided_fits`, which import llvmlite."""
    if not can_be_fitted():
        return None
    from openaclnn.engines.gpu import fits, fitted, strided_fits

    return fitted, fits, strided_fits


def flat_fitting(
    plan: Plan, form: Form, family: Family, block: int, warps: int, few: int
) -> Fitting:
    """Of an elementwise kernel over dense operands; kernels are told by their formula's name and switches, and whether
    they take addresses as aligned. Without, they serve few elements."""
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
    fitted, fits, _ = parts
    if (
        not fitted.takes(family.slots, 1 + most, names)
        or most > fits.MAX_FORM_NUMBERS
        or len(forms) > fits.MAX_FORMS
    ):
        return NOTHING
    made = fitted.Fitted(
        fits.flat_fit(plan.kernel), len(plan.inputs) + 1, (block, plan.compute is FLOAT, few),
        len(forms) * fits.FORM_SLOTS,
    )  # fmt: skip
    made.take_numbers([plan.numbers[name] for name in names], 0)
    made.take_step(0, family.slots, (0,) * (1 + most))
    ready = {}
    known = {name: place for place, name in enumerate(names)}
    known |= {name: place for place, name in enumerate(made_names, fits.MADE)}
    known[plan.reciprocal] = fits.SHARE
    for index, (formula, switches) in enumerate(forms):
        made.take_words(index * fits.FORM_SLOTS, _form_words(plan, formula, known, fits))
        for aligned, begin in ((True, 0), (False, fits.ANYWHERE)):
            ways = {
                ((1 << power, False, block), warps): begin + index * fits.UNITS + power
                for power in range(fits.UNITS)
            }
            numbers = (0, *(0.0,) * len(formula.numbers))
            ready[(formula.name, switches), aligned] = made.ready(0, ways, numbers)
    return Fitting(made, ready)


def _form_words(plan: Plan, formula: Formula, known: Mapping[str, int], fits: Any) -> list[int]:
    """A form's numbers: known in the call, or the plan's own."""
    from openaclnn.engines.gpu.native import word

    sources = [known.get(name, -1) for name in formula.numbers]
    words = [
        word(as_float(plan.numbers[name])) if source < 0 else 0
        for name, source in zip(formula.numbers, sources, strict=True)
    ]
    pad = [0] * (fits.MAX_FORM_NUMBERS - len(words))
    return [len(words), *words, *pad, *sources]


def tiled_fitting(
    plan: Plan, form: Form, family: Family, sizes: Sizes, facts: Sequence[int]
) -> Fitting:
    """Of an elementwise kernel over few elements of any strides."""
    parts = _parts()
    _, numbers, *constants = sizes
    if parts is None or not parts[0].takes(family.slots, len(numbers), ()):
        return NOTHING
    fitted, _, fits = parts
    share = form.formula.numbers.index(plan.reciprocal) if plan.reciprocal else -1
    place = len(numbers) - len(form.numbers) + share if share >= 0 else -1
    made = fitted.Fitted(fits.TileFit, len(plan.inputs) + 1, (place, *facts))
    made.take_step(0, family.slots, numbers)
    return Fitting(made, {MAIN: made.ready(0, {tuple(constants): 0}, numbers)})


MAIN, SUMS = "main", "sums"


def class_fitting(
    pattern: str, plan: Plan, family: Family, sizes: Callable[[int], Sizes], weight: str, summed: bool,
    numbers: Sequence[str], facts: Sequence[int], add: Sizes, words: Sequence[int] = (),
) -> Fitting:  # fmt: skip
    """Of a kernel with a class axis on few elements, whose sizes differ by the parts of a sum alone."""
    parts = _parts()
    if parts is None:
        return NOTHING
    fitted, fits, strided_fits = parts
    ways: dict[tuple[Any, ...], int] = {}
    for power in range(FEW_PARTS.bit_length() if summed else 1):
        _, own, *constants = sizes(1 << power)
        ways[tuple(constants)] = power
    if not fitted.takes(family.slots, len(own), numbers):
        return NOTHING
    weighted = operand_of(plan, weight) is not None
    room, addresses = fits if hasattr(fits, pattern) else strided_fits, len(plan.inputs) + 1
    made = fitted.Fitted(getattr(room, pattern), addresses, (weighted, *facts), len(words))
    made.take_words(0, words)
    first, *others = (plan.numbers[name] for name in numbers)
    made.take_numbers((min(ignored(first), INT32_LIMIT), *others), 1)
    made.take_step(0, family.slots, own)
    ready = {MAIN: made.ready(0, ways, own)}
    if summed:
        _, add_numbers, *add_constants = add
        made.take_step(1, add_family(plan, weight).slots, add_numbers)
        made.take_sums(*scratch.functions())
        ready[SUMS] = made.ready(1, {tuple(add_constants): 0}, add_numbers)
    return Fitting(made, ready)
