"""PyTorch's face on a real GPU: `python -m pytest tests/gpu_torch.py` (a name pytest does not collect)."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as theirs

from openaclnn.engines import gpu
from openaclnn.engines.gpu.launching import variants
from openaclnn.torch import check_targets, functional, fused_backward, nn, served, use
from test_torch_unlocked import STEPS, computes_alone

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
ROWS, CLASSES = 257, 1003
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler


def both(function: Any, x: Any) -> tuple[Any, Any]:
    leaf = x.detach().clone().requires_grad_()
    value = function(leaf)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def cases(dtype: torch.dtype) -> dict[str, tuple[Any, Any]]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, CLASSES, device="cuda").to(dtype)
    y = torch.randn_like(x)
    target = torch.randint(0, CLASSES, (ROWS,), device="cuda")
    target[3] = -100
    weight = torch.rand(CLASSES, device="cuda").to(dtype) + 0.1
    images = torch.randn(2, 21, 33, 17, device="cuda").to(dtype)
    pixels = torch.randint(0, 21, (2, 33, 17), device="cuda")
    return {
        "elu": (lambda m, x: m.elu(x, 0.7), x),
        "l1": (lambda m, x: m.l1_loss(x, y.to(x.dtype)), x),
        "smooth l1": (lambda m, x: m.smooth_l1_loss(x, y.to(x.dtype), beta=0.5, reduction="sum"), x),
        "nll": (lambda m, x: m.nll_loss(x, target, weight.to(x.dtype)), x),
        "nll none": (lambda m, x: m.nll_loss(x, target, reduction="none"), x),
        "nll of images": (lambda m, x: m.nll_loss(x, pixels), images),
        "cross entropy": (lambda m, x: m.cross_entropy(x, target), x),
        "cross entropy with all": (
            lambda m, x: m.cross_entropy(
                x, target, weight.to(x.dtype), label_smoothing=0.1, reduction="none"
            ), x
        ),
        "cross entropy of images": (lambda m, x: m.cross_entropy(x, pixels), images),
    }  # fmt: skip


@by_dtype
@pytest.mark.parametrize("name", cases(torch.float32))
def test_no_worse_than_pytorch(name: str, dtype: torch.dtype) -> None:
    function, x = cases(dtype)[name]
    exact = both(lambda x: function(theirs, x), x.double())
    ours, other = (both(lambda x, m=m: function(m, x), x) for m in (functional, theirs))
    for mine, its, known in zip(ours, other, exact, strict=True):
        assert (mine.dtype, mine.shape, mine.device) == (its.dtype, its.shape, its.device)
        apart, allowed = ((v.double() - known).abs().max() for v in (mine, its))
        assert apart <= allowed + 2 * torch.finfo(dtype).eps * known.abs().max()


@by_dtype
@pytest.mark.parametrize("name", cases(torch.float32))
def test_compiled_and_in_a_graph(name: str, dtype: torch.dtype) -> None:
    function, x = cases(dtype)[name]
    run = lambda x: function(functional, x)  # noqa: E731
    known = both(run, x)
    torch._dynamo.reset()  # it gives up after a few compilations of one line
    for ours, other in zip(both(torch.compile(run, fullgraph=True), x), known, strict=True):
        torch.testing.assert_close(ours, other)
    leaf = x.detach().clone().requires_grad_()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(run(leaf).sum(), leaf)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = run(leaf)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    with torch.no_grad():
        leaf.copy_(x * 0.5)
    graph.replay()
    for ours, other in zip((value, gradient), both(run, x * 0.5), strict=True):
        torch.testing.assert_close(ours.detach(), other)


@by_dtype
@pytest.mark.parametrize("name", cases(torch.float32))
def test_the_override(name: str, dtype: torch.dtype) -> None:
    function, x = cases(dtype)[name]
    known = both(lambda x: function(theirs, x), x)
    with use():
        got = both(lambda x: function(theirs, x), x)
        report = served()
    for ours, other in zip(got, known, strict=True):
        torch.testing.assert_close(ours, other, rtol=2e-2, atol=2e-2)
    fewest = 1 if "entropy" in name else 2  # its derivative is our own
    assert name == "l1" or sum(calls.ours for calls in report.values()) >= fewest, report


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_memory_is_the_gradient_and_little_more(dtype: torch.dtype) -> None:
    logits = torch.randn(8192, 8192, device="cuda", dtype=dtype, requires_grad=True)
    target = torch.randint(0, 8192, (8192,), device="cuda")
    loss = nn.CrossEntropyLoss()
    loss(logits, target).backward()
    logits.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss(logits, target).backward()
    assert torch.cuda.max_memory_allocated() - before <= logits.nbytes + (1 << 20)
    product = logits * 1
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(nn.CrossEntropyLoss(inplace=True)(product, target), product)
    assert torch.cuda.max_memory_allocated() - before <= 1 << 20


def test_targets_are_looked_at_when_asked() -> None:
    x, target = torch.randn(4, 5, device="cuda"), torch.tensor([0, 1, 9, 2], device="cuda")
    functional.cross_entropy(x, target)
    check_targets(True)
    try:
        with pytest.raises(IndexError, match="Target 9 is out of bounds"):
            functional.cross_entropy(x, target)
        with pytest.raises(RuntimeError):
            functional.l1_loss(x, x.cpu())
    finally:
        check_targets(False)
    wide = x.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: functional.elu(x), (wide,))


AHEAD = [
    (torch.float32, (33000, 2050)), (torch.float32, (16400, 4096)), (torch.float32, (13500, 5001)), (torch.float32, (4200, 16000)),
    (torch.float32, (2200, 30522)), (torch.float32, (2100, 32000)), (torch.float32, (1400, 50257)), (torch.float32, (560, 128256)),
    (torch.float32, (300, 250001)), (torch.bfloat16, (65537, 2056)), (torch.bfloat16, (16400, 8192)), (torch.bfloat16, (8400, 16000)),
    (torch.bfloat16, (4200, 32000)), (torch.bfloat16, (1100, 128256)), (torch.float16, (4200, 32000)), (torch.float16, (2700, 50304)),
]  # fmt: skip


STEPS_AHEAD = [
    (torch.float32, (40000, 1000)), (torch.float32, (300001, 21)), (torch.float32, (100003, 150)), (torch.float32, (9001, 513)),
    (torch.float32, (2000003, 2)), (torch.float32, (700001, 7)), (torch.float32, (7001, 2050)), (torch.float32, (3001, 8192)),
    (torch.float32, (4, 19, 255, 257)), (torch.float32, (2, 150, 131, 129)), (torch.float32, (32, 1000, 16, 16)),
    (torch.float32, (64, 3, 225, 225)), (torch.float32, (5, 64, 101, 101)), (torch.float32, (9, 300, 37, 41)),
    (torch.bfloat16, (40000, 1000)), (torch.bfloat16, (700001, 21)), (torch.bfloat16, (8, 19, 255, 257)),
    (torch.bfloat16, (32, 1000, 16, 16)), (torch.float16, (50000, 150)), (torch.float16, (4, 40, 200, 200)),
]  # fmt: skip


@pytest.mark.parametrize("options", ["plain", "none", "all", "sum, classes last"])
@pytest.mark.parametrize(("dtype", "shape"), STEPS_AHEAD, ids=str)
def test_steps_of_rows_and_images(dtype: torch.dtype, shape: tuple[int, ...], options: str) -> None:
    torch.manual_seed(1)
    classes = shape[1]
    x = (3 * torch.randn(shape, device="cuda")).to(dtype)
    if "last" in options and len(shape) > 2:
        x = x.contiguous(memory_format=torch.channels_last)
    target = torch.randint(0, classes, (shape[0], *shape[2:]), device="cuda")
    target.view(-1)[::7] = -100
    if "sum" in options and dtype is torch.float16:
        target.view(-1)[500:] = -100  # the loss of all is more than FLOAT16 can say
    settings: dict[str, Any] = {
        "reduction": options[:4].strip(",") if options[:3] in ("non", "sum") else "mean"
    }
    if options == "all":
        settings |= {
            "weight": torch.rand(classes, device="cuda").to(dtype) + 0.5,
            "label_smoothing": 0.1,
        }
    wide = x.double().requires_grad_()
    known = theirs.cross_entropy(
        wide,
        target,
        **{name: value.double() if name == "weight" else value for name, value in settings.items()},
    )
    outer = torch.rand_like(known) if options == "none" else torch.ones_like(known)
    outer = outer.to(dtype).double()
    exact, close = (1e-6, 2e-5) if dtype is torch.float32 else (torch.finfo(dtype).eps,) * 2
    (unit,) = torch.autograd.grad(known, wide, outer)
    least = 3e-7 * unit.abs().max().item() if options == "all" else 1e-9
    if dtype is torch.float16:
        least = 6e-8
    before = None
    for factor in (1.0, 0.5, 0.5, 0.5, 1.0, 1.0):
        leaf = x.detach().clone().requires_grad_()
        loss = functional.cross_entropy(leaf, target, **settings)
        assert "Ahead" in type(loss.grad_fn).__name__
        torch.testing.assert_close(
            loss.detach().double(),
            known.detach(),
            rtol=exact,
            atol=1e-6 if options == "none" else 0,
        )
        (gradient,) = torch.autograd.grad(loss, leaf, (outer * factor).to(dtype))
        assert gradient.stride() == leaf.stride()
        torch.testing.assert_close(gradient.double(), unit * factor, rtol=close, atol=least)
        before = gradient if before is None else before
        if factor == 1.0:
            assert torch.equal(gradient, before)  # whether it was written with the loss or later


def step(x: Any, target: Any, factor: float = 1.0, **options: Any) -> tuple[Any, Any]:
    """The loss, and the gradient of some times it."""
    leaf = x.detach().clone().requires_grad_()
    loss = functional.cross_entropy(leaf, target, **options)
    assert "Ahead" in type(loss.grad_fn).__name__
    (loss * factor).backward()
    return loss.detach(), leaf.grad


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("dtype", "shape"), AHEAD, ids=str)
def test_a_gradient_written_ahead_is_the_one_asked_for(
    dtype: torch.dtype, shape: tuple[int, int], reduction: str
) -> None:
    """Whatever the loss is multiplied with, and whatever it was before."""
    torch.manual_seed(1)
    x = (3 * torch.randn(shape, device="cuda")).to(dtype)
    target = torch.randint(0, shape[1], shape[:1], device="cuda")
    target[::7] = -100
    wide = x.double().requires_grad_()
    if dtype is torch.float16 and reduction == "sum":
        target[500:] = -100  # the loss of all is more than FLOAT16 can say
    loss = theirs.cross_entropy(wide, target, reduction=reduction)
    (unit,) = torch.autograd.grad(loss, wide)
    exact, close = (1e-6, 2e-5) if dtype is torch.float32 else (torch.finfo(dtype).eps,) * 2
    least = 6e-8 if dtype is torch.float16 else 1e-9
    known: dict[float, Any] = {}
    for factor in (1.0, 1.0, 0.25, 0.25, 0.25, 16.0, 1.0, 0.25, 1.0, 1.0):
        ours, gradient = step(x, target, factor, reduction=reduction)
        torch.testing.assert_close(ours.double(), loss.detach(), rtol=exact, atol=0)
        torch.testing.assert_close(
            gradient.double(), unit * factor, rtol=close, atol=least * max(factor, 1)
        )
        assert torch.equal(gradient, known.setdefault(factor, gradient))
        assert (gradient[::7] == 0).all()


def test_machine_code_launches_a_step() -> None:
    logits = torch.randn(4096, 1024, device="cuda", requires_grad=True)
    target = torch.randint(0, 1024, (4096,), device="cuda")
    for _ in range(2):  # the first call compiles
        functional.cross_entropy(logits, target).backward()
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_filename))
    try:
        functional.cross_entropy(logits, target)
    finally:
        sys.setprofile(None)
    assert any(name.endswith("fused_backward.py") for name in entered)
    assert not any(name.endswith("launching/runners.py") for name in entered)


def test_a_kernel_compiled_for_one_program_serves_many() -> None:
    """The last kernel of a step is compiled for whichever size comes first: it knows nothing of that one's numbers."""
    variants._variants.clear()
    gpu._runners.clear()
    fused_backward._step.cache.forget()
    for shape in ((1, 19, 512, 500), (200000, 150), (16384, 2050), (9001, 2050)):
        x = torch.randn(shape, device="cuda")
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]), device="cuda")
        loss, _ = step(x, target)
        expected = theirs.cross_entropy(x.double(), target)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("classes", [8, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_step_off_the_bounds_of_vectors(dtype: Any, classes: int) -> None:
    """After one at them, by the same cache entry; with weights of the logits' dtype."""
    rows = 40000
    memory = torch.randn(rows * classes + 1, device="cuda").to(dtype)
    target = torch.randint(0, classes, (rows,), device="cuda")
    weight = (torch.rand(classes, device="cuda") + 0.5).to(dtype)
    off = memory[1:].view(rows, classes)
    for _ in range(2):
        pairs = []
        for x in (off.clone(), off):
            leaf = x.detach().requires_grad_()
            loss = functional.cross_entropy(leaf, target, weight)
            assert type(loss.grad_fn).__name__ == "CrossEntropyAheadBackward"
            loss.backward()
            pairs.append((loss.detach(), leaf.grad))
        assert all(map(torch.equal, *pairs))
    known = theirs.cross_entropy(off.double(), target, weight.double())
    close = 1e-6 if dtype is torch.float32 else 4e-3
    torch.testing.assert_close(pairs[0][0].double(), known, rtol=close, atol=0)


def test_gradients_written_ahead_are_handed_out_once() -> None:
    x = torch.randn(4200, 16000, device="cuda", requires_grad=True)
    target = torch.randint(0, 16000, (4200,), device="cuda")
    loss = functional.cross_entropy(x, target)
    assert type(loss.grad_fn).__name__ == "CrossEntropyAheadBackward"
    first, second = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()
    (third,) = torch.autograd.grad(loss, x, create_graph=True)
    assert third.requires_grad
    torch.testing.assert_close(third, first, rtol=1e-5, atol=1e-12)
    third.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.equal(first, second)


@pytest.mark.parametrize("shape", [(4200, 16000), (1400, 50257)], ids=str)
def test_gradients_written_ahead_in_a_graph(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, device="cuda", requires_grad=True)
    target = torch.randint(0, shape[1], shape[:1], device="cuda")
    factor = torch.ones((), device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(functional.cross_entropy(x, target) * factor, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (gradient,) = torch.autograd.grad(functional.cross_entropy(x, target) * factor, x)
    for value in (1.0, 3.0, 3.0, 3.0, 1.0):
        factor.fill_(value)
        gradient.zero_()
        graph.replay()
        expected = torch.autograd.grad(functional.cross_entropy(x, target) * value, x)[0]
        assert torch.equal(gradient, expected)


@pytest.mark.parametrize("shape", [(4200, 16000), (560, 128256)], ids=str)
def test_losses_of_two_streams_at_once(shape: tuple[int, int]) -> None:
    x = [torch.randn(shape, device="cuda", requires_grad=True) for _ in range(2)]
    target = torch.randint(0, shape[1], shape[:1], device="cuda")
    known = [step(leaf, target, factor)[1] for leaf, factor in zip(x, (1.0, 0.5), strict=True)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for _ in range(20):
        gradients = []
        for leaf, factor, stream in zip(x, (1.0, 0.5), streams, strict=True):
            with torch.cuda.stream(stream):
                gradients.append(
                    torch.autograd.grad(functional.cross_entropy(leaf, target) * factor, leaf)[0]
                )
        torch.cuda.synchronize()
        assert all(map(torch.equal, gradients, known))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_are_written_ahead_under_autocast(dtype: torch.dtype) -> None:
    x = torch.randn(4200, 16000, device="cuda").to(dtype).requires_grad_()
    target = torch.randint(0, 16000, (4200,), device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss, known = functional.cross_entropy(x, target), theirs.cross_entropy(x.float(), target)
    assert loss.dtype is known.dtype is torch.float32
    assert "Ahead" in type(loss.grad_fn).__name__
    actual, expected = (torch.autograd.grad(value * 1024, x)[0] for value in (loss, known))
    assert actual.dtype is dtype
    torch.testing.assert_close(
        actual, expected, rtol=1e-2 if dtype is not torch.float32 else 1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", STEPS)
def test_a_backward_pass_computes_while_another_thread_has_the_lock(name: str) -> None:
    """Autograd has a thread of its own for a GPU; it launches without Python what lies row by row."""
    start, step = STEPS[name]
    if name == "smooth_l1_loss_backward":  # whose own step reads what is stretched from one element
        step = lambda x: theirs.smooth_l1_loss(x, torch.zeros_like(x), reduction="none")  # noqa: E731
    computes_alone(name, start.cuda(), step)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_losses_of_pixels_that_nobody_adds_up_are_one_launch() -> None:
    x, target = torch.randn(1, 4, 2, 2, device="cuda"), torch.zeros(1, 2, 2, dtype=torch.int64, device="cuda")  # fmt: skip
    with use():
        for _ in range(3):
            theirs.nll_loss(x, target, reduction="none")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            got = theirs.nll_loss(x, target, reduction="none")
            torch.cuda.synchronize()
    assert torch.equal(got, -x[:, 0])
    names = [event.name for event in seen.events() if event.device_type.name == "CUDA"]
    assert len(names) == 1, names


@by_dtype
@pytest.mark.parametrize("shape", [(257, 21), (64, 1003), (9, 50257)], ids=str)
def test_functions_of_two_rows_and_of_probabilities(dtype: torch.dtype, shape: tuple[int, int]) -> None:  # fmt: skip
    """Those whose kernels have the most operands, too, with sizes of which none was seen before."""
    torch.manual_seed(4)
    x, teacher = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
    target = torch.randint(0, shape[1], shape[:1], device="cuda")
    share, weight = (
        torch.rand(shape, device="cuda").softmax(-1),
        torch.rand(shape[1], device="cuda"),
    )

    def divergence(x: Any) -> Any:
        log_p, log_q = (logits.to(x.dtype).log_softmax(-1) for logits in (x, teacher))
        return theirs.kl_div(log_p, log_q, reduction="none", log_target=True).sum(-1)

    def entropy(x: Any) -> Any:
        return -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)

    several: dict[str, tuple[Any, Any]] = {
        "kl": (lambda x: functional.distillation_kl(x, teacher), divergence),
        "soft": (
            lambda x: functional.cross_entropy(x, share.to(x.dtype), weight.to(x.dtype), label_smoothing=0.1, reduction="none"),
            lambda x: theirs.cross_entropy(x, share.to(dtype).to(x.dtype), weight.to(dtype).to(x.dtype), label_smoothing=0.1, reduction="none"),
        ),
        "entropy": (functional.entropy, entropy),
        "log-probabilities": (
            lambda x: functional.selected_log_probs(x, target),
            lambda x: x.log_softmax(-1).gather(-1, target[:, None])[:, 0],
        ),
    }  # fmt: skip
    near = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    for name, (ours, other) in several.items():
        for got, wanted in zip(both(ours, x), both(other, x.double()), strict=True):
            far = (got.double() - wanted).abs().max() / wanted.abs().max()
            assert far < near, (name, float(far))
