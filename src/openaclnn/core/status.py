"""Status codes by their C names, the one exception type, and the recent error message of each thread.

Refused calls are printed where the environment asks for it; programs that only print a status say more then.
`ASCEND_SLOG_PRINT_TO_STDOUT=1` prints each on stdout, as a line of the toolkit's log, unless `ASCEND_GLOBAL_LOG_LEVEL`
is 4 (none). `OPENACLNN_EXPLAIN=1` prints each on stderr, with the rule that the call broke. Read once, at the first one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import weakref
from collections import deque
from datetime import datetime
from enum import IntEnum
from functools import cache


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
    """`aclError`: what the runtime (`acl*`, `aclrt*`) returns; programs use names of codes that nothing here returns."""

    ACL_SUCCESS = 0
    ACL_ERROR_NONE = 0
    ACL_RT_SUCCESS = 0
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
    ACL_ERROR_INVALID_MODEL_ID = 100011
    ACL_ERROR_DESERIALIZE_MODEL = 100012
    ACL_ERROR_PARSE_MODEL = 100013
    ACL_ERROR_READ_MODEL_FAILURE = 100014
    ACL_ERROR_MODEL_SIZE_INVALID = 100015
    ACL_ERROR_MODEL_MISSING_ATTR = 100016
    ACL_ERROR_MODEL_INPUT_NOT_MATCH = 100017
    ACL_ERROR_MODEL_OUTPUT_NOT_MATCH = 100018
    ACL_ERROR_MODEL_NOT_DYNAMIC = 100019
    ACL_ERROR_OP_TYPE_NOT_MATCH = 100020
    ACL_ERROR_OP_INPUT_NOT_MATCH = 100021
    ACL_ERROR_OP_OUTPUT_NOT_MATCH = 100022
    ACL_ERROR_OP_ATTR_NOT_MATCH = 100023
    ACL_ERROR_OP_NOT_FOUND = 100024
    ACL_ERROR_OP_LOAD_FAILED = 100025
    ACL_ERROR_UNSUPPORTED_DATA_TYPE = 100026
    ACL_ERROR_FORMAT_NOT_MATCH = 100027
    ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED = 100028
    ACL_ERROR_KERNEL_NOT_FOUND = 100029
    ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED = 100030
    ACL_ERROR_KERNEL_ALREADY_REGISTERED = 100031
    ACL_ERROR_INVALID_QUEUE_ID = 100032
    ACL_ERROR_REPEAT_SUBSCRIBE = 100033
    ACL_ERROR_STREAM_NOT_SUBSCRIBE = 100034
    ACL_ERROR_THREAD_NOT_SUBSCRIBE = 100035
    ACL_ERROR_WAIT_CALLBACK_TIMEOUT = 100036
    ACL_ERROR_REPEAT_FINALIZE = 100037
    ACL_ERROR_NOT_STATIC_AIPP = 100038
    ACL_ERROR_COMPILING_STUB_MODE = 100039
    ACL_ERROR_GROUP_NOT_SET = 100040
    ACL_ERROR_GROUP_NOT_CREATE = 100041
    ACL_ERROR_PROF_ALREADY_RUN = 100042
    ACL_ERROR_PROF_NOT_RUN = 100043
    ACL_ERROR_DUMP_ALREADY_RUN = 100044
    ACL_ERROR_DUMP_NOT_RUN = 100045
    ACL_ERROR_RT_PARAM_INVALID = 107000
    ACL_ERROR_RT_INVALID_DEVICEID = 107001
    ACL_ERROR_RT_CONTEXT_NULL = 107002
    ACL_ERROR_RT_STREAM_CONTEXT = 107003
    ACL_ERROR_RT_MODEL_CONTEXT = 107004
    ACL_ERROR_RT_STREAM_MODEL = 107005
    ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID = 107006
    ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL = 107007
    ACL_ERROR_RT_ADDR_UNALIGNED = 107008
    ACL_ERROR_RT_FILE_OPEN = 107009
    ACL_ERROR_RT_FILE_WRITE = 107010
    ACL_ERROR_RT_STREAM_SUBSCRIBE = 107011
    ACL_ERROR_RT_THREAD_SUBSCRIBE = 107012
    ACL_ERROR_RT_GROUP_NOT_SET = 107013
    ACL_ERROR_RT_GROUP_NOT_CREATE = 107014
    ACL_ERROR_RT_STREAM_NO_CB_REG = 107015
    ACL_ERROR_RT_INVALID_MEMORY_TYPE = 107016
    ACL_ERROR_RT_INVALID_HANDLE = 107017
    ACL_ERROR_RT_INVALID_MALLOC_TYPE = 107018
    ACL_ERROR_RT_WAIT_TIMEOUT = 107019
    ACL_ERROR_RT_TASK_TIMEOUT = 107020
    ACL_ERROR_RT_SYSPARAMOPT_NOT_SET = 107021
    ACL_ERROR_RT_DEVICE_TASK_ABORT = 107022
    ACL_ERROR_RT_STREAM_ABORT = 107023
    ACL_ERROR_PROF_REPEAT_SUBSCRIBE = 148046
    ACL_ERROR_PROF_API_CONFLICT = 148047
    ACL_ERROR_INVALID_MAX_OPQUEUE_NUM_CONFIG = 148048
    ACL_ERROR_INVALID_OPP_PATH = 148049
    ACL_ERROR_OP_UNSUPPORTED_DYNAMIC = 148050
    ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED = 148051
    ACL_ERROR_UNSUPPORTED_JPEG = 148052
    ACL_ERROR_INVALID_BUNDLE_MODEL_ID = 148053
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
    ACL_ERROR_RT_NO_NOTIFY_RESOURCE = 207009
    ACL_ERROR_RT_NO_MODEL_RESOURCE = 207010
    ACL_ERROR_RT_NO_CDQ_RESOURCE = 207011
    ACL_ERROR_RT_OVER_LIMIT = 207012
    ACL_ERROR_RT_QUEUE_EMPTY = 207013
    ACL_ERROR_RT_QUEUE_FULL = 207014
    ACL_ERROR_RT_REPEATED_INIT = 207015
    ACL_ERROR_RT_AIVEC_OVER_FLOW = 207016
    ACL_ERROR_RT_OVER_FLOW = 207017
    ACL_ERROR_RT_DEVICE_OOM = 207018
    ACL_ERROR_STORAGE_OVER_LIMIT = 300000
    ACL_ERROR_INTERNAL_ERROR = 500000
    ACL_ERROR_FAILURE = 500001
    ACL_ERROR_GE_FAILURE = 500002
    ACL_ERROR_RT_FAILURE = 500003
    ACL_ERROR_DRV_FAILURE = 500004
    ACL_ERROR_PROFILING_FAILURE = 500005
    ACL_ERROR_RT_INTERNAL_ERROR = 507000
    ACL_ERROR_RT_TS_ERROR = 507001
    ACL_ERROR_RT_STREAM_TASK_FULL = 507002
    ACL_ERROR_RT_STREAM_TASK_EMPTY = 507003
    ACL_ERROR_RT_STREAM_NOT_COMPLETE = 507004
    ACL_ERROR_RT_END_OF_SEQUENCE = 507005
    ACL_ERROR_RT_EVENT_NOT_COMPLETE = 507006
    ACL_ERROR_RT_CONTEXT_RELEASE_ERROR = 507007
    ACL_ERROR_RT_SOC_VERSION = 507008
    ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT = 507009
    ACL_ERROR_RT_LOST_HEARTBEAT = 507010
    ACL_ERROR_RT_MODEL_EXECUTE = 507011
    ACL_ERROR_RT_REPORT_TIMEOUT = 507012
    ACL_ERROR_RT_SYS_DMA = 507013
    ACL_ERROR_RT_AICORE_TIMEOUT = 507014
    ACL_ERROR_RT_AICORE_EXCEPTION = 507015
    ACL_ERROR_RT_AICORE_TRAP_EXCEPTION = 507016
    ACL_ERROR_RT_AICPU_TIMEOUT = 507017
    ACL_ERROR_RT_AICPU_EXCEPTION = 507018
    ACL_ERROR_RT_AICPU_DATADUMP_RSP_ERR = 507019
    ACL_ERROR_RT_AICPU_MODEL_RSP_ERR = 507020
    ACL_ERROR_RT_PROFILING_ERROR = 507021
    ACL_ERROR_RT_IPC_ERROR = 507022
    ACL_ERROR_RT_MODEL_ABORT_NORMAL = 507023
    ACL_ERROR_RT_KERNEL_UNREGISTERING = 507024
    ACL_ERROR_RT_RINGBUFFER_NOT_INIT = 507025
    ACL_ERROR_RT_RINGBUFFER_NO_DATA = 507026
    ACL_ERROR_RT_KERNEL_LOOKUP = 507027
    ACL_ERROR_RT_KERNEL_DUPLICATE = 507028
    ACL_ERROR_RT_DEBUG_REGISTER_FAIL = 507029
    ACL_ERROR_RT_DEBUG_UNREGISTER_FAIL = 507030
    ACL_ERROR_RT_LABEL_CONTEXT = 507031
    ACL_ERROR_RT_PROGRAM_USE_OUT = 507032
    ACL_ERROR_RT_DEV_SETUP_ERROR = 507033
    ACL_ERROR_RT_VECTOR_CORE_TIMEOUT = 507034
    ACL_ERROR_RT_VECTOR_CORE_EXCEPTION = 507035
    ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION = 507036
    ACL_ERROR_RT_CDQ_BATCH_ABNORMAL = 507037
    ACL_ERROR_RT_DIE_MODE_CHANGE_ERROR = 507038
    ACL_ERROR_RT_DIE_SET_ERROR = 507039
    ACL_ERROR_RT_INVALID_DIEID = 507040
    ACL_ERROR_RT_DIE_MODE_NOT_SET = 507041
    ACL_ERROR_RT_AICORE_TRAP_READ_OVERFLOW = 507042
    ACL_ERROR_RT_AICORE_TRAP_WRITE_OVERFLOW = 507043
    ACL_ERROR_RT_VECTOR_CORE_TRAP_READ_OVERFLOW = 507044
    ACL_ERROR_RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW = 507045
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046
    ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047
    ACL_ERROR_RT_FFTS_PLUS_TIMEOUT = 507048
    ACL_ERROR_RT_FFTS_PLUS_EXCEPTION = 507049
    ACL_ERROR_RT_FFTS_PLUS_TRAP_EXCEPTION = 507050
    ACL_ERROR_RT_SEND_MSG = 507051
    ACL_ERROR_RT_COPY_DATA = 507052
    ACL_ERROR_RT_DEVICE_MEM_ERROR = 507053
    ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR = 507054
    ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR = 507055
    ACL_ERROR_RT_LINK_ERROR = 507056
    ACL_ERROR_RT_SUSPECT_REMOTE_ERROR = 507057
    ACL_ERROR_RT_DRV_INTERNAL_ERROR = 507899
    ACL_ERROR_RT_AICPU_INTERNAL_ERROR = 507900
    ACL_ERROR_RT_SOCKET_CLOSE = 507901


def status_name(code: int) -> str:
    """The C name of a status, of either family; the number itself where it has none."""
    for family in (Status, AclError):
        try:
            return family(code).name
        except ValueError:
            continue
    return str(code)


def shown(value: object) -> str:
    """An argument as a message shows it: a handle by its C type (`c_name` of its class), others by `repr`."""
    name = getattr(type(value), "c_name", "")
    return f"an {name}" if name else repr(value)


class AclnnError(ValueError):
    """A refused call: `status`, `operator`, `parameter`, `expected` and `got` say exactly why."""

    __module__ = "openaclnn"  # where users find it
    rule = ""  # the row of the operator's checks that was broken, with its number

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


class _Messages(deque[str]):
    """The newest first."""

    def __init__(self) -> None:
        super().__init__(maxlen=_KEPT_MESSAGES)

    def move_to(self, other: _Messages) -> None:
        """Move all messages to the top of another deque."""
        with contextlib.suppress(IndexError):  # none left
            while True:
                other.appendleft(self.pop())


class _Recent(threading.local):
    def __init__(self) -> None:
        self.messages = _Messages()
        _of_threads[id(self.messages)] = self.messages


_of_threads: weakref.WeakValueDictionary[int, _Messages] = weakref.WeakValueDictionary()
_recent = _Recent()
_shared = _Messages()
_process_wide = False


def share_messages(process_wide: bool) -> None:
    """Set whether messages are kept for the whole process (`err_msg_mode` "1") or for each thread. On a change, those of all threads
    move to the process, or those of the process to the calling thread."""
    global _process_wide
    changed, _process_wide = process_wide != _process_wide, process_wide
    if not changed:
        return
    if process_wide:
        for others in list(_of_threads.values()):
            if others is not _recent.messages:
                others.move_to(_shared)
        _recent.messages.move_to(_shared)
    else:
        _shared.move_to(_recent.messages)


def _messages() -> _Messages:
    return _shared if _process_wide else _recent.messages


def category(code: int) -> str:
    """The name of a status's family in messages."""
    if code in (Status.ACLNN_ERR_PARAM_NULLPTR, Status.ACLNN_ERR_PARAM_INVALID):
        return "AclNN_Parameter_Error(EZ1001)"
    if 161000 <= code < 600000 and code % 100000 // 1000 == 61:
        return "AclNN_Inner_Error(EZ9999)"
    return "Runtime_Error(EE9999)"


def record_message(code: int, text: str, rule: str = "") -> None:
    """Keep `text` for this thread's next `aclGetRecentErrMsg`, and show it where the environment asks for that."""
    stamp = datetime.now().strftime("%Y-%m-%d-%H:%M:%S.%f")[:-3]
    message = f"{text} [{int(code)} {status_name(code)}]"
    _messages().appendleft(f"[PID: {os.getpid()}] {stamp} {category(int(code))}: {message}")
    _print_refusal(message, rule)


def take_message() -> str | None:
    """The messages of this thread since the last call, newest first, and forget them; None if none."""
    taken = _Messages()
    _messages().move_to(taken)
    return "\n".join(taken) or None


_ERROR = 3
_MODULES = (("aclnn", "OP"), ("aclrt", "RUNTIME"), ("", "ASCENDCL"))  # by how functions are called


@cache
def _wanted() -> tuple[bool, bool]:
    level = os.environ.get("ASCEND_GLOBAL_LOG_LEVEL", "").strip()
    logs = os.environ.get("ASCEND_SLOG_PRINT_TO_STDOUT", "").strip() == "1"
    explains = os.environ.get("OPENACLNN_EXPLAIN", "").strip() not in ("", "0")
    return logs and (level not in ("0", "1", "2", "3", "4") or int(level) <= _ERROR), explains


def _print_refusal(text: str, rule: str) -> None:
    """Print a refusal as the environment wants it; `rule` is empty where the text is all there is."""
    logs, explains = _wanted()
    if logs:
        _print_with_c(_line(text))
    if explains and sys.stderr is not None:
        reason = f"\n  rule {rule}" if rule else ""
        with contextlib.suppress(OSError, ValueError):  # closed: nobody wants to know
            print(f"openaclnn: {text}{reason}", file=sys.stderr, flush=True)


def _line(text: str) -> str:
    module = next(name for prefix, name in _MODULES if text.startswith(prefix))
    time = datetime.now().strftime("%Y-%m-%d-%H:%M:%S.%f")
    where = f"{module}({os.getpid()},{_program()}):{time[:-3]}.{time[-3:]}"
    return f"[ERROR] {where} [openaclnn]{threading.get_native_id()} {text}"


@cache
def _program() -> str:
    try:
        return os.path.basename(os.readlink("/proc/self/exe"))
    except OSError:
        return os.path.basename(sys.executable or "program")


def _print_with_c(line: str) -> None:
    """Through the C library's stdout, so that the line comes between a C program's own, in its place."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None:
            sys.stdout.flush()
        library = ctypes.CDLL(None)
        library.puts(line.encode())
        library.fflush(None)
