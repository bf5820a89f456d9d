"""TTK tables: a case a row, in the kernel's or the interface's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.tensor import Format
from openaclnn.operators import find_operator, registry
from openaclnn.testing.cases.case import Case, Drawn, Malformed, TensorSpec, parameter_named
from openaclnn.testing.cases.cells import Cells, entry, is_pair
from openaclnn.testing.cases.tables import CellError, Row, read_rows
from openaclnn.testing.cases.words import distribution_of, number_of
from openaclnn.testing.data.drawing import ranks_of
from openaclnn.testing.words import dtype_named

__all__ = ["read_ttk"]


def read_ttk(path: Path, sheet: str | None = None) -> Iterator[Case | Malformed]:
    """The cases of a table, and in their places the rows that are none."""
    for number, row in enumerate(read_rows(path, ("api_name", "op_name"), sheet)):
        name = row.get("testcase_name") or f"auto_testcase_name_{number}"
        place = f"{path.name}, line {row.line}"
        try:
            yield _case(row, path.parent, name, place, number)
        except (ValueError, TypeError, OverflowError) as error:
            named = row.get("api_name") or row.get("op_name") or ""
            yield Malformed(name, place, str(error), number, operator_name=named)


def _case(row: Row, folder: Path, name: str, place: str, number: int) -> Case:
    cells = Cells(row)
    form = _form(cells)
    attributes = _attributes(cells, form)
    tensors = _tensors(cells, form, attributes, folder)
    goldens = cells.names("manual_golden_binaries")
    return Case(
        name, form.operator.name, place, number, tensors,
        attributes | _scalars(cells, form.operator, attributes),
        tolerances=cells.tolerances("precision_tolerances"),
        atol=cells.tolerance("absolute_precision"),
        products=cells.words("soc_series"),
        goldens=tuple(None if each is None else folder / each for each in goldens),
        enabled=cells.switch("is_enabled", True),
    )  # fmt: skip


@dataclass(frozen=True)
class _Form:
    """Whom a row speaks of: the operator, its tensors in the row's order, and how the columns about them are called."""

    operator: Operator
    tensors: tuple[Parameter, ...]
    renamed: Mapping[str, str]
    kernel: bool

    def column(self, what: str) -> str:
        if self.kernel:
            return f"input_{what}"
        return f"tensor_view_{what}" if what == "shapes" else f"tensor_{what}"

    def outputs(self, what: str) -> str:
        """The column of the outputs alone; only kernels have them."""
        return f"output_{what}" if self.kernel else ""


def _form(cells: Cells) -> _Form:
    api, kernel = cells.row.get("api_name"), cells.row.get("op_name")
    if api is not None:
        try:
            found = find_operator(api)
        except KeyError as error:
            raise CellError("api_name", str(error.args[0])) from None
        return _Form(found, found.tensors, {}, kernel=False)
    if kernel is None:
        raise CellError("api_name", "a row names an interface here, or a kernel as op_name")
    known: dict[str, list[Operator]] = {}
    for operator in registry():
        form = getattr(operator.workloads, "KERNEL", None)
        if form is not None:
            known.setdefault(form.name, []).append(operator)
    if kernel not in known:
        raise CellError("op_name", f"unknown kernel {kernel!r}; known: {', '.join(known)}")
    operator = _meant(known[kernel], cells)
    form = operator.workloads.KERNEL
    inputs = tuple(operator[name] for name in form.inputs)
    return _Form(operator, (*inputs, *operator.outputs), form.renamed, kernel=True)


def _meant(operators: list[Operator], cells: Cells) -> Operator:
    """Which of the interfaces above one kernel a row means: that of its first input's dimensions, else the first."""
    shape = entry(cells.literal("input_shapes"), 0, None)
    rank = len(shape) if isinstance(shape, (tuple, list)) else -1
    return next((each for each in operators if rank in ranks_of(each)), operators[0])


def _attributes(cells: Cells, form: _Form) -> dict[str, Any]:
    given = cells.literal("attributes") or {}
    if not isinstance(given, dict):
        raise CellError("attributes", f"names with values are expected, not {given!r}")
    found = {}
    for name, value in given.items():
        parameter = parameter_named(form.operator, form.renamed.get(name, name))
        if parameter is None:
            raise CellError("attributes", f"{form.operator.name} has no parameter {name!r}")
        found[parameter.name] = value
    return found


def _tensors(
    cells: Cells, form: _Form, attributes: dict[str, Any], folder: Path
) -> dict[str, TensorSpec | None]:
    """Specifications by C name; values of tensors leave the attributes."""
    valued = {p.name: attributes.pop(p.name) for p in form.tensors if p.name in attributes}
    columns = {
        what: cells.per_tensor(form.column(what), form.tensors, valued, form.outputs(what), numbers)
        for what, numbers in (("shapes", "none"), ("dtypes", "one"), ("formats", "one"))
    }
    views = {
        "tensor_view_strides": "none",
        "tensor_view_offsets": "each",
        "tensor_storage_shapes": "none",
    }
    for column, numbers in views.items():
        columns[column] = cells.per_tensor(column, form.tensors, valued, numbers=numbers)
    columns["ranges"] = cells.per_tensor("input_data_ranges", form.tensors, valued)
    binaries = "manual_input_binaries" if form.kernel else "manual_tensor_binaries"
    columns["binaries"] = cells.per_tensor(binaries, form.tensors, valued, numbers="each")
    _check_outputs(cells, form.tensors)
    found: dict[str, TensorSpec | None] = {}
    for parameter in form.tensors:
        held = {column: values.get(parameter.name) for column, values in columns.items()}
        left_out = None in (held["shapes"], held["dtypes"])
        if form.kernel and left_out and not parameter.is_read:
            continue  # the operator knows what it makes
        found[parameter.name] = _spec(form, parameter, held, valued.get(parameter.name), folder)
    return found


def _spec(
    form: _Form, parameter: Parameter, held: dict[str, Any], values: Any, folder: Path
) -> TensorSpec | None:
    if held["shapes"] is None and values is None:
        return None
    column = form.column("dtypes")
    try:
        if held["dtypes"] is None:
            raise ValueError("no dtype is given")
        dtype = dtype_named(str(held["dtypes"]))
        column = "input_data_ranges"
        how = None if held["ranges"] is None else distribution_of(held["ranges"])
        column = form.column("formats")
        layout = _format(held["formats"])
        column = "attributes"
        if values is not None:
            np.asarray(values, np.float64)
        column = "manual_tensor_binaries" if not form.kernel else "manual_input_binaries"
        binary = held["binaries"]
        if binary is not None and not isinstance(binary, str):
            raise ValueError(f"a file's name is expected, not {binary!r}")
        column = form.column("shapes")
        shape = _ints(np.shape(values) if held["shapes"] is None else held["shapes"])
        steps, storage = held["tensor_view_strides"], held["tensor_storage_shapes"]
        column = column if steps is None else "tensor_view_strides"
        return TensorSpec(
            shape, dtype, how, None if steps is None else _ints(steps),
            int(held["tensor_view_offsets"] or 0), None if storage is None else _ints(storage),
            layout, None if binary is None else folder / binary, values,
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise CellError(column, f"{parameter.name}: {error}") from None


def _check_outputs(cells: Cells, parameters: tuple[Parameter, ...]) -> None:
    given = cells.literal("output_tensor_indexes")
    if given is None:
        return
    wanted = [n for n, p in enumerate(parameters) if p.kind is Kind.OUTPUT]
    listed = list(given) if isinstance(given, (tuple, list)) else [given]
    if [n % len(parameters) for n in listed if isinstance(n, int)] != wanted:
        told = "output is tensor" if len(wanted) == 1 else "outputs are tensors"
        numbers = ", ".join(map(str, wanted))
        raise CellError("output_tensor_indexes", f"the {told} {numbers}, not {given!r}")


def _scalars(cells: Cells, operator: Operator, attributes: dict[str, Any]) -> dict[str, Drawn]:
    """aclScalar parameters with a dtype or a range of their own; a value among the attributes comes first."""
    names = [p.name for p in operator.parameters if p.kind is Kind.SCALAR]
    dtypes, ranges = cells.literal_or_word("scalar_dtypes"), cells.literal("scalar_data_ranges")
    found = {}
    for number, name in enumerate(names):
        dtype = entry(dtypes, number, None if ranges is None else "float32")
        if dtype is None:
            continue
        spread = ranges if is_pair(ranges) else entry(ranges, number, None)
        value = attributes.get(name, operator[name].default if spread is None else None)
        try:
            how = distribution_of(spread if value is None else number_of(value))
            found[name] = Drawn(how, dtype_named(str(dtype)))
        except (ValueError, TypeError) as error:
            raise CellError("scalar_dtypes", f"{name}: {error}") from None
    return found


def _ints(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(v) is int for v in values):
        raise ValueError(f"whole numbers are expected, not {values!r}")
    return tuple(values)


def _format(name: Any) -> int:
    try:
        return Format.ACL_FORMAT_ND if name is None else Format[f"ACL_FORMAT_{str(name).upper()}"]
    except KeyError:
        raise ValueError(f"unknown format {name!r}") from None
