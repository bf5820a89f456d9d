"""Programs that call an operator, written from its first sample: C, C++, Python, and a CMake file for the first two."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.interface import Kind, Parameter

__all__ = ["LANGUAGES", "example_of"]

LANGUAGES = {"c++": ".cpp", "c": ".c", "python": ".py", "cmake": ".txt"}
"""The languages, each with the end of its files' names."""

_C_TYPES = {"FLOAT": "float", "INT64": "int64_t", "INT32": "int32_t", "UINT8": "uint8_t"}

_PROGRAM = """\
/* {name}, both phases, from host values to host values.
 *
 *   {compiler} {file} $(openaclnn-config --cflags --libs) -o {python} && ./{python} */
#include <{stdio}>
#include <{stdlib}>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "{header}"

#define CHECK(call)                                                            \\
    do {{                                                                       \\
        int code_ = (int)(call);                                               \\
        if (code_ != 0) {{                                                      \\
            const char *text_ = aclGetRecentErrMsg();                          \\
            fprintf(stderr, "%s gives %d\\n%s\\n", #call, code_, text_ ? text_ : ""); \\
            exit(1);                                                           \\
        }}                                                                      \\
    }} while (0)

static aclTensor *tensor(const void *values, size_t bytes, aclDataType type, const int64_t *shape, uint64_t rank, void **data)
{{
    CHECK(aclrtMalloc(data, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(*data, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    return aclCreateTensor(shape, rank, type, {null}, 0, ACL_FORMAT_ND, shape, rank, *data);
}}

int main({void})
{{
    aclrtStream stream = {null};
    uint64_t workspaceSize = 0;
    void *workspace = {null};
    aclOpExecutor *executor = {null};
    CHECK(aclInit({null}));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));

{declarations}

    CHECK({name}GetWorkspaceSize({arguments}, &workspaceSize, &executor));
    if (workspaceSize > 0) {{
        CHECK(aclrtMalloc(&workspace, workspaceSize, ACL_MEM_MALLOC_HUGE_FIRST));
    }}
    CHECK({name}(workspace, workspaceSize, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));

    CHECK(aclrtMemcpy({out}Values, sizeof({out}Values), {out}Data, sizeof({out}Values), ACL_MEMCPY_DEVICE_TO_HOST));
    for (size_t i = 0; i < sizeof({out}Values) / sizeof({out}Values[0]); i++) {{
        printf("%g%s", (double){out}Values[i], i + 1 < sizeof({out}Values) / sizeof({out}Values[0]) ? " " : "\\n");
    }}

{releases}
    if (workspace != {null}) {{
        CHECK(aclrtFree(workspace));
    }}
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    return 0;
}}
"""

_PYTHON = '''\
"""{name}: the plain call, then both phases."""

import numpy as np

import openaclnn
from openaclnn import acl, aclnn

{assignments}

result = openaclnn.{python}({keywords})
print(result)

out = np.empty_like(result)
status, workspace_size, executor = aclnn.{name}GetWorkspaceSize(
    {positional}
)
assert status == 0, aclnn.aclGetRecentErrMsg()
assert aclnn.{name}(None, workspace_size, executor, None) == 0
assert acl.aclrtSynchronizeStream(None) == 0
assert (out == result).all()
'''

_CMAKE = """\
# cmake -B build -Dopenaclnn_DIR=$(openaclnn-config --cmakedir) && cmake --build build && build/{python}
cmake_minimum_required(VERSION 3.16)
project({python} CXX)

find_package(openaclnn CONFIG REQUIRED)
add_executable({python} {python}.cpp)
target_link_libraries({python} PRIVATE openaclnn::openaclnn)
"""


def example_of(operator: Operator, language: str) -> str:
    """A program's text; ValueError for a language that is not known."""
    given = operator.samples[0].arrays()
    if language == "python":
        return _python(operator, given)
    if language == "cmake":
        return _CMAKE.format(python=operator.python_name)
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; known: {', '.join(LANGUAGES)}")
    return _c_program(operator, given, plus=language == "c++")


def _c_program(operator: Operator, given: dict[str, Any], plus: bool) -> str:
    null = "nullptr" if plus else "NULL"
    declarations: list[str] = []
    releases: list[str] = []
    arguments = [
        _c_argument(p, _value(operator, p, given), null, declarations, releases)
        for p in operator.parameters
    ]
    return _PROGRAM.format(
        name=operator.name, python=operator.python_name, header=operator.header, null=null,
        file=operator.python_name + (".cpp" if plus else ".c"), compiler="c++" if plus else "cc",
        stdio="cstdio" if plus else "stdio.h", stdlib="cstdlib" if plus else "stdlib.h",
        void="" if plus else "void", out=operator.output.name,
        declarations="\n".join(f"    {line}" for line in declarations),
        releases="\n".join(f"    {line}" for line in releases), arguments=", ".join(arguments),
    )  # fmt: skip


def _value(operator: Operator, parameter: Parameter, given: dict[str, Any]) -> Any:
    if parameter.kind is Kind.OUTPUT:
        return np.zeros(np.shape(operator.samples[0].expected), np.float32)
    value = given.get(parameter.python_name, parameter.default)
    if parameter.choices and parameter.kind is Kind.INT64 and isinstance(value, str):
        return parameter.choices.index(value)
    return value


def _c_argument(
    parameter: Parameter, value: Any, null: str, declarations: list[str], releases: list[str]
) -> str:
    """What stands for a parameter in the call; what it needs before and after joins the lists."""
    name = parameter.name
    if value is None:
        return null
    if parameter.is_tensor:
        array = np.asarray(value)
        dtype = dtype_of_numpy(array.dtype)
        assert dtype is not None
        kind = _C_TYPES[dtype.name]
        listed = ", ".join(_number(each, kind) for each in array.reshape(-1).tolist())
        shape = ", ".join(map(str, array.shape)) or "1"  # C has no arrays of nothing
        declarations += [
            f"{kind} {name}Values[] = {{{listed}}};",
            f"const int64_t {name}Shape[] = {{{shape}}};",
            f"void *{name}Data = {null};",
            f"aclTensor *{name} = tensor({name}Values, sizeof({name}Values), {dtype.c_name}, "
            f"{name}Shape, {array.ndim}, &{name}Data);",
        ]
        releases += [f"CHECK(aclDestroyTensor({name}));", f"CHECK(aclrtFree({name}Data));"]
        return name
    if parameter.kind is Kind.SCALAR:
        declarations += [
            f"float {name}Value = {_number(value, 'float')};",
            f"aclScalar *{name} = aclCreateScalar(&{name}Value, ACL_FLOAT);",
        ]
        releases.append(f"CHECK(aclDestroyScalar({name}));")
        return name
    if parameter.kind is Kind.CSTRING:
        declarations.append(f'char {name}[] = "{value}";')
        return name
    if parameter.kind is Kind.BOOL:
        return "true" if value else "false"
    return _number(value, "float") if parameter.kind is Kind.FLOAT else repr(value)


def _number(value: Any, kind: str) -> str:
    if kind != "float":
        return str(int(value))
    text = f"{float(np.float32(value)):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _python(operator: Operator, given: dict[str, Any]) -> str:
    lines = []
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            lines.append(f"{_variable(name)} = np.array({value.tolist()!r}, np.{value.dtype})")
    positional = []
    for parameter in operator.parameters:
        value = _value(operator, parameter, given)
        own = isinstance(value, np.ndarray) and parameter.kind is not Kind.OUTPUT
        positional.append("out" if parameter.kind is Kind.OUTPUT else _variable(parameter.python_name) if own else repr(value))  # fmt: skip
    keywords = [
        f"{n}={_variable(n) if isinstance(v, np.ndarray) else repr(v)}" for n, v in given.items()
    ]
    return _PYTHON.format(
        name=operator.name, python=operator.python_name, assignments="\n".join(lines),
        keywords=", ".join(keywords), positional=", ".join(positional),
    )  # fmt: skip


def _variable(name: str) -> str:
    return f"{name}_" if name == "self" else name
