"""The Triton kernels of cross entropy from logits and of sums over all elements without a GPU: interpreted on host memory, and compiled for an H200.

Each way is a process of its own: see `test_gpu.py`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from workloads import cases_of

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    from interpreted import on_the_interpreter  # noqa: F401

if MODE:
    import openaclnn
    from conftest import (
        INTERPRETED,
        LAYOUTS,
        assert_matches_oracle,
        assert_near_oracle,
        confident,
        fresh,
        laid_out,
        outliers,
    )
    from openaclnn.calls.plain import make_plain_function
    from openaclnn.core.call import bind_plain
    from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOATS, DType
    from openaclnn.core.plan import Plan
    from openaclnn.core.products import current_product
    from openaclnn.core.tensor import Tensor
    from openaclnn.engines import gpu
    from openaclnn.engines.gpu.launchers import reductions, row_formulas
    from openaclnn.engines.gpu.launching import native, runners, scratch
    from openaclnn.operators import load_family
    from openaclnn.operators.logits import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
    from test_gpu_sized import anyhow
    from workloads.logits import cases, grad_of

    loss_of, gradient_of = (
        make_plain_function(operator) for operator in (CROSS_ENTROPY, CROSS_ENTROPY_GRAD)
    )
    dtypes = pytest.mark.parametrize("dtype", INTERPRETED[1:], ids=str)
    nan, inf = np.nan, np.inf

    SUMMED = ("l1_loss", "smooth_l1_loss", "nll_loss", "nll_loss2d")
    SIZES: dict[str, list[tuple[tuple[int, ...], float]]] = {
        "elementwise": [((3, 5), 0.7), ((2,), 0.5), ((1024,), 2), ((2, 3, 1000), 1.0), ((3, 1), 0.3)],
        "rows": [((5, 3), -100), ((1, 4), 1), ((7, 1), 0), ((1030, 3), 2), ((2049, 2), 1)],
        "pixels": [((2, 3, 4, 5), 1), ((1, 3, 2, 2), -7), ((9, 2, 1, 1), 0), ((2, 1, 30, 40), -1)],
    }  # fmt: skip
    """Shapes of a pattern, each with a number of the call's."""

    def planned(
        operator: Any, shape: tuple[int, ...], reduction: str, dtype: DType, number: float
    ) -> tuple[Plan, tuple[int, ...], Any, tuple[Any, ...]]:
        """A plain call's plan, its addresses, its outputs and what it reads, and the number if it takes one."""
        variant = next(iter(operator.workloads.VARIANTS))
        arguments = operator.workloads.make(np.random.default_rng(3), dtype, shape, variant)
        arguments = operator.plain_defaults | arguments | {"reduction": reduction}
        free = [name for name in ("beta", "ignore_index") if name in arguments]
        arguments |= dict.fromkeys(free, number)
        call, outputs = with_outputs(operator, bind_plain(operator, arguments, current_product()))
        plan = operator.plan(call)
        assert [parameter.option for parameter in plan.free] == free
        addresses = tuple(call.tensor(operand.parameter).address for operand in plan.operands)
        return plan, addresses, (outputs, arguments), (number,) * len(free)

    WHOLE = openaclnn.find_operator("cross_entropy_loss")

    def logit_cases(
        shape: tuple[int, int], dtype: DType, every: int = 1
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Cross entropy from logits in each of its kinds, for training and as the interface has it."""
        rng = np.random.default_rng(shape[0])
        yield from ((CROSS_ENTROPY, case) for case in [*cases(rng, dtype, shape)][::every])
        kinds = product(("none", "mean", "sum"), (0.0, 0.25), (0.0, 0.125), (False, True))
        for number, (reduction, smoothing, scale, returned) in enumerate(kinds):
            weight = (0.5 + rng.random(shape[1])).astype(np.float32)
            arguments = {
                "input": rng.normal(size=shape).astype(dtype.numpy), "target": rng.integers(0, shape[1], shape[0]),
                "weight": weight if number % 3 else None, "reduction": reduction, "ignore_index": 1,
                "label_smoothing": smoothing, "lse_square_scale_for_zloss": scale, "return_zloss": returned,
            }  # fmt: skip
            if number % every == 0:
                yield WHOLE, arguments

    def bound(operator: Any, arguments: dict[str, Any]) -> tuple[Plan, tuple[int, ...], list[Any]]:
        """A plain call's plan, its addresses and its outputs."""
        call = bind_plain(operator, operator.plain_defaults | arguments, current_product())
        call, outputs = with_outputs(operator, call)
        plan = operator.plan(call)
        return (
            plan,
            tuple(call.tensor(operand.parameter).address for operand in plan.operands),
            outputs,
        )

    def numbered(operator: Any, arguments: dict[str, Any], number: int) -> dict[str, Any]:
        """With numbers of its own, where a kind may have others."""
        return arguments if operator is CROSS_ENTROPY else arguments | {"ignore_index": number}

    def free_of(plan: Plan) -> tuple[Any, ...]:
        """The plan's free numbers, in order."""
        names = ("ignore_index", "label_smoothing", "zloss_scale")[: len(plan.free)]
        return tuple(plan.numbers[name] for name in names)

    def strides_of(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The axes' sizes, and every operand's strides along them."""
        strides = [step for each in plan.operands for step in (*each.strides, each.class_stride)]
        return (*plan.shape, plan.classes), tuple(strides)

    def with_outputs(operator: Any, call: Any) -> tuple[Any, list[Any]]:
        outputs = [np.zeros(size, kind.numpy) for size, kind in operator.results(call)]
        for output, array in zip(operator.outputs, outputs, strict=True):
            call.values[output.name] = Tensor.from_numpy(array)
        return call, outputs


if MODE == "interpret":

    def drawn(
        dtype: DType, shape: tuple[int, ...], every: int = 1
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        rng = np.random.default_rng(5)
        for case in [*cases(rng, dtype, shape)][::every]:
            yield case, grad_of(rng, case)

    @dtypes
    @pytest.mark.parametrize(
        ("shape", "every"),
        [
            ((9, 7), 2), ((1, 1), 11), ((300, 4), 11), ((3, 130), 7), ((2, 1029), 5), ((1, 4200), 7),
            ((2, 5, 3, 4), 3), ((1, 1, 1), 11), ((1, 9, 300), 7),
        ],
    )  # fmt: skip
    @pytest.mark.in_turns
    def test_cases_match_the_oracle(dtype: DType, shape: tuple[int, ...], every: int) -> None:
        """Short rows together, and long ones alone, whose first and last vectors are not whole, and in parts; and images."""
        every = every if dtype is FLOAT else 7
        for case, gradient in drawn(dtype, shape, every):
            assert_matches_oracle(CROSS_ENTROPY, case, loss_of(**case))
            assert_matches_oracle(CROSS_ENTROPY_GRAD, gradient, gradient_of(**gradient))

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.in_turns
    def test_any_layout(layout: str) -> None:
        """And outputs whose gaps keep their bytes."""
        dtype = FLOATS[LAYOUTS.index(layout) % 3]
        tensors = {"input", "target", "weight", "grad_loss", "top", "rest"}
        other = LAYOUTS[(LAYOUTS.index(layout) + 1) % len(LAYOUTS)]
        for case, gradient in drawn(dtype, (5, 150), 7):

            def turned(arguments: dict[str, Any]) -> dict[str, Any]:
                return {
                    name: laid_out(value, layout)[0]
                    if name in tensors and value is not None
                    else value
                    for name, value in arguments.items()
                }

            outputs = [laid_out(np.zeros_like(array), other) for array in loss_of(**case)]
            results = loss_of(**turned(case), out=[array for array, _ in outputs])
            assert_matches_oracle(CROSS_ENTROPY, case, results)
            out = laid_out(np.zeros_like(case["input"]), other)
            slopes = gradient_of(**turned(gradient), out=out[0])
            assert_matches_oracle(CROSS_ENTROPY_GRAD, gradient, slopes)
            for array, memory in (*outputs, out):
                array[...] = 0
                clean, untouched = laid_out(np.zeros(array.shape, array.dtype), other)
                assert clean.shape == array.shape
                np.testing.assert_array_equal(memory.view(np.uint8), untouched.view(np.uint8))

    def test_images_of_any_layout() -> None:
        for case, gradient in drawn(FLOAT, (2, 5, 2, 3), 11):
            expected, slope = loss_of(**case), gradient_of(**gradient)
            for order in ((0, 2, 3, 1), (1, 3, 0, 2)):
                turned = {}
                for name, value in gradient.items():
                    if isinstance(value, np.ndarray) and value.ndim > 2:
                        axes = [axis for axis in order if axis < value.ndim]
                        value = np.ascontiguousarray(value.transpose(axes)).transpose(
                            np.argsort(axes)
                        )
                    turned[name] = value
                arguments = {name: turned[name] for name in case}
                for result, known in zip(loss_of(**arguments), expected, strict=True):
                    np.testing.assert_allclose(result, known, rtol=1e-6)
                place = np.zeros(slope.shape[::-1], np.float32).T
                gradient_of(**turned, out=place)
                np.testing.assert_array_equal(place, slope)

    def test_few_long_rows_are_read_by_several_programs(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(row_formulas, "has_clusters", lambda: True)
        clusters = []
        queue = runners.queue

        def queued(launch: Any, *more: Any) -> None:
            clusters.append(launch.spec.cluster)
            queue(launch, *more)

        monkeypatch.setattr(runners, "queue", queued)
        for turn, shape in enumerate(((3, 33001), (1, 66000))):
            for case in [*cases(np.random.default_rng(2), FLOAT, shape)][turn::5]:
                gpu._runners.clear()
                x = case["input"]
                x[0, [5, shape[1] // 2, shape[1] - 1]] = x.max() + 1  # several that are the largest
                assert_matches_oracle(CROSS_ENTROPY, case, loss_of(**case))
                assert (clusters[0] > 1) == (not case["label_smoothing"])
                clusters.clear()

    def test_nothing_beside_a_row_is_read() -> None:
        """Rows that begin anywhere, between numbers that would show."""
        x = np.random.default_rng(2).normal(size=(3, 1100)).astype(np.float32)
        case = {"input": x, "target": np.arange(3), "reduction": "none"}
        expected = loss_of(**case)
        for off in range(5):
            base = np.full((3, 1107), nan, np.float32)
            base[:, off : off + 1100] = x
            moved = case | {"input": base[:, off : off + 1100]}
            for result, known in zip(loss_of(**moved), expected, strict=True):
                np.testing.assert_allclose(result, known, rtol=1e-6)

    def test_rows_have_the_same_gradients_by_every_traversal(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """As few rows are walked, and dealt out to a thread or to several, walked whole, and in pieces."""
        rng = np.random.default_rng(8)
        for turn, shape in enumerate(((9, 21), (5, 71), (3, 1101), (2, 2101))):
            for case in [*cases(rng, FLOAT, shape)][turn % 4 :: 4]:
                arguments = grad_of(rng, case)
                plan, addresses, (out,) = bound(CROSS_ENTROPY_GRAD, arguments)
                gradients = []
                for few in (1 << 16, 0):
                    monkeypatch.setattr(row_formulas, "SMALL", few)
                    out[...] = 7
                    assert gpu.prepare(plan)(addresses, 0) == 0
                    gradients.append(out.copy())
                np.testing.assert_allclose(
                    *gradients, rtol=2e-6, atol=1e-7 * np.abs(gradients[0]).max()
                )

    def test_the_gradient_may_be_written_over_the_logits() -> None:
        for shape in ((9, 7), (2, 1029), (2, 9, 33)):
            for _, gradient in drawn(FLOAT, shape, 7):
                expected = gradient_of(**gradient)
                logits = gradient["input"].copy()
                gradient_of(**gradient | {"input": logits}, out=logits)
                np.testing.assert_array_equal(logits, expected)

    @pytest.mark.parametrize("classes", [2, 40, 1100])
    def test_confident_rows_keep_their_digits(classes: int) -> None:
        for gap in (3.0, 20.0, 60.0):
            place, case = confident(classes, gap)
            loss, top, rest = loss_of(**case)
            exact = CROSS_ENTROPY.oracle(**case)
            np.testing.assert_allclose(loss, exact.loss, rtol=1e-5)
            np.testing.assert_allclose(rest, exact.rest, rtol=1e-5)
            gradient = gradient_of(np.ones(4, np.float32), top=top, rest=rest, **case)
            np.testing.assert_allclose(
                gradient[np.arange(4), place], np.expm1(-rest.astype(np.float64)), rtol=1e-6
            )

    @pytest.mark.parametrize("classes", [2, 3, 33, 1000, 4203, 12300])
    @pytest.mark.in_turns
    def test_classes_far_from_the_others_are_smoothed(classes: int) -> None:
        """Masked classes, in rows that begin anywhere, in one part and in several, and in pixels."""
        for number, case in enumerate(outliers(FLOAT, classes)):
            # Each place, with each sort of weights: in one part, and by turns in several.
            few = {1000: (0, 4, 8, 9), 4203: (0, 8), 12300: (4, 9)}.get(classes)
            if few is not None and number not in few:
                continue
            x, target = case["input"], case["target"]
            assert_near_oracle(CROSS_ENTROPY, case, loss_of(**case).loss)
            if number % 3 == 1:
                assert_near_oracle(WHOLE, case, openaclnn.cross_entropy_loss(**case).loss)
                for row in range(len(x)):
                    one = {"input": x[row : row + 1], "target": target[:1], "reduction": "mean"}
                    assert_near_oracle(CROSS_ENTROPY, case | one, loss_of(**case | one).loss)
            if classes < 100 or (classes == 1000 and number == 8):
                image = {"input": np.ascontiguousarray(x.T)[None], "target": target[None]}
                assert_near_oracle(CROSS_ENTROPY, case | image, loss_of(**case | image).loss)

    def test_pixels_of_very_many_classes_are_smoothed() -> None:
        """A lane adds up a thousand of them, one after the other."""
        case = next(iter(outliers(FLOAT, 128256)))
        image = {"input": np.ascontiguousarray(case["input"].T)[None], "target": case["target"][None]}  # fmt: skip
        assert_near_oracle(CROSS_ENTROPY, case | image, loss_of(**case | image).loss)

    @pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
    @pytest.mark.parametrize("wide", [1, 350])
    @pytest.mark.in_turns
    def test_special_logits(dtype: DType, wide: int) -> None:
        rows = np.float32(
            [
                [nan, 0, 1], [0, 1, nan], [inf, 0, 1], [0, inf, inf], [-inf, 0, 1], [-inf, -inf, 0],
                [-inf, -inf, -inf], [nan, inf, -inf], [-3e38, -3e38, -3e38], [3e38, 3e38, -3e38],
            ]
        ).astype(dtype.numpy)  # fmt: skip
        x = np.repeat(rows, wide, axis=1)
        kinds: tuple[dict[str, float], ...] = ({}, {"label_smoothing": 0.1}, {"zloss_scale": 0.5})
        for options in kinds if wide == 1 else kinds[:2]:
            many = len(x)
            case = {"input": x, "target": np.full(many, wide), "reduction": "none", **options}
            loss, top, rest = loss_of(**case)
            exact = CROSS_ENTROPY.oracle(**case)
            rounded = exact.loss.astype(np.float32).astype(dtype.numpy).astype(np.float64)
            np.testing.assert_allclose(loss.astype(np.float64), rounded, rtol=2e-2)
            np.testing.assert_allclose(top, exact.top, rtol=1e-6)
            np.testing.assert_allclose(rest, exact.rest, rtol=1e-5, atol=1e-30)
            gradient = case | {"grad_loss": np.ones(many, dtype.numpy), "top": top, "rest": rest}
            exact_gradient = CROSS_ENTROPY_GRAD.oracle(**gradient).astype(np.float32)
            np.testing.assert_allclose(
                gradient_of(**gradient).astype(np.float64), exact_gradient, rtol=2e-2, atol=1e-6
            )

    def test_stray_targets_count_for_nothing() -> None:
        x = np.random.default_rng(3).normal(size=(4, 9)).astype(np.float32)
        for wrong in (9, -1, 2**40, -(2**63)):
            case = {"input": x, "target": np.array([1, wrong, 2, 3])}
            ignored = case | {"target": np.array([1, -100, 2, 3])}
            for result, known in zip(loss_of(**case), loss_of(**ignored), strict=True):
                np.testing.assert_array_equal(result, known)
            _, top, rest = loss_of(**case)
            gradient = gradient_of(np.float32(1), top=top, rest=rest, **case)
            np.testing.assert_array_equal(gradient[1], 0)
            known = gradient_of(np.float32(1), top=top, rest=rest, **ignored)
            np.testing.assert_array_equal(gradient, known)

    LOSSES = (
        "l1_loss",
        "smooth_l1_loss",
        "nll_loss",
        "nll_loss2d",
        "nll_loss_backward",
        "cross_entropy_loss",
    )
    losses = pytest.mark.parametrize("name", LOSSES)
    OF_ELEMENTS = [
        op.python_name
        for family in ("binary", "regression")
        for op in load_family(family)
        if not op.name.endswith("Backward")
    ]

    @pytest.mark.parametrize("name", [*LOSSES, *OF_ELEMENTS])
    @dtypes
    @pytest.mark.in_turns
    def test_losses_match_the_oracle(name: str, dtype: DType) -> None:
        operator = openaclnn.find_operator(name)
        every_case = [*cases_of(operator, np.random.default_rng(7), dtype)]
        for arguments in every_case[:: 1 + len(every_case) // 12]:
            got = getattr(openaclnn, name)(**arguments)
            assert_matches_oracle(operator, arguments, got)

    @losses
    def test_losses_of_strided_arrays(name: str) -> None:
        operator = openaclnn.find_operator(name)
        every_case = [*cases_of(operator, np.random.default_rng(9), FLOAT)]
        for layout, arguments in zip(
            LAYOUTS, every_case[:: max(1, len(every_case) // 5)], strict=False
        ):
            moved = {
                key: laid_out(value, layout)[0] if isinstance(value, np.ndarray) else value
                for key, value in arguments.items()
            }
            assert_matches_oracle(operator, arguments, getattr(openaclnn, name)(**moved))

    @pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
    def test_sums_along_axes(dtype: DType) -> None:
        """Channels' slopes and stretched targets: columns that are kept or added up, one part or several, other axes between them, any layout."""
        rng = np.random.default_rng(9)
        slopes, divergence = map(openaclnn.find_operator, ("prelu_backward", "kl_div_target_backward"))  # fmt: skip
        for shape, count in (((37, 5), 5), ((2, 3, 100), 3), ((1100,), 1), ((300, 20), 20), ((1, 7), 7)):  # fmt: skip
            arguments = {
                name: rng.normal(size=size).astype(dtype.numpy)
                for name, size in (("grad_output", shape), ("self", shape), ("weight", count))
            }
            assert_matches_oracle(slopes, arguments, openaclnn.prelu_backward(**arguments))
        for shape, model in (((40, 9), (9,)), ((9, 300), (9, 1)), ((2, 6, 4, 4), (6, 1, 4)), ((2, 5, 3, 4), (2, 1, 3, 1))):  # fmt: skip
            whole = rng.normal(size=shape).astype(dtype.numpy)
            target = (rng.random(model) + 0.1).astype(dtype.numpy)
            for x in (whole, np.asfortranarray(whole)[::-1]):
                arguments = {"grad_output": whole[..., :1], "self": x, "target": target}
                assert_matches_oracle(
                    divergence, arguments, openaclnn.kl_div_target_backward(**arguments)
                )

    @pytest.mark.parametrize("count", [1, 1023, 1024, 5001])
    def test_sums_of_many_elements(count: int) -> None:
        rng = np.random.default_rng(count)
        x, y = (rng.normal(size=count).astype(np.float32) for _ in range(2))
        for reduction, known in (
            ("sum", np.abs(x - y).sum(dtype=np.float64)),
            ("mean", np.abs(x - y).mean()),
        ):
            np.testing.assert_allclose(
                openaclnn.l1_loss(x, y, reduction=reduction), known, rtol=1e-6
            )
            one = openaclnn.l1_loss(x, np.float32(0), reduction=reduction)
            exact = np.abs(x).sum(dtype=np.float64) / (count if reduction == "mean" else 1)
            np.testing.assert_allclose(one, exact, rtol=1e-6)

    @pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
    def test_sums_of_stretched_numbers(dtype: DType) -> None:
        half, one = (np.broadcast_to(np.array(each, dtype.numpy), 5001) for each in (0.5, 1))
        assert openaclnn.l1_loss(half, one) == 0.5
        assert openaclnn.binary_cross_entropy(half, one) == dtype.numpy.type(np.log(2))

    @pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
    @pytest.mark.parametrize(
        ("x", "y"),
        [(0.25, inf), (0.75, -inf), (0.5, inf), (0, inf), (-0.1, 0.5), (1.5, 0), (inf, 1), (nan, 0), (0, 1), (1, 0), (0, 0), (1e-40, 1)],
    )  # fmt: skip
    def test_a_mean_s_probabilities_and_targets_of_any_value(
        x: float, y: float, dtype: DType
    ) -> None:
        """One among many, of which several are added up in FLOAT."""
        probabilities, targets = (np.full(9000, each, dtype.numpy) for each in (0.625, 0.25))
        probabilities[5000], targets[5000] = x, y
        arguments = {"self": probabilities, "target": targets, "reduction": "sum"}
        exact = openaclnn.find_operator("binary_cross_entropy").oracle(**arguments)
        np.testing.assert_allclose(openaclnn.binary_cross_entropy(**arguments), exact, rtol=1e-6 if dtype is FLOAT else 4e-3)  # fmt: skip

    @pytest.mark.parametrize(("wide", "few"), [(1, True), (1, False), (1030, True)])
    def test_logits_that_are_no_numbers(
        wide: int, few: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(row_formulas, "SMALL", row_formulas.SMALL if few else 0)
        gpu._runners.clear()
        operator = openaclnn.find_operator("cross_entropy_loss")
        rows = np.float32(
            [
                [nan, 0, 1], [0, 1, nan], [inf, 0, 1], [0, inf, inf], [-inf, 0, 1], [-inf, -inf, 0],
                [-inf, -inf, -inf], [nan, inf, -inf], [3e4, 0, -3e4],
            ]
        )  # fmt: skip
        x = np.concatenate([rows, np.repeat(rows[:, 2:], wide, axis=1)], axis=1)
        arguments = {
            "input": x, "target": np.zeros(len(x), int), "reduction": "none", "return_zloss": True,
            "lse_square_scale_for_zloss": 0.5,
        }  # fmt: skip
        results, exact = openaclnn.cross_entropy_loss(**arguments), operator.oracle(**arguments)
        for result, known in zip(results, exact, strict=True):
            np.testing.assert_allclose(result, known.astype(np.float32), rtol=1e-5)

    @pytest.mark.parametrize("name", SUMMED)
    def test_sums_of_any_size_have_the_bits_of_their_own_plan(name: str) -> None:
        """And with any numbers: one function for each reduction."""
        operator = openaclnn.find_operator(name)
        shapes = SIZES[operator.workloads.PATTERN]
        for reduction in ("mean", "sum") + ("none",) * bool(operator.result_type):
            run = gpu.dynamic_shapes(planned(operator, shapes[0][0], reduction, FLOAT, 1)[0])
            assert run is not None
            for shape, number in shapes:
                plan, addresses, (outputs, _), numbers = planned(
                    operator, shape, reduction, FLOAT, number
                )
                assert gpu.prepare(plan)(addresses, 0) == 0
                expected = [output.tobytes() for output in outputs]
                for output in outputs:
                    output[...] = 7
                assert run(addresses, 0, shape, numbers) == 0
                assert [output.tobytes() for output in outputs] == expected

    def same_bits(run: Any, plan: Plan, addresses: Any, outputs: Any, *more: Any) -> None:
        """From a runner of any size as from the plan's own."""
        gpu._runners.clear()
        bits = []
        for each, extra in ((gpu.prepare(plan), ()), (run, more)):
            for output in outputs:
                output[...] = 7
            assert each(addresses, 0, *extra) == 0
            bits.append([output.tobytes() for output in outputs])
        assert bits[0] == bits[1]

    @pytest.mark.parametrize("few", [True, False])
    def test_logits_of_any_size_have_the_bits_of_their_own_plan(
        few: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And with any numbers; with what is chosen for few elements and for many, each of which has every other shape."""
        monkeypatch.setattr(row_formulas, "SMALL", row_formulas.SMALL if few else 0)
        shapes = [(9, 7), (1, 40), (40, 1), (130, 4), (3, 300), (2, 1029)]
        for number, shape in enumerate(shapes[few::2]):
            dtype = (FLOAT, BFLOAT16)[number % 2]
            several = zip(
                logit_cases((5, 6), dtype, 11), logit_cases(shape, dtype, 11), strict=True
            )
            for (operator, first), (_, arguments) in several:
                run = gpu.dynamic_shapes(bound(operator, first)[0])
                plan, addresses, outputs = bound(operator, numbered(operator, arguments, number))
                same_bits(run, plan, addresses, outputs, shape, free_of(plan))

    def test_many_short_rows_have_what_few_have(monkeypatch: pytest.MonkeyPatch) -> None:
        """By the tiles of few elements, and by those of many."""
        most = row_formulas.SMALL
        for shape in ((9, 7), (130, 4), (3, 300)):
            for operator, arguments in logit_cases(shape, FLOAT, 7):
                results = []
                for few in (most, 0):
                    monkeypatch.setattr(row_formulas, "SMALL", few)
                    gpu._runners.clear()
                    plan, addresses, outputs = bound(operator, arguments)
                    assert gpu.prepare(plan)(addresses, 0) == 0
                    results.append(outputs)
                for result, known in zip(*results, strict=True):
                    np.testing.assert_allclose(result, known, rtol=1e-6, atol=1e-7)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.in_turns
    def test_logits_of_any_strides_have_the_bits_of_their_own_plan(layout: str) -> None:
        for number, shape in enumerate([(9, 7), (1, 40), (7, 1), (3, 300), (2, 1029)]):
            for operator, arguments in logit_cases(shape, FLOAT, 19):
                turned = {
                    name: laid_out(value, layout)[0]
                    if isinstance(value, np.ndarray) and value.ndim
                    else value
                    for name, value in arguments.items()
                }
                plan, addresses, outputs = bound(operator, numbered(operator, turned, number))
                if any(operand.offset for operand in plan.operands):
                    continue  # backwards: the slow path
                offered = gpu.dynamic_strides(bound(operator, arguments)[0])
                assert offered is not None
                same_bits(offered[0], plan, addresses, outputs, *strides_of(plan), free_of(plan))
        assert offered[0]((), 0, (1, 2, 3, 4, 5), (), ()) == 1, "more axes than the kernel takes"

    @pytest.mark.parametrize("name", SUMMED[:2])
    def test_sums_of_elements_that_begin_anywhere(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Equally far from a vector's bounds they have a kernel of their own, which reads nothing else."""
        operator, draw = openaclnn.find_operator(name), np.random.default_rng(3)
        monkeypatch.setattr(reductions, "SMALL", 0)
        monkeypatch.setattr(reductions, "ALONE", 0)
        for dtype, off, apart, count in (
            (FLOAT, 1, 0, 5000), (FLOAT, 3, 0, 2), (BFLOAT16, 7, 0, 1017), (BFLOAT16, 1, 0, 1016), (FLOAT, 1, 1, 900),
            (BFLOAT16, 2, 0, 3071), (FLOAT, 2, 0, 9000),
        ):  # fmt: skip
            arguments = operator.workloads.make(draw, dtype, (count,), "mean")
            for place, (key, value) in enumerate(arguments.items()):
                if isinstance(value, np.ndarray):
                    memory = np.full(count + 64, np.nan, dtype.numpy)
                    by = (-memory.ctypes.data // dtype.itemsize) % 8 + 16 + off + apart * place
                    arguments[key] = memory[by:][:count]
                    arguments[key][...] = value
            plan, addresses, outputs = bound(operator, arguments)
            same_bits(gpu.dynamic_shapes(plan), plan, addresses, outputs, (count,), ())
            assert_matches_oracle(operator, arguments, outputs[0])

    @pytest.mark.parametrize("name", SUMMED)
    def test_sums_of_any_strides_have_the_bits_of_their_own_plan(name: str) -> None:
        """One kind's function for all: elements anyhow, in a row after all, and one for all."""
        operator, draw = openaclnn.find_operator(name), np.random.default_rng(2)
        pattern, variant = operator.workloads.PATTERN, next(iter(operator.workloads.VARIANTS))
        for reduction in ("mean", "sum") + ("none",) * bool(operator.result_type):
            options = operator.plain_defaults | {"reduction": reduction}
            first = operator.workloads.make(draw, FLOAT, SIZES[pattern][0][0], variant)
            offered = gpu.dynamic_strides(
                bound(operator, options | first | {"reduction": reduction})[0]
            )
            assert offered is not None
            for turn, (shape, _) in enumerate((*SIZES[pattern], SIZES[pattern][0])):
                arguments = options | operator.workloads.make(draw, FLOAT, shape, variant)
                arguments |= {"reduction": reduction}
                arrays = [key for key, value in arguments.items() if isinstance(value, np.ndarray)]
                for place, key in enumerate(arrays):
                    arguments[key] = anyhow(arguments[key], draw if turn % 2 else np.random.default_rng(turn), False)  # fmt: skip
                    if pattern == "elementwise" and turn == 4 and place:
                        arguments[key] = arguments[key][:1, :1]
                plan, addresses, outputs = bound(operator, arguments)
                sizes, strides = strides_of(plan)
                if pattern == "elementwise":
                    strides = tuple(step for operand in plan.operands for step in operand.strides)
                    same_bits(offered[0], plan, addresses, outputs, plan.shape, strides)
                else:
                    same_bits(offered[0], plan, addresses, outputs, sizes, strides, ())
            more = ((),) if plan.classes else ()
            assert offered[0]((), 0, (2,) * 6, (), *more) == 1, "more axes than a kernel takes"

    @pytest.mark.parametrize("name", ["fused_linear_online_max_sum", "fused_linear_cross_entropy_loss_grad"])  # fmt: skip
    def test_steps_with_matrix_products(name: str) -> None:
        """Rows of what NumPy multiplies here, and PyTorch on a GPU."""
        operator = openaclnn.find_operator(name)
        for arguments in [*cases_of(operator, np.random.default_rng(3), BFLOAT16)][::2]:
            got = getattr(openaclnn, name)(**arguments)
            assert_matches_oracle(operator, arguments, got)

    def test_empty_tensors_have_a_loss() -> None:
        empty = np.zeros((0, 3), np.float32)
        assert np.isnan(openaclnn.l1_loss(empty, empty))
        assert openaclnn.l1_loss(empty, empty, reduction="sum") == 0
        assert np.isnan(loss_of(empty, np.zeros(0, np.int64)).loss)

    def test_a_runner_is_made_once() -> None:
        x, target = np.random.default_rng(4).normal(size=(3, 5)).astype(np.float32), np.arange(3)
        gpu._runners.clear()
        losses = [
            loss_of(x, target, label_smoothing=smoothing).loss for smoothing in (0.0, 0.5, 0.0, 0.5)
        ]
        assert len(gpu._runners) == 2
        assert losses[0] == losses[2] != losses[1] == losses[3]
        loss_of(x[:2], target[:2])
        loss_of(x[:, ::2], np.array([0, 1, 2]))
        loss_of(x, target.astype(np.int32))
        assert len(gpu._runners) == 5


if MODE == "compile":
    import contextlib

    from test_gpu_kernels import H200, driver
    from test_gpu_sized import NUMBERS, Pretended, numbers_for, on_host_memory, python_of  # noqa: F401

    @pytest.fixture(autouse=True)
    def device(monkeypatch: pytest.MonkeyPatch) -> None:
        driver.set_active(H200())
        monkeypatch.setattr(runners, "device_library", lambda: None)
        monkeypatch.setattr(native, "driver", lambda: None)
        monkeypatch.setattr(
            scratch, "functions", lambda: (lambda size, stream: 1 << 20, lambda at: None)
        )

    def plan_of(
        dtype: DType, shape: tuple[int, ...], operator: Any = CROSS_ENTROPY, **options: Any
    ) -> Plan:
        arguments = {
            "input": fresh(shape, dtype.numpy), "target": np.zeros(shape[:1] + shape[2:], np.int64),
            **options,
        }  # fmt: skip
        call = bind_plain(operator, operator.plain_defaults | arguments, current_product())
        for output, (size, kind) in zip(operator.outputs, operator.results(call), strict=True):
            call.values[output.name] = Tensor.from_numpy(np.zeros(size, kind.numpy))
        plan: Plan = operator.plan(call)
        return plan

    @pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
    @pytest.mark.parametrize("classes", [32000, 50257])
    @pytest.mark.in_turns
    def test_long_rows_are_read_by_whole_vectors(dtype: DType, classes: int) -> None:
        """Wherever they begin."""
        from openaclnn.engines.gpu.launching import variants

        gpu._runners.clear()
        variants._variants.clear()
        plan = plan_of(dtype, (64, classes))
        addresses = [1 << 21, 1 << 22, 1 << 23, 1 << 24, 1 << 25]
        assert gpu.prepare(plan)(addresses, 0) == 0
        texts = [variant.binary.asm["ptx"] for variant in variants._variants.values()]
        assert len(texts) == 2
        (sums,) = (text for text in texts if "entry cross_entropy" in text)
        assert len(re.findall(r"ld\.global\S*\.v4", sums)) >= 4

    @pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
    def test_planes_are_read_and_written_by_whole_vectors(dtype: DType) -> None:
        from openaclnn.engines.gpu.launching import variants

        shape = (2, 3, 1024, 1024)
        sides = {name: np.zeros((2, 1024, 1024), np.float32) for name in ("top", "rest")}
        one = np.ones((), dtype.numpy)
        for plan, loads, stores in (
            (plan_of(dtype, shape), 1, 0),
            (plan_of(dtype, shape, CROSS_ENTROPY_GRAD, grad_loss=one, **sides), 1, 1),
        ):
            gpu._runners.clear()
            variants._variants.clear()
            addresses = [(2 + place) << 20 for place in range(len(plan.operands))]
            assert gpu.prepare(plan)(addresses, 0) == 0
            texts = [variant.binary.asm["ptx"] for variant in variants._variants.values()]
            (text,) = (text for text in texts if "entry cross_entropy" in text)  # fmt: skip
            assert len(re.findall(r"ld\.global\S*\.v4", text)) >= loads
            assert len(re.findall(r"st\.global\S*\.v4", text)) >= stores

    @pytest.mark.parametrize("off", [0, 4])
    def test_sums_are_read_by_whole_vectors(off: int) -> None:
        """Of any number of elements, that begin on a vector's bounds or equally far from them."""
        from openaclnn.core.plan import Operand
        from openaclnn.engines.gpu.launching import variants

        inputs = Operand("self", FLOAT, (1,)), Operand("target", FLOAT, (1,))
        output = Operand("out", FLOAT, (0,), role="single")
        plan = Plan("", "l1_loss", FLOAT, (100_003,), inputs, output, {}, reduction="mean")
        gpu._runners.clear()
        variants._variants.clear()
        assert gpu.prepare(plan)([(1 << 21) + off, (1 << 22) + off, 1 << 23], 0) == 0
        texts = [variant.binary.asm["ptx"] for variant in variants._variants.values()]
        (text,) = (text for text in texts if "entry summed" in text or "entry shifted" in text)
        assert text.count("ld.global.v4") >= 2

    OPTIONS: tuple[dict[str, Any], ...] = (
        {"reduction": "none"}, {"reduction": "sum", "weight": np.ones(300, np.float32)},
        {"label_smoothing": 0.1, "zloss_scale": 0.5}, {"label_smoothing": 0.1, "weight": np.ones(300, np.float32)},
    )  # fmt: skip

    @pytest.mark.parametrize("kind", ["rows", "pixels", "all outputs"])
    @pytest.mark.parametrize("number", range(len(OPTIONS)))
    @pytest.mark.in_turns
    def test_all_options_compile(number: int, kind: str) -> None:
        """The interpreter runs them all; that the compiler takes them, too, is tried of each option and each kind at every turn."""
        operator, options = CROSS_ENTROPY, OPTIONS[number]
        if kind == "all outputs":
            operator = WHOLE
            options = {k: v for k, v in options.items() if k != "zloss_scale"} | {"return_zloss": True}  # fmt: skip
        plan = plan_of(BFLOAT16, (7, 300, 5) if kind == "pixels" else (7, 300), operator, **options)
        addresses = [(2 + place) << 20 for place in range(len(plan.operands))]
        assert gpu.prepare(plan)(addresses, 0) == 0

    def test_an_empty_loss_is_launched() -> None:
        plan = plan_of(FLOAT, (0, 3))
        assert plan.kernel == "fill"
        assert gpu.prepare(plan)([2 << 20], 0) == 0

    @pytest.mark.parametrize("name", SUMMED[:3])
    @pytest.mark.in_turns
    def test_few_are_added_up_and_finished_by_one_program(name: str) -> None:
        from openaclnn.engines.gpu.launching import variants

        operator = openaclnn.find_operator(name)
        rank = len(SIZES[operator.workloads.PATTERN][0][0])
        for count, reduction, launches in ((reductions.ALONE, "mean", 1), (2, "sum", 1), (reductions.ALONE + 1, "mean", 2)):  # fmt: skip
            plan = planned(operator, (count, 1)[:rank], reduction, BFLOAT16, 1)[0]
            gpu._runners.clear()
            variants._variants.clear()
            addresses = [(2 + place) << 20 for place in range(len(plan.operands))]
            assert gpu.prepare(plan)(addresses, 0) == 0
            assert len(variants._variants) == launches

    @pytest.mark.parametrize("name", SUMMED)
    @pytest.mark.in_turns
    def test_the_builtin_of_sums_launches_what_python_would(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kernel, grid, stream and every parameter, for sizes, numbers and alignments in turn."""
        operator, draw = openaclnn.find_operator(name), np.random.default_rng(8)
        pattern = operator.workloads.PATTERN
        same = name if pattern == "elementwise" else "nll_loss2d"
        several = numbers_for(openaclnn.find_operator(f"{same}_backward"))
        for reduction in ("mean", "sum") + ("none",) * bool(operator.result_type):
            driver, natively = Pretended(monkeypatch), 0
            (shape, number), *_ = SIZES[pattern]
            plan, addresses, _, _ = planned(operator, shape, reduction, FLOAT, number)
            run = gpu.dynamic_shapes(plan)
            for turn in range(120):
                most = 40 if turn % 8 else 4000
                shape = tuple(int(size) for size in draw.integers(1, most, len(shape)))
                if turn % 30 > 25:  # one program's, and one more
                    shape = (reductions.ALONE + turn % 2, 1, 1, 1)[: len(shape)]
                off = [4 * bool(draw.random() < 0.05) for _ in addresses]
                off = [4 * (turn % 16 // 8 + 1)] * len(off) if turn % 8 in (0, 3) else off
                places = tuple([((2 + k) << 20) + by for k, by in enumerate(off)])
                call = places, 5 + turn, shape, several[turn % len(several)] if turn % 3 else ()
                status, by_itself = driver.alike(run, call, reduction)
                assert status == 0
                natively += by_itself
            assert natively > 60
            assert driver.in_words > 10  # what needs no memory

    def drawn_rows(draw: Any, turn: int) -> tuple[int, int]:
        """Of all magnitudes, some of them round."""
        sizes = [int(2 ** draw.uniform(0, most)) for most in ((12, 17) if turn % 3 else (8, 7))]
        rows, classes = (size + -size % 16 if draw.random() < 0.4 else size for size in sizes)
        return rows, classes

    @pytest.mark.parametrize("strided", [False, True])
    def test_the_builtin_of_logits_launches_what_python_would(
        strided: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Three or four kernels: grid, stream and every parameter of each."""
        draw, several = np.random.default_rng(5), NUMBERS["cross_entropy_loss_grad"]
        for dtype in (FLOAT, BFLOAT16):
            for operator, arguments in logit_cases((5, 6), dtype, 3):
                driver, natively = Pretended(monkeypatch), 0
                plan = bound(operator, arguments)[0]
                offered = gpu.dynamic_strides(plan)
                assert offered is not None
                run = offered[0] if strided else gpu.dynamic_shapes(plan)
                for turn in range(60):
                    off = 2 * draw.integers(0, 8, len(plan.operands)) * (turn % 4 == 3)
                    places = tuple([((2 + k) << 20) + int(by) for k, by in enumerate(off)])
                    shape, more = drawn_rows(draw, turn), ()
                    if strided:
                        shape = (shape[0] % 40 + 1, shape[1] % 1700 + 1)
                        steps = draw.integers(-5, 1 << 14, 2 * len(plan.operands)) >> draw.integers(0, 14)  # fmt: skip
                        more = (tuple(steps.tolist()),)
                    numbers = tuple(
                        number
                        if not parameter.keeps_zero or arguments.get(parameter.option)
                        else 0.0
                        for parameter, number in zip(
                            plan.free, several[turn % len(several)], strict=False
                        )
                    )
                    call = places, 5 + turn, shape, *more, numbers if turn % 3 else ()
                    status, by_itself = driver.alike(run, call, arguments)
                    assert status == 0
                    natively += by_itself
                assert natively > 20, arguments

    @pytest.mark.parametrize("layout", ["transposed", "sliced"])
    def test_a_plan_of_any_strides_has_the_kernel_of_calls_like_it(
        layout: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another, as for contiguous classes, would add up in another order: interpreted kernels do not show that."""
        driver = Pretended(monkeypatch)
        for operator, arguments in logit_cases((5, 70), FLOAT, 7):
            turned = {
                name: laid_out(value, layout)[0]
                if isinstance(value, np.ndarray) and value.ndim
                else value
                for name, value in arguments.items()
            }
            plan, addresses, _ = bound(operator, turned)
            if any(operand.offset for operand in plan.operands):
                continue
            offered = gpu.dynamic_strides(plan)
            assert offered is not None
            gpu._runners.clear()
            assert gpu.prepare(plan)(addresses, 0) == 0
            expected = driver.launched()
            assert offered[0](addresses, 0, *strides_of(plan), free_of(plan)) == 0
            assert driver.launched() == expected

    def test_sizes_of_logits_that_no_builtin_takes(monkeypatch: pytest.MonkeyPatch) -> None:
        for strided, shape in product((False, True), ((0, 5), (5, 0), (1 << 40, 3), (3, 1 << 40))):
            driver = Pretended(monkeypatch)
            plan = bound(WHOLE, next(case for _, case in [*logit_cases((5, 6), FLOAT)][-1:]))[0]
            offered = gpu.dynamic_strides(plan)
            assert offered is not None
            run, more = (
                offered[0] if strided else gpu.dynamic_shapes(plan),
                ((1,) * 2 * len(plan.operands),),
            )
            assert run is not None
            places = tuple((2 + k) << 20 for k in range(len(plan.operands)))
            for sizes in ((4, 4), shape):
                with contextlib.suppress(ZeroDivisionError):  # Python's
                    run(places, 5, sizes, *more[: int(strided)], ())
            assert driver.by_driver == []

    @pytest.mark.parametrize("name", SUMMED)
    @pytest.mark.in_turns
    def test_the_builtin_of_strided_sums_launches_what_python_would(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        operator, draw = openaclnn.find_operator(name), np.random.default_rng(7)
        pattern, of_classes = (
            operator.workloads.PATTERN,
            operator.workloads.PATTERN != "elementwise",
        )
        for reduction in ("mean", "sum") + ("none",) * bool(operator.result_type):
            driver, natively = Pretended(monkeypatch), 0
            plan = planned(operator, SIZES[pattern][0][0], reduction, FLOAT, 1)[0]
            offered = gpu.dynamic_strides(plan)
            assert offered is not None
            for turn in range(120):
                axes = int(draw.integers(1, 6)) if turn % 3 else 1 + of_classes
                axes = min(axes, 5 - of_classes)
                sizes = tuple(draw.integers(1, 1 + (5, 9, 200)[turn % 3], axes).tolist())
                steps = draw.integers(-9, 1 << 14, axes * len(plan.operands)) >> draw.integers(
                    0, 14
                )
                steps = np.minimum(steps, 1) if turn % 6 == 0 else steps
                steps = np.ones_like(steps) if turn % 12 == 0 else steps
                off = 4 * (draw.random(len(plan.operands)) < 0.05)
                places = tuple([((2 + k) << 20) + int(by) for k, by in enumerate(off)])
                numbers = (((turn,) if turn % 2 else ()),) if of_classes else ()
                call = places, 5 + turn, sizes, tuple(steps.tolist()), *numbers
                natively += driver.alike(offered[0], call, reduction)[1]
            assert natively > 60

    @pytest.mark.usefixtures("on_host_memory")
    @pytest.mark.parametrize("name", SUMMED)
    def test_losses_of_any_layout_reach_the_driver(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The fast path merges axes as plans do: the kernels get the same strides."""
        operator, draw = openaclnn.find_operator(name), np.random.default_rng(4)
        driver, rank = Pretended(monkeypatch), len(SIZES[operator.workloads.PATTERN][0][0])
        variant, natively = next(iter(operator.workloads.VARIANTS)), 0
        for _ in range(30):
            shape = tuple(int(size) for size in draw.integers(2, 12, rank))
            arguments = operator.plain_defaults | operator.workloads.make(
                draw, FLOAT, shape, variant
            )
            arguments |= {"reduction": "mean"}
            for key, value in arguments.items():
                if isinstance(value, np.ndarray):
                    arguments[key] = anyhow(value, draw, False)
            getattr(openaclnn, name)(**arguments)
            got = [(which, words[-12:]) for which, _, _, words in driver.by_driver or driver.by_python]  # fmt: skip
            natively += bool(driver.by_driver)
            driver.launched()
            plan, addresses, _ = bound(operator, arguments)
            gpu._runners.clear()
            assert gpu.prepare(plan)(addresses, 0) == 0
            expected = [(which, words[-12:]) for which, _, _, words in driver.by_driver or driver.by_python]  # fmt: skip
            driver.launched()
            assert [launch[1] for launch in got[:1]] == [launch[1] for launch in expected[:1]]
        assert natively > 20

    @pytest.mark.usefixtures("on_host_memory")
    def test_logits_of_a_kind_reach_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
        """Any size and, of few elements, any strides: from the fast path, which makes two results or four."""
        draw, driver, natively = np.random.default_rng(6), Pretended(monkeypatch), 0
        for turn in range(40):
            shape = tuple(int(size) for size in draw.integers(2, 40, 2))
            arguments = {
                "input": draw.normal(size=shape).astype(np.float32), "target": draw.integers(0, shape[1], shape[0]),
                "label_smoothing": 0.01 * (turn + 1), "ignore_index": turn, "return_zloss": turn % 2 == 1,
                "reduction": "mean" if turn % 5 else "none",
            }  # fmt: skip
            if turn % 4 > 1:
                arguments["input"] = np.repeat(arguments["input"], 2, axis=turn % 3 and 1)[
                    (slice(None), slice(None, None, 2)) if turn % 3 else (slice(None, None, 2),)
                ]
            results = openaclnn.cross_entropy_loss(**arguments)
            launched = driver.by_driver or driver.by_python
            assert len(launched) == (2 if turn % 5 else 1), "what is added up has one launch more"
            natively += bool(driver.by_driver)
            written = [word for _, _, _, words in launched for word in words[:10]]
            assert all(result.ctypes.data in written for result in results if result is not None)
            driver.launched()
        assert natively > 20

    @pytest.mark.usefixtures("on_host_memory")
    @pytest.mark.parametrize("name", SUMMED)
    def test_losses_of_a_kind_reach_the_driver(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """From the fast path, which makes the results, to the launch that adds up and finishes: it needs no memory."""
        operator, draw = openaclnn.find_operator(name), np.random.default_rng(4)
        monkeypatch.setattr(scratch, "functions", lambda: (None, None))
        driver, rank = Pretended(monkeypatch), len(SIZES[operator.workloads.PATTERN][0][0])
        variant, natively = next(iter(operator.workloads.VARIANTS)), 0
        for turn in range(20):
            shape = tuple(int(size) for size in draw.integers(2, 12, rank))
            arguments = operator.workloads.make(draw, FLOAT, shape, variant)
            arguments |= {
                option: 1 + turn % 3
                for option in ("ignore_index",)
                if option in operator.signature()
            }
            arguments |= {
                option: 0.5 + turn for option in ("beta",) if option in operator.signature()
            }
            result = getattr(openaclnn, name)(**arguments)
            assert len(driver.by_python) + len(driver.by_driver) == 1
            written = [words[:5] for _, _, _, words in driver.by_python or driver.by_driver]
            addresses = [
                output.ctypes.data for output in (result if operator.result_type else (result,))
            ]
            assert all(any(at in words for words in written) for at in addresses)
            natively += bool(driver.by_driver)
            driver.launched()
        assert natively > 10
