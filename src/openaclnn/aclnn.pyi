# Written by `python -m tools.stubs` from the operators' declarations.
from typing import Any

from openaclnn.calls.executor import Executor
from openaclnn.runtime.api_init import aclGetRecentErrMsg as aclGetRecentErrMsg

def aclSetAclOpExecutorRepeatable(executor: Any, /) -> int: ...
def AclSetAclOpExecutorRepeatable(executor: Any, /) -> int: ...
def aclDestroyAclOpExecutor(executor: Any, /) -> int: ...
def AclDestroyAclOpExecutor(executor: Any, /) -> int: ...
def aclSetInputTensorAddr(executor: Any, index: int, tensor: Any, addr: Any, /) -> int: ...
def AclSetInputTensorAddr(executor: Any, index: int, tensor: Any, addr: Any, /) -> int: ...
def aclSetOutputTensorAddr(executor: Any, index: int, tensor: Any, addr: Any, /) -> int: ...
def AclSetOutputTensorAddr(executor: Any, index: int, tensor: Any, addr: Any, /) -> int: ...
def aclSetTensorAddr(executor: Any, index: int, tensor: Any, addr: Any, /) -> int: ...
def AclSetTensorAddr(executor: Any, index: int, tensor: Any, addr: Any, /) -> int: ...
def aclSetDynamicInputTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any, /) -> int: ...
def AclSetDynamicInputTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any, /) -> int: ...
def aclSetDynamicOutputTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any, /) -> int: ...
def AclSetDynamicOutputTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any, /) -> int: ...
def aclSetDynamicTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any, /) -> int: ...
def AclSetDynamicTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any, /) -> int: ...

def aclnnCrossEntropyLossGradGetWorkspaceSize(
    gradLoss: Any,
    logProb: Any,
    target: Any,
    weightOptional: Any,
    gradZlossOptional: Any,
    lseForZlossOptional: Any,
    reductionOptional: Any,
    ignoreIndex: Any,
    labelSmoothing: Any,
    lseSquareScaleForZloss: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnCrossEntropyLossGrad(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnEluBackwardGetWorkspaceSize(
    gradOutput: Any,
    alpha: Any,
    scale: Any,
    inputScale: Any,
    isResult: Any,
    selfOrResult: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnEluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnL1LossBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    reduction: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnL1LossBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnNLLLoss2dBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    weight: Any,
    reduction: Any,
    ignoreIndex: Any,
    totalWeight: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnNLLLoss2dBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSmoothL1LossBackwardGetWorkspaceSize(
    gradOut: Any,
    self: Any,
    target: Any,
    reduction: Any,
    beta: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSmoothL1LossBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...
