"""`torch.ops.openaclnn`: every operator of the registry as one of PyTorch's, by PyTorch's own checks of operators."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import openaclnn
import openaclnn.torch
from conftest import OPERATORS
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.interface import Kind
from openaclnn.torch.expressions import WIDE, by_reference, in_float64
from openaclnn.torch.gradients import FORMULAS
from openaclnn.torch.kernels import KERNELS, Kernel
from openaclnn.torch.library import constants_of
from openaclnn.torch.schema import schema
from workloads import EVERYTHING, cases_of

OPS = torch.ops.openaclnn
by_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def _traced_like(kernel: Kernel) -> tuple[Any, ...]:
    """What decides how PyTorch's compiler meets an operator: its formula is none of its business."""
    operator, kinds = kernel.operator, [p.kind for p in kernel.parameters]
    tensors = sum(p.is_tensor for p in kernel.parameters)
    return (
        tensors,
        {*kinds},
        len(operator.outputs),
        operator.output.in_place,
        operator.python_name in FORMULAS,
    )


TRACED = [kernel for place, kernel in enumerate(KERNELS.values()) if _traced_like(kernel) not in map(_traced_like, [*KERNELS.values()][:place])]  # fmt: skip
"""The first of each kind: PyTorch's own checks take long, tracing longest."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def tensor(value: Any) -> Any:
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def arguments_of(kernel: Kernel, number: int = 0) -> list[Any]:
    """A sample's, in the schema's order."""
    sample = kernel.operator.samples[number].arrays()
    return [tensor(sample.get(p.python_name, p.default)) for p in kernel.parameters]


def several(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def test_every_operator_is_there() -> None:
    for operator in OPERATORS:
        packet = getattr(OPS, operator.python_name)
        arguments = [argument.name for argument in packet.default._schema.arguments]
        assert arguments == [
            "input" if p.python_name == "self" else p.python_name for p in KERNELS[operator.python_name].parameters
        ]  # fmt: skip
        if not operator.output.in_place:
            assert len(packet.default._schema.returns) == len(operator.outputs)
            assert all(
                alias.is_write
                for alias in (a.alias_info for a in packet.out._schema.arguments)
                if alias
            )
    assert schema(KERNELS["nll_loss"].operator) == (
        'nll_loss(Tensor input, Tensor target, Tensor weight, str reduction="mean", int ignore_index=-100) -> (Tensor, Tensor)'
    )  # fmt: skip


@by_kernel
@pytest.mark.in_turns
def test_samples_are_those_of_the_plain_call(kernel: Kernel) -> None:
    for number, sample in enumerate(kernel.operator.samples):
        named = {name: tensor(value) for name, value in sample.arrays().items()}
        arguments = arguments_of(kernel, number)
        expected = kernel.plain(**named)
        for _ in range(3):  # the whole way, and what is kept of it
            got = kernel.op(*arguments_of(kernel, number)) if kernel.operator.output.in_place else kernel.op(*arguments)  # fmt: skip
            if kernel.operator.output.in_place:
                continue
            for output, known in zip(several(got), several(expected), strict=True):
                assert known is None or torch.equal(output, known)


@by_kernel
@pytest.mark.in_turns
def test_pytorch_finds_nothing_wrong(kernel: Kernel) -> None:
    arguments = arguments_of(kernel)
    tracked = arguments_of(kernel)
    if kernel.operator.python_name in FORMULAS:
        constant = {"top", "rest", *(name for _, name in constants_of(kernel))}
        for name, value in zip(kernel.names, tracked, strict=True):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.requires_grad_(name not in constant)
    parts = ["test_schema", "test_autograd_registration", "test_faketensor"]
    parts += ["test_aot_dispatch_dynamic"] * (kernel in TRACED)
    of_its_kind = EVERYTHING or kernel in TRACED
    if of_its_kind:
        torch.library.opcheck(kernel.op, tuple(tracked), test_utils=parts)
    if not kernel.operator.output.in_place:
        outputs = several(kernel.op(*arguments))
        out = getattr(OPS, kernel.operator.python_name).out
        places = [argument.name for argument in out._schema.arguments if argument.kwarg_only]
        buffers = {
            name: torch.full_like(output, 7.0) for name, output in zip(places, outputs, strict=True)
        }
        out(*arguments, **buffers)
        for output, known, written in zip(
            buffers.values(), outputs, kernel.operator.outputs, strict=True
        ):
            assert torch.equal(output, known) or written.field in ("zloss", "lse_for_zloss")
        if of_its_kind:
            torch.library.opcheck(out, tuple(arguments), buffers, test_utils=("test_schema", "test_faketensor"))  # fmt: skip


ROWS = torch.tensor([0, 1, -100, 3])
PIXELS = torch.tensor([[[0, 1], [-100, 3]]])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25, 1.5], dtype=torch.float64)
SHARES = torch.linspace(0, 1, 20, dtype=torch.float64).reshape(4, 5)
Loss = Any
DOUBLE: dict[str, tuple[Loss, tuple[int, ...], int]] = {
    "elu": (lambda x: OPS.elu(x, 1.5, 2.0, 0.5), (4, 5), 1),
    "elu_backward": (lambda g, x: OPS.elu_backward(g, x, 1.5, 2.0, 0.5), (4, 5), 2),
    "elu_backward of results": (lambda g, x: OPS.elu_backward(g, x, 1.5, 2.0, 0.5, True), (4, 5), 2),
    "softmax": (lambda x: OPS.softmax(x), (4, 5), 1),
    "softmax of columns": (lambda x: OPS.softmax(x, 1), (2, 3, 4), 1),
    "softmax of one": (lambda x: OPS.softmax(x), (), 1),
    "softmax_backward": (lambda g, y: OPS.softmax_backward(g, y, 0), (4, 5), 2),
    "log_softmax": (lambda x: OPS.log_softmax(x, 0), (4, 5), 1),
    "log_softmax_backward": (lambda g, y: OPS.log_softmax_backward(g, y, -2), (3, 4, 2), 2),
    "l1_loss": (lambda x, y: OPS.l1_loss(x, y), (4, 5), 2),
    "l1_loss none": (lambda x, y: OPS.l1_loss(x, y, "none"), (4, 5), 2),
    "l1_loss broadcast": (lambda x, y: OPS.l1_loss(x, y[:1]), (4, 5), 2),
    "smooth_l1_loss": (lambda x, y: OPS.smooth_l1_loss(x, y, "mean", 0.5), (4, 5), 2),
    "smooth_l1_loss none": (lambda x, y: OPS.smooth_l1_loss(x, y, "none", 2.0), (4, 5), 2),
    "mse_loss broadcast": (lambda x, y: OPS.mse_loss(x[:1], y), (4, 5), 2),
    "mse_loss none": (lambda x, y: OPS.mse_loss(x, y[:, :1], "none"), (4, 5), 2),
    "soft_margin_loss": (lambda x, y: OPS.soft_margin_loss(x, y[0]), (4, 5), 2),
    "binary_cross_entropy": (lambda x: OPS.binary_cross_entropy(x.sigmoid(), SHARES, SHARES), (4, 5), 1),
    "binary_cross_entropy_with_logits": (
        lambda x, y: OPS.binary_cross_entropy_with_logits(x, y, SHARES, WEIGHT), (4, 5), 2,
    ),
    "nll_loss": (lambda x: OPS.nll_loss(x, ROWS, WEIGHT)[0], (4, 5), 1),
    "nll_loss none": (lambda x: OPS.nll_loss(x, ROWS, WEIGHT, "none")[0], (4, 5), 1),
    "nll_loss2d": (lambda x: OPS.nll_loss2d(x, PIXELS, WEIGHT, "sum")[0], (1, 5, 2, 2), 1),
    "cross_entropy_logits": (
        lambda x: OPS.cross_entropy_logits(x, ROWS, WEIGHT.float(), "mean", -100, 0.1, 0.3)[0], (4, 5), 1
    ),
    "cross_entropy_logits none": (
        lambda x: OPS.cross_entropy_logits(x, ROWS, None, "none", -100, 0.0, 0.3)[0], (4, 5), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBLE)
def test_derivatives_are_right_twice_in_float64(name: str) -> None:
    function, shape, count = DOUBLE[name]
    torch.manual_seed(1)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(count)]
    if "results" in name:
        inputs[1] = (torch.rand(shape, dtype=torch.float64) * 3 - 2).requires_grad_()
    # Along some directions; `make test-all` tries every element by itself.
    assert torch.autograd.gradcheck(function, inputs, fast_mode=not EVERYTHING)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=not EVERYTHING)


CONSTANT = [name for name, kernel in KERNELS.items() if kernel.operator.constants]


@pytest.mark.parametrize("name", [*WIDE, *filter(re.compile("softmax").search, KERNELS), *CONSTANT])
def test_float64_is_the_reference(name: str) -> None:
    """PyTorch's operations for it, in every case of the workloads: the reference's results, or its refusal."""
    kernel = KERNELS[name]
    operator = kernel.operator
    cases = [sample.arrays() for sample in operator.samples]
    if operator in OPERATORS:
        cases += cases_of(operator, np.random.default_rng(3), FLOAT)
    for case in cases:
        arguments = [tensor(case.get(p.python_name, p.default)) for p in kernel.parameters]
        wide = tuple([a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments])  # fmt: skip
        results = [function(operator, wide) for function in (in_float64, by_reference)]
        for mine, known in zip(*map(several, results), strict=True):
            torch.testing.assert_close(mine, known, rtol=1e-12, atol=1e-14, equal_nan=True)
        place = kernel.names.index("target") if "target" in case else 0
        if not wide[place].is_floating_point() and wide[place].numel():
            stray = (*wide[:place], wide[place] * 0 + 99, *wide[place + 1 :])
            for function in (in_float64, by_reference):
                with pytest.raises(IndexError, match="Target 99 is out of bounds"):
                    function(operator, stray)


def test_cross_entropy_by_log_probabilities_is_derived_once() -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    for returned in (False, True):
        function = lambda x, r=returned: OPS.cross_entropy_loss(x, ROWS, None, "mean", -100, 0.1, 0.3, r)[0]  # noqa: E731  # fmt: skip
        assert torch.autograd.gradcheck(function, (x,))
    (gradient,) = torch.autograd.grad(OPS.cross_entropy_loss(x, ROWS)[0], x, create_graph=True)
    with pytest.raises(RuntimeError, match="this gradient has no derivative"):
        gradient.sum().backward()


def test_what_has_no_derivative_says_so() -> None:
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace_elu has no derivative"):
        OPS.inplace_elu(x)
    with pytest.raises(RuntimeError, match=r"out=\.\.\. have no derivative"):
        OPS.elu.out(x, out=torch.empty(3))


def loss(x: Any) -> Any:
    y = OPS.elu(x)
    return OPS.nll_loss(y, ROWS, WEIGHT.to(x.dtype))[0] + OPS.smooth_l1_loss(x, torch.zeros_like(x))


def test_compiled_whole() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for value, known in zip(
        (compiled(x), *torch.autograd.grad(compiled(x), x)), (loss(x), *torch.autograd.grad(loss(x), x)), strict=True
    ):  # fmt: skip
        assert torch.equal(value, known)


def test_compiled_for_any_size() -> None:
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    compiled = torch.compile(
        lambda x, y: OPS.l1_loss(x, y) * 2, fullgraph=True, backend=backend, dynamic=True
    )
    for rows in (2, 5, 9):
        x = torch.randn(rows, 3)
        assert torch.equal(compiled(x, x + 1), OPS.l1_loss(x, x + 1) * 2)
    assert len(seen) == 1


def plain_fresh(x: Any) -> Any:
    return openaclnn.elu(x, alpha=2.0) + 1


def plain_given(x: Any) -> Any:
    out = torch.empty_like(x)
    openaclnn.elu(x, out=out)
    return out + 1


def plain_several(x: Any) -> Any:
    result = openaclnn.nll_loss(x, ROWS, WEIGHT.to(x.dtype))
    return result.out + result.total_weight


def plain_in_place(x: Any) -> Any:
    copied = x.clone()
    return openaclnn.inplace_elu(copied) + copied


@pytest.mark.parametrize("function", [plain_fresh, plain_given, plain_several, plain_in_place])
def test_a_plain_call_does_not_break_the_graph(function: Any) -> None:
    x = torch.randn(4, 5)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), function(x))


class Module(torch.nn.Module):
    def forward(self, x: Any, target: Any) -> Any:
        return OPS.nll_loss(OPS.elu(x), target, WEIGHT.float())[0]


@pytest.mark.parametrize("strict", [False, True])
def test_exported_for_any_size(strict: bool) -> None:
    rows = torch.export.Dim("rows", min=2, max=100)
    inputs = (torch.randn(4, 5), ROWS)
    program = torch.export.export(
        Module(), inputs, dynamic_shapes={"x": {0: rows}, "target": {0: rows}}, strict=strict
    )
    other = (torch.randn(7, 5), torch.zeros(7, dtype=torch.int64))
    for arguments in (inputs, other):
        assert torch.equal(program.module()(*arguments), Module()(*arguments))
    called = [str(node.target) for node in program.graph.nodes]
    assert "openaclnn.nll_loss.default" in called


def test_recorded_and_transformed() -> None:
    x = torch.randn(3, 4, 5)
    graph = make_fx(loss)(x[0])
    assert torch.equal(graph(x[1]), loss(x[1]))
    graph = make_fx(OPS.l1_loss.default, tracing_mode="symbolic")(x[0], x[1])
    assert torch.equal(graph(x, x + 1), OPS.l1_loss(x, x + 1))
    assert torch.equal(torch.func.functionalize(loss)(x[0]), loss(x[0]))
    traced = torch.func.grad(loss)
    each = torch.stack([traced(row) for row in x])
    leaf = x[0].clone().requires_grad_()
    assert torch.equal(each[0], torch.autograd.grad(loss(leaf), leaf)[0])
    assert torch.equal(torch.vmap(loss)(x), torch.stack([loss(row) for row in x]))
    assert torch.equal(torch.vmap(OPS.elu, in_dims=1, out_dims=1)(x), OPS.elu(x))
    assert torch.equal(torch.vmap(traced)(x), each)
    twice = torch.func.jacrev(torch.func.jacrev(lambda x: OPS.smooth_l1_loss(x, 2 * x)))
    assert torch.equal(twice(torch.full((2,), 0.5)), torch.eye(2) / 2)
    assert OPS.elu(torch._neg_view(x)).equal(OPS.elu(-x))
    assert OPS.elu(x.to("meta")).shape == x.shape


def test_losses_are_computed_in_float_under_autocast() -> None:
    x, half = torch.randn(4, 5), torch.bfloat16
    with torch.autocast("cpu"):
        assert OPS.l1_loss(x.to(half), x.to(half)).dtype is torch.float32
        assert OPS.nll_loss(x.to(half), ROWS, WEIGHT.to(half))[0].dtype is torch.float32
        assert OPS.cross_entropy_logits(x.to(half), ROWS)[0].dtype is torch.float32
        assert OPS.elu(x.to(half)).dtype is half


def test_refusals_are_pytorchs_exceptions() -> None:
    x = torch.randn(4, 5)
    for logits in (x, x.double()):
        with pytest.raises(IndexError, match="Target 5 is out of bounds"):
            OPS.nll_loss(logits, torch.tensor([0, 5, 1, 1]), WEIGHT.to(logits.dtype))
        with pytest.raises(RuntimeError, match="broadcasts with"):
            OPS.l1_loss(logits, logits[:, :3])
    with pytest.raises(RuntimeError, match="same device"):
        OPS.l1_loss(x.to("meta"), x)
    assert all(p.kind is not Kind.OUTPUT or p.in_place for kernel in KERNELS.values() for p in kernel.parameters)  # fmt: skip


def test_weights_that_should_learn_are_refused() -> None:
    x, target = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    weight = torch.rand(4, requires_grad=True)
    for name in ("nll_loss", "cross_entropy_loss", "cross_entropy_logits"):
        with pytest.raises(
            RuntimeError, match="not differentiable with respect to argument 'weight'"
        ):
            getattr(torch.ops.openaclnn, name)(x, target, weight)
        with torch.no_grad():
            getattr(torch.ops.openaclnn, name)(x, target, weight)


def test_places_for_doubles_have_the_results_shape_and_dtype() -> None:
    x = torch.randn(4, dtype=torch.float64)
    for place in (torch.zeros(3, 4, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)):
        kept = place.clone()
        with pytest.raises(RuntimeError, match="aclnnElu: out: expected"):
            torch.ops.openaclnn.elu.out(x, out=place)
        assert torch.equal(kept, place)


def test_a_plain_call_that_the_operator_does_not_take_is_made_whole() -> None:
    """With a product, a number for a tensor, or a reduction's number."""
    x = torch.randn(4)

    def compiled(function: Any) -> Any:
        torch._dynamo.reset()
        return torch.compile(function, backend="aot_eager")(x)

    for function in (
        lambda x: openaclnn.l1_loss(x, x * 2, reduction=1) + 1,
        lambda x: openaclnn.l1_loss_backward(1.0, x, x * 2) + 1,
        lambda x: openaclnn.elu(x, product="950") + 1,
    ):
        torch.testing.assert_close(compiled(function), function(x))
    with pytest.raises(openaclnn.AclnnError, match="product"):
        compiled(lambda x: openaclnn.elu(x, product="310b") + 1)


AXES = pytest.mark.parametrize("name", ["softmax", "log_softmax"])


@AXES
def test_rows_along_an_axis_are_pytorchs(name: str) -> None:
    """Values, gradients and gradients of gradients, under every transform."""
    ours, theirs = getattr(OPS, name), getattr(torch, name)
    for shape, dim in (((4, 5), -1), ((3, 4, 5), 1), ((6,), 0), ((), 0), ((2, 1, 3), -2)):
        x = torch.randn(shape, requires_grad=True)
        g = torch.randn(shape)
        for actual, known in ((ours(x, dim), theirs(x, dim)),):
            torch.testing.assert_close(actual, known)
            one, other = (
                torch.autograd.grad(y, x, g, create_graph=True)[0] for y in (actual, known)
            )
            torch.testing.assert_close(one, other)
            again = [torch.autograd.grad((y * y).sum(), x)[0] for y in (one, other)]
            torch.testing.assert_close(*again, rtol=1e-4, atol=1e-6)


@AXES
def test_rows_along_an_axis_under_transforms(name: str) -> None:
    ours, theirs = getattr(OPS, name), getattr(torch, name)
    x = torch.randn(3, 4, 5)
    for batch in (0, 1, 2, -1):
        for dim in (-2, -1, 0, 1):
            actual = torch.vmap(lambda x, d=dim: ours(x, d), in_dims=batch)(x)
            known = torch.vmap(lambda x, d=dim: theirs(x, d), in_dims=batch)(x)
            torch.testing.assert_close(actual, known)
    torch.testing.assert_close(torch.vmap(lambda x: ours(x, 0))(x[0, 0]), torch.ones(5) * (name == "softmax"))  # fmt: skip
    most = torch.randn(2, *(1,) * 7, 3)
    torch.testing.assert_close(torch.vmap(lambda x: ours(x, -1))(most), theirs(most, -1))
    with pytest.raises(RuntimeError, match="no derivative in forward mode"):
        torch.func.jacfwd(lambda x: ours(x, 0))(x[0, 0])
    twice = torch.func.jacrev(torch.func.jacrev(lambda x: ours(x, 0)))
    known = torch.func.jacrev(torch.func.jacrev(lambda x: theirs(x, 0)))
    torch.testing.assert_close(twice(x[0, 0]), known(x[0, 0]))
    assert ours(x.to("meta"), 1).shape == x.shape
    with pytest.raises(RuntimeError, match="expected an axis of self, -3 to 2, got 3"):
        ours(x.to("meta"), 3)
    with pytest.raises(RuntimeError, match="expected an axis of self, -3 to 2, got 3"):
        ours(x, 3)


@AXES
def test_rows_along_an_axis_are_compiled_whole(name: str) -> None:
    ours = getattr(OPS, name)
    compiled = torch.compile(
        lambda x: ours(x, 1) * 2, fullgraph=True, backend="aot_eager", dynamic=True
    )
    for rows in (2, 5):
        x = torch.randn(rows, 4, 3, requires_grad=True)
        assert torch.equal(compiled(x), ours(x, 1) * 2)
        one, other = (
            torch.autograd.grad(y.square().sum(), x)[0] for y in (compiled(x), ours(x, 1) * 2)
        )
        assert torch.equal(one, other)
