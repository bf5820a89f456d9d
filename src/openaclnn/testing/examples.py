"""Programs that call an operator, written from its first sample: C, C++, Python, and a CMake file for the first two."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.interface import Kind, Parameter, snake_case
from openaclnn.testing.goldens import places_of, results_of

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

static void show(const char *name, const void *data, float *values, size_t bytes)
{{
    CHECK(aclrtMemcpy(values, bytes, data, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    printf("%s:", name);
    for (size_t i = 0; i < bytes / sizeof(values[0]); i++) {{
        printf(" %g", (double)values[i]);
    }}
    printf("\\n");
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

{shown}

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
{places}

result = openaclnn.{python}({keywords})
print(result)

status, workspace_size, executor = aclnn.{name}GetWorkspaceSize(
    {positional}
)
assert status == 0, aclnn.aclGetRecentErrMsg()
assert aclnn.{name}(None, workspace_size, executor, None) == 0
assert acl.aclrtSynchronizeStream(None) == 0
{comparisons}
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
        _c_argument(p, value, null, declarations, releases)
        for p, value in zip(operator.parameters, _values(operator, given), strict=True)
    ]
    shown = [
        f'show("{name}", {name}Data, {name}Values, sizeof({name}Values));'
        for name in results_of(operator, given)
    ]
    return _PROGRAM.format(
        name=operator.name, python=operator.python_name, header=operator.header, null=null,
        file=operator.python_name + (".cpp" if plus else ".c"), compiler="c++" if plus else "cc",
        stdio="cstdio" if plus else "stdio.h", stdlib="cstdlib" if plus else "stdlib.h",
        void="" if plus else "void",
        declarations="\n".join(f"    {line}" for line in declarations),
        releases="\n".join(f"    {line}" for line in releases), arguments=", ".join(arguments),
        shown="\n".join(f"    {line}" for line in shown),
    )  # fmt: skip


def _values(operator: Operator, given: dict[str, Any]) -> list[Any]:
    """Phase one's arguments; what is only written as zeros."""
    places = places_of(operator, given)
    values = []
    for parameter in operator.parameters:
        value = given.get(parameter.python_name, parameter.default)
        if parameter.is_tensor and not parameter.is_read:
            shape, dtype = places[parameter.name]
            value = np.zeros(shape, dtype.numpy)
        elif parameter.choices and parameter.kind is Kind.INT64 and isinstance(value, str):
            value = parameter.choices.index(value)
        values.append(value)
    return values


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
    positional, places, comparisons = [], [], []
    computed = results_of(operator, given)
    for parameter, value in zip(operator.parameters, _values(operator, given), strict=True):
        if parameter.kind is Kind.OUTPUT:
            name = snake_case(parameter.name) if operator.result_type else "out"
            own = f"{_variable(parameter.python_name)}.copy()"
            empty = f"np.empty({value.shape}, np.{value.dtype})"
            places.append(f"{name} = {own if parameter.in_place else empty}")
            result = f"result.{parameter.field}" if operator.result_type else "result"
            if parameter.name in computed:
                comparisons.append(f"assert ({name} == {result}).all()")
            positional.append(name)
        else:
            array = isinstance(value, np.ndarray)
            positional.append(_variable(parameter.python_name) if array else repr(value))
    keywords = [
        f"{n}={_variable(n) if isinstance(v, np.ndarray) else repr(v)}" for n, v in given.items()
    ]
    return _PYTHON.format(
        name=operator.name, python=operator.python_name, assignments="\n".join(lines),
        keywords=", ".join(keywords), positional=", ".join(positional), places="\n".join(places),
        comparisons="\n".join(comparisons),
    )  # fmt: skip


def _variable(name: str) -> str:
    return f"{name}_" if name == "self" else name
