"""TTK tables: a case a row, in the kernel's or the interface's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.tensor import Format
from openaclnn.operators import find_operator, operators_by_kernel
from openaclnn.testing.cases.case import (
    Case,
    Drawn,
    Malformed,
    Skip,
    TensorSpec,
    check_range,
    parameter_named,
    ttk_range,
)
from openaclnn.testing.cases.tables import CellError, Cells, Row, entry, is_nothing, read_rows
from openaclnn.testing.data.drawing import Distribution, ranks_of
from openaclnn.testing.extras import dtype_named

__all__ = ["read_ttk"]


def read_ttk(path: Path, sheet: str | None = None) -> Iterator[Case | Malformed]:
    """The cases of a table, and in their places the rows that are not run."""
    for number, row in enumerate(read_rows(path, ("api_name", "op_name"), sheet)):
        name = row.get("testcase_name") or f"auto_testcase_name_{number}"
        place = f"{path.name}, line {row.line}"
        try:
            yield _case(row, path.parent, name, place, number)
        except (ValueError, TypeError, OverflowError) as error:
            named = row.get("api_name") or row.get("op_name") or ""
            reason = error.reason if isinstance(error, Skip) else "unreadable"
            yield Malformed(name, place, str(error), number, operator_name=named, reason=reason)


def _case(row: Row, folder: Path, name: str, place: str, number: int) -> Case:
    cells = Cells(row)
    form = _form(cells)
    attributes, notes = _attributes(cells, form)
    tensors = _tensors(cells, form, attributes, folder)
    if form.kernel:
        unread = getattr(form.operator.workloads, "unread", lambda numbers: ())(attributes)
        tensors |= {each: None for each in unread if each in tensors}
        tensors |= _ones(form, tensors)
    goldens = cells.names("manual_golden_binaries")
    return Case(
        name, form.operator.name, place, number, tensors,
        attributes | _scalars(cells, form.operator, attributes),
        tolerances=cells.tolerances("precision_tolerances"),
        atols=cells.offsets("absolute_precision"),
        kernel=form.kernel, notes=notes,
        products=cells.words("soc_series"),
        goldens=tuple(None if each is None else folder / each for each in goldens),
        enabled=cells.switch("is_enabled", True),
    )  # fmt: skip


@dataclass(frozen=True)
class _Form:
    """What a row is about: the operator, its tensors in the row's order, and how the columns about them are called."""

    operator: Operator
    tensors: tuple[Parameter, ...]
    kernel: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    ones: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Parameter]:
        return [parameter for parameter in self.tensors if parameter.is_read]

    def column(self, what: str) -> str:
        if self.kernel:
            return f"input_{what}"
        return f"tensor_view_{what}" if what == "shapes" else f"tensor_{what}"


def _form(cells: Cells) -> _Form:
    api, kernel = cells.row.get("api_name"), cells.row.get("op_name")
    if api is not None:
        if not api.startswith("aclnn"):
            raise Skip("end-to-end", f"{api} is a function of a framework, called end to end")
        operator = _operator(api)
        return _Form(operator, operator.tensors)
    if kernel is None:
        raise CellError("api_name", "a row names an interface here, or a kernel as op_name")
    known = operators_by_kernel().get(kernel.lower())
    if known is None:
        operator = _operator(kernel)
        return _Form(operator, operator.tensors, kernel=True)
    operator = _meant(known, cells)
    form = next(own for own in operator.workloads.KERNELS if own.name == kernel.lower())
    tensors = (*(operator[name] for name in form.inputs.values()), *operator.outputs)
    return _Form(
        operator, tensors, True, {**form.inputs, **form.renamed}, form.values, form.only, form.ones
    )


def _operator(name: str) -> Operator:
    try:
        return find_operator(name)
    except KeyError:
        raise Skip("another operator", f"{name} is not among our operators") from None


def _meant(operators: list[Operator], cells: Cells) -> Operator:
    """Which of the interfaces above one kernel a row means: that of its first input's dimensions, else the first."""
    shape = entry(cells.shapes("input_shapes"), 0, None)
    rank = len(shape) if isinstance(shape, (tuple, list)) else -1
    return next((each for each in operators if rank in ranks_of(each)), operators[0])


def _attributes(cells: Cells, form: _Form) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Values by C name, those of tensors among them; and what was not used."""
    given = cells.literal("attributes")
    if is_nothing(given):
        given = {}
    if not isinstance(given, dict):
        raise CellError("attributes", f"names with values are expected, not {given!r}")
    found, notes = dict(form.values), []
    for name, value in given.items():
        if name in form.only:
            if value != form.only[name]:
                told = (
                    f"{cells.row.get('op_name')} with {name} {value!r} is not among our operators"
                )
                raise Skip("another operator", told)
            continue
        parameter = parameter_named(form.operator, form.renamed.get(name, name))
        if parameter is None:
            notes.append(
                f"attribute {name!r} was not used: {form.operator.name} has none of that name"
            )
        else:
            found[parameter.name] = value
    return found, tuple(notes)


def _tensors(
    cells: Cells, form: _Form, attributes: dict[str, Any], folder: Path
) -> dict[str, TensorSpec | None]:
    """Specifications by C name; values of tensors leave the attributes. Outputs without a shape or a dtype are left out:
    the operator knows what it makes.
    """
    valued = {p.name: attributes.pop(p.name) for p in form.tensors if p.name in attributes}
    held = _columns(cells, form, valued)
    _check_outputs(cells, form)
    found: dict[str, TensorSpec | None] = {}
    for number, parameter in enumerate(form.tensors):
        own = {column: values[number] for column, values in held.items()}
        stated = own["shapes"] is not _ABSENT and own["dtypes"] is not None
        if own["shapes"] is _ABSENT:
            own["shapes"] = None
        if parameter.is_read or stated:
            found[parameter.name] = _spec(form, parameter, own, valued.get(parameter.name), folder)
    return found


def _ones(form: _Form, tensors: Mapping[str, TensorSpec | None]) -> dict[str, TensorSpec | None]:
    """Weights that a kernel can do without, where a row leaves them out: one for each class."""
    found: dict[str, TensorSpec | None] = {}
    for name, classes in form.ones.items():
        like = tensors.get(classes)
        if tensors.get(name) is None and like is not None and like.shape:
            found[name] = TensorSpec(like.shape[:2][-1:], like.dtype, Distribution(1, 1))
    return found


_ABSENT = object()
"""In place of a shape: the column has no entry for the tensor."""


def _columns(cells: Cells, form: _Form, valued: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What each column says of each tensor, in the row's order."""
    tensors, count, inputs = form.tensors, len(form.tensors), len(form.inputs)
    shapes = cells.shapes(form.column("shapes"))
    most = inputs if form.kernel else count
    unvalued = [p for p in tensors[:most] if p.name not in valued]
    if len(shapes) == len(unvalued) < most:  # tensors with values need no shape
        own = iter(shapes)
        shapes = [None if p.name in valued else next(own) for p in tensors[:most]]
    if len(shapes) > most:
        names = ", ".join(p.name for p in tensors[:most])
        raise CellError(form.column("shapes"), f"{len(shapes)} entries for the tensors {names}")
    held = {"ranges": cells.ranges("input_data_ranges", count)}
    binaries = "manual_input_binaries" if form.kernel else "manual_tensor_binaries"
    held["binaries"] = cells.each(binaries, count, one_for_all=False)
    for column in ("tensor_view_strides", "tensor_view_offsets", "tensor_storage_shapes"):
        held[column] = cells.each(column, count, one_for_all=False)
    if not form.kernel:
        shapes += [_ABSENT] * (count - len(shapes))
        dtypes, formats = (cells.each(form.column(what), count) for what in ("dtypes", "formats"))
        return held | {"shapes": shapes, "dtypes": dtypes, "formats": formats}
    made = count - inputs
    outputs = cells.shapes("output_shapes")
    if outputs == [()] and not _is_zero_dimensional(cells, "output_shapes"):
        outputs = []
    outputs = [*outputs[:made], *[_ABSENT] * (made - len(outputs))]
    dtypes = cells.each("input_dtypes", inputs) + cells.each("output_dtypes", made)
    # A kernel's format says nothing about the interface's, and nothing about values.
    return held | {
        "shapes": [*shapes, *[_ABSENT] * (inputs - len(shapes)), *outputs],
        "dtypes": dtypes,
        "formats": [None] * count,
    }


def _is_zero_dimensional(cells: Cells, column: str) -> bool:
    """Whether a cell says () for a tensor, not () for nothing."""
    given = cells.literal(column)
    return isinstance(given, (tuple, list)) and len(given) > 0


def _spec(
    form: _Form, parameter: Parameter, held: dict[str, Any], values: Any, folder: Path
) -> TensorSpec | None:
    if held["shapes"] is None and values is None:
        return None
    column = form.column("dtypes")
    try:
        dtype = _dtype(held["dtypes"])
        column = "input_data_ranges"
        how = _range(held["ranges"], dtype) if parameter.is_read else None
        column = form.column("formats")
        layout = _format(held["formats"])
        column = "manual_tensor_binaries" if not form.kernel else "manual_input_binaries"
        binary = held["binaries"]
        if binary is not None and not isinstance(binary, str):
            raise ValueError(f"a file's name is expected, not {binary!r}")
        column = form.column("shapes")
        shape = _shape(np.shape(values) if held["shapes"] is None else held["shapes"])
        column = "attributes"
        if values is not None:
            values = np.broadcast_to(np.asarray(values, np.float64), shape).tolist()
        column = form.column("shapes")
        steps, storage = held["tensor_view_strides"], held["tensor_storage_shapes"]
        column = column if steps is None else "tensor_view_strides"
        return TensorSpec(
            shape, dtype, how, None if steps is None else _shape(steps),
            int(held["tensor_view_offsets"] or 0), None if storage is None else _shape(storage),
            layout, None if binary is None else folder / binary, values,
        )  # fmt: skip
    except Skip as skip:
        raise Skip(skip.reason, f"{parameter.name}: {skip}") from None
    except (ValueError, TypeError) as error:
        raise CellError(column, f"{parameter.name}: {error}") from None


def _dtype(name: Any) -> DType:
    if name is None:
        raise ValueError("no dtype is given")
    try:
        return dtype_named(str(name))
    except ValueError as error:
        raise Skip("dtype", str(error)) from None


def _range(given: Any, dtype: DType) -> Distribution | None:
    how = ttk_range(given)
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


def _check_outputs(cells: Cells, form: _Form) -> None:
    """The tensors that a row calls outputs are some."""
    given = cells.literal("output_tensor_indexes")
    if form.kernel or is_nothing(given):
        return
    count = len(form.tensors)
    for number in given if isinstance(given, (tuple, list)) else [given]:
        if type(number) is not int or not -count <= number < count:
            raise CellError("output_tensor_indexes", f"{number!r} is none of {count} tensors")
        if form.tensors[number].kind is not Kind.OUTPUT:
            named = f"tensor {number} is {form.tensors[number].name}, which is not written"
            raise CellError("output_tensor_indexes", named)


def _scalars(cells: Cells, operator: Operator, attributes: dict[str, Any]) -> dict[str, Drawn]:
    """aclScalar parameters with a dtype or a range of their own; a value among the attributes comes first."""
    names = [p.name for p in operator.parameters if p.kind is Kind.SCALAR]
    dtypes = cells.each("scalar_dtypes", len(names))
    ranges = cells.ranges("scalar_data_ranges", len(names))
    found = {}
    for name, dtype, spread in zip(names, dtypes, ranges, strict=True):
        if dtype is None and spread is None:
            continue
        try:
            kind = _dtype("float32" if dtype is None else dtype)
            value = attributes.get(name)
            how = ttk_range(spread if value is None else value)
            if how is None:
                how = ttk_range(operator[name].default)
            check_range(how, kind)
            assert how is not None
            found[name] = Drawn(how, kind)
        except Skip as skip:
            raise Skip(skip.reason, f"{name}: {skip}") from None
        except (ValueError, TypeError) as error:
            raise CellError("scalar_dtypes", f"{name}: {error}") from None
    return found


def _format(name: Any) -> int:
    try:
        return (
            Format.ACL_FORMAT_ND
            if name in (None, "None")
            else Format[f"ACL_FORMAT_{str(name).upper()}"]
        )
    except KeyError:
        raise ValueError(f"unknown format {name!r}") from None
