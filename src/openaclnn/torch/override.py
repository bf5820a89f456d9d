"""PyTorch's own operators by our kernels, for models that nobody wants to edit.

`enable` enters Python functions for the CPU and CUDA into PyTorch's dispatcher, below its own derivatives; each tries our
kernel and hands to PyTorch's what that does not serve. `disable` takes them out again, which leaves what was there before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from openaclnn.core.interface import REDUCTIONS
from openaclnn.torch.kernels import KERNELS, Kernel, disturbed
from openaclnn.torch.of_classes import ones_for

__all__ = ["OVERRIDES", "Served", "disable", "enable", "served", "use"]

DEVICES = ("CPU", "CUDA")
SERVED_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


class Served(NamedTuple):
    """How often an operator of PyTorch's was called, since `enable`, and by whom it was computed."""

    calls: int
    ours: int
    reasons: dict[str, int]  # why PyTorch's kernel was taken, and how often


class DeclinedError(Exception):
    """Why a call is PyTorch's."""


Run = Callable[..., Any]
"""An operator of ours: by any means, or by its short road alone, which says NotImplemented where it does not lead."""


def _elu(run: Run, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return run(x, float(alpha), float(scale), float(input_scale))


def _elu_(run: Run, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    found = run(x, x, float(alpha), float(scale), float(input_scale))
    return x if found is None else found


def _elu_backward(
    run: Run, gradient: Any, alpha: Any, scale: Any, input_scale: Any, result: bool, x: Any
) -> Any:
    return run(gradient, x, float(alpha), float(scale), float(input_scale), result)


def _smooth(run: Run, x: Any, y: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    return run(x, y, REDUCTIONS[reduction], beta)


def _smooth_backward(run: Run, gradient: Any, x: Any, y: Any, reduction: int, beta: float) -> Any:
    if gradient.dim() and gradient.shape != x.shape:
        raise DeclinedError("a gradient of another shape")
    return run(gradient, x, y, REDUCTIONS[reduction], beta)


def _likelihood(run: Run, x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> Any:
    if not x.numel():
        raise DeclinedError("no elements")
    how = REDUCTIONS[reduction]
    made = run(x, target, ones_for(x) if weight is None else weight, how, ignored)
    if made is not NotImplemented and how == "none" and target.dim():
        made[1].zero_()
    return made


def _likelihood_backward(
    run: Run, gradient: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: int, total: Any
) -> Any:  # fmt: skip
    if not x.numel():
        raise DeclinedError("no elements")
    factors = ones_for(x) if weight is None else weight
    return run(gradient, x, target, factors, REDUCTIONS[reduction], ignored, total)


def _of(kernel: Kernel, function: Callable[..., Any]) -> tuple[Run, Run, Callable[..., Any]]:
    return kernel.short, kernel.compute, function


def _nowhere_short(*arguments: Any) -> Any:
    return NotImplemented


OVERRIDES: dict[str, tuple[Run, Run, Callable[..., Any]]] = {
    "elu": _of(KERNELS["elu"], _elu),
    "elu_": (_nowhere_short, KERNELS["elu"].into, _elu_),
    "elu_backward": _of(KERNELS["elu_backward"], _elu_backward),
    "smooth_l1_loss": _of(KERNELS["smooth_l1_loss"], _smooth),
    "smooth_l1_loss_backward": _of(KERNELS["smooth_l1_loss_backward"], _smooth_backward),
    "nll_loss_forward": _of(KERNELS["nll_loss"], _likelihood),
    "nll_loss_backward": _of(KERNELS["nll_loss_backward"], _likelihood_backward),
    "nll_loss2d_forward": _of(KERNELS["nll_loss2d"], _likelihood),
    "nll_loss2d_backward": _of(KERNELS["nll_loss2d_backward"], _likelihood_backward),
}
"""The operators of `torch.ops.aten` that can be replaced, with what replaces them: the short road, any means, and what
gives either PyTorch's arguments."""

_libraries: dict[str, Any] = {}
_counts: dict[str, list[Any]] = {}  # of each operator: calls, ours, reasons
_originals: dict[tuple[str, str], Any] = {}


def enable(only: Iterable[str] | None = None, exclude: Iterable[str] = ()) -> None:
    """Replace PyTorch's operators, all of `OVERRIDES` or those named, on the CPU and CUDA; counts start anew."""
    named = list(OVERRIDES) if only is None else list(only)
    for name in (*named, *exclude):
        if name not in OVERRIDES:
            raise ValueError(f"{name!r} is none of {', '.join(OVERRIDES)}")
    disable()
    _counts.clear()
    for name in named:
        if name not in set(exclude):
            _counts[name] = [0, 0, {}]
            _libraries[name] = _entered(name)


def disable() -> None:
    """Give PyTorch's operators back to PyTorch."""
    while _libraries:
        _libraries.popitem()[1]._destroy()


@contextmanager
def use(only: Iterable[str] | None = None, exclude: Iterable[str] = ()) -> Iterator[None]:
    """`enable` for a block; what was replaced before it is so again after it."""
    before = list(_libraries)
    enable(only, exclude)
    try:
        yield
    finally:
        if before:
            enable(before)
        else:
            disable()


def served() -> dict[str, Served]:
    """What became of the calls since `enable`, by PyTorch's names; still there after `disable`."""
    return {
        name: Served(calls, ours, dict(reasons)) for name, (calls, ours, reasons) in _counts.items()
    }


def _entered(name: str) -> Any:
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was one before is the point
        for device in DEVICES if torch.cuda.is_available() else DEVICES[:1]:
            library.impl(name, _tried(name, _original(name, device)), device)
    return library


def _original(name: str, device: str) -> Any:
    """PyTorch's kernel, as it was before any of ours."""
    key = name, device
    if key not in _originals:
        found: Any = torch.library.get_kernel(f"aten::{name}", device)
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, device))
        _originals[key] = lambda *arguments: found.call_boxed(keys, *arguments)
    return _originals[key]


def _tried(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    count, (short, compute, own) = _counts[name], OVERRIDES[name]

    def tried(*arguments: Any, **more: Any) -> Any:
        count[0] += 1
        try:
            result = own(short, *arguments, **more)
            if result is NotImplemented:
                if arguments[0].dtype not in SERVED_DTYPES:
                    raise DeclinedError(str(arguments[0].dtype))
                if disturbed() or torch.compiler.is_compiling():
                    raise DeclinedError("a compiler or a mode is at work")
                result = own(compute, *arguments, **more)
        except (DeclinedError, RuntimeError, IndexError) as reason:
            said = str(reason)
            count[2][said] = count[2].get(said, 0) + 1
            return original(*arguments, **more)
        count[1] += 1
        return result

    return tried
