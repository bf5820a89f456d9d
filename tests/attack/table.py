"""Every exported C function as a C function that draws its arguments: what attack.c includes."""

from __future__ import annotations

from openaclnn.capi import glue
from openaclnn.capi.prototypes import (
    ENUM_TYPES,
    Prototype,
    Variable,
    all_prototypes,
    operator_headers,
)
from openaclnn.core.status import AclError, Status

__all__ = ["table_source"]

KINDS = (
    "aclTensor", "aclScalar", "aclIntArray", "aclFloatArray", "aclBoolArray", "aclTensorList", "aclScalarList",
    "aclOpExecutor", "aclrtStream", "aclrtEvent", "aclrtContext",
)  # fmt: skip
# What ends everything, which attack.c does by itself; and what others may wait for without end, by the interface's own
# rules: events whose wait may come before the record, and functions that the program is to call.
APART = {
    "aclInit", "aclFinalize", "aclFinalizeReference", "aclnnInit", "aclnnFinalize", "aclrtCreateEventWithFlag",
}  # fmt: skip
HEADERS = ("acl/acl.h", "aclnn/acl_meta.h", "aclnn/aclnn_base.h")


def base_of(c_type: str) -> str:
    return c_type.replace("const", "").replace("*", "").strip()


def drawn(variable: Variable, name: str) -> str:
    """An expression for one argument."""
    c_type, base = variable.type, base_of(variable.type)
    if glue.is_result(variable):
        return f"({c_type})draw_result(d)"
    if c_type.endswith("*const *"):
        return f"({c_type})draw_handles(d, KIND_{base})"
    if base in KINDS:
        return f"({c_type})draw_handle(d, KIND_{base})"
    if base == "char":
        return f"({c_type})(uintptr_t)draw_text(d)"
    if glue.is_array(variable):
        return f"({c_type})draw_numbers(d)"
    if "Config" in base:
        return "NULL"
    if c_type.endswith("*"):
        place = "draw_address" if variable.name in ("tensorData", "addr") else "draw_buffer"
        return f"({c_type}){place}(d)"
    if c_type in ("float", "double"):
        return f"({c_type})draw_real(d)"
    if c_type == "bool":
        return "(draw(d) & 1) != 0"
    if variable.name in ("viewDimsNum", "storageDimsNum") or (
        variable.name == "size" and "Create" in name
    ):
        return "draw_count(d)"
    if variable.name == "timeout":
        return "(int32_t)(draw(d) % 20)"
    if variable.name == "size" and "Malloc" in name:
        return "draw_size(d)"
    if variable.name in ("destMax", "count", "maxCount"):
        return "(size_t)(draw(d) % (ROOM + 1))"
    if c_type in ENUM_TYPES:
        return f"({c_type})draw_small(d)"
    return f"({c_type})draw_integer(d)"


def call_of(prototype: Prototype) -> str:
    """The function that draws and calls; what was made is kept, what was destroyed is stale from now on."""
    name, lines, after = prototype.name, [], []
    for place, variable in enumerate(prototype.parameters):
        lines.append(f"    {variable.type} a{place} = {drawn(variable, name)};")
        base = base_of(variable.type)
        pointer = glue.is_result(variable)
        if pointer and base in KINDS:
            after.append(
                f"    if (status == 0 && a{place}) keep(KIND_{base}, (uintptr_t)*a{place});"
            )
        elif pointer and variable.type == "void **" and "Malloc" in name:
            after.append(
                f"    if (status == 0 && a{place}) keep_memory(d, *a{place}, {int('Host' in name)});"
            )
        elif pointer and variable.type == "int64_t **":
            after.append(f"    if (status == 0 && a{place}) free(*a{place});")
        elif "Destroy" in name and base in KINDS:
            after.append(f"    retire(KIND_{base}, (uintptr_t)a{place});")
    arguments = ", ".join(f"a{place}" for place in range(len(prototype.parameters)))
    kind = base_of(prototype.returns)
    if prototype.returns in ("aclError", "aclnnStatus"):
        lines.append(f"    int64_t status = {name}({arguments});")
    elif kind in KINDS:
        lines.append(f"    uintptr_t handle = (uintptr_t){name}({arguments});")
        after.append(f"    if (handle) keep(KIND_{kind}, handle);")
        lines.append("    int64_t status = 0;")
    else:
        lines.append(f"    (void){name}({arguments});")
        lines.append("    int64_t status = 0;")
    body = "\n".join([*lines, *after])
    return f"static int64_t call_{name}(Draw *d) {{\n    (void)d;\n{body}\n    return status;\n}}\n"


def is_called(prototype: Prototype) -> bool:
    takes_function = any("Callback" in parameter.type for parameter in prototype.parameters)
    return prototype.name not in APART and "Free" not in prototype.name and not takes_function


def table_source() -> str:
    """The text of attack_table.h."""
    called = list(filter(is_called, all_prototypes()))
    includes = "".join(f'#include "{header}"\n' for header in (*HEADERS, *operator_headers()))
    kinds = ", ".join(f"KIND_{kind}" for kind in KINDS)
    statuses = sorted({int(status) for status in (*Status, *AclError)})
    first = f"{includes}\nenum {{ {kinds}, KINDS }};\n"
    first += f"static const int64_t STATUSES[] = {{ {', '.join(map(str, statuses))} }};\n"
    second = "\n".join(map(call_of, called))
    rows = "".join(
        f'    {{ "{p.name}", call_{p.name}, {int("Reset" in p.name)} }},\n' for p in called
    )
    second += f"\nstatic const Function FUNCTIONS[] = {{\n{rows}}};\n"
    return f"#ifndef ATTACK_CALLS\n{first}#else\n{second}#endif\n"
