"""The CPU engine's elementwise kernels against the float64 oracle and against the NumPy engine's bits."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from conftest import WIDTHS, assert_same_but_nans, planned, vectors_of
from openaclnn.calls.plain import make_plain_function
from openaclnn.core.dtypes import FLOAT, FLOATS, dtype_of_numpy
from openaclnn.core.interop import as_tensor
from openaclnn.core.plan import Plan
from openaclnn.engines import cpu, numpy as plain
from openaclnn.engines.cpu.formulas import elementwise, forms
from openaclnn.engines.cpu.tuned import elu
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.host import machine
from openaclnn.operators import find_operator

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
DTYPES = [pytest.param(dtype.numpy, id=dtype.name) for dtype in FLOATS]
ELU, L1, SMOOTH = "elu_backward", "l1_loss_backward", "smooth_l1_loss_backward"
GRADIENT = {ELU: "grad_output", L1: "grad_output", SMOOTH: "grad_out"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy's own arithmetic on signalling NaNs and overflows is not what is tested here."""
    with np.errstate(all="ignore"):
        yield


def planned_into(out: np.ndarray, name: str, **arguments: Any) -> tuple[Plan, tuple[int, ...]]:
    return planned(find_operator(name), arguments | {"out": out})


def run(name: str, out: np.ndarray, **arguments: Any) -> np.ndarray:
    """Run our kernel into `out`."""
    plan, addresses = planned_into(out, name, **arguments)
    assert cpu.declines(plan) is None
    kernel = cpu.kernel_named(plan.kernel)
    assert kernel is not None
    runner = kernel.runner(plan)
    assert runner(addresses, 0) == 0
    return out


def numpy_result(name: str, out: np.ndarray, **arguments: Any) -> np.ndarray:
    """What the NumPy engine writes, in a fresh array laid out like `out`."""
    fresh = np.empty(out.shape, out.dtype)
    plan, addresses = planned_into(fresh, name, **arguments)
    plain.prepare(plan)(addresses, 0)
    return fresh


def ulps(ours: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of our dtype; overflow counts as such."""
    rounded = exact.astype(ours.dtype)
    wide, finite = ours.astype(np.float64), np.isfinite(rounded.astype(np.float64))
    np.testing.assert_array_equal(wide[~finite], rounded.astype(np.float64)[~finite])
    spacing = np.abs(np.spacing(rounded[finite]).astype(np.float64))
    return float((np.abs(wide[finite] - exact[finite]) / spacing).max(initial=0.0))


def numbers(rng: np.random.Generator, shape: Any, dtype: np.dtype) -> np.ndarray:
    """Values with ties and both zeros among them."""
    return np.round(3 * rng.normal(size=shape), 1).astype(dtype)


LAYOUTS = {
    "contiguous": lambda make, shape: make(shape),
    "transposed": lambda make, shape: make(shape[::-1]).transpose(),
    "swapped": lambda make, shape: (
        make((*shape[:-2], *shape[-2:][::-1])).swapaxes(-1, len(shape) - 2)
        if len(shape) > 1
        else make(shape)
    ),
    "sliced": lambda make, shape: make(tuple(n + 3 for n in shape))[
        tuple(slice(2, 2 + n) for n in shape)
    ],
    "stepped": lambda make, shape: make(tuple(2 * n + 1 for n in shape))[
        tuple(slice(1, 1 + 2 * n, 2) for n in shape)
    ],
    "negative": lambda make, shape: make(shape)[(slice(None, None, -1),) * len(shape)],
    "column": lambda make, shape: np.broadcast_to(make((*shape[:-1], 1)), shape),
    "row": lambda make, shape: np.broadcast_to(make(shape[-1:]), shape),
    "scalar": lambda make, shape: np.broadcast_to(make(()), shape),
}
WRITABLE = ("contiguous", "transposed", "swapped", "sliced", "stepped", "negative")
OPTIONS = {
    ELU: [
        {"is_result": True},
        {"alpha": 1.3, "scale": 1.1, "input_scale": 0.7, "is_result": True},
        {},
        {"alpha": 1.6732632, "scale": 1.050701},
        {"alpha": 1.3, "scale": 1.1, "input_scale": 0.7},
        {"alpha": 0.5, "input_scale": -0.5},
        {"alpha": 0.0, "scale": 2.0},
    ],
    L1: [{"reduction": "none"}, {"reduction": "mean"}],
    SMOOTH: [
        {"reduction": reduction, "beta": beta}
        for reduction in ("none", "mean")
        for beta in (0.0, 1e-30, 0.7, 1.0, 4.0, np.inf)
    ],
}


def operands(name: str, *arrays: np.ndarray) -> dict[str, np.ndarray]:
    keys = (GRADIENT[name], "self_or_result") if name == ELU else (GRADIENT[name], "self", "target")
    return dict(zip(keys, arrays, strict=False))


def check(
    name: str, out: np.ndarray, options: dict[str, Any], inputs: dict[str, Any], **more: Any
) -> None:
    """Our result against NumPy's bits where they are promised, else against the oracle."""
    ours = run(name, out, **inputs, **options, **more)
    if name == ELU and not options.get("is_result") and options.get("alpha") != 0:
        exact = find_operator(name).oracle(**inputs, **options)
        naive = ulps(numpy_result(name, out, **inputs, **options), exact)
        bound = 2.3 if out.dtype == F32 else max(0.501, naive)
        assert ulps(np.ascontiguousarray(ours), np.ascontiguousarray(exact)) <= bound
    else:
        assert_same_but_nans(ours, numpy_result(name, out, **inputs, **options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.in_turns
def test_every_size_around_the_vector_widths(name: str, dtype: np.dtype) -> None:
    rng = np.random.default_rng(1)
    for place, options in enumerate(OPTIONS[name]):
        sizes = (*range(1, 70), 255, 256, 257, 1000, 4097)
        for size in sizes[place % 3 :: 3] if place else sizes:
            inputs = operands(name, *(numbers(rng, size, dtype) for _ in range(3)))
            check(name, np.full(size, np.nan, dtype), options, inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.in_turns
def test_every_layout(name: str, dtype: np.dtype) -> None:
    rng = np.random.default_rng(2)

    def make(shape: Any) -> np.ndarray:
        return numbers(rng, shape, dtype)

    # Each formula is compiled for each way to lie; how they meet is the same for all.
    chosen = OPTIONS[name][::3] if dtype == F32 else OPTIONS[name][-4:][:1]
    for shape in ((1,), (37,), (5, 1), (3, 70), (65, 40), (4, 3, 5), (2, 19, 3, 23), (20, 300)):
        pairs = [*itertools.product(LAYOUTS, LAYOUTS)]
        # How elements lie is FLOAT's affair as much as that of 16 bits, and each shape's as much as another's.
        every = 2 if dtype == F32 else 4
        for first, second in pairs[rng.integers(every) :: every]:
            third = list(LAYOUTS)[rng.integers(len(LAYOUTS))]
            target = LAYOUTS[WRITABLE[rng.integers(len(WRITABLE))]]
            inputs = operands(
                name, *(LAYOUTS[kind](make, shape) for kind in (first, second, third))
            )
            options = chosen[rng.integers(len(chosen))]
            check(name, target(make, shape), options, inputs)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.in_turns
def test_every_mixture_of_dtypes(name: str) -> None:
    """Of any three operands all; the output has one dtype beside three inputs, and another for the other operator."""
    rng = np.random.default_rng(3)
    every = [dtype.numpy for dtype in FLOATS]
    for places in itertools.product(range(3), repeat=2 if name == ELU else 3):
        if name == ELU:
            places = (places[0], *places)  # inputs of one dtype
        else:
            places = (*places, sum(places, start=name == L1) % 3)
        *read, written = [every[place] for place in places]
        inputs = operands(name, *(numbers(rng, 67, dtype) for dtype in read))
        options = OPTIONS[name][1]
        out = run(name, np.empty(67, written), **inputs, **options)
        assert_same_but_nans(out, numpy_result(name, out, **inputs, **options))


def test_elu_rounds_twice_where_the_output_has_another_dtype() -> None:
    rng = np.random.default_rng(4)
    for dtype in (F16, BF16):
        inputs = operands(ELU, numbers(rng, 1 << 16, dtype), numbers(rng, 1 << 16, dtype))
        narrow = run(ELU, np.empty(1 << 16, dtype), **inputs)
        for other in (F32, F16, BF16):
            out = run(ELU, np.empty(1 << 16, other), **inputs)
            assert_same_but_nans(out, narrow.astype(other))


def test_output_gaps_keep_their_bytes() -> None:
    for dtype in (F32, F16, BF16):
        memory = np.full((40, 90), 7, dtype)
        out = memory[1:39:2, 3:83:4]
        x = numbers(np.random.default_rng(5), out.shape, dtype)
        run(ELU, out, grad_output=x, self_or_result=x.copy())
        mask = np.ones(memory.shape, bool)
        mask[1:39:2, 3:83:4] = False
        assert (memory[mask] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "stepped"])
def test_in_place(dtype: np.dtype, layout: str) -> None:
    rng = np.random.default_rng(6)
    for name in OPTIONS:
        for position in range(2):
            arrays = [
                LAYOUTS[layout](lambda s: numbers(rng, s, dtype), (130, 70)) for _ in range(3)
            ]
            expected = run(name, np.empty((130, 70), dtype), **operands(name, *arrays))
            out = arrays[position]
            assert_same_but_nans(run(name, out, **operands(name, *arrays)), expected)


# --- the 16-bit dtypes, every pattern ---------------------------------------------------------------------


def every_pattern(dtype: np.dtype) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", [L1, SMOOTH])
@pytest.mark.in_turns
def test_every_16_bit_value_of_a_pair(name: str, dtype: np.dtype) -> None:
    x = every_pattern(dtype)
    special = np.array([0, -0.0, 1, -2.5, np.inf, -np.inf, np.nan, 6e4, 1e-7], dtype)
    for place, options in enumerate(OPTIONS[name]):
        for value in special[place % 2 :: 2]:
            fixed = np.full_like(x, value)
            for arrays in (
                (x, fixed, special[1:2]),
                (fixed, x, special[3:4]),
                (fixed, special[2:3], x),
            ):
                check(name, np.empty_like(x), options, operands(name, *arrays))
            check(name, np.empty_like(x), options, operands(name, fixed, x, x[::-1]))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_every_16_bit_elu_input_by_table_and_by_polynomial(
    dtype: np.dtype, monkeypatch: Any
) -> None:
    x = every_pattern(dtype)
    rng = np.random.default_rng(7)
    gradient = numbers(rng, x.size, dtype)
    gradient[::7] = np.nan
    # Infinity times an exponential that has vanished is NaN; in float64 it vanishes later.
    gradient[::11] = np.where(x[::11] > -100, np.inf, 1).astype(dtype)
    for options in OPTIONS[ELU]:
        inputs = operands(ELU, gradient, x)
        results = []
        for lanes in (16, 0):  # by table everywhere, nowhere
            with monkeypatch.context() as patch:
                patch.setattr(elu, "TABLE_LANES", lanes)
                results.append(run(ELU, np.empty_like(x), **inputs, **options))
        by_table, by_polynomial = results
        assert_same_but_nans(by_table, by_polynomial)
        exact = find_operator(ELU).oracle(**inputs, **options)
        # Zero times an exponential that float32 cannot hold is NaN, in the document's steps in float32 as in ours.
        arguments = find_operator(ELU).reference_arguments(**inputs, **options)
        theirs = find_operator(ELU).reference(**arguments, work=np.float32).astype(dtype)
        nans = np.isnan(by_table.astype(np.float32))
        either = np.isnan(exact), np.isnan(theirs.astype(np.float32))
        assert not (nans & ~(either[0] | either[1])).any()
        assert nans[either[0] & either[1]].all()
        kept = ~(nans | either[0] | either[1])
        assert ulps(by_table[kept], exact[kept]) <= max(0.501, ulps(theirs[kept], exact[kept]))


def test_no_nan_is_lost_in_rounding_to_bfloat16() -> None:
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7FC00000], np.uint32)
    gradient = patterns.view(np.float32)
    ones, zeros = np.ones(5, np.float32), np.zeros(5, np.float32)
    for name in (L1, SMOOTH):
        out = run(
            name, np.zeros(5, BF16), **operands(name, gradient, ones, zeros), reduction="none"
        )
        assert np.isnan(out.astype(np.float32)).all()
    half = np.array([0x7C01, 0x7FFF, 0xFFFF, 0xFC01, 0x7E00], np.uint16).view(np.float16)
    assert np.isnan(
        run(ELU, np.zeros(5, BF16), grad_output=half, self_or_result=half).astype(F32)
    ).all()
    odd = float(np.array(0x7FFFFFFF, np.uint32).view(np.float32))
    x = np.ones(5, BF16)
    assert np.isnan(
        run(ELU, np.zeros(5, BF16), grad_output=x, self_or_result=x, scale=odd).astype(F32)
    ).all()


# --- float32 exponentials ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({}, -110.0, 1.0),
        ({"alpha": 1.6732632, "scale": 1.050701}, -110.0, 1.0),
        ({"alpha": -3.7, "scale": 0.01}, -110.0, 1.0),
        ({"alpha": 1e-20, "scale": 2.0}, -60.0, 1.0),
        ({"alpha": 1e20}, -110.0, 1.0),
        ({"alpha": 1.3, "input_scale": 0.7}, -150.0, 1.0),
        ({"alpha": 1.3, "input_scale": 3.3}, -33.0, 1.0),
        ({"alpha": 0.3, "input_scale": -0.7}, -140.0, 1.0),
        ({"alpha": 1.0, "input_scale": -1.0}, -95.0, 1.0),
    ],
)
@pytest.mark.in_turns
def test_float32_exponentials_are_within_2_ulp(options: Any, low: float, high: float) -> None:
    """A dense sweep, gradient 1: results, subnormal ones included, within 2 ulp; overflow where it belongs."""
    x = np.linspace(low, high, 3_000_001).astype(np.float32)
    ones = np.ones_like(x)
    ours = run(ELU, np.empty_like(x), grad_output=ones, self_or_result=x, **options)
    exact = find_operator(ELU).oracle(ones, x, **options)
    # Below 2^-149 the exponential itself is nothing; a large multiplier would make something of it.
    kept = np.float64(x) * options.get("input_scale", 1.0) > -104.3
    assert ulps(ours[kept], exact[kept]) <= 2.0
    assert (np.abs(ours[~kept]) <= 1.001 * np.abs(exact[~kept]) + 2.0**-149).all()


def test_float32_elu_of_any_gradient_is_within_2_ulp() -> None:
    """PyTorch's errors on the same data: 1.8, 2.6, 1.8 and, as it rounds inputScale * x, 18 ulp."""
    rng = np.random.default_rng(8)
    x = (-40 * rng.random(1 << 21)).astype(np.float32)
    gradient = rng.normal(size=x.size).astype(np.float32)
    for options, bound in (
        ({}, 2.0), ({"alpha": 1.6732632, "scale": 1.050701}, 2.0), ({"alpha": 0.3}, 2.0),
        ({"alpha": 1.3, "input_scale": 0.7}, 2.3),
    ):  # fmt: skip
        ours = run(ELU, np.empty_like(x), grad_output=gradient, self_or_result=x, **options)
        assert ulps(ours, find_operator(ELU).oracle(gradient, x, **options)) <= bound


def test_exponential_overflows_where_it_should() -> None:
    x = np.array([-88.72, -88.73, -89.5, -1000.0, -np.inf], np.float32)
    ones = np.ones_like(x)
    out = run(ELU, np.empty_like(x), grad_output=ones, self_or_result=x, input_scale=-1.0)
    assert np.isfinite(out[0])
    assert (out[1:] == -np.inf).all()
    out = run(ELU, np.empty_like(x), grad_output=ones, self_or_result=x)
    assert (out[:3] > 0).all()  # subnormal, not flushed
    assert (out[3:] == 0).all()


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    -1e-45,
    3.4e38,
    -3.4e38,
    np.inf,
    -np.inf,
    np.nan,
    -100.0,
    -88.0,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_result", [False, True])
def test_special_scalars_and_values_of_elu(dtype: np.dtype, is_result: bool) -> None:
    values = np.array(SPECIAL).astype(dtype)
    gradients = values[
        np.abs(values) != values[4]
    ]  # with the least subnormal, everything is rounding
    gradient, x = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(gradients, values))
    scalars = (0.0, -0.0, 1.0, -2.0, 0.3, 1e-40, 1e30, np.inf, -np.inf, np.nan)
    # Every third of all: each two of them meet with some of the others.
    for alpha, scale, inner in [*itertools.product(scalars, scalars, scalars)][::3]:
        if is_result and alpha < 0:
            continue
        options = {"alpha": alpha, "scale": scale, "input_scale": inner, "is_result": is_result}
        inputs = operands(ELU, gradient, x)
        ours = run(ELU, np.empty_like(x), **inputs, **options).astype(np.float64)
        theirs = numpy_result(ELU, x, **inputs, **options).astype(np.float64)
        exact = find_operator(ELU).oracle(**inputs, **options)
        exact = exact.astype(dtype).astype(np.float64)
        # The document's order in float32 and the exact value differ where an intermediate result
        # overflows or vanishes; ours may side with either. A subnormal exponential has few digits.
        tolerance = {4: 1e-6, 2: 1e-2}[dtype.itemsize]
        least = {F32: 2.0**-149, F16: 2.0**-24, BF16: 2.0**-133}[dtype]
        steps = 2 * least + np.nan_to_num(np.abs(gradient.astype(np.float64)), posinf=0) * 2.0**-148
        close = [
            np.isclose(ours, other, rtol=tolerance, atol=steps, equal_nan=True)
            for other in (theirs, exact)
        ]
        assert (close[0] | close[1]).all(), options


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_of_pairs(dtype: np.dtype) -> None:
    values = np.array(SPECIAL).astype(dtype)
    grids = [np.ascontiguousarray(a.ravel()) for a in np.meshgrid(values, values, values)]
    for name in (L1, SMOOTH):
        for options in OPTIONS[name]:
            inputs = operands(name, *grids)
            ours = run(name, np.empty_like(grids[0]), **inputs, **options)
            theirs = numpy_result(name, ours, **inputs, **options)
            if options.get("beta") == 0.7:  # a subnormal quotient may differ in its last place
                np.testing.assert_allclose(
                    ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-6, atol=3e-45
                )
            else:
                assert_same_but_nans(ours, theirs)


# --- machines and geometry --------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, *WIDTHS])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.in_turns
def test_lane_counts_give_the_same_bits(lanes: int, dtype: np.dtype) -> None:
    rng = np.random.default_rng(9)
    for name in OPTIONS:
        for size, options in itertools.product((5, 997), OPTIONS[name]):
            inputs = operands(name, *(numbers(rng, size, dtype) for _ in range(3)))
            here = run(name, np.empty(size, dtype), **inputs, **options)
            with vectors_of(lanes):
                assert_same_but_nans(run(name, np.empty(size, dtype), **inputs, **options), here)


def test_positions_beyond_32_bits() -> None:
    """A kernel told to start far on, with addresses moved back as far."""
    x = numbers(np.random.default_rng(10), 100, F32)
    out, expected = np.empty_like(x), np.empty_like(x)
    run(ELU, expected, grad_output=x, self_or_result=x)
    form = elementwise.form_of(planned_into(out, ELU, grad_output=x, self_or_result=x)[0])
    address = forms.kernel_address(form, forms.Signature(("f32",) * 2, "f32", "f32"))
    start = 5 << 31
    moved = [array.ctypes.data - 4 * start for array in (x, x, out)]
    block = (ctypes.c_int64 * 16)(0, *forms.constants(form), *moved)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    kernel(ctypes.addressof(block), start, start + x.size)
    assert_same_but_nans(out, expected)


def test_strides_beyond_32_bits() -> None:
    with mmap.mmap(-1, 1 << 35, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) as memory:
        far = np.frombuffer(memory, np.float32)[:: 1 << 32].reshape(1, 2)
        far[0] = -1, 2
        x = np.broadcast_to(far, (40, 2))
        out = run(ELU, np.empty((40, 2), F32), grad_output=np.ones((40, 2), F32), self_or_result=x)
        np.testing.assert_allclose(out, np.broadcast_to([[np.exp(-1.0), 1]], (40, 2)), rtol=1e-6)
        del far, x


def test_mixed_integer_and_wide_operands_are_declined() -> None:
    x = np.ones(3, F32)
    plan, _ = planned_into(np.empty(3, np.float64), L1, grad_output=x, self=x, target=x)
    assert "NumPy" in (cpu.declines(plan) or "")
    plan, _ = planned_into(np.empty(3, F32), L1, grad_output=x, self=np.ones(3, np.int32), target=x)
    assert "NumPy" in (cpu.declines(plan) or "")
    assert cpu.unavailable() is None
    assert cpu.DEVICES == ("cpu",)


def test_unknown_kernels_are_declined() -> None:
    x = np.ones(3, F32)
    plan, _ = planned_into(np.empty(3, F32), L1, grad_output=x, self=x, target=x)
    other = Plan("x", "no_such", FLOAT, plan.shape, plan.inputs, plan.output, plan.numbers)
    assert "no_such" in (cpu.declines(other) or "")


def test_warmup_visits_every_formula_and_every_tuned_form() -> None:
    plans = [plan for plan in cpu.variants() if plan.kernel in FORMULAS]
    assert all(cpu.declines(plan) is None for plan in plans)
    assert {plan.kernel for plan in plans} == set(FORMULAS)
    for name, tuned in forms.TUNED.items():
        of_formula = [plan for plan in plans if plan.kernel == name]
        for form in tuned:
            assert any(form.choose(plan) is not None for plan in of_formula)


def test_machine_facts() -> None:
    facts = machine()
    assert facts.lanes in (4, 8, 16)
    assert dtype_of_numpy(F32) is FLOAT
    assert as_tensor(np.ones(1, F32)).dtype is FLOAT
    assert cache.machine_key().startswith("openaclnn|")


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of 4 KB: with two inputs, 341 results and more go past them."""
    monkeypatch.setattr(forms, "last_cache", lambda: 1 << 12)


def arguments_of(name: str, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    parameters = find_operator(name).parameters
    arrays = [
        parameter.python_name
        for parameter in parameters
        if parameter.is_tensor and parameter.python_name != "out"
    ]
    return {array_name: rng.standard_normal(count).astype(F32) for array_name in arrays}


@pytest.mark.parametrize("name", [ELU, L1, SMOOTH])
def test_many_results_go_past_the_caches_and_are_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = np.zeros(4 * 1100, np.uint8)
    line = -memory.ctypes.data % 64
    for count, shift in [(341, 4), (400, 60), (1000, 0), (1000, 12), (1000, 2)]:
        arguments = arguments_of(name, count)
        wanted = run(name, np.empty(count, F32), **arguments)
        start, stop = line + shift, line + shift + 4 * count
        memory[:] = 7
        out = memory[start:stop].view(F32)  # its start need not be a multiple of 4
        with monkeypatch.context() as patch:
            patch.setattr(forms, "last_cache", lambda: 1 << 12)
            patch.setattr(forms, "_addresses", {})
            run(name, out, **arguments)
            assert [past for *_, past in forms._addresses] == [not machine().neon]
        assert out.tobytes() == wanted.tobytes()
        assert set(memory[:start]) | set(memory[stop:]) == {7}


def test_a_road_has_a_kernel_for_few_results_and_one_for_many(small_caches: None) -> None:
    call = make_plain_function(find_operator(ELU))
    for count in (340, 341, 340, 10, 2000, 341, 5):
        arguments = arguments_of(ELU, count)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forms, "last_cache", lambda: 1 << 30)
            wanted = run(ELU, np.empty(count, F32), **arguments)
        assert call(**arguments).tobytes() == wanted.tobytes()
