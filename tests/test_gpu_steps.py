"""Cross entropy of up to some thousand classes with its gradient in one go, without a GPU: interpreted on host memory, and compiled for an
H200; see `test_gpu.py`."""

from __future__ import annotations

import contextvars
import itertools
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
    import torch

    from openaclnn.calls.plain import make_plain_function
    from openaclnn.core.dtypes import BFLOAT16, FLOAT, DType
    from openaclnn.engines.gpu.launchers import losses as loss_launches, steps
    from openaclnn.operators.logit_steps import STEP, STEP_GRAD, kept_by
    from openaclnn.operators.logits import reference, reference_grad
    from openaclnn.torch import fused_backward as torch_ahead

    nan, inf = np.nan, np.inf
    PLAIN: dict[str, Any] = {}
    ALL: dict[str, Any] = {"weighted": True, "smoothing": 0.1, "zloss_scale": 0.01}

if MODE == "interpret":
    from test_gpu_fused_backward import check_gradients_in_turn

    _step, _step_grad = make_plain_function(STEP), make_plain_function(STEP_GRAD)

    class Losses:
        """Loss and gradient of some logits, in memory that tells what was written."""

        def __init__(
            self, shape: tuple[int, ...], reduction: str = "mean", dtype: Any = np.float32, ignored: int = 1, *,
            by_class: bool = False, weighted: bool = False, smoothing: float = 0.0, zloss_scale: float = 0.0,
        ) -> None:  # fmt: skip
            rng = np.random.default_rng(sum(shape))
            images, classes, *others = shape
            self.x = rng.normal(0, 3, shape).astype(dtype)
            self.target = rng.integers(0, classes, (images, *others))
            self.target.flat[::4] = ignored
            self.weight = rng.uniform(0.2, 1, classes).astype(np.float32) if weighted else None
            self.options = {
                "weight": self.weight, "reduction": reduction, "ignore_index": ignored, "label_smoothing": smoothing,
                "zloss_scale": zloss_scale,
            }  # fmt: skip
            self.by_class = by_class
            self.loss = np.zeros(self.target.shape if reduction == "none" else (), dtype)
            self.memory = np.ones(2, np.float32)
            self.kept = np.full(kept_by(shape) + 1, 7, np.float32)
            self.out = np.full(shape, 7, dtype)

        def laid(self, array: Any) -> Any:
            """As it lies in memory: with classes last where pixels are rows."""
            if not (self.by_class and array.shape == self.x.shape and array.ndim > 2):
                return array
            return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)

        def run(self, function: Any, *places: Any, out: Any) -> None:
            *laid, last = [self.laid(place) for place in (*places, self.out)]
            weight = {"weight": self.weight}
            function(*laid, out=(*out, last) if out else last, **{**self.options, **weight})
            self.out[:] = last

        def forward(self) -> None:
            self.out[:] = 7
            self.run(_step, self.x, self.target, self.memory, out=(self.loss, self.kept[:-1]))
            assert self.kept[-1] == 7  # behind what a call makes for it

        def backward(self, gradient: Any) -> None:
            incoming = np.broadcast_to(np.asarray(gradient, self.x.dtype), self.loss.shape)
            self.run(
                _step_grad,
                incoming.copy(),
                self.x,
                self.target,
                self.kept[:-1],
                self.memory,
                out=(),
            )

        def assert_right(self, gradient: Any, exact: float = 1e-6) -> None:
            """What the reference makes of the same numbers."""
            wide = self.x.astype(np.float64)
            incoming = np.asarray(gradient, self.x.dtype).astype(np.float64)
            with np.errstate(all="ignore"):
                loss, top, rest = reference(wide, self.target, **self.options)
                known = reference_grad(incoming, wide, top, rest, self.target, **self.options)
            single = self.x.dtype == np.float32
            close = 1e-5 if single else float(ml_dtypes.finfo(self.x.dtype).eps)
            # Smoothing takes something from each class, which cancels; the smallest numbers of FLOAT16 are few.
            tiny = 6e-8 if self.x.dtype == np.float16 else 1e-37
            least = (
                np.nanmax(np.abs(known), initial=0) * 2e-7
                if self.options["label_smoothing"]
                else tiny
            )
            actual = self.loss.astype(np.float64)
            np.testing.assert_allclose(actual, loss, rtol=exact if single else close)
            np.testing.assert_allclose(
                self.out.astype(np.float64), known, rtol=close, atol=max(least, tiny)
            )

    @pytest.mark.parametrize(
        ("shape", "reduction", "options"),
        [
            ((140, 3), "mean", PLAIN), ((40, 21), "sum", ALL), ((9, 130), "none", PLAIN), ((3, 513), "mean", ALL), ((2, 1600), "sum", PLAIN),
            ((3, 3, 7, 9), "mean", ALL), ((2, 19, 263), "none", ALL), ((2, 40, 6, 6), "sum", PLAIN), ((2, 100, 16), "mean", PLAIN),
            ((1, 300, 20), "none", ALL),
        ],
        ids=str,
    )  # fmt: skip
    @pytest.mark.in_turns
    def test_a_step_is_what_the_formulas_say(
        shape: tuple[int, ...], reduction: str, options: dict[str, Any]
    ) -> None:
        step = Losses(shape, reduction, **options)
        step.forward()
        step.backward(1.0)
        step.assert_right(1.0)
        uneven = np.linspace(-1, 2, step.loss.size).reshape(step.loss.shape)
        step.backward(uneven if reduction == "none" else 0.25)
        step.assert_right(uneven if reduction == "none" else 0.25)

    def test_a_gradient_that_nobody_expected_may_have_memory_of_its_own() -> None:
        step = Losses((9, 130))
        step.forward()
        late = np.float32(0.25).reshape(())
        step.out = _step_grad(
            late, step.x, step.target, step.kept[:-1], step.memory, **step.options
        )
        step.assert_right(0.25)

    @pytest.mark.parametrize("gathered", [True, False])
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @pytest.mark.in_turns
    def test_sums_of_many_tiles_are_added_up(
        reduction: str, gathered: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loss_launches, "FEW_PROGRAMS", 71)
        monkeypatch.setattr(loss_launches, "GATHERING", 32)
        step = Losses((71 + gathered, 520), reduction, zloss_scale=0.01)
        step.forward()
        step.backward(1.0)
        step.assert_right(1.0)

    def test_sums_of_many_targets_are_made_one_by_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(steps.sums, "FEW_POSITIONS", 60)
        step = Losses((71, 6), **ALL)
        for gradient in (1.0, 0.5):
            step.forward()
            step.backward(gradient)
            step.assert_right(gradient)

    @pytest.mark.parametrize("options", [PLAIN, {"smoothing": 0.1}, {"smoothing": 0.1, "weighted": True}], ids=str)  # fmt: skip
    @pytest.mark.in_turns
    def test_gradients_at_targets_are_exact(options: dict[str, Any]) -> None:
        """Coefficients that are rounded three times would be off by 2.4 to 3 ulp there."""
        step = Losses((120, 150), **options)
        step.x[:] = np.random.default_rng(1).normal(0, 1, step.x.shape)
        step.forward()
        wide = step.x.astype(np.float64)
        _, top, rest = reference(wide, step.target, **step.options)
        known = reference_grad(np.ones(()), wide, top, rest, step.target, **step.options)
        counted = np.flatnonzero(step.target != step.options["ignore_index"])
        place = counted, step.target[counted]
        ulps = np.abs(step.out[place] - known[place]) / np.spacing(np.abs(known[place]).astype(np.float32))  # fmt: skip
        assert ulps.max() < 1.25

    @pytest.mark.parametrize("options", [{"weighted": True}, {"smoothing": 0.2}, {"zloss_scale": 0.1}, {"by_class": True, **ALL}], ids=str)  # fmt: skip
    @pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
    def test_one_option_and_another_dtype(dtype: Any, options: dict[str, Any]) -> None:
        step = Losses((3, 6, 5), dtype=dtype, **options)
        step.forward()
        step.backward(1.0)
        step.assert_right(1.0)

    def test_what_is_expected_is_what_was_given_twice() -> None:
        for reduction in ("mean", "none"):
            check_gradients_in_turn(Losses((40, 5), reduction), 1)

    def test_of_losses_of_their_own_what_is_another_is_written_anew() -> None:
        step = Losses((300, 4), "none")
        step.forward()
        gradient = np.ones(300)
        gradient[200] = 3
        step.out[10], step.out[201] = 9, 9
        step.backward(gradient)
        assert (step.out[10] == 9).all()  # in another tile
        assert (step.out[201] != 9).all()
        step.out[10] = 0
        step.target[10], step.loss[10] = 1, 0
        step.assert_right(gradient)

    @pytest.mark.parametrize("shape", [(8, 6), (8, 40), (8, 600), (2, 6, 4), (1, 260, 8)], ids=str)
    @pytest.mark.parametrize("options", ["plain", "all"])
    @pytest.mark.filterwarnings("ignore:All-NaN slice")  # of the interpreter
    def test_strange_logits(shape: tuple[int, ...], options: str) -> None:
        step = Losses(shape, "none", **(ALL if options == "all" else PLAIN))
        rows = np.moveaxis(step.x, 1, -1).reshape(-1, shape[1])
        targets = step.target.reshape(-1)
        targets[:] = [2, 0, 1, 3, 4, 1, 1, -5]
        rows[0] = -inf
        rows[0, [0, 2, -1]] = 5.0  # three that are the largest, all others masked
        rows[1, 3] = nan
        rows[2] = nan  # ignored
        rows[3] = -inf
        rows[4, -1] = inf
        rows[5, 0] = inf  # ignored
        rows[6] = -inf  # ignored
        rows[7] = nan  # of no class
        step.x[:] = np.moveaxis(rows.reshape(*step.target.shape, shape[1]), -1, 1)
        step.forward()
        step.backward(1.0)
        step.assert_right(1.0)
        gradients = np.moveaxis(step.out, 1, -1).reshape(-1, shape[1])
        assert (gradients[[2, 5, 6, 7]] == 0).all()
        assert np.isnan(gradients[[1, 3, 4]]).all()
        if options == "plain":
            assert np.isfinite(gradients[0]).all()

    @pytest.mark.parametrize("shape", [(40, 2), (5, 30), (5, 90), (1, 3, 9)], ids=str)
    def test_a_probability_near_one_keeps_its_digits(shape: tuple[int, ...]) -> None:
        step = Losses(shape, "none", ignored=-1)
        step.target[:] = 1
        for apart in (3, 20, 60, 87):
            step.x[:] = -apart
            step.x[:, 1] = 0
            step.x[:, 0] -= np.linspace(0, 1, shape[0]).reshape(-1, *(1,) * (len(shape) - 2))
            step.forward()
            step.backward(1.0)
            step.assert_right(1.0, exact=1e-5)  # as exact as a power is

    def test_the_largest_numbers() -> None:
        step = Losses((33, 7), "none", smoothing=0.1)
        step.x[:16] *= 3e37
        step.x[16:] = np.float32(3e38)
        step.x[16:, 2] = -3e38
        step.forward()
        step.backward(1.0)
        step.assert_right(1.0)

    def test_where_nothing_counts_a_mean_is_none() -> None:
        for options in (PLAIN, ALL):
            step = Losses((5, 9), **options)
            step.target[:] = [1, -3, 9, 1 << 40, 1]
            step.forward()
            assert np.isnan(step.loss)
            step.backward(1.0)
            assert (step.out == 0).all()

    # PyTorch.

    @pytest.fixture
    def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
        """PyTorch's tensors on the CPU for those of a device."""
        monkeypatch.setattr(torch_ahead.gpu, "unavailable", lambda: None)
        monkeypatch.setattr(torch_ahead, "current_engine", lambda: None)
        monkeypatch.setattr(torch_ahead, "LEAST_OF_LONG_ROWS", 0)
        monkeypatch.setattr(torch_ahead, "_memories", {})

    def losses(
        x: Any, target: Any, weight: Any = None, *, reduction: str = "mean", ignored: int = -100, smoothing: Any = 0.0, scale: Any = 0.0
    ) -> Any:  # fmt: skip
        return torch_ahead.loss_ahead(x, target, weight, (reduction, ignored, smoothing, scale))

    @pytest.mark.parametrize(
        ("layout", "reduction"),
        [
            ("long rows", "mean"),
            *itertools.product(
                ["rows", "images", "classes last", "images of a pixel"], ["mean", "sum", "none"]
            ),
        ],
    )
    @pytest.mark.in_turns
    def test_autograd_gets_the_gradient_it_asks_for(
        on_the_host: None, layout: str, reduction: str
    ) -> None:
        torch.manual_seed(0)
        shape = {"rows": (6, 12), "long rows": (3, 8200), "images of a pixel": (6, 12, 1, 1)}.get(layout, (2, 5, 3, 4))  # fmt: skip
        x = torch.randn(shape, requires_grad=True)
        if layout == "classes last":
            x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]))
        target.view(-1)[1] = 3
        weight = None if layout == "long rows" else torch.rand(shape[1]) + 0.5
        wide = x.detach().double().requires_grad_()
        known = torch.nn.functional.cross_entropy(
            wide, target, None if weight is None else weight.double(), ignore_index=3, reduction=reduction
        )  # fmt: skip
        for factor in (1.0, 1.0, 0.5, 0.5, 0.5, 1.0) if reduction == "mean" else (1.0, 0.5):
            loss = losses(x, target, weight, reduction=reduction, ignored=3)
            torch.testing.assert_close(loss.double(), known, rtol=1e-6, atol=1e-9)
            (unit,) = torch.autograd.grad(known.sum(), wide, retain_graph=True)
            first, second = (
                torch.autograd.grad(loss.sum() * factor, x, retain_graph=True)[0] for _ in range(2)
            )
            assert torch.equal(first, second)
            assert first.data_ptr() != second.data_ptr()
            assert first.stride() == x.stride()
            torch.testing.assert_close(first.double(), unit * factor, rtol=1e-5, atol=1e-9)
        (differentiable,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
        torch.testing.assert_close(differentiable.double(), unit, rtol=1e-5, atol=1e-9)
        differentiable.square().sum().backward()
        assert torch.isfinite(x.grad).all()

    @pytest.mark.parametrize("form", ["rows", "classes last", "weights of 16 bits", "long rows"])
    @pytest.mark.in_turns
    def test_the_next_call_of_a_kind_takes_the_fast_path(
        on_the_host: None, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both forward and backward, with the same bits; another size is another kind."""
        first: list[Any] = []
        slow = torch_ahead.make_plain_function.__globals__["call_plain"]
        for function in (torch_ahead._step, torch_ahead._step_grad):
            monkeypatch.setitem(function.__globals__, "_call", lambda *arguments: first.append(arguments[0]) or slow(*arguments))  # fmt: skip
            function.cache.forget()

        def step(rows: int) -> Any:
            torch.manual_seed(rows)
            x = torch.randn((rows, 8200) if form == "long rows" else (rows, 5, 3, 4))
            weight = torch.rand(5) if form == "weights of 16 bits" else None
            if weight is not None:
                x, weight = x.bfloat16(), weight.bfloat16()
            if form == "classes last":
                x = x.contiguous(memory_format=torch.channels_last)
            x.requires_grad_()
            loss = losses(x, torch.arange(x[:, 0].numel()).remainder(5).view_as(x[:, 0]), weight)
            loss.backward()
            assert x.grad.stride() == x.stride()
            return [loss.detach(), x.grad]

        @np.errstate(all="ignore")
        def steps_in_turn() -> None:
            once, again = step(2), step(2)
            assert [operator.name for operator in first] == [
                "CrossEntropyStep",
                "CrossEntropyStepGrad",
            ]
            assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))
            step(3)
            assert len(first) == 4

        contextvars.Context().run(steps_in_turn)  # no engine is asked for

    def test_what_is_changed_after_the_loss_is_noticed(on_the_host: None) -> None:
        leaf, target = torch.randn(3, 11, requires_grad=True), torch.randint(0, 11, (3,))
        x = leaf * 1
        loss = losses(x, target)
        x.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_gradients_of_gradients_with_weights_of_16_bits(on_the_host: None) -> None:
        x = torch.randn(6, 12).bfloat16().requires_grad_()
        target, weight = torch.arange(6), torch.rand(12).bfloat16()
        (gradient,) = torch.autograd.grad(losses(x, target, weight), x, create_graph=True)
        loss = torch.nn.functional.cross_entropy(x.double(), target, weight.double())
        known = torch.autograd.grad(loss, x)[0]
        torch.testing.assert_close(gradient, known, rtol=1e-2, atol=1e-4)
        gradient.square().sum().backward()
        assert torch.isfinite(x.grad).all()

    def test_what_is_left_to_two_kernels(
        on_the_host: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        x, target = torch.randn(3, 16, requires_grad=True), torch.randint(0, 16, (3,))
        weight = torch.ones(16)
        assert losses(x, target, weight, reduction="none", smoothing=0, scale=1) is not None
        assert losses(x.bfloat16(), target, weight.bfloat16()) is not None
        assert losses(x, target.int()) is None
        assert losses(x.detach(), target) is None
        assert losses(x, target, reduction="median") is None
        assert losses(x, target, smoothing=1.5) is None
        assert losses(x, target, smoothing=torch.tensor(0.1)) is None
        assert losses(x, target, scale=True) is None
        assert losses(x.double(), target) is None
        assert losses(x[:, 1:], target) is None
        assert losses(x[:, 4:], target) is None
        assert losses(x[:, :1].contiguous(), target) is None
        assert losses(x, target[:2]) is None
        assert losses(x[:0], target[:0]) is None
        assert losses(x, target, weight[1:]) is None
        assert losses(x, target, weight.double()) is None
        assert losses(x, target, torch.ones(32)[::2]) is None
        assert losses(x, target, torch.ones(16, requires_grad=True)) is None
        assert losses(torch.randn(2, 3, 4, 5, requires_grad=True).transpose(2, 3), torch.zeros(2, 5, 4).long()) is None  # fmt: skip
        with torch.no_grad():
            assert losses(x, target) is None
        monkeypatch.setattr(torch_ahead, "current_engine", lambda: "numpy")
        assert losses(x, target) is None


if MODE == "compile":
    from openaclnn.calls.plain import bind_plain
    from openaclnn.core.products import current_product
    from openaclnn.core.tensor import Tensor
    from openaclnn.engines import gpu
    from openaclnn.engines.gpu.launching import variants
    from test_gpu_losses import device, plan_of  # noqa: F401

    @pytest.mark.parametrize(
        ("dtype", "shape"), [(BFLOAT16, (128, 1000)), (FLOAT, (2, 19, 713, 713)), (BFLOAT16, (2100, 4096))], ids=str
    )  # fmt: skip
    @pytest.mark.parametrize("operator", [STEP, STEP_GRAD], ids=lambda operator: operator.name)
    def test_logits_are_read_once_and_held(
        operator: Any, dtype: DType, shape: tuple[int, ...]
    ) -> None:
        """By as many loads as a thread has vectors of the classes there are, with nothing for those beyond, and no memory of its own."""
        rows, classes = len(shape) == 2, shape[1]
        gpu._runners.clear()
        variants._variants.clear()
        memory = np.ones(2, np.float32)
        late = {"grad_loss": np.ones((), dtype.numpy), "kept": np.zeros(kept_by(shape), np.float32), "memory": memory}  # fmt: skip
        if operator is STEP:
            plan = plan_of(dtype, shape, STEP, memory=memory)
        else:  # into memory of the step
            logits = {"input": np.empty(shape, dtype.numpy), "target": np.zeros(shape[:1] + shape[2:], np.int64)}  # fmt: skip
            call = bind_plain(operator, operator.plain_defaults | logits | late, current_product())
            call.values["gradInputOut"] = Tensor.from_numpy(np.empty(shape, dtype.numpy))
            plan = operator.plan(call)
        addresses = [1 << power for power in range(30, 30 + len(plan.operands))]
        assert gpu.prepare(plan)(addresses, 0) == 0
        texts = [kernel.binary.asm["ptx"] for kernel in variants._variants.values()]
        (code,) = (text for text in texts if "entry cross_entropy_step" in text)
        assert ".local" not in code
        tile = steps._rows(dtype.itemsize, classes) if rows else steps._images(classes, shape[-1] ** 2, False, False)  # fmt: skip
        each = 16 // dtype.itemsize if rows else 1
        threads = tile.warps * 32 * each
        held = -(-classes // tile.lanes) * tile.lanes * tile.positions // threads
        # What is never there the assembler leaves out.
        most = tile.held * tile.lanes * tile.positions // threads
        width = {2: ".b16", 4: ".b32", 16: ".v4.b32"}[each * dtype.itemsize]
        for word in ("ld.global", "st.global"):
            lines = [line for line in code.splitlines() if word in line and width in line]
            # With those for targets, sums and what is expected.
            assert held <= len(lines) <= most + 12
