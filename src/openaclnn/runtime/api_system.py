"""What kind of machine and runtime this is: versions, capabilities, peers, time limits, overflow."""

from __future__ import annotations

from typing import Any

from openaclnn.core.status import AclError
from openaclnn.core.version import __version__
from openaclnn.runtime import context as contexts
from openaclnn.runtime import copies
from openaclnn.runtime.device import Device, selected
from openaclnn.runtime.enums import DeviceInfo, FloatOverflowMode
from openaclnn.runtime.errors import UINT32, UINT64, integer, refuse, returns_status, returns_value
from openaclnn.runtime.event import limit_waits
from openaclnn.runtime.resources import current_stream

__all__ = [
    "aclGetDeviceCapability", "aclrtDeviceCanAccessPeer", "aclrtDeviceDisablePeerAccess",
    "aclrtDeviceEnablePeerAccess", "aclrtGetDeviceSatMode", "aclrtGetOverflowStatus",
    "aclrtGetStreamOverflowSwitch", "aclrtGetVersion", "aclrtResetOverflowStatus",
    "aclrtSetDeviceSatMode", "aclrtSetOpExecuteTimeOut", "aclrtSetOpExecuteTimeOutWithMs",
    "aclrtSetOpWaitTimeout", "aclrtSetStreamOverflowSwitch", "aclsysGetVersionStr",
]  # fmt: skip

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
    """The version of a package of the toolkit: openaclnn's own, which stands for all of them."""
    name = pkgName.decode("utf-8", "replace") if isinstance(pkgName, bytes) else pkgName
    if not isinstance(name, str) or name.lower() not in _PACKAGES:
        got = "null" if name is None else repr(name)
        expected = f"one of {', '.join(_PACKAGES)}"
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, "pkgName", expected, got)
    return __version__


@returns_value(0)
def aclGetDeviceCapability(deviceId: Any, deviceInfo: Any) -> int:
    """The cores (those of the host that the process may use, or the multiprocessors of a GPU), or the bytes of L2 cache."""
    device = _device(deviceId, "deviceId")
    wanted = integer(deviceInfo, "deviceInfo", (0, max(DeviceInfo)))
    return device.cache_size() if wanted == DeviceInfo.ACL_DEVICE_INFO_L2_SIZE else device.cores()


def _device(device_id: Any, argument: str) -> Device:
    device = selected()
    code = AclError.ACL_ERROR_RT_INVALID_DEVICEID
    integer(device_id, argument, (0, device.count - 1), code)
    return device


@returns_value(0)
def aclrtDeviceCanAccessPeer(deviceId: Any, peerDeviceId: Any) -> int:
    """Whether a device reaches another one's memory; no device is its own peer."""
    _device(deviceId, "deviceId")
    _device(peerDeviceId, "peerDeviceId")
    return int(deviceId != peerDeviceId)


@returns_status
def aclrtDeviceEnablePeerAccess(peerDeviceId: Any, flags: Any) -> None:
    """Reach another device's memory from the current one; flags are reserved and 0."""
    _other(peerDeviceId)
    integer(flags, "flags", (0, 0), _PARAM)


@returns_status
def aclrtDeviceDisablePeerAccess(peerDeviceId: Any) -> None:
    """Undo `aclrtDeviceEnablePeerAccess`."""
    _other(peerDeviceId)


def _other(peer: Any) -> None:
    _device(peer, "peerDeviceId")
    if peer == contexts.required().device_id:
        raise refuse(_PARAM, "peerDeviceId", "another device than the current one", peer)


@returns_status
def aclrtSetOpWaitTimeout(timeout: Any) -> None:
    """The seconds after which `aclrtStreamWaitEvent` fails on the stream, from now on; 0 for never."""
    limit_waits(integer(timeout, "timeout", UINT32, _PARAM))


@returns_status
def aclrtSetOpExecuteTimeOut(timeout: Any) -> None:
    """The seconds a kernel may take. None is ended here: the host cannot stop one that runs."""
    integer(timeout, "timeout", UINT32, _PARAM)


@returns_status
def aclrtSetOpExecuteTimeOutWithMs(timeout: Any) -> None:
    """The milliseconds a kernel may take. None is ended here: the host cannot stop one that runs."""
    integer(timeout, "timeout", UINT32, _PARAM)


@returns_status
def aclrtSetDeviceSatMode(mode: Any) -> None:
    """How results overflow: to infinities and NaN, which is the one mode there is."""
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
    """Whether the stream looks for overflow where results saturate, which they never do here."""
    current_stream(stream).overflow_switch = integer(flag, "flag", (0, 1), _PARAM)


@returns_value(0)
def aclrtGetStreamOverflowSwitch(stream: Any) -> int:
    """What `aclrtSetStreamOverflowSwitch` set; 0 before."""
    return current_stream(stream).overflow_switch


@returns_status
def aclrtGetOverflowStatus(outputAddr: Any, outputSize: Any, stream: Any) -> None:
    """Write the status in the stream's order, 64 bytes of device memory: 0, as results do not saturate."""
    size = integer(outputSize, "outputSize", (_OVERFLOW_BYTES, UINT64[1]), _PARAM)
    transfer = copies.plan_fill(outputAddr, size, 0, _OVERFLOW_BYTES)
    assert transfer is not None
    current_stream(stream).submit(transfer)


@returns_status
def aclrtResetOverflowStatus(stream: Any) -> None:
    """Back to no overflow, which it is."""
    current_stream(stream)
