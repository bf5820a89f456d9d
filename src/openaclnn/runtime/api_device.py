"""Devices, contexts and system parameters under their C names."""

from __future__ import annotations

import time
from typing import Any

from openaclnn.core.status import AclError, shown
from openaclnn.runtime import context as contexts
from openaclnn.runtime.context import Context
from openaclnn.runtime.device import selected
from openaclnn.runtime.enums import RunMode, SysParamOpt
from openaclnn.runtime.errors import (
    INT32,
    AclFailure,
    integer,
    is_null,
    refuse,
    returns_status,
    returns_value,
)

__all__ = [
    "aclrtCreateContext", "aclrtCtxGetSysParamOpt", "aclrtCtxSetSysParamOpt",
    "aclrtDestroyContext", "aclrtGetCurrentContext", "aclrtGetDevice", "aclrtGetDeviceCount",
    "aclrtGetRunMode", "aclrtGetSysParamOpt", "aclrtResetDevice", "aclrtResetDeviceForce",
    "aclrtSetCurrentContext", "aclrtSetDevice", "aclrtSetSysParamOpt", "aclrtSynchronizeDevice",
    "aclrtSynchronizeDeviceWithTimeout",
]  # fmt: skip


@returns_status
def aclrtSetDevice(deviceId: Any) -> None:
    """Bind the calling thread to a device; counted per device."""
    contexts.set_device(deviceId)


@returns_status
def aclrtResetDevice(deviceId: Any) -> None:
    """Undo one `aclrtSetDevice`; the last one waits for tasks and releases the device."""
    contexts.reset_device(deviceId)


@returns_status
def aclrtResetDeviceForce(deviceId: Any) -> None:
    """Release the device whatever the number of `aclrtSetDevice` calls."""
    contexts.reset_device(deviceId, force=True)


@returns_value(0)
def aclrtGetDevice() -> int:
    """The device of the calling thread."""
    return contexts.required().device_id


@returns_value(0)
def aclrtGetDeviceCount() -> int:
    """How many devices there are."""
    return selected().count


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
    code = AclError.ACL_ERROR_RT_PARAM_INVALID
    synchronize(integer(timeout, "timeout", (-1, INT32[1]), code))


def synchronize(timeout_ms: int) -> None:
    """Wait for every stream before the first failure is reported."""
    end = time.monotonic() + timeout_ms / 1000
    failures: list[AclFailure] = []
    for stream in list(contexts.required().streams):
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
    return contexts.create_context(deviceId)


@returns_status
def aclrtDestroyContext(context: Any) -> None:
    """Destroy a context of `aclrtCreateContext` with the streams in it."""
    contexts.destroy_context(_checked(context))


@returns_status
def aclrtSetCurrentContext(context: Any) -> None:
    """Make a context the calling thread's."""
    contexts.set_current(_checked(context))


@returns_value(None)
def aclrtGetCurrentContext() -> Any:
    """The calling thread's context."""
    return contexts.required()


def _checked(context: Any) -> Context:
    if is_null(context):
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, "context", "a context", "null")
    code = AclError.ACL_ERROR_RT_INVALID_HANDLE
    if not isinstance(context, Context):
        raise refuse(code, "context", "a context", shown(context))
    if not context.alive:
        raise refuse(code, "context", "a live context", "a destroyed one")
    return context


@returns_status
def aclrtCtxSetSysParamOpt(opt: Any, value: Any) -> None:
    """Set a system parameter in the current context."""
    option, setting = _checked_param(opt, value)
    contexts.required().params[option] = setting


@returns_value(0)
def aclrtCtxGetSysParamOpt(opt: Any) -> int:
    """A system parameter of the current context; 107021 where it was never set."""
    return _get(contexts.required().params, _checked_option(opt))


@returns_status
def aclrtSetSysParamOpt(opt: Any, value: Any) -> None:
    """Set a system parameter for the whole process."""
    option, setting = _checked_param(opt, value)
    contexts.process_params[option] = setting


@returns_value(0)
def aclrtGetSysParamOpt(opt: Any) -> int:
    """A system parameter of the process; 107021 where it was never set."""
    return _get(contexts.process_params, _checked_option(opt))


def _checked_option(opt: Any) -> int:
    return integer(opt, "opt", (0, max(SysParamOpt)), AclError.ACL_ERROR_RT_PARAM_INVALID)


def _checked_param(opt: Any, value: Any) -> tuple[int, int]:
    option = _checked_option(opt)
    # Determinism has levels: off, deterministic, strong and batch consistency.
    largest = 3 if option == SysParamOpt.ACL_OPT_DETERMINISTIC else 1
    return option, integer(value, "value", (0, largest), AclError.ACL_ERROR_RT_PARAM_INVALID)


def _get(params: dict[int, int], option: int) -> int:
    value = params.get(option)
    if value is None:
        code = AclError.ACL_ERROR_RT_SYSPARAMOPT_NOT_SET
        raise refuse(code, "opt", "an option set before", SysParamOpt(option).name)
    return value
