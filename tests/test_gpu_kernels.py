"""The Triton kernels without a GPU: interpreted on host memory, and compiled (not run) for an H200.

Each way is a process of its own: see `test_gpu.py`.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from workloads import EVERYTHING, cases_of

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    from interpreted import on_the_interpreter  # noqa: F401

if MODE:
    import openaclnn
    import special_activations
    import special_products
    from conftest import (
        GRADIENTS,
        INTERPRETED,
        LAYOUTS,
        assert_matches_oracle,
        families,
        has_one_dtype,
        laid_out,
        plain,
        planned,
        tensor_names,
        told,
    )
    from openaclnn.core.declare import Operator
    from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, INT64, DType
    from openaclnn.core.plan import Half, Operand, Plan, halves_plan
    from openaclnn.core.tensor import Tensor
    from openaclnn.engines import gpu
    from openaclnn.engines.formulas import FORMULAS
    from openaclnn.engines.gpu.launching import native, runners, scratch, variants

    dtypes = pytest.mark.parametrize("dtype", INTERPRETED, ids=str)
    nan, inf = np.nan, np.inf


if MODE == "interpret":

    def is_elementwise(operator: Operator) -> bool:
        return bool(operator.workloads.PATTERN == "elementwise")

    elementwise, every_elementwise = (
        pytest.mark.parametrize(
            "operator",
            [op for op in operators if is_elementwise(op)],
            ids=lambda op: op.python_name,
        )
        for operators in (families(GRADIENTS), GRADIENTS)
    )
    classes = pytest.mark.parametrize(
        "operator",
        [op for op in GRADIENTS if not is_elementwise(op)],
        ids=lambda op: op.python_name,
    )

    def heeded(arguments: dict[str, Any], classes: int) -> dict[str, Any]:
        """As the oracle takes them: a target out of range, which it refuses, counts for nothing on the device."""
        target, ignored = arguments["target"], arguments.get("ignore_index", -100)
        inside = (target >= 0) & (target < classes)
        return arguments | {"target": np.where(inside, target, target.dtype.type(ignored))}

    def check_cases(operator: Operator, dtype: DType) -> None:
        """Of elementwise ones every other case in FLOAT, the others in BFLOAT16: devices try all."""
        cases = [*cases_of(operator, np.random.default_rng(7), dtype)]
        if is_elementwise(operator) and len(cases) > 1 and not EVERYTHING:
            cases = cases[INTERPRETED.index(dtype) :: 2]
        for arguments in cases:
            got = plain(operator)(**arguments)
            assert got.dtype == dtype.numpy
            assert_matches_oracle(operator, arguments, got)

    def check_layout(operator: Operator, layout: str) -> None:
        """Inputs in one layout, the output in another, whose gaps keep their bytes; the dtypes by turns."""
        dtype = INTERPRETED[(GRADIENTS.index(operator) + LAYOUTS.index(layout)) % len(INTERPRETED)]
        other = LAYOUTS[(LAYOUTS.index(layout) + 1 + FLOATS.index(dtype)) % len(LAYOUTS)]
        chosen = [*cases_of(operator, np.random.default_rng(11), dtype)]
        for arguments in chosen[LAYOUTS.index(layout) % 3 :: 3]:
            dense = plain(operator)(**arguments)
            moved = dict(arguments)
            for name in tensor_names(operator):
                if isinstance(arguments.get(name), np.ndarray):
                    moved[name], _ = laid_out(arguments[name], layout)
            view, memory = laid_out(np.zeros(dense.shape, dtype.numpy), other)
            plain(operator)(**moved, out=view)
            np.testing.assert_allclose(
                view.astype(np.float64),
                dense.astype(np.float64),
                rtol=3e-7 if dtype is FLOAT else 0,
            )
            view[...] = 0
            clean, untouched = laid_out(np.zeros(dense.shape, dtype.numpy), other)
            assert clean.shape == view.shape
            np.testing.assert_array_equal(memory.view(np.uint8), untouched.view(np.uint8))

    @every_elementwise
    @dtypes
    @pytest.mark.in_turns
    def test_elementwise_cases(operator: Operator, dtype: DType) -> None:
        check_cases(operator, dtype)

    @classes
    @dtypes
    @pytest.mark.in_turns
    def test_class_cases(operator: Operator, dtype: DType) -> None:
        check_cases(operator, dtype)

    @elementwise
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.in_turns
    def test_elementwise_layouts(operator: Operator, layout: str) -> None:
        check_layout(operator, layout)

    @classes
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.in_turns
    def test_class_layouts(operator: Operator, layout: str) -> None:
        check_layout(operator, layout)

    @elementwise
    @pytest.mark.in_turns
    def test_elementwise_ranks_that_do_not_merge(operator: Operator) -> None:
        """Every other element along each axis: eight axes are three more than the kernel takes. Other operators, other ranks."""
        for rank in range(GRADIENTS.index(operator) % 3, 9, 3):
            with told(rank):
                check_rank_that_does_not_merge(operator, rank)

    def check_rank_that_does_not_merge(operator: Operator, rank: int) -> None:
        shape = (2, 3, 2, 2, 2, 2, 2, 2)[:rank]
        rng = np.random.default_rng(rank)
        every_other = tuple(slice(None, None, 2) for _ in shape)
        arguments = {
            name: rng.normal(size=[2 * n for n in shape])[every_other].astype(np.float32)
            for name in tensor_names(operator)
        }
        arguments[tensor_names(operator)[-1]] = np.asarray(
            rng.normal(size=[2 * n for n in shape]), np.float32
        )[every_other]
        got = plain(operator)(**arguments)
        assert_matches_oracle(operator, arguments, got)

    @elementwise
    @dtypes
    @pytest.mark.parametrize("output", FLOATS, ids=str)
    @pytest.mark.in_turns
    def test_elementwise_two_roundings(operator: Operator, dtype: DType, output: DType) -> None:
        if has_one_dtype(operator, output, dtype):
            return  # the refusal is tested with its checks
        rng = np.random.default_rng(3)
        arguments = {
            name: rng.normal(size=1037).astype(dtype.numpy) for name in tensor_names(operator)
        }
        compute = openaclnn.explain(operator, **arguments).plan.compute
        same = plain(operator)(**arguments, out=np.empty(1037, compute.numpy))
        out = np.full(1037, nan, output.numpy)
        plain(operator)(**arguments, out=out)
        expected = same.astype(output.numpy).astype(np.float64)
        np.testing.assert_array_equal(out.astype(np.float64), expected)

    @elementwise
    @dtypes
    @pytest.mark.in_turns
    def test_elementwise_in_place(operator: Operator, dtype: DType) -> None:
        rng = np.random.default_rng(17)
        for name in tensor_names(operator):
            arguments = {
                each: rng.normal(size=(13, 70)).astype(dtype.numpy)
                for each in tensor_names(operator)
            }
            separate = plain(operator)(**arguments)
            got = plain(operator)(**arguments, out=arguments[name])
            np.testing.assert_array_equal(got.view(np.uint8), separate.view(np.uint8))

    @pytest.mark.parametrize("name", special_products.ELEMENTWISE)
    def test_elementwise_products(name: str) -> None:
        assert special_products.check(name, FLOAT, few=True) > 1
        if "smooth" in name:
            assert special_products.check(name, BFLOAT16, few=True) > 1

    @pytest.mark.parametrize(
        "place", range(len(special_activations.CASES)), ids=special_activations.IDS
    )
    @pytest.mark.in_turns
    def test_special_activations(place: int) -> None:
        special_activations.check(place, FLOAT)

    @pytest.mark.parametrize("name", special_products.CLASSES)
    def test_class_products(name: str) -> None:
        assert special_products.check(name, FLOAT, few=True) > 1

    def test_infinite_probabilities() -> None:
        special_products.check_infinite_probabilities(FLOAT)

    def test_an_infinite_gradient_meets_each_weight() -> None:
        special_products.check_infinite_gradients()

    def test_elementwise_integers_promote() -> None:
        operator = openaclnn.find_operator("l1_loss_backward")
        arguments = {
            "grad_output": np.ones(5, np.float16),
            "self": np.array([1, 2, 3, 4, 2049], np.int32),  # 2049 is 2048 in float16: a tie
            "target": np.array([True, False, True, True, True]),
        }
        got = plain(operator)(**arguments)
        assert_matches_oracle(operator, arguments, got)
        arguments["target"] = np.full(5, 2048, np.int64)
        np.testing.assert_array_equal(plain(operator)(**arguments)[-1], 0)

    SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 1e-3, -88.0, -100.0, 88.5, 1e30, inf, -inf, nan])

    OPTIONS: dict[str, list[dict[str, Any]]] = {
        "elu_backward": [
            {},
            {"alpha": 1.5, "scale": -2.0, "input_scale": 0.5},
            {"is_result": True},
        ],
        "smooth_l1_loss_backward": [{"beta": 0.0}, {"beta": 0.7}, {"beta": inf}],
    }

    @every_elementwise
    @pytest.mark.in_turns
    def test_elementwise_special_values(operator: Operator) -> None:
        """Every pair of special values, the same bits of NaN, infinity and zero as on the CPU; of a family's first in both dtypes, of others in one,
        by turns."""
        turn = GRADIENTS.index(operator) % len(INTERPRETED)
        every = EVERYTHING or operator in families(GRADIENTS)
        for dtype in INTERPRETED if every else INTERPRETED[turn : turn + 1]:
            with told(dtype):
                check_special_values(operator, dtype)

    def check_special_values(operator: Operator, dtype: DType) -> None:
        values = SPECIAL.astype(dtype.numpy)
        grids = np.meshgrid(*[values] * len(tensor_names(operator)))
        close = 1e-6 if dtype is FLOAT else 2.0**-7 if dtype is BFLOAT16 else 2.0**-10
        for options in OPTIONS.get(operator.python_name, [{}]):
            arguments = dict(zip(tensor_names(operator), grids, strict=True)) | options
            got = plain(operator)(**arguments).astype(np.float64)
            with openaclnn.use_engine("numpy"):
                expected = plain(operator)(**arguments).astype(np.float64)
            with told(options):
                np.testing.assert_allclose(got, expected, rtol=close, atol=1.2e-38)
                zero = expected == 0
                np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))

    def test_elementwise_exponential_is_precise() -> None:
        """A few units in the last place over the whole range; exp2(x * log2 e) alone loses 60."""
        x = -np.linspace(0, 87, 4001, dtype=np.float32)
        one = np.ones_like(x)
        got = openaclnn.elu_backward(one, x).astype(np.float64)
        np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=4 * 2.0**-24)

    @pytest.mark.parametrize("rows", [1, 7, 1030])
    @pytest.mark.parametrize("columns", [1, 3, 1030])
    @pytest.mark.in_turns
    def test_cross_entropy_regimes(rows: int, columns: int) -> None:
        """Few and many classes, one and several blocks of both, with every option on."""
        if rows * columns > 100_000:
            rows = 9
        operator = openaclnn.find_operator("cross_entropy_loss_grad")
        rng = np.random.default_rng(rows)
        target = rng.integers(-2, columns + 2, rows)  # a few ignored, a few out of range
        arguments = {
            "grad_loss": np.float32(1.5).reshape(()),
            "log_prob": -5 * rng.random((rows, columns)).astype(np.float32),
            "target": target,
            "weight": (0.5 + rng.random(columns)).astype(np.float32),
            "grad_zloss": np.float32(0.3).reshape(1),
            "lse_for_zloss": rng.normal(size=rows).astype(np.float32),
            "ignore_index": -1,
            "label_smoothing": 0.2,
            "lse_square_scale_for_zloss": 0.1,
        }
        known = heeded(arguments, columns)
        assert_matches_oracle(operator, known, plain(operator)(**arguments))
        for name in ("weight", "grad_zloss"):
            del arguments[name], known[name]
        assert_matches_oracle(operator, known, plain(operator)(**arguments))

    @dtypes
    @pytest.mark.parametrize(("columns", "off"), [(256, 1), (257, 0), (2049, 3), (4103, 0)])
    @pytest.mark.in_turns
    def test_cross_entropy_rows_that_begin_anywhere(dtype: DType, columns: int, off: int) -> None:
        """Heads, tails and targets in both, in place as well, and a canary around every tensor."""
        operator = openaclnn.find_operator("cross_entropy_loss_grad")
        rng = np.random.default_rng(columns)
        rows, edge = 9, 16
        target = np.array([0, 1, 2, columns - 1, columns - 2, columns // 2, -100, columns, 7])
        base = {
            "grad_loss": np.asarray(1.5, dtype.numpy),
            "target": target,
            "weight": (0.5 + rng.random(columns)).astype(np.float32),
        }
        log_prob = (-3 * rng.random((rows, columns))).astype(dtype.numpy)
        kinds: list[dict[str, float]] = [{}, {"label_smoothing": 0.2}]
        # In place, and beside: each dtype one of both without smoothing.
        for place, more in enumerate(kinds if dtype is FLOAT else kinds[::-1]):
            arguments = base | more | {"log_prob": log_prob}
            memory = np.full((2, rows * columns + 2 * edge + (-rows * columns) % 8), 7, dtype.numpy)
            views = [part[edge + off :][: rows * columns].reshape(rows, columns) for part in memory]
            views[0][...] = log_prob
            plain(operator)(**arguments | {"log_prob": views[0]}, out=views[place])
            assert_matches_oracle(operator, heeded(arguments, columns), views[place].copy())
            for part in memory:
                assert (part[: edge + off].astype(float) == 7).all()
                assert (part[edge + off + rows * columns :].astype(float) == 7).all()

    @dtypes
    def test_cross_entropy_in_place(dtype: DType) -> None:
        operator = openaclnn.find_operator("cross_entropy_loss_grad")
        for arguments in cases_of(operator, np.random.default_rng(19), dtype):
            separate = plain(operator)(**arguments)
            got = plain(operator)(**arguments, out=arguments["log_prob"])
            np.testing.assert_array_equal(got.view(np.uint8), separate.view(np.uint8))

    @dtypes
    def test_cross_entropy_special_values(dtype: DType) -> None:
        operator = openaclnn.find_operator("cross_entropy_loss_grad")
        log_prob = np.array([[0, -inf, nan], [-inf, nan, 0], [-1, -2, -3], [0, -90, -20]])
        base = {"log_prob": log_prob.astype(dtype.numpy), "target": np.array([0, -100, 2, 0])}
        gradients = np.array([1.0, inf, nan, -2.0]).astype(dtype.numpy)
        for more in (
            {"reduction": "sum", "grad_loss": gradients[0]},
            {"reduction": "none", "grad_loss": gradients},
            {"reduction": "mean", "grad_loss": gradients[3], "target": np.full(4, -100)},
            {"reduction": "mean", "grad_loss": gradients[0], "weight": np.zeros(3, np.float32)},
            {"reduction": "sum", "grad_loss": gradients[0], "weight": np.float32([1, inf, 2])},
            {"reduction": "sum", "grad_loss": gradients[3], "label_smoothing": 1.0},
        ):
            arguments = {**base, **more, "grad_loss": np.asarray(more["grad_loss"])}
            got = plain(operator)(**arguments).astype(np.float64)
            with openaclnn.use_engine("numpy"):
                expected = plain(operator)(**arguments).astype(np.float64)
            np.testing.assert_allclose(got, expected, rtol=2.0**-7, atol=1e-38)

    @pytest.mark.parametrize("index", [np.int64, np.int32, np.uint8])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_nll_targets_of_any_value(index: Any, reduction: str) -> None:
        """Targets far out of range touch nothing: the canary around every tensor stays."""
        operator = openaclnn.find_operator("nll_loss2d_backward")
        rng = np.random.default_rng(31)
        far = np.iinfo(index)
        target = rng.integers(0, 5, (3, 4, 6)).astype(index)
        target.reshape(-1)[::7] = far.max
        target.reshape(-1)[1::9] = far.min
        target.reshape(-1)[2::11] = 5
        gradient = rng.normal(size=target.shape if reduction == "none" else ()).astype(np.float32)
        view, memory = laid_out(np.zeros((3, 5, 4, 6), np.float32), "gaps in rows")
        arguments = {
            "grad_output": gradient,
            "self": np.zeros((3, 5, 4, 6), np.float32),
            "target": target,
            "weight": (0.5 + rng.random(5)).astype(np.float32),
            "reduction": reduction,
            "ignore_index": 3,
        }
        plain(operator)(**arguments, out=view)
        known = heeded(arguments, 5)
        assert_matches_oracle(operator, known, view.copy())
        assert (memory[..., :3].copy().view(np.uint8) == 0xA5).all()
        assert (memory[..., -2:].copy().view(np.uint8) == 0xA5).all()
        zero = operator.oracle(**known) != 0
        weightless = arguments | {"weight": np.zeros(5, np.float32), "reduction": "sum"}
        weightless["grad_output"] = np.float32(2).reshape(())
        assert np.signbit(plain(operator)(**weightless)[zero]).all()  # -(2 * 0) is -0

    @pytest.mark.parametrize("shape", [(300, 21), (257, 4), (130, 64), (5, 3)])
    def test_nll_of_short_rows_by_every_traversal(
        shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As few rows are walked, and dealt out to the threads that write them."""
        from openaclnn.engines.gpu.launchers import row_formulas

        operator = openaclnn.nll_loss_backward.operator
        for dtype, variant in zip((FLOAT, BFLOAT16), operator.workloads.VARIANTS, strict=False):
            arguments = operator.workloads.make(np.random.default_rng(4), dtype, shape, variant)
            arguments["target"][:3], arguments["ignore_index"] = (shape[1], -1, 1), 1
            arguments.pop("total_weight", None)
            results = []
            for few in (1 << 16, 0):
                monkeypatch.setattr(row_formulas, "SMALL", few)
                arguments["out"] = np.full(shape, nan, dtype.numpy)
                plan, addresses = planned(operator, arguments)
                assert gpu.prepare(plan)(addresses, 0) == 0
                results.append(arguments["out"].copy())
            assert_matches_oracle(operator, heeded(arguments, shape[1]), results[0])
            assert results[0].tobytes() == results[1].tobytes()

    @pytest.mark.parametrize("channels_last", [False, True])
    def test_nll_pixels_in_several_blocks(channels_last: bool) -> None:
        operator = openaclnn.find_operator("nll_loss2d_backward")
        rng = np.random.default_rng(1)
        arguments = {  # no total weight: the device adds it up
            "grad_output": np.float32(1.5).reshape(()),
            "self": np.zeros((2, 3, 17, 80), np.float32),
            "target": rng.integers(-1, 4, (2, 17, 80)),
            "weight": (0.5 + rng.random(3)).astype(np.float32),
            "ignore_index": 3,
        }
        out = np.full((2, 3, 17, 80), nan, np.float32)
        if channels_last:
            out = np.full((2, 17, 80, 3), nan, np.float32).transpose(0, 3, 1, 2)
        got = plain(operator)(**arguments, out=out).copy()
        assert_matches_oracle(operator, heeded(arguments, 3), got)

    @pytest.mark.parametrize("turned", [("target",), ("grad_output",), ("target", "grad_output")])
    @pytest.mark.parametrize("shape", [(2, 5, 21, 70), (1, 17, 33, 7)])
    def test_nll_transposed(turned: tuple[str, ...], shape: tuple[int, ...]) -> None:
        """Blocks of two axes: whole ones, and what is left at both edges."""
        operator = openaclnn.nll_loss2d_backward.operator
        rng = np.random.default_rng(3)
        arguments = operator.workloads.make(rng, FLOAT, shape, "random")
        dense = openaclnn.nll_loss2d_backward(**arguments)
        for name in turned:
            arguments[name] = arguments[name].swapaxes(-1, -2).copy().swapaxes(-1, -2)
        got = openaclnn.nll_loss2d_backward(**arguments)
        assert_matches_oracle(operator, arguments, got)
        assert got.tobytes() == dense.tobytes()

    @pytest.mark.parametrize(
        ("columns", "variant"),
        [
            (64, "mean"),
            (64, "none"),
            (150, "mean, weight"),
            (150, "mean, smoothing"),
            (577, "none"),
        ],
    )
    @pytest.mark.in_turns
    def test_cross_entropy_transposed(columns: int, variant: str) -> None:
        """A program goes through several blocks of classes."""
        operator = openaclnn.cross_entropy_loss_grad.operator
        arguments = operator.workloads.make(np.random.default_rng(3), FLOAT, (70, columns), variant)
        dense = openaclnn.cross_entropy_loss_grad(**arguments)
        turned = arguments["log_prob"].T.copy().T
        got = openaclnn.cross_entropy_loss_grad(**(arguments | {"log_prob": turned}))
        assert_matches_oracle(operator, arguments, got)
        assert got.tobytes() == dense.tobytes()
        into = np.zeros((columns, 70), np.float32).T
        openaclnn.cross_entropy_loss_grad(**arguments, out=into)
        assert np.ascontiguousarray(into).tobytes() == dense.tobytes()
        openaclnn.cross_entropy_loss_grad(**(arguments | {"log_prob": turned}), out=turned)
        assert np.ascontiguousarray(turned).tobytes() == dense.tobytes()

    def test_cross_entropy_transposed_as_many_elements_are(monkeypatch: pytest.MonkeyPatch) -> None:
        """By the tiles of 16 bits, of which a program walks several: what is read transposed, what is written, both, in place."""
        from openaclnn.engines.gpu.launchers import gradients, row_formulas

        monkeypatch.setattr(row_formulas, "SMALL", 0)
        monkeypatch.setattr(gradients, "MANY_ELEMENTS", 70 * 600)
        operator = openaclnn.cross_entropy_loss_grad.operator
        arguments = operator.workloads.make(np.random.default_rng(3), BFLOAT16, (70, 600), "mean")
        turned = arguments["log_prob"].T.copy().T
        for log_prob, into in (
            (arguments["log_prob"], np.zeros_like(turned.T).T), (turned, np.zeros_like(turned.T).T), (turned, np.zeros_like(arguments["log_prob"])), (turned, turned),
        ):  # fmt: skip
            openaclnn.cross_entropy_loss_grad(**(arguments | {"log_prob": log_prob}), out=into)
            assert_matches_oracle(operator, arguments, into)

    def test_nll_transposed_far_apart() -> None:
        """Neighbours along a row lie 2^27 bytes apart: offsets within a block need 64 bits."""
        operator = openaclnn.nll_loss2d_backward.operator
        arguments = operator.workloads.make(
            np.random.default_rng(3), FLOAT, (1, 5, 3, 17), "random"
        )
        arguments["ignore_index"] = 255
        arguments["target"] = (np.arange(51) % 5).astype(np.uint8).reshape(1, 3, 17)
        memory = np.zeros(17 << 27, np.uint8)  # pages that nobody touches are not there
        far = np.lib.stride_tricks.as_strided(memory, (1, 3, 17), (1, 1, 1 << 27))
        far[...] = arguments["target"]
        dense = openaclnn.nll_loss2d_backward(**arguments)
        got = openaclnn.nll_loss2d_backward(**(arguments | {"target": far}))
        assert_matches_oracle(operator, arguments, got)
        assert got.tobytes() == dense.tobytes()

    def test_cross_entropy_transposed_far_apart() -> None:
        operator = openaclnn.cross_entropy_loss_grad.operator
        arguments = operator.workloads.make(np.random.default_rng(3), FLOAT16, (3, 17), "mean")
        memory = np.zeros(17 << 26, np.float16)
        far = np.lib.stride_tricks.as_strided(memory, (3, 17), (2, 2 << 26))
        far[...] = arguments["log_prob"]
        dense = openaclnn.cross_entropy_loss_grad(**arguments)
        got = openaclnn.cross_entropy_loss_grad(**(arguments | {"log_prob": far}))
        assert_matches_oracle(operator, arguments, got)
        assert got.tobytes() == dense.tobytes()

    @dtypes
    @pytest.mark.parametrize("variant", ["random", "mean, patches"])
    @pytest.mark.parametrize(
        ("shape", "turned"),
        [((2, 5, 47, 53), False), ((2, 5, 4, 64), False), ((2, 5, 4, 64), True)],
    )
    def test_nll_of_images_has_the_bits_of_its_formula(
        dtype: DType, variant: str, shape: tuple[int, ...], turned: bool
    ) -> None:
        """By its own kernels, of planes that begin anywhere and of others, and by the row formula."""
        from openaclnn.engines.gpu.launchers import gradients, pixels

        operator = openaclnn.nll_loss2d_backward.operator
        arguments = operator.workloads.make(np.random.default_rng(4), dtype, shape, variant)
        arguments.pop("total_weight", None)  # a mean's is added up on the device
        if turned:
            arguments["target"] = arguments["target"].swapaxes(-1, -2).copy().swapaxes(-1, -2)
        results = []
        for launcher in (pixels.PIXELS, gradients.GRADIENTS):
            arguments["out"] = np.full(shape, nan, dtype.numpy)
            plan, addresses = planned(operator, arguments)
            assert launcher.runner(plan)(addresses, 0) == 0
            results.append(arguments["out"].copy())
        of_pixels, formula = results
        assert of_pixels.tobytes() == formula.tobytes()
        assert of_pixels.astype(np.float32).any()
        assert not np.isnan(of_pixels.astype(np.float32)).any()

    def test_nll_panels_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
        """Several panels of several blocks, the last one short, and chunks that do not divide."""
        from openaclnn.engines.gpu.launchers import pixels

        monkeypatch.setattr(pixels, "PANEL_PIXELS", 32)
        monkeypatch.setattr(pixels, "pixel_tile", lambda *_: (1, 16, 1, 1, 3))
        operator = openaclnn.find_operator("nll_loss2d_backward")
        for arguments in cases_of(operator, np.random.default_rng(6), FLOAT):
            assert_matches_oracle(operator, arguments, plain(operator)(**arguments))

    def test_sums_in_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
        from openaclnn.engines.gpu.launchers import sums as module

        monkeypatch.setattr(module, "FEW_POSITIONS", 8)
        monkeypatch.setattr(module, "FEW_PARTS", 4)
        monkeypatch.setattr(module, "MANY_PARTS", 32)
        monkeypatch.setattr(module, "SUM_BLOCK", 16)
        for operator in GRADIENTS:
            if not is_elementwise(operator):
                for arguments in cases_of(operator, np.random.default_rng(5), FLOAT):
                    arguments.pop("total_weight", None)
                    assert_matches_oracle(operator, arguments, plain(operator)(**arguments))


if MODE == "compile":
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    COMPILED: list[Any] = []  # (compiled source, metadata, arguments of the launch)

    class Launcher:
        def __init__(self, source: Any, metadata: Any) -> None:
            self.source, self.metadata = source, metadata

        def __call__(self, *arguments: Any) -> None:
            COMPILED.append((self, arguments))

    class Utilities:
        def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> Any:
            return f"module on {device}", f"{name} on {device}", 32, 0, 1024

        def get_device_properties(self, device: int) -> dict[str, int]:
            return {"max_shared_mem": 232_448, "multiprocessor_count": 132}

        def unload_module(self, module: Any) -> None: ...

    class H200:
        """A driver that compiles for the real thing and notes what would be launched."""

        utils, launcher_cls, current = Utilities(), Launcher, 0

        def get_current_device(self) -> int:
            return self.current

        def set_current_device(self, device: int) -> None:
            self.current = device

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def map_python_to_cpp_type(self, kind: str) -> str:
            return kind

    class TwoDevices:
        """The CUDA driver's answer to where an address lies: device 1 from 2^40 on."""

        def cuPointerGetAttribute(self, into: Any, attribute: int, address: Any) -> int:
            into._obj.value = int(address.value >= 1 << 40)
            return 0

    @pytest.fixture(autouse=True)
    def device(monkeypatch: pytest.MonkeyPatch) -> H200:
        fake = H200()
        driver.set_active(fake)
        monkeypatch.setattr(runners, "device_library", lambda: None)
        monkeypatch.setattr(native, "driver", lambda: None)  # where there is one, it is not ours
        COMPILED.clear()
        return fake

    def operand(name: str, dtype: DType, strides: tuple[int, ...], **more: Any) -> Operand:
        return Operand(name, dtype, strides, **more)

    def pair_plan(dtype: DType, shape: tuple[int, ...], *strides: tuple[int, ...]) -> Plan:
        *inputs, output = (operand(n, dtype, s) for n, s in zip("gxyo", strides, strict=True))
        numbers = {"mean_scale": 1.0, "beta": 1.0}
        kernel = "smooth_l1_loss_backward"
        return Plan("aclnn", kernel, dtype, shape, tuple(inputs), output, numbers)

    def row_plan(dtype: DType, rows: int, columns: int, mean: bool) -> Plan:
        full = {"class_stride": 1, "role": "full"}
        inputs = (
            operand("target", INT64, (1,), role="positions"),
            operand("gradLoss", dtype, (0,), role="single"),
            operand("logProb", dtype, (columns,), **full),
        )
        numbers = {
            "ignore_index": -100, "mean": mean, "weighted": False, "label_smoothing": 0.0,
            "zloss_scale": 0.0, "grad_zloss_given": False,
        }  # fmt: skip
        output = operand("out", dtype, (columns,), **full)
        kernel = "cross_entropy_loss_grad"
        return Plan("aclnn", kernel, dtype, (rows,), inputs, output, numbers, columns, 0, class_axis=1)  # fmt: skip

    def turned_row_plan(dtype: DType) -> Plan:
        plan = row_plan(dtype, 16384, 4096, False)
        target, gradient, log_prob = plan.inputs
        log_prob = log_prob._replace(strides=(1,), class_stride=16384)
        return replace(plan, inputs=(target, gradient, log_prob))

    def pixel_plan(dtype: DType) -> Plan:
        inputs = (
            operand("target", INT64, (8192, 1), role="positions"),
            operand("gradOutput", dtype, (8192, 1), role="positions"),
            operand("weight", dtype, (0, 0), class_stride=1, role="classes"),
        )
        output = operand("out", dtype, (21 * 8192, 1), class_stride=8192)
        numbers = {"ignore_index": -100, "mean": False, "total_weight_given": False}
        kernel = "nll_loss2d_backward"
        return Plan("aclnn", kernel, dtype, (4, 8192), inputs, output, numbers, 21, 0)

    def assembly(plan: Plan, addresses: list[int]) -> str:
        """The PTX of the plan's last kernel."""
        variants._variants.clear()
        assert gpu.prepare(plan)(addresses, 5) == 0
        *_, last = variants._variants.values()
        return str(last.binary.asm["ptx"])

    def plans(dtype: DType) -> dict[str, Plan]:
        """Of each kind; of 16 bits one of each pattern, which take as long to compile."""
        matrix, turned, row, column = (8192, 1), (1, 8192), (0, 1), (1, 0)
        shape = (8192, 8192)
        every = {
            "flat": pair_plan(dtype, (1 << 28,), (1,), (1,), (1,), (1,)),
            "flat, ragged": pair_plan(dtype, ((1 << 28) + 1,), (1,), (1,), (1,), (1,)),
            "flat, long": pair_plan(dtype, (1 << 32,), (1,), (1,), (1,), (1,)),
            "transposed": pair_plan(dtype, shape, matrix, turned, matrix, matrix),
            "outer": pair_plan(dtype, shape, (0, 0), column, row, matrix),
            "rows": row_plan(dtype, 4096, 128256, False),
            "rows, transposed": turned_row_plan(dtype),
            "pixels": pixel_plan(dtype),
        }
        kept = every if dtype is FLOAT else ("flat", "transposed", "rows", "pixels")
        return {name: every[name] for name in kept}

    ALIGNED = 1 << 20

    @dtypes
    def test_aligned_data_move_by_16_bytes(dtype: DType) -> None:
        for name, plan in plans(dtype).items():
            text = assembly(plan, [ALIGNED] * (len(plan.inputs) + 1))
            if name == "pixels":  # 8 bytes of 16-bit classes were faster; see pixel_tile
                assert re.search(r"st\.global\.cs\.v[24]\.b32", text)
            else:
                assert "st.global.v4.b32" in text, name
                assert name == "outer" or "ld.global.v4.b32" in text, name
            assert not re.search(r"\b(atom|red)\.", text), name

    @dtypes
    def test_halves_move_by_16_bytes(dtype: DType) -> None:
        """Of rows, and one after the other; both halves of the output, too."""
        for shape in ((8192, 8192), (8, 1 << 20)):
            x, g = (Tensor(sizes, dtype) for sizes in (shape, (shape[0], shape[1] // 2)))
            halves = [("self", Half(x, 1, second)) for second in (False, True)]
            out = [("out", half) for _, half in halves]
            kernel = "glu_backward"
            plan = halves_plan("aclnn", kernel, dtype, [("gradOut", g), *halves], out, {})
            text = assembly(plan, [ALIGNED] * 5)
            assert len(re.findall(r"ld\.global\.v4\.b32", text)) >= 3
            assert len(re.findall(r"st\.global\.v4\.b32", text)) >= 2
            assert not re.search(r"(ld|st)\.global\.b(16|32)", text)

    @dtypes
    def test_one_address_off_and_only_its_vectors_are_gone(dtype: DType) -> None:
        for name, plan in plans(dtype).items():
            if name not in plans(BFLOAT16) and not EVERYTHING:
                continue
            addresses = [ALIGNED] * len(plan.inputs) + [ALIGNED + dtype.itemsize]
            text = assembly(plan, addresses)
            assert not re.search(r"st\.global\.(cs\.)?v[24]", text), name
            assert not name.startswith("flat") or "ld.global.v4.b32" in text, name

    @dtypes
    def test_all_addresses_off_alike_and_data_move_by_16_bytes(dtype: DType) -> None:
        for name, plan in plans(dtype).items():
            if name.startswith("flat"):
                addresses = [ALIGNED + dtype.itemsize] * (len(plan.inputs) + 1)
                text = assembly(plan, addresses)
                assert "entry shifted" in text, name
                assert "st.global.v4.b32" in text, name
                assert text.count("ld.global.v4.b32") >= 3, name

    BEGINNINGS = [*product(INTERPRETED, ((128256, 1), (50257, 3), (50260, 0)))]

    @pytest.mark.parametrize(("dtype", "row"), BEGINNINGS, ids=str)
    @pytest.mark.in_turns
    def test_rows_that_begin_anywhere_move_by_16_bytes(dtype: DType, row: tuple[int, int]) -> None:
        classes, off = row
        plan = row_plan(dtype, 4096, classes, False)
        addresses = [ALIGNED + (index >= 2) * off * dtype.itemsize for index in range(4)]
        text = assembly(plan, addresses)
        assert "st.global.v4.b32" in text
        assert "ld.global.v4.b32" in text
        addresses[2] += dtype.itemsize
        text = assembly(plan, addresses)  # not as far off as out: no common vectors
        assert not (off or classes * dtype.itemsize % 16) or "st.global.v4" not in text

    def test_the_sum_and_its_user_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scratch, "functions", lambda: (lambda *_: 1 << 30, lambda at: None))
        text = assembly(row_plan(FLOAT, 4096, 4096, True), [ALIGNED] * 4)
        first_load, wait = text.index("ld.global.v4"), text.index("griddepcontrol.wait")
        assert first_load < wait < text.index("st.global.v4")
        assert [launcher.metadata.launch_pdl for launcher, _ in COMPILED] == [False, True]
        text = assembly(row_plan(FLOAT, 4096, 4096, False), [ALIGNED] * 4)
        assert "griddepcontrol" not in text

    def test_formulas_round_products_and_sums_apart() -> None:
        """As NumPy does: contracted, (x + alpha * scale) * g would have other bits."""
        plan = plans(FLOAT)["flat"]
        numbers = {"alpha": 1.5, "scale": 1.1, "input_scale": 0.9, "is_result": True}
        elu = replace(plan, kernel="elu_backward", inputs=plan.inputs[:2], numbers=numbers)
        for variant in (plan, replace(plan, kernel="l1_loss_backward"), elu):
            text = assembly(variant, [ALIGNED] * (len(variant.inputs) + 1))
            assert "fma" not in text
            assert "mul" in text

    def test_formulas_of_any_shape_compile(monkeypatch: pytest.MonkeyPatch) -> None:
        from openaclnn.engines.formulas import described
        from test_gpu_formulas import four_and_six, one_and_none

        for function, inputs in ((four_and_six, 4), (one_and_none, 1)):
            formula = described(function)
            monkeypatch.setitem(FORMULAS, formula.name, formula)
            numbers = {**dict.fromkeys(formula.numbers, 0.5), "flipped": False}
            for name, plan in plans(BFLOAT16).items():
                if not plan.classes:
                    first, *_, last = plan.inputs
                    operands = (first, *[last] * (inputs - 1))
                    own_plan = replace(plan, kernel=formula.name, inputs=operands, numbers=numbers)
                    text = assembly(own_plan, [ALIGNED] * (inputs + 1))
                    assert "st.global.v4.b32" in text, name

    def test_what_is_launched() -> None:
        plan = plans(FLOAT)["flat"]
        runner = gpu.prepare(plan)
        for start in (1 << 20, 1 << 21):
            runner([start, start + 16, start + 32, start + 48], 1234)
        (_, first), (_, second) = COMPILED
        programs, y, z, stream, function, *_ = first
        assert (programs, y, z, stream) == ((1 << 28) // 1024, 1, 1, 1234)
        assert function == "flat_smooth_l1_clamped on 0"
        assert first[:9] == second[:9]
        assert first[9:13] == (1 << 20, (1 << 20) + 16, (1 << 20) + 32, (1 << 20) + 48)

    def test_a_kernel_is_loaded_before_the_builtin_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
        """Triton loads a binary when it is first run, and knows its function only then."""
        filled: list[Any] = []

        class Recorder:
            fill = staticmethod(lambda index, launch, kernel, *_: filled.append((index, kernel)))
            function = staticmethod(lambda fallback: fallback)

        monkeypatch.setattr(runners, "_block_of", lambda *_: Recorder)
        monkeypatch.setattr(native, "driver", lambda: "any")
        monkeypatch.setattr(native.Kernel, "of", lambda recorder, *_: recorder.function)
        plan = pair_plan(FLOAT16, (1 << 32,), *[(1,)] * 4)  # of which no other test has the kernel
        assert gpu.prepare(plan)((ALIGNED,) * 4, 5) == 0
        variants._variants.clear()
        assert filled == [(0, "flat_smooth_l1_clamped on 0")]

    def test_the_output_names_the_device(device: H200, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runners, "device_library", TwoDevices)
        runner = gpu.prepare(plans(FLOAT16)["flat"])
        runner([1 << 41] * 4, 7)
        runner([1 << 20] * 4, 8)
        assert [arguments[3:5] for _, arguments in COMPILED] == [
            (7, "flat_smooth_l1_clamped on 1"), (8, "flat_smooth_l1_clamped on 0"),
        ]  # fmt: skip
        assert device.current == 0

    def test_scratch_is_taken_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
        events: list[Any] = []

        def allocate(size: int, stream: int) -> int:
            events.append(("allocate", size <= 32 << 10, stream))
            return 1 << 30

        monkeypatch.setattr(scratch, "functions", lambda: (allocate, events.append))
        for rows, launches in ((100, 2), (100_000, 2), (1_000_000, 3)):
            COMPILED.clear()
            gpu.prepare(row_plan(BFLOAT16, rows, 4096, True))([1 << 20] * 4, 9)
            assert len(COMPILED) == launches
            assert (1 << 30) in COMPILED[0][1]
        assert events == [("allocate", True, 9), 1 << 30] * 3

    def test_declines_name_the_dtype() -> None:
        from openaclnn.core.dtypes import COMPLEX64

        plan = plans(FLOAT)["flat"]
        strange = Plan(
            "aclnn", plan.kernel, FLOAT, plan.shape, plan.inputs,
            operand("gradInput", COMPLEX64, (1,)), plan.numbers,
        )  # fmt: skip
        assert gpu.declines(plan) is None
        unknown = replace(plan, kernel="smooth_l2_loss_backward")
        assert gpu.declines(unknown) == "no Triton kernel is called smooth_l2_loss_backward"
        assert gpu.declines(strange) == "no Triton kernel writes COMPLEX64 (gradInput)"
