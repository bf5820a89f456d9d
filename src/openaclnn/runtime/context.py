"""Devices in use, contexts, the current context of each thread, and system parameters; and the functions of C's names for them."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

from openaclnn.core.forks import hold_over_forks
from openaclnn.core.status import AclError, shown
from openaclnn.runtime import memory
from openaclnn.runtime.device import Device, selected_device
from openaclnn.runtime.enums import RunMode, SysParamOpt
from openaclnn.runtime.errors import (
    INT32,
    AclFailure,
    integer,
    is_null,
    live,
    refuse,
    returns_status,
    returns_value,
)
from openaclnn.runtime.stream import Event, Stream

__all__ = [
    "aclrtCreateContext", "aclrtCtxGetSysParamOpt", "aclrtCtxSetSysParamOpt", "aclrtDestroyContext", "aclrtGetCurrentContext",
    "aclrtGetDevice", "aclrtGetDeviceCount", "aclrtGetRunMode", "aclrtGetSysParamOpt", "aclrtResetDevice", "aclrtResetDeviceForce",
    "aclrtSetCurrentContext", "aclrtSetDevice", "aclrtSetSysParamOpt", "aclrtSynchronizeDevice", "aclrtSynchronizeDeviceWithTimeout",
]  # fmt: skip

MAX_STREAMS = 1984
"""The limit of streams per device, default streams included."""

_PARAM = AclError.ACL_ERROR_RT_PARAM_INVALID

_process_params: dict[int, int] = {}
"""The system parameters set for the whole process."""


class Context:
    """A container of streams on one device; threads work in one context at a time."""

    c_name = "aclrtContext"

    def __init__(self, state: DeviceState, *, is_default: bool) -> None:
        self.state = state
        self.is_default = is_default
        self.alive = True
        self.params: dict[int, int] = {}
        self.default_stream = Stream(self.device, is_default=True)
        self.streams: set[Stream] = {self.default_stream}

    @property
    def device(self) -> Device:
        return self.state.device

    @property
    def device_id(self) -> int:
        return self.state.device_id

    def close(self) -> AclFailure | None:
        """Wait for all streams and destroy them; returns the first failure that was not reported before."""
        failures: list[AclFailure] = []
        for stream in list(self.streams):
            try:
                if stream.alive:
                    stream.close(wait=True)
            except AclFailure as failure:
                failures.append(failure)
        self.alive = False
        return failures[0] if failures else None


class DeviceState:
    """The contexts, events and uses that the process has on one device."""

    def __init__(self, device: Device, device_id: int) -> None:
        self.device = device
        self.device_id = device_id
        self.uses = 0  # calls of aclrtSetDevice that were not undone
        self.default: Context | None = None
        self.contexts: set[Context] = set()
        self.events: weakref.WeakSet[Event] = weakref.WeakSet()

    def check_stream_limit(self) -> None:
        """Refuse one more stream than the device has; call it with the lock held."""
        if sum(len(context.streams) for context in self.contexts) >= MAX_STREAMS:
            code = AclError.ACL_ERROR_RT_NO_STREAM_RESOURCE
            raise refuse(code, "stream", f"at most {MAX_STREAMS} per device", "one more")


class _Current(threading.local):
    context: Context | None = None


_current = _Current()
states: dict[int, DeviceState] = {}
lock = threading.RLock()
"""Guards the states and the sets in them; never held while waiting for a stream. Re-entrant: a
finaliser that destroys a handle may run at any time."""

hold_over_forks(lock)


def checked_device(device_id: Any, argument: str = "deviceId") -> Device:
    """The device in use; refuses an argument that is no device's number."""
    device = selected_device()
    code = AclError.ACL_ERROR_RT_INVALID_DEVICEID
    integer(device_id, argument, (0, device.count - 1), code)
    return device


def _state(device_id: int) -> DeviceState:
    """The state of a device; call it with the lock held."""
    device = checked_device(device_id)
    state = states.get(device_id)
    if state is None:
        state = states[device_id] = DeviceState(device, device_id)
    return state


def default_context(device_id: int, uses: int = 0) -> Context:
    """The device's default context, which is created if there is none yet."""
    with lock:
        state = _state(device_id)
        if state.default is None:
            state.default = Context(state, is_default=True)
            state.contexts.add(state.default)
        state.uses += uses
        return state.default


@returns_status
def aclrtSetDevice(deviceId: Any) -> None:
    """Bind the calling thread to a device; counted per device."""
    _current.context = default_context(deviceId, uses=1)


@returns_status
def aclrtResetDevice(deviceId: Any) -> None:
    """Undo one `aclrtSetDevice`; the last one waits for tasks and releases the device."""
    _reset_device(deviceId, force=False)


@returns_status
def aclrtResetDeviceForce(deviceId: Any) -> None:
    """Release the device whatever the number of `aclrtSetDevice` calls."""
    _reset_device(deviceId, force=True)


def _reset_device(device_id: int, *, force: bool) -> None:
    with lock:
        state = _state(device_id)
        if not state.contexts:
            code = AclError.ACL_ERROR_RT_CONTEXT_NULL
            raise refuse(code, "deviceId", "a device in use", f"{device_id}, which is not set")
        state.uses = 0 if force else max(state.uses - 1, 0)
        if state.uses:
            return
        del states[device_id]
    _release([state])


def reset_all() -> None:
    """Release everything on all devices."""
    with lock:
        released = list(states.values())
        states.clear()
        _process_params.clear()
    _release(released)


def _release(released: list[DeviceState]) -> None:
    """Close all that devices hold, and then raise the first failure of a task. After an interrupt or a lack of memory, the devices keep what is not closed,
    so that the next reset closes it."""
    failures = []
    try:
        for state in released:
            failures += [
                failure for context in list(state.contexts) if (failure := context.close())
            ]
            for event in list(state.events):
                event.alive = False
            memory.release_device(state.device.name, state.device_id)
    except BaseException:
        with lock:
            for state in released:
                states.setdefault(state.device_id, state)
        raise
    if failures:
        raise failures[0]


def current() -> Context | None:
    """The calling thread's context, or None."""
    context = _current.context
    return context if context is not None and context.alive else None


_contexts_required = False  # whether threads must set a device or context before they use one


def require_contexts() -> None:
    """Called in C programs: from now on, a thread that has set no device or context has none."""
    global _contexts_required
    _contexts_required = True


def requires_context() -> bool:
    """Whether the process is a C program."""
    return _contexts_required


def working_context() -> Context:
    """The calling thread's context, or the default one of device 0 if it has none; in a C program that is a failure."""
    context = _current.context
    if context is None or not context.alive:
        if _contexts_required:
            return required_context()
        # Every call of a Python program that sets no device comes here, so the lock is taken only at first.
        state = states.get(0)
        context = (state and state.default) or default_context(0)
    return context


def required_context() -> Context:
    """The calling thread's context; a failure where it has none."""
    context = current()
    if context is None:
        code = AclError.ACL_ERROR_RT_CONTEXT_NULL
        raise refuse(code, "context", "a thread that called aclrtSetDevice", "none")
    return context


def current_stream(handle: Any) -> Stream:
    """The stream to use for a handle: null is the default stream of the thread's context.

    A thread of a Python program that has set no device works in the default context of device 0.
    """
    if type(handle) is Stream and handle.alive and handle in working_context().streams:
        return handle
    if is_null(handle):
        return working_context().default_stream
    code = AclError.ACL_ERROR_RT_INVALID_HANDLE
    if not isinstance(handle, Stream):
        raise refuse(code, "stream", "a stream or null", shown(handle))
    if not handle.alive:
        raise refuse(code, "stream", "a live stream", "a destroyed one")
    code = AclError.ACL_ERROR_RT_STREAM_CONTEXT
    raise refuse(code, "stream", "one of the thread's context", "one of another context")


@returns_value(0)
def aclrtGetDevice() -> int:
    """The device of the calling thread."""
    return required_context().device_id


@returns_value(0)
def aclrtGetDeviceCount() -> int:
    """How many devices there are."""
    return selected_device().count


@returns_value(0)
def aclrtGetRunMode() -> int:
    """ACL_HOST: the program runs beside the device, not on it."""
    return int(RunMode.ACL_HOST)


@returns_status
def aclrtSynchronizeDevice() -> None:
    """Wait for all streams of the current context."""
    synchronize(-1)


@returns_status
def aclrtSynchronizeDeviceWithTimeout(timeout: Any) -> None:
    """Wait for all streams of the current context, for so many milliseconds at most."""
    synchronize(integer(timeout, "timeout", (-1, INT32[1]), _PARAM))


def synchronize(timeout_ms: int) -> None:
    """Wait for every stream before the first failure is reported."""
    end = time.monotonic() + timeout_ms / 1000
    failures: list[AclFailure] = []
    for stream in list(required_context().streams):
        left = -1 if timeout_ms < 0 else max(int((end - time.monotonic()) * 1000), 0)
        try:
            stream.synchronize(left)
        except AclFailure as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


@returns_value(None)
def aclrtCreateContext(deviceId: Any) -> Any:
    """A new context on a device, current in the calling thread from now on."""
    with lock:
        state = _state(deviceId)
        state.check_stream_limit()
        context = Context(state, is_default=False)
        state.contexts.add(context)
    _current.context = context
    return context


@returns_status
def aclrtDestroyContext(context: Any) -> None:
    """Destroy a context of `aclrtCreateContext` with the streams in it."""
    checked = _checked(context)
    if checked.is_default:
        raise refuse(_PARAM, "context", "one of aclrtCreateContext", "a default context")
    with lock:
        checked.state.contexts.discard(checked)
    failure = checked.close()
    if failure is not None:
        raise failure


@returns_status
def aclrtSetCurrentContext(context: Any) -> None:
    """Make a context the calling thread's."""
    _current.context = _checked(context)


@returns_value(None)
def aclrtGetCurrentContext() -> Any:
    """The calling thread's context."""
    return required_context()


def _checked(context: Any) -> Context:
    dead, null = AclError.ACL_ERROR_RT_INVALID_HANDLE, AclError.ACL_ERROR_INVALID_PARAM
    return live(context, Context, "context", "context", dead, null)


@returns_status
def aclrtCtxSetSysParamOpt(opt: Any, value: Any) -> None:
    """Set a system parameter in the current context."""
    option, setting = _checked_param(opt, value)
    required_context().params[option] = setting


@returns_value(0)
def aclrtCtxGetSysParamOpt(opt: Any) -> int:
    """A system parameter of the current context; 107021 where it was never set."""
    return _param(required_context().params, opt)


@returns_status
def aclrtSetSysParamOpt(opt: Any, value: Any) -> None:
    """Set a system parameter for the whole process."""
    option, setting = _checked_param(opt, value)
    _process_params[option] = setting


@returns_value(0)
def aclrtGetSysParamOpt(opt: Any) -> int:
    """A system parameter of the process; 107021 where it was never set."""
    return _param(_process_params, opt)


def _checked_option(opt: Any) -> int:
    return integer(opt, "opt", (0, max(SysParamOpt)), _PARAM)


def _checked_param(opt: Any, value: Any) -> tuple[int, int]:
    option = _checked_option(opt)
    # Determinism has levels: off, deterministic, strong and batch consistency.
    largest = 3 if option == SysParamOpt.ACL_OPT_DETERMINISTIC else 1
    return option, integer(value, "value", (0, largest), _PARAM)


def _param(params: dict[int, int], opt: Any) -> int:
    option = _checked_option(opt)
    value = params.get(option)
    if value is None:
        code = AclError.ACL_ERROR_RT_SYSPARAMOPT_NOT_SET
        raise refuse(code, "opt", "an option set before", SysParamOpt(option).name)
    return value
