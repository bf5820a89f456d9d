"""Operators as functions of PyTorch tensors: our kernels compute plain tensors in memory, the reference computes float64, and PyTorch's
dispatcher takes everything else (tensors that are traced, wrapped or of a subclass).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import openaclnn
from openaclnn.calls.plain import call_plain, make_plain_function
from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED
from openaclnn.core.status import AclnnError
from openaclnn.operators import registry
from openaclnn.operators.log_probs import DISTILLATION, LOG_PROBS
from openaclnn.operators.logits import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from openaclnn.repeat.cache import CallCache, no_fast_path
from openaclnn.torch.expressions import in_float64
from openaclnn.torch.private import (
    BEHIND,
    below_autograd,
    forward_mode,
    included,
    is_zero_tensor,
    transformed,
)
from openaclnn.torch.refusals import UnservedError, in_torch_words
from openaclnn.torch.schema import arguments_of, double_among, made_by, may_follow, place_for

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
"""Classes of tensors that are plain memory, unless a mode or transform of this thread wraps them."""

GENERATED = ("fast", "compute", "call", "gradient")
"""The functions of a kernel, whose code is generated."""

_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]


def intercepted() -> bool:
    """Whether a mode, a transform or a tracer intercepts PyTorch's operations in this thread."""
    return (included().raw_repr() & BEHIND) != 0 or _is_tracing()


class Kernel:
    """One operator, in four functions of the arguments of its schema in order.

    `fast` takes the fast path: it returns NotImplemented if no call like this was made before. `compute` takes plain tensors, `call` any. `gradient` is called as
    the derivative of another operator; where gradients of gradients are wanted, its result is differentiable, or the call is refused.
    """

    fast: Callable[..., Any]
    compute: Callable[..., Any]
    call: Callable[..., Any]
    gradient: Callable[..., Any]

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.parameters = arguments_of(operator)
        self.names = [p.python_name for p in self.parameters]
        self.defaults = [p.default for p in self.parameters]
        self.tensors = [n for n, p in enumerate(self.parameters) if p.is_tensor]
        self._several = operator.result_type is not None
        self.cache = (
            None if operator.output.in_place else CallCache(operator, ordered=may_follow(operator))
        )
        self.op: Any = None  # the operator of `torch.ops`, once `library` has defined it
        self.plain = _plain_function(operator)
        self._scope: dict[str, Any] = {"_cache": no_fast_path}

    def __getattr__(self, name: str) -> Any:
        """Generates the functions for this signature when the first of them is used; general ones would be slower."""
        if name not in GENERATED:
            raise AttributeError(f"a kernel has no {name}")
        self._write()
        return getattr(self, name)

    def _write(self) -> None:
        passed = ", ".join(self.names)
        tensors = [self.names[n] for n in self.tensors]
        options = [name for name in self.names if name not in tensors]
        absent = ["None"] * len(self.operator.outputs)
        strange = " or ".join(
            f"type({self.names[n]}) not in _plain{'' if self.defaults[n] is REQUIRED else '_or_none'}"
            for n in self.tensors
        )
        fast_call = f"_cache({', '.join([*tensors, *absent, *options, 'None'])})"
        has = {
            self.names[n]: ""
            if self.defaults[n] is REQUIRED
            else f"{self.names[n]} is not None and "
            for n in self.tensors
        }
        bare, double, negated, zero = (
            " or ".join(f"({has[name]}{asked.format(name)})" for name in tensors)
            for asked in ("{}.is_meta", "{}.dtype is _double", "{}.is_neg()", "_is_zero({})")
        )  # `meta` tensors have shapes alone, which the dispatcher's rule computes with
        result = "_result"
        if self._several:
            lacks = " or ".join(f"_result[{n}] is None" for n in range(len(self.operator.outputs)))
            result = f"_kernel.fill_missing(_result, ({passed},)) if {lacks} else _result"
        source = f"""
def fast({passed}):
    return {fast_call}

def compute({passed}):
    try:
        _result = {fast_call}
        if _result is not NotImplemented:
            return {result}
        if {bare}:
            return _kernel.dispatched({passed})
        if {double}:
            return _in_float64(_kernel.operator, ({passed},))
        if {negated} or {zero}:
            return _kernel.compute(*_resolved(({passed},)))
        return _kernel.slow_call(({passed},))
    except _errors as error:
        raise _translated(error) from None

def call({passed}):
    if _included().raw_repr() & {BEHIND} or {strange}:
        return _kernel.dispatched({passed})
    return compute({passed})

def gradient({passed}):
    if _grad_enabled() or _forward_mode():
        return _kernel.op({passed})
    try:
        _result = {fast_call}
    except MemoryError as error:
        raise _translated(error) from None
    return call({passed}) if _result is NotImplemented else _result
"""
        self._scope |= {
            "_kernel": self, "_double": torch.float64, "_plain": PLAIN,
            "_plain_or_none": PLAIN | {type(None)}, "_included": included, "_errors": (AclnnError, MemoryError), "_in_float64": in_float64,
            "_translated": in_torch_words, "_resolved": _resolved, "_grad_enabled": torch.is_grad_enabled, "_forward_mode": forward_mode,
            "_is_zero": is_zero_tensor,
        }  # fmt: skip
        exec(source, self._scope)
        for name in GENERATED:
            setattr(self, name, self._scope[name])

    def dispatched(self, *arguments: Any) -> Any:
        """Call PyTorch's dispatcher below autograd. Under transforms of torch.func there are further levels of autograd below, which record."""
        if below_autograd is None:
            return self._undispatched(arguments)
        with below_autograd():
            if transformed():
                with torch.enable_grad():
                    return self.op(*arguments)
            return self.op(*arguments)

    def _undispatched(self, arguments: tuple[Any, ...]) -> Any:
        """Compute plain tensors where this PyTorch has no guard for calls below autograd; UnservedError for others."""
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        if intercepted() or any(type(tensor) not in PLAIN or tensor.is_meta for tensor in tensors):
            name = self.operator.python_name
            raise UnservedError(f"openaclnn::{name}: this PyTorch has no way below autograd")
        return self.compute(*arguments)

    def slow_call(self, arguments: tuple[Any, ...]) -> Any:
        """Bind, check, plan and run a call; the next call like it takes the fast path."""
        operator = self.operator
        named = dict(zip(self.names, arguments, strict=True))
        if operator.output.in_place:
            call_plain(operator, named)
            return None
        place = place_for(operator, self.tensors, arguments)
        if place is not None:
            return self.into(place, *arguments)
        results = call_plain(operator, {**named, "out": None}, None, self.cache)
        if self.cache is not None:
            self._scope["_cache"] = self.cache.call  # the cache has an entry from now on, if ever
        return self.fill_missing(results, arguments) if self._several else results

    def fill_missing(self, several: Sequence[Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results, with zeros in place of those that are not computed: an operator of PyTorch must return tensors."""
        if all(tensor is not None for tensor in several):
            return tuple(several)
        shapes = made_by(self.operator, arguments)
        first = next(tensor for tensor in several if tensor is not None)
        return tuple([
            first.new_zeros(shape, dtype=dtype) if tensor is None else tensor
            for tensor, (shape, dtype) in zip(several, shapes, strict=True)
        ])  # fmt: skip

    def into(self, places: Any, *arguments: Any) -> Any:
        """Compute into the caller's tensor or tuple of tensors (`places`), which are returned. Results in float64 are copied there."""
        several = places if isinstance(places, tuple) else (places,)
        if double_among((*arguments, *several)):
            results = self.compute(*arguments)
            for result, place in zip(
                results if self._several else (results,), several, strict=True
            ):
                _check_place(self.operator, result, place)
                place.copy_(result)
            return places
        arrays = [arguments[n] for n in self.tensors]
        options = [argument for n, argument in enumerate(arguments) if n not in self.tensors]
        if self.cache.call(*arrays, *several, *options, None) is NotImplemented:  # type: ignore[union-attr]
            named = dict(zip(self.names, arguments, strict=True))
            try:
                call_plain(self.operator, {**named, "out": places}, None, self.cache)
            except AclnnError as error:
                raise in_torch_words(error) from None
        return places


def _plain_function(operator: Operator) -> Callable[..., Any]:
    """The operator's plain function: that of `openaclnn`, or a new one for operators that `openaclnn` does not have."""
    function: Callable[..., Any] = getattr(openaclnn, operator.python_name, None) or (
        make_plain_function(operator)
    )
    return function


def _resolved(arguments: tuple[Any, ...]) -> list[Any]:
    """The arguments, where tensors with a pending negation, or zeros without memory, are copied to memory."""
    return [
        (a.clone() if is_zero_tensor(a) else a.resolve_neg()) if isinstance(a, torch.Tensor) else a
        for a in arguments
    ]


def _check_place(operator: Operator, result: Any, place: Any) -> None:
    """Refuse an output of another shape or dtype than the result, as calls that write to it directly do."""
    if (place.shape, place.dtype) != (result.shape, result.dtype):
        raise RuntimeError(
            f"{operator.name}: out: expected {result.dtype} {tuple(result.shape)}, got {place.dtype} {tuple(place.shape)}"
        )


ROW_OPERATORS = (*LOG_PROBS, *DISTILLATION)
OPERATORS = (*registry(), CROSS_ENTROPY, CROSS_ENTROPY_GRAD, *ROW_OPERATORS)
KERNELS: dict[str, Kernel] = {operator.python_name: Kernel(operator) for operator in OPERATORS}
"""The kernels of all operators by Python name, inner ones included. In `ROW_OPERATORS` each operator is followed by its gradient."""
