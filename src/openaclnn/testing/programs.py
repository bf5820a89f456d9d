"""Programs that make a call, in C, C++ and Python, and a CMake file: for an operator's first sample, or any call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from openaclnn.core.call import CONVERSION_ERRORS
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import DOUBLE, FLOAT, DType, dtype_of_numpy, is_int64
from openaclnn.core.interface import REQUIRED, Kind, Parameter, snake_case
from openaclnn.core.products import PRODUCTS, Product
from openaclnn.core.tensor import Format, Scalar
from openaclnn.testing.cases.case import TensorSpec
from openaclnn.testing.goldens import planned

LANGUAGES = {"c++": ".cpp", "c": ".c", "python": ".py", "cmake": ".txt"}
"""The languages, each with the end of its files' names."""

_CMAKE = """\
# cmake -B build -Dopenaclnn_DIR=$(openaclnn-config --cmakedir) && cmake --build build && build/{python}
cmake_minimum_required(VERSION 3.16)
project({python} CXX)

find_package(openaclnn CONFIG REQUIRED)
add_executable({python} {python}.cpp)
target_link_libraries({python} PRIVATE openaclnn::openaclnn)
"""


def example_of(operator: Operator, language: str) -> str:
    """The program of an operator's first sample; ValueError for a language that is not known."""
    sample = operator.samples[0]
    values = sample_values(operator, sample)
    sound = planned(operator, sample.arrays())
    for name, (shape, dtype) in sound.outputs.items():
        values.setdefault(name, TensorSpec(shape, dtype))
    allocated = frozenset(p.name for p in operator.outputs if not p.in_place)
    return program_of(operator, values, language, allocated=allocated, computed=frozenset(sound.computed))  # fmt: skip


def program_of(
    operator: Operator, values: Mapping[str, Any], language: str, product: Product = PRODUCTS[0],
    allocated: frozenset[str] = frozenset(), computed: frozenset[str] | None = None,
) -> str:  # fmt: skip
    """The program of a call; ValueError for a call that the language cannot make.

    `values` has tensors as specs, by C name; those left out are null. The plain call allocates the outputs in `allocated`. Of the
    outputs those in `computed` are shown, or all.
    """
    if language == "python":
        return _python_program(operator, values, product, allocated)
    if language == "cmake":
        return _CMAKE.format(python=operator.python_name)
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; known: {', '.join(LANGUAGES)}")
    return _c_program(operator, values, product, language == "c++", computed)


def sample_values(operator: Operator, sample: Sample) -> dict[str, Any]:
    """A sample's arguments by C name, tensors as specs with values; what the plain call makes is not among them."""
    arrays = sample.arrays()
    values: dict[str, Any] = {}
    for parameter in operator.parameters:
        value = arrays.get(parameter.python_name, parameter.default)
        if isinstance(value, np.ndarray):
            dtype = dtype_of_numpy(value.dtype)
            assert dtype is not None
            values[parameter.name] = TensorSpec(value.shape, dtype, values=value)
        elif parameter.python_name in arrays or not (parameter.kind is Kind.OUTPUT or parameter.computed):  # fmt: skip
            values[parameter.name] = value
    return values


LISTED = 256
"""So many elements of a tensor are written into a program; larger tensors are zeros."""

_SHOWN = 8  # elements that are printed of a large output
_MOST_BYTES = 1 << 62

# The C type of an element; halves as their bits, complex numbers as two parts.
_C_TYPES = {
    "FLOAT": "float", "DOUBLE": "double", "FLOAT16": "uint16_t", "BFLOAT16": "uint16_t", "INT8": "int8_t",
    "INT16": "int16_t", "INT32": "int32_t", "INT64": "int64_t", "UINT8": "uint8_t", "UINT16": "uint16_t",
    "UINT32": "uint32_t", "UINT64": "uint64_t", "BOOL": "uint8_t", "COMPLEX64": "float", "COMPLEX128": "double",
}  # fmt: skip
_READ = {"FLOAT16": "(double)aclFloat16ToFloat({0})", "BFLOAT16": "(double)bfloat16ToFloat({0})"}

_C_PROGRAM = """\
/* {name}, both phases, from host values to host values.
 *
 *   {compiler} {file} $(openaclnn-config --cflags --libs) -o {python} && {environment}./{python} */
{includes}

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
{helpers}
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

{prints}
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

_TENSOR = """
static aclTensor *tensor(const void *values, size_t bytes, aclDataType type, const int64_t *shape, uint64_t rank, void **data)
{{
    CHECK(aclrtMalloc(data, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(*data, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    return aclCreateTensor(shape, rank, type, {null}, 0, ACL_FORMAT_ND, shape, rank, *data);
}}
"""

_BFLOAT16 = """
static float bfloat16ToFloat(uint16_t bits)
{{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}}
"""


def _c_program(
    operator: Operator,
    values: Mapping[str, Any],
    product: Product,
    plus: bool,
    computed: frozenset[str] | None = None,
) -> str:
    """The program's text; ValueError for a value that no C program could give. It prints outputs, those in `computed` or all."""
    null = "nullptr" if plus else "NULL"
    declarations: list[str] = []
    releases: list[str] = []
    prints: list[str] = []
    arguments: list[str] = []
    for parameter in operator.parameters:
        value = values.get(parameter.name)
        if isinstance(value, TensorSpec):
            declarations += _tensor(parameter, value, null)
            releases.append(f"CHECK(aclDestroyTensor({parameter.name}));")
            releases.append(f"CHECK(aclrtFree({parameter.name}Data));")
            if parameter.kind is Kind.OUTPUT and (computed is None or parameter.name in computed):
                prints += _print(parameter.name, value)
            arguments.append(parameter.name)
        elif parameter.is_tensor:
            if parameter.computed:
                declarations.append(f"/* {parameter.name}: the plain call computes it; here it has to be given. */")  # fmt: skip
            arguments.append(null)
        else:
            arguments.append(_attribute(parameter, value, null, declarations, releases))
    body = "\n".join((*declarations, *prints))
    uses = {"tensor": "= tensor(" in body, "bfloat16": "bfloat16ToFloat(" in body}
    headers = ["stdio", "stdlib", *["string"] * uses["bfloat16"]]
    headers += ["math"] * ("NAN" in body or "INFINITY" in body)
    return _C_PROGRAM.format(
        name=operator.name, python=operator.python_name, header=operator.header, null=null,
        file=operator.python_name + (".cpp" if plus else ".c"), compiler="c++" if plus else "cc",
        environment="" if product.is_default else f"OPENACLNN_PRODUCT={product.tag} ",
        includes="\n".join(f"#include <c{h}>" if plus else f"#include <{h}.h>" for h in sorted(headers)),
        void="" if plus else "void",
        helpers=(_TENSOR * uses["tensor"] + _BFLOAT16 * uses["bfloat16"]).format(null=null),
        declarations=_indented(declarations), prints=_indented([*prints, ""]) if prints else "",
        releases=_indented(releases), arguments=", ".join(arguments),
    )  # fmt: skip


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" if line else "" for line in lines)


def _tensor(parameter: Parameter, spec: TensorSpec, null: str) -> Iterator[str]:
    """Memory with the values of a tensor, and its descriptor."""
    name, dtype = parameter.name, spec.dtype
    if dtype.name not in _C_TYPES:
        raise ValueError(f"{name}: C has no type for {dtype.name}")
    listed = 0 < spec.elements <= LISTED
    plain = spec.is_plain and spec.format == Format.ACL_FORMAT_ND
    if listed:
        memory = spec.memory()
        if spec.values is not None:
            spec.over(memory)[...] = np.asarray(spec.values)
        kind = _C_TYPES[dtype.name]
        note = f"  /* {dtype.name}: {', '.join(f'{float(v):g}' for v in memory)} */" if dtype.name in _READ else ""  # fmt: skip
        yield f"{kind} {name}Values[] = {{{', '.join(_elements(memory, dtype))}}};{note}"
    rank, shape = len(spec.shape), ", ".join(map(str, spec.shape)) or "1"  # no arrays of nothing
    yield f"const int64_t {name}Shape[] = {{{shape}}};"
    yield f"void *{name}Data = {null};"
    size = f"sizeof({name}Values)"
    if listed and plain:
        yield f"aclTensor *{name} = tensor({name}Values, {size}, {dtype.c_name}, {name}Shape, {rank}, &{name}Data);"
        return
    if not listed:
        bytes_ = max(spec.elements * dtype.itemsize, 1)
        if bytes_ > _MOST_BYTES:
            raise ValueError(f"{name}: no machine has {bytes_} bytes of memory")
        size = str(bytes_)
    yield f"CHECK(aclrtMalloc(&{name}Data, {size}, ACL_MEM_MALLOC_HUGE_FIRST));"
    if listed:
        yield f"CHECK(aclrtMemcpy({name}Data, {size}, {name}Values, {size}, ACL_MEMCPY_HOST_TO_DEVICE));"
    else:
        many = spec.elements > LISTED and parameter.kind is not Kind.OUTPUT
        note = f" /* zeros: {spec.elements} elements are too many to list */" if many else ""
        yield f"CHECK(aclrtMemset({name}Data, {size}, 0, {size}));{note}"
    strides = null
    storage = f"{name}Shape, {rank}"
    if not spec.is_plain:
        if spec.strides is not None and rank:
            yield f"const int64_t {name}Strides[] = {{{', '.join(map(str, spec.strides))}}};"
            strides = f"{name}Strides"
        yield f"const int64_t {name}Storage[] = {{{spec.elements}}};"
        storage = f"{name}Storage, 1"
    layout = Format(spec.format).name
    yield f"aclTensor *{name} = aclCreateTensor({name}Shape, {rank}, {dtype.c_name}, {strides}, {spec.offset}, {layout}, {storage}, {name}Data);"


def _print(name: str, spec: TensorSpec) -> Iterator[str]:
    """The output's storage, in the order of its memory."""
    if not spec.elements:
        return
    kind, parts = _C_TYPES[spec.dtype.name], 2 if spec.dtype.kind == "complex" else 1
    if spec.elements > LISTED:
        yield f"{kind} {name}Values[{_SHOWN * parts}]; /* the first of {spec.elements} */"
    values, end = f"{name}Values", f"sizeof({name}Values) / sizeof({name}Values[0])"
    one = _READ.get(spec.dtype.name, "(double){0}").format(f"{values}[i]")
    yield f"CHECK(aclrtMemcpy({values}, sizeof({values}), {name}Data, sizeof({values}), ACL_MEMCPY_DEVICE_TO_HOST));"
    yield f'printf("{name}:");'
    yield from (f"for (size_t i = 0; i < {end}; i++) {{", f'    printf(" %g", {one});', "}")
    yield 'printf("\\n");'


def _attribute(
    parameter: Parameter, value: Any, null: str, declarations: list[str], releases: list[str]
) -> str:
    """What stands for a number or a name in the call; what it needs before and after joins the lists."""
    name, kind = parameter.name, parameter.kind
    if kind is Kind.SCALAR:
        return null if value is None else _scalar(name, value, declarations, releases)
    if kind is Kind.CSTRING:
        if value is None:
            return null
        if isinstance(value, int) and 0 <= value < len(parameter.choices):
            value = parameter.choices[value]
        declarations.append(f"char {name}[] = {_quoted(str(value))};")
        return name
    if kind is Kind.BOOL and value in (0, 1):
        return "true" if value else "false"
    if kind is Kind.INT64:
        if value in parameter.choices:
            value = parameter.choices.index(value)
        if isinstance(value, int) and is_int64(value):
            return _integer(value)
    elif kind in (Kind.FLOAT, Kind.DOUBLE) and isinstance(value, (int, float)):
        return _number(value, FLOAT if kind is Kind.FLOAT else DOUBLE)
    raise ValueError(f"{name}: no C program can give {value!r} for {kind.value.strip()}")


def _scalar(name: str, value: Any, declarations: list[str], releases: list[str]) -> str:
    try:
        scalar = Scalar.of(value)
    except CONVERSION_ERRORS as error:
        raise ValueError(f"{name}: no C program can give {value!r} for an aclScalar") from error
    dtype = scalar.dtype
    if dtype is DOUBLE and (float(np.float32(value)) == value or math.isnan(value)):
        dtype = FLOAT  # as programs write it
    kind, listed = _C_TYPES[dtype.name], _elements(np.asarray([scalar.value], dtype.numpy), dtype)
    if len(listed) == 1:
        declarations.append(f"{kind} {name}Value = {listed[0]};")
    else:
        declarations.append(f"{kind} {name}Value[] = {{{', '.join(listed)}}};")
    declarations.append(f"aclScalar *{name} = aclCreateScalar(&{name}Value, {dtype.c_name});")
    releases.append(f"CHECK(aclDestroyScalar({name}));")
    return name


def _elements(array: np.ndarray[Any, Any], dtype: DType) -> list[str]:
    """The elements as C writes them."""
    if dtype.name in _READ:
        return [f"0x{bits:04x}" for bits in array.view(np.uint16).tolist()]
    if dtype.kind == "complex":
        part = FLOAT if dtype.itemsize == 8 else DOUBLE
        return [_number(each, part) for each in array.view(part.numpy).tolist()]
    if dtype.kind == "floating":
        return [_number(each, dtype) for each in array.tolist()]
    return [_integer(int(each)) for each in array.tolist()]


def _integer(value: int) -> str:
    if value == -(1 << 63):  # C reads the sign last
        return f"({value + 1} - 1)"
    return f"{value}u" if value >= 1 << 63 else str(value)


def _number(value: float, dtype: DType) -> str:
    with np.errstate(over="ignore"):
        held = float(dtype.numpy.type(value))
    if math.isnan(held):
        return "NAN"
    if math.isinf(held):
        return "INFINITY" if held > 0 else "-INFINITY"
    text = f"{held:.9g}" if dtype is FLOAT else repr(held)
    text = text if "." in text or "e" in text else f"{text}.0"
    return f"{text}f" if dtype is FLOAT else text


def _quoted(text: str) -> str:
    """A C string; what is not plain ASCII as octal numbers, which end after three digits."""
    plain = set(range(32, 127)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


_PYTHON_PROGRAM = '''\
"""{name}: the plain call, then both phases."""

{imports}

import openaclnn
from openaclnn import acl, aclnn

{assignments}

plain = {plain}
print(plain)

{outputs}status, workspace_size, executor = aclnn.{name}GetWorkspaceSize(
    {positional}
)
assert status == 0, aclnn.aclGetRecentErrMsg()
assert aclnn.{name}(None, workspace_size, executor, None) == 0
assert acl.aclrtSynchronizeStream(None) == 0
{comparisons}
'''


def _python_program(
    operator: Operator, values: Mapping[str, Any], product: Product, allocated: frozenset[str]
) -> str:
    """The program's text; the plain call allocates the outputs in `allocated`."""
    outputs = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
    names = {p.name: _variable(p, len(outputs) > 1) for p in operator.parameters}
    shown = {p.name: _shown(names[p.name], values.get(p.name)) for p in operator.parameters}
    shown |= {p.name: names[p.name] for p in outputs if p.name in allocated}
    lines = []
    for parameter in operator.parameters:
        value = values.get(parameter.name)
        if isinstance(value, TensorSpec) and parameter.name not in allocated:
            lines += _assignment(names[parameter.name], value)
    plain, fresh = _plain_call(operator, values, shown, allocated)
    text = "\n".join(lines)
    halves = any(isinstance(each, TensorSpec) and _dtype(each).startswith("ml") for each in values.values())  # fmt: skip
    imports = ["import ml_dtypes"] * halves + ["import numpy as np"]
    if not product.is_default:
        text = f'os.environ["OPENACLNN_PRODUCT"] = "{product.tag}"\n{text}'
        imports = ["import os", "", *imports]
    return _PYTHON_PROGRAM.format(
        name=operator.name, imports="\n".join(imports), assignments=text, plain=plain,
        outputs="".join(f"{names[p.name]} = np.zeros({values[p.name].shape}, {_dtype(values[p.name])})\n" for p in outputs) if fresh else "",
        positional=", ".join(shown[p.name] for p in operator.parameters),
        comparisons=_comparisons([shown[p.name] for p in outputs]),
    )  # fmt: skip


def _comparisons(outputs: list[str]) -> str:
    """Both ways have the same bits; of several outputs the plain call gives None for what is not computed."""
    if len(outputs) == 1:
        return f"assert np.array_equal({outputs[0]}, plain, equal_nan=True)"
    return (
        f"for written, each in zip(({', '.join(outputs)}), plain):\n"
        "    assert each is None or np.array_equal(written, each, equal_nan=True)"
    )


def _dtype(spec: TensorSpec) -> str:
    dtype = spec.dtype
    return f"ml_dtypes.{dtype.numpy_name}" if dtype.numpy.kind == "V" else f"np.{dtype.numpy}"


def _plain_call(
    operator: Operator,
    values: Mapping[str, Any],
    shown: Mapping[str, str],
    allocated: frozenset[str],
) -> tuple[str, bool]:
    """The plain call, whose results phase two does not write over, and whether that needs outputs of its own."""
    outputs = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
    passed = [shown[p.name] for p in outputs if p.name not in allocated]
    keywords = []
    in_place = False
    for parameter in (p for group in operator.plain_parameters for p in group):
        value, text = values.get(parameter.name), shown[parameter.name]
        if parameter.kind is not Kind.OUTPUT:
            if _says(parameter, value):
                keywords.append(f"{parameter.python_name}={text}")
        elif parameter.in_place:  # and then written over
            in_place = True
            keywords.append(
                f"{parameter.python_name}={text if value is None else f'{text}.copy()'}"
            )
        elif passed and passed != ["None"]:
            keywords.append(f"out={text if len(outputs) == 1 else '(' + ', '.join(passed) + ')'}")
    call = f"openaclnn.{operator.python_name}({', '.join(keywords)})"
    if in_place:
        return call, False
    if passed:
        return f"np.array({call})" if len(outputs) == 1 else f"[np.array(each) for each in {call}]", False  # fmt: skip
    return call, True


def _variable(parameter: Parameter, several: bool) -> str:
    if parameter.kind is Kind.OUTPUT and several:
        return snake_case(parameter.name)
    return f"{parameter.python_name}_" if parameter.python_name == "self" else parameter.python_name


def _says(parameter: Parameter, value: Any) -> bool:
    """Whether the plain call has to say it."""
    return not (parameter.default is not REQUIRED and type(value) is type(parameter.default) and value == parameter.default)  # fmt: skip


def _shown(name: str, value: Any) -> str:
    if isinstance(value, TensorSpec):
        return name
    if isinstance(value, float) and not np.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _assignment(name: str, spec: TensorSpec) -> list[str]:
    dtype = _dtype(spec)
    lines = []
    if spec.values is not None and spec.elements > LISTED:
        lines.append(f"# zeros: {spec.elements} elements are too many to list")
    if spec.format != Format.ACL_FORMAT_ND:
        lines.append(f"# {Format(spec.format).name}: arrays of NumPy have no format, which C says")
    listed = spec.values is not None and 0 < spec.elements <= LISTED
    if spec.is_plain:
        if listed:
            return [*lines, f"{name} = np.array({_list(np.asarray(spec.values))}, {dtype})"]
        return [*lines, f"{name} = np.zeros({spec.shape}, {dtype})"]
    memory = f"np.zeros({spec.elements}, {dtype})"
    if listed:
        held = spec.memory()
        spec.over(held)[...] = np.asarray(spec.values)
        memory = f"np.array({_list(held)}, {dtype})"
    steps = tuple(step * spec.dtype.itemsize for step in spec.descriptor().strides)
    start = f"[{spec.offset}:]" if spec.offset else ""
    return [
        *lines,
        f"{name}_memory = {memory}",
        f"{name} = np.lib.stride_tricks.as_strided({name}_memory{start}, {spec.shape}, {steps})",
    ]


def _list(array: np.ndarray[Any, Any]) -> str:
    values = array.astype(np.float64) if array.dtype.kind == "V" else array
    return repr(values.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
