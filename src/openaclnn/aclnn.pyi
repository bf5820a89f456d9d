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

def aclnnCrossEntropyLossGetWorkspaceSize(
    input: Any,
    target: Any,
    weightOptional: Any,
    reductionOptional: Any,
    ignoreIndex: Any,
    labelSmoothing: Any,
    lseSquareScaleForZloss: Any,
    returnZloss: Any,
    lossOut: Any,
    logProbOut: Any,
    zlossOut: Any,
    lseForZlossOut: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnCrossEntropyLoss(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

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

def aclnnEluGetWorkspaceSize(
    self: Any,
    alpha: Any,
    scale: Any,
    inputScale: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnElu(
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

def aclnnInplaceEluGetWorkspaceSize(
    selfRef: Any,
    alpha: Any,
    scale: Any,
    inputScale: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceElu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnL1LossGetWorkspaceSize(
    self: Any,
    target: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnL1Loss(
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

def aclnnLogSoftmaxGetWorkspaceSize(
    self: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLogSoftmax(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLogSoftmaxBackwardGetWorkspaceSize(
    gradOutput: Any,
    output: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLogSoftmaxBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnNLLLossGetWorkspaceSize(
    self: Any,
    target: Any,
    weight: Any,
    reduction: Any,
    ignoreIndex: Any,
    out: Any,
    totalWeightOut: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnNLLLoss(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnNLLLoss2dGetWorkspaceSize(
    self: Any,
    target: Any,
    weight: Any,
    reduction: Any,
    ignoreIndex: Any,
    out: Any,
    totalWeightOut: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnNLLLoss2d(
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

def aclnnNLLLossBackwardGetWorkspaceSize(
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
def aclnnNLLLossBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSmoothL1LossGetWorkspaceSize(
    self: Any,
    target: Any,
    reduction: Any,
    beta: Any,
    result: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSmoothL1Loss(
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

def aclnnSoftmaxGetWorkspaceSize(
    self: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftmax(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftmaxBackwardGetWorkspaceSize(
    gradOutput: Any,
    output: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftmaxBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftmaxCrossEntropyWithLogitsGetWorkspaceSize(
    features: Any,
    labels: Any,
    loss: Any,
    backprop: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftmaxCrossEntropyWithLogits(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...
