"""A call as a program in Python: the plain call, then both phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind, Parameter, snake_case
from openaclnn.core.products import Product
from openaclnn.core.tensor import Format
from openaclnn.testing.c_program import LISTED
from openaclnn.testing.case import TensorSpec, is_read

__all__ = ["python_program"]

_PROGRAM = '''\
"""{name}: the plain call, then both phases."""

{imports}

import openaclnn
from openaclnn import acl, aclnn

{assignments}

result = {result}
print(result)

{outputs}status, workspace_size, executor = aclnn.{name}GetWorkspaceSize(
    {positional}
)
assert status == 0, aclnn.aclGetRecentErrMsg()
assert aclnn.{name}(None, workspace_size, executor, None) == 0
assert acl.aclrtSynchronizeStream(None) == 0
{comparisons}
'''


def python_program(
    operator: Operator, values: Mapping[str, Any], product: Product, made: frozenset[str]
) -> str:
    """The program's text; the plain call makes the outputs in `made`."""
    outputs = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
    names = {p.name: _variable(p, len(outputs) > 1) for p in operator.parameters}
    shown = {p.name: _shown(names[p.name], values.get(p.name)) for p in operator.parameters}
    shown |= {p.name: names[p.name] for p in outputs if p.name in made}
    lines = []
    for parameter in operator.parameters:
        value = values.get(parameter.name)
        if isinstance(value, TensorSpec) and parameter.name not in made:
            lines += _assignment(names[parameter.name], value)
    result, fresh = _plain_call(operator, values, shown, made)
    targets = ["result"] if len(outputs) == 1 else [f"result[{n}]" for n in range(len(outputs))]
    text = "\n".join(lines)
    imports = ["import ml_dtypes"] * ("ml_dtypes." in text) + ["import numpy as np"]
    if not product.is_default:
        text = f'os.environ["OPENACLNN_PRODUCT"] = "{product.tag}"\n{text}'
        imports = ["import os", "", *imports]
    return _PROGRAM.format(
        name=operator.name, imports="\n".join(imports), assignments=text, result=result,
        outputs=f"{', '.join(names[p.name] for p in outputs)} = {fresh}\n" if fresh else "",
        positional=", ".join(shown[p.name] for p in operator.parameters),
        comparisons="\n".join(
            f"assert np.array_equal({shown[p.name]}, {each}, equal_nan=True)"
            for p, each in zip(outputs, targets, strict=True)
        ),
    )  # fmt: skip


def _plain_call(
    operator: Operator, values: Mapping[str, Any], shown: Mapping[str, str], made: frozenset[str]
) -> tuple[str, str]:
    """The plain call, whose results phase two does not write over, and what makes outputs for that."""
    outputs = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
    given = [shown[p.name] for p in outputs if p.name not in made]
    keywords = []
    in_place = False
    for parameter in (p for group in operator.plain_parameters for p in group):
        value, text = values.get(parameter.name), shown[parameter.name]
        if parameter.kind is not Kind.OUTPUT:
            if _says(parameter, value):
                keywords.append(f"{parameter.python_name}={text}")
        elif is_read(operator, parameter):  # and then written over
            in_place = True
            keywords.append(
                f"{parameter.python_name}={text if value is None else f'{text}.copy()'}"
            )
        elif given and given != ["None"]:
            keywords.append(f"out={text if len(outputs) == 1 else '(' + ', '.join(given) + ')'}")
    call = f"openaclnn.{operator.python_name}({', '.join(keywords)})"
    if in_place:
        return call, ""
    if given:
        return f"np.array({call})" if len(outputs) == 1 else f"[np.array(each) for each in {call}]", ""  # fmt: skip
    return call, "np.empty_like(result)" if len(outputs) == 1 else "map(np.empty_like, result)"


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
    dtype = f"ml_dtypes.{spec.dtype.numpy_name}" if spec.dtype.numpy.kind == "V" else f"np.{spec.dtype.numpy}"  # fmt: skip
    lines = []
    if spec.values is not None and spec.elements > LISTED:
        lines.append(f"# zeros: {spec.elements} elements are too many to list")
    if spec.format != Format.ACL_FORMAT_ND:
        lines.append(f"# {Format(spec.format).name}: arrays of NumPy have no format, which C says")
    listed = spec.values is not None and 0 < spec.elements <= LISTED
    if spec.strides is None and not spec.offset and spec.storage is None:
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
