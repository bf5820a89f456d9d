"""Cross entropy of images on a GPU: one runner for each kind, told their sizes in the call, as Python and as machine code.

Interpreted on host memory, and compiled (not run) for an H200, each in a process of its own: see test_gpu.py.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    from interpreted import on_the_interpreter  # noqa: F401

if MODE:
    from conftest import assert_matches_oracle
    from gpu_process import nothing_remembered  # noqa: F401
    from openaclnn.core.call import bind_plain
    from openaclnn.core.dtypes import BFLOAT16, FLOAT, DType
    from openaclnn.core.plan import Plan
    from openaclnn.core.products import current_product
    from openaclnn.core.tensor import Tensor
    from openaclnn.engines import gpu
    from openaclnn.engines.gpu.launchers import row_formulas, sums
    from openaclnn.operators.logits import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
    from test_gpu_losses import bound, free_of, gradient_of, loss_of
    from workloads.logits import cases, grad_of

    SMALL = (2, 5, 3, 7)
    SHAPES: list[tuple[int, ...]] = [
        SMALL, (1, 5, 64), (4, 3, 2, 2, 2), (7, 6, 1), (3, 1, 4), (1, 1, 1), (1, 4, 1, 1), (2, 9, 16, 17), (1, 2, 300),
    ]  # fmt: skip
    """Ordinary ones, and those whose axes merge: one image, images of one pixel, one class, one element."""

    def kinds(
        shape: tuple[int, ...], dtype: DType, every: int = 1, begin: int = 0
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The loss and its gradient with each of their options."""
        rng = np.random.default_rng(shape[0])
        for case in [*cases(rng, dtype, shape)][begin::every]:
            yield CROSS_ENTROPY, case
            yield CROSS_ENTROPY_GRAD, grad_of(rng, case)


if MODE == "interpret":
    from test_gpu_losses import same_bits

    @pytest.mark.parametrize("many", [False, True])
    def test_any_size_has_the_bits_of_its_own_plan(
        many: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And any numbers; with what is chosen for few pixels and for many, and sums in few parts and in many: each way has every
        other shape."""
        if many:
            monkeypatch.setattr(row_formulas, "SMALL", 0)
            small = {"FEW_POSITIONS": 8, "FEW_PARTS": 4, "MANY_PARTS": 16, "SUM_BLOCK": 16}
            for name, value in small.items():
                monkeypatch.setattr(sums, name, value)
        for number, shape in [*enumerate(SHAPES)][many::2]:
            dtype = (FLOAT, BFLOAT16)[number // 2 % 2]
            several = [kinds(sizes, dtype, 5, number % 5) for sizes in (SMALL, shape)]
            for (operator, first), (_, arguments) in zip(*several, strict=True):
                run = gpu.dynamic_shapes(bound(operator, first)[0])
                if operator is CROSS_ENTROPY_GRAD:
                    arguments |= {"ignore_index": number}
                plan, addresses, outputs = bound(operator, arguments)
                same_bits(run, plan, addresses, outputs, shape, free_of(plan))

    def test_a_plan_of_any_size_serves_all_others() -> None:
        """Strides of one image, class or pixel say nothing, or look like channels that come last."""
        for first in SHAPES[1:]:
            several = [kinds(sizes, FLOAT, 9) for sizes in (first, SMALL)]
            for (operator, one), (_, arguments) in zip(*several, strict=True):
                run = gpu.dynamic_shapes(bound(operator, one)[0])
                plan, addresses, outputs = bound(operator, arguments)
                same_bits(run, plan, addresses, outputs, SMALL, ())

    def test_images_that_lie_otherwise_are_declined() -> None:
        for operator, arguments in kinds(SMALL, FLOAT, 4):
            assert gpu.dynamic_shapes(bound(operator, arguments)[0]) is not None
            x, target = arguments["input"], arguments["target"]
            for turned in (
                {"input": np.repeat(x, 2, axis=-1)[..., ::2]},
                {"input": x[..., ::-1]},
                {"target": np.ascontiguousarray(target.T).T},
            ):
                assert gpu.dynamic_shapes(bound(operator, arguments | turned)[0]) is None

    def test_any_number_of_axes_is_walked() -> None:
        for operator, arguments in kinds((2, 3, 2, 2, 2), FLOAT, 4):
            assert gpu.declines(bound(operator, arguments)[0]) is None
            part = np.zeros((2, 3, 3, 3, 3), np.float32)[:, :, :2, :2, :2]
            part[...] = arguments["input"]
            plan, addresses, outputs = bound(operator, arguments | {"input": part})
            assert gpu.declines(plan) is None
            if operator is CROSS_ENTROPY:
                assert gpu.prepare(plan)(addresses, 0) == 0
                assert_matches_oracle(operator, arguments, tuple(outputs))

    def test_more_axes_than_are_added_up_are_refused() -> None:
        """Of targets alone, and where a mean or smoothing needs their sums."""
        for operator, arguments in kinds((2, 3, 2, 2, 2), FLOAT):
            if operator is not CROSS_ENTROPY_GRAD:
                continue
            apart = np.zeros((2, 3, 3, 3), np.int64)[:, :2, :2, :2]
            plan, addresses, outputs = bound(operator, arguments | {"target": apart})
            smooths = arguments.get("label_smoothing") and arguments.get("weight") is not None
            if plan.numbers["mean"] or smooths:
                assert "adds up targets walks 3 axes, not 4" in str(gpu.declines(plan))
                continue
            assert gpu.declines(plan) is None
            assert gpu.prepare(plan)(addresses, 0) == 0
            expected = operator.oracle(**arguments | {"target": apart})
            np.testing.assert_allclose(outputs[0], expected, rtol=1e-5, atol=1e-6)


if MODE == "compile":
    import contextlib

    from openaclnn.engines.gpu.launching import code as fit_code, scratch, variants
    from test_gpu_kernels import COMPILED
    from test_gpu_losses import device  # noqa: F401
    from test_gpu_sized import (  # noqa: F401
        NUMBERS,
        Pretended,
        arguments_of,
        named,
        on_host_memory,
    )

    def drawn_images(draw: Any, turn: int) -> tuple[int, ...]:
        """Of all magnitudes, some of them round; of all numbers of axes; some of one image, of one pixel each, of one class; the first that are many."""
        if turn % 20 > 17:
            return 4, 9, 512, 512 - turn % 2
        most = (7, 6, *((9, 5, 3, 2), (18,), (10, 10), ())[turn % 4])
        sizes = [int(2 ** draw.uniform(0, limit)) for limit in most]
        sizes = [size + -size % 16 if draw.random() < 0.3 else size for size in sizes]
        return (*sizes, 1) if turn % 4 == 3 else tuple(sizes)

    def addresses_of(plan: Plan, off: Any = 0) -> tuple[int, ...]:
        several = np.broadcast_to(off, len(plan.operands)).tolist()
        return tuple([((2 + place) << 20) + by for place, by in enumerate(several)])

    def plan_at(operator: Any, arguments: dict[str, Any], shape: tuple[int, ...]) -> Plan:
        """The plan of arguments of another shape, over no memory: nobody reads them."""
        parts = {
            SMALL: shape, arguments["target"].shape: shape[:1] + shape[2:], SMALL[1:2]: shape[1:2], (): (), (1,): (1,),
        }  # fmt: skip

        def wide(array: Any, sizes: tuple[int, ...]) -> Any:
            strides = np.cumprod([array.itemsize, *sizes[:0:-1]])[::-1][: len(sizes)]
            return np.lib.stride_tricks.as_strided(array, sizes, strides)

        spread = {
            name: wide(value, parts[value.shape]) if isinstance(value, np.ndarray) else value
            for name, value in arguments.items()
        }
        call = bind_plain(operator, operator.plain_defaults | spread, current_product())
        for output, (sizes, kind) in zip(operator.outputs, operator.results(call), strict=True):
            placeholder = wide(np.zeros(1, kind.numpy), sizes)
            call.values[output.name] = Tensor.from_numpy(placeholder)
        plan: Plan = operator.plan(call)
        return plan

    def launches_of(run: Any, *call: Any) -> str:
        COMPILED.clear()
        assert run(*call) == 0
        return str([arguments_of(launch) for _, launch in COMPILED])

    @pytest.mark.parametrize("off", [0, 4])
    def test_the_launches_are_the_plan_s_own(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Programs, numbers and constants, of more than 32 bits too: the kernels need not run to be the same."""
        monkeypatch.setattr(variants, "_compiled", named)
        monkeypatch.setattr(variants, "_variants", {})
        large = (
            (4, 21, 512, 512),
            (3, 150, 77, 3),
            (70, 31, 1000, 1000),
            (9990, 9, 1),
            (2, 3, 1 << 40),
        )
        # Of one class, or one pixel in all, the sums have a stride that nobody takes.
        sizes = [shape for shape in (*SHAPES, *large) if math.prod(shape) > shape[1] > 1]
        for operator, first in kinds(SMALL, FLOAT, 3):
            run = gpu.dynamic_shapes(bound(operator, first)[0])
            for shape in sizes:
                plan = plan_at(operator, first, shape)
                call = addresses_of(plan, off), 5
                expected = launches_of(gpu.prepare(plan), *call)
                assert launches_of(run, *call, shape, ()) == expected, shape

    def test_sizes_with_the_same_constants_are_not_compiled_again(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        first, *others = (
            (5, 21, 512, 512),
            (1, 21, 1024, 1536),
            (9, 21, 48, 50, 64),
            (70, 21, 1 << 15),
        )
        monkeypatch.setattr(variants, "_compiled", named)
        monkeypatch.setattr(variants, "_variants", {})
        for operator, arguments in kinds(SMALL, BFLOAT16, 12):
            plan = bound(operator, arguments)[0]
            run = gpu.dynamic_shapes(plan)
            launches_of(run, addresses_of(plan), 5, first, ())
            with monkeypatch.context() as patched:
                patched.setattr(variants, "_compiled", None)
                for shape in others:
                    launches_of(run, addresses_of(plan), 5, shape, ())

    def test_the_builtin_launches_what_python_would(monkeypatch: pytest.MonkeyPatch) -> None:
        """Kernels, grids, stream, every parameter and the memory between launches, for sizes, numbers and alignments in turn."""
        taken: list[int] = []

        def allocate(size: int, stream: int) -> int:
            taken.append(size)
            return 1 << 30

        monkeypatch.setattr(scratch, "functions", lambda: (allocate, lambda at: None))
        draw, several = np.random.default_rng(5), NUMBERS["cross_entropy_loss_grad"]
        for dtype in (FLOAT, BFLOAT16):
            for operator, arguments in kinds(SMALL, dtype, 3, dtype is FLOAT):
                driver, natively = Pretended(monkeypatch), 0
                plan = bound(operator, arguments)[0]
                run = gpu.dynamic_shapes(plan)
                for turn in range(40):
                    off = 2 * draw.integers(0, 8, len(plan.operands)) * (turn % 8 == 3)
                    numbers = tuple(
                        number if not slot.keeps_zero or arguments.get(slot.option) else 0.0
                        for slot, number in zip(
                            plan.free, several[turn % len(several)], strict=False
                        )
                    )
                    shape = drawn_images(draw, turn)
                    call = addresses_of(plan, off), 5 + turn, shape, numbers if turn % 3 else ()
                    status, by_itself = driver.alike(run, call, arguments)
                    assert status == 0
                    assert len(set(taken)) == bool(taken), "as Python took, and machine code"
                    taken.clear()
                    natively += by_itself
                assert natively > 20, arguments
                assert driver.with_lock >= natively, arguments
                if not run.__self__.keep._block[fit_code.ALLOCATE]:  # type: ignore[union-attr]
                    assert driver.in_words >= natively, arguments

    def test_sizes_that_no_builtin_takes(monkeypatch: pytest.MonkeyPatch) -> None:
        """Python's runner has them, or says what is wrong with them."""
        strange = (
            (0, 5, 4), (5, 0, 4), (5, 4, 0), (-1, 5, 4), (5, 4, -2, -2), (1 << 40, 3, 2), (3, 1 << 40, 2), (3, 4, 1 << 40),
            (2, 3, 1 << 20, 1 << 20), (2, 1 << 20, 1 << 20), (1 << 30, 2, 1 << 10), (5,), (), (3, 4, 1 << 62, 4),
        )  # fmt: skip
        for operator, arguments in kinds(SMALL, FLOAT, 4):
            driver = Pretended(monkeypatch)
            plan = bound(operator, arguments)[0]
            run, places = gpu.dynamic_shapes(plan), addresses_of(plan)
            assert run is not None
            for shape in ((4, 4, 4), *strange):
                with contextlib.suppress(ArithmeticError, ValueError, IndexError):  # Python's
                    run(places, 5, shape, ())
                assert driver.by_driver == [], shape
            driver.launched()
            assert driver.alike(run, (places, 5, (4, 4, 4), ()), "")[1], "which is sound"

    @pytest.mark.usefixtures("on_host_memory")
    def test_images_of_a_kind_reach_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
        """From the fast path: new sizes take no slow path, and no kind is made for them."""
        draw = np.random.default_rng(6)
        for number, function in product(range(0, 12, 4), (loss_of, gradient_of)):
            driver, natively = Pretended(monkeypatch), 0
            function.cache.forget()
            for _ in range(24):
                shape = tuple(int(size) for size in draw.integers((1, 2, 16, 16), (4, 9, 30, 30)))
                (_, case), (_, gradient) = kinds(shape, FLOAT, 12, number)
                result = function(**(case if function is loss_of else gradient))
                launched = driver.by_driver or driver.by_python
                natively += bool(driver.by_driver)
                written = [word for _, _, _, words in launched for word in words[:10]]
                results = result if isinstance(result, tuple) else (result,)
                assert all(array.ctypes.data in written for array in results)
                driver.launched()
            assert len(function.cache.entries) == 1
            assert natively > 8

    @pytest.mark.usefixtures("on_host_memory")
    def test_channels_that_come_last_are_no_images_of_one_pixel(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Their plans are alike: it is the fast path that tells them apart."""
        draw, driver = np.random.default_rng(7), Pretended(monkeypatch)
        loss_of.cache.forget()
        for shape in ((42, 5, 1), (2, 5, 21), (42, 5, 1), (3, 5, 21)):
            rows = draw.normal(size=(shape[0] * shape[2], 5)).astype(np.float32)
            arguments = {
                "input": rows.reshape(shape[0], shape[2], 5).transpose(0, 2, 1),
                "target": draw.integers(0, 5, (shape[0], shape[2])), "reduction": "none",
            }  # fmt: skip
            loss_of(**arguments)
            assert len(driver.by_driver or driver.by_python) == 1
            driver.launched()
        assert len(loss_of.cache.entries) == 2, "images, and channels that come last"
