"""Phase one makes an `Executor`; phase two queues its work on a stream. Single use, unless made repeatable."""

from __future__ import annotations

import threading
from typing import Any

from openaclnn.call import bind_arguments
from openaclnn.checks import first_violation
from openaclnn.declare import Operator
from openaclnn.dispatch import Runner, choose_engine
from openaclnn.guard import check_memory, check_output_layout, check_overlap
from openaclnn.plain import check_devices, plan_tensors
from openaclnn.plan import Plan
from openaclnn.products import current_product
from openaclnn.status import AclnnError, Status, record_message
from openaclnn.tensor import Tensor

__all__ = ["Executor", "phase_one", "phase_two"]


class Executor:
    """A checked and planned call. `tensors` are all tensors of phase one in C order, null ones as None."""

    __slots__ = (
        "_lock",
        "inputs",
        "operands",
        "operator",
        "output",
        "plan",
        "repeatable",
        "runner",
        "spent",
    )

    def __init__(
        self,
        operator: Operator,
        plan: Plan,
        operands: list[Tensor],
        inputs: list[Tensor | None],
        output: Tensor,
        runner: Runner | None,
    ) -> None:
        self.operator = operator
        self.plan = plan
        self.operands = operands
        self.inputs = inputs
        self.output = output
        self.runner = runner
        self.repeatable = False
        self.spent = ""  # why it cannot run any more
        self._lock = threading.Lock()

    def take(self) -> None:
        """Use it up, or refuse if somebody did before."""
        with self._lock:
            if self.spent:
                raise AclnnError(
                    Status.ACLNN_ERR_INNER_NULLPTR, self.operator.name, "executor",
                    "one that has not run yet", self.spent,
                )  # fmt: skip
            if not self.repeatable:
                self.spent = "one that has run already and is not repeatable"

    def __repr__(self) -> str:
        return f"<aclOpExecutor of {self.operator.name}{', spent' if self.spent else ''}>"


def fail(error: AclnnError) -> int:
    """Turn a refusal into its status and this thread's recent message."""
    record_message(error.status, error.args[0])
    return error.status


def inner_failure(operator: str, error: Exception) -> AclnnError:
    """What a fault of ours looks like from outside."""
    return AclnnError(
        Status.ACLNN_ERR_INNER, operator, "call", "to finish", f"{type(error).__name__}: {error}"
    )


def phase_one(
    operator: Operator, arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> Executor:
    """Bind, check and plan; raises AclnnError where the interface returns a status."""
    call = bind_arguments(operator, arguments, current_product(), workspace_size, executor)
    error = first_violation(call)
    if error is not None:
        raise error
    output = operator.output.name
    check_output_layout(operator.name, output, call.tensor(output))
    device = check_devices(call)
    plan = operator.plan(call)
    operands = [] if plan.empty else plan_tensors(plan, call)
    # A raw tensor may get its address later; what is known already is checked where the caller can see it.
    known = [
        (operand, tensor)
        for operand, tensor in zip((*plan.inputs, plan.output), operands, strict=False)
        if tensor.base
    ]
    check_memory(plan, [operand for operand, _ in known], [tensor for _, tensor in known])
    runner = None if plan.empty else choose_engine(plan, device).runner
    inputs = [
        call[p.name] if call.given(p.name) else None for p in operator.tensors if p.name != output
    ]
    return Executor(operator, plan, operands, inputs, call.tensor(output), runner)


def phase_two(
    operator: Operator, workspace: Any, workspace_size: int, executor: Any, stream: Any
) -> None:
    """Queue the executor's work on a stream; raises AclnnError where the interface returns a status."""
    name = operator.name
    if executor is None:
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_NULLPTR, name, "executor", "the executor of phase one", "null"
        )
    if not isinstance(executor, Executor) or executor.operator is not operator:
        got = repr(executor) if isinstance(executor, Executor) else f"a {type(executor).__name__}"
        raise AclnnError(
            Status.ACLNN_ERR_INNER_NULLPTR, name, "executor", f"an executor of {name}", got
        )
    executor.take()  # used up even when what follows fails
    if workspace_size and not workspace:
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_NULLPTR, name, "workspace", f"{workspace_size} bytes", "null"
        )
    plan = executor.plan
    if operator.generated and workspace_size < plan.workspace:
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_INVALID,
            name,
            "workspaceSize",
            f"{plan.workspace}",
            f"{workspace_size}",
        )
    from openaclnn.runtime import AclFailure, current_stream

    try:
        queue = current_stream(stream)
        if plan.empty or executor.runner is None:
            return
        # Descriptors may be destroyed or re-addressed once this returns, so addresses are taken now.
        tensors = executor.operands
        owners = check_memory(plan, (*plan.inputs, plan.output), tensors)
        check_overlap(plan, tensors)
        addresses = [tensor.address for tensor in tensors]
        runner = executor.runner

        def task(owners: Any = owners) -> None:
            runner(addresses, queue.native)

        queue.submit(task)
    except AclFailure as failure:
        raise AclnnError(
            Status.ACLNN_ERR_RUNTIME_ERROR, name, "stream", "a live stream", str(failure)
        ) from failure
