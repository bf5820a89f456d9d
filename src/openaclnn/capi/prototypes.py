"""The C functions: one text per header, and operators from the registry. All else derives from these, the text of the header files first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from openaclnn.core.dtypes import DTYPES
from openaclnn.core.status import AclError, Status
from openaclnn.operators import registry
from openaclnn.runtime.enums import BASE_TYPES, RUNTIME_FLAGS, RUNTIME_TYPES

_BASE = """
size_t aclDataTypeSize(aclDataType dataType)
float aclFloat16ToFloat(aclFloat16 value)
aclFloat16 aclFloatToFloat16(float value)
const char *aclGetRecentErrMsg(void)
aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value)
"""

_INIT = """
aclError aclInit(const char *configPath)
aclError aclFinalize(void)
aclError aclFinalizeReference(uint64_t *refCount)
"""

_RUNTIME = """
aclError aclrtSetDevice(int32_t deviceId)
aclError aclrtResetDevice(int32_t deviceId)
aclError aclrtResetDeviceForce(int32_t deviceId)
aclError aclrtGetDevice(int32_t *deviceId)
aclError aclrtGetDeviceCount(uint32_t *count)
aclError aclrtGetRunMode(aclrtRunMode *runMode)
aclError aclrtSynchronizeDevice(void)
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout)
aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId)
aclError aclrtDestroyContext(aclrtContext context)
aclError aclrtSetCurrentContext(aclrtContext context)
aclError aclrtGetCurrentContext(aclrtContext *context)
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value)
aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value)
aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value)
aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value)

aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
aclError aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig *cfg)
aclError aclrtFree(void *devPtr)
aclError aclrtFreeWithDevSync(void *devPtr)
aclError aclrtMallocHost(void **hostPtr, size_t size)
aclError aclrtFreeHost(void *hostPtr)
aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind)
aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind, aclrtStream stream)
aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count)
aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream)
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total)

aclError aclrtCreateStream(aclrtStream *stream)
aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag)
aclError aclrtDestroyStream(aclrtStream stream)
aclError aclrtDestroyStreamForce(aclrtStream stream)
aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode)
aclError aclrtSynchronizeStream(aclrtStream stream)
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout)
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status)
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event)

aclError aclrtCreateEvent(aclrtEvent *event)
aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag)
aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag)
aclError aclrtDestroyEvent(aclrtEvent event)
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream)
aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream)
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status)
aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status)
aclError aclrtSynchronizeEvent(aclrtEvent event)
aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout)
aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent)

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream)
aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType, aclrtStream stream)
aclError aclrtProcessReport(int32_t timeout)
aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream)

aclError aclrtSetOpWaitTimeout(uint32_t timeout)
aclError aclrtSetOpExecuteTimeOut(uint32_t timeout)
aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout)
aclError aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId, int32_t peerDeviceId)
aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags)
aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId)
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode)
aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode)
aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag)
aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag)
aclError aclrtGetOverflowStatus(void *outputAddr, size_t outputSize, aclrtStream stream)
aclError aclrtResetOverflowStatus(aclrtStream stream)

aclError aclrtPeekAtLastError(aclrtLastErrLevel level)
aclError aclrtGetLastError(aclrtLastErrLevel level)
const char *aclrtGetSocName(void)
aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion)
aclError aclsysGetVersionStr(char *pkgName, char *versionStr)
"""

_VIEW = (
    "const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t *stride, "
    "int64_t offset, aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum, "
    "void *tensorData"
)

_META = f"""
aclTensor *aclCreateTensor({_VIEW})
aclnnStatus aclInitTensor(aclTensor *tensor, {_VIEW})
aclnnStatus aclDestroyTensor(const aclTensor *tensor)
aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum)
aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims, uint64_t *storageDimsNum)
aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue, uint64_t *stridesNum)
aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset)
aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format)
aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType)
aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr)
aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr)

aclScalar *aclCreateScalar(void *value, aclDataType dataType)
aclnnStatus aclDestroyScalar(const aclScalar *scalar)

aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size)
aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size)
aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size)
aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size)
aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size)
aclnnStatus aclDestroyIntArray(const aclIntArray *array)
aclnnStatus aclDestroyFloatArray(const aclFloatArray *array)
aclnnStatus aclDestroyBoolArray(const aclBoolArray *array)
aclnnStatus aclDestroyTensorList(const aclTensorList *array)
aclnnStatus aclDestroyScalarList(const aclScalarList *array)
aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size)
aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size)
aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size)
aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size)
aclnnStatus aclGetScalarListSize(const aclScalarList *scalarList, uint64_t *size)
"""

_EXECUTOR = """
aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor)
aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor)
aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr)
aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr)
aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr)
aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t irIndex, size_t relativeIndex, aclTensorList *tensors, void *addr)
aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t irIndex, size_t relativeIndex, aclTensorList *tensors, void *addr)
aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t irIndex, size_t relativeIndex, aclTensorList *tensors, void *addr)
"""

# Each function on executors has a second spelling, with a capital A.
_ACLNN = (
    "aclnnStatus aclnnInit(const char *configPath)\naclnnStatus aclnnFinalize(void)\n"
    + _EXECUTOR
    + _EXECUTOR.replace("aclnnStatus acl", "aclnnStatus Acl")
)

HEADERS: dict[str, str] = {
    "acl/acl_base.h": _BASE,
    "acl/acl_rt.h": _RUNTIME,
    "acl/acl.h": _INIT,
    "aclnn/acl_meta.h": _META,
    "aclnn/aclnn_base.h": _ACLNN,
}
"""The prototypes of each header that does not belong to an operator."""


@dataclass(frozen=True)
class Variable:
    """A parameter: its C type as it stands before the name, and the name."""

    type: str
    name: str

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*")

    @property
    def pointee(self) -> str:
        return self.type[:-1].strip()

    def __str__(self) -> str:
        return f"{self.type}{'' if self.is_pointer else ' '}{self.name}"


@dataclass(frozen=True)
class Prototype:
    """A function: its return type, name and parameters; `phase` is 1 or 2 for an operator's."""

    returns: str
    name: str
    parameters: tuple[Variable, ...]
    phase: int = 0

    def __str__(self) -> str:
        space = "" if self.returns.endswith("*") else " "
        arguments = ", ".join(map(str, self.parameters)) or "void"
        return f"{self.returns}{space}{self.name}({arguments})"


_FUNCTION = re.compile(r"(.*?)(\w+)\((.*)\)\s*")
_VARIABLE = re.compile(r"(.*?)(\w+)\s*")


def parse(text: str, phase: int = 0) -> Prototype:
    """Read one prototype."""
    function = _FUNCTION.fullmatch(text.strip())
    if function is None:
        raise ValueError(f"not a prototype: {text!r}")
    returns, name, arguments = function.groups()
    parameters = []
    for argument in () if arguments.strip() == "void" else arguments.split(","):
        variable = _VARIABLE.fullmatch(argument.strip())
        if variable is None or not variable[1]:
            raise ValueError(f"not a parameter: {argument!r} in {text!r}")
        parameters.append(Variable(variable[1].strip(), variable[2]))
    return Prototype(returns.strip(), name, tuple(parameters), phase)


def operator_headers() -> dict[str, tuple[Prototype, ...]]:
    """The headers of the operators; variants of one operator share theirs."""
    headers: dict[str, tuple[Prototype, ...]] = {}
    for operator in registry():
        first, second = operator.prototypes()
        pair = (parse(first, 1), parse(second, 2))
        headers[operator.header] = headers.get(operator.header, ()) + pair
    return headers


def _runtime() -> Iterator[Prototype]:
    for text in HEADERS.values():
        yield from (parse(line) for line in text.splitlines() if line.strip())


@cache
def all_prototypes() -> tuple[Prototype, ...]:
    """Every exported function."""
    operators = (p for prototypes in operator_headers().values() for p in prototypes)
    return (*_runtime(), *operators)


# The header files as text: types and enumerations from the tables, functions from the prototypes.


ENUM_TYPES = frozenset({"aclDataType", *BASE_TYPES, *RUNTIME_TYPES})
"""The C names of the enumerations; each is 32 bits wide."""

ALL = "aclnnop/aclnn_ops_nn.h"
"""The header that includes those of all operators."""

_OBJECTS = ("aclTensor", "aclScalar", "aclIntArray", "aclFloatArray", "aclBoolArray",
            "aclTensorList", "aclScalarList", "aclOpExecutor")  # fmt: skip

_SYSTEM = "".join(f"#include <{name}.h>\n" for name in ("stdbool", "stddef", "stdint", "stdlib"))

_MALLOC_CONFIG = """\
typedef union aclrtMallocAttrValue {
    uint16_t moduleId;
    uint32_t deviceId;
    uint8_t rsv[8];
} aclrtMallocAttrValue;

typedef struct aclrtMallocAttribute {
    aclrtMallocAttrType attr;
    aclrtMallocAttrValue value;
} aclrtMallocAttribute;

typedef struct aclrtMallocConfig {
    aclrtMallocAttribute *attrs;
    size_t numAttrs;
} aclrtMallocConfig;"""

_CALLBACK = "typedef void (*aclrtCallback)(void *userData);"

_OK = """\
/* A program that has an OK of its own as a macro keeps it. */
#if defined(__cplusplus) && !defined(OK)
static const aclnnStatus OK = 0;
#endif"""


def _enum(c_name: str, members: Mapping[str, int]) -> str:
    lines = "".join(f"    {name} = {int(value)},\n" for name, value in members.items())
    # Pedantic compilers of older standards do not want a comma behind the last one.
    return f"typedef enum {c_name} {{\n{lines[:-2]}\n}} {c_name};"


def _flags(members: Mapping[str, int]) -> str:
    return "\n".join(f"#define {name} {int(value):#010x}U" for name, value in members.items())


def _constants(members: Mapping[str, int]) -> str:
    # Objects, not macros or enumerators: `::ACL_SUCCESS` is a name, a status is an int, and compilers
    # warn where enumerations mix.
    return "\n".join(f"static const int {name} = {int(value)};" for name, value in members.items())


def _function(prototype: Prototype) -> str:
    line = f"ACL_FUNC_VISIBILITY {prototype};"
    if len(line) <= 100:
        return line
    head, arguments = line.split("(", 1)
    rows = [""]
    for argument in re.split(r"(?<=,) ", arguments):
        if len(rows[-1]) + len(argument) > 88:
            rows.append("")
        rows[-1] += (" " if rows[-1] else "") + argument
    return head + "(\n    " + "\n    ".join(rows)


def _header(path: str, title: str, includes: Iterable[str], *parts: str) -> str:
    guard = "OPENACLNN_" + re.sub(r"\W", "_", path).upper()
    body = "\n\n".join(part for part in parts if part)
    lines = "\n".join(f'#include "{name}"' for name in includes)
    linked = (
        f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{body}\n\n#ifdef __cplusplus\n}}\n#endif\n\n'
    )
    return (
        f"/* {title} Generated by openaclnn: do not edit. */\n"
        f"#ifndef {guard}\n#define {guard}\n\n"
        f"{lines or _SYSTEM.rstrip()}\n\n{linked if body else ''}#endif\n"
    )


def _functions(path: str) -> str:
    rows = HEADERS[path].strip().splitlines()
    return "\n".join(_function(parse(row)) if row.strip() else "" for row in rows)


def _base() -> str:
    visibility = (
        "#ifndef ACL_FUNC_VISIBILITY\n#if defined(__GNUC__)\n"
        '#define ACL_FUNC_VISIBILITY __attribute__((visibility("default")))\n'
        "#else\n#define ACL_FUNC_VISIBILITY\n#endif\n#endif"
    )
    types = "typedef int32_t aclError;\ntypedef uint16_t aclFloat16;"
    handles = "\n".join(
        f"typedef void *{name};" for name in ("aclrtStream", "aclrtEvent", "aclrtContext")
    )
    return _header(
        "acl/acl_base_rt.h", "Types, enumerations and error codes.", (),
        visibility, f"{types}\n{handles}",
        _enum("aclDataType", {dtype.c_name: dtype.code for dtype in DTYPES}),
        *(_enum(name, enum.__members__) for name, enum in BASE_TYPES.items()),
        _constants(AclError.__members__),
    )  # fmt: skip


def _runtime_header() -> str:
    return _header(
        "acl/acl_rt.h", "Devices, contexts, memory, streams and events.", ["acl/acl_base.h"],
        *(_enum(name, enum.__members__) for name, enum in RUNTIME_TYPES.items()),
        *(_flags(enum.__members__) for enum in RUNTIME_FLAGS),
        _MALLOC_CONFIG, _CALLBACK, _functions("acl/acl_rt.h"),
    )  # fmt: skip


def _meta() -> str:
    objects = "\n".join(f"typedef struct {name} {name};" for name in _OBJECTS)
    return _header(
        "aclnn/acl_meta.h", "Tensor descriptors, scalars, arrays and lists.", ["acl/acl_base.h"],
        f"typedef int32_t aclnnStatus;\n{objects}", _OK, _functions("aclnn/acl_meta.h"),
    )  # fmt: skip


def header_files() -> dict[str, str]:
    """Every header by its path below the include folder."""
    files = {
        "acl/acl_base_rt.h": _base(),
        "acl/acl_base.h": _header(
            "acl/acl_base.h", "Numbers and messages.", ["acl/acl_base_rt.h"],
            _functions("acl/acl_base.h"),
        ),
        "acl/acl_rt.h": _runtime_header(),
        "acl/acl.h": _header(
            "acl/acl.h", "The runtime.", ["acl/acl_base.h", "acl/acl_rt.h"], _functions("acl/acl.h")
        ),
        "aclnn/acl_meta.h": _meta(),
        "aclnn/aclnn_base.h": _header(
            "aclnn/aclnn_base.h", "Initialisation and executors.",
            ["acl/acl_base.h", "aclnn/acl_meta.h"], _functions("aclnn/aclnn_base.h"),
        ),
        # Apart from what operators include: programs have an ACLNN_SUCCESS of their own.
        "aclnn/opdev/op_errno.h": _header(
            "aclnn/opdev/op_errno.h", "The operators' status codes.", ["aclnn/acl_meta.h"],
            _constants(Status.__members__),
        ),
    }  # fmt: skip
    titles = {operator.header: operator.summary for operator in registry()}
    for path, prototypes in operator_headers().items():
        functions = "\n\n".join(map(_function, prototypes))
        files[path] = _header(path, titles[path], ["aclnn/aclnn_base.h"], functions)
    files[ALL] = _header(ALL, "Every operator that is here.", operator_headers())
    return files
