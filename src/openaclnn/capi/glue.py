"""From a prototype to the code between C and Python: cffi declarations, C stubs, Python wrappers.

On the C side every function exists twice: `openaclnn_NAME` in the core library enters Python through
cffi, and NAME in the libraries that programs link is a stub that starts Python if need be and jumps
there. On the Python side a wrapper turns C arguments into those of the function of the same name in
`openaclnn.acl` or `openaclnn.aclnn`, and its results into what C expects. All are made here, by type.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import cache
from keyword import iskeyword

from openaclnn.capi.prototypes import ENUM_TYPES, Prototype, Variable, all_prototypes
from openaclnn.core.status import AclError, Status, category, status_name

HANDLES = frozenset({"aclrtStream", "aclrtEvent", "aclrtContext"})
CALLBACK = "aclrtCallback"
_STATUSES = {
    "aclError": (AclError.ACL_ERROR_INVALID_PARAM, AclError.ACL_ERROR_INTERNAL_ERROR),
    "aclnnStatus": (Status.ACLNN_ERR_PARAM_NULLPTR, Status.ACLNN_ERR_INNER),
}
_NUMBERS = frozenset({"int32_t", "uint32_t", "int64_t", "uint64_t", "size_t", "float", "double"})


def is_object(variable: Variable) -> bool:
    """Whether it is a handle: a stream, an event, a context, or a pointer to an opaque struct."""
    opaque = variable.pointee.removeprefix("const ").strip()
    if variable.type in HANDLES:
        return True
    return variable.is_pointer and opaque.startswith("acl") and opaque.isidentifier()


def is_result(variable: Variable) -> bool:
    """Whether the function writes through it."""
    if not variable.is_pointer or variable.type.startswith("const"):
        return False
    if variable.type == "char *":  # most are read, though their type does not say so
        return variable.name == "versionStr"
    pointee = variable.pointee
    written = pointee in _NUMBERS or pointee in ENUM_TYPES or pointee in HANDLES
    return written or pointee.endswith("*")


def is_array(variable: Variable) -> bool:
    """Whether it points to values that the function reads, as many as a count says."""
    base = variable.pointee.removeprefix("const ").strip()
    readable = base in ("int64_t", "float", "bool") or base.endswith("*const")
    return variable.is_pointer and variable.type.startswith("const") and readable


def _abi(c_type: str) -> str:
    """A type that is passed in the same way; addresses and handles become plain numbers."""
    if c_type in ENUM_TYPES:
        return "int32_t"
    if c_type == "aclFloat16":
        return "uint16_t"
    if c_type in HANDLES or c_type == CALLBACK:
        return "uintptr_t"
    if not c_type.endswith("*"):
        # A byte, since one that nobody set may be neither 0 nor 1.
        return "uint8_t" if c_type == "bool" else c_type
    pointee = c_type[:-1].strip().removeprefix("const ").strip()
    if pointee == "char":
        return "char *"
    if pointee == "int64_t *":
        return "int64_t **"
    if pointee in HANDLES or pointee.removesuffix("const").endswith("*"):
        return "uintptr_t *"
    if pointee == "void" or (pointee.startswith("acl") and pointee not in ENUM_TYPES):
        return "uintptr_t"
    return f"{_abi(pointee)} *"


def _returned(prototype: Prototype) -> str:
    # A whole register for a status: callers that read it as 64 bits find nothing else in it.
    return "int64_t" if prototype.returns in _STATUSES else _abi_return(prototype.returns)


def _abi_return(c_type: str) -> str:
    return "uintptr_t" if c_type.endswith("*") else _abi(c_type)


def _declaration(prototype: Prototype, prefix: str) -> str:
    arguments = ", ".join(f"{_abi(v.type)} {v.name}" for v in prototype.parameters) or "void"
    return f"{_returned(prototype)} {prefix}{prototype.name}({arguments})"


@cache
def cffi_declarations() -> str:
    """What the core library exports, as cffi reads it."""
    return "\n".join(f"{_declaration(p, 'openaclnn_')};" for p in all_prototypes())


@cache
def digest() -> str:
    """Changes whenever a library and these modules no longer fit together."""
    return hashlib.sha256(cffi_declarations().encode()).hexdigest()[:16]


def failure_of(prototype: Prototype) -> int:
    """What the function returns where its call could not be made at all; null for pointers."""
    return int(_STATUSES[prototype.returns][1]) if prototype.returns in _STATUSES else 0


_STUB_START = """#include <stddef.h>
#include <stdint.h>

struct openaclnn_visit { uint64_t mode; int cancel; int cancel_type; };
extern int openaclnn_enter(struct openaclnn_visit *visit);
extern void openaclnn_leave(const struct openaclnn_visit *visit);
extern void openaclnn_refuse(const char *function, const char *status);
extern const char *openaclnn_refused(void);
"""


def stub_source() -> str:
    """The C source of the libraries that programs link."""
    return "\n".join([_STUB_START, *map(_stub, all_prototypes())])


def _stub(prototype: Prototype) -> str:
    failure = failure_of(prototype)
    code = failure or int(AclError.ACL_ERROR_INTERNAL_ERROR)
    refused = f'"{category(code)}: {prototype.name}", "{code} {status_name(code)}"'
    names = ", ".join(v.name for v in prototype.parameters)
    lines = [
        "    struct openaclnn_visit visit;",
        f"    if (openaclnn_enter(&visit) != 0) {{ openaclnn_refuse({refused}); return {failure}; }}",
        f"    {_returned(prototype)} answer = openaclnn_{prototype.name}({names});",
        "    openaclnn_leave(&visit);",
        "    return answer;",
    ]
    if prototype.name == "aclGetRecentErrMsg":  # says why none of the others gets in
        lines[1] = "    if (openaclnn_enter(&visit) != 0) return 0;"
        lines[:0] = [
            "    const char *refused = openaclnn_refused();",
            "    if (refused != NULL) return (uintptr_t)refused;",
        ]
    head = f"extern {_declaration(prototype, 'openaclnn_')};\n{_declaration(prototype, '')} {{"
    return "\n".join([head, *lines, "}\n"])


def wrapper_source(prototype: Prototype) -> str:
    """The Python wrapper of a function, as text; `bridge` provides the names with an underscore.

    C names have none in front, so that they cannot collide with ours.
    """
    renamed = (
        replace(v, name=f"{v.name}_") if iskeyword(v.name) else v for v in prototype.parameters
    )
    prototype = replace(prototype, parameters=tuple(renamed))
    results = [v for v in prototype.parameters if is_result(v)]
    if prototype.phase == 1:
        body = _phase_one(prototype)
    elif prototype.phase == 2:
        body = _phase_two()
    else:
        body = [*_null_checks(prototype, results), *_call(prototype, results)]
    names = ", ".join(v.name for v in prototype.parameters)
    lines = "".join(f"        {line}\n" for line in body)
    error = (
        f"_null_first(error, {_arguments_or_none(prototype)})" if prototype.phase == 1 else "error"
    )
    return (
        f"def wrapper({names}):\n    try:\n{lines}"
        f"    except BaseException as error:\n        return _failed({error})\n"
    )


def _arguments_or_none(prototype: Prototype) -> str:
    """Phase one's arguments as they came, nulls as None."""
    return ", ".join(
        f"{v.name} or None" if is_object(v) or is_result(v) else v.name
        for v in prototype.parameters
    )


def _null_checks(prototype: Prototype, results: list[Variable]) -> list[str]:
    code = int(_STATUSES[prototype.returns][0]) if prototype.returns in _STATUSES else 0
    required = [v for v in results if v.name != "refCount"]  # the one that may be left out
    return [f"if not {v.name}: return _null_result({code}, {v.name!r})" for v in required]


def _call(prototype: Prototype, results: list[Variable]) -> list[str]:
    call = f"_function({', '.join(_arguments(prototype))})"
    name, parameters = prototype.name, prototype.parameters
    # These end streams and events that are not named in the call.
    ends = ["_sweep()"] if re.search("Finalize|ResetDevice|DestroyContext", name) else []
    if results:
        return [f"_status, _value = {call}", *ends, "if _status == 0:",
                *(f"    {line}" for line in _store(results)), "return _status"]  # fmt: skip
    if prototype.returns.endswith("List *"):
        return [f"return _add_list({call}, _unpack(value, size) if value else ())"]
    if prototype.returns.endswith("*"):
        return [f"return _add({call})"]
    if "Destroy" in name and parameters[0].name == "executor":
        return ["if _was_retired(executor): return 0", f"_status = {call}",
                "if _status == 0: _forget(executor)", "return _status"]  # fmt: skip
    if "Destroy" in name:
        handle = parameters[0].name
        return [f"_thing = _find({handle})", "_status = _function(_thing)",
                f"if not getattr(_thing, 'alive', True): _forget({handle})",
                *ends, "return _status"]  # fmt: skip
    return [f"_status = {call}", *ends, "return _status"] if ends else [f"return {call}"]


def _arguments(prototype: Prototype) -> list[str]:
    arguments: list[str] = []
    skipped = count = ""
    behind = (*prototype.parameters, None)[1:]
    for variable, following in zip(prototype.parameters, behind, strict=True):
        name = variable.name
        if is_result(variable) or name == skipped:
            continue
        if is_array(variable):
            counted = following is not None and following.type == "uint64_t"
            if counted and following is not None:
                skipped = count = following.name
            members = variable.pointee.endswith("const")
            kind = "_members" if members else "_values" if counted else "_optional_values"
            arguments.append(f"{kind}({name}, {count}, {name!r})")
        elif is_object(variable):
            arguments.append(f"_find({name})")
        elif variable.type == CALLBACK:
            arguments.append(f"_callback({name})")
        elif variable.is_pointer and variable.pointee.endswith("char"):
            arguments.append(f"_text({name})")
        elif prototype.name == "aclCreateScalar" and name == "value":
            arguments.append("_number(value, dataType)")
        else:
            arguments.append(name)
    return arguments


def _store(results: list[Variable]) -> list[str]:
    first = results[0]
    if first.type == "int64_t **":
        return [f"{first.name}[0] = _new_array(_value)", f"{results[1].name}[0] = len(_value)"]
    if first.pointee in HANDLES:
        return [f"{first.name}[0] = _handle_of(_value)"]
    if first.type == "char *":
        return [f"_write_text({first.name}, _value)"]
    if first.name == "refCount":
        return ["if refCount: refCount[0] = _value"]
    if len(results) == 1:
        return [f"{first.name}[0] = _value"]
    return [f"{v.name}[0] = _value[{i}]" for i, v in enumerate(results)]


def _phase_one(prototype: Prototype) -> list[str]:
    arguments = []
    for variable in prototype.parameters[:-2]:
        if is_object(variable):
            kind = variable.pointee.removeprefix("const ").strip()
            missing = f"_missing({variable.name}, {variable.name!r}, {kind!r})"
            arguments.append(
                f"{missing} if (_object := _live({variable.name})) is None else _object"
            )
        elif variable.type == "bool":
            arguments.append(f"{variable.name} != 0")
        else:
            arguments.append(f"_text({variable.name})" if variable.is_pointer else variable.name)
    pointers = "() if workspaceSize and executor else (workspaceSize or None, executor or None)"
    return [f"_pointers = {pointers}",
            f"_status, _size, _executor = _function({', '.join(arguments)}, *_pointers)", "if _status == 0:",
            "    workspaceSize[0] = _size", "    executor[0] = _add(_executor)", "return _status"]  # fmt: skip


def _phase_two() -> list[str]:
    return ["_executor = _find(executor)",
            "_status = _function(workspace or None, workspaceSize, _executor, _find(stream))",
            "if type(_executor) is _Executor and _executor.spent: _retire(executor)",
            "return _status"]  # fmt: skip
