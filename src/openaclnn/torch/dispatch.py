"""Which code computes a call of a function of `openaclnn.torch.functional`, and counts of that. The fast path serves calls like earlier ones, a slow path
calls our kernels otherwise. PyTorch's dispatcher is called where modes, transforms or compilers watch operations, and `parallel` for DTensors.

A function of PyTorch's signature is written as a stub, its signature and docstring, under a decorator. `@computed_by` with an operator's name makes the
function from the stub and the operator's declaration: their parameters are matched by name, and one that either lacks takes its default. Arguments
that our kernels do not support go to PyTorch's function, which also raises its own errors for wrong ones.
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
from openaclnn.torch.kernels import KERNELS, PLAIN, intercepted
from openaclnn.torch.private import any_autocast, base_of, forward_mode, transformed
from openaclnn.torch.refusals import UnservedError, reduction_of, warn_of

# Counts of calls: how many our kernels computed, and why PyTorch computed the others.


_MOST_REASONS = 64  # that are counted one by one


class Served(NamedTuple):
    """How often a function or an operator was called, and how often our kernels computed it."""

    calls: int
    ours: int
    reasons: dict[str, int]  # why PyTorch computed it, and how often


class Count:
    """The calls of one function or operator."""

    __slots__ = ("ours", "reasons")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.ours = 0
        self.reasons: dict[str, int] = {}

    def serve(self) -> None:
        """Count a call that our kernels computed. Calls while PyTorch compiles or exports are not counted: their graphs run without this code."""
        if not torch.compiler.is_compiling():
            self.ours += 1

    def decline(self, reason: object) -> None:
        """Count a call that PyTorch computed."""
        if torch.compiler.is_compiling():
            return
        text = str(reason)
        if len(self.reasons) >= _MOST_REASONS and text not in self.reasons:
            text = "others"
        self.reasons[text] = self.reasons.get(text, 0) + 1

    def counts(self, more: int = 0) -> Served:
        """The counts, with `more` calls that machine code has counted as ours."""
        ours = self.ours + more
        return Served(ours + sum(self.reasons.values()), ours, dict(self.reasons))


FUNCTIONS: defaultdict[str, Count] = defaultdict(Count)
"""The counts of the functions of `functional`, by name; modules call these, too."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def overridable(function: _Function) -> _Function:
    """Makes a function pass its calls to arguments that have a `__torch_function__`, as PyTorch's functions do."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        every = (*arguments, *named.values())
        if has_torch_function_variadic(*every):
            return handle_torch_function(called, every, *arguments, **named)
        return function(*arguments, **named)

    return called  # type: ignore[return-value]


FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float64))

_is_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled


def may_take_fast_path(tensor: Any) -> bool:
    """Whether the fast path may be tried. What else it needs, such as that the other arguments are plain tensors, it checks itself."""
    return type(tensor) in PLAIN and not (
        has_torch_function_unary(tensor) or transformed() or any_autocast() or forward_mode()
    )


# In functions that PyTorch compiles the answer is no: its compiler reads this attribute, and calls that function instead.
may_take_fast_path._torchdynamo_inline = lambda tensor: False  # type: ignore[attr-defined]


def needs_dispatcher() -> bool:
    """Whether a call must be an operator of PyTorch's dispatcher: a compiler, mode, transform, tracer or autocast is at work."""
    return _is_compiling() or intercepted() or any_autocast()


def is_cast_alone(tensor: Any) -> bool:
    """Whether autocast on CUDA, which converts the tensors of losses to float32, is all that is at work."""
    narrow = tensor.dtype in FLOATS and tensor.dtype is not torch.float64
    cast = tensor.is_cuda and torch.is_autocast_enabled("cuda") and narrow
    return cast and not (_is_compiling() or intercepted())


def autocast_dtype(tensor: Any) -> Any:
    """The dtype that autocast converts a tensor to for a matrix product; None where it does not."""
    device = tensor.device.type
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if casts and tensor.dtype is not torch.float64 else None


def parallel_for(tensor: Any) -> Any:
    """The module `openaclnn.torch.parallel` for a DTensor, else None. The module has losses of DTensors, and rules for our operators."""
    if type(tensor) in PLAIN:
        return None
    module = sys.modules.get("torch.distributed.tensor")  # another thread may be importing it
    if not isinstance(tensor, getattr(module, "DTensor", ())):
        return None
    return importlib.import_module("openaclnn.torch.parallel")


def is_tracked(tensor: Any) -> bool:
    """Whether autograd records operations on a tensor."""
    return tensor.requires_grad and _grad_enabled()


def writes_to_leaf(tensor: Any) -> bool:
    """Whether a tensor that autograd tracks is a leaf, or a view of one, which autograd does not let be written."""
    if tensor.is_leaf:
        return True
    base = base_of(tensor)
    return base is not None and base.is_leaf and base.requires_grad


def lies_apart(tensor: Any) -> bool:
    """Whether every element has its own memory, and the memory holds the value: there is no pending negation."""
    return not tensor.is_neg() and guard.lies_apart(
        Tensor(tuple(tensor.shape), FLOAT, tensor.stride())
    )


def is_memory(value: Any) -> bool:
    """Whether this is a strided tensor, and not nested."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return strided and not value.is_nested


def is_number(value: Any) -> bool:
    """Whether this is a float or a 64-bit integer of Python. PyTorch takes other numbers, such as tensors of one element."""
    return isinstance(value, float) or (isinstance(value, int) and is_int64(value))


def is_index(value: Any) -> bool:
    """Whether PyTorch takes this for a class index: a 64-bit integer that is no bool."""
    return type(value) is int and is_int64(value)


def why_unsupported(tensor: Any) -> str:
    """Why our kernels do not support a tensor, by its layout, dtype and device, or because derivatives are taken in forward mode; "" if they do. Tensors
    on `meta`, which have only shapes, are supported."""
    if not is_memory(tensor):
        return "a tensor without strides" if isinstance(tensor, torch.Tensor) else "no tensor"
    if tensor.dtype not in FLOATS:
        return str(tensor.dtype)
    if not (tensor.is_cpu or tensor.is_cuda or tensor.is_meta):
        return f"on {tensor.device.type}"
    return "derivatives in forward mode" if forward_mode() else ""


def has_axis(tensor: Any, axis: int) -> bool:
    """Whether a tensor has an axis. Our operators do not check that for empty tensors; PyTorch does."""
    axes: int = max(tensor.dim(), 1)
    return -axes <= axis < axes


def why_declined(tensor: Any) -> str:
    """Why PyTorch computes a call on this tensor."""
    return why_unsupported(tensor) or "arguments that our kernels do not take"


def is_supported(tensor: Any) -> bool:
    return not why_unsupported(tensor)


# Functions of PyTorch's signatures.


_LEGACY = ("size_average", "reduce")


class SlowPath:
    """The slow path of a function: called with all arguments in order if the fast path does not take them.

    `compute` returns the result, or a text that says why PyTorch has to compute it. For DTensors, the function of the same name in `parallel` takes the
    parameters `shared`.
    """

    def __init__(self, stub: Callable[..., Any], compute: Callable[..., Any], shared: Sequence[str] = ()) -> None:  # fmt: skip
        self.function, self.compute, self.shared = stub, compute, shared
        self.name = stub.__name__
        self.parameters = tuple(inspect.signature(stub).parameters.values())
        self.names = [p.name for p in self.parameters]
        self.torch_function: Callable[..., Any] = getattr(torch_functional, self.name)
        self.count = FUNCTIONS[self.name]
        self.legacy = [self.names.index(name) for name in _LEGACY if name in self.names]
        try:
            self.torch_parameters = inspect.signature(self.torch_function).parameters.keys()
        except ValueError:  # a function in C
            self.torch_parameters = dict.fromkeys(self.names).keys()
        self.torch_only = [(n, p.default) for n, p in zip(self.names, self.parameters, strict=True) if n not in (*shared, "inplace", *_LEGACY)]  # fmt: skip
        """Parameters that `shared` lacks. Our kernels take calls that leave them at these defaults."""

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
            return self.call(self.torch_function, arguments, self.torch_parameters)
        if reduction:
            warn_of(reduction)
        self.count.serve()
        return result

    def named(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, arguments, strict=True))

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], known: Container[str]) -> Any:  # fmt: skip
        """Call a function that has the parameters `known` among these."""
        both = zip(self.parameters, arguments, strict=True)
        every = [(p, value) for p, value in both if p.name in known]
        more = {p.name: value for p, value in every if p.kind is p.KEYWORD_ONLY}
        return function(*[value for p, value in every if p.name not in more], **more)

    def lacks(self, named: Mapping[str, Any]) -> str:
        """Which parameter that our kernels lack is not at its default, as a text; "" if none."""
        asked = [name for name, default in self.torch_only if named[name] is not default]
        return f"{asked[0]} is given" if asked else ""


def make_function(stub: _Function, slow: SlowPath, fast: str = "", scope: Mapping[str, Any] = MappingProxyType({})) -> _Function:  # fmt: skip
    """A function of the stub's signature, whose code is first the fast path's, and then calls the slow path."""
    declared, keyword = [], False
    for parameter in slow.parameters:
        declared += ["*"] * (parameter.kind is parameter.KEYWORD_ONLY and not keyword)
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        default = "" if parameter.default is parameter.empty else f"=_default_{parameter.name}"
        declared.append(f"{parameter.name}{default}")
    names = {**scope, "_slow": slow} | {f"_default_{p.name}": p.default for p in slow.parameters}
    exec(
        f"def {slow.name}({', '.join(declared)}):{fast}\n    return _slow({', '.join(slow.names)})",
        names,
    )
    slow.function = update_wrapper(names[slow.name], stub)
    del slow.function.__wrapped__
    slow.function.slow_path = slow  # type: ignore[attr-defined]
    slow.function.__annotations__ = get_type_hints(stub)
    return slow.function  # type: ignore[return-value]


def served_by(compute: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Decorates a stub: makes its function, which has no fast path."""
    return lambda stub: make_function(stub, SlowPath(stub, compute))


@dataclass
class computed_by:  # noqa: N801 - a decorator
    """Decorates a stub: makes its function of the operator of this name.

    `words`: by parameter, the operator's values for strings. `cast`: under autocast PyTorch computes it, in another dtype. `alike`: required tensors must have
    one shape. `sound`: PyTorch computes again, and raises its error, where this is false of a result. `attach`: makes the tensor with a derivative of a result
    and the operator's arguments; by default, the operator's gradient does. `positive`: PyTorch computes calls where one of these numbers is not. `in_place`:
    the formula that overwrites a tensor that autograd tracks, by `apply(tensor, arguments)`; without it, PyTorch does.
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

    def __call__(self, stub: _Function) -> _Function:
        self.kernel, self.formula = KERNELS[self.operator], attached(self.operator)
        parameters = inspect.signature(stub).parameters
        names = [*parameters]
        ours = dict(zip(self.kernel.names, self.kernel.parameters, strict=True))
        if "self" in ours or "x" in ours:  # PyTorch's functions call that one input
            ours = {"input" if n in ("self", "x") else n: p for n, p in ours.items()}
        missing = [n for n, p in ours.items() if n not in names and p.default is REQUIRED]
        if missing:
            raise TypeError(f"{stub.__name__}: expected {', '.join(missing)} among its parameters, as aclnn's")  # fmt: skip
        self.fixed = {n: p.default for n, p in ours.items() if n not in names}
        """Parameters of the operator that the function lacks, with their defaults."""
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
        self.slow = SlowPath(stub, self.by_kernels, [*ours])
        return make_function(stub, self.slow, *self._fast_path())

    def _fast_path(self) -> tuple[str, dict[str, Any]]:
        """The fast path's code, and the objects that the code names."""
        names = self.slow.names
        first, *others = self.tensors
        plain = [f"{n} is None" for n in names if n in _LEGACY]
        plain += [f"{name} is _default_{name}" for name, _ in self.slow.torch_only]
        plain += [f"{name} in _words_{name}" for name in self.words]
        plain.append(f"_may_take_fast_path({first})")
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
        _result = _kernel.fast({passed})
        if _result is not NotImplemented{"".join(f" and {condition}" for condition in fit)}:
            _tracked = _grad_enabled() and ({first}.requires_grad{f" or {beside}" if beside else ""})
            if not _tracked:
                _count.ours += 1
                return _result
            if {attachable}:
                _count.ours += 1
                return {attached}{over}"""
        return code, {
            "_kernel": self.kernel, "_count": self.slow.count, "_may_take_fast_path": may_take_fast_path, "_isfinite": isfinite,
            "_grad_enabled": torch.is_grad_enabled, "_attached": self.formula, "_sound": self.sound, "_attach": self.attach,
            **{f"_words_{name}": known for name, known in self.words.items()},
        }  # fmt: skip

    def by_kernels(self, *arguments: Any) -> Any:
        """The result by our kernels, or a text that says why PyTorch has to compute it."""
        named = self.slow.named(arguments)
        tensors = [named[name] for name in self.tensors if named[name] is not None]
        reason = self._why_not(named, tensors)
        if reason:
            return reason
        try:
            return self._computed(named, tensors)
        except (RuntimeError, TypeError, IndexError) as error:
            # PyTorch would read memory that was freed, and the process would end.
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
        """Why our kernels do not take these arguments; "" where they do."""
        first, *others = tensors
        # Of DTensors, our operators have rules for activations alone.
        sharded = parallel_for(first) is not None
        in_place = named.get("inplace")
        if not is_supported(first) or (sharded and (others or self.choices or in_place)):
            return why_declined(first)
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
        # Comparisons, since torch.compile can trace them even where numbers are symbols.
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
        if in_place:
            special = needs_dispatcher() or type(first) not in PLAIN or first.is_meta
            # `is_neg` comes last: while PyTorch compiles it would end the graph.
            protected = is_tracked(first) and (self.in_place is None or writes_to_leaf(first))
            if special or protected or first.is_neg():
                return "in place, of a leaf or where somebody records or transforms"
        return ""
