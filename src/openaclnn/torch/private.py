"""What this face asks of PyTorch under private names: each behind a function, with a way that does without.

A name that a later PyTorch renames costs time, or sends calls to PyTorch's own kernels; nothing else may name one at import.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

from openaclnn.core.torch_names import named
from openaclnn.torch.refusals import UnservedError

# Below transforms of torch.func a function is applied to one of their levels at a time, which this class is made for; it
# is also quicker to apply than `torch.autograd.Function`.
_of_one_level = named("autograd.function._SingleLevelFunction")
Function: Any = _of_one_level or torch.autograd.Function
"""The class of our formulas."""


def tuned(formula: Any) -> None:
    """Let PyTorch find what it asks of a formula where it looks first. Its engine then calls `backward` itself, without the
    function that would look for it; and what `apply` asks for, by strings that no cache of Python's knows, is the class's own.
    """
    if _of_one_level is None or not hasattr(formula, "_backward_cls"):
        return
    formula._backward_cls.apply = formula.backward
    for name in ("setup_context", "clear_saved_tensors_on_access", "boxed_grads_call"):
        if name in vars(Function):
            setattr(formula, name, vars(Function)[name])


def single_level() -> AbstractContextManager[Any]:
    """A block in which formulas may be applied under transforms of torch.func; without it PyTorch's own functions serve."""
    try:
        from torch._functorch.utils import enable_single_level_autograd_function as allowed
    except ImportError:
        raise UnservedError(
            "this PyTorch has no way for openaclnn's formulas under torch.func"
        ) from None
    if _of_one_level is None:
        raise UnservedError("this PyTorch has no autograd functions of one level, for torch.func")
    block: AbstractContextManager[Any] = allowed()
    return block


_NAMES = (
    "Python", "PythonTLSSnapshot", "PreDispatch", "PythonDispatcher", "Functionalize",
    "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "VmapMode",
)  # fmt: skip


def _behind() -> tuple[Callable[[], Any], int]:
    """What gives the keys that the dispatcher includes in this thread, and those of modes and transforms. Where it cannot be asked, one is
    always there, and all calls go by the dispatcher.
    """
    keys, key, asked = (
        named(f"_C.{name}")
        for name in ("DispatchKeySet", "_dispatch_key_parse", "_dispatch_tls_local_include_set")
    )
    if keys is None or key is None or asked is None:
        return _Unknown, 1
    return asked, reduce(or_, (keys(key(name)).raw_repr() for name in _NAMES))


class _Unknown:
    def raw_repr(self) -> int:
        return 1


included, BEHIND = _behind()

transformed: Callable[[], bool] = named("_C._are_functorch_transforms_active") or (
    lambda: included().raw_repr() & BEHIND != 0
)
"""Whether a transform of torch.func is at work in this thread."""

any_autocast: Callable[[], bool] = named("_C._is_any_autocast_enabled") or (
    lambda: torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
)

is_zero_tensor: Callable[[Any], bool] = named("Tensor._is_zerotensor") or (lambda tensor: False)
"""Whether these are zeros without memory, as derivatives in forward mode have them."""


def _by_trying() -> bool:
    try:
        forward_ad.make_dual(torch.zeros(()), torch.zeros(()))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def _by_level() -> bool:
    return forward_ad._current_level >= 0


forward_mode = _by_level if hasattr(forward_ad, "_current_level") else _by_trying
"""Whether derivatives in forward mode are being taken."""


def _any_of(*arguments: Any, **named: Any) -> bool:
    return any(
        isinstance(argument, torch.Tensor) and argument.requires_grad
        for argument in (*arguments, *named.values())
    )


any_requires_grad: Callable[..., bool] = named("_C._any_requires_grad") or _any_of

below_autograd: Callable[[], AbstractContextManager[Any]] | None = named(
    "_C._AutoDispatchBelowAutograd"
)
"""A block in which the dispatcher passes autograd by. None: what is plain memory has to be computed without the dispatcher."""


def schema_of(overload: Any) -> Any:
    """The arguments and results of an operator of PyTorch's; None where it does not say them, and cannot be replaced."""
    return getattr(overload, "_schema", None)


OPERATORS_MODULE = "torch._ops"
"""Whose functions call an operator and do no more; where it has another name, what is raised below one is a RuntimeError."""


def base_of(tensor: Any) -> Any:
    """The tensor that this is a view of; None if it is none. Where PyTorch does not say it, it may be a view of itself."""
    return getattr(tensor, "_base", tensor)


def graph_break() -> None:
    """End a graph that PyTorch compiles: what traces this has its compiler imported."""
    torch._dynamo.graph_break()


_HOOKS = "_forward_hooks", "_forward_pre_hooks"


def has_forward_hooks(module: torch.nn.Module, of: str | None = None) -> bool:
    """Whether somebody asked to be called around a module's `forward`, by hooks that others than a module of that name made; yes, where it cannot be asked."""
    hooks = [getattr(module, name, None) for name in _HOOKS]
    if None in hooks:
        return True
    return any(getattr(hook, "__module__", "") != of for each in hooks for hook in each.values())  # type: ignore[union-attr]


TENSOR_PARALLEL_HOOKS = "torch.distributed.tensor._api"
"""Whose hooks around a layer make its inputs DTensors, and of its outputs what its plan says; where it has another name, a tensor-parallel head computes its logits."""


def register_pytree(kind: type, taken_apart: Any, put_together: Any) -> bool:
    """Let PyTorch find the tensors inside of objects of a class; False if it cannot be told of them."""
    register = named("utils._pytree.register_pytree_node")
    if register is not None:
        register(kind, taken_apart, put_together)
    return register is not None


def leave(library: Any) -> None:
    """Take out of the dispatcher what a library put there; the caller drops the last reference, which does it too."""
    destroy = getattr(library, "_destroy", None)
    if destroy is not None:
        destroy()


def keys_of(device: str) -> Any:
    """The dispatcher's keys for its kernels of a device, which these are called with; None where the dispatcher has to say them at each
    call, which takes half a microsecond."""
    keys, key = named("_C.DispatchKeySet"), named(f"_C.DispatchKey.{device}")
    return None if keys is None or key is None else keys(key)


def forget_dispatch(name: str) -> None:
    """Let PyTorch's tracers, which remember where the dispatcher has a kernel of an operator of `torch.ops.aten`, look again. Of one at
    autograd's key that is gone they would take its place for that of the operator's derivative: traced, it then had none, silently.
    """
    packet = getattr(torch.ops.aten, name, None)
    if packet is not None:
        getattr(packet.default, "_dispatch_cache", {}).clear()


def keep_compiler_out(function: Any) -> bool:
    """Let PyTorch's compiler, where a graph has ended in front of a call, not look into that; False if it cannot be told so."""
    theirs = named("_C._dynamo.eval_frame")
    skip = theirs and named("_FrameAction.SKIP", theirs)
    if skip is None or not hasattr(theirs, "set_code_exec_strategy"):
        return False
    theirs.set_code_exec_strategy(function.__code__, theirs._FrameExecStrategy(skip, skip))
    return True


_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def uncompiled(function: _Decorated) -> _Decorated:
    """A function that exchanges numbers between processes: compiled graphs end before it, and the next begins behind it. That is
    `torch.compiler.disable`, which would import the compiler, longer than all of this face, for programs that never compile.
    """
    reason = "openaclnn exchanges numbers between processes and calls kernels, which no graph has"
    if not keep_compiler_out(function):
        disabled: _Decorated = torch.compiler.disable(function, reason=reason)  # type: ignore[no-untyped-call]
        return disabled
    marked: Any = function
    marked._torchdynamo_disable, marked._torchdynamo_disable_msg = True, reason  # what it reads
    return function


def remember_options(overload: Any, first: int) -> bool:
    """Let DTensors tell calls apart by all options of an operator, the first of which is at this place. Of those PyTorch would remember integers
    alone, and take the rule of one reduction for another's; False if that cannot be helped.
    """
    from torch.distributed.tensor import DTensor

    try:
        from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    except ImportError:
        return False
    schemas = named("_op_dispatcher.sharding_propagator.op_to_schema_info", DTensor)
    if schemas is None:
        return False
    schemas[overload] = RuntimeSchemaInfo(first, needs_pytree=True)
    return True
