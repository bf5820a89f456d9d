"""The functions of C's names for the process: `aclInit` and its relatives, error messages, versions, capabilities, time limits, overflow."""

from __future__ import annotations

import threading
from typing import Any

from openaclnn.core.forks import hold_over_forks
from openaclnn.core.products import current_product
from openaclnn.core.status import AclError, take_message
from openaclnn.core.version import __version__
from openaclnn.runtime import config, context
from openaclnn.runtime.api_memory import plan_fill
from openaclnn.runtime.context import checked_device, current_stream
from openaclnn.runtime.enums import DeviceInfo, FloatOverflowMode, LastErrorLevel
from openaclnn.runtime.errors import (
    UINT32,
    UINT64,
    AclFailure,
    integer,
    last_error,
    null_on_failure,
    refuse,
    report,
    returns_status,
    returns_value,
)
from openaclnn.runtime.stream import limit_waits

__all__ = [
    "aclFinalize", "aclFinalizeReference", "aclGetDeviceCapability", "aclGetRecentErrMsg", "aclInit", "aclnnFinalize", "aclnnInit",
    "aclrtDeviceCanAccessPeer", "aclrtDeviceDisablePeerAccess", "aclrtDeviceEnablePeerAccess", "aclrtGetDeviceSatMode",
    "aclrtGetLastError", "aclrtGetOverflowStatus", "aclrtGetSocName", "aclrtGetStreamOverflowSwitch", "aclrtGetVersion",
    "aclrtPeekAtLastError", "aclrtResetOverflowStatus", "aclrtSetDeviceSatMode", "aclrtSetOpExecuteTimeOut",
    "aclrtSetOpExecuteTimeOutWithMs", "aclrtSetOpWaitTimeout", "aclrtSetStreamOverflowSwitch", "aclsysGetVersionStr",
]  # fmt: skip


class _Process:
    """The count of `aclInit` calls that were not undone, and whether the runtime was finalised after them."""

    references = 0
    finalized = False
    aclnn_only = False
    lock = threading.Lock()


hold_over_forks(_Process.lock)


def is_initialized() -> bool | None:
    """Whether the process is between `aclInit` or `aclnnInit` and the end of both; None before the first."""
    if _Process.references or _Process.aclnn_only:
        return True
    return False if _Process.finalized else None


@returns_status
def aclInit(configPath: Any = None) -> None:
    """Start the runtime with a JSON file or null; a further call is counted and returns 100002."""
    settings = config.load(configPath)
    with _Process.lock:
        if _Process.references == 0:
            config.install(settings)
            _Process.references, _Process.finalized = 1, False
            config.start_sanitizer()
            return
        if settings != config.current():
            code, expected = (
                AclError.ACL_ERROR_INVALID_PARAM,
                "the configuration of the first aclInit",
            )
            raise refuse(code, "configPath", expected, "a different one")
        _Process.references += 1
    code = AclError.ACL_ERROR_REPEAT_INITIALIZE
    got = "another, which is counted: aclFinalizeReference undoes one, aclFinalize all"
    raise refuse(code, "runtime", "one call of aclInit", got)


@returns_status
def aclFinalize() -> None:
    """Release everything, whatever the number of `aclInit` calls; a second call returns 100037."""
    with _Process.lock:
        if _Process.finalized:
            raise _repeated()
        _Process.references, _Process.finalized = 0, True
    _release()


@returns_value(0)
def aclFinalizeReference() -> int:
    """Undo one `aclInit`, and finalise with the last one; the value is the count left."""
    with _Process.lock:
        if _Process.references == 0:
            raise _repeated()
        _Process.references -= 1
        left = _Process.references
        _Process.finalized = left == 0
    if left == 0:
        _release()
    return left


def _repeated() -> AclFailure:
    code = AclError.ACL_ERROR_REPEAT_FINALIZE
    return refuse(code, "runtime", "aclInit before", "a runtime finalised already")


def _release() -> None:
    try:
        context.reset_all()
    finally:
        config.install({})


@returns_status
def aclnnInit(configPath: Any = None) -> None:
    """The light variant of `aclInit` for programs that only use operators; both may be called."""
    settings = config.load(configPath)
    with _Process.lock:
        if _Process.references == 0 and not _Process.aclnn_only:
            config.install(settings)
        _Process.aclnn_only = True
        config.start_sanitizer()


@returns_status
def aclnnFinalize() -> None:
    """Undo `aclnnInit`; what `aclInit` set up stays."""
    with _Process.lock:
        _Process.aclnn_only = False
        if _Process.references == 0:
            config.install({})


def aclGetRecentErrMsg() -> str | None:
    """The messages since the last call of this function, newest first, or None; they are forgotten then."""
    return take_message()


def aclrtPeekAtLastError(level: Any = 0) -> int:
    """The code of the thread's last failed call."""
    return _last(level, "aclrtPeekAtLastError", clear=False)


def aclrtGetLastError(level: Any = 0) -> int:
    """The code of the thread's last failed call, which is then forgotten."""
    return _last(level, "aclrtGetLastError", clear=True)


def _last(level: Any, function: str, *, clear: bool) -> int:
    known = int(LastErrorLevel.ACL_RT_THREAD_LEVEL)
    try:
        integer(level, "level", (known, known))
    except AclFailure as failure:
        failure.function = function
        return report(failure.code, str(failure))
    return last_error(clear=clear)


@null_on_failure
def aclrtGetSocName() -> str:
    """The chip of the product in force."""
    return current_product().soc


_INTERFACE = (1, 17, 0)
"""The version of the runtime's headers that this runtime follows."""

_PACKAGES = ("cann", "compiler", "driver", "hccl", "opp", "opp_kernel", "runtime", "toolkit", "openaclnn")  # fmt: skip
_OVERFLOW_BYTES = 64
_PARAM = AclError.ACL_ERROR_RT_PARAM_INVALID


@returns_value((0, 0, 0))
def aclrtGetVersion() -> tuple[int, int, int]:
    """The version of the interface: major, minor, patch."""
    return _INTERFACE


@returns_value("")
def aclsysGetVersionStr(pkgName: Any) -> str:
    """The version of a package of the toolkit: openaclnn's version, whatever the package."""
    name = pkgName.decode("utf-8", "replace") if isinstance(pkgName, bytes) else pkgName
    if not isinstance(name, str) or name.lower() not in _PACKAGES:
        got = "null" if name is None else repr(name)
        expected = f"one of {', '.join(_PACKAGES)}"
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, "pkgName", expected, got)
    return __version__


@returns_value(0)
def aclGetDeviceCapability(deviceId: Any, deviceInfo: Any) -> int:
    """The count of cores (of the host's those that the process may use, of a GPU the multiprocessors), or the bytes of L2 cache."""
    device = checked_device(deviceId)
    wanted = integer(deviceInfo, "deviceInfo", (0, max(DeviceInfo)))
    return device.cache_size() if wanted == DeviceInfo.ACL_DEVICE_INFO_L2_SIZE else device.cores()


@returns_value(0)
def aclrtDeviceCanAccessPeer(deviceId: Any, peerDeviceId: Any) -> int:
    """Whether a device may access another one's memory; no device is its own peer."""
    checked_device(deviceId)
    checked_device(peerDeviceId, "peerDeviceId")
    return int(deviceId != peerDeviceId)


@returns_status
def aclrtDeviceEnablePeerAccess(peerDeviceId: Any, flags: Any) -> None:
    """Let the current device access another device's memory; flags are reserved and 0."""
    _other(peerDeviceId)
    integer(flags, "flags", (0, 0), _PARAM)


@returns_status
def aclrtDeviceDisablePeerAccess(peerDeviceId: Any) -> None:
    """Undo `aclrtDeviceEnablePeerAccess`."""
    _other(peerDeviceId)


def _other(peer: Any) -> None:
    checked_device(peer, "peerDeviceId")
    if peer == context.required_context().device_id:
        raise refuse(_PARAM, "peerDeviceId", "another device than the current one", peer)


@returns_status
def aclrtSetOpWaitTimeout(timeout: Any) -> None:
    """Set the seconds after which a wait of `aclrtStreamWaitEvent` fails on its stream; 0 for never."""
    limit_waits(integer(timeout, "timeout", UINT32, _PARAM))


@returns_status
def aclrtSetOpExecuteTimeOut(timeout: Any) -> None:
    """Set the seconds that a kernel may take. Without effect: the host cannot stop a running kernel."""
    integer(timeout, "timeout", UINT32, _PARAM)


@returns_status
def aclrtSetOpExecuteTimeOutWithMs(timeout: Any) -> None:
    """Set the milliseconds that a kernel may take. Without effect: the host cannot stop a running kernel."""
    integer(timeout, "timeout", UINT32, _PARAM)


@returns_status
def aclrtSetDeviceSatMode(mode: Any) -> None:
    """Set how results overflow: to infinities and NaN, which is the only mode here."""
    wanted = integer(mode, "mode", (0, max(FloatOverflowMode)), _PARAM)
    if wanted != FloatOverflowMode.ACL_RT_OVERFLOW_MODE_INFNAN:
        code = AclError.ACL_ERROR_RT_FEATURE_NOT_SUPPORT
        got = FloatOverflowMode(wanted).name
        raise refuse(code, "mode", "ACL_RT_OVERFLOW_MODE_INFNAN", got)


@returns_value(0)
def aclrtGetDeviceSatMode() -> int:
    """ACL_RT_OVERFLOW_MODE_INFNAN."""
    return int(FloatOverflowMode.ACL_RT_OVERFLOW_MODE_INFNAN)


@returns_status
def aclrtSetStreamOverflowSwitch(stream: Any, flag: Any) -> None:
    """Set whether the stream reports overflow where results saturate, which they never do here."""
    current_stream(stream).overflow_switch = integer(flag, "flag", (0, 1), _PARAM)


@returns_value(0)
def aclrtGetStreamOverflowSwitch(stream: Any) -> int:
    """The value that `aclrtSetStreamOverflowSwitch` set; 0 before."""
    return current_stream(stream).overflow_switch


@returns_status
def aclrtGetOverflowStatus(outputAddr: Any, outputSize: Any, stream: Any) -> None:
    """Write the status in the stream's order, 64 bytes of device memory: 0, as results do not saturate."""
    size = integer(outputSize, "outputSize", (_OVERFLOW_BYTES, UINT64[1]), _PARAM)
    transfer = plan_fill(outputAddr, size, 0, _OVERFLOW_BYTES)
    assert transfer is not None
    current_stream(stream).submit(transfer)


@returns_status
def aclrtResetOverflowStatus(stream: Any) -> None:
    """Reset the overflow status, which is always 0."""
    current_stream(stream)
