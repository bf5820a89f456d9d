"""Phase one makes an `Executor`; phase two queues its work on a stream. Single use, unless made repeatable."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.calls.guard import announce_write, check_memory, check_overlap
from openaclnn.calls.planned import planned
from openaclnn.core.declare import Operator
from openaclnn.core.interop import torch_tensor_of
from openaclnn.core.plan import Plan, covered_elements
from openaclnn.core.status import AclnnError, Status, record_message
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Runner
from openaclnn.runtime import AclFailure, Stream, current_stream, default_stream, memory
from openaclnn.runtime.device import device_named

__all__ = ["Executor", "phase_one", "phase_two"]


_SMALL = 1 << 16
"""Elements up to which a kernel runs in the calling thread, on a stream without work."""


class Executor:
    """A checked and planned call. `tensors` are all tensors of phase one in C order, null ones as None."""

    __slots__ = (
        "__weakref__",
        "_lock",
        "device",
        "inputs",
        "operands",
        "operator",
        "output",
        "owners",
        "plan",
        "quick",
        "repeatable",
        "runner",
        "small",
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
        device: str,
    ) -> None:
        self.operator = operator
        self.plan = plan
        self.operands = operands
        self.inputs = inputs
        self.output = output
        self.runner = runner
        self.small = covered_elements(plan) <= _SMALL
        self.repeatable = False
        self.device = device  # where the tensors lie
        # What `forget` takes away: the memory as it was checked, and the short way that relies on it.
        self.owners: list[Any] | None = None
        self.quick: Callable[[Any], bool] | None = None
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
    known, values = planned(operator, arguments, workspace_size, executor)
    plan, runner, places, inputs, output, device = known
    operands = [values[place] for place in places]
    given = [values[place] for place in inputs]
    made = Executor(operator, plan, operands, given, values[output], runner, device)
    # A raw tensor may get its address later; what is known already is checked where the caller can see it.
    known_addresses = [
        (operand, tensor)
        for operand, tensor in zip((*plan.inputs, plan.output), operands, strict=False)
        if tensor.raw and tensor.base  # other memory is alive as long as its tensor
    ]
    if known_addresses:
        _remembering.add(made)
        owners = check_memory(plan, *zip(*known_addresses, strict=True))
        if len(owners) == len(operands):
            made.owners = owners
            if made not in _remembering:  # memory was freed while we looked
                made.owners = None
    return made


_remembering: weakref.WeakSet[Executor] = weakref.WeakSet()
"""Executors that rely on what they found; one that is no longer in here must look again."""


def forget() -> None:
    """Memory was freed, or a descriptor changed: executors are checked anew."""
    for executor in list(_remembering):
        _remembering.discard(executor)
        executor.owners = executor.quick = None


memory.listeners.append(forget)


def _quick(
    executor: Executor, runner: Runner, addresses: tuple[int, ...], owners: Any
) -> Callable[[Any], bool]:
    """A repeated phase two, good until `forget`: nothing that was checked before can have changed."""

    def run(handle: Any, owners: Any = owners) -> bool:
        try:
            queue = default_stream() if handle is None else current_stream(handle)
        except AclFailure:  # the full way says it with the right status
            return False
        if executor.spent or queue.device.name != executor.device:
            return False
        return queue.launch_now(runner, addresses)

    return run


def _run_elsewhere(queue: Stream, runner: Runner, addresses: Sequence[int], name: str) -> None:
    """A kernel whose memory is not of the stream's device: it starts and ends in its turn."""
    queue.drain()
    device = device_named(name)
    device.enter()
    runner(addresses, 0)
    device.drain(0)


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
    try:
        queue = current_stream(stream)
        if plan.empty or executor.runner is None:
            return
        # Descriptors may be destroyed or re-addressed once this returns, so addresses are taken now.
        tensors = executor.operands
        if executor.repeatable:
            _remembering.add(executor)
        owners = executor.owners or check_memory(plan, (*plan.inputs, plan.output), tensors)
        check_overlap(plan, tensors)
        announce_write(name, plan.output.parameter, executor.output)
        addresses, runner = tuple([tensor.address for tensor in tensors]), executor.runner
        here = queue.device.name == executor.device

        def task(owners: Any = owners) -> None:
            if here:
                queue.launch(runner, addresses)
            else:
                _run_elsewhere(queue, runner, addresses, executor.device)

        # On a GPU this only queues the work; on the host, waking the worker costs more than a small kernel.
        at_once = here and (executor.small or executor.device != "cpu")
        if not at_once or not queue.launch_now(runner, addresses):
            queue.submit(task)
        if at_once and executor.repeatable and torch_tensor_of(executor.output) is None:
            executor.quick = _quick(executor, runner, addresses, owners)
            if executor not in _remembering:  # memory was freed meanwhile
                executor.quick = None
    except AclFailure as failure:
        raise AclnnError(
            Status.ACLNN_ERR_RUNTIME_ERROR, name, "stream", "a live stream", str(failure)
        ) from failure
