"""Status codes, the one exception type, and the recent error message of each thread."""

from __future__ import annotations

import os
import threading
from collections import deque
from datetime import datetime
from enum import IntEnum

__all__ = [
    "AclError",
    "AclnnError",
    "Status",
    "category",
    "record_message",
    "share_messages",
    "status_name",
    "take_message",
]


class Status(IntEnum):
    """`aclnnStatus`: what the operator interface returns. 1xxxxx caller, 3xxxxx runtime, 5xxxxx internal."""

    ACLNN_SUCCESS = 0
    ACLNN_ERR_PARAM_NULLPTR = 161001
    ACLNN_ERR_PARAM_INVALID = 161002
    ACLNN_ERR_RUNTIME_ERROR = 361001
    ACLNN_ERR_INNER = 561000
    ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001
    ACLNN_ERR_INNER_TILING_ERROR = 561002
    ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003
    ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101
    ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR = 561102
    ACLNN_ERR_INNER_NULLPTR = 561103
    ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE = 561104
    ACLNN_ERR_INNER_KEY_CONFLICT = 561105
    ACLNN_ERR_INNER_KEY_CONFILICT = 561105  # the interface's old spelling, kept as an alias
    ACLNN_ERR_INNER_INVALID_IMPL_MODE = 561106
    ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = 561107
    ACLNN_ERR_INNER_LOAD_JSON_FAILED = 561108
    ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND = 561109
    ACLNN_ERR_INNER_JSON_FORMAT_INVALID = 561110
    ACLNN_ERR_INNER_JSON_DTYPE_INVALID = 561111
    ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112
    ACLNN_ERR_INNER_OP_FILE_INVALID = 561113
    ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND = 561114
    ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH = 561115
    ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE = 561116
    ACLNN_ERR_INNER_INPUT_JSON_IS_NULL = 561117
    ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID = 561118
    ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID = 561119


class AclError(IntEnum):
    """`aclError`: what the runtime (`acl*`, `aclrt*`) returns."""

    ACL_SUCCESS = 0
    ACL_ERROR_NONE = 0
    ACL_ERROR_INVALID_EXCEPTION_INFO = -1
    ACL_ERROR_INVALID_PARAM = 100000
    ACL_ERROR_UNINITIALIZE = 100001
    ACL_ERROR_REPEAT_INITIALIZE = 100002
    ACL_ERROR_INVALID_FILE = 100003
    ACL_ERROR_WRITE_FILE = 100004
    ACL_ERROR_INVALID_FILE_SIZE = 100005
    ACL_ERROR_PARSE_FILE = 100006
    ACL_ERROR_FILE_MISSING_ATTR = 100007
    ACL_ERROR_FILE_ATTR_INVALID = 100008
    ACL_ERROR_INVALID_DUMP_CONFIG = 100009
    ACL_ERROR_INVALID_PROFILING_CONFIG = 100010
    ACL_ERROR_OP_NOT_FOUND = 100024
    ACL_ERROR_OP_LOAD_FAILED = 100025
    ACL_ERROR_UNSUPPORTED_DATA_TYPE = 100026
    ACL_ERROR_FORMAT_NOT_MATCH = 100027
    ACL_ERROR_KERNEL_NOT_FOUND = 100029
    ACL_ERROR_WAIT_CALLBACK_TIMEOUT = 100036
    ACL_ERROR_REPEAT_FINALIZE = 100037
    ACL_ERROR_COMPILING_STUB_MODE = 100039
    ACL_ERROR_RT_PARAM_INVALID = 107000
    ACL_ERROR_RT_INVALID_DEVICEID = 107001
    ACL_ERROR_RT_CONTEXT_NULL = 107002
    ACL_ERROR_RT_STREAM_CONTEXT = 107003
    ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID = 107006
    ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL = 107007
    ACL_ERROR_RT_ADDR_UNALIGNED = 107008
    ACL_ERROR_RT_INVALID_MEMORY_TYPE = 107016
    ACL_ERROR_RT_INVALID_HANDLE = 107017
    ACL_ERROR_RT_INVALID_MALLOC_TYPE = 107018
    ACL_ERROR_RT_WAIT_TIMEOUT = 107019
    ACL_ERROR_RT_TASK_TIMEOUT = 107020
    ACL_ERROR_RT_SYSPARAMOPT_NOT_SET = 107021
    ACL_ERROR_RT_DEVICE_TASK_ABORT = 107022
    ACL_ERROR_RT_STREAM_ABORT = 107023
    ACL_ERROR_BAD_ALLOC = 200000
    ACL_ERROR_API_NOT_SUPPORT = 200001
    ACL_ERROR_INVALID_DEVICE = 200002
    ACL_ERROR_MEMORY_ADDRESS_UNALIGNED = 200003
    ACL_ERROR_RESOURCE_NOT_MATCH = 200004
    ACL_ERROR_INVALID_RESOURCE_HANDLE = 200005
    ACL_ERROR_FEATURE_UNSUPPORTED = 200006
    ACL_ERROR_PROF_MODULES_UNSUPPORTED = 200007
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000
    ACL_ERROR_RT_MEMORY_ALLOCATION = 207001
    ACL_ERROR_RT_MEMORY_FREE = 207002
    ACL_ERROR_RT_AICORE_OVER_FLOW = 207003
    ACL_ERROR_RT_NO_DEVICE = 207004
    ACL_ERROR_RT_RESOURCE_ALLOC_FAIL = 207005
    ACL_ERROR_RT_NO_PERMISSION = 207006
    ACL_ERROR_RT_NO_EVENT_RESOURCE = 207007
    ACL_ERROR_RT_NO_STREAM_RESOURCE = 207008
    ACL_ERROR_RT_OVER_LIMIT = 207012
    ACL_ERROR_RT_DEVICE_OOM = 207018
    ACL_ERROR_STORAGE_OVER_LIMIT = 300000
    ACL_ERROR_INTERNAL_ERROR = 500000
    ACL_ERROR_FAILURE = 500001
    ACL_ERROR_GE_FAILURE = 500002
    ACL_ERROR_RT_FAILURE = 500003
    ACL_ERROR_DRV_FAILURE = 500004
    ACL_ERROR_PROFILING_FAILURE = 500005
    ACL_ERROR_RT_INTERNAL_ERROR = 507000
    ACL_ERROR_RT_STREAM_NOT_COMPLETE = 507004
    ACL_ERROR_RT_EVENT_NOT_COMPLETE = 507006
    ACL_ERROR_RT_AICORE_TIMEOUT = 507014
    ACL_ERROR_RT_AICORE_EXCEPTION = 507015
    ACL_ERROR_RT_AICPU_TIMEOUT = 507017
    ACL_ERROR_RT_AICPU_EXCEPTION = 507018
    ACL_ERROR_RT_DEV_SETUP_ERROR = 507033
    ACL_ERROR_RT_VECTOR_CORE_TIMEOUT = 507034
    ACL_ERROR_RT_VECTOR_CORE_EXCEPTION = 507035
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046
    ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047
    ACL_ERROR_RT_DEVICE_MEM_ERROR = 507053
    ACL_ERROR_RT_DRV_INTERNAL_ERROR = 507899


def status_name(code: int) -> str:
    """The C name of a status, of either family; the number itself where it has none."""
    for family in (Status, AclError):
        try:
            return family(code).name
        except ValueError:
            continue
    return str(code)


class AclnnError(ValueError):
    """A refused call: `status`, `operator`, `parameter`, `expected` and `got` say exactly why."""

    __module__ = "openaclnn"  # where users find it

    def __init__(self, status: int, operator: str, parameter: str, expected: str, got: str) -> None:
        self.status = int(status)
        self.operator = operator
        self.parameter = parameter
        self.expected = expected
        self.got = got
        super().__init__(f"{operator}: {parameter}: expected {expected}, got {got}")

    def __str__(self) -> str:
        return f"{self.args[0]} [{self.status} {status_name(self.status)}]"

    def __reduce__(self) -> tuple[type[AclnnError], tuple[int, str, str, str, str]]:
        return AclnnError, (self.status, self.operator, self.parameter, self.expected, self.got)


# Only the newest messages are worth keeping when nobody fetches them: a program that never asks
# must not grow.
_KEPT_MESSAGES = 64


class _Recent(threading.local):
    def __init__(self) -> None:
        self.messages: deque[str] = deque(maxlen=_KEPT_MESSAGES)


_recent = _Recent()
_shared: deque[str] = deque(maxlen=_KEPT_MESSAGES)
_process_wide = False


def share_messages(process_wide: bool) -> None:
    """Whether messages are kept for the whole process (`err_msg_mode` "1") or for each thread."""
    global _process_wide
    _process_wide = process_wide


def _messages() -> deque[str]:
    return _shared if _process_wide else _recent.messages


def category(code: int) -> str:
    """How messages name the family of a status."""
    if code in (Status.ACLNN_ERR_PARAM_NULLPTR, Status.ACLNN_ERR_PARAM_INVALID):
        return "AclNN_Parameter_Error(EZ1001)"
    if 161000 <= code < 600000 and code % 100000 // 1000 == 61:
        return "AclNN_Inner_Error(EZ9999)"
    return "Runtime_Error(EE9999)"


def record_message(code: int, text: str) -> None:
    """Keep `text` for this thread's next `aclGetRecentErrMsg`."""
    stamp = datetime.now().strftime("%Y-%m-%d-%H:%M:%S.%f")[:-3]
    _messages().appendleft(
        f"[PID: {os.getpid()}] {stamp} {category(int(code))}: {text} [{int(code)} {status_name(code)}]"
    )


def take_message() -> str | None:
    """The messages of this thread since the last call, newest first, and forget them; None if none."""
    kept = _messages()
    if not kept:
        return None
    text = "\n".join(kept)
    kept.clear()
    return text
