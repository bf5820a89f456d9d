"""Operators over two halves of an axis: any axis of any rank, layouts, memory, special values; on the CPU and, interpreted, for the GPU.

Some of it wants a process that interprets: see `test_gpu.py`.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import (
    CPU_ENGINES,
    OPERATORS,
    assert_matches_oracle,
    assert_same_bits,
    call_on,
    each,
    laid_out,
    plain,
    tensor_names,
    told,
)
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOATS, DType
from openaclnn.operators.gated import Gated
from workloads import cases_of

GATED = [operator for operator in OPERATORS if isinstance(operator, Gated)]
operators = pytest.mark.parametrize("operator", GATED, ids=lambda op: op.python_name)
inf, nan = np.inf, np.nan
MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")


def drawn(operator: Gated, dtype: DType, shape: tuple[int, ...], **options: Any) -> dict[str, Any]:
    rng = np.random.default_rng(len(shape))
    arrays = {
        p.python_name: rng.normal(size=operator.shape_of(p.name, shape, options)).astype(dtype.numpy)
        for p in operator.tensors
        if p.is_read
    }  # fmt: skip
    return arrays | options


def check_layouts(operator: Gated, dtype: DType) -> None:
    """Inputs in one layout, outputs in another, whose gaps keep their bytes."""
    pairs = [("transposed", "sliced"), ("reversed", "contiguous"), ("sliced", "reversed")]
    pairs += [("gaps in rows", "transposed"), ("contiguous", "gaps in rows")]
    for (layout, other), dim in zip(pairs, (-1, 0, 1, 1, -2), strict=True):
        arguments = drawn(operator, dtype, (5, 6, 33), dim=dim)
        dense = each(plain(operator)(**arguments))
        for name in tensor_names(operator):
            arguments[name], _ = laid_out(arguments[name], layout)
        places = [laid_out(np.zeros(array.shape, dtype.numpy), other) for array in dense]
        out = tuple(view for view, _ in places)
        with told(layout, other, dim):
            plain(operator)(**arguments, out=out if len(out) > 1 else out[0])
            assert_matches_oracle(operator, arguments, out if len(out) > 1 else out[0])
        for view, memory in places:
            view[...] = 0
            untouched = laid_out(np.zeros(view.shape, dtype.numpy), other)[1]
            np.testing.assert_array_equal(memory.view(np.uint8), untouched.view(np.uint8))


if MODE == "interpret":
    from interpreted import on_the_interpreter  # noqa: F401

    @operators
    @pytest.mark.in_turns
    def test_cases(operator: Gated) -> None:
        for dtype in (FLOAT, BFLOAT16):
            for arguments in cases_of(operator, np.random.default_rng(7), dtype):
                assert_matches_oracle(operator, arguments, plain(operator)(**arguments))

    @pytest.mark.parametrize("name", ["glu", "swi_glu_grad", "ge_glu_v3"])
    @pytest.mark.in_turns
    def test_layouts(name: str) -> None:
        check_layouts(openaclnn.find_operator(name), FLOAT)

    @pytest.mark.parametrize("name", ["glu_backward", "ge_glu"])
    @pytest.mark.parametrize("count", [3, 1024, 3001])
    def test_one_row(name: str, count: int) -> None:
        """Halves are one after another there, and the second begins where vectors may not."""
        operator = openaclnn.find_operator(name)
        for dtype in (FLOAT, BFLOAT16):
            arguments = drawn(operator, dtype, (count,))
            assert_matches_oracle(operator, arguments, plain(operator)(**arguments))

    def test_eight_axes_that_do_not_merge() -> None:
        operator = openaclnn.find_operator("glu_backward")
        arguments = drawn(operator, FLOAT, (2, 3, 2, 2, 2, 2, 2, 2), dim=3)
        for name in tensor_names(operator):
            arguments[name], _ = laid_out(arguments[name], "sliced")
        assert_matches_oracle(operator, arguments, plain(operator)(**arguments))


if not MODE:

    @operators
    @pytest.mark.parametrize("engine", CPU_ENGINES)
    def test_every_axis_of_ranks_1_to_8(operator: Gated, engine: str) -> None:
        with openaclnn.use_engine(engine):
            for rank in range(1, 9):
                shape = (2, 3, 1, 2, 3, 2, 1, 2)[:rank]
                dtype = FLOATS[rank % 3]
                for dim in range(-rank, rank):
                    arguments = drawn(operator, dtype, shape, dim=dim)
                    with told(dtype, shape, dim):
                        got = call_on(engine, operator, arguments)
                        assert_matches_oracle(operator, arguments, got)

    @operators
    @pytest.mark.parametrize("engine", CPU_ENGINES)
    def test_layouts_in_and_out(operator: Gated, engine: str) -> None:
        with openaclnn.use_engine(engine):
            for dtype in FLOATS:
                check_layouts(operator, dtype)

    @operators
    def test_calls_of_other_sizes_and_strides_one_after_another(operator: Gated) -> None:
        """The fast path keeps sizes and strides with each entry."""
        first = {}
        for turn in range(3):
            for number, shape in enumerate([(4, 6), (4, 7), (5, 6), (3, 4, 40)]):
                arguments = drawn(operator, FLOAT, shape, dim=-1 - number % 2)
                if number == 2:
                    for name in tensor_names(operator):
                        arguments[name], _ = laid_out(arguments[name], "gaps in rows")
                got = plain(operator)(**arguments)
                assert_matches_oracle(operator, arguments, got)
                assert_same_bits(got, first.setdefault(number, got))
                assert turn or number in first

    @operators
    def test_stretched_inputs(operator: Gated) -> None:
        arguments = drawn(operator, FLOAT, (3, 5, 8))
        for name in tensor_names(operator):
            arguments[name] = np.broadcast_to(arguments[name][:1, :1], arguments[name].shape)
        assert_matches_oracle(operator, arguments, plain(operator)(**arguments))

    @operators
    def test_an_output_over_an_input_is_refused(operator: Gated) -> None:
        arguments = drawn(operator, FLOAT, (4, 6))
        x = arguments[operator[operator.halved].python_name]
        for _ in range(2):  # a repeated call takes a shorter way
            apart = plain(operator)(**arguments)
            places = [x[:, : array.shape[1]] for array in each(apart)]
            rest = [np.empty_like(array) for array in each(apart)[1:]]
            out: Any = (places[0], *rest) if rest else places[0]
            before = x.copy()
            with pytest.raises(openaclnn.AclnnError, match="memory apart from") as caught:
                plain(operator)(**arguments, out=out)
            assert caught.value.parameter == operator.output.name
            np.testing.assert_array_equal(x, before)

    def test_integers_are_refused_as_the_input_they_are() -> None:
        """Not the output, of whatever dtype, for being of another."""
        with pytest.raises(openaclnn.AclnnError) as caught:
            openaclnn.swi_glu(np.ones((2, 4), np.int32), out=np.ones((2, 2), np.float32))
        assert (caught.value.parameter, caught.value.got) == ("x", "INT32")

    def test_two_outputs_over_each_other_are_refused() -> None:
        x, out = np.ones((4, 6), np.float32), np.empty((4, 3), np.float32)
        with pytest.raises(openaclnn.AclnnError, match="overlap"):
            openaclnn.ge_glu(x, out=(out, out))

    def test_the_gradient_of_geglu_takes_the_gelu_that_it_is_given() -> None:
        x, g = np.array([1.0, 2.0], np.float32), np.array([3.0], np.float32)
        got = openaclnn.ge_glu_backward(g, x, np.array([7.0], np.float32))
        assert got[0] == 21
        left = openaclnn.ge_glu_v3_backward(g, x, np.array([7.0], np.float32), activate_left=True)
        assert left[1] == 21

    def test_glu_of_double_is_computed_in_double() -> None:
        rng = np.random.default_rng(5)
        x, g = rng.normal(size=(7, 10)), rng.normal(size=(7, 5))
        a, b = np.split(x, 2, axis=1)
        s = 1 / (1 + np.exp(-b))
        np.testing.assert_allclose(openaclnn.glu(x), a * s, rtol=1e-15)
        by_x = np.concatenate([g * s, g * s * (a - a * s)], 1)
        np.testing.assert_allclose(openaclnn.glu_backward(g, x), by_x, rtol=1e-14, atol=1e-16)
        assert openaclnn.glu(x, out=np.empty((7, 5), np.float16)).dtype == np.float16

    @pytest.mark.parametrize("dim", [0, 1])
    def test_a_half_of_nothing(dim: int) -> None:
        x = np.empty((0, 6), np.float32)
        assert openaclnn.glu(x, dim=dim).shape == ((0, 6), (0, 3))[dim]
        assert [output.shape for output in openaclnn.ge_glu(x, dim=dim)] == [
            ((0, 6), (0, 3))[dim]
        ] * 2

    SPECIAL: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
        # gates and values; results
        ("glu", {}, [1, 2, inf, inf, -inf, 1, nan, 0, inf, inf, -inf, -inf, nan, nan], [0.5, 2, inf, nan, nan, nan, nan]),
        ("swi_glu", {}, [inf, -inf, nan, 0, 200, -200, 0, 2, 2, 2, 2, 2, 2, inf], [inf, nan, nan, 0, 400, -0.0, nan]),
        ("ge_glu", {}, [2, 2, 2, 2, 2, 2, inf, inf, -inf, nan, 0, 200, -200, 0], [inf, nan, nan, 0, 400, -0.0, nan]),
        ("ge_glu", {"approximate": 0}, [2, 2, 2, 2, 2, 2, inf, inf, -inf, nan, 0, 200, -200, 0], [inf, nan, nan, 0, 400, -0.0, nan]),
        ("ge_glu_v3", {"activate_left": True}, [inf, -inf, nan, 0, 200, -200, 0, 2, 2, 2, 2, 2, 2, inf], [inf, nan, nan, 0, 400, -0.0, nan]),
        ("glu_backward", {}, [3, inf, nan, 3, 3, 3, 0, 0, 0, inf, -inf, nan], [1, 1, 1, 2, 0, nan, 1.5, nan, nan, 0, 0, nan]),
        ("swi_glu_grad", {}, [inf, -inf, nan, 0, 3, 3, 3, 3], [nan, nan, nan, 3, inf, nan, nan, 0]),
        # As of GELU itself, what is no number in the second term of the derivative counts for nothing.
        ("ge_glu_backward", {"gelu": 5.0}, [3, 3, 3, 3, inf, -inf, nan, 0], [10, 10, 10, 10, 6, 0, nan, 3]),
        ("ge_glu_backward", {"gelu": 5.0, "approximate": 0}, [3, 3, 3, 3, inf, -inf, nan, 0], [10, 10, 10, 10, nan, nan, nan, 3]),
        ("ge_glu_v3_backward", {"gelu": nan, "activate_left": True}, [inf, -inf, 0, 3, 3, 3], [6, 0, 3, nan, nan, nan]),
    ]  # fmt: skip

    @pytest.mark.parametrize("engine", CPU_ENGINES)
    @pytest.mark.parametrize("place", range(len(SPECIAL)))
    def test_special_values(place: int, engine: str) -> None:
        name, options, values, expected = SPECIAL[place]
        operator = openaclnn.find_operator(name)
        assert isinstance(operator, Gated)
        for dtype in FLOATS:
            x = np.array(values).astype(dtype.numpy)
            half = np.full(len(values) // 2, 2.0).astype(dtype.numpy)
            arguments = dict.fromkeys(tensor_names(operator), half) | options
            arguments[operator[operator.halved].python_name] = x
            if "gelu" in arguments:
                arguments["gelu"] = np.full_like(half, options["gelu"])
            with openaclnn.use_engine(engine):
                for result in (operator.oracle(**arguments), plain(operator)(**arguments)):
                    actual = each(result)[0].astype(dtype.numpy).astype(np.float64)
                    np.testing.assert_array_equal(actual, expected)
                    zeros = np.equal(expected, 0)
                    assert (np.signbit(actual) == np.signbit(expected))[zeros].all()

    TORCH = {
        "glu": lambda F, a, b: a * b.sigmoid(),
        "swi_glu": lambda F, a, b: F.silu(a) * b,
        "ge_glu": lambda F, a, b: a * F.gelu(b, approximate="tanh"),
        "ge_glu_v3": lambda F, a, b: a * F.gelu(b, approximate="tanh"),
    }

    def test_every_word_has_an_expression_of_tensors() -> None:
        pytest.importorskip("torch")
        from openaclnn.engines.formulas import words
        from openaclnn.torch import expressions

        assert set(words.WORDS) <= set(expressions.WORDS)

    @pytest.mark.parametrize("name", TORCH)
    def test_derivatives_to_the_second_order(name: str) -> None:
        """Of the second output too, which the gradient is made with."""
        torch = pytest.importorskip("torch")
        import openaclnn.torch  # noqa: F401

        x = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(3), requires_grad=True)
        operator = getattr(torch.ops.openaclnn, name)
        for dim in (0, 1):
            halves = x.chunk(2, dim)
            ours = operator(x, dim)
            first = ours if isinstance(ours, torch.Tensor) else ours[0]
            peers = [TORCH[name](torch.nn.functional, *halves)]
            if first is not ours:
                peers.append(torch.nn.functional.gelu(halves[1], approximate="tanh"))
            for output, peer in zip([first] if first is ours else ours, peers, strict=True):
                pair = []
                for value in (output, peer):
                    (once,) = torch.autograd.grad(value.sin().sum(), x, create_graph=True)
                    pair.append(
                        (once, *torch.autograd.grad(once.square().sum(), x, retain_graph=True))
                    )
                for mine, other in zip(*pair, strict=True):
                    torch.testing.assert_close(mine, other, rtol=2e-5, atol=2e-5)
