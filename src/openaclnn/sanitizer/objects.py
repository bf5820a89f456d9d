"""The rules on objects: their lives from creation to end, executors and their workspace, calls outside of aclInit and aclFinalize."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from openaclnn.calls.executor import Executor
from openaclnn.capi.handles import Unknown, table
from openaclnn.core.status import status_name
from openaclnn.core.tensor import Tensor
from openaclnn.runtime import find_allocation
from openaclnn.runtime.api_init import is_initialized
from openaclnn.runtime.context import requires_context
from openaclnn.runtime.errors import is_null
from openaclnn.sanitizer.events import Call, Rules, Site
from openaclnn.sanitizer.findings import Finding

_REMEMBERED = 4096
"""Ended objects whose history is kept: the newest."""

_SEQUENCES = ("IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList")
_KINDS = {
    "aclCreateTensor": "tensor", "aclCreateScalar": "scalar", **{f"aclCreate{name}": f"acl{name}" for name in _SEQUENCES},
    "aclrtCreateStream": "stream", "aclrtCreateStreamWithConfig": "stream", "aclrtCreateEvent": "event",
    "aclrtCreateEventWithFlag": "event", "aclrtCreateEventExWithFlag": "event", "aclrtCreateContext": "context",
    "aclrtMalloc": "device memory", "aclrtMallocAlign32": "device memory", "aclrtMallocCached": "device memory",
    "aclrtMallocWithCfg": "device memory", "aclrtMallocHost": "host memory",
}  # fmt: skip
"""What a function creates."""

_ENDS = {
    "aclDestroyTensor": "tensor", "aclDestroyScalar": "scalar", **{f"aclDestroy{name}": "array" for name in _SEQUENCES},
    "aclrtDestroyStream": "stream", "aclrtDestroyStreamForce": "stream", "aclrtDestroyEvent": "event", "aclrtDestroyContext": "context",
    "aclDestroyAclOpExecutor": "executor", "aclrtFree": "devPtr", "aclrtFreeWithDevSync": "devPtr", "aclrtFreeHost": "hostPtr",
}  # fmt: skip
"""The parameter whose object a function ends."""

_FINALIZES = ("aclFinalize", "aclFinalizeReference")
_RELEASES = (*_FINALIZES, "aclrtResetDevice", "aclrtResetDeviceForce", "aclrtDestroyContext")
"""They take away what the program did not destroy."""

_ALWAYS = frozenset({
    "aclDataTypeSize", "aclFinalize", "aclFinalizeReference", "aclFloat16ToFloat", "aclFloatToFloat16", "aclGetRecentErrMsg", "aclInit",
    "aclnnFinalize", "aclnnInit", "aclrtGetLastError", "aclrtGetSocName", "aclrtGetVersion", "aclrtPeekAtLastError", "aclsysGetVersionStr",
})  # fmt: skip
"""Functions that need no aclInit; a repeated end has its documented status."""

_POINTERS = {
    "executor": "executor", "event": "event", "startEvent": "event", "endEvent": "event", "context": "context", "stream": "stream",
    "tensor": "tensor", "scalar": "scalar", "devPtr": "device memory", "dst": "device memory", "src": "device memory",
    "tensorData": "device memory", "hostPtr": "host memory",
}  # fmt: skip
"""What parameters with these names point to."""


class _Life:
    """An object or a piece of memory, and where the program created, ran and ended it."""

    def __init__(self, kind: str, value: Any, size: int = 0) -> None:
        self.kind = kind
        # An executor keeps the caller's arrays, which must not live longer than without us.
        self._value = weakref.ref(value) if isinstance(value, Executor) else lambda: value
        self.size = size  # of memory, as the program asked for it; of an executor's workspace
        self.history: list[tuple[str, Site]] = []
        self.ended = False  # the program destroyed it, or phase two did
        self.runs = 0
        self.repeatable = False
        self.released = ""  # what took it away
        self.list: _Life | None = None  # which destroys it
        self.cause: _Failure | None = None  # why a tensor has no memory
        self.key: Any = None
        self.handle = 0

    @property
    def value(self) -> Any:
        return self._value()

    @property
    def name(self) -> str:
        article = "an" if self.kind[0] in "ae" else "a"
        return self.kind if self.kind.endswith("memory") else f"{article} {self.kind}"

    @property
    def gone(self) -> bool:
        """Whether the runtime has it no more."""
        if self.kind.endswith("memory"):
            block = find_allocation(self.value)
            return block is None or block.address != self.value
        return not getattr(self.value, "alive", True)

    def add(self, word: str, call: Call) -> None:
        self.history.append((f"{word} by {call.name}", call.site))


class _Failure:
    """A call that failed to create something."""

    def __init__(self, call: Call) -> None:
        self.name, self.site, self.status = call.name, call.site, call.status or 0

    def __str__(self) -> str:
        return f"{self.name} had failed with {self.status} {status_name(self.status)}"


class ObjectRules(Rules):
    """Objects from their creation to their end."""

    def __init__(self) -> None:
        super().__init__()
        self._lives: dict[Any, _Life] = {}  # by id, or by ("memory", address)
        self._handles: dict[int, _Life] = {}
        self._ended: OrderedDict[int, _Life] = OrderedDict()
        # Lives that are not over, though another one has the key: executors that Python took, addresses that were given anew.
        self._pending: dict[int, _Life] = {}
        self._failures: dict[tuple[int, str], _Failure] = {}  # the newest by thread and kind
        # None: not yet. A watch may begin in the middle of a program.
        self._initialized = is_initialized()
        self._early: Call | None = None
        self._late = False  # the call at hand was told of for coming after the end

    def before(self, call: Call) -> None:
        self._check_initialized(call)
        if not self._late:
            for parameter, value in call.arguments.items():
                self._check_alive(call, parameter, value)
            if call.phase == 2:
                self._check_phase_two(call)

    def after(self, call: Call) -> None:
        self._follow_initialization(call)
        if call.status:
            self._check_failed(call)
        kind = "executor" if call.phase == 1 else _KINDS.get(call.name)
        if kind is not None:
            self._keep_created(call, kind)
        if call.phase == 2:
            self._keep_run(call)
        elif call.name == "aclSetAclOpExecutorRepeatable" and not call.status:
            life = self._life(call.arguments.get("executor"))
            if life is not None:
                life.repeatable = True
        parameter = _ENDS.get(call.name)
        if parameter is not None:
            self._keep_ended(call, call.arguments.get(parameter))
        if call.name in _RELEASES:
            self._keep_released(call)

    def at_exit(self) -> None:
        """What was never destroyed, by the place where it was created."""
        places: dict[tuple[str, str, Any], list[_Life]] = {}
        for life in ({id(life): life for life in self._lives.values()} | self._pending).values():
            if not life.ended and life.list is None:
                rule = "executor-never-run" if life.kind == "executor" and not life.runs else "leak"
                places.setdefault((rule, life.kind, life.history[0][1].key), []).append(life)
        for (rule, _, _), lives in places.items():
            first, count = lives[0], len(lives)
            who = first.name if count == 1 else f"{count} times {first.name}"
            memory = first.kind.endswith("memory")
            size = f" ({sum(life.size for life in lives)} bytes)" if memory else ""
            verb = "run" if rule == "executor-never-run" else "freed" if size else "destroyed"
            took = f"; {first.released} took it away" if first.released else ""
            message = f"{who}{size} is never {verb}{took}"
            self.report(Finding(rule, None, "", message, tuple(first.history)))

    # Set-up and end

    def _check_initialized(self, call: Call) -> None:
        self._late = False
        if call.name in _ALWAYS or self._initialized:
            return
        if self._initialized is False:
            self._late = True
            self._report("call-after-finalize", call, "", "the runtime is finalised")
        elif self._early is None:
            # Plain Python needs no set-up: only a program that does set up does so too late.
            self._early = call.without_arguments()
            if requires_context():
                self._report_early()

    def _report_early(self) -> None:
        if self._early is not None:
            message = "neither aclInit nor aclnnInit was called"
            self._report("call-before-init", self._early, "", message)

    def _follow_initialization(self, call: Call) -> None:
        if call.name in ("aclInit", "aclnnInit", *_FINALIZES, "aclnnFinalize"):
            now = is_initialized()
            if self._initialized is None and now:
                self._report_early()
            self._initialized = False if now is None and self._initialized else now

    # Objects that have ended

    def _life(self, value: Any) -> _Life | None:
        """What is known of an argument, which may be a dead handle."""
        if isinstance(value, Unknown):
            return self._handles.get(value.handle)
        life = self._lives.get(id(value))
        if life is None and isinstance(value, int) and value:
            life = self._lives.get(("memory", value))
        return life

    def _check_alive(self, call: Call, parameter: str, value: Any) -> None:
        life = self._life(value)
        ends = _ENDS.get(call.name) == parameter
        if isinstance(value, int) or value is None:
            if ends and life is not None and life.released and not life.ended:
                self._report_late(call, parameter, life)
        elif isinstance(value, Unknown) and life is None:
            kind = self._kind_of(call, parameter)
            if (call.thread, kind) not in self._failures:  # else told with why it failed
                message = f"{value.handle:#x}, which no function returned"
                self._report("unknown-handle", call, parameter, message)
        elif life is not None and life.kind == "executor":
            if ends and life.ended:
                self._report("double-destroy", call, parameter, self._fate(life), life)
            elif life.ended and call.phase != 2:
                self._report("use-after-destroy", call, parameter, self._fate(life), life)
        elif isinstance(value, Unknown) or not getattr(value, "alive", True):
            if life is not None and life.released and not life.ended and ends:
                self._report_late(call, parameter, life)
            else:
                rule = "double-destroy" if ends else "use-after-destroy"
                name = "an object" if life is None else life.name
                self._report(rule, call, parameter, f"{name} that was destroyed before", life)
        if ends and life is not None:
            self._check_members(call, parameter, life)

    def _check_members(self, call: Call, parameter: str, life: _Life) -> None:
        for member in self._members(life):
            if member.ended and not life.ended:
                message = f"{life.name}, whose {member.kind} was destroyed before it"
                self._report("double-destroy", call, parameter, message, member)

    def _fate(self, life: _Life) -> str:
        return "an executor that phase two has released" if life.runs else "a destroyed executor"

    def _report_late(self, call: Call, parameter: str, life: _Life) -> None:
        message = f"{life.name} that {life.released} has taken away before"
        self._report("destroyed-late", call, parameter, message, life)

    # Executors

    def _check_phase_two(self, call: Call) -> None:
        executor = call.arguments.get("executor")
        life = self._life(executor)
        if life is not None and life.ended:
            self._report("executor-reused", call, "executor", self._fate(life), life)
            return
        if not isinstance(executor, Executor):
            return
        if executor.operator is not call.operator:
            other = f"an executor of {executor.operator.name}"
            self._report("executor-of-another-operator", call, "executor", other, life)
            return
        if executor.spent:
            self._report("executor-reused", call, "executor", executor.spent, life)
            return
        if life is None or not life.runs:
            self._check_operands(call, executor)
        needed = executor.kind.plan.workspace if life is None else life.size
        self._check_workspace(call, needed, life)

    def _check_operands(self, call: Call, executor: Executor) -> None:
        """Descriptors live until phase two returns."""
        for parameter, value in zip(executor.operator.parameters, executor.arguments, strict=True):
            if isinstance(value, Tensor) and not value.alive:
                message = f"{parameter.name}, a tensor that was destroyed between the phases"
                self._report("use-after-destroy", call, "executor", message, self._life(value))

    def _check_workspace(self, call: Call, needed: int, life: _Life | None) -> None:
        workspace, size = call.arguments.get("workspace"), call.arguments.get("workspaceSize")
        address = workspace if isinstance(workspace, int) else 0
        memory = self._lives.get(("memory", address))
        if is_null(workspace) and (needed or size):
            message = f"null, where phase one asked for {needed} bytes"
            self._report("workspace-too-small", call, "workspace", message, life)
        elif isinstance(size, int) and size < needed:
            message = f"{size} bytes, where phase one asked for {needed}"
            self._report("workspace-too-small", call, "workspaceSize", message, life)
        elif memory is not None and not memory.ended and memory.size < needed:
            message = f"memory of {memory.size} bytes, where phase one asked for {needed}"
            self._report("workspace-too-small", call, "workspace", message, memory)

    def _keep_run(self, call: Call) -> None:
        life = self._life(call.arguments.get("executor"))
        if life is not None and not life.ended:
            if not life.runs:  # of a repeatable executor the first run says enough
                life.add("run", call)
            life.runs += 1
            if not life.repeatable:
                self._end(life)

    # Creation and end

    def _keep_created(self, call: Call, kind: str) -> None:
        if call.status:
            self._failures[call.thread, kind] = _Failure(call)
            return
        cause = self._failures.get((call.thread, "device memory"))
        value = call.result
        size = call.arguments.get("size", 0)
        if call.phase == 1:
            size, value = call.result
        life = _Life(kind, value, size)
        life.add("allocated" if kind.endswith("memory") else "created", call)
        if kind == "tensor" and is_null(call.arguments.get("tensorData")):
            life.cause = cause
        self._failures.pop((call.thread, kind), None)
        for member in call.arguments.get("value") or () if kind.endswith("List") else ():
            owned = self._life(member)
            if owned is not None:
                owned.list = life
        life.key = ("memory", value) if kind.endswith("memory") else id(value)
        before = self._lives.get(life.key)
        if before is not None and not before.ended:
            self._pending[id(before)] = before
        self._lives[life.key] = life
        if kind == "executor":
            self._pending[id(life)] = life
            weakref.finalize(value, self._forget, life).atexit = False
        if call.handle:
            life.handle = call.handle
            self._handles[call.handle] = life

    def _forget(self, life: _Life) -> None:
        if self._lives.get(life.key) is life:
            del self._lives[life.key]

    def _keep_ended(self, call: Call, value: Any) -> None:
        life = self._life(value)
        if life is None or life.ended or (call.status and not life.released and not life.gone):
            return
        life.add("freed" if life.kind.endswith("memory") else "destroyed", call)
        for member in self._members(life):
            member.history.append(life.history[-1])
            self._end(member)
        self._end(life)

    def _members(self, life: _Life) -> list[_Life]:
        if not life.kind.endswith("List"):
            return []
        return [member for member in self._lives.values() if member.list is life]

    def _end(self, life: _Life) -> None:
        """Its history is kept for a while; so is a dead object, whose id nobody else may have meanwhile."""
        if life.ended:
            return
        life.ended = True
        if not life.handle and (handle := table.known(life.value)):  # pyACL's
            life.handle = handle
            self._handles[handle] = life
        self._pending.pop(id(life), None)
        self._ended[id(life)] = life
        if len(self._ended) > _REMEMBERED:
            _, oldest = self._ended.popitem(last=False)
            self._forget(oldest)
            self._handles.pop(oldest.handle, None)

    def _keep_released(self, call: Call) -> None:
        for life in self._lives.values():
            if not life.ended and not life.released and life.kind != "executor" and life.gone:
                life.released = call.name
                life.add("taken away", call)

    # What failed because of something that failed before

    def _kind_of(self, call: Call, parameter: str) -> str:
        operator = call.operator
        if operator is not None and call.phase == 1:
            return next((_operand(p) for p in operator.parameters if p.name == parameter), "")
        return _POINTERS.get(parameter, "")

    def _check_failed(self, call: Call) -> None:
        for parameter, value, failure in self._unmade(call):
            message = f"{'null' if is_null(value) else value}: {failure}"
            self._report("failed-result-used", call, parameter, message, failed=failure)
            return

    def _unmade(self, call: Call) -> Iterator[tuple[str, Any, _Failure]]:
        """Arguments that a failed call should have made."""
        for parameter, value in call.arguments.items():
            kind = self._kind_of(call, parameter)
            failure = self._failures.get((call.thread, kind))
            nothing = is_null(value) or (isinstance(value, Unknown) and self._life(value) is None)
            if kind and failure is not None and nothing:
                yield parameter, value, failure
        values = list(call.arguments.items())
        executor = call.arguments.get("executor")
        if isinstance(executor, Executor):
            names = (parameter.name for parameter in executor.operator.parameters)
            values += zip(names, executor.arguments, strict=True)
        for parameter, value in values:
            life = self._life(value)
            if life is not None and life.cause is not None and not value.base:
                yield parameter, "a tensor without memory", life.cause

    def _report(
        self, rule: str, call: Call, argument: str, message: str, life: _Life | None = None, failed: _Failure | None = None
    ) -> None:  # fmt: skip
        history = [] if life is None else list(life.history)
        if failed is not None:
            history.append((f"{failed.name} failed", failed.site))
        self.report(Finding(rule, call, argument, message, tuple(history)))


def _operand(parameter: Any) -> str:
    """The kind of object that a required operand is."""
    if parameter.optional:
        return ""
    if parameter.is_tensor:
        return "tensor"
    return "scalar" if "aclScalar" in parameter.declaration else ""
