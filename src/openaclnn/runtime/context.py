"""Devices in use, contexts, and which context a thread works in."""

from __future__ import annotations

import threading
import weakref

from openaclnn.core.forks import hold_over_forks
from openaclnn.core.status import AclError
from openaclnn.runtime import memory
from openaclnn.runtime.device import Device, selected
from openaclnn.runtime.errors import AclFailure, integer, refuse
from openaclnn.runtime.event import Event
from openaclnn.runtime.stream import Stream

__all__ = [
    "MAX_STREAMS", "Context", "DeviceState", "create_context", "current", "default_context",
    "default_stream", "destroy_context", "expect_set_up", "required", "reset_all", "reset_device", "set_current", "set_device",
    "working_context",
]  # fmt: skip

MAX_STREAMS = 1984
"""Per device, default streams included."""

process_params: dict[int, int] = {}
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
        """Wait for all streams and destroy them; the first failure nobody has been told of."""
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
    """What the process holds on one device."""

    def __init__(self, device: Device, device_id: int) -> None:
        self.device = device
        self.device_id = device_id
        self.uses = 0  # aclrtSetDevice calls not undone
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


def _state(device_id: int) -> DeviceState:
    """The state of a device; call it with the lock held."""
    device = selected()
    code = AclError.ACL_ERROR_RT_INVALID_DEVICEID
    integer(device_id, "deviceId", (0, device.count - 1), code)
    state = states.get(device_id)
    if state is None:
        state = states[device_id] = DeviceState(device, device_id)
    return state


def default_context(device_id: int, uses: int = 0) -> Context:
    """The device's default context, created where it is not there yet."""
    with lock:
        state = _state(device_id)
        if state.default is None:
            state.default = Context(state, is_default=True)
            state.contexts.add(state.default)
        state.uses += uses
        return state.default


def set_device(device_id: int) -> None:
    """Bind the thread to the device's default context, which is created at the first call."""
    _current.context = default_context(device_id, uses=1)


def reset_device(device_id: int, *, force: bool = False) -> None:
    """Undo one `set_device`; the last one, or `force`, releases everything on the device."""
    with lock:
        state = _state(device_id)
        if not state.contexts:
            code = AclError.ACL_ERROR_RT_CONTEXT_NULL
            raise refuse(code, "deviceId", "a device in use", f"{device_id}, which is not set")
        state.uses = 0 if force else max(state.uses - 1, 0)
        if state.uses:
            return
        del states[device_id]
    _release(state)


def reset_all() -> None:
    """Release everything on all devices."""
    with lock:
        released = list(states.values())
        states.clear()
        process_params.clear()
    for state in released:
        _release(state)


def _release(state: DeviceState) -> None:
    failures = [failure for context in list(state.contexts) if (failure := context.close())]
    for event in list(state.events):
        event.alive = False
    memory.release_device(state.device.name, state.device_id)
    if failures:
        raise failures[0]


def current() -> Context | None:
    """The context the calling thread works in, if it has one."""
    context = _current.context
    return context if context is not None and context.alive else None


_set_up = False  # whether threads say which device they work on


def expect_set_up() -> None:
    """The process is a C program: a thread without a context has none to work in, from now on."""
    global _set_up
    _set_up = True


def working_context() -> Context:
    """The context the calling thread works in, or the default one of device 0 where it has none, which in a C program fails."""
    context = _current.context
    if context is None or not context.alive:
        if _set_up:
            return required()
        # Every operator of a program without set-up comes here: no lock where none is needed.
        state = states.get(0)
        context = (state and state.default) or default_context(0)
    return context


def default_stream() -> Stream:
    """The default stream of the context that the calling thread works in."""
    return working_context().default_stream


def required() -> Context:
    """The calling thread's context; a failure where it has none."""
    context = current()
    if context is None:
        code = AclError.ACL_ERROR_RT_CONTEXT_NULL
        raise refuse(code, "context", "a thread that called aclrtSetDevice", "none")
    return context


def create_context(device_id: int) -> Context:
    """A new context on a device, which becomes the calling thread's."""
    with lock:
        state = _state(device_id)
        state.check_stream_limit()
        context = Context(state, is_default=False)
        state.contexts.add(context)
    _current.context = context
    return context


def destroy_context(context: Context) -> None:
    """Wait for the streams of an explicit context and destroy it with them."""
    if context.is_default:
        code = AclError.ACL_ERROR_RT_PARAM_INVALID
        raise refuse(code, "context", "one of aclrtCreateContext", "a default context")
    with lock:
        context.state.contexts.discard(context)
    failure = context.close()
    if failure is not None:
        raise failure


def set_current(context: Context) -> None:
    """Make a context the calling thread's."""
    _current.context = context
