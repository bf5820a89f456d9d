"""Cross entropy with its gradient in one go, without a GPU: interpreted on host memory, and compiled for an H200; see `test_gpu.py`."""

from __future__ import annotations

import os
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    from interpreted import on_the_interpreter  # noqa: F401

if MODE:
    from openaclnn.calls.plain import make_plain_function
    from openaclnn.core.dtypes import BFLOAT16, FLOAT, DType, dtype_of_numpy
    from openaclnn.engines.gpu.launchers import fused_backward as ahead
    from openaclnn.engines.gpu.launchers.steps import MEMORY
    from openaclnn.operators.logit_steps import kept_by
    from openaclnn.operators.logits import (
        CROSS_ENTROPY,
        CROSS_ENTROPY_GRAD,
        reference,
        reference_grad,
    )

    ROWS = 5
    nan, inf = np.nan, np.inf
    TINY = {"float32": 1e-37, "bfloat16": 1e-37, "float16": 1e-7}

if MODE == "interpret":

    class Step:
        """Loss and gradient of some logits, in memory that tells what was written."""

        def __init__(
            self, classes: int, reduction: str, ignored: int = 7, dtype: Any = np.float32
        ) -> None:
            rng = np.random.default_rng(classes)
            self.x = rng.normal(0, 3, (ROWS, classes)).astype(dtype)
            self.target = rng.integers(0, classes, ROWS)
            self.target[2] = ignored
            self.options = {"reduction": reduction, "ignore_index": ignored}
            logits_dtype = dtype_of_numpy(np.dtype(dtype))
            self.step = ahead.Rows(logits_dtype, ROWS, classes, reduction == "mean", ignored)
            self.loss, self.memory = np.zeros((), dtype), np.ones(MEMORY, np.float32)
            self.kept = np.full(kept_by(self.x.shape) + 1, 7, np.float32)
            self.out = np.full_like(self.x, 7)

        def forward(self) -> None:
            self.out[:] = 7
            places = self.x, self.target, self.memory, self.loss, self.kept, self.out
            run(ahead.loss_runner(self.step), *places)
            assert self.kept[-1] == 7  # behind what a call makes for it
            top, others = self.kept[4 : 4 + 2 * ROWS].reshape(2, ROWS)
            with np.errstate(invalid="ignore"):
                self.rest = np.log1p(others) + (top - top)
            self.top = np.where(np.isnan(self.rest), nan, top)

        def backward(self, gradient: float) -> None:
            incoming = np.array(gradient, self.x.dtype)
            places = incoming, self.x, self.target, self.kept, self.memory, self.out
            run(ahead.gradient_runner(self.step), *places)

        def known(self, gradient: float) -> Any:
            """The gradient that the reference makes of the same numbers."""
            incoming = np.array(gradient, np.float32)
            with np.errstate(all="ignore"):
                wide = self.x.astype(np.float64)
                _, top, rest = reference(wide, self.target, **self.options)
                return reference_grad(incoming, wide, top, rest, self.target, **self.options)

        def assert_right(self, gradient: float) -> None:
            known = self.known(gradient)
            close = 1e-5 if self.x.dtype == np.float32 else float(ml_dtypes.finfo(self.x.dtype).eps)
            np.testing.assert_allclose(
                self.out.astype(np.float64), known, rtol=close, atol=TINY[self.x.dtype.name]
            )

    def run(runner: Any, *places: Any) -> None:
        assert runner([array.ctypes.data for array in places], 0) == 0

    @pytest.mark.parametrize(
        ("classes", "dtype", "reduction"),
        [
            (8197, np.float32, "mean"), (131073, np.float32, "sum"), (8200, ml_dtypes.bfloat16, "sum"), (16384, np.float16, "mean"),
            (50304, ml_dtypes.bfloat16, "mean"),
        ],
    )  # fmt: skip
    @pytest.mark.in_turns
    def test_a_step_is_what_the_formulas_say(classes: int, dtype: Any, reduction: str) -> None:
        step = Step(classes, reduction, dtype=dtype)
        step.forward()
        loss, top, rest = reference(step.x.astype(np.float64), step.target, **step.options)
        close = 1e-6 if dtype is np.float32 else float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(step.loss.astype(np.float64), loss, rtol=close)
        np.testing.assert_array_equal(step.top, top)
        np.testing.assert_allclose(step.rest, rest, rtol=1e-5)
        step.backward(1.0)
        step.assert_right(1.0)

    @pytest.mark.parametrize(("classes", "dtype"), [(8300, np.float32), (8320, ml_dtypes.bfloat16)])  # fmt: skip
    def test_long_rows_are_as_by_the_formula_in_two_readings(classes: int, dtype: Any) -> None:
        step = Step(classes, "mean", dtype=dtype)
        step.forward()
        step.backward(1.0)
        loss, top, rest = make_plain_function(CROSS_ENTROPY)(step.x, step.target, **step.options)  # fmt: skip
        gradient = make_plain_function(CROSS_ENTROPY_GRAD)(
            np.ones((), dtype), step.x, top, rest, step.target, **step.options
        )
        close = 2e-6 if dtype is np.float32 else float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(step.loss.astype(float), loss.astype(float), rtol=close)
        np.testing.assert_allclose(step.out.astype(float), gradient.astype(float), rtol=close * 4, atol=1e-37)  # fmt: skip

    def check_gradients_in_turn(step: Any, row: int) -> None:
        """What is expected is what was given twice; of a row whose target counts the first value tells who wrote it."""
        # What is given, whether forward has written, and whether backward has.
        turns = [
            (1.0, True, False), (0.25, True, True), (0.25, False, True), (0.25, True, False), (1.0, True, True),
            (0.25, False, True), (1.0, False, True), (1.0, False, True), (1.0, True, False), (nan, True, True),
            (nan, False, True), (nan, True, False), (0.0, True, True), (0.0, False, True), (-0.0, True, True),
        ]  # fmt: skip
        seen: dict[str, Any] = {}
        for gradient, ahead_of_it, late in turns:
            step.forward()
            assert bool((step.out != 7).all()) == ahead_of_it, gradient
            before, step.out[row, 0] = step.out[row, 0], 9
            step.backward(gradient)
            assert (step.out[row, 0] != 9) == late, gradient
            if not late:
                step.out[row, 0] = before
            step.assert_right(gradient)
            assert step.out.tobytes() == seen.setdefault(str(gradient), step.out.tobytes())

    def test_what_is_expected_is_what_was_given_twice() -> None:
        check_gradients_in_turn(
            Step(1000, "mean"), 0
        )  # how many classes there are has no say in it

    @pytest.mark.parametrize("classes", [8300, 33000])  # in one piece, and in five
    def test_strange_logits(classes: int) -> None:
        step = Step(classes, "sum")
        step.x[0] = -inf
        step.x[0, [0, 2, classes - 1]] = 5.0  # three that are the largest, all others masked
        step.target[0] = 2
        step.x[1, 17] = nan
        step.x[2] = nan  # ignored
        step.x[3] = -inf
        step.x[4, classes - 1] = inf
        step.forward()
        with np.errstate(all="ignore"):
            _, top, rest = reference(step.x, step.target, **step.options)
        np.testing.assert_array_equal(step.top, top.astype(np.float32))
        np.testing.assert_allclose(step.rest, rest, rtol=1e-6)
        step.backward(1.0)
        step.assert_right(1.0)
        assert (step.out[2] == 0).all()
        assert np.isfinite(step.out[0]).all()

    @pytest.mark.parametrize("start", [0, 8000, 26000])
    @pytest.mark.in_turns
    def test_a_piece_of_nothing_but_nan(start: int) -> None:
        step = Step(33000, "mean")
        step.x[1, start : start + 7000] = nan
        step.forward()
        assert np.isnan(step.loss)
        step.backward(1.0)
        step.assert_right(1.0)
        assert np.isnan(step.out[1]).all()

    def test_what_was_written_ahead_has_the_bits_of_what_is_written_late() -> None:
        for classes, dtype in ((33000, np.float32), (16392, ml_dtypes.bfloat16)):
            step = Step(classes, "mean", dtype=dtype)
            step.forward()
            step.backward(1.0)
            ahead_of_it = step.out.copy()
            step.memory[1] = 0  # not sure
            step.forward()
            assert (step.out == 7).all()
            step.backward(1.0)
            assert step.out.tobytes() == ahead_of_it.tobytes()

    def test_a_probability_near_one_keeps_its_digits() -> None:
        step = Step(8300, "sum")
        step.x[:] = -20
        step.x[np.arange(ROWS), step.target] = 20
        step.x[1, step.target[1]] = -20  # all alike
        step.forward()
        step.backward(1.0)
        step.assert_right(1.0)

    def test_targets_that_are_no_classes_count_for_nothing() -> None:
        step = Step(8299, "mean")
        step.target[:] = [-3, 8299, 7, 1 << 40, 5]
        step.forward()
        assert step.kept[2] == 1
        step.backward(1.0)
        assert (step.out[:4] == 0).all()
        step.assert_right(1.0)
        step.target[:] = 7  # none counts
        step.forward()
        assert np.isnan(step.loss)
        step.backward(1.0)
        step.assert_right(1.0)


if MODE == "compile":
    from openaclnn.engines.gpu.launchers.geometry import power_of_two_divisor
    from openaclnn.engines.gpu.launching import variants
    from test_gpu_losses import device  # noqa: F401

    def step_of(dtype: DType, classes: int) -> ahead.Rows:
        return ahead.Rows(dtype, 64, classes, True, -100)

    @pytest.mark.parametrize(
        ("maker", "dtype", "classes"),
        [
            (ahead.loss_runner, FLOAT, 32000), (ahead.loss_runner, FLOAT, 30522), (ahead.gradient_runner, FLOAT, 32000),
            (ahead.loss_runner, BFLOAT16, 32000), (ahead.gradient_runner, BFLOAT16, 32000),
        ],
    )  # fmt: skip
    @pytest.mark.in_turns
    def test_rows_are_read_once_by_vectors_and_held(
        maker: Any, dtype: DType, classes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(variants, "_start_clusters", lambda *_: lambda *_: None)
        variants._variants.clear()
        addresses = [1 << power for power in range(30, 36)]
        assert maker(step_of(dtype, classes))(addresses, 0) == 0
        texts = [kernel.binary.asm["ptx"] for kernel in variants._variants.values()]
        code = next(
            text for text in texts if "entry loss_ahead" in text or "entry gradient_late" in text
        )
        itemsize = dtype.itemsize
        tile = ahead.tile_of(itemsize, classes)
        held = tile.held * tile.lanes // (tile.warps * 32)
        if maker is ahead.gradient_runner:
            held = ahead.WIDE // (4 * 32)
        assert ("barrier.cluster" in code) == (tile.pieces > 1 and maker is ahead.loss_runner)
        each = min(power_of_two_divisor(classes), 16 // itemsize)
        width = {4: ".b32", 8: ".v2.b32", 16: ".v4.b32"}[each * itemsize]
        # What is read ahead goes into shared memory.
        ahead_of_it = tile.stages > 1 and maker is ahead.loss_runner
        read = ("cp.async", ", 0x10") if ahead_of_it else ("ld.global", width)
        for word, size in (read, ("st.global", width)):
            lines = [line for line in code.splitlines() if word in line and size in line]
            assert len(lines) >= held // each

    def test_programs_wait_for_each_other_by_the_driver_or_not_at_all() -> None:
        with pytest.raises(RuntimeError, match="wait for each other"):
            ahead.loss_runner(step_of(FLOAT, 40000))([1 << 30] * 6, 0)
        assert not ahead.serves(FLOAT, 64, 40000)  # which is why nobody asks
        assert ahead.serves(FLOAT, 64, 32000)
