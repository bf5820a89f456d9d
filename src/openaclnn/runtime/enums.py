"""The runtime's enumerations; data types and formats have tables of their own."""

from __future__ import annotations

from enum import IntEnum

from openaclnn.core.dtypes import DTYPES
from openaclnn.core.status import AclError, Status
from openaclnn.core.tensor import Format


class MemcpyKind(IntEnum):
    """`aclrtMemcpyKind`."""

    ACL_MEMCPY_HOST_TO_HOST = 0
    ACL_MEMCPY_HOST_TO_DEVICE = 1
    ACL_MEMCPY_DEVICE_TO_HOST = 2
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3
    ACL_MEMCPY_DEFAULT = 4
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7


class MallocPolicy(IntEnum):
    """`aclrtMemMallocPolicy`; the last three are flags."""

    ACL_MEM_MALLOC_HUGE_FIRST = 0
    ACL_MEM_MALLOC_HUGE_ONLY = 1
    ACL_MEM_MALLOC_NORMAL_ONLY = 2
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x0100
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000
    ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000


class MemAttr(IntEnum):
    """`aclrtMemAttr`."""

    ACL_DDR_MEM = 0
    ACL_HBM_MEM = 1
    ACL_DDR_MEM_HUGE = 2
    ACL_DDR_MEM_NORMAL = 3
    ACL_HBM_MEM_HUGE = 4
    ACL_HBM_MEM_NORMAL = 5
    ACL_DDR_MEM_P2P_HUGE = 6
    ACL_DDR_MEM_P2P_NORMAL = 7
    ACL_HBM_MEM_P2P_HUGE = 8
    ACL_HBM_MEM_P2P_NORMAL = 9
    ACL_HBM_MEM_HUGE1G = 10
    ACL_HBM_MEM_P2P_HUGE1G = 11
    ACL_MEM_NORMAL = 12
    ACL_MEM_HUGE = 13
    ACL_MEM_HUGE1G = 14
    ACL_MEM_P2P_NORMAL = 15
    ACL_MEM_P2P_HUGE = 16
    ACL_MEM_P2P_HUGE1G = 17


class RunMode(IntEnum):
    """`aclrtRunMode`."""

    ACL_DEVICE = 0
    ACL_HOST = 1


class EventStatus(IntEnum):
    """`aclrtEventStatus`, of the deprecated query."""

    ACL_EVENT_STATUS_COMPLETE = 0
    ACL_EVENT_STATUS_NOT_READY = 1
    ACL_EVENT_STATUS_RESERVED = 2


class EventRecordedStatus(IntEnum):
    """`aclrtEventRecordedStatus`, of the new query: the other way round than the old one."""

    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0
    ACL_EVENT_RECORDED_STATUS_COMPLETE = 1


class EventWaitStatus(IntEnum):
    """`aclrtEventWaitStatus`."""

    ACL_EVENT_WAIT_STATUS_COMPLETE = 0
    ACL_EVENT_WAIT_STATUS_NOT_READY = 1
    ACL_EVENT_WAIT_STATUS_RESERVED = 0xFFFF


class StreamStatus(IntEnum):
    """`aclrtStreamStatus`."""

    ACL_STREAM_STATUS_COMPLETE = 0
    ACL_STREAM_STATUS_NOT_READY = 1
    ACL_STREAM_STATUS_RESERVED = 0xFFFF


class EventFlag(IntEnum):
    """What an event may be used for."""

    ACL_EVENT_SYNC = 0x01
    ACL_EVENT_CAPTURE_STREAM_PROGRESS = 0x02
    ACL_EVENT_TIME_LINE = 0x08
    ACL_EVENT_DEVICE_USE_ONLY = 0x10
    ACL_EVENT_EXTERNAL = 0x20
    ACL_EVENT_IPC = 0x40


class StreamFlag(IntEnum):
    """How a stream is created; none of them changes what a stream does here."""

    ACL_STREAM_FAST_LAUNCH = 0x01
    ACL_STREAM_FAST_SYNC = 0x02
    ACL_STREAM_PERSISTENT = 0x04
    ACL_STREAM_HUGE = 0x08
    ACL_STREAM_CPU_SCHEDULE = 0x10
    ACL_STREAM_DEVICE_USE_ONLY = 0x20


class FailureMode(IntEnum):
    """What a stream does after a failed task."""

    ACL_CONTINUE_ON_FAILURE = 0
    ACL_STOP_ON_FAILURE = 1


class FloatOverflowMode(IntEnum):
    """`aclrtFloatOverflowMode`."""

    ACL_RT_OVERFLOW_MODE_SATURATION = 0
    ACL_RT_OVERFLOW_MODE_INFNAN = 1
    ACL_RT_OVERFLOW_MODE_UNDEF = 2


class SysParamOpt(IntEnum):
    """`aclSysParamOpt`."""

    ACL_OPT_DETERMINISTIC = 0
    ACL_OPT_ENABLE_DEBUG_KERNEL = 1
    ACL_OPT_STRONG_CONSISTENCY = 2
    ACL_OPT_ENABLE_KERNEL_EARLY_START = 3


class MemType(IntEnum):
    """`aclMemType`."""

    ACL_MEMTYPE_DEVICE = 0
    ACL_MEMTYPE_HOST = 1
    ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT = 2


class LogLevel(IntEnum):
    """`aclLogLevel`."""

    ACL_DEBUG = 0
    ACL_INFO = 1
    ACL_WARNING = 2
    ACL_ERROR = 3


class CannAttr(IntEnum):
    """`aclCannAttr`."""

    ACL_CANN_ATTR_UNDEFINED = -1
    ACL_CANN_ATTR_INF_NAN = 0
    ACL_CANN_ATTR_BF16 = 1
    ACL_CANN_ATTR_JIT_COMPILE = 2


class LastErrorLevel(IntEnum):
    """`aclrtLastErrLevel`."""

    ACL_RT_THREAD_LEVEL = 0


class DeviceInfo(IntEnum):
    """`aclDeviceInfo`."""

    ACL_DEVICE_INFO_UNDEFINED = -1
    ACL_DEVICE_INFO_AI_CORE_NUM = 0
    ACL_DEVICE_INFO_VECTOR_CORE_NUM = 1
    ACL_DEVICE_INFO_L2_SIZE = 2


class CallbackBlockType(IntEnum):
    """`aclrtCallbackBlockType`: whether the stream waits for the callback."""

    ACL_CALLBACK_NO_BLOCK = 0
    ACL_CALLBACK_BLOCK = 1


class MallocAttrType(IntEnum):
    """`aclrtMallocAttrType`."""

    ACL_RT_MEM_ATTR_RSV = 0
    ACL_RT_MEM_ATTR_MODULE_ID = 1
    ACL_RT_MEM_ATTR_DEVICE_ID = 2


BASE_TYPES: dict[str, type[IntEnum]] = {
    "aclFormat": Format, "aclMemType": MemType, "aclLogLevel": LogLevel, "aclCannAttr": CannAttr, "aclDeviceInfo": DeviceInfo,
}  # fmt: skip
"""The enumerations of the header with the types, by their C names."""

RUNTIME_TYPES: dict[str, type[IntEnum]] = {
    "aclrtMemcpyKind": MemcpyKind, "aclrtMemMallocPolicy": MallocPolicy, "aclrtMemAttr": MemAttr, "aclrtRunMode": RunMode,
    "aclrtEventStatus": EventStatus, "aclrtEventRecordedStatus": EventRecordedStatus, "aclrtEventWaitStatus": EventWaitStatus,
    "aclrtStreamStatus": StreamStatus, "aclrtFloatOverflowMode": FloatOverflowMode, "aclSysParamOpt": SysParamOpt,
    "aclrtLastErrLevel": LastErrorLevel, "aclrtCallbackBlockType": CallbackBlockType, "aclrtMallocAttrType": MallocAttrType,
}  # fmt: skip
"""The runtime's, by their C names."""

RUNTIME_FLAGS: tuple[type[IntEnum], ...] = (EventFlag, StreamFlag, FailureMode)
"""Those that are macros in C, without a type."""

_ENUMS: tuple[type[IntEnum], ...] = (
    *BASE_TYPES.values(), *RUNTIME_TYPES.values(), *RUNTIME_FLAGS, AclError, Status
)  # fmt: skip
ENUMERATORS: dict[str, int] = {dtype.c_name: dtype.code for dtype in DTYPES} | {
    name: int(member) for enum in _ENUMS for name, member in enum.__members__.items()
}
"""Every enumerator of the interface by its C name."""
