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

def aclnnReluGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnRelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceReluGetWorkspaceSize(
    selfRef: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceRelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLeakyReluGetWorkspaceSize(
    self: Any,
    negativeSlope: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLeakyRelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceLeakyReluGetWorkspaceSize(
    selfRef: Any,
    negativeSlope: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceLeakyRelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLeakyReluBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    negativeSlope: Any,
    selfIsResult: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLeakyReluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSquaredReluGetWorkspaceSize(
    input: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSquaredRelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnAddReluGetWorkspaceSize(
    self: Any,
    other: Any,
    alpha: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnAddRelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceAddReluGetWorkspaceSize(
    selfRef: Any,
    other: Any,
    alpha: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceAddRelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnThresholdGetWorkspaceSize(
    self: Any,
    threshold: Any,
    value: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnThreshold(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceThresholdGetWorkspaceSize(
    selfRef: Any,
    threshold: Any,
    value: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceThreshold(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnThresholdBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    threshold: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnThresholdBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardtanhBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    min: Any,
    max: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardtanhBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHeavisideGetWorkspaceSize(
    input: Any,
    values: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHeaviside(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardshrinkGetWorkspaceSize(
    self: Any,
    lambd: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardshrink(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardshrinkBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    lambd: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardshrinkBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftshrinkGetWorkspaceSize(
    self: Any,
    lambd: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftshrink(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftshrinkBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    lambd: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftshrinkBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnShrinkGetWorkspaceSize(
    self: Any,
    lambd: Any,
    bias: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnShrink(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSigmoidGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSigmoid(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceSigmoidGetWorkspaceSize(
    selfRef: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceSigmoid(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSigmoidBackwardGetWorkspaceSize(
    gradOutput: Any,
    output: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSigmoidBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSiluGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSilu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSiluBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSiluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSwishGetWorkspaceSize(
    self: Any,
    betaOptional: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSwish(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSwishBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    betaOptional: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSwishBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnFastGeluGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnFastGelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnFastGeluBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnFastGeluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLogSigmoidGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLogSigmoid(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLogSigmoidForwardGetWorkspaceSize(
    self: Any,
    out: Any,
    buffer: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLogSigmoidForward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLogSigmoidBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    buffer: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLogSigmoidBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftplusGetWorkspaceSize(
    self: Any,
    beta: Any,
    threshold: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftplus(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftplusBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    beta: Any,
    threshold: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftplusBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnMishGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnMish(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceMishGetWorkspaceSize(
    selfRef: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceMish(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnMishBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnMishBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLogitGetWorkspaceSize(
    input: Any,
    eps: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLogit(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnLogitGradGetWorkspaceSize(
    x: Any,
    dy: Any,
    eps: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnLogitGrad(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardsigmoidGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardsigmoid(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceHardsigmoidGetWorkspaceSize(
    self: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceHardsigmoid(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardsigmoidBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardsigmoidBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardswishGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardswish(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceHardswishGetWorkspaceSize(
    self: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceHardswish(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardswishBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardswishBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnHardswishBackwardV2GetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnHardswishBackwardV2(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeluGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeluV2GetWorkspaceSize(
    x: Any,
    approximate: Any,
    y: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGeluV2(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeluBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGeluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeluBackwardV2GetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    approximate: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGeluBackwardV2(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGluGetWorkspaceSize(
    self: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGlu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGluBackwardGetWorkspaceSize(
    gradOut: Any,
    self: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSwiGluGetWorkspaceSize(
    x: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSwiGlu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSwiGluGradGetWorkspaceSize(
    yGrad: Any,
    x: Any,
    dim: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSwiGluGrad(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeGluGetWorkspaceSize(
    self: Any,
    dim: Any,
    approximate: Any,
    out: Any,
    outGelu: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGeGlu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeGluBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    gelu: Any,
    dim: Any,
    approximate: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGeGluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeGluV3GetWorkspaceSize(
    self: Any,
    dim: Any,
    approximate: Any,
    activateLeft: Any,
    out: Any,
    outGelu: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGeGluV3(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnGeGluV3BackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    gelu: Any,
    dim: Any,
    approximate: Any,
    activateLeft: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnGeGluV3Backward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSeluGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceSeluGetWorkspaceSize(
    selfRef: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceSelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSeluBackwardGetWorkspaceSize(
    gradOutput: Any,
    result: Any,
    gradInput: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSeluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnCeluGetWorkspaceSize(
    self: Any,
    alpha: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnCelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceCeluGetWorkspaceSize(
    selfRef: Any,
    alpha: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceCelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnErfinvGetWorkspaceSize(
    self: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnErfinv(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnInplaceErfinvGetWorkspaceSize(
    selfRef: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnInplaceErfinv(
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

def aclnnBinaryCrossEntropyGetWorkspaceSize(
    self: Any,
    target: Any,
    weight: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnBinaryCrossEntropy(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnBinaryCrossEntropyBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    weightOptional: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnBinaryCrossEntropyBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnBinaryCrossEntropyWithLogitsGetWorkspaceSize(
    self: Any,
    target: Any,
    weightOptional: Any,
    posWeightOptional: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnBinaryCrossEntropyWithLogits(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnBinaryCrossEntropyWithLogitsBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    weightOptional: Any,
    posWeightOptional: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnBinaryCrossEntropyWithLogitsBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnBinaryCrossEntropyWithLogitsTargetBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    weightOptional: Any,
    posWeightOptional: Any,
    reduction: Any,
    gradTarget: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnBinaryCrossEntropyWithLogitsTargetBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnKlDivBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    reduction: Any,
    logTarget: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnKlDivBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnKlDivTargetBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    reduction: Any,
    logTarget: Any,
    gradTarget: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnKlDivTargetBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnMseLossGetWorkspaceSize(
    self: Any,
    target: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnMseLoss(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnMseLossOutGetWorkspaceSize(
    self: Any,
    target: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnMseLossOut(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnMseLossBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnMseLossBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftMarginLossGetWorkspaceSize(
    self: Any,
    target: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftMarginLoss(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnSoftMarginLossBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    target: Any,
    reduction: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnSoftMarginLossBackward(
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

def aclnnPreluGetWorkspaceSize(
    self: Any,
    weight: Any,
    out: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnPrelu(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnPreluBackwardGetWorkspaceSize(
    gradOutput: Any,
    self: Any,
    weight: Any,
    gradInput: Any,
    gradWeight: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnPreluBackward(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnMultilabelMarginLossGetWorkspaceSize(
    self: Any,
    target: Any,
    reduction: Any,
    out: Any,
    isTarget: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnMultilabelMarginLoss(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnCrossEntropySumExpAndIndexLogitGetWorkspaceSize(
    vocabParallelLogits: Any,
    target: Any,
    globalLogitsMax: Any,
    vocabStartIndex: Any,
    vocabEndIndex: Any,
    predictedLogitsOut: Any,
    sumExpLogitsOut: Any,
    expLogitsOut: Any,
    targetOffsetOut: Any,
    targetMaskOut: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnCrossEntropySumExpAndIndexLogit(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize(
    logitsMax: Any,
    sumExpLogits: Any,
    predictedLogits: Any,
    labelSmoothing: Any,
    inputOptional: Any,
    weightOptional: Any,
    vocabParallelLogitsOptional: Any,
    lossOut: Any,
    softMaxOutOptional: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnFusedCrossEntropyLossWithMaxSum(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(
    input: Any,
    weight: Any,
    target: Any,
    vocabStartIndex: Any,
    vocabEndIndex: Any,
    logitsMaxLocalOut: Any,
    sumExpLogitsLocalOut: Any,
    predictedLogitsLocalOut: Any,
    targetMaskOut: Any,
    maskedTargetOut: Any,
    vocabParallelLogitsOutOptional: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnFusedLinearOnlineMaxSum(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...

def aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(
    grad: Any,
    input: Any,
    weight: Any,
    targetMask: Any,
    maskedTarget: Any,
    labelSmoothing: Any,
    logitsMaxOptional: Any,
    sumExpLogitsOptional: Any,
    softmaxOptional: Any,
    inputGradOut: Any,
    weightGradOut: Any,
    workspaceSize: Any = ...,
    executor: Any = ...,
    /,
) -> tuple[int, int, Executor | None]: ...
def aclnnFusedLinearCrossEntropyLossGrad(
    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None
) -> int: ...
