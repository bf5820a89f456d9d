"""The Triton engine on a real GPU: `python -m pytest tests/gpu_device.py` (a name pytest does not collect)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as theirs

import openaclnn
from conftest import WITHOUT_AXIS, assert_matches_oracle, floats_of, plain, tensor_names
from openaclnn.core.call import AUTO, bind_plain
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, DType
from openaclnn.core.interface import REQUIRED
from openaclnn.core.interop import as_tensor
from openaclnn.core.plan import Plan, elementwise_plan
from openaclnn.core.products import current_product
from openaclnn.engines import gpu
from openaclnn.engines.formulas import FORMULAS, described
from test_gpu_formulas import (
    NUMBERS,
    RANGES,
    assert_within_ulps,
    four_and_six,
    one_and_none,
    word_fma,
)
from workloads import cases_of

names = pytest.mark.parametrize("operator", WITHOUT_AXIS, ids=lambda op: op.python_name)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)

Arguments = dict[str, Any]


def find(name: str) -> Operator:
    return openaclnn.find_operator(name)


def torch_dtype(dtype: DType) -> torch.dtype:
    kind: torch.dtype = getattr(torch, dtype.torch_name)
    return kind


def to_device(value: Any) -> Any:
    """Arrays as CUDA tensors of the same dtype; what is no array stays."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16).cuda()
    return torch.from_numpy(value.copy()).cuda()


def to_host(value: torch.Tensor) -> np.ndarray[Any, Any]:
    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def placed(tensor: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The values in another layout, and the whole memory beneath, full of a canary byte elsewhere."""
    shape = tuple(tensor.shape)
    sizes: tuple[int, ...]
    if layout == "transposed":
        sizes = shape[::-1]
    elif layout == "sliced":
        sizes = tuple(2 * size + 1 for size in shape)
    elif layout == "gaps in rows" and shape:
        sizes = (*shape[:-1], shape[-1] + 5)
    else:
        sizes = (tensor.numel() + 3,)
    base = torch.empty(sizes, dtype=tensor.dtype, device="cuda")
    base = base.view(-1) if not sizes else base
    base.view(-1).view(torch.uint8).fill_(0xA5)
    base = base.view(sizes)
    if layout == "transposed":
        view = base.permute(tuple(range(base.ndim))[::-1])
    elif layout == "sliced":
        view = base[tuple(slice(1, 2 * size + 1, 2) for size in shape)]
    elif layout == "gaps in rows" and shape:
        view = base[..., 3 : 3 + shape[-1]]
    else:  # one element off, so that no address is aligned
        view = base[1 : 1 + tensor.numel()].view(shape)
    view.copy_(tensor)
    return view, base


LAYOUTS = ("contiguous", "transposed", "sliced", "gaps in rows")


def some_cases(operator: Operator, dtype: DType, seed: int = 7) -> Iterator[Arguments]:
    yield from cases_of(operator, np.random.default_rng(seed), dtype)


def on_device(arguments: Arguments) -> Arguments:
    return {name: to_device(value) for name, value in arguments.items()}


def plan_of(operator: Operator, arguments: Arguments) -> tuple[Plan, list[int]]:
    """The plan of a plain call with `out`, and its addresses: what `prepare` and its runner take."""
    values = {
        p.python_name: arguments.get(p.python_name, None if p.default is REQUIRED else p.default)
        for group in operator.plain_parameters
        for p in group
    }
    values["out"] = arguments["out"]
    call = bind_plain(operator, values, current_product())
    assert call[operator.output.name] is not AUTO
    plan = operator.plan(call)
    return plan, [call.tensor(o.parameter).address for o in (*plan.inputs, plan.output)]


def engine_call(operator: Operator, arguments: Arguments) -> Callable[[], Any]:
    """The engine alone: no binding and no checks, on torch's current stream."""
    plan, addresses = plan_of(operator, arguments)
    assert gpu.declines(plan) is None
    runner = gpu.prepare(plan)
    keep = arguments
    return lambda: runner(addresses, torch.cuda.current_stream().cuda_stream) or keep


# Correctness


@names
@dtypes
def test_cases(operator: Operator, dtype: DType) -> None:
    for arguments in some_cases(operator, dtype):
        got = plain(operator)(**on_device(arguments))
        assert got.is_cuda
        assert_matches_oracle(operator, arguments, to_host(got))


def bits(tensor: Any) -> Any:
    return tensor.reshape(-1).view(torch.uint8)


@names
@dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(operator: Operator, dtype: DType, layout: str) -> None:
    other = LAYOUTS[(LAYOUTS.index(layout) + 1 + FLOATS.index(dtype)) % len(LAYOUTS)]
    for arguments in [*some_cases(operator, dtype, 11)][LAYOUTS.index(layout) % 2 :: 2]:
        moved = on_device(arguments)
        dense = plain(operator)(**moved)
        for name in tensor_names(operator):
            if isinstance(moved.get(name), torch.Tensor):
                moved[name], _ = placed(moved[name], layout)
        view, memory = placed(torch.zeros_like(dense), other)
        plain(operator)(**moved, out=view)
        assert_matches_oracle(operator, arguments, to_host(view))
        view.zero_()
        _, untouched = placed(torch.zeros_like(dense), other)
        assert torch.equal(bits(memory), bits(untouched))


@names
@dtypes
def test_in_place(operator: Operator, dtype: DType) -> None:
    """Sizes of many programs, so that one that read late would read what another wrote."""
    pattern = operator.workloads.PATTERN
    if pattern == "pixels":
        return  # it reads nothing that lies like its output
    arguments = device_arguments(operator, dtype, (999_999,) if pattern != "rows" else (301, 5003))
    fitting = [name for name in tensor_names(operator) if name in arguments]
    for name in fitting if pattern == "elementwise" else ["log_prob"]:
        separate = plain(operator)(**arguments)
        again = {k: v.clone() if torch.is_tensor(v) else v for k, v in arguments.items()}
        got = plain(operator)(**again, out=again[name])
        assert torch.equal(bits(got), bits(separate))


@dtypes
def test_special_values(dtype: DType) -> None:
    """The same NaN, infinities and signs of zero as the NumPy kernels."""
    inf, nan = np.inf, np.nan
    values = np.array([0.0, -0.0, 1, -1, 1e-3, -88, -100, 88.5, 1e30, inf, -inf, nan])
    options: dict[str, list[Arguments]] = {
        "elu_backward": [{}, {"scale": -2.0, "input_scale": 0.5}, {"is_result": True}],
        "smooth_l1_loss_backward": [{"beta": beta} for beta in (0.0, 0.7, 1.0, inf)],
        "l1_loss_backward": [{}],
    }
    for name, variants in options.items():
        operator = find(name)
        tensors = tensor_names(operator)
        with np.errstate(over="ignore"):  # 1e30 as FLOAT16
            grids = np.meshgrid(*[values.astype(dtype.numpy)] * len(tensors))
        for variant in variants:
            arguments = dict(zip(tensors, grids, strict=True)) | variant
            got = to_host(plain(operator)(**on_device(arguments))).astype(np.float64)
            with openaclnn.use_engine("numpy"):
                expected = plain(operator)(**arguments).astype(np.float64)
            rtol = {4: 1e-6}.get(dtype.itemsize, 2.0**-7)
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=1.2e-38, err_msg=name)
            zero = (expected == 0) & (got == 0)
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


def run_formula(
    function: Callable[..., Any], inputs: list[torch.Tensor], out: torch.Tensor, numbers: Arguments
) -> None:
    """A formula that no operator has, on the engine alone."""
    formula = described(function)
    tensors = [(f"t{number}", as_tensor(operand)) for number, operand in enumerate([*inputs, out])]
    compute = tensors[-1][1].dtype
    FORMULAS[formula.name] = formula
    try:
        plan = elementwise_plan("aclnn", formula.name, compute, tensors[:-1], tensors[-1], numbers)
        addresses = tuple(tensor.address for _, tensor in tensors)
        assert gpu.declines(plan) is None
        assert gpu.prepare(plan)(addresses, torch.cuda.current_stream().cuda_stream) == 0
    finally:
        del FORMULAS[formula.name]


@dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("flipped", [False, True])
def test_formulas_have_numpy_s_bits(flipped: bool, layout: str, dtype: DType) -> None:
    """Four inputs, five numbers and a switch; one input and no number."""
    rng = np.random.default_rng(5)
    numbers = {name: np.full(1, value, np.float32) for name, value in NUMBERS.items()}
    for function in (four_and_six, one_and_none):
        formula = described(function)
        host = [rng.normal(size=(130, 900)).astype(dtype.numpy) for _ in formula.values]
        options: Arguments = {name: numbers[name] for name in formula.numbers}
        options |= dict.fromkeys(formula.switches, flipped)
        expected = function(*(array.astype(np.float32) for array in host), **options)
        inputs = [placed(to_device(array), layout)[0] for array in host]
        out, _ = placed(torch.zeros_like(inputs[0]), LAYOUTS[-1 - LAYOUTS.index(layout)])
        run_formula(function, inputs, out, {**NUMBERS, "flipped": flipped})
        got = to_host(out)
        expected = np.asarray(expected).astype(dtype.numpy)
        if dtype is FLOAT16:  # a division is right to 16 bits, which the rounding after it may show
            apart = np.abs(got.view(np.int16).astype(int) - expected.view(np.int16))
            assert apart.max() <= 1
            assert (apart != 0).mean() < 1e-4
        else:
            np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("function", RANGES)
def test_words_within_their_ulps(function: Callable[..., Any]) -> None:
    for low, high, *bound in RANGES[function]:
        x = np.linspace(low, high, 200_001).astype(np.float32)
        operand = to_device(x)
        out = torch.zeros_like(operand)
        run_formula(function, [operand], out, {})
        assert_within_ulps(function, x, to_host(out), *bound)


def test_fma_rounds_once() -> None:
    x, y = np.float32([1 + 2.0**-12, 3.0]), np.float32([1 + 2.0**-12, 5.0])
    z = np.float32([-1 - 2.0**-11, -15.0])
    out = torch.zeros(2, device="cuda")
    run_formula(word_fma, [to_device(array) for array in (x, y, z)], out, {})
    np.testing.assert_array_equal(to_host(out), np.float32([2.0**-24, 0.0]))


def test_operators_without_exp_have_numpy_s_bits() -> None:
    """In FLOAT: products and sums are rounded apart, and divisions are IEEE's."""
    options: list[tuple[str, Arguments]] = [
        ("elu_backward", {"alpha": 1.7, "scale": 1.1, "input_scale": 0.9, "is_result": True}),
        ("l1_loss_backward", {}),
        *(("smooth_l1_loss_backward", {"beta": beta}) for beta in (1.0, 0.7)),
    ]
    rng = np.random.default_rng(8)
    for name, more in options:
        operator = find(name)
        arguments: Arguments = more | {
            each: rng.normal(size=100_003).astype(np.float32) for each in tensor_names(operator)
        }
        got = to_host(plain(operator)(**on_device(arguments)))
        with openaclnn.use_engine("numpy"):
            expected = plain(operator)(**arguments)
        np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8), err_msg=name)


def test_special_cross_entropy() -> None:
    operator = find("cross_entropy_loss_grad")
    inf, nan = np.inf, np.nan
    log_prob = np.float32([[0, -inf, nan], [-inf, nan, 0], [-1, -2, -3]])
    gradients = np.float32([inf, 1, nan])
    for target, more in itertools.product(
        ([0, -100, 2], [-100] * 3, [2**40, -(2**63), 3]),
        (
            {"reduction": "none", "grad_loss": gradients},
            {"reduction": "mean", "grad_loss": np.float32([2.0])},
            {"reduction": "sum", "grad_loss": np.float32([2]), "weight": np.float32([0, inf, 1])},
        ),
    ):
        arguments = {"log_prob": log_prob, "target": np.array(target), **more}
        got = to_host(plain(operator)(**on_device(arguments)))
        # The device skips what the oracle refuses: a target out of range counts for nothing.
        inside = np.isin(arguments["target"], range(3))
        arguments["target"] = np.where(inside, arguments["target"], -100)
        np.testing.assert_allclose(got, operator.oracle(**arguments), rtol=1e-5, atol=1e-38)


@names
@dtypes
def test_same_bits_in_20_runs(operator: Operator, dtype: DType) -> None:
    shapes = {"elementwise": (3_000_001,), "rows": (4097, 3001), "pixels": (5, 19, 128, 250)}
    for variant in operator.workloads.VARIANTS:
        shape = shapes[operator.workloads.PATTERN]
        arguments = device_arguments(operator, dtype, shape, variant)
        arguments.pop("total_weight", None)  # so that the device makes the sum
        first = plain(operator)(**arguments).view(torch.uint8)
        for _ in range(19):
            assert torch.equal(plain(operator)(**arguments).view(torch.uint8), first)


@names
def test_graph_capture_and_replay(operator: Operator) -> None:
    shapes = {"elementwise": (70_001,), "rows": (2000, 301), "pixels": (3, 9, 64, 50)}
    for variant in operator.workloads.VARIANTS:
        dtype = BFLOAT16 if BFLOAT16 in floats_of(operator) else FLOAT
        arguments = device_arguments(operator, dtype, shapes[operator.workloads.PATTERN], variant)
        arguments.pop("total_weight", None)
        expected = plain(operator)(**arguments)  # compiles, which must not happen in a capture
        out = torch.full_like(expected, float("nan"))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plain(operator)(**arguments, out=out)
        assert out.isnan().all()  # captured, not run
        for _ in range(3):
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


@names
def test_work_goes_to_the_current_stream(operator: Operator) -> None:
    """Inputs become right only late on a side stream: work queued elsewhere would see zeros."""
    shapes = {"elementwise": (1 << 20,), "rows": (512, 3001), "pixels": (2, 9, 128, 128)}
    arguments = device_arguments(operator, FLOAT, shapes[operator.workloads.PATTERN])
    arguments.pop("total_weight", None)
    expected = plain(operator)(**arguments)
    late = {k: torch.zeros_like(v) if torch.is_tensor(v) else v for k, v in arguments.items()}
    out = torch.empty_like(expected)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        for name, value in arguments.items():
            if torch.is_tensor(value):
                late[name].copy_(value)
        plain(operator)(**late, out=out)
        done = side.record_event()
        assert not done.query()  # nothing waited for the device
    side.synchronize()
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("stream", ["default", "side"])
@pytest.mark.parametrize(
    "name", ["fused_linear_online_max_sum", "fused_linear_cross_entropy_loss_grad"]
)
def test_all_steps_go_to_one_stream(name: str, stream: str, dtype: DType) -> None:
    """PyTorch multiplies between kernels of ours: inputs become right only late."""
    function, work = getattr(openaclnn, name), find(name).workloads
    drawn = work.make(np.random.default_rng(0), dtype, (512, 3001), next(iter(work.VARIANTS)))
    arguments = {parameter: to_device(value) for parameter, value in drawn.items()}
    expected = function(**arguments)
    late = {k: torch.zeros_like(v) if torch.is_tensor(v) else v for k, v in arguments.items()}
    torch.cuda.synchronize()
    queue = torch.cuda.default_stream() if stream == "default" else torch.cuda.Stream()
    with torch.cuda.stream(queue):
        torch.cuda._sleep(50_000_000)
        for parameter, value in arguments.items():
            if torch.is_tensor(value):
                late[parameter].copy_(value)
        results = function(**late)
        done = queue.record_event()
        assert not done.query()  # nothing waited for the device
    queue.synchronize()
    for result, right in zip(results, expected, strict=True):
        assert torch.equal(result.view(torch.uint8), right.view(torch.uint8))


@names
def test_no_memory_but_the_output(operator: Operator) -> None:
    shapes = {"elementwise": (1 << 24,), "rows": (8192, 2048), "pixels": (8, 21, 256, 256)}
    for variant in operator.workloads.VARIANTS:
        arguments = device_arguments(operator, FLOAT, shapes[operator.workloads.PATTERN], variant)
        arguments.pop("total_weight", None)
        out = plain(operator)(**arguments)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        plain(operator)(**arguments, out=out)
        assert torch.cuda.max_memory_allocated() - before <= 32 << 10
        assert torch.cuda.memory_allocated() == before


def test_more_than_2_to_the_31_elements() -> None:
    count = (1 << 31) + 4099
    g = torch.randn(1 << 20, device="cuda", dtype=torch.bfloat16).repeat(2049)[:count]
    x = g.roll(1)
    got = openaclnn.elu_backward(g, x)
    for start in (0, (1 << 31) - 5000, count - 5000):
        part = slice(start, start + 5000)
        assert torch.equal(got[part], openaclnn.elu_backward(g[part].clone(), x[part].clone()))
    gaps = got[1::2][-5000:].clone()
    zero = x.new_zeros(())
    openaclnn.l1_loss_backward(g[::2], x[::2], zero, reduction="none", out=got[::2])
    ends = [tensor[::2][-5000:].clone() for tensor in (g, x)]
    expected = openaclnn.l1_loss_backward(*ends, zero, reduction="none")
    assert torch.equal(got[::2][-5000:], expected)
    assert torch.equal(got[1::2][-5000:], gaps)
    del g, x, got
    torch.cuda.empty_cache()


def test_class_kernels_beyond_2_to_the_31() -> None:
    rows, classes = 32801, 65472  # 2^31 + 68 k elements
    arguments = device_arguments(find("cross_entropy_loss_grad"), BFLOAT16, (rows, classes))
    arguments["reduction"] = "sum"
    got = openaclnn.cross_entropy_loss_grad(**arguments)
    few = slice(rows - 3, rows)
    last = arguments | {name: arguments[name][few].clone() for name in ("log_prob", "target")}
    assert torch.equal(got[few], openaclnn.cross_entropy_loss_grad(**last))
    del arguments, got, last
    torch.cuda.empty_cache()
    arguments = device_arguments(find("nll_loss2d_backward"), BFLOAT16, (70, 31, 1000, 1000))
    got = openaclnn.nll_loss2d_backward(**arguments)
    last = arguments | {
        name: arguments[name][-1:].clone() for name in ("grad_output", "target", "self")
    }
    assert torch.equal(got[-1:], openaclnn.nll_loss2d_backward(**last))
    torch.cuda.empty_cache()


def test_small_tensors_with_huge_strides() -> None:
    memory = torch.zeros((1 << 33) + 64, device="cuda", dtype=torch.int8)
    base = memory.view(torch.bfloat16)
    shape, strides = (3, 4), ((1 << 30) + 7, (1 << 29) + 3)
    x = base.as_strided(shape, strides)
    values = torch.randn(shape, device="cuda").bfloat16()
    x.copy_(values)
    expected = openaclnn.elu_backward(values, values)
    assert torch.equal(openaclnn.elu_backward(values, x), expected)
    openaclnn.elu_backward(values, values, out=x)
    assert torch.equal(x, expected)
    target = torch.tensor([1, 3, 0], device="cuda")
    log_prob = values.float().log_softmax(1).bfloat16()
    x.copy_(log_prob)
    one = values.new_tensor(1.0)
    expected = openaclnn.cross_entropy_loss_grad(one, log_prob, target)
    openaclnn.cross_entropy_loss_grad(one, x, target, out=x)
    assert torch.equal(x, expected)


def test_strange_tensors_after_plain_ones() -> None:
    """Whose words do not say what their elements are: never a wrong element."""
    x = torch.randn(12, device="cuda")

    def expect(tensor: torch.Tensor) -> None:
        wanted = theirs.elu(tensor.detach().clone().cpu())
        torch.testing.assert_close(openaclnn.elu(tensor).cpu(), wanted, rtol=1e-6, atol=1e-7)

    for _ in range(3):
        for tensor in (x, x[:1], x[3:], x[::2], torch.nn.Parameter(x)):
            expect(tensor)
        for tensor in (x._neg_view(), x[:1]._neg_view()):
            with pytest.raises(openaclnn.AclnnError, match="negation"):
                openaclnn.elu(tensor)
        expect(torch._lazy_clone(x))
        with torch.inference_mode():
            expect(x + 1)
        short = torch.randn(12, device="cuda")
        expect(short)
        short.untyped_storage().resize_(16)
        with pytest.raises(openaclnn.AclnnError):
            openaclnn.elu(short)
        with pytest.raises(openaclnn.AclnnError):
            openaclnn.elu_backward(x, x, out=short)
        short.untyped_storage().resize_(0)
        with pytest.raises(openaclnn.AclnnError):
            openaclnn.elu(short)
        with pytest.raises(openaclnn.AclnnError):
            openaclnn.elu(torch.empty(12, device="meta"))
        with pytest.raises(openaclnn.AclnnError):  # memory of two devices
            openaclnn.elu_backward(x, x.cpu())


# Any size of a pattern


def with_output(
    operator: Operator, dtype: DType, shape: tuple[int, ...], variant: str
) -> Arguments:
    """A variant's arguments and an output; pixels without the total weight, so that sums are made."""
    arguments = device_arguments(operator, dtype, shape, variant)
    arguments.pop("total_weight", None)
    return arguments | {"out": torch.full(shape, 7, device="cuda", dtype=torch_dtype(dtype))}


def sized_of(operator: Operator, dtype: DType, variant: str) -> Callable[..., int]:
    small = {"elementwise": (6, 7), "rows": (5, 13), "pixels": (2, 5, 3, 7)}
    arguments = with_output(operator, dtype, small[operator.workloads.PATTERN], variant)
    run = gpu.dynamic_shapes(plan_of(operator, arguments)[0])
    assert run is not None
    return run


@names
@dtypes
@pytest.mark.parametrize("off", [False, True])
def test_any_size_has_the_bits_of_its_own_plan(operator: Operator, dtype: DType, off: bool) -> None:
    shapes: dict[str, list[tuple[int, ...]]] = {
        "elementwise": [(1,), (1023,), (64, 64), (3, 5, 7, 1000), (1 << 20,), (999_999,)],
        "rows": [(1, 13), (7, 1), (300, 64), (65, 4096), (33, 4103), (200_000, 17)],
        "pixels": [
            (1, 5, 8, 8), (3, 1, 4, 4), (170, 6, 1, 1), (2, 20, 160, 33), (3, 21, 256, 256), (2, 5, 65, 65),
        ],
    }  # fmt: skip
    stream = torch.cuda.current_stream().cuda_stream
    for variant in operator.workloads.VARIANTS:
        run = sized_of(operator, dtype, variant)
        for shape in shapes[operator.workloads.PATTERN]:
            arguments = with_output(operator, dtype, shape, variant)
            if off:  # by one element each
                arguments = {
                    name: placed(value, "contiguous")[0] if torch.is_tensor(value) else value
                    for name, value in arguments.items()
                }
            out = arguments["out"]
            plan, addresses = plan_of(operator, arguments)
            assert gpu.prepare(plan)(tuple(addresses), stream) == 0
            expected = out.clone()
            for _ in range(2):  # the first may be Python's, which tells the builtin its kernels
                out.fill_(7)
                assert run(tuple(addresses), stream, shape, ()) == 0
                assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8)), (variant, shape)  # fmt: skip


OTHER_NUMBERS: dict[str, list[dict[str, Any]]] = {
    "alpha": [
        {"alpha": 0.5, "scale": 2.0, "input_scale": 0.7}, {"alpha": 1.25}, {"alpha": -0.0, "scale": 1e39},
        {"alpha": 3.0, "input_scale": -0.5},
    ],
    "beta": [{"beta": number} for number in (0.7, 1.0, 0.0, 2.0, 3.3, 1e-40)],
    "label_smoothing": [
        {"ignore_index": -7}, {"ignore_index": 3, "label_smoothing": 0.1}, {"label_smoothing": 0.2, "ignore_index": 2**40},
        {"ignore_index": -(2**40)}, {"label_smoothing": 1.0},
    ],
    "total_weight": [{"ignore_index": number} for number in (-7, 3, 0, 2**40, -(2**40))],
}  # fmt: skip
"""By an option that tells the operator."""


@names
@dtypes
def test_any_numbers_have_the_bits_of_the_slow_path(operator: Operator, dtype: DType) -> None:
    """What the fast path makes of other numbers; printed (pytest -s), not asserted, is the host's time for one."""
    shape = {"elementwise": (40, 25), "rows": (60, 13), "pixels": (2, 5, 9, 11)}[
        operator.workloads.PATTERN
    ]
    several = [choices for name, choices in OTHER_NUMBERS.items() if name in operator.signature()]
    function = getattr(openaclnn, operator.python_name)
    for variant in operator.workloads.VARIANTS:
        arguments = device_arguments(operator, dtype, shape, variant)
        for numbers in ({}, *itertools.chain(*several, *several)):
            if not numbers.keys() <= operator.plain_defaults.keys():
                continue
            inputs = arguments | numbers
            got = function(**inputs)
            with openaclnn.use_engine("triton"):
                expected = function(**inputs)
            assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8)), (
                variant,
                numbers,
            )
        if several and dtype is FLOAT:
            name = next(
                name for name in ("alpha", "beta", "ignore_index") if name in operator.signature()
            )
            torch.cuda.synchronize()
            start = time.perf_counter()
            for step in range(500):
                function(
                    **arguments | {name: -8 - step if name == "ignore_index" else 1.5 + step / 1000}
                )
            cost = (time.perf_counter() - start) / 500 * 1e6
            print(f"\n{operator.python_name}, {variant}: new {name} {cost:.1f} us")


@names
def test_a_new_size_is_captured(operator: Operator) -> None:
    """Of the same constants as one before, so that nothing is compiled in the capture."""
    first, second = {
        "elementwise": ((70_001,), (50_003,)),
        "rows": ((2000, 301), (1999, 301)),
        "pixels": ((3, 9, 64, 50), (4, 10, 64, 50)),
    }[operator.workloads.PATTERN]
    for variant in operator.workloads.VARIANTS:
        run = sized_of(operator, BFLOAT16, variant)
        before = with_output(operator, BFLOAT16, first, variant)
        run(tuple(plan_of(operator, before)[1]), torch.cuda.current_stream().cuda_stream, first, ())
        arguments = with_output(operator, BFLOAT16, second, variant)
        out = arguments["out"]
        plan, addresses = plan_of(operator, arguments)
        gpu.prepare(plan)(tuple(addresses), torch.cuda.current_stream().cuda_stream)
        expected = out.clone()
        out.fill_(float("nan"))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run(tuple(addresses), torch.cuda.current_stream().cuda_stream, second, ())
        assert out.isnan().all()  # captured, not run
        for _ in range(3):
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


@dtypes
def test_any_layout_has_the_bits_of_the_slow_path(dtype: DType) -> None:
    """Transposed, with gaps and stretched, each seen for the first time but the first of a kind."""
    kind = torch_dtype(dtype)

    def laid(shape: tuple[int, ...], step: int) -> torch.Tensor:
        values = torch.randn(*reversed(shape), step, device="cuda").to(kind)
        return values[..., 0].permute(*reversed(range(len(shape))))

    for count in range(2, 30):
        shape = (count, 3 + count % 5, 2)
        g, x = laid(shape, 1 + count % 3), laid(shape, 2)
        row = torch.randn(2, device="cuda").to(kind).expand(shape)
        for a, b in ((g, x), (x, row), (row, x)):
            for options in ({}, {"out": torch.empty(shape, dtype=kind, device="cuda")},
                            {"out": laid(shape, 3)}):  # fmt: skip
                got = openaclnn.elu_backward(a, b, **options)
                with openaclnn.use_engine("triton"):
                    expected = openaclnn.elu_backward(a, b)
                assert torch.equal(got.contiguous().view(torch.uint8), expected.view(torch.uint8))


@dtypes
def test_new_layouts_of_many_elements(dtype: DType) -> None:
    """Up to the most that have no plan of their own, and beyond: the bits of row-major copies, and sums of the same."""
    kind = torch_dtype(dtype)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda").to(kind)

    for rows in (
        200,
        300,
        512,
        513,
        514,
        700,
    ):  # with 511 columns 2^18 elements are between 513 and 514
        shape = (rows, 511)
        x, column, row = drawn(511, rows).t(), drawn(rows, 1), drawn(511)
        wide = drawn(rows, 1022)[:, ::2]
        for a, b in ((x, column), (wide, row), (column, row), (x, wide)):
            dense = [tensor.expand(shape).contiguous() for tensor in (a, b)]
            got = openaclnn.smooth_l1_loss(a, b, reduction="none")
            wanted = openaclnn.smooth_l1_loss(*dense, reduction="none")
            assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8))
            mean = openaclnn.smooth_l1_loss(a, b)
            exact = torch.nn.functional.smooth_l1_loss(*[tensor.double() for tensor in dense])
            torch.testing.assert_close(
                mean.double(), exact, rtol=5e-3 if kind != torch.float32 else 1e-6, atol=0
            )
            for gradient in (drawn(1), row):
                got = openaclnn.l1_loss_backward(gradient, a, b, reduction="none")
                wanted = openaclnn.l1_loss_backward(
                    gradient.expand(shape).contiguous(), *dense, reduction="none"
                )
                assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8))


def test_time_of_new_sizes() -> None:
    """Printed (pytest -s), not asserted: microseconds of the host for a size that never came up."""
    stream = torch.cuda.current_stream().cuda_stream
    for operator in WITHOUT_AXIS:
        pattern = operator.workloads.PATTERN
        for variant in operator.workloads.VARIANTS:
            shapes: list[tuple[int, ...]] = [
                {"elementwise": (16 * n, 4), "rows": (n, 64), "pixels": (n, 16, 4, 8)}[pattern]
                for n in range(1040, 2040)
            ]
            arguments = with_output(operator, FLOAT, shapes[-1], variant)
            plan, address_list = plan_of(operator, arguments)
            addresses = tuple(address_list)
            run = sized_of(operator, FLOAT, variant)
            costs = {}
            run(addresses, stream, shapes[0], ())
            torch.cuda.synchronize()
            start = time.perf_counter()
            for shape in shapes[1:]:
                run(addresses, stream, shape, ())
            costs["new size"] = (time.perf_counter() - start) / (len(shapes) - 1) * 1e6
            torch.cuda.synchronize()
            gpu.prepare(plan)(addresses, stream)
            start = time.perf_counter()
            runners = [gpu.prepare(plan) for _ in range(200)]
            costs["prepare"] = (time.perf_counter() - start) / 200 * 1e6
            start = time.perf_counter()
            for runner in runners:
                runner(addresses, stream)
            costs["first call"] = (time.perf_counter() - start) / 200 * 1e6
            torch.cuda.synchronize()
            title = f"{operator.python_name}, {variant}"
            print(f"\n{title}:", ", ".join(f"{name} {cost:.1f} us" for name, cost in costs.items()))


def device_arguments(
    operator: Operator, dtype: DType, shape: tuple[int, ...], variant: str | None = None
) -> Arguments:
    """What the workload's `make` gives, made on the device: the host would take minutes."""
    workloads = operator.workloads
    options = dict(workloads.VARIANTS[variant or next(iter(workloads.VARIANTS))])
    kind = torch_dtype(dtype)
    torch.manual_seed(0)

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device="cuda", dtype=kind)

    if workloads.PATTERN == "elementwise":
        tiny = operator.workloads.make(
            np.random.default_rng(0), dtype, (2, 2), variant or next(iter(workloads.VARIANTS))
        )
        return {
            name: (normal(*shape) if np.shape(value) == (2, 2) else normal())
            if isinstance(value, np.ndarray)
            else value
            for name, value in tiny.items()
        }
    if workloads.PATTERN == "rows":
        rows, classes = shape
        log_prob = normal(rows, classes)
        for part in log_prob.split(
            2048
        ):  # a float32 softmax of all of it would not fit beside the rest
            part.copy_(part.float().log_softmax(1))
        target = torch.randint(classes, (rows,), device="cuda")
        target[::16] = -100
        if options.pop("weighted", False):
            options["weight"] = 0.5 + torch.rand(classes, device="cuda")
        if "lse_square_scale_for_zloss" in options:
            options["lse_for_zloss"] = normal(rows)
        loss_shape = (rows,) if options["reduction"] == "none" else ()
        return {"grad_loss": normal(*loss_shape), "log_prob": log_prob, "target": target, **options}
    batch, classes, height, width = shape
    patch = options.pop("patch", 1)
    tall, wide = -(-height // patch), -(-width // patch)
    target = torch.randint(classes, (batch, tall, wide), device="cuda")
    target = target.repeat_interleave(patch, 1).repeat_interleave(patch, 2)[:, :height, :width]
    weight = (0.5 + torch.rand(classes, device="cuda")).to(kind)
    pixels = (batch, height, width) if options["reduction"] == "none" else (1,)
    # Its values are never read: one element, stretched, spares the memory.
    stretched = torch.zeros((), device="cuda", dtype=kind).expand(shape)
    return {
        "grad_output": normal(*pixels), "self": stretched, "target": target.contiguous(),
        "weight": weight, "total_weight": weight.float()[target].sum().to(kind).reshape(1), **options,
    }  # fmt: skip
