"""The two-phase interface under its C names, made from the registry.

    status, workspace_size, executor = aclnnEluBackwardGetWorkspaceSize(...)
    status = aclnnEluBackward(workspace, workspace_size, executor, stream)

Nothing here raises: each function returns a status, and `aclGetRecentErrMsg()` gives the text. Tensors are
`aclCreateTensor` descriptors or arrays, scalars `aclCreateScalar` ones or numbers, None is a null pointer.
The two result pointers that end a C argument list may be passed as None too, to see what null does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openaclnn.calls.executor import (
    Executor,
    fail,
    fail_inside,
    phase_one,
    phase_two,
)
from openaclnn.core.declare import Operator, registry
from openaclnn.core.status import AclnnError, Status, shown
from openaclnn.core.tensor import Tensor
from openaclnn.operators import FAMILIES, family_of, load_family
from openaclnn.runtime.api_init import aclGetRecentErrMsg
from openaclnn.runtime.memory import look_at, notify

_WANTED = object()  # stands for "a pointer to put the result in"


def _first_phase(operator: Operator) -> Callable[..., tuple[int, int, Executor | None]]:
    count = len(operator.parameters)
    name = f"{operator.name}GetWorkspaceSize"

    def function(*arguments: Any) -> tuple[int, int, Executor | None]:
        try:
            if len(arguments) == count:
                executor = phase_one(operator, arguments, True, True)
                return 0, executor.kind.plan.workspace, executor
            values, pointers = arguments[:count], arguments[count:]
            if len(values) < count or len(pointers) > 2:
                raise AclnnError(
                    Status.ACLNN_ERR_PARAM_INVALID, operator.name, "arguments",
                    f"{count} ({', '.join(p.name for p in operator.parameters)})", f"{len(arguments)}",
                )  # fmt: skip
            size, place, *_ = (*pointers, _WANTED, _WANTED)
            executor = phase_one(operator, values, size is not None, place is not None)
            return 0, executor.kind.plan.workspace, executor
        except AclnnError as error:
            return fail(error), 0, None
        except Exception as error:  # a fault of ours must not take the caller down
            return fail_inside(name, error), 0, None

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{operator.summary}\n\n{operator.prototypes()[0]};"
    return function


def _second_phase(operator: Operator) -> Callable[[Any, int, Any, Any], int]:
    def function(workspace: Any, workspaceSize: int, executor: Any, stream: Any = None) -> int:
        try:
            phase_two(operator, workspace, workspaceSize, executor, stream)
            return 0
        except AclnnError as error:
            return fail(error)
        except Exception as error:  # a fault of ours must not take the caller down
            return fail_inside(operator.name, error)

    function.__name__ = function.__qualname__ = operator.name
    function.__doc__ = f"{operator.prototypes()[1]};"
    return function


def _executor_call(name: str) -> Callable[[Callable[..., None]], Callable[..., int]]:
    """A function on executors under its C name: what it raises becomes a status."""

    def decorate(body: Callable[..., None]) -> Callable[..., int]:
        def function(executor: Any, *arguments: Any) -> int:
            try:
                if not isinstance(executor, Executor):
                    got = "null" if executor is None else shown(executor)
                    raise AclnnError(
                        Status.ACLNN_ERR_INNER_NULLPTR, name, "executor", "an executor", got
                    )
                body(name, executor, *arguments)
                return 0
            except AclnnError as error:
                return fail(error)
            except Exception as error:  # a fault of ours must not take the caller down
                return fail_inside(name, error)

        function.__name__ = function.__qualname__ = name
        function.__doc__ = body.__doc__
        return function

    return decorate


@_executor_call("aclSetAclOpExecutorRepeatable")
def aclSetAclOpExecutorRepeatable(name: str, executor: Executor) -> None:
    """Let phase two run many times with this executor."""
    if executor.spent:
        raise AclnnError(
            Status.ACLNN_ERR_INNER, name, "executor", "one that has not run", executor.spent
        )
    executor.repeat()


@_executor_call("aclDestroyAclOpExecutor")
def aclDestroyAclOpExecutor(name: str, executor: Executor) -> None:
    """End an executor; it cannot run afterwards."""
    if executor.spent == "a destroyed one":
        raise AclnnError(
            Status.ACLNN_ERR_INNER_NULLPTR, name, "executor", "a live executor", executor.spent
        )
    executor.spent = "a destroyed one"


def _set_address(
    name: str, executor: Executor, slots: list[Tensor | None], index: Any, tensor: Any, address: Any
) -> None:
    code = Status.ACLNN_ERR_INNER_NULLPTR
    if executor.spent:
        raise AclnnError(code, name, "executor", "one that can run", executor.spent)
    if not isinstance(tensor, Tensor):
        got = "null" if tensor is None else shown(tensor)
        raise AclnnError(code, name, "tensor", "a tensor", got)
    if not tensor.alive:
        raise AclnnError(code, name, "tensor", "a live tensor", "a destroyed one")
    if executor.operator.generated:
        # Hand-written interfaces ignore the index: they change the descriptor they are given.
        if not 0 <= int(index) < len(slots) or slots[int(index)] is None:
            raise AclnnError(
                Status.ACLNN_ERR_PARAM_INVALID, name, "index",
                f"that of a tensor given to phase one, below {len(slots)}", f"{index}",
            )  # fmt: skip
        tensor = slots[int(index)]
    look_at(tensor, int(address or 0))
    notify()  # other executors may have the same descriptor


@_executor_call("aclSetInputTensorAddr")
def aclSetInputTensorAddr(
    name: str, executor: Executor, index: int, tensor: Any, addr: Any
) -> None:
    """Give an input tensor of a repeatable executor another address."""
    _set_address(name, executor, executor.inputs, index, tensor, addr)


@_executor_call("aclSetOutputTensorAddr")
def aclSetOutputTensorAddr(
    name: str, executor: Executor, index: int, tensor: Any, addr: Any
) -> None:
    """Give an output tensor of a repeatable executor another address."""
    _set_address(name, executor, executor.outputs, index, tensor, addr)


@_executor_call("aclSetTensorAddr")
def aclSetTensorAddr(name: str, executor: Executor, index: int, tensor: Any, addr: Any) -> None:
    """Give any tensor another address; inputs count first, then outputs."""
    _set_address(name, executor, [*executor.inputs, *executor.outputs], index, tensor, addr)


def _no_tensor_lists(name: str, executor: Executor, *arguments: Any) -> None:
    """Give a member of a tensor list another address; no operator here takes a list."""
    raise AclnnError(
        Status.ACLNN_ERR_PARAM_INVALID, name, "irIndex",
        f"a tensor list of {executor.operator.name}", "an operator without tensor lists",
    )  # fmt: skip


_TENSOR_LIST_SETTERS = tuple(f"aclSetDynamic{which}TensorAddr" for which in ("Input", "Output", ""))
for _name in _TENSOR_LIST_SETTERS:
    globals()[_name] = _executor_call(_name)(_no_tensor_lists)

_EXECUTOR_CALLS = (
    "aclSetAclOpExecutorRepeatable", "aclDestroyAclOpExecutor", "aclSetInputTensorAddr",
    "aclSetOutputTensorAddr", "aclSetTensorAddr", *_TENSOR_LIST_SETTERS,
)  # fmt: skip
for _name in _EXECUTOR_CALLS:  # the interface has each of these with a capital A too
    globals()["A" + _name[1:]] = globals()[_name]


def _enter(operator: Operator) -> None:
    """Make the two functions of an operator this module's."""
    globals()[f"{operator.name}GetWorkspaceSize"] = _first_phase(operator)
    globals()[operator.name] = _second_phase(operator)


def __getattr__(name: str) -> Any:
    """The functions of families, which are declared when one of them is asked for."""
    family = family_of(name.removesuffix("GetWorkspaceSize"))
    for operator in load_family(family) if family else ():
        _enter(operator)
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


for _operator in registry():
    _enter(_operator)

__all__ = [
    "aclGetRecentErrMsg",
    *_EXECUTOR_CALLS,
    *("A" + _name[1:] for _name in _EXECUTOR_CALLS),
    *(
        _name
        for _whole in (
            *(each.name for each in registry()),
            *(n for names in FAMILIES.values() for n in names),
        )
        for _name in (f"{_whole}GetWorkspaceSize", _whole)
    ),
]
