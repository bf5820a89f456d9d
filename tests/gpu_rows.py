"""Row formulas on a real GPU: `python -m pytest tests/gpu_rows.py` (a name pytest does not collect)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import openaclnn.engines.formulas.softmax  # noqa: F401
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, DType
from openaclnn.core.interop import as_tensor
from openaclnn.core.plan import Plan, class_plan
from openaclnn.engines import gpu
from openaclnn.engines.formulas.rows import ROW_FORMULAS

NAMES = ("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")
TORCH: dict[DType, Any] = {FLOAT: torch.float32, FLOAT16: torch.float16, BFLOAT16: torch.bfloat16}
names = pytest.mark.parametrize("name", NAMES)
dtypes = pytest.mark.parametrize("dtype", TORCH, ids=str)

# Shape and class axis: one warp, several, dealt out, held, streamed, shared; rows that begin anywhere; planes of all alignments.
SHAPES = [
    ((300_000, 2), 1), ((9_000, 21), 1), ((5_000, 64), 1), ((3_000, 150), 1), ((700, 1000), 1), ((300, 2048), 1),
    ((100, 5000), 1), ((60, 8192), 1), ((40, 16384), 1), ((30, 20001), 1), ((20, 32000), 1), ((15, 50257), 1),
    ((9, 131072), 1), ((5, 150001), 1), ((3, 400_000), 1), ((4, 19, 71, 73), 1), ((4, 21, 64, 64), 1),
    ((3, 150, 32, 34), 1), ((5, 1000, 16, 16), 1), ((2, 1000, 767), 1), ((9, 3, 225, 225), 1), ((5000, 64, 3), 1),
    ((40_001, 7), 1), ((9_001, 37), 1), ((5_001, 101), 1), ((300, 2001), 1), ((90, 8193), 1), ((70, 50257), 1), ((66, 131072), 1),
    ((2, 5000, 7, 9), 1), ((1000, 700), 0), ((3, 5, 7), 2), ((13,), 0), ((6, 1, 4), 1),
]  # fmt: skip


def exact(name: str, inputs: Sequence[torch.Tensor], axis: int) -> torch.Tensor:
    """In float64."""
    first, *others = [tensor.double() for tensor in inputs]
    if name in ("softmax", "log_softmax"):
        function = torch.softmax if name == "softmax" else torch.log_softmax
        return function(first, axis)
    (result,) = others
    if name == "softmax_backward":
        return (first - (first * result).sum(axis, keepdim=True)) * result
    return first - result.exp() * first.sum(axis, keepdim=True)


def drawn(name: str, dtype: DType, shape: tuple[int, ...], axis: int) -> list[torch.Tensor]:
    torch.manual_seed(len(shape) + shape[axis])
    x = (torch.randn(shape, device="cuda") * 4).to(TORCH[dtype])
    if not name.endswith("backward"):
        return [x]
    return [torch.randn(shape, device="cuda").to(TORCH[dtype]), exact(name[:-9], [x], axis).to(TORCH[dtype])]  # fmt: skip


def planned(
    name: str, dtype: DType, inputs: Sequence[torch.Tensor], out: torch.Tensor, axis: int
) -> tuple[Plan, tuple[int, ...]]:
    operands = [
        (operand, as_tensor(tensor), "full")
        for (operand, _), tensor in zip(ROW_FORMULAS[name].operands, inputs, strict=True)
    ]
    plan = class_plan(
        "aclnn", name, dtype, operands, [("out", as_tensor(out), "full")], tuple(out.shape), axis, -1, {}
    )  # fmt: skip
    assert gpu.declines(plan) is None
    return plan, tuple(tensor.data_ptr() for tensor in (*inputs, out))


def stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream)


def assert_near(name: str, dtype: DType, inputs: Sequence[torch.Tensor], out: torch.Tensor, axis: int) -> None:  # fmt: skip
    """Of what float64 gives: FLOAT as far off as exponents and sums of FLOAT are, 16 bits rounded once. What is summed in pairs is rounded as often
    as it has pairs: each time by half an ulp of the sum, which is that of 1 where one class has all, however little the logarithm is."""
    wanted, got = exact(name, inputs, axis), out.double()
    assert torch.equal(torch.isnan(wanted), torch.isnan(got))
    terms = wanted.abs()
    if name.endswith("backward"):  # whose terms cancel
        gradient, result = (tensor.double() for tensor in inputs)
        factor = result.exp() if name.startswith("log") else result
        weighed = gradient if name.startswith("log") else gradient * result
        terms = gradient.abs() * (1 if name.startswith("log") else factor.abs()) + factor.abs() * weighed.abs().sum(axis, keepdim=True)  # fmt: skip
    elif name == "softmax":  # an exponent is as far off as it is long
        (x,) = (tensor.double() for tensor in inputs)
        terms = wanted * (x.amax(axis, keepdim=True) - x + 2)
    else:
        terms = terms + 1
    half = {FLOAT: 2.0**-24, FLOAT16: 2.0**-11, BFLOAT16: 2.0**-8}[dtype]
    least = {FLOAT: 0.0, FLOAT16: 2.0**-25, BFLOAT16: 0.0}[dtype]
    roundings = 8 + math.log2(wanted.shape[axis])
    bound = terms * roundings * 2.0**-24 + wanted.abs() * half + least + 1e-37
    worse = (got - wanted).abs() > bound
    assert not bool((worse & torch.isfinite(wanted)).any()), float(((got - wanted).abs() / bound).nan_to_num().max())  # fmt: skip


def run_checked(name: str, dtype: DType, inputs: Sequence[torch.Tensor], out: torch.Tensor, axis: int) -> None:  # fmt: skip
    """The plan's own runner, twice; then runners of any size and stride, by Python and by machine code: always the same bits."""
    plan, addresses = planned(name, dtype, inputs, out, axis)
    run = gpu.prepare(plan)
    assert run(addresses, stream()) == 0
    assert_near(name, dtype, inputs, out, axis)
    first = out.clone()
    sized = gpu.dynamic_shapes(plan)
    for again in (run, *(lambda *a: sized(*a, tuple(out.shape), ()) for _ in range(3) if sized)):  # type: ignore[misc]
        out.fill_(7)
        assert again(addresses, stream()) == 0
        assert torch.equal(out.view(torch.int16), first.view(torch.int16))


@names
@dtypes
def test_shapes(name: str, dtype: DType) -> None:
    for shape, axis in SHAPES:
        inputs = drawn(name, dtype, shape, axis)
        run_checked(name, dtype, inputs, torch.empty(shape, dtype=TORCH[dtype], device="cuda"), axis)  # fmt: skip


def off_bounds(tensor: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")
    return memory[1:].view(tensor.shape).copy_(tensor)


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    memory = torch.empty((*tensor.shape[:-1], tensor.shape[-1] + 3), dtype=tensor.dtype, device="cuda")  # fmt: skip
    return memory[..., 1:-2].copy_(tensor)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


@names
@pytest.mark.parametrize("laid", [off_bounds, with_gaps, transposed])
def test_layouts(name: str, laid: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Operands and results, of few elements and of many."""
    for dtype, (shape, axis) in zip(
        [*TORCH] * 4,
        [((50, 37), 1), ((3000, 150), 1), ((20, 40, 33), 1), ((200, 21, 130), 1), ((70, 5000), 1), ((9, 50257), 1)],
        strict=False,
    ):  # fmt: skip
        inputs = [laid(tensor) for tensor in drawn(name, dtype, shape, axis)]
        out = laid(torch.empty(shape, dtype=TORCH[dtype], device="cuda"))
        plan, addresses = planned(name, dtype, inputs, out, axis)
        assert gpu.prepare(plan)(addresses, stream()) == 0
        assert_near(name, dtype, inputs, out, axis)


@pytest.mark.parametrize("classes", [19, 150, 5000, 50257, 131072, 400_000])
def test_special_values(classes: int) -> None:
    """NaN and infinities, alone, together, and as all there is."""
    nan, inf = float("nan"), float("inf")
    for name in NAMES[:2]:
        x = torch.randn(9, classes, device="cuda")
        x[0, 3], x[1, 5], x[2, 7], x[3, 1], x[3, 2], x[4, classes - 1] = (
            nan,
            inf,
            -inf,
            inf,
            -inf,
            nan,
        )
        x[5], x[6], x[7, :-1], x[8] = -inf, inf, -inf, 3e38
        out = torch.empty_like(x)
        run_checked(name, FLOAT, [x], out, 1)
        assert torch.equal(out[5].isnan(), torch.ones_like(out[5], dtype=torch.bool))


def test_in_place() -> None:
    for shape in ((3000, 150), (20, 50257), (9, 131072), (4, 19, 71, 73)):
        for name in NAMES:
            inputs = drawn(name, FLOAT, shape, 1)
            expected = torch.empty_like(inputs[0])
            run_checked(name, FLOAT, inputs, expected, 1)
            plan, addresses = planned(name, FLOAT, inputs, inputs[0], 1)
            assert gpu.prepare(plan)(addresses, stream()) == 0
            assert torch.equal(inputs[0], expected)


@pytest.mark.parametrize(("shape", "axis"), [((70_000, 32_768), 1), ((9, 300, 300_001), 1)])
def test_more_elements_than_32_bits_count(shape: tuple[int, ...], axis: int) -> None:
    """The first and the last positions."""
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    out = torch.full_like(x, 7)
    plan, addresses = planned("softmax", BFLOAT16, [x], out, axis)
    assert gpu.prepare(plan)(addresses, stream()) == 0
    for part in (slice(0, 2), slice(-2, None)):
        assert_near("softmax", BFLOAT16, [x[part]], out[part], axis)
