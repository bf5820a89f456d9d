"""Which way a call of a function goes: straight to the kernels as a rule, by the fast path where one of its kind was made before, and by PyTorch's
dispatcher where somebody records operations, transforms or casts them; to `parallel` where tensors are spread over devices; and who served it.

Functions of PyTorch's signatures are written as their signature and their text under a decorator. Under `@computed_by` with an operator's name all
follows from the signature and the operator's declaration: a parameter of the same name is the operator's, and one that either lacks has its default. What
a function does not take is PyTorch's function's, and so is what is wrong.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial, update_wrapper
from math import inf, isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_type_hints

import torch
from torch.nn import functional as torch_functional
from torch.overrides import (
    handle_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)

from openaclnn.calls import guard
from openaclnn.core.dtypes import FLOAT, is_int64
from openaclnn.core.interface import REQUIRED, Kind
from openaclnn.core.tensor import Tensor
from openaclnn.repeat.slots import MAX_AXES
from openaclnn.torch.gradients import Formula, attached
from openaclnn.torch.kernels import KERNELS, PLAIN, disturbed
from openaclnn.torch.private import any_autocast, base_of, forward_mode, transformed
from openaclnn.torch.refusals import UnservedError, reduction_of, warn_of

# What became of calls: how many were served by our kernels, and why the others were PyTorch's.


_MANY = 64  # reasons that are told apart


class Served(NamedTuple):
    """How often a function or an operator was called, and by whom it was computed."""

    calls: int
    ours: int
    reasons: dict[str, int]  # why PyTorch's kernel was taken, and how often


class Count:
    """The calls of one function or operator."""

    __slots__ = ("ours", "reasons")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.ours = 0
        self.reasons: dict[str, int] = {}

    def serve(self) -> None:
        """One by our kernels. What PyTorch compiles or exports is counted nowhere: its graphs run without us."""
        if not torch.compiler.is_compiling():
            self.ours += 1

    def decline(self, reason: object) -> None:
        """One that is PyTorch's."""
        if torch.compiler.is_compiling():
            return
        said = str(reason)
        if len(self.reasons) >= _MANY and said not in self.reasons:
            said = "others"
        self.reasons[said] = self.reasons.get(said, 0) + 1

    def told(self, more: int = 0) -> Served:
        """With so many more of ours that machine code has counted."""
        ours = self.ours + more
        return Served(ours + sum(self.reasons.values()), ours, dict(self.reasons))


FUNCTIONS: defaultdict[str, Count] = defaultdict(Count)
"""Of the functions of `functional`, which modules call too."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def overridable(function: _Function) -> _Function:
    """A function whose calls are handed to arguments that have a `__torch_function__`, as those of PyTorch's own are."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        every = (*arguments, *named.values())
        if has_torch_function_variadic(*every):
            return handle_torch_function(called, every, *arguments, **named)
        return function(*arguments, **named)

    return called  # type: ignore[return-value]


FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float64))

_is_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled


def may_be_short(tensor: Any) -> bool:
    """Whether all that is left to ask is what the fast path asks itself: of the other arguments, whether they are plain tensors."""
    return type(tensor) in PLAIN and not (
        has_torch_function_unary(tensor) or transformed() or any_autocast() or forward_mode()
    )


# Not in functions that PyTorch compiles: its compiler reads this attribute, and asks that instead.
may_be_short._torchdynamo_inline = lambda tensor: False  # type: ignore[attr-defined]


def needs_dispatcher() -> bool:
    return _is_compiling() or disturbed() or any_autocast()


def is_cast_alone(tensor: Any) -> bool:
    """Whether nothing is between caller and kernels but autocast on CUDA, which makes FLOAT of what losses take."""
    narrow = tensor.dtype in FLOATS and tensor.dtype is not torch.float64
    cast = tensor.is_cuda and torch.is_autocast_enabled("cuda") and narrow
    return cast and not (_is_compiling() or disturbed())


def autocast_dtype(tensor: Any) -> Any:
    """What autocast makes of this where matrices are multiplied; None where it is not at work."""
    device = tensor.device.type
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if casts and tensor.dtype is not torch.float64 else None


def parallel_for(tensor: Any) -> Any:
    """`openaclnn.torch.parallel` for a DTensor, whose losses and rules for operators are there; else None."""
    if type(tensor) in PLAIN:
        return None
    spread = sys.modules.get("torch.distributed.tensor")  # which another thread may be importing
    if not isinstance(tensor, getattr(spread, "DTensor", ())):
        return None
    return importlib.import_module("openaclnn.torch.parallel")


def is_tracked(tensor: Any) -> bool:
    """Whether autograd wants to know of work on this."""
    return tensor.requires_grad and _grad_enabled()


def of_a_leaf(tensor: Any) -> bool:
    """Whether writing to a tensor that autograd tracks would write to a leaf: that, or a view of one."""
    if tensor.is_leaf:
        return True
    base = base_of(tensor)
    return base is not None and base.is_leaf and base.requires_grad


def lies_apart(tensor: Any) -> bool:
    """Whether every element has memory of its own, which says what the element is."""
    return not tensor.is_neg() and guard.lies_apart(
        Tensor(tuple(tensor.shape), FLOAT, tensor.stride())
    )


def is_memory(value: Any) -> bool:
    """Whether this is a tensor of strides; PyTorch has words for what is none, and kernels for other layouts and for nested tensors."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return strided and not value.is_nested


def is_number(value: Any) -> bool:
    """Whether this is a number of Python's, of 64 bits. PyTorch takes more, tensors of one element say, and refuses the rest."""
    return isinstance(value, float) or (isinstance(value, int) and is_int64(value))


def is_index(value: Any) -> bool:
    """Whether this is what PyTorch takes for a class: an integer of 64 bits, and no truth value."""
    return type(value) is int and is_int64(value)


def unfit(tensor: Any) -> str:
    """Why the kernels have nothing for this dtype and device, where tensors may be shapes alone, or while derivatives are taken in forward mode;
    "" where they have."""
    if not is_memory(tensor):
        return "a tensor without strides" if isinstance(tensor, torch.Tensor) else "no tensor"
    if tensor.dtype not in FLOATS:
        return str(tensor.dtype)
    if not (tensor.is_cpu or tensor.is_cuda or tensor.is_meta):
        return f"on {tensor.device.type}"
    return "derivatives in forward mode" if forward_mode() else ""


def has_axis(tensor: Any, axis: int) -> bool:
    """Operators do not look for one in empty tensors; PyTorch does."""
    axes: int = max(tensor.dim(), 1)
    return -axes <= axis < axes


def why_not(tensor: Any) -> str:
    """Why a call on this is PyTorch's, in a few words."""
    return unfit(tensor) or "arguments that our kernels do not take"


def is_ours(tensor: Any) -> bool:
    return not unfit(tensor)


# Functions of PyTorch's signatures.


_LEGACY = ("size_average", "reduce")


class SlowPath:
    """What becomes of a function's calls that no fast path takes, given all arguments in their order.

    `compute` returns the result, or in a few words why it is PyTorch's. `parallel` has a function of the same name for parameters that are `shared` with it.
    """

    def __init__(self, stated: Callable[..., Any], compute: Callable[..., Any], shared: Sequence[str] = ()) -> None:  # fmt: skip
        self.function, self.compute, self.shared = stated, compute, shared
        self.name = stated.__name__
        self.parameters = tuple(inspect.signature(stated).parameters.values())
        self.names = [p.name for p in self.parameters]
        self.theirs: Callable[..., Any] = getattr(torch_functional, self.name)
        self.count = FUNCTIONS[self.name]
        self.legacy = [self.names.index(name) for name in _LEGACY if name in self.names]
        try:
            self.known = inspect.signature(self.theirs).parameters.keys()
        except ValueError:  # a function in C
            self.known = dict.fromkeys(self.names).keys()
        self.spare = [(n, p.default) for n, p in zip(self.names, self.parameters, strict=True) if n not in (*shared, "inplace", *_LEGACY)]  # fmt: skip
        """Parameters that `shared` lacks, which have to have their defaults."""

    def __call__(self, *arguments: Any) -> Any:
        if has_torch_function_variadic(*arguments):
            handed_over = partial(handle_torch_function, self.function, arguments)
            return self.call(handed_over, arguments, self.names)
        ours, reduction = arguments, ""
        for place in self.legacy:
            if arguments[place] is not None:
                reduction = reduction_of(*[arguments[place] for place in self.legacy])
        if reduction:
            named = self.named(arguments) | dict.fromkeys(_LEGACY) | {"reduction": reduction}
            ours = tuple(named.values())
        try:
            parallel = parallel_for(arguments[0])
            function = None if parallel is None else getattr(parallel, self.name, None)
            if function is None or self.lacks(named := self.named(ours)):
                result = self.compute(*ours)
            else:
                result = function(**{name: named[name] for name in self.shared})
        except UnservedError as error:
            result = str(error)
        if isinstance(result, str):
            self.count.decline(result)
            return self.call(self.theirs, arguments, self.known)
        if reduction:
            warn_of(reduction)
        self.count.serve()
        return result

    def named(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, arguments, strict=True))

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], known: Container[str]) -> Any:  # fmt: skip
        """A function that has some of these parameters."""
        both = zip(self.parameters, arguments, strict=True)
        every = [(p, value) for p, value in both if p.name in known]
        more = {p.name: value for p, value in every if p.kind is p.KEYWORD_ONLY}
        return function(*[value for p, value in every if p.name not in more], **more)

    def lacks(self, named: Mapping[str, Any]) -> str:
        """What is asked for that `shared` lacks."""
        asked = [name for name, default in self.spare if named[name] is not default]
        return f"{asked[0]} is given" if asked else ""


def written(stated: _Function, slow: SlowPath, fast: str = "", scope: Mapping[str, Any] = MappingProxyType({})) -> _Function:  # fmt: skip
    """A function of this signature: first the fast path's code, then the slow path."""
    told, keyword = [], False
    for parameter in slow.parameters:
        told += ["*"] * (parameter.kind is parameter.KEYWORD_ONLY and not keyword)
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        default = "" if parameter.default is parameter.empty else f"=_default_{parameter.name}"
        told.append(f"{parameter.name}{default}")
    known = {**scope, "_slow": slow} | {f"_default_{p.name}": p.default for p in slow.parameters}
    exec(
        f"def {slow.name}({', '.join(told)}):{fast}\n    return _slow({', '.join(slow.names)})",
        known,
    )
    slow.function = update_wrapper(known[slow.name], stated)
    del slow.function.__wrapped__
    slow.function.slow_path = slow  # type: ignore[attr-defined]
    slow.function.__annotations__ = get_type_hints(stated)
    return slow.function  # type: ignore[return-value]


def served_by(compute: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Makes a function of a signature that has no fast path."""
    return lambda stated: written(stated, SlowPath(stated, compute))


@dataclass
class computed_by:  # noqa: N801 - a decorator
    """Makes a function of a signature.

    `words` has what the operator takes for strings. With `cast`, PyTorch computes in another dtype under autocast, and does it itself.
    `alike`: required tensors have one shape. A result that is not `sound` is left to PyTorch, which refuses what led to it. What `attach` makes of a
    result and the operator's arguments autograd knows; by default it is made of the operator's gradient. Numbers that have to be `positive` are PyTorch's
    where they are not. What autograd tracks is written over by the formula `in_place`, for `apply(tensor, arguments)`, and without one by PyTorch.
    """

    operator: str
    _: KW_ONLY
    words: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cast: bool = False
    alike: bool = True
    sound: Callable[[Any], bool] | None = None
    attach: Callable[..., Any] | None = None
    positive: Sequence[str] = ()
    in_place: type[Formula] | None = None

    def __call__(self, stated: _Function) -> _Function:
        self.kernel, self.formula = KERNELS[self.operator], attached(self.operator)
        parameters = inspect.signature(stated).parameters
        names = [*parameters]
        ours = dict(zip(self.kernel.names, self.kernel.parameters, strict=True))
        if "self" in ours or "x" in ours:  # PyTorch's functions call that one input
            ours = {"input" if n in ("self", "x") else n: p for n, p in ours.items()}
        missing = [n for n, p in ours.items() if n not in names and p.default is REQUIRED]
        if missing:
            raise TypeError(f"{stated.__name__}: expected {', '.join(missing)} among its parameters, as aclnn's")  # fmt: skip
        self.fixed = {n: p.default for n, p in ours.items() if n not in names}
        """Parameters of the operator that the function lacks."""
        self.ours = tuple(ours)
        ours = {n: p for n, p in ours.items() if n in names}
        self.tensors = [name for name, p in ours.items() if p.is_tensor]
        self.optional = {name for name in self.tensors if ours[name].default is None}
        self.numbers = [n for n, p in ours.items() if p.kind in (Kind.SCALAR, Kind.FLOAT)]
        self.integers = [
            n for n, p in ours.items() if p.kind is Kind.INT64 and not p.choices and n not in self.words
        ]  # fmt: skip
        self.choices = {n: p.choices for n, p in ours.items() if p.choices} | {
            name: tuple(known) for name, known in self.words.items()
        }
        axis, gradient = self.kernel.operator.axis, self.kernel.operator.gradient
        self.axis = axis.python_name if axis else ""
        derived = gradient.others if gradient else {}
        differentiable = {p.python_name for p in self.kernel.parameters if p.name in derived}
        if gradient is not None and self.formula is None:  # several derivatives by one operator
            differentiable |= {*self.tensors}
        self.constant = [n for n in self.tensors[1:] if n not in differentiable]
        self.slow = SlowPath(stated, self.by_kernels, [*ours])
        return written(stated, self.slow, *self._fast_path())

    def _fast_path(self) -> tuple[str, dict[str, Any]]:
        """Its code, and what that knows."""
        names = self.slow.names
        first, *others = self.tensors
        plain = [f"{n} is None" for n in names if n in _LEGACY]
        plain += [f"{name} is _default_{name}" for name, _ in self.slow.spare]
        plain += [f"{name} in _words_{name}" for name in self.words]
        plain.append(f"_may_be_short({first})")
        fit = [f"_isfinite({' + '.join(self.numbers)})"] if self.numbers else []
        fit += [f"{name} > 0" for name in self.positive]
        for name in others:
            there = f"{name} is None or " if name in self.optional else ""
            same = f"{name}.dtype is {first}.dtype"
            if self.alike and name not in self.optional:
                same += f" and {name}.shape == {first}.shape"
            fit.append(f"({there}({same}))")
        fit += ["_sound(_result)"] if self.sound else []
        passed = ", ".join(
            f"_words_{n}[{n}]" if n in self.words else repr(self.fixed[n]) if n in self.fixed else n
            for n in self.ours
        )
        beside = " or ".join(f"({n} is not None and {n}.requires_grad)" for n in others)
        attachable = f"{f'not ({beside}) and ' if beside else ''}_attached is not None"
        attached = f"_attached.apply({first}, (_result, ({passed},)))"
        if self.attach is not None:
            attachable, attached = "True", f"_attach(_result, {passed})"
        over = ""
        if "inplace" in names:
            written = ", ".join([first, first, *passed.split(", ")[1:], "None"])
            free = f"not ({first}.requires_grad and _grad_enabled())"
            over = f"""
    elif inplace and {" and ".join([*plain, free, *fit])}:
        if _kernel.cache.call({written}) is not NotImplemented:
            _count.ours += 1
            return {first}"""
        code = f"""
    if {"not inplace and " if over else ""}{" and ".join(plain)}:
        _result = _kernel.short({passed})
        if _result is not NotImplemented{"".join(f" and {condition}" for condition in fit)}:
            _tracked = _grad_enabled() and ({first}.requires_grad{f" or {beside}" if beside else ""})
            if not _tracked:
                _count.ours += 1
                return _result
            if {attachable}:
                _count.ours += 1
                return {attached}{over}"""
        return code, {
            "_kernel": self.kernel, "_count": self.slow.count, "_may_be_short": may_be_short, "_isfinite": isfinite,
            "_grad_enabled": torch.is_grad_enabled, "_attached": self.formula, "_sound": self.sound, "_attach": self.attach,
            **{f"_words_{name}": known for name, known in self.words.items()},
        }  # fmt: skip

    def by_kernels(self, *arguments: Any) -> Any:
        """The result, or why it is PyTorch's."""
        named = self.slow.named(arguments)
        tensors = [named[name] for name in self.tensors if named[name] is not None]
        reason = self._why_not(named, tensors)
        if reason:
            return reason
        try:
            return self._computed(named, tensors)
        except (RuntimeError, TypeError, IndexError) as error:
            # PyTorch reads memory that was given back, and ends the process.
            if needs_dispatcher() or any(tensor.numel() and not tensor.untyped_storage().nbytes() for tensor in tensors):  # fmt: skip
                raise
            return str(error)

    def _computed(self, named: Mapping[str, Any], tensors: list[Any]) -> Any:
        words, every = self.words, {**self.fixed, **named}
        ours = [words[n][every[n]] if n in words else every[n] for n in self.ours]
        tracked = [is_tracked(tensor) for tensor in tensors]
        if named.get("inplace"):
            if tracked[0]:
                return self.in_place.apply(tensors[0], ours)  # type: ignore[union-attr]
            return self.kernel.into(tensors[0], *ours)
        if needs_dispatcher():
            return self.kernel.op(*ours)
        beside = self.attach is None and (any(tracked[1:]) or (tracked[0] and self.formula is None))
        result = self.kernel.op(*ours) if beside else self.kernel.call(*ours)
        if self.sound is not None and not self.sound(result.detach()):
            return "what PyTorch refuses, or no number"
        if beside or not any(tracked):
            return result
        if self.attach is not None:
            return self.attach(result, *ours)
        return self.formula.apply(tensors[0], (result, ours))  # type: ignore[union-attr]

    def _why_not(self, named: Mapping[str, Any], tensors: list[Any]) -> str:
        """Why the kernels do not take these; "" where they do."""
        first, *others = tensors
        # DTensors of activations our operators have rules for.
        spread = parallel_for(first) is not None
        if not is_ours(first) or (spread and (others or self.choices or named.get("inplace"))):
            return why_not(first)
        if any(not is_memory(tensor) or tensor.device != first.device for tensor in others):
            return "tensors of several kinds or devices"
        if any(tensor.dtype is not first.dtype for tensor in others):
            return "tensors of several dtypes"
        required = [named[name] for name in self.tensors if name not in self.optional]
        if self.alike and any(tensor.shape != first.shape for tensor in required):
            return "tensors of several shapes"
        if max(tensor.dim() for tensor in tensors) > MAX_AXES:
            return f"more than {MAX_AXES} axes"
        if lacking := self.slow.lacks(named):
            return lacking
        # By comparisons, which torch.compile sees through where numbers are symbols, too.
        if not all(is_number(named[n]) and -inf < named[n] < inf for n in self.numbers):
            return "a number that is infinite, or none"
        if any(named[name] <= 0 for name in self.positive):
            return "a number that is not positive"
        if not all(is_index(named[name]) for name in self.integers):
            return "no integer"
        if self.axis and not has_axis(first, named[self.axis]):
            return "an axis that the tensor lacks"
        if any(named[name] not in known for name, known in self.choices.items()):
            return "a word that is not known"
        if any(named[n] is not None and is_tracked(named[n]) for n in self.constant):
            return "a derivative that our kernels do not have"
        if self.cast and any_autocast():
            return "autocast"
        if named.get("inplace"):
            strange = needs_dispatcher() or type(first) not in PLAIN or first.is_meta
            # `is_neg`, while PyTorch compiles, would end the graph: it is asked for behind those.
            kept = is_tracked(first) and (self.in_place is None or of_a_leaf(first))
            if strange or kept or first.is_neg():
                return "in place, of a leaf or where somebody records or transforms"
        return ""
