"""Phase one makes an `Executor`; phase two queues its work on a stream. Single use, unless made repeatable."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from openaclnn.calls.guard import (
    announce_writes,
    check_devices,
    check_memory,
    check_output_layout,
    check_overlap,
    check_storages,
)
from openaclnn.core import rounding
from openaclnn.core.call import CONVERSION_ERRORS, Call, bind_arguments, bind_leniently
from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.interop import (
    HeldStorage,
    as_tensor,
    is_tracked_leaf,
    torch_tensor,
    viewers_now,
)
from openaclnn.core.products import current_product
from openaclnn.core.status import AclnnError, Status, record_message, shown
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Runner, choose_engine
from openaclnn.repeat.phases import CheckedMemory, Launch, Specialization, locate, phase_cache
from openaclnn.runtime import AclFailure, Stream, current_stream, memory
from openaclnn.runtime.device import device_named

_USED = "one that has run already; phase one makes a new one, aclSetAclOpExecutorRepeatable one that runs again"
_SMALL = 1 << 16
"""Elements up to which a kernel runs in the calling thread, on a stream without work."""


class Executor:
    """A checked and planned call, with the arguments of phase one in C order: null tensors as None."""

    __slots__ = (
        "__weakref__", "arguments", "checked", "kind", "launch", "located", "operator", "repeatable", "runner", "spent", "turn",
    )  # fmt: skip
    c_name = "aclOpExecutor"

    def __init__(
        self, operator: Operator, kind: Specialization, launch: Launch, arguments: tuple[Any, ...], located: CheckedMemory | None = None
    ) -> None:  # fmt: skip
        self.operator = operator
        self.kind = kind
        self.launch = launch
        self.runner = launch.runner
        self.arguments = arguments  # in C order: tensors and numbers, or the caller's arrays
        self.located = located  # the memory of the caller's arrays, until somebody asks for tensors
        self.checked = located  # the memory as it was checked; `forget` takes it away
        self.repeatable = False
        self.spent = ""  # why it cannot run any more
        self.turn = True  # deleted by whoever runs it: in one step, as threads may come together

    def described(self) -> tuple[Any, ...]:
        """The arguments, with arrays as tensors. A tensor of PyTorch's may have got other memory since: the call is over what it had."""
        if self.located is not None:
            addresses, owners = self.located
            held = {id(owner.tensor): owner for owner in owners if type(owner) is HeldStorage}
            places, passed = self.operator.places, self.arguments
            views = list(passed)
            for parameter in self.operator.tensors:
                place = places[parameter.name]
                views[place] = None if passed[place] is None else as_tensor(passed[place])
            for place, address in zip(self.kind.operands, addresses, strict=True):
                view = views[place]
                view.base, view.owner = address, held.get(id(passed[place]), view.owner)
            self.arguments, self.located, self.checked = tuple(views), None, None
        return self.arguments

    @property
    def tensors(self) -> list[Tensor]:
        """The kernel's tensors, outputs last."""
        arguments = self.described()
        return [arguments[place] for place in self.kind.operands]

    @property
    def inputs(self) -> list[Tensor | None]:
        """The tensors that are read, in C order."""
        return [self.described()[place] for place in self.operator.input_places]

    @property
    def outputs(self) -> list[Tensor | None]:
        """The tensors that are written, in C order."""
        return [self.described()[place] for place in self.operator.output_places]

    def repeat(self) -> None:
        """Let it run many times."""
        self.repeatable = True

    def take(self) -> None:
        """Use up one that is not repeatable, or refuse if somebody did before."""
        if not self.spent:
            try:
                del self.turn
            except AttributeError:  # another thread is just doing so
                self.spent = _USED
            else:
                self.spent = _USED
                return
        raise AclnnError(
            Status.ACLNN_ERR_INNER_NULLPTR, self.operator.name, "executor",
            "one that has not run yet", self.spent,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<aclOpExecutor of {self.operator.name}{', spent' if self.spent else ''}>"


def fail(error: AclnnError) -> int:
    """Turn a refusal into its status and this thread's recent message."""
    with suppress(MemoryError):  # the status must come back all the same
        record_message(error.status, error.args[0], error.rule)
    return error.status


def fail_inside(operator: str, error: BaseException) -> int:
    """The same of a fault of ours, or of too little memory."""
    status = Status.ACLNN_ERR_INNER
    try:
        told = f"{type(error).__name__}: {error}"
        return fail(AclnnError(status, operator, "call", "to finish", told))
    except MemoryError:
        return status


def phase_one(
    operator: Operator, arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> Executor:
    """Bind, check and plan; raises AclnnError where the interface returns a status."""
    passed, located = arguments, None
    if workspace_size and executor:
        located = locate(operator, arguments)
        if located is None:
            arguments = _with_views(arguments)
            located = locate(operator, arguments)
    if located is None:
        kind, launch, arguments = planned(operator, passed, arguments, workspace_size, executor)
        checked = None
    else:
        kind, launch, checked = located
    found = Executor(operator, kind, launch, arguments, checked)
    if checked is None and launch.runner is not None:
        _look_early(found)
    return found


@undivided
def planned(
    operator: Operator, passed: tuple[Any, ...], arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> tuple[Specialization, Launch, tuple[Any, ...]]:  # fmt: skip
    """Bind, check and plan: what is the same for all calls like this one and what runs it, and the arguments as tensors and plain numbers. The next call
    like it is known by what was `passed`, and as arguments with views."""
    if not rounding.is_standard():
        with rounding.standard():
            return planned(operator, passed, arguments, workspace_size, executor)
    call = _bound(operator, arguments, workspace_size, executor)
    operator.verify(call)
    for output in operator.outputs:
        if call.has_tensor(output.name):
            check_output_layout(operator.name, output.name, call.tensor(output.name))
    device = check_devices(call)
    plan = operator.plan(call)
    choice = None if plan.empty else choose_engine(plan, device)
    kind = Specialization(operator, plan, device, choice)
    if workspace_size and executor:
        phase_cache(operator).enter(passed, arguments, kind, choice)
    return kind, kind.exact, tuple(call.values.values())


def _bound(
    operator: Operator, arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> Call:
    """The arguments as a call; of those that cannot be bound, what is null is told first."""
    product = current_product()
    try:
        return bind_arguments(operator, arguments, product, workspace_size, executor)
    except AclnnError as error:
        call = bind_leniently(operator, arguments, product, workspace_size, executor)
        raise operator.null_violation(call) or error from None


def _with_views(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with arrays as tensors; what cannot be viewed is left for binding to refuse, like what may not be written."""
    viewers, tensor = viewers_now(), torch_tensor()
    viewed: list[Any] = []
    for value in arguments:
        view = viewers.get(type(value)) or (as_tensor if type(value) is tensor else None)
        try:
            if view is None or (type(value) is tensor and is_tracked_leaf(value)):
                viewed.append(value)
            else:
                viewed.append(view(value))
        except CONVERSION_ERRORS:
            viewed.append(value)
    return tuple(viewed)


def _look_early(executor: Executor) -> None:
    """Look at the memory in phase one already, so that a broken rule is told where the caller can see it; a raw tensor may get its address
    later, and with it lie apart."""
    noticed, kind, tensors = memory.notices(), executor.kind, executor.tensors
    extents = executor.launch.extents
    checked = check_memory(kind.plan, extents, tensors, kind.device, later=True)
    if checked is not None:
        with suppress(AclnnError):
            check_overlap(kind.plan, extents, tensors, checked[0])
            _rely(executor, checked, noticed)


_watched: set[weakref.ref[Executor]] = set()
"""Executors whose `checked` holds until `forget`."""


def _rely(executor: Executor, checked: CheckedMemory, noticed: int) -> None:
    """Let an executor rely on memory that was checked, until `forget`.

    `noticed` is the count of changes from before the looking: one that came meanwhile counts too.
    """
    executor.checked = checked
    _watched.add(weakref.ref(executor, _watched.discard))
    if memory.notices() != noticed:
        executor.checked = None


def forget() -> None:
    """Memory was freed, or a descriptor changed: executors look at their memory again before they run."""
    while _watched:
        try:
            executor = _watched.pop()()
        except KeyError:  # another thread was faster
            break
        if executor is not None:
            executor.checked = None


memory.listeners.append(forget)


def _checked(executor: Executor) -> CheckedMemory:
    """Where the tensors lie now; a broken rule of memory is refused."""
    noticed, kind, tensors = memory.notices(), executor.kind, executor.tensors
    extents = executor.launch.extents
    checked = check_memory(kind.plan, extents, tensors, kind.device)
    assert checked is not None
    check_overlap(kind.plan, extents, tensors, checked[0])
    _rely(executor, checked, noticed)
    return checked


def _run_elsewhere(queue: Stream, runner: Runner, addresses: Sequence[int], name: str) -> None:
    """Run a kernel whose memory is on another device than the stream, which waits for it."""
    queue.drain()
    device = device_named(name)
    device.enter()
    runner(addresses, 0)
    device.drain(0)


def phase_two(
    operator: Operator, workspace: Any, workspace_size: int, executor: Any, stream: Any
) -> None:
    """Queue the executor's work on a stream; raises AclnnError where the interface returns a status."""
    if type(executor) is not Executor or executor.operator is not operator:
        raise _foreign(operator.name, executor)
    if executor.spent or not executor.repeatable:
        executor.take()  # used up even when what follows fails
    kind = executor.kind
    if workspace_size and not workspace:
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_NULLPTR, operator.name, "workspace", f"{workspace_size} bytes", "null"
        )  # fmt: skip
    if operator.generated and workspace_size < kind.plan.workspace:
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_INVALID, operator.name, "workspaceSize", f"{kind.plan.workspace}",
            f"{workspace_size}",
        )  # fmt: skip
    try:
        queue = current_stream(stream)
        runner = executor.runner
        if runner is None:
            return
        # Descriptors may be destroyed or re-addressed once this returns, so addresses are taken now.
        checked = executor.checked or _checked(executor)
        check_storages(operator, executor.arguments, checked[1])
        announce_writes(operator, executor.arguments)
        here = queue.device.name == kind.device
        # On a GPU this only queues the work; on the host, waking the worker costs more than a small kernel.
        at_once = executor.launch.size <= _SMALL or kind.device != "cpu"
        if here and at_once and queue.launch_now(runner, checked[0]):
            return
        queue.submit(_task(queue, runner, executor, checked, "" if here else kind.device))
    except AclFailure as failure:
        raise AclnnError(
            Status.ACLNN_ERR_RUNTIME_ERROR,
            operator.name,
            failure.argument,
            failure.expected,
            failure.got,
        ) from failure


def _task(
    queue: Stream, runner: Runner, executor: Executor, checked: CheckedMemory, elsewhere: str
) -> Callable[[], None]:
    """What the stream runs in its turn; until then it holds the executor, and so the arrays."""

    def task(keep: Executor = executor) -> None:
        if elsewhere:
            _run_elsewhere(queue, runner, checked[0], elsewhere)
        else:
            queue.launch(runner, checked[0])

    return task


def _foreign(name: str, executor: Any) -> AclnnError:
    if executor is None:
        return AclnnError(
            Status.ACLNN_ERR_PARAM_NULLPTR, name, "executor", "the executor of phase one", "null"
        )
    whose = f" of {executor.operator.name}" if isinstance(executor, Executor) else ""
    return AclnnError(
        Status.ACLNN_ERR_INNER_NULLPTR, name, "executor", f"an executor of {name}",
        shown(executor) + whose,
    )  # fmt: skip
