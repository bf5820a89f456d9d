"""PyTorch's own operators by our kernels, for models that nobody wants to edit.

`enable` enters functions for the CPU and CUDA into PyTorch's dispatcher, below its own derivatives: in Python, and where
`native` can, machine code above them, which serves calls of a kind that was seen before. Each tries our kernel and hands
to PyTorch's what that does not serve. `disable` takes them out again, which leaves what was there before.
"""

from __future__ import annotations

import atexit
import inspect
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import torch

from openaclnn.core.interface import REDUCTIONS
from openaclnn.torch.composites import COMPOSITES, composite_key, taken_apart
from openaclnn.torch.counts import FUNCTIONS, Count, Served
from openaclnn.torch.functional import INDICES, kept_ones, ones_for
from openaclnn.torch.kernels import KERNELS, Kernel, disturbed
from openaclnn.torch.native import Native, as_raised, native_for
from openaclnn.torch.private import forget_dispatch, keys_of, leave
from openaclnn.torch.signatures import SCALAR, WEIGHT, Signature

__all__ = ["OVERRIDES", "Served", "disable", "enable", "served", "use"]

DEVICES = ("CPU", "CUDA")
SERVED_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


class DeclinedError(Exception):
    """Why a call is PyTorch's."""


Run = Callable[..., Any]
"""An operator of ours: by any means, or by its fast path alone, which says NotImplemented where it does not lead."""


def _finite(*numbers: Any) -> list[float]:
    """Numbers with which our formulas are PyTorch's, element by element."""
    found = [float(number) for number in numbers]
    if not all(map(isfinite, found)):
        raise DeclinedError("a number that is infinite, or none")
    return found


def _elu(run: Run, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return run(x, *_finite(alpha, scale, input_scale))


def _elu_(run: Run, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    found = run(x, x, *_finite(alpha, scale, input_scale))
    return found if found is NotImplemented else x


def _elu_backward(
    run: Run, gradient: Any, alpha: Any, scale: Any, input_scale: Any, result: bool, x: Any
) -> Any:
    return run(gradient, x, *_finite(alpha, scale, input_scale), result)


def _smooth(run: Run, x: Any, y: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    return run(x, y, REDUCTIONS[reduction], *_finite(beta))


def _smooth_backward(run: Run, gradient: Any, x: Any, y: Any, reduction: int, beta: float) -> Any:
    if gradient.dim() and gradient.shape != x.shape:
        raise DeclinedError("a gradient of another shape")
    return run(gradient, x, y, REDUCTIONS[reduction], *_finite(beta))


def _likelihood(run: Run, x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> Any:
    if not x.numel():
        raise DeclinedError("no elements")
    if target.dtype not in INDICES:
        raise DeclinedError(f"targets of {target.dtype}")
    how = REDUCTIONS[reduction]
    made = run(x, target, ones_for(x) if weight is None else weight, how, ignored)
    # Of pixels on a GPU PyTorch leaves the second as it was allocated: nobody pays to clear it.
    cleared = target.dim() == 1 or not x.is_cuda
    if made is not NotImplemented and how == "none" and target.dim() and cleared:
        made[1].zero_()
    return made


def _likelihood_backward(
    run: Run, gradient: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: int, total: Any
) -> Any:  # fmt: skip
    if not x.numel():
        raise DeclinedError("no elements")
    factors = ones_for(x) if weight is None else weight
    return run(gradient, x, target, factors, REDUCTIONS[reduction], ignored, total)


class Override(NamedTuple):
    """What replaces an operator of PyTorch's."""

    short: Run  # the kernel's fast path alone
    compute: Run  # the kernel by any means
    own: Callable[..., Any]  # calls either of the two with PyTorch's arguments
    kernel: Kernel
    signature: Signature  # how machine code does what `own` does


def _of(name: str, own: Callable[..., Any], kinds: str, order: tuple[int, ...]) -> Override:
    kernel = KERNELS[name]
    several = kernel.operator.result_type is not None
    signature = Signature(kinds, order, len(kernel.tensors), 1 + several)
    return Override(kernel.short, kernel.compute, own, kernel, signature)


def _nowhere_short(*arguments: Any) -> Any:
    return NotImplemented


_ELU = KERNELS["elu"]
OVERRIDES: dict[str, Override] = {
    "elu": _of("elu", _elu, "TSSS", (0, 1, 2, 3)),
    "elu_": Override(_nowhere_short, _ELU.over, _elu_, _ELU, Signature("TSSS", (0, 1, 2, 3), 1, 0)),
    "elu_backward": _of("elu_backward", _elu_backward, "TSSSBT", (0, 5, 1, 2, 3, 4)),
    "smooth_l1_loss": _of("smooth_l1_loss", _smooth, "TTRF", (0, 1, 2, 3)),
    "smooth_l1_loss_backward": _of(
        "smooth_l1_loss_backward", _smooth_backward, "TTTRF", (0, 1, 2, 3, 4)
    ),
    "nll_loss_forward": _of("nll_loss", _likelihood, "TTWRI", (0, 1, 2, 3, 4)),
    "nll_loss_backward": _of(
        "nll_loss_backward", _likelihood_backward, "TTTWRIT", (0, 1, 2, 3, 6, 4, 5)
    ),
    "nll_loss2d_forward": _of("nll_loss2d", _likelihood, "TTWRI", (0, 1, 2, 3, 4)),
    "nll_loss2d_backward": _of(
        "nll_loss2d_backward", _likelihood_backward, "TTTWRIT", (0, 1, 2, 3, 6, 4, 5)
    ),
}
"""The operators of `torch.ops.aten` that can be replaced."""

ALIASES: dict[str, tuple[str, ...]] = {
    "cross_entropy": ("cross_entropy_loss",),
    "nll_loss": (
        "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"
    ),
}  # fmt: skip
"""Functions of `torch.nn.functional` whose operators have other names, which may be named in their place."""

_lock = threading.RLock()  # of what follows


class _Request(NamedTuple):
    """What `enable`, or a block of `use`, asks for."""

    names: tuple[str, ...]
    excluded: frozenset[str]


_enabled: _Request | None = None
_blocks: dict[object, _Request] = {}  # those that are open, by a key of each
_libraries: dict[str, Any] = {}
_natives: dict[str, list[Native]] = {}  # those of the libraries, as machine code
_counts: dict[str, Count] = {}
_originals: dict[tuple[str, str], Any] = {}
_machine_code: dict[tuple[str, str], Native | None] = {}
_lately: deque[Any] = deque(maxlen=256)
"""Kernels that were entered last: a thread may have found one in the dispatcher, and call it when it is taken out."""


def enable(only: Iterable[str] | None = None, exclude: Iterable[str] = ()) -> None:
    """Replace PyTorch's operators on the CPU and CUDA, until `disable`; counts start anew.

    `only` and `exclude` name operators of `torch.ops.aten` (one, or several): those of `OVERRIDES` and `COMPOSITES`; "cross_entropy"
    and "nll_loss" are all operators of these functions. A second call takes the place of the first.

    >>> enable(only=["elu", "elu_backward"])
    >>> torch.nn.functional.elu(torch.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    >>> served()["elu"]
    Served(calls=1, ours=1, reasons={})
    >>> disable()
    """
    global _enabled
    request = _request(only, exclude)
    with _lock:
        _enabled = None
        if not _blocks:
            _settle()
        _enabled = request
        _settle()


def disable() -> None:
    """Give back to PyTorch what `enable` replaced; blocks of `use` that are open keep what they ask for until they end.

    >>> disable()  # also where nothing is enabled
    """
    global _enabled
    with _lock:
        _enabled = None
        _settle()


atexit.register(disable)


@contextmanager
def use(only: Iterable[str] | None = None, exclude: Iterable[str] = ()) -> Iterator[None]:
    """Replace PyTorch's operators for a block. An operator is replaced while `enable` or an open block, of any thread, asks for it and
    no open block excludes it; after the last one PyTorch is as before.

    >>> with use(only="smooth_l1_loss"):
    ...     torch.nn.functional.smooth_l1_loss(torch.zeros(2), torch.ones(2))
    tensor(0.5000)
    >>> served()["smooth_l1_loss"].ours
    1
    """
    request, key = _request(only, exclude), object()
    with _lock:
        _blocks[key] = request
    try:
        with _lock:
            _settle()
        yield
    finally:
        with _lock:
            del _blocks[key]
            _settle()


def served() -> dict[str, Served]:
    """What became of calls: of PyTorch's operators by their names, since they were replaced (still there after that ended), and of the functions
    of `openaclnn.torch.functional` that were called, with "functional." before theirs, since `enable` or the import; modules call these.

    >>> with use():
    ...     loss = torch.nn.functional.l1_loss(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    >>> served()["l1_loss"]
    Served(calls=1, ours=0, reasons={'torch.float64': 1})
    """
    with _lock:
        found = {}
        for name, count in _counts.items():
            found[name] = count.told(sum(native.served for native in _natives.get(name, ())))
        functions = {f"functional.{name}": count.told() for name, count in FUNCTIONS.items()}
        return found | {name: told for name, told in functions.items() if told.calls}


def _request(only: Iterable[str] | None, exclude: Iterable[str]) -> _Request:
    known = *OVERRIDES, *COMPOSITES
    names, excluded = known if only is None else _named(only), _named(exclude)
    return _Request(tuple(names), frozenset(excluded))


def _named(names: Iterable[str]) -> list[str]:
    """Operators, by their names or those of functions; a string is one name."""
    found: list[str] = []
    for name in [names] if isinstance(names, str) else names:
        if name not in ALIASES and name not in OVERRIDES and name not in COMPOSITES:
            known = ", ".join((*OVERRIDES, *COMPOSITES))
            raise ValueError(
                f"{name!r} is none of {known}, nor of the functions {', '.join(ALIASES)} that are made of them"
            )
        found += ALIASES.get(name, (name,))
    return found


def _settle() -> None:
    """Replace what is asked for now, and nothing else; the lock is held."""
    requests = [*([] if _enabled is None else [_enabled]), *_blocks.values()]
    excluded = frozenset[str]().union(*(own.excluded for own in requests))
    wanted = dict.fromkeys(name for own in requests for name in own.names if name not in excluded)
    for name in [own for own in _libraries if own not in wanted]:
        _leave(name)
    if not wanted:
        return
    if not _libraries:  # a new beginning
        for count in FUNCTIONS.values():
            count.clear()
    for name in [own for own in _counts if own not in _libraries]:
        del _counts[name]
    for name in wanted:
        if name not in _libraries:
            _counts[name] = Count()
            _libraries[name] = _entered(name) if name in OVERRIDES else _entered_above(name)


def _leave(name: str) -> None:
    library = _libraries.pop(name)
    for native in _natives.pop(name):
        native.leave()
        _counts[name].ours += native.served
    leave(library)
    forget_dispatch(name)


def _devices() -> tuple[str, ...]:
    return DEVICES if torch.cuda.is_available() else DEVICES[:1]


def _entered(name: str) -> Any:
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    _natives[name] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was one before is the point
        for device in _devices():
            attempt, native = _attempt(name), _native(name, device)
            if native is None:
                kernel, with_keys = _tried(name, attempt, device)
                library.impl(name, kernel, device, with_keyset=with_keys)
            else:
                native.enter(_asked(attempt, native, OVERRIDES[name]))
                _natives[name].append(native)
            _lately.append(torch.library.get_kernel(f"aten::{name}", device))
    return library


def _entered_above(name: str) -> Any:
    """The same of an operator that PyTorch makes of others."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    _natives[name] = []
    attempt, apart = _attempt(name), taken_apart(name)

    def tried(*arguments: Any, **more: Any) -> Any:
        result = attempt(*arguments, **more)
        return as_raised(apart, *arguments, **more) if result is NotImplemented else result

    for device in _devices():
        library.impl(name, tried, composite_key(device))
    return library


def _original(name: str, device: str) -> Any:
    """PyTorch's kernel, as it was before any of ours."""
    key = name, device
    if key not in _originals:
        _originals[key] = torch.library.get_kernel(f"aten::{name}", device)
    return _originals[key]


def _native(name: str, device: str) -> Native | None:
    key = name, device
    if key not in _machine_code:
        own = OVERRIDES[name]
        _machine_code[key] = native_for(
            name, device, own.kernel.cache, own.signature, _original(name, device)
        )
    return _machine_code[key]


def _attempt(name: str) -> Callable[..., Any]:
    """Our kernel on PyTorch's arguments, or NotImplemented."""
    count = _counts[name]
    compute, short = _computing(name)

    def attempt(*arguments: Any, **more: Any) -> Any:
        try:
            result = short(*arguments, **more)
            if result is NotImplemented:
                if arguments[0].dtype not in SERVED_DTYPES:
                    raise DeclinedError(str(arguments[0].dtype))
                if disturbed() or torch.compiler.is_compiling():
                    raise DeclinedError("a compiler or a mode is at work")
                result = compute(*arguments, **more)
        except (DeclinedError, RuntimeError, IndexError, TypeError, MemoryError) as reason:
            count.decline(reason)
            return NotImplemented
        except Exception:  # computed it was: a hook of what autograd saves ended it, as checkpoints do once they have all
            count.ours += 1
            raise
        count.ours += 1
        return result

    return attempt


def _computing(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """By any means, and by the fast path alone, where it is one of ours that decides."""
    if name in COMPOSITES:
        return COMPOSITES[name], _nowhere_short
    own = OVERRIDES[name]
    return partial(own.own, own.compute), partial(own.own, own.short)


def _tried(name: str, attempt: Callable[..., Any], device: str) -> tuple[Callable[..., Any], bool]:
    """A kernel in Python for the dispatcher, and whether it is to be given the dispatcher's keys.

    Its first step is the fast path itself: each function in between would take 0.1 us and more of 4.
    """
    own, keys = OVERRIDES[name], keys_of(device)
    _, *parameters = inspect.signature(own.own).parameters.values()
    names, kinds = [parameter.name for parameter in parameters], own.signature.kinds
    numbers = [one for one, kind in zip(names, kinds, strict=True) if kind == SCALAR]
    taken = [names[place] for place in own.signature.order]
    written = "" if own.signature.results else names[0]
    taken.insert(own.signature.arrays, written or "None")
    quick = f"""
    try:
        {", ".join(numbers)} = {", ".join(f"float({one})" for one in numbers)}
        if _isfinite({" + ".join(numbers)}):
            found = _cache.call({", ".join(taken)}, False)
            if found is not NotImplemented:
                _count.ours += 1
                return {written or "found"}
    except _unserved:
        pass"""
    told = ([] if keys else ["keys"]) + [str(one.replace(annotation=one.empty)) for one in parameters]  # fmt: skip
    source = f"""
def tried({", ".join(told)}):{quick if numbers else ""}
    found = _attempt({", ".join(names)})
    return _call_boxed(keys, {", ".join(names)}) if found is NotImplemented else found
"""
    scope = {
        "_isfinite": isfinite, "_cache": own.kernel.cache, "_count": _counts[name], "_attempt": attempt,
        "_unserved": (MemoryError, TypeError, OverflowError), "_call_boxed": _original(name, device).call_boxed, "keys": keys,
    }  # fmt: skip
    exec(source, scope)
    return scope["tried"], keys is None


def _asked(attempt: Callable[..., Any], native: Native, own: Override) -> Callable[..., Any]:
    """What machine code asks for calls that it does not serve; the next of the kind it may."""
    weight, results = own.signature.kinds.find(WEIGHT), own.signature.results

    def asked(*arguments: Any) -> Any:
        result = attempt(*arguments)
        if result is NotImplemented:
            return result
        ones = weight > 0 and arguments[weight] is None
        native.learn(kept_ones(arguments[weight - 2]) if ones else None)
        return tuple(result) if results > 1 else result  # which machine code takes apart

    return asked
