"""Functions of PyTorch's signatures that are operators of ours: what each does follows from its signature and the operator's declaration.

A function is written as its signature and its text, under `@computed_by` with the operator's name. A parameter of the same name is the
operator's; one that either lacks has its default. What the kernels do not take is PyTorch's function's, and so is what is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial, update_wrapper
from math import inf, isfinite
from typing import Any, TypeVar, get_type_hints

import torch
from torch.nn import functional as torch_functional
from torch.overrides import handle_torch_function, has_torch_function_variadic

from openaclnn.core.interface import REQUIRED, Kind
from openaclnn.torch.dispatch import (
    FUNCTIONS,
    is_index,
    is_memory,
    is_number,
    is_ours,
    is_tracked,
    may_be_short,
    needs_dispatcher,
    of_a_leaf,
    parallel_for,
    why_not,
)
from openaclnn.torch.gradients import Formula, attached
from openaclnn.torch.kernels import KERNELS, PLAIN
from openaclnn.torch.private import any_autocast
from openaclnn.torch.refusals import UnservedError, reduction_of

MAX_AXES = 8
_LEGACY = ("size_average", "reduce")

_Stated = TypeVar("_Stated", bound=Callable[..., Any])


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

    def __call__(self, stated: _Stated) -> _Stated:
        self.stated, self.name, self.kernel = stated, stated.__name__, KERNELS[self.operator]
        self.parameters = tuple(inspect.signature(stated).parameters.values())
        self.theirs: Callable[..., Any] = getattr(torch_functional, self.name)
        self.count = FUNCTIONS[self.name]
        self.formula = attached(self.operator)
        names = [p.name for p in self.parameters]
        ours = dict(zip(self.kernel.names, self.kernel.parameters, strict=True))
        if "self" in ours or "x" in ours:  # PyTorch's functions call that one input
            ours = {"input" if n in ("self", "x") else n: p for n, p in ours.items()}
        missing = [n for n, p in ours.items() if n not in names and p.default is REQUIRED]
        if missing:
            raise TypeError(f"{self.name}: expected {', '.join(missing)} among its parameters, as aclnn's")  # fmt: skip
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
        self.spare = [
            (place, p.default)
            for place, p in enumerate(self.parameters)
            if p.name not in ours and p.name not in ("inplace", *_LEGACY)
        ]
        """Parameters that have to have their defaults."""
        gradient = self.kernel.operator.gradient
        derived = gradient.others if gradient else {}
        differentiable = {p.python_name for p in self.kernel.parameters if p.name in derived}
        if gradient is not None and self.formula is None:  # several derivatives by one operator
            differentiable |= {*self.tensors}
        self.constant = [n for n in self.tensors[1:] if n not in differentiable]
        return self._written()  # type: ignore[return-value]

    def _written(self) -> Callable[..., Any]:
        """The function: first the fast path, written out for the signature, then all else."""
        names = [p.name for p in self.parameters]
        first, *others = self.tensors
        plain = [f"{n} is None" for n in names if n in _LEGACY]
        plain += [f"{names[place]} is _default_{place}" for place, _ in self.spare]
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
        source = f"""
def {self.name}({", ".join(map(self._told, range(len(names))))}):
    if {"not inplace and " if over else ""}{" and ".join(plain)}:
        _result = _kernel.short({passed})
        if _result is not NotImplemented{"".join(f" and {condition}" for condition in fit)}:
            _tracked = _grad_enabled() and ({first}.requires_grad{f" or {beside}" if beside else ""})
            if not _tracked:
                _count.ours += 1
                return _result
            if {attachable}:
                _count.ours += 1
                return {attached}{over}
    return _slow({", ".join(names)})
"""
        scope = {
            "_kernel": self.kernel, "_count": self.count, "_may_be_short": may_be_short, "_isfinite": isfinite,
            "_grad_enabled": torch.is_grad_enabled, "_attached": self.formula, "_sound": self.sound, "_slow": self.slow, "_attach": self.attach,
            **{f"_words_{name}": known for name, known in self.words.items()},
            **{f"_default_{place}": p.default for place, p in enumerate(self.parameters)},
        }  # fmt: skip
        exec(source, scope)
        self.function = update_wrapper(scope[self.name], self.stated)
        del self.function.__wrapped__
        self.function.by_kernels = self.by_kernels  # type: ignore[attr-defined]
        self.function.__annotations__ = get_type_hints(self.stated)
        return self.function

    def _told(self, place: int) -> str:
        """A parameter as it is written."""
        parameter = self.parameters[place]
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        begins = keyword and self.parameters[place - 1].kind is not parameter.KEYWORD_ONLY
        default = "" if parameter.default is parameter.empty else f"=_default_{place}"
        return f"{'*, ' if begins else ''}{parameter.name}{default}"

    def _call_theirs(self, function: Callable[..., Any], values: list[Any]) -> Any:
        every = list(zip(self.parameters, values, strict=True))
        named = {p.name: value for p, value in every if p.kind is p.KEYWORD_ONLY}
        return function(*[value for p, value in every if p.kind is not p.KEYWORD_ONLY], **named)

    def slow(self, *arguments: Any) -> Any:
        """By our kernel, the dispatcher or PyTorch."""
        values = list(arguments)
        named = {p.name: value for p, value in zip(self.parameters, values, strict=True)}
        tensors = [named[name] for name in self.tensors if named[name] is not None]
        if has_torch_function_variadic(*tensors):
            return self._call_theirs(partial(handle_torch_function, self.function, tensors), values)
        if any(named.get(name) is not None for name in _LEGACY):
            named["reduction"] = reduction_of(*[named[name] for name in _LEGACY])
            named |= dict.fromkeys(_LEGACY)
            values = [named[p.name] for p in self.parameters]
        parallel = getattr(parallel_for(tensors[0]), self.name, None)
        if parallel is not None and not self._lacks(named):
            self.count.serve()
            options = {name: named[name] for name in self.ours if name not in self.tensors}
            return parallel(*tensors, **options)
        reason: object = self._why_not(named, tensors)
        if not reason:
            try:
                result = self._computed(named, tensors)
                if result is not None:
                    self.count.serve()
                    return result
                reason = "what PyTorch refuses, or no number"
            except UnservedError as error:
                reason = error
            except (RuntimeError, TypeError, IndexError) as error:
                # PyTorch reads memory that was given back, and ends the process.
                if needs_dispatcher() or any(tensor.numel() and not tensor.untyped_storage().nbytes() for tensor in tensors):  # fmt: skip
                    raise
                reason = error
        self.count.decline(reason)
        return self._call_theirs(self.theirs, values)

    def by_kernels(self, *arguments: Any) -> Any:
        """The result; None where PyTorch has to compute it, or to say what is wrong."""
        named = {p.name: value for p, value in zip(self.parameters, arguments, strict=True)}
        tensors = [named[name] for name in self.tensors if named[name] is not None]
        if self._why_not(named, tensors):
            return None
        return self._computed(named, tensors)

    def _computed(self, named: Mapping[str, Any], tensors: list[Any]) -> Any:
        """The result; None where it is not sound."""
        words, every = self.words, {**self.fixed, **named}
        ours = [words[n][every[n]] if n in words else every[n] for n in self.ours]
        tracked = [is_tracked(tensor) for tensor in tensors]
        if named.get("inplace"):
            if tracked[0]:
                return self.in_place.apply(tensors[0], ours)  # type: ignore[union-attr]
            self.kernel.over(tensors[0], *ours)
            return tensors[0]
        if needs_dispatcher():
            return self.kernel.op(*ours)
        if self.attach is not None:
            result = self.kernel.call(*ours)
            return self.attach(result, *ours) if any(tracked) else result
        if any(tracked[1:]) or (tracked[0] and self.formula is None):
            result = self.kernel.op(*ours)
            return result if self._is_sound(result) else None
        result = self.kernel.call(*ours)
        if not self._is_sound(result):
            return None
        return self.formula.apply(tensors[0], (result, ours)) if tracked[0] else result  # type: ignore[union-attr]

    def _is_sound(self, result: Any) -> bool:
        return self.sound is None or self.sound(result.detach())

    def _lacks(self, named: Mapping[str, Any]) -> str:
        """What the operator lacks that is asked for."""
        asked = [self.parameters[place].name for place, default in self.spare if named[self.parameters[place].name] is not default]  # fmt: skip
        return f"{asked[0]} is given" if asked else ""

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
        if lacking := self._lacks(named):
            return lacking
        # By comparisons, which torch.compile sees through where numbers are symbols, too.
        if not all(is_number(named[n]) and -inf < named[n] < inf for n in self.numbers):
            return "a number that is infinite, or none"
        if any(named[name] <= 0 for name in self.positive):
            return "a number that is not positive"
        if not all(is_index(named[name]) for name in self.integers):
            return "no integer"
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
