"""PyTorch's own operators by our kernels, for models without edits.

`enable` registers kernels for the CPU and CUDA with PyTorch's dispatcher, below its autograd: machine code where `native.py` can
make it, which serves calls like earlier ones, and functions in Python for all others. Each tries our kernel, and calls PyTorch's
where ours does not serve. `disable` removes them, so that PyTorch's kernels are called again.
"""

from __future__ import annotations

import atexit
import functools
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from math import isfinite
from typing import Any, NamedTuple

import torch

from openaclnn.core.declare import RESULT_CHECKED, Operator
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators import registry
from openaclnn.repeat.cache import no_fast_path
from openaclnn.torch import functional
from openaclnn.torch.dispatch import FUNCTIONS, Count, Served, has_axis
from openaclnn.torch.elementwise import quick_l1
from openaclnn.torch.functional import (
    are_indices,
    cached_ones,
    cross_entropy_by_kernels,
    l1_loss,
    ones_for,
    quick_cross_entropy,
)
from openaclnn.torch.kernels import KERNELS, PLAIN, Kernel, intercepted
from openaclnn.torch.library import DEVICES
from openaclnn.torch.linear import in_place_of_theirs
from openaclnn.torch.native import Native, as_raised, native_for
from openaclnn.torch.private import forget_dispatch, keys_of, leave, schema_of
from openaclnn.torch.signatures import (
    AXIS,
    DTYPE,
    FLOAT,
    MOST_CLASSES,
    OPTIONAL,
    REDUCTION,
    SCALAR,
    TENSOR,
    UNSET,
    WEIGHT,
    Signature,
    signature_of,
)

# PyTorch's composite operators cross entropy and L1 loss are made of others (log-softmax and the likelihood; difference, absolute value and
# mean), above autograd. Ours are registered above autograd too, and have their own derivatives. Linear cross entropy is a function in Python, which
# ours replaces. PyTorch decomposes the calls that ours do not serve, as before.


def _cross_entropy_loss(
    input: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    _check_plain(input, target, weight)
    how = REDUCTIONS[reduction]
    loss = cross_entropy_by_kernels(input, target, weight, how, ignore_index, label_smoothing)
    if loss is None:
        raise TypeError("probabilities of classes, or other arguments of PyTorch's own")
    return loss


def _quick_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    options = REDUCTIONS[reduction], ignore_index, label_smoothing, 0.0
    return quick_cross_entropy(input, target, weight, options)


def _quick_l1(input: Any, target: Any, reduction: int = 1) -> Any:
    return quick_l1(input, target, REDUCTIONS[reduction])


def _l1_loss(input: Any, target: Any, reduction: int = 1) -> Any:
    _check_plain(input, target)
    by_kernels = l1_loss.slow_path.compute  # type: ignore[attr-defined]
    loss = by_kernels(input, target, None, None, REDUCTIONS[reduction], None)
    return _decline(loss) if isinstance(loss, str) else loss


def _linear_cross_entropy(input: Any, linear_weight: Any, target: Any, **more: Any) -> Any:
    _check_plain(input, linear_weight, target, more.get("linear_bias"), more.get("weight"))
    return in_place_of_theirs(input, linear_weight, target, **more)


def _check_plain(*tensors: Any) -> None:
    if any(type(tensor) not in PLAIN for tensor in tensors if tensor is not None):
        raise TypeError("a tensor of a class of its own")


COMPOSITES: dict[str, Callable[..., Any]] = {
    "cross_entropy_loss": _cross_entropy_loss,
    "l1_loss": _l1_loss,
}
QUICK: dict[str, Callable[..., Any]] = {
    "cross_entropy_loss": _quick_cross_entropy,
    "l1_loss": _quick_l1,
}
"""Functions that replace PyTorch's composite operators, and their fast paths; COMPOSITES has functions of PyTorch in Python, too, where it has them."""
if hasattr(torch.nn.functional, "linear_cross_entropy"):
    COMPOSITES["linear_cross_entropy"] = _linear_cross_entropy


def decomposition(name: str) -> Callable[..., Any]:
    """PyTorch's composite operator as a function that calls the operators it is made of."""
    if _is_function(name):
        function: Callable[..., Any] = getattr(torch.nn.functional, name)
        return function
    overload: Any = getattr(torch.ops.aten, name).default
    decompose: Callable[..., Any] = overload.decompose
    return decompose


def _is_function(name: str) -> bool:
    """Whether PyTorch has this as a function in Python, and not as an operator."""
    return not hasattr(torch.ops.aten, name)


SERVED_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


def _devices_here() -> tuple[str, ...]:
    return DEVICES if torch.cuda.is_available() else DEVICES[:1]


class DeclinedError(Exception):
    """Why PyTorch's kernel has to compute a call."""


Run = Callable[..., Any]
"""One of our operators, by any path, or by the fast path alone, which returns NotImplemented where it does not serve."""


class Override:
    """Replaces an operator of PyTorch by our operator that is declared to compute the same (`aten`)."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.name, self.in_place = operator, operator.aten, operator.output.in_place

    @property
    def devices(self) -> tuple[str, ...]:
        """The kinds of devices of this machine on which the operator is replaced."""
        if self.schema is None:
            return ()
        return tuple([device for device in _devices_here() if device in self.kinds_of_devices])

    @property
    def kinds_of_devices(self) -> tuple[str, ...]:
        """The kinds of devices on which the operator may be replaced."""
        served = DEVICES[:1] if RESULT_CHECKED in self.operator.aten_traits else DEVICES
        return tuple([device for device in served if device not in SLOWER.get(self.name, ())])

    @cached_property
    def overload(self) -> Any:
        return getattr(torch.ops.aten, self.name).default

    @cached_property
    def schema(self) -> Any:
        return schema_of(self.overload)

    @cached_property
    def kernel(self) -> Kernel:
        """A kernel with a separate cache: machine code serves calls like those that passed this override's checks, and no others."""
        name = self.operator.python_name.removeprefix("inplace_")
        kernel = Kernel(KERNELS[name].operator)
        kernel.op = KERNELS[name].op
        return kernel

    @cached_property
    def signature(self) -> Signature:
        """The description from which machine code is made that does what `run` does."""
        return signature_of(self.kernel, self.overload, self.in_place)

    @cached_property
    def _places(self) -> list[int]:
        """The place of each of our arguments among PyTorch's."""
        kernel, order = self.kernel, iter(self.signature.order)
        arrays = {place: next(order) for place in kernel.tensors}
        return [
            arrays[place] if place in arrays else next(order) for place in range(len(kernel.names))
        ]

    def complete(self, positional: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """All arguments in order: the dispatcher omits those that have their defaults."""
        rest = self.schema.arguments[len(positional) :]
        return [
            *positional,
            *[named.get(parameter.name, parameter.default_value) for parameter in rest],
        ]

    def call_torch(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call PyTorch's operator, or a function with the same arguments."""
        every = list(zip(self.schema.arguments, arguments, strict=True))
        named = {parameter.name: value for parameter, value in every if parameter.kwarg_only}
        return function(*[value for parameter, value in every if not parameter.kwarg_only], **named)

    def run(self, run: Run, *positional: Any, **named: Any) -> Any:
        """Call our operator (`run`) with PyTorch's arguments; DeclinedError where PyTorch has to compute the call."""
        arguments, kinds = self.complete(positional, named), self.signature.kinds
        if reason := self._why_mismatched(arguments):
            raise DeclinedError(reason)
        values = [self._converted(kind, arguments, place) for place, kind in enumerate(kinds)]
        ours = [values[place] for place in self._places]
        if self.in_place:
            result = run(arguments[0], *ours)
            return result if result is NotImplemented else arguments[0]
        results = run(*ours)
        if self.signature.checked and results is not NotImplemented and not _are_finite(results):
            raise DeclinedError("a loss that is not finite")
        if self.signature.of_shares and results is not NotImplemented and not _are_shares(arguments[1]):  # fmt: skip
            raise DeclinedError("targets below 0 or above 1")
        if results is not NotImplemented and WEIGHT in kinds and self.signature.results > 1:
            _clear_total(results, *arguments)
        return results

    def _why_mismatched(self, arguments: list[Any]) -> str:
        """Why PyTorch has to compute a call on these tensors; "" if ours may. PyTorch broadcasts and promotes by other rules than aclnn, so ours takes tensors
        of one dtype and shape, beside which the gradient of a loss may be one number, and class indices.
        """
        kinds = self.signature.kinds
        weight = kinds.find(WEIGHT)
        if weight >= 0:
            x, target, factors = arguments[weight - 2 : weight + 1]
            if not are_indices(target):
                return f"targets of {target.dtype}"
            if factors is not None and factors.dtype is not x.dtype:
                return "tensors of several dtypes"
            return "" if x.numel() else "no elements"
        tensors = [
            argument for argument, kind in zip(arguments, kinds, strict=True) if kind == TENSOR
        ]
        last = tensors[-1]
        tensors += [
            argument for argument, kind in zip(arguments, kinds, strict=True) if kind == OPTIONAL and argument is not None
        ]  # fmt: skip
        if any(tensor.dtype is not last.dtype for tensor in tensors):
            return "tensors of several dtypes"
        tensors = tensors[: kinds.count(TENSOR)]
        if REDUCTION in kinds and len(tensors) > 2 and not tensors[0].dim():
            del tensors[0]
        return (
            ""
            if all(tensor.shape == last.shape for tensor in tensors)
            else "tensors of several shapes"
        )

    def _converted(self, kind: str, arguments: list[Any], place: int) -> Any:
        """PyTorch's argument as our operator takes it."""
        value, first = arguments[place], arguments[0]
        match kind:
            case _ if kind in (SCALAR, FLOAT):
                return _finite(value)
            case _ if kind == REDUCTION:
                return REDUCTIONS[value]
            case _ if kind == WEIGHT and value is None:
                return ones_for(arguments[place - 2])
            case _ if kind == AXIS and not has_axis(first, value):
                return _decline("an axis that the tensor lacks")
            case _ if kind == AXIS and _softmax_is_slower(first, value):
                return _decline("PyTorch's is faster")
            case _ if (kind == UNSET and value) or (kind == DTYPE and value is not first.dtype):
                return _decline("a result of another dtype")
        return value

    def arguments(self, ours: Mapping[str, Any]) -> list[Any]:
        """PyTorch's arguments for ours, which are given by name."""
        arguments: list[Any] = [None] * len(self.signature.kinds)
        for name, place in zip(self.kernel.names, self._places, strict=True):
            arguments[place] = value = ours[name]
            if self.signature.kinds[place] == REDUCTION:
                arguments[place] = REDUCTIONS.index(value)
        for place, kind in enumerate(self.signature.kinds):
            if kind in (UNSET, DTYPE):
                arguments[place] = False if kind == UNSET else arguments[0].dtype
        return arguments


def _decline(reason: str) -> Any:
    raise DeclinedError(reason)


def _finite(number: Any) -> float:
    """The number as a float, if it is finite: with others our formulas may differ from PyTorch's."""
    return float(number) if isfinite(number) else _decline("a number that is infinite, or none")


def _clear_total(results: Any, x: Any, target: Any, weight: Any, reduction: int, *_: Any) -> None:
    """Clear the total weight of the likelihood where nothing is reduced, as PyTorch does, except for pixels on a GPU, whose total it leaves uninitialised."""
    if REDUCTIONS[reduction] == "none" and target.dim() and (target.dim() == 1 or not x.is_cuda):
        results[1].zero_()


# Where PyTorch's operator is kept although ours computes the same.

SLOWER = {
    "_softmax_backward_data": ("CPU",),
    "_log_softmax_backward_data": ("CPU",),
}
"""Kinds of devices on which PyTorch's is faster: gradients of softmax of 16 to 64 classes (up to 2)."""


def _softmax_is_slower(x: Any, axis: int) -> bool:
    """Whether PyTorch's softmax is faster: on a GPU, along another axis than the last, or of many classes."""
    inside = axis not in (-1, x.dim() - 1)
    return x.is_cuda and (inside or (x.dim() > 0 and x.size(axis) > MOST_CLASSES))


def _are_finite(losses: Any) -> bool:
    return isfinite(losses) if losses.dim() == 0 else isfinite(losses.sum(dtype=torch.float32))


def _are_shares(targets: Any) -> bool:
    if not targets.numel():
        return True
    least, most = torch.aminmax(targets)
    return float(least) >= 0 and float(most) <= 1


OVERRIDES: dict[str, Override] = {
    operator.aten: Override(operator) for operator in registry() if operator.aten
}
"""The operators of `torch.ops.aten` that can be replaced."""

ALIASES: dict[str, tuple[str, ...]] = {
    "cross_entropy": ("cross_entropy_loss",),
    "nll_loss": (
        "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"
    ),
}  # fmt: skip
"""Names of functions of `torch.nn.functional` that stand for the operators they call, in `only` and `exclude`."""

_lock = threading.RLock()  # guards the variables below


class _Request(NamedTuple):
    """The operators that `enable` or a block of `use` asks for and excludes."""

    names: tuple[str, ...]
    excluded: frozenset[str]


_enabled: _Request | None = None
_blocks: dict[object, _Request] = {}  # of the open blocks, each under a key of its own
_libraries: dict[str, Callable[[], Any]] = {}  # functions that remove a replacement
_natives: dict[str, list[Native]] = {}  # the machine code of replaced operators
_counts: dict[str, Count] = {}
_recent_kernels: deque[Any] = deque(maxlen=256)
"""The kernels registered last, kept alive: a thread may have looked one up in the dispatcher, and call it after it was removed."""


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
            _update_replacements()
        _enabled = request
        _update_replacements()


def disable() -> None:
    """Give back to PyTorch what `enable` replaced; blocks of `use` that are open keep what they ask for until they end.

    >>> disable()  # also where nothing is enabled
    """
    global _enabled
    with _lock:
        _enabled = None
        _update_replacements()


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
            _update_replacements()
        yield
    finally:
        with _lock:
            del _blocks[key]
            _update_replacements()


def served() -> dict[str, Served]:
    """Counts of calls and of those that our kernels computed. PyTorch's operators are counted by name since they were replaced, and their counts stay after that;
    functions of `openaclnn.torch.functional`, which our modules call, under "functional." and their name, since `enable` or the import.

    >>> with use():
    ...     loss = torch.nn.functional.l1_loss(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    >>> served()["l1_loss"]
    Served(calls=1, ours=0, reasons={'torch.float64': 1})
    """
    with _lock:
        operators = {}
        for name, count in _counts.items():
            operators[name] = count.counts(sum(native.served for native in _natives.get(name, ())))
        functions = {f"functional.{name}": count.counts() for name, count in FUNCTIONS.items()}
        return operators | {name: counts for name, counts in functions.items() if counts.calls}


def _request(only: Iterable[str] | None, exclude: Iterable[str]) -> _Request:
    known = *OVERRIDES, *COMPOSITES
    names, excluded = known if only is None else _operator_names(only), _operator_names(exclude)
    return _Request(tuple(names), frozenset(excluded))


def _operator_names(names: Iterable[str]) -> list[str]:
    """The operators that names of operators and functions stand for; a string is one name."""
    operators: list[str] = []
    for name in [names] if isinstance(names, str) else names:
        if name not in ALIASES and name not in OVERRIDES and name not in COMPOSITES:
            known = ", ".join((*OVERRIDES, *COMPOSITES))
            raise ValueError(
                f"{name!r} is none of {known}, nor of the functions {', '.join(ALIASES)} that are made of them"
            )
        operators += ALIASES.get(name, (name,))
    return operators


def _update_replacements() -> None:
    """Replace the operators that are asked for now, and restore all others. The caller holds the lock."""
    requests = [*([] if _enabled is None else [_enabled]), *_blocks.values()]
    excluded = frozenset[str]().union(*(request.excluded for request in requests))
    wanted = dict.fromkeys(
        name for request in requests for name in request.names if name not in excluded
    )
    for name in [known for known in _libraries if known not in wanted]:
        _leave(name)
    if not wanted:
        return
    if not _libraries:  # nothing was replaced until now: counts start anew
        for count in FUNCTIONS.values():
            count.clear()
    for name in [known for known in _counts if known not in _libraries]:
        del _counts[name]
    for name in wanted:
        if name not in _libraries:
            _counts[name] = Count()
            _libraries[name] = _enter(name) if name in OVERRIDES else _enter_composite(name)


def _leave(name: str) -> None:
    take_out = _libraries.pop(name)
    for native in _natives.pop(name):
        native.leave()
        _counts[name].ours += native.served
    take_out()
    forget_dispatch(name)


def _enter(name: str) -> Callable[[], Any]:
    """Register our kernels with the dispatcher; returns a function that removes them."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    _natives[name] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that a kernel is replaced
        for device in OVERRIDES[name].devices:
            attempt, native = _attempt(name), _native(name, device)
            if native is None:
                kernel, with_keys = _kernel(name, attempt, device)
                library.impl(name, kernel, device, with_keyset=with_keys)
            else:
                native.enter(_learn(attempt, native, OVERRIDES[name].signature))
                _natives[name].append(native)
            _recent_kernels.append(torch.library.get_kernel(f"aten::{name}", device))
    return partial(leave, library)


def _enter_composite(name: str) -> Callable[[], Any]:
    """Register ours for a composite operator, or replace a function; returns a function that undoes it."""
    _natives[name] = []
    attempt, theirs = _attempt(name), decomposition(name)

    def tried(*arguments: Any, **more: Any) -> Any:
        result = attempt(*arguments, **more)
        return as_raised(theirs, *arguments, **more) if result is NotImplemented else result

    if _is_function(name):
        in_graphs = getattr(functional, name)

        @functools.wraps(theirs)
        def function(*arguments: Any, **more: Any) -> Any:
            chosen = in_graphs if torch.compiler.is_compiling() else tried
            return chosen(*arguments, **more)

        setattr(torch.nn.functional, name, function)
        return partial(setattr, torch.nn.functional, name, theirs)
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for device in _devices_here():
        library.impl(name, tried, f"Autograd{device}")  # above derivatives
    return partial(leave, library)


@functools.cache
def _original(name: str, device: str) -> Any:
    """PyTorch's kernel, from before ours was registered."""
    return torch.library.get_kernel(f"aten::{name}", device)


@functools.cache
def _native(name: str, device: str) -> Native | None:
    override, original = OVERRIDES[name], _original(name, device)
    return native_for(name, device, override.kernel.cache, override.signature, original)


def _attempt(name: str) -> Callable[..., Any]:
    """A function of PyTorch's arguments that calls our kernel, counts the call, and returns NotImplemented where PyTorch has to compute it."""
    count = _counts[name]
    compute, fast = _implementations(name)

    def attempt(*arguments: Any, **more: Any) -> Any:
        try:
            result = fast(*arguments, **more)
            if result is NotImplemented:
                if arguments[0].dtype not in SERVED_DTYPES:
                    raise DeclinedError(str(arguments[0].dtype))
                if intercepted() or torch.compiler.is_compiling():
                    raise DeclinedError("a compiler or a mode is at work")
                result = compute(*arguments, **more)
        except (DeclinedError, RuntimeError, IndexError, TypeError, MemoryError) as reason:
            count.decline(reason)
            return NotImplemented
        except Exception:  # ours computed it; a saved-tensor hook raised, as checkpoints do
            count.ours += 1
            raise
        count.ours += 1
        return result

    return attempt


def _implementations(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Functions that compute an operator by any path, and by the fast path alone."""
    if name in COMPOSITES:
        return COMPOSITES[name], QUICK.get(name, no_fast_path)
    override = OVERRIDES[name]
    kernel = override.kernel
    if override.in_place:
        return partial(override.run, kernel.into), no_fast_path
    return partial(override.run, kernel.compute), partial(override.run, kernel.fast)


def _kernel(name: str, attempt: Callable[..., Any], device: str) -> tuple[Callable[..., Any], bool]:
    """A kernel in Python for the dispatcher, and whether the dispatcher passes its keys to it.

    The generated code takes the fast path first, without functions in between, of which each would add 0.1 us or more to 4.
    """
    override, keys = OVERRIDES[name], keys_of(device)
    signature, parameters = override.signature, override.schema.arguments
    names = [parameter.name for parameter in parameters]
    numbers = [one for one, kind in zip(names, signature.kinds, strict=True) if kind == SCALAR]
    taken = [names[place] for place in signature.order]
    taken.insert(signature.arrays, names[0] if override.in_place else "None")
    passed = ", ".join(
        [f"{one.name}={one.name}" if one.kwarg_only else one.name for one in parameters]
    )
    # Autograd may pass integers for numbers. Those with defaults are mostly floats, and are converted only if the fast path does not take them.
    defaults = {
        parameter.name: parameter.default_value
        for parameter in parameters
        if parameter.has_default_value()
    }
    required = [number for number in numbers if number not in defaults]
    floats = [f"float({number})" for number in required]
    optional = {number: f"float({number})" for number in numbers if number in defaults}
    quick = f"""
    try:
        {", ".join(required) + " = " + ", ".join(floats) if required else "pass"}
        found = _cache.call({", ".join(taken)}, False)
        if found is NotImplemented and not ({" and ".join([f"type({number}) is float" for number in optional]) or True}):
            found = _cache.call({", ".join([optional.get(each, each) for each in taken])}, False)
        if found is not NotImplemented:
            _count.ours += 1
            return {names[0] if override.in_place else "found"}
    except _unserved:
        pass"""
    declared = [] if keys else ["keys"]
    defaults |= {number: float(defaults[number]) for number in numbers if number in defaults}
    declared += [f"{one}={defaults[one]!r}" if one in defaults else one for one in names]
    source = f"""
def tried({", ".join(declared)}):{quick if numbers else ""}
    found = _attempt({passed})
    return _call_boxed(keys, {passed}) if found is NotImplemented else found
"""
    scope = {
        "_cache": override.kernel.cache, "_count": _counts[name], "_attempt": attempt,
        "_unserved": (MemoryError, TypeError, OverflowError), "_call_boxed": _original(name, device).call_boxed, "keys": keys,
    }  # fmt: skip
    exec(source, scope)
    return scope["tried"], keys is None


def _learn(attempt: Callable[..., Any], native: Native, signature: Signature) -> Callable[..., Any]:
    """The function that machine code calls where it does not serve a call; if our kernel serves it, machine code learns to serve the next one like it."""
    weight, results = signature.kinds.find(WEIGHT), signature.results

    def asked(*arguments: Any, **named: Any) -> Any:
        result = attempt(*arguments, **named)
        if result is NotImplemented:
            return result
        ones = weight > 0 and arguments[weight] is None
        native.learn(cached_ones(arguments[weight - 2]) if ones else None)
        return tuple(result) if results > 1 else result  # a plain tuple, which machine code reads

    return asked
