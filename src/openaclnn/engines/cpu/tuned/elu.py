"""ELU and its gradient: scalars folded into the exponential, and a table for 16-bit inputs of the gradient.

From ELU's result the gradient has the bits of the plain form; docs/numerics.md has the largest errors of the others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import ANY_COUNT, Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.functions import EXPM1_LINEAR, Exp, Expm1
from openaclnn.engines.cpu.formulas.forms import (
    Derive,
    Form,
    Signature,
    Site,
    constants,
    formula_form,
    kernel_address,
    tuned,
)
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.formulas import FORMULAS, described
from openaclnn.engines.formulas.words import where
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    any_of,
    inverse,
    most,
    single,
    where as where_number,
)
from openaclnn.engines.machine.values import Shape, Value, intrinsic, maximum

# A 16-bit ELU looks its factor up from so many elements on, where vectors are short: 5.8 ms instead of 10.5
# with NEON's 4 lanes; with 16 the polynomial takes 32 us (BFLOAT16) and 19 (FLOAT16) where the table takes 51 and 47.
TABLE_FROM, TABLE_LANES = 1 << 15, 4

NEGATIVE_LIMIT = -104.66  # below it exp is 0
DEEP = -86.0  # below it exp, half of which a multiplier may take, is subnormal
NUMBERS = ("alpha", "scale", "input_scale")


def _numbers(alpha: float, scale: float, inner: float, is_result: bool = False) -> dict[str, Any]:
    return {"alpha": alpha, "scale": scale, "input_scale": inner, "is_result": is_result}


class _Unit(NamedTuple):
    """What the code of ELU itself follows from: whether one factor serves all x near 0 and above, and an input scale of 1."""

    joined: Truth
    unit: Truth


def _fold_forward(
    alpha: Number, scale: Number, inner: Number
) -> tuple[Truth, _Unit, tuple[Number, ...]]:
    """Whether ELU's scalars are moderate, what code they need, and its constants."""
    multiplier = single(alpha * scale)
    small = single(
        alpha * scale * inner
    )  # the factor of so small an x that it is all there is of exp - 1
    serves = (
        (abs(small) > 2.0**-100) & (abs(small) < 2.0**100) & (inner > 2.0**-60) & (inner < 2.0**60)
    )
    if serves is False:
        return False, _Unit(False, False), ()
    # exp - 1 needs no such factor if nothing is rounded before it, but that zeros would lose their signs: the positive branch has them.
    unit, alike = inner == 1.0, small == scale
    joined = any_of(alike, all_of(unit, small * scale > 0.0))
    near = where_number(all_of(unit, inverse(alike)), -(2.0**-149), -EXPM1_LINEAR / inner)
    constants_of_form = (multiplier, scale, inner, small, Expm1.BOUND / inner, near)
    return serves, _Unit(joined, unit), constants_of_form


@tuned(
    "elu",
    gain="a vector of 4 lanes takes 19 cycles of a Neoverse-N1 instead of 32 (counted by llvm-mca)",
    examples=[
        dict(zip((*NUMBERS, "limit"), (*numbers, False), strict=True))
        for numbers in ((1.0, 1.0, 1.0), (1.5, 2.0, 1.0), (2.0, 1.0, 0.5), (-2.0, 3.0, 0.7))
    ],
)
def forward(plan: Plan) -> Form | None:
    """Where the exponential falls, and the product of the scalars is neither 0 nor extreme."""
    numbers = plan.numbers
    if numbers["limit"]:
        return None
    serves, unit, constants_of_form = _fold_forward(*(float(numbers[name]) for name in NUMBERS))
    if not serves:
        return None
    name, write = _written_forward(unit)
    return Form(name, write, constants_of_form, derive=_derivation(unit, _fold_forward))


@cache
def _derivation(wanted: tuple[Truth, ...], fold: Callable[..., Any]) -> Derive:
    """For numbers that come to the form of these marks; `fold` says whether forms serve numbers, their marks and their constants."""

    def write(code: Code, numbers: list[Value]) -> tuple[Value, dict[int, Value]]:
        serves, marks, constants_of_form = fold(*numbers)
        for want, mark in zip(wanted, marks, strict=True):
            serves = all_of(serves, mark if want else inverse(mark))
        return serves, dict(enumerate(constants_of_form))

    return Derive(NUMBERS, write)


@cache
def _written_forward(marks: _Unit) -> tuple[str, Callable[[Site], None]]:
    """The name of such a form, and what writes it."""

    def write(site: Site) -> None:
        multiplier, scale, inside, small, lowest, near = site.numbers
        expm1 = Expm1(site.code, multiplier, None if marks.unit else inside)

        def body(shape: Shape, index: Value) -> Value:
            negative = expm1.clamped(maximum(site.load(shape, 0, index), lowest))
            x = site.load(
                shape, 0, index, volatile=site.plain
            )  # anew: K registers less in the long part
            linear = x * (scale if marks.joined else (x > 0.0).choose(scale, small))
            return (x > near).choose(linear, negative)

        site.loop(5, body)

    return f"elu.forward{'.joined' * marks.joined}{'.scaled' * (not marks.unit)}", write


def elu_from_result(gradient: Value, x: Value, *, slope: float, scale: float) -> Any:
    return gradient * where(x <= 0, x + slope, scale)


_FROM_RESULT = described(elu_from_result)


@tuned(
    "elu_backward",
    gain="two multiplications of four",
    examples=[_numbers(1.0, 1.0, 1.0, True), _numbers(1.5, 2.0, 1.0, True)],
)
def from_result(plan: Plan) -> Form | None:
    """From the result, with an input scale of 1."""
    numbers = plan.numbers
    if not numbers["is_result"] or numbers["input_scale"] != 1:
        return None
    # Of two FLOATs the product is exact in float64, so that it is rounded once.
    slope = float_of(float_of(numbers["alpha"]) * float_of(numbers["scale"]))
    return formula_form(
        _FROM_RESULT, {"slope": slope, "scale": numbers["scale"]}, derive=_DERIVE_FROM_RESULT
    )


def _derive_from_result(code: Code, numbers: list[Value]) -> tuple[Value, dict[int, Value]]:
    alpha, scale, inner = numbers
    return (inner == 1.0) & ~(alpha < 0.0), {0: alpha * scale, 1: scale}


_DERIVE_FROM_RESULT = Derive(NUMBERS, _derive_from_result)


class _Folded(NamedTuple):
    """ELU's scalars, floats or float64 of code being written: multiplier * 2^-lift = alpha * scale * inner."""

    serves: Truth
    multiplier: Number
    scale: Number
    inner: Number
    lift: Number


def _fold(alpha: Number, scale: Number, inner: Number) -> _Folded:
    product = alpha * scale * inner  # in float64: one rounding
    size, inner_size, rising = abs(product), abs(inner), inner > 0.0
    # A growing exponential must not overflow because of its multiplier, nor a falling one vanish: a
    # multiplier below 1 leaves its power of two to the gradient, as in the document's order.
    serves = (size > 2.0**-16) & ((size <= 1.0) | rising & (size <= 2.0**80))
    serves = serves & (inner_size > 2.0**-60) & (inner_size < 2.0**60) & (abs(scale) < math.inf)
    if serves is False:
        return _Folded(False, 1.0, 1.0, 1.0, 0)
    lift = where_number(rising, most(1 - _exponent(product), 0), 0)
    return _Folded(serves, single(product) * _power_of_two(lift), scale, inner, lift)


def _exponent(number: Number) -> Number:
    """As frexp has it."""
    if isinstance(number, float):
        return math.frexp(number)[1]
    return ((number.bits_as("i64") >> 52) & 0x7FF) - 1022


def _power_of_two(exponent: Number) -> Number:
    if isinstance(exponent, int):
        return 2.0**exponent
    return ((exponent + 1023) << 52).bits_as("f64")


class _Marks(NamedTuple):
    """What code follows from: whether both branches meet at x = 0, an inner factor of 1, one above 0, a gradient that is lifted in
    both branches, or in one."""

    joined: Truth
    unit: Truth
    rising: Truth
    shared: Truth
    apart: Truth


def _constants(scalars: _Folded, wide: bool) -> tuple[_Marks, tuple[Number, ...]]:
    """Of a form, for FLOAT gradients or for shorter ones."""
    _, multiplier, scale, inner, lift = scalars
    lifted, unit = lift > 0, inner == 1.0
    # Up to 2^16, lifting a 16-bit gradient is exact, so both branches can share it.
    shared, apart = (False, lifted) if wide else (lifted, False)
    positive = scale if wide else scale * _power_of_two(lift)
    joined = all_of(unit, multiplier == positive, inverse(apart))
    bound = NEGATIVE_LIMIT / abs(inner)  # beyond it exp(inner * x) is 0, or infinite
    marks = _Marks(joined, unit, inner > 0.0, shared, apart)
    return marks, (multiplier, positive, inner, bound, _power_of_two(0 - lift))


def _folded(wide: bool, *numbers: Number) -> tuple[Truth, _Marks, tuple[Number, ...]]:
    scalars = _fold(*numbers)
    return scalars.serves, *_constants(scalars, wide)


_FOLDED = [functools.partial(_folded, wide) for wide in (False, True)]


@tuned(
    "elu_backward",
    gain="2^24 FLOAT elements on two Neoverse-N1 cores: 8 to 9 ms instead of 23",
    examples=[
        _numbers(1, 1, 1), _numbers(2, 1, 1), _numbers(2, 1, 0.7), _numbers(2, 1, -0.7),
        _numbers(0.5, 1, 1), _numbers(1, 0.5, 1), _numbers(1, 1, 0.5), _numbers(1, 1, -0.5),
    ],
)  # fmt: skip
def folded(plan: Plan) -> Form | None:
    """From the input, where the product of the scalars is neither 0 nor extreme."""
    numbers = plan.numbers
    if numbers["is_result"]:
        return None
    scalars = _fold(*(float(numbers[name]) for name in NUMBERS))
    if not scalars.serves:
        return None
    dtype = plan.inputs[1].dtype.short
    if dtype == "f32" or machine().lanes > TABLE_LANES:
        return _computed(scalars, dtype)
    if element_count(plan.shape) < TABLE_FROM:
        return _computed(scalars, dtype)._replace(counts=(1, TABLE_FROM))
    return _looked_up(scalars, dtype)._replace(counts=(TABLE_FROM, ANY_COUNT[1]))


def _computed(scalars: _Folded, dtype: str) -> Form:
    """gradient * (multiplier * exp(inner * x)), or gradient * scale for positive x."""
    wide = dtype == "f32"
    marks, numbers = _constants(scalars, wide)
    name, write = _written(marks)
    name += "" if wide else ".short"  # what derives numbers has this name, too
    return Form(name, write, numbers, derive=_derivation(marks, _FOLDED[wide]))


@cache
def _written(marks: _Marks) -> tuple[str, Callable[[Site], None]]:
    """The name of such a form, and what writes it."""
    joined, unit, rising, shared, apart = marks
    span = "negative" if rising else "positive"

    def write(site: Site) -> None:
        factor, positive, inside, lowest, lifting = site.numbers
        exp = Exp(site.code, factor, span, None if unit else inside)
        deep = Exp(site.code, factor) if site.plain else None  # a table has no place for it
        bound = lowest * (DEEP / NEGATIVE_LIMIT)

        def body(shape: Shape, index: Value) -> Value:
            if deep is None:
                return usual(shape, index)
            # Of numbers below 0 those that are farther have the larger bits.
            bits = site.load(shape, 1, index).bits_as("i32")
            farthest = functools.reduce(functools.partial(intrinsic, "umax"), bits.streams())
            beyond = bound.bits_as("i32").splat(shape.lanes).below(farthest)
            return site.unless(
                beyond,
                functools.partial(usual, shape, index),
                functools.partial(whole, shape, index),
            )

        def whole(shape: Shape, index: Value) -> Value:
            assert deep is not None
            x, gradient = (site.load(shape, operand, index) for operand in (1, 0))
            lifted = gradient * lifting if shared or apart else gradient
            return (x < bound).choose(deep.scaled(lifted, inside, x), usual(shape, index))

        def usual(shape: Shape, index: Value) -> Value:
            x = site.load(shape, 1, index)
            slope = maximum(x, NEGATIVE_LIMIT if unit else lowest)
            if joined:  # NaN becomes 0, as the rule for NaN asks
                slope = intrinsic("minnum", slope, 0.0)
            slope = exp.clamped(slope)
            if not joined:
                if site.signature.inputs[1] == "f32":  # anew: K registers less in the long part
                    x = site.load(shape, 1, index, volatile=True)
                below = x <= site.zero(x.lanes)
            if apart:
                gradient = site.load(shape, 0, index)
                negative = (gradient * lifting) * slope
                return below.choose(negative, gradient * positive)
            if not joined:
                slope = below.choose(slope, positive)
            gradient = site.load(shape, 0, index)  # after the selection: registers again
            if shared:
                gradient = gradient * lifting
            return gradient * slope

        # As many streams as registers allow; one more spills and takes 1.7 times as long.
        wide = "f32" in site.signature.inputs
        site.loop(
            ((8 if joined else 7) if wide else 6) if unit and not apart else (6 if wide else 4),
            body,
        )

    kind = "joined" if joined else "plain" if unit else f"scaled.{span}"
    return f"elu.{kind}{'.lifted' * shared}{'.apart' * apart}", write


def _looked_up(scalars: _Folded, dtype: str) -> Form:
    """The factor from a table that the polynomial made: the same bits, twice as fast."""
    lifted = scalars.lift > 0

    def write(site: Site) -> None:
        by_four = site.signature.inputs[1] == "f16"
        x, zero = site.operands[1], site.code.integer(0)

        def body(shape: Shape, index: Value) -> Value:
            if 1 in site.singles:
                factor = numerics.lookup(x, zero, Shape(1, 1), site.table).lane(0).fill(shape)
            else:
                factor = numerics.lookup(x, index, shape, site.table, by_four)
            gradient = site.load(shape, 0, index)
            if lifted:
                gradient = gradient * site.numbers[0]
            return gradient * factor

        site.loop(6 if by_four else 8, body)

    name = "elu.table" + ".lifted" * lifted
    return Form(name, write, (2.0**-scalars.lift,), _table(scalars, dtype))


@lru_cache(maxsize=16)
def _table(scalars: _Folded, dtype: str) -> Any:
    """What a gradient (lifted already) is multiplied with, for every x of a 16-bit dtype."""
    scale = scalars.scale * 2.0**scalars.lift
    form = _computed(scalars._replace(scale=scale, lift=0), dtype)
    kernel = kernel_address(form, Signature(("f32", dtype), "f32", "f32", single=(0,)))
    one, every = np.ones(1, np.float32), np.arange(1 << 16, dtype=np.uint16)
    table = np.empty(1 << 16, np.float32)
    places = [array.ctypes.data for array in (one, every, table)]
    pool.launch(kernel, table.size, table.size, *constants(form), *places)
    return table


@tuned(
    "elu",
    gain="no other code; a call with other numbers finds it: 3 us instead of 200",
    examples=[
        {"alpha": 1.5, "scale": 2.0, "input_scale": inner, "limit": False} for inner in (0.0, -0.7)
    ],
)
def forward_as_written(plan: Plan) -> Form:
    """The plain form, for all that is left."""
    formula, numbers = FORMULAS["elu"], plan.numbers
    derive = None if numbers["limit"] else Derive(NUMBERS, _write_forward_numbers)
    return formula_form(formula, formula.numbers_of(numbers), formula.switches_of(numbers), derive)


def _write_forward_numbers(code: Code, numbers: list[Value]) -> tuple[Value, dict[int, Value]]:
    return ~_fold_forward(*numbers)[0], dict(enumerate(numbers))


@tuned(
    "elu_backward",
    gain="no other code; a call with other numbers finds it: 3 us instead of 200",
    examples=[_numbers(0.0, 1.0, 1.0), _numbers(1.5, 2.0, 0.7, True)],
)
def as_written(plan: Plan) -> Form:
    """The plain form, for all that is left."""
    formula, numbers = FORMULAS["elu_backward"], plan.numbers
    return formula_form(
        formula, formula.numbers_of(numbers), formula.switches_of(numbers),
        _AS_WRITTEN[bool(numbers["is_result"])],
    )  # fmt: skip


def _derive_as_written(is_result: bool) -> Derive:
    def write(code: Code, numbers: list[Value]) -> tuple[Value, dict[int, Value]]:
        serves = numbers[2] != 1.0 if is_result else ~_fold(*numbers).serves
        return serves, dict(enumerate(numbers))

    return Derive(NUMBERS, write)


_AS_WRITTEN = [_derive_as_written(is_result) for is_result in (False, True)]
