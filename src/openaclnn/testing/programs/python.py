"""A call as a program in Python: the plain call, then both phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind, Parameter, snake_case
from openaclnn.core.products import Product
from openaclnn.core.tensor import Format
from openaclnn.testing.cases.case import TensorSpec
from openaclnn.testing.programs.c import LISTED

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
    text = "\n".join(lines)
    halves = any(isinstance(each, TensorSpec) and _dtype(each).startswith("ml") for each in values.values())  # fmt: skip
    imports = ["import ml_dtypes"] * halves + ["import numpy as np"]
    if not product.is_default:
        text = f'os.environ["OPENACLNN_PRODUCT"] = "{product.tag}"\n{text}'
        imports = ["import os", "", *imports]
    return _PROGRAM.format(
        name=operator.name, imports="\n".join(imports), assignments=text, result=result,
        outputs="".join(f"{names[p.name]} = {_fresh(values[p.name])}\n" for p in outputs) if fresh else "",
        positional=", ".join(shown[p.name] for p in operator.parameters),
        comparisons=_comparisons([shown[p.name] for p in outputs]),
    )  # fmt: skip


def _comparisons(outputs: list[str]) -> str:
    """Both ways have the same bits; of several outputs the plain call gives None for what is not computed."""
    if len(outputs) == 1:
        return f"assert np.array_equal({outputs[0]}, result, equal_nan=True)"
    return (
        f"for own, each in zip(({', '.join(outputs)}), result):\n"
        "    assert each is None or np.array_equal(own, each, equal_nan=True)"
    )


def _fresh(spec: TensorSpec) -> str:
    return f"np.zeros({spec.shape}, {_dtype(spec)})"


def _dtype(spec: TensorSpec) -> str:
    dtype = spec.dtype
    return f"ml_dtypes.{dtype.numpy_name}" if dtype.numpy.kind == "V" else f"np.{dtype.numpy}"


def _plain_call(
    operator: Operator, values: Mapping[str, Any], shown: Mapping[str, str], made: frozenset[str]
) -> tuple[str, bool]:
    """The plain call, whose results phase two does not write over, and whether that needs outputs of its own."""
    outputs = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
    given = [shown[p.name] for p in outputs if p.name not in made]
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
        elif given and given != ["None"]:
            keywords.append(f"out={text if len(outputs) == 1 else '(' + ', '.join(given) + ')'}")
    call = f"openaclnn.{operator.python_name}({', '.join(keywords)})"
    if in_place:
        return call, False
    if given:
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
