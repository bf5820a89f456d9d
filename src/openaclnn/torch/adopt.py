"""A model whose losses, activations and language-model head become ours: instances, and not the process as by `enable`.

Modules keep their identity: only their class changes, to one of `nn.py` that reads the same attributes. So parameters, hooks, names, devices and whoever shares
a module stay as they are, and `revert` gives the class back. A language model's head becomes a linear layer whose outputs in training are `Logits`:
hidden states and the layer that would be applied. Cross entropy of those is `linear_cross_entropy`; whoever wants anything else of them gets the tensor.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from openaclnn.torch import functional, nn
from openaclnn.torch.dispatch import autocast_dtype, parallel_for
from openaclnn.torch.kernels import PLAIN
from openaclnn.torch.private import TENSOR_PARALLEL_HOOKS, has_forward_hooks, register_pytree

NO_GAIN = frozenset((
    "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "KLDivLoss", "LeakyReLU", "LogSoftmax", "MultiLabelMarginLoss", "NLLLoss", "NLLLoss2d", "ReLU",
    "SiLU", "Sigmoid", "Softmax", "Softshrink", "Threshold",
))  # fmt: skip
"""Modules that PyTorch computes as fast as we do, or faster (`openaclnn bench --section modules`; docs/pytorch.md has the times): they become ours where
`only` names them."""
NO_GAIN_ON_GPU = NO_GAIN - {"KLDivLoss"} | {"CELU", "ELU", "LogSigmoid", "Mish", "PReLU", "SELU", "Softplus"}  # fmt: skip
"""The same of a model on a GPU, where an activation takes no longer than its call, and PyTorch's calls are shorter."""


class Replacement(NamedTuple):
    """A module by its name in the model (the first, if it has several), and what it was and is."""

    name: str
    before: str
    after: str


class Applied:
    """What `apply_to` did: `replaced` and, with the reason in the place of what it would be, `left`. `revert` undoes it, as does the end of a `with` block."""

    def __init__(self) -> None:
        self.replaced: list[Replacement] = []
        self.left: list[Replacement] = []
        self._undo: list[tuple[str, torch.nn.Module, type, type, tuple[str, ...]]] = []
        self._hooks: list[Any] = []

    def __repr__(self) -> str:
        """A table, with a line for all modules whose names differ in numbers alone."""
        if not (self.replaced or self.left):
            return "nothing to replace"
        alike: dict[Replacement, list[str]] = {}
        for each in (*self.replaced, *self.left):
            line = each._replace(name=re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", each.name))
            alike.setdefault(line, []).append(each.name or "(the model)")
        lines = [("module", "was", "is", "")]
        for (name, before, after), names in alike.items():
            several = len(names) > 1
            lines.append((name if several else names[0], before, after, f"x {len(names)}" if several else ""))  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def revert(self) -> None:
        """Give the modules back to PyTorch; once is enough."""
        for name, module, _, ours, _ in self._undo:
            if type(module) is not ours:
                raise RuntimeError(
                    f"{name or 'the model'} has become {type(module).__name__} since apply_to made it {ours.__name__}: "
                    "undo that first"
                )
        for _, module, theirs, _, attributes in self._undo:
            module.__class__ = theirs
            for attribute in attributes:
                delattr(module, attribute)
        for hook in self._hooks:
            hook.remove()
        self._undo, self._hooks = [], []

    def __enter__(self) -> Applied:
        return self

    def __exit__(self, *_: object) -> None:
        self.revert()

    def _swap(
        self, name: str, module: torch.nn.Module, ours: type, says: str, **attributes: Any
    ) -> None:
        theirs = type(module)
        module.__class__ = ours
        for attribute, value in attributes.items():
            setattr(module, attribute, value)
        self._undo.append((name, module, theirs, ours, tuple(attributes)))
        self.replaced.append(Replacement(name, theirs.__name__, says))


def replacements() -> dict[type[torch.nn.Module], type[torch.nn.Module]]:
    """PyTorch's modules that `apply_to` can replace, and ours of the same names.

    >>> replacements()[torch.nn.CrossEntropyLoss]
    <class 'openaclnn.torch.nn.CrossEntropyLoss'>
    """
    return {
        getattr(torch.nn, name): getattr(nn, name) for name in nn.__all__ if hasattr(torch.nn, name)
    }


def apply_to(
    model: torch.nn.Module,
    *,
    only: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    heads: Iterable[str] | None = None,
    memory: int | None = None,
    accumulate: torch.dtype | None = None,
) -> Applied:
    """Let a model's losses and activations be ours, in place, and the head of a language model never make the logits of a training step.

    Modules of exactly PyTorch's types (`replacements`) are replaced, but for those of `NO_GAIN` or, if the model lies on a GPU, of `NO_GAIN_ON_GPU`; `only` and `exclude` name them, one or several, and "HeadLinear" is the head. A submodule whose `forward` takes `labels` and whose
    `lm_head` or `get_output_embeddings()` is a `Linear` is a language model: in training with labels as a keyword its logits are `Logits`. `heads`
    names other linear layers instead, whose outputs in training are always `Logits`. `memory` and `accumulate` are `linear_cross_entropy`'s.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ELU())
    >>> applied = apply_to(model)
    >>> applied
    module  was  is
    1       ELU  openaclnn.ELU
    >>> applied.revert()
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a module of torch.nn, got {model!r}")
    applied = Applied()
    first = next(model.parameters(), None)
    names = _chosen(only, exclude, NO_GAIN_ON_GPU if first is not None and first.is_cuda else NO_GAIN)  # fmt: skip
    layers = {} if heads is None else _layers(model, [heads] if isinstance(heads, str) else heads)
    table = {theirs: ours for theirs, ours in replacements().items() if theirs.__name__ in names}
    for name, module in model.named_modules():
        if type(module) in table:
            applied._swap(name, module, table[type(module)], f"openaclnn.{type(module).__name__}")
    options = {"memory": memory, "accumulate": accumulate}
    for name, head in layers.items():
        applied._swap(name, head, HeadLinear, _head_says(head), options=options, deferred=True)
    if heads is None and "HeadLinear" in names:
        _adopt_language_models(applied, model, options)
    return applied


def _layers(model: torch.nn.Module, names: Iterable[str]) -> dict[str, torch.nn.Module]:
    """Linear layers by their names, but for those that are ours."""
    layers = {name: model.get_submodule(name) for name in names}
    for name, layer in layers.items():
        reason = _unfit(layer)
        if reason is not None:
            raise TypeError(f"heads: {name} cannot be replaced: {reason}")
    return {name: each for name, each in layers.items() if not isinstance(each, HeadLinear)}


def _chosen(
    only: Iterable[str] | None, exclude: Iterable[str], no_gain: frozenset[str]
) -> set[str]:
    names = {"HeadLinear", *(each.__name__ for each in replacements())}

    def known(asked: Iterable[str]) -> set[str]:
        asked = {asked} if isinstance(asked, str) else set(asked)
        if asked - names:
            raise ValueError(
                f"expected names of modules, {', '.join(sorted(names))}, got {', '.join(sorted(asked - names))}"
            )
        return asked

    return (names - no_gain if only is None else known(only)) - known(exclude)


# Language models.


def _adopt_language_models(
    applied: Applied, model: torch.nn.Module, options: dict[str, Any]
) -> None:
    names: dict[Any, str] = {module: name for name, module in model.named_modules()}
    done: set[Any] = set()
    # Wrappers hand through what is asked of the model inside: that comes first, and has its head once.
    for module, name in reversed(names.items()):
        head = _head_of(module)
        if head is None or head in done or "labels" not in _parameters(module):
            continue
        done.add(head)
        if isinstance(head, HeadLinear):
            continue
        name, reason = names.get(head, f"{name}.lm_head"), _unfit(head)
        if reason is not None:
            applied.left.append(Replacement(name, type(head).__name__, f"left: {reason}"))
            continue
        applied._swap(name, head, HeadLinear, _head_says(head), options=options, deferred=False)
        applied._hooks += [
            module.register_forward_pre_hook(_labels_come, with_kwargs=True),
            module.register_forward_hook(_labels_went, always_call=True),
        ]


def _head_of(module: torch.nn.Module) -> torch.nn.Module | None:
    asked = getattr(module, "get_output_embeddings", None)
    head = None
    if callable(asked):
        with contextlib.suppress(AttributeError, NotImplementedError):  # of a body without a head
            head = asked()
    head = getattr(module, "lm_head", None) if head is None else head
    # A head that peft trains as a whole is a copy inside a wrapper, which passes on what that returns.
    copies, active = (getattr(head, name, None) for name in ("modules_to_save", "active_adapter"))
    if isinstance(copies, torch.nn.ModuleDict) and isinstance(active, str) and active in copies:
        head = copies[active]
    return head if isinstance(head, torch.nn.Module) else None


def _parameters(module: torch.nn.Module) -> Iterable[str]:
    return inspect.signature(module.forward).parameters


def _unfit(head: torch.nn.Module) -> str | None:
    """Why a head is left alone, or None."""
    if hasattr(head, "lora_A"):
        return "it has adapters, whose products are added to its logits: merge them, or leave the head out of target_modules"
    if not isinstance(head, torch.nn.Linear):
        return "it is no Linear"
    if isinstance(head, HeadLinear):
        return None
    if type(head) is not torch.nn.Linear:
        return "it is a class derived from Linear"
    if is_tensor_parallel(head):
        return None
    if "forward" in vars(head) or has_forward_hooks(head):
        return "it has hooks, which look at logits"
    return None if type(head.weight) in PLAIN else "its weights are no plain tensor"


def is_tensor_parallel(head: Any) -> bool:
    """Whether `parallelize_module` has divided a layer's classes among processes, and nobody else was put around it."""
    hooked = has_forward_hooks(head) and not has_forward_hooks(head, TENSOR_PARALLEL_HOOKS)
    # Without hooks these are FSDP's shards, which have other rows.
    if parallel_for(head.weight) is None or "forward" in vars(head) or not hooked:
        return False
    parts = [
        parameter.placements for parameter in (head.weight, head.bias) if parameter is not None
    ]
    return all(sum(each.is_shard(0) for each in placements) == 1 and not any(each.is_partial() or each.is_shard(1) for each in placements) for placements in parts)  # fmt: skip


def _head_says(head: Any) -> str:
    return f"openaclnn.HeadLinear: cross entropy of {head.out_features} words without logits"


def _labels_come(module: torch.nn.Module, _: Any, named: dict[str, Any]) -> None:
    head = _head_of(module)
    if isinstance(head, HeadLinear):
        head.deferred = named.get("labels") is not None


def _labels_went(module: torch.nn.Module, *_: Any) -> None:
    head = _head_of(module)
    if isinstance(head, HeadLinear):
        head.deferred = False


class HeadLinear(torch.nn.Linear):
    """A linear layer before a cross entropy. While it is `deferred` and in training, its outputs are `Logits`. With targets it is the loss of its outputs:
    computed inside the layer's call, where FSDP has gathered its weights.
    """

    deferred: bool = False
    options: dict[str, Any] = {}

    def __call__(self, input: Tensor, *loss: Any) -> Any:
        if not loss and self.deferred and self.training and self._calls_are_its_own():
            return Logits(self, input, autocast_dtype(input))
        return super().__call__(input, *loss)

    def forward(self, input: Tensor, target: Any = None, scale: float = 1.0, options: Any = None) -> Any:  # fmt: skip
        divided = is_tensor_parallel(self)
        if target is None:
            lazy = self.deferred and self.training and divided
            return Logits(self, input, autocast_dtype(input)) if lazy else super().forward(input)
        if parallel_for(self.weight) is not None and not divided:
            raise RuntimeError(
                "the weights of a head are in shards where its loss is computed: compute it in the model's forward, "
                "or let the head have a fully_shard of its own"
            )
        bias: Any = self.bias
        if scale != 1.0:
            input, bias = input * scale, None if bias is None else bias * scale
        return functional.linear_cross_entropy(
            input, self.weight, target, linear_bias=bias, **self.options, **options
        )

    def _calls_are_its_own(self) -> bool:
        """Whether nobody was put around it since who waits for logits. FSDP's hooks gather weights; those of a tensor-parallel layer are called, and `forward` gives
        the logits that are not computed."""
        sharded = sys.modules.get("torch.distributed.fsdp")
        if isinstance(self, getattr(sharded, "FSDPModule", ())):
            # Divided once, or among tensor-parallel processes, too.
            placements = getattr(self.weight, "placements", ())
            return sum(not each.is_replicate() for each in placements) <= 1
        return type(self.weight) in PLAIN and "forward" not in vars(self) and not has_forward_hooks(self)  # fmt: skip

    def __repr__(self) -> str:
        return f"openaclnn.{super().__repr__()}"


@dataclass(eq=False, repr=False)
class Logits:
    """Outputs of a linear layer that are computed when somebody looks at them. What a model does with logits before their cross entropy is kept in mind
    (rows taken out, shapes of rows, numbers to multiply with, tanh, FLOAT), and the loss is computed without them. All else that tensors have is asked of
    the tensor, which is computed then, as `materialize` does.
    """

    head: Any
    input: Tensor
    autocast: Any  # the dtype to which the layer would have cast its input, or None
    steps: tuple[Any, ...] = ()
    tensor: Tensor | None = None
    # Whether autograd would know the tensor, whoever asks for it, and when.
    recorded: bool = field(default_factory=torch.is_grad_enabled)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.input.shape[:-1], self.head.out_features))

    @property
    def dtype(self) -> torch.dtype:
        if any(step == ("float",) for step in self.steps):
            return torch.float32
        return self.autocast or self.input.dtype

    @property
    def device(self) -> torch.device:
        return self.input.device

    @property
    def ndim(self) -> int:
        return self.input.dim()

    def dim(self) -> int:
        return self.input.dim()

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __repr__(self) -> str:
        known = "" if self.tensor is not None else ", not computed"
        return f"Logits(shape={tuple(self.shape)}, dtype={self.dtype}{known})"

    def materialize(self) -> Tensor:
        """The tensor as the layer would have computed it, which autograd knows then, be it asked for where nothing is recorded."""
        if self.tensor is None:
            # The hooks of a tensor-parallel head have been called: what they do with logits is among the steps.
            divided = parallel_for(self.input) is not None
            layer = torch.nn.Linear.forward if divided else torch.nn.Linear.__call__
            with torch.inference_mode(not self.recorded and torch.is_inference_mode_enabled()), torch.set_grad_enabled(self.recorded):  # fmt: skip
                with self._cast(self.autocast):
                    tensor = layer(self.head, self.input)
                for name, *number in self.steps:
                    tensor = getattr(tensor, name)(*number)
            self.tensor = tensor
        return self.tensor

    def _cast(self, dtype: Any) -> Any:
        device = self.input.device.type
        return contextlib.nullcontext() if dtype is None else torch.autocast(device, dtype=dtype)

    # What is kept in mind.

    def _like(self, input: Tensor) -> Logits:
        return Logits(self.head, input, self.autocast, self.steps, None, self.recorded and torch.is_grad_enabled())  # fmt: skip

    def _then(self, *step: Any) -> Any:
        if self.tensor is not None or not all(isinstance(each, (int, float)) for each in step[1:]):
            return getattr(self.materialize(), step[0])(*step[1:])
        return self._with(*step)

    def _with(self, *step: Any) -> Logits:
        after = self._like(self.input)
        after.steps += (step,)
        return after

    def to(self, *arguments: Any, **named: Any) -> Any:
        if self.tensor is None and not named and len(arguments) == 1:
            if arguments[0] is torch.float32:
                return self.float()
            if arguments[0] in (self.dtype, self.device):
                return self
        return self.materialize().to(*arguments, **named)

    @property
    def placements(self) -> Any:
        """Of DTensors: in the classes' parts at first."""
        if parallel_for(self.input) is None:
            raise AttributeError("Logits have no placements")
        from torch.distributed.tensor import Shard

        moves = [step[2] for step in self.steps if step[0] == "redistribute"]
        last = self.ndim - 1
        parts = [Shard(last) if each.is_shard(0) else each for each in self.head.weight.placements]
        return moves[-1] if moves else tuple(parts)

    def redistribute(self, device_mesh: Any = None, placements: Any = None, **named: Any) -> Any:
        mesh = getattr(self.head.weight, "device_mesh", None)
        if self.tensor is not None or placements is None or device_mesh not in (None, mesh):
            whole: Any = self.materialize()
            return whole.redistribute(device_mesh, placements, **named)
        return self._with("redistribute", None, tuple(placements))

    def to_local(self, **named: Any) -> Any:
        if (
            self.tensor is None
            and not named
            and all(each.is_replicate() for each in self.placements)
        ):
            return self._with("to_local")
        whole: Any = self.materialize()
        return whole.to_local(**named)

    def contiguous(self) -> Any:
        return self if self.tensor is None else self.tensor.contiguous()

    def reshape(self, *shape: Any) -> Any:
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if self.tensor is not None or not sizes or sizes[-1] != self.head.out_features:
            return self.materialize().reshape(*shape)
        return self._like(self.input.reshape(*sizes[:-1], self.input.shape[-1]))

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        if self.tensor is not None or end_dim % self.ndim == self.ndim - 1:
            return self.materialize().flatten(start_dim, end_dim)
        return self._like(self.input.flatten(start_dim, end_dim % self.ndim))

    def __getitem__(self, index: Any) -> Any:
        if self.tensor is not None or not self._keeps_classes(index):
            return self.materialize()[index]
        return self._like(self.input[index])

    def _keeps_classes(self, index: Any) -> bool:
        """Whether an index leaves the last axis as it is."""
        items = index if isinstance(index, tuple) else (index,)
        last = items[-1] if items else ...
        if last is ... or any(each is ... for each in items):
            return last is ... or (isinstance(last, slice) and last == slice(None))
        axes = 0
        for each in items:
            boolean = isinstance(each, Tensor) and each.dtype is torch.bool
            if not (boolean or isinstance(each, (int, slice, Tensor)) or each is None):
                return False
            axes += each.dim() if boolean else each is not None
        return axes < self.ndim or (isinstance(last, slice) and last == slice(None))

    # What is computed.

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:  # fmt: skip
        named = named or {}
        logits = arguments[0] if arguments else None
        if isinstance(logits, Logits) and logits.tensor is None:
            if function is torch.tanh:
                return logits.tanh()
            if function in (torch_functional.cross_entropy, functional.cross_entropy):
                loss = logits._cross_entropy(*arguments[1:], **named)
                if loss is not None:
                    return loss
        return function(
            *map(_materialized, arguments), **{k: _materialized(v) for k, v in named.items()}
        )

    def _cross_entropy(
        self, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
        reduction: str = "mean", label_smoothing: Any = 0.0, *, inplace: bool = False, **more: Any,
    ) -> Any:  # fmt: skip
        """The loss of rows without their logits; None where these have to be computed."""
        applied = self._scale_and_cap()
        rows = self.ndim == 2 and isinstance(target, Tensor) and target.shape == self.shape[:1]
        reverted = not isinstance(self.head, HeadLinear)
        if (
            applied is None
            or not rows
            or self._divides_rows()
            or reverted
            or size_average is not None
            or reduce is not None
        ):
            return None
        scale, softcap = applied
        options = {
            "weight": weight, "ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing,
            "softcap": softcap, **more,
        }  # fmt: skip
        # Under autocast the loss of 16-bit logits is FLOAT, as that of logits which a model made FLOAT.
        narrow = self.input.dtype in (torch.float16, torch.bfloat16)
        widened = self.input.dtype if narrow and self.dtype is torch.float32 else None
        with self._cast(self.autocast or widened):
            if parallel_for(self.input) is None:
                return self.head(self.input, target, scale, options)
            # By no hook: those of a tensor-parallel head are for logits.
            loss = self.head.forward(self.input, target, scale, options)
            return loss.to_local() if ("to_local",) in self.steps else loss

    def _divides_rows(self) -> bool:
        """Whether somebody wants other processes to have other rows of a tensor-parallel head's logits."""
        if parallel_for(self.input) is None:
            return False
        last = self.ndim - 1
        whole = all(each.is_replicate() or each.is_shard(last) or each.is_shard(-1) for each in self.placements)  # fmt: skip
        return not (whole and is_tensor_parallel(self.head))

    def _scale_and_cap(self) -> tuple[Any, Any] | None:
        """The steps as a factor, and a cap on the logits (0 for none) by tanh; None if they are something else."""
        steps = [step for step in self.steps if step[0] not in ("float", "redistribute", "to_local")]  # fmt: skip
        cap = 0.0
        if len(steps) >= 3 and [step[0] for step in steps[-3:]] == ["__truediv__", "tanh", "__mul__"]:  # fmt: skip
            cap = steps[-1][1]
            if steps[-3][1] != cap or cap <= 0:
                return None
            steps = steps[:-3]
        scale = 1.0
        for name, *number in steps:
            if name == "tanh" or number[0] == 0:
                return None
            scale = scale * number[0] if name == "__mul__" else scale / number[0]
        return scale, float(cap)

    def __getattr__(self, name: str) -> Any:
        if "tensor" not in self.__dict__ or name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"Logits have no {name}")
        return getattr(self.materialize(), name)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.materialize())

    __hash__ = object.__hash__


def _materialized(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and any(isinstance(each, Logits) for each in value):
        return type(value)(map(_materialized, value))
    return value.materialize() if isinstance(value, Logits) else value


def _kept_in_mind(name: str) -> Callable[..., Any]:
    return lambda self, *numbers: self._then(name, *numbers)


for _name, _step in {"float": "float", "tanh": "tanh", "__mul__": "__mul__", "__rmul__": "__mul__", "__truediv__": "__truediv__"}.items():  # fmt: skip
    setattr(Logits, _name, _kept_in_mind(_step))


def _of_the_tensor(name: str) -> Callable[..., Any]:
    return lambda self, *arguments: getattr(self.materialize(), name)(*map(_materialized, arguments))  # fmt: skip


# Python looks these up in the class.
for _name in (
    "add", "radd", "sub", "rsub", "rtruediv", "floordiv", "mod", "pow", "rpow", "matmul", "rmatmul", "neg", "abs",
    "eq", "ne", "lt", "le", "gt", "ge", "len", "bool", "float", "int", "contains", "setitem", "array",
):  # fmt: skip
    setattr(Logits, f"__{_name}__", _of_the_tensor(f"__{_name}__"))
del _name, _step


# FSDP looks for tensors in a module's outputs, whose gradients tell it that backward begins: walking through data classes or pytrees, it finds hidden states.
register_pytree(
    Logits,
    lambda logits: (
        [logits.input, logits.tensor],
        (logits.head, logits.autocast, logits.steps, logits.recorded),
    ),
    lambda tensors, rest: Logits(rest[0], tensors[0], rest[1], rest[2], tensors[1], rest[3]),
)
