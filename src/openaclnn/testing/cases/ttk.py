"""TTK tables: a case a row, in the kernel's or the interface's words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.tensor import Format
from openaclnn.operators import operators_by_kernel
from openaclnn.testing.cases.case import (
    Case,
    Drawn,
    Malformed,
    Skip,
    TensorSpec,
    check_range,
    dtype_of,
    operator_named,
    parameter_named,
    telling,
    ttk_range,
    without_unread,
)
from openaclnn.testing.cases.tables import Row, file_name, is_nothing, read_rows
from openaclnn.testing.data.drawing import Distribution, ranks_of

__all__ = ["read_ttk"]


def read_ttk(path: Path, sheet: str | None = None) -> Iterator[Case | Malformed]:
    """The cases of a table, and in their places the rows that are not run."""
    for number, row in enumerate(read_rows(path, ("api_name", "op_name"), sheet)):
        name = row.get("testcase_name") or f"auto_testcase_name_{number}"
        place = f"{path.name}, line {row.line}"
        try:
            yield _case(row, path.parent, name, place, number)
        except (ValueError, TypeError, OverflowError) as error:
            operator_name = row.get("api_name") or row.get("op_name") or ""
            yield Malformed.of(error, name, place, number, "", operator_name)


def _case(row: Row, folder: Path, name: str, place: str, number: int) -> Case:
    form = _form(row)
    attributes, notes = _attributes(row, form)
    tensors = _tensors(row, form, attributes, folder)
    if form.kernel:
        tensors = without_unread(form.operator, tensors, attributes)
        tensors |= _ones(form, tensors)
    goldens = row.names("manual_golden_binaries")
    return Case(
        name, form.operator.name, place, number, tensors,
        attributes | _scalars(row, form.operator, attributes),
        tolerances=row.tolerances("precision_tolerances"),
        atols=row.offsets("absolute_precision"),
        kernel=form.kernel, notes=notes,
        products=row.words("soc_series"),
        goldens=tuple(None if each is None else folder / each for each in goldens),
        enabled=row.switch("is_enabled", True),
    )  # fmt: skip


@dataclass(frozen=True)
class _Form:
    """What a row is about: the operator, its tensors in the row's order, and how the columns about them are called."""

    operator: Operator
    tensors: tuple[Parameter, ...]
    kernel: bool = False
    unread: int = 0  # inputs of the kernel alone, behind the others
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    numbered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ones: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Parameter]:
        return [parameter for parameter in self.tensors if parameter.is_read]

    def column(self, what: str) -> str:
        if what == "binaries":
            return "manual_input_binaries" if self.kernel else "manual_tensor_binaries"
        if self.kernel:
            return f"input_{what}"
        return f"tensor_view_{what}" if what == "shapes" else f"tensor_{what}"


def _form(row: Row) -> _Form:
    api, kernel = row.get("api_name"), row.get("op_name")
    if api is not None:
        if not api.startswith("aclnn"):
            raise Skip("end-to-end", f"{api} is a function of a framework, called end to end")
        operator = operator_named(api)
        return _Form(operator, operator.tensors)
    if kernel is None:
        raise ValueError("column api_name: a row names an interface here, or a kernel as op_name")
    above = operators_by_kernel().get(kernel.lower())
    if above is None:
        operator = operator_named(kernel)
        return _Form(operator, operator.tensors, kernel=True)
    # Of several interfaces above one kernel, that of the first input's dimensions, else the first.
    shape = next(iter(row.shapes("input_shapes")), None)
    rank = len(shape) if isinstance(shape, (tuple, list)) else -1
    operator = next((each for each in above if rank in ranks_of(each)), above[0])
    form = next(each for each in operator.workloads.KERNELS if each.name == kernel.lower())
    tensors = (*(operator[name] for name in form.inputs.values()), *operator.outputs)
    renamed = {**form.inputs, **form.renamed}
    return _Form(
        operator, tensors, True, len(form.unread), renamed, form.values, form.only, form.numbered,
        form.ones,
    )  # fmt: skip


def _attributes(row: Row, form: _Form) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Values by C name, those of tensors among them; and what was not used."""
    cell = row.literal("attributes")
    if not is_nothing(cell) and not isinstance(cell, dict):
        raise ValueError(f"column attributes: names with values are expected, not {cell!r}")
    values, notes = dict(form.values), []
    for name, value in (cell or {}).items():
        if name in form.only:
            if not _is_same(value, form.only[name]):
                told = f"{row.get('op_name')} with {name} {value!r} is not among our operators"
                raise Skip("another operator", told)
            continue
        if name in form.numbered:
            value = _number(name, value, form.numbered[name])
        parameter = parameter_named(form.operator, form.renamed.get(name, name))
        if parameter is None:
            unused = f"attribute {name!r} was not used: {form.operator.name} has none of that name"
            notes.append(unused)
        else:
            values[parameter.name] = _axis(name, value) if parameter.axis else value
    return values, tuple(notes)


def _is_same(value: Any, known: Any) -> bool:
    """Equal, or the same FLOAT but for how many digits it was written with."""
    if isinstance(known, float) and isinstance(value, (int, float)):
        return math.isclose(value, known, rel_tol=1e-6)
    return bool(value == known)


def _number(name: str, value: Any, names: tuple[str, ...]) -> int:
    """A value that kernels have by its name, as the interface's number."""
    if value not in names:
        raise ValueError(f"column attributes: {name} is {' or '.join(names)}, not {value!r}")
    return names.index(value)


def _axis(name: str, value: Any) -> Any:
    """An axis, which kernels have as a list of several."""
    if not isinstance(value, (tuple, list)):
        return value
    if len(value) != 1:
        told = f"{name} {list(value)!r}: our operators have rows along one axis"
        raise Skip("another operator", told)
    return value[0]


_ABSENT = object()
"""In place of a shape: the column has no entry for the tensor."""


def _tensors(
    row: Row, form: _Form, attributes: dict[str, Any], folder: Path
) -> dict[str, TensorSpec | None]:
    """Specifications by C name; values of tensors leave the attributes. Outputs without a shape or a dtype are left out:
    the operator knows what it makes.
    """
    valued = {p.name: attributes.pop(p.name) for p in form.tensors if p.name in attributes}
    columns = _columns(row, form, valued)
    _check_outputs(row, form)
    specs: dict[str, TensorSpec | None] = {}
    for number, parameter in enumerate(form.tensors):
        entries = {column: values[number] for column, values in columns.items()}
        stated = entries["shapes"] is not _ABSENT and entries["dtypes"] is not None
        if entries["shapes"] is _ABSENT:
            entries["shapes"] = None
        if parameter.is_read or stated:
            values = valued.get(parameter.name)
            specs[parameter.name] = _spec(form, parameter, entries, values, folder)
    return specs


def _ones(form: _Form, tensors: Mapping[str, TensorSpec | None]) -> dict[str, TensorSpec | None]:
    """Tensors that a kernel can do without, where a row leaves them out: ones for each class."""
    ones: dict[str, TensorSpec | None] = {}
    for name, classes in form.ones.items():
        like = tensors.get(classes)
        if tensors.get(name) is None and like is not None:
            ones[name] = TensorSpec(like.shape[:2][-1:], like.dtype, Distribution(1, 1))
    return ones


def _columns(row: Row, form: _Form, valued: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What each column says of each tensor, in the row's order."""
    tensors, count, inputs = form.tensors, len(form.tensors), len(form.inputs)
    shapes = row.shapes(form.column("shapes"))
    most = inputs if form.kernel else count
    if len(shapes) <= most + form.unread:
        shapes = shapes[:most]
    unvalued = [p for p in tensors[:most] if p.name not in valued]
    if len(shapes) == len(unvalued) < most:  # tensors with values need no shape
        coming = iter(shapes)
        shapes = [None if p.name in valued else next(coming) for p in tensors[:most]]
    if len(shapes) > most:
        names = ", ".join(p.name for p in tensors[:most])
        column = form.column("shapes")
        raise ValueError(f"column {column}: {len(shapes)} entries for the tensors {names}")
    shapes += [_ABSENT] * (most - len(shapes))
    columns = {"ranges": row.ranges("input_data_ranges", count)}
    for column in ("tensor_view_strides", "tensor_view_offsets", "tensor_storage_shapes"):
        columns[column] = row.each(column, count, one_for_all=False)
    columns["binaries"] = row.each(form.column("binaries"), count, one_for_all=False)
    if not form.kernel:
        dtypes, formats = (row.each(form.column(what), count) for what in ("dtypes", "formats"))
        return columns | {"shapes": shapes, "dtypes": dtypes, "formats": formats}
    written = count - inputs
    outputs = row.shapes("output_shapes")
    if outputs == [()] and is_nothing(row.literal("output_shapes")):  # () for nothing, not for 0-D
        outputs = []
    outputs = [*outputs[:written], *[_ABSENT] * (written - len(outputs))]
    dtypes = row.each("input_dtypes", inputs) + row.each("output_dtypes", written)
    # A kernel's format says nothing about the interface's, and nothing about values.
    return columns | {"shapes": shapes + outputs, "dtypes": dtypes, "formats": [None] * count}


def _spec(
    form: _Form, parameter: Parameter, entries: dict[str, Any], values: Any, folder: Path
) -> TensorSpec | None:
    """A tensor by what the columns say of it; None where they say that there is none."""
    if entries["shapes"] is None and values is None:
        return None
    name = parameter.name
    with telling(f"column {form.column('dtypes')}", name):
        dtype = _dtype(entries["dtypes"])
    with telling("column input_data_ranges", name):
        how = _range(entries["ranges"], dtype) if parameter.is_read else None
    with telling(f"column {form.column('formats')}", name):
        layout = _format(entries["formats"])
    with telling(f"column {form.column('binaries')}", name):
        binary = file_name(entries["binaries"])
    with telling(f"column {form.column('shapes')}", name):
        shape = _shape(np.shape(values) if entries["shapes"] is None else entries["shapes"])
    with telling("column attributes", name):
        if values is not None:
            values = np.broadcast_to(np.asarray(values, np.float64), shape).tolist()
    steps, storage = entries["tensor_view_strides"], entries["tensor_storage_shapes"]
    column = form.column("shapes") if steps is None else "tensor_view_strides"
    with telling(f"column {column}", name):
        return TensorSpec(
            shape, dtype, how, None if steps is None else _shape(steps),
            int(entries["tensor_view_offsets"] or 0), None if storage is None else _shape(storage),
            layout, None if binary is None else folder / binary, values,
        )  # fmt: skip


def _dtype(name: Any) -> DType:
    if name is None:
        raise ValueError("no dtype is given")
    return dtype_of(name)


def _range(cell: Any, dtype: DType) -> Distribution | None:
    how = ttk_range(cell)
    check_range(how, dtype)
    return how


def _shape(values: Any) -> tuple[int, ...]:
    """Whole numbers; one alone is one dimension."""
    if type(values) is int:
        return (values,)
    if isinstance(values, (tuple, list)) and any(isinstance(v, (tuple, list)) for v in values):
        raise Skip("tensor list", "a list of tensors stands where a tensor is expected")
    if not isinstance(values, (tuple, list)) or not all(type(v) is int for v in values):
        raise ValueError(f"whole numbers are expected, not {values!r}")
    return tuple(values)


def _format(name: Any) -> int:
    if name in (None, "None"):
        return Format.ACL_FORMAT_ND
    try:
        return Format[f"ACL_FORMAT_{str(name).upper()}"]
    except KeyError:
        raise ValueError(f"unknown format {name!r}") from None


def _check_outputs(row: Row, form: _Form) -> None:
    """The tensors that a row calls outputs are some."""
    cell = row.literal("output_tensor_indexes")
    if form.kernel or is_nothing(cell):
        return
    count = len(form.tensors)
    with telling("column output_tensor_indexes"):
        for number in cell if isinstance(cell, (tuple, list)) else [cell]:
            if type(number) is not int or not -count <= number < count:
                raise ValueError(f"{number!r} is none of {count} tensors")
            parameter = form.tensors[number]
            if parameter.kind is not Kind.OUTPUT:
                raise ValueError(f"tensor {number} is {parameter.name}, which is not written")


def _scalars(row: Row, operator: Operator, attributes: dict[str, Any]) -> dict[str, Drawn]:
    """aclScalar parameters with a dtype or a range of their own; a value among the attributes comes first."""
    names = [p.name for p in operator.parameters if p.kind is Kind.SCALAR]
    dtypes = row.each("scalar_dtypes", len(names))
    ranges = row.ranges("scalar_data_ranges", len(names))
    scalars = {}
    for name, dtype_name, spread in zip(names, dtypes, ranges, strict=True):
        if dtype_name is None and spread is None:
            continue
        with telling("column scalar_dtypes", name):
            dtype = dtype_of("float32" if dtype_name is None else dtype_name)
            value = attributes.get(name)
            how = _range(spread if value is None else value, dtype)
            if how is None:
                how = _range(operator[name].default, dtype)
            assert how is not None
            scalars[name] = Drawn(how, dtype)
    return scalars
