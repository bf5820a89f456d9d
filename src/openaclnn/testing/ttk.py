"""TTK tables: a case a row, in the kernel's or the interface's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.tensor import Format
from openaclnn.operators import find_operator, registry
from openaclnn.testing.case import Case, Drawn, Malformed, TensorSpec, parameter_named
from openaclnn.testing.distribution import DEFAULT, Distribution
from openaclnn.testing.literals import read_literal
from openaclnn.testing.tables import CellError, Row, read_rows
from openaclnn.testing.words import distribution_of, dtype_named

__all__ = ["read_ttk"]


def read_ttk(path: Path, sheet: str | None = None) -> Iterator[Case | Malformed]:
    """The cases of a table, and in their places the rows that are none."""
    for number, row in enumerate(read_rows(path, sheet)):
        name = row.get("testcase_name") or f"auto_testcase_name_{number}"
        place = f"{path.name}, line {row.line}"
        try:
            yield _Reader(row, path.parent).case(name, place, number)
        except (ValueError, TypeError, KeyError) as error:
            told = str(error.args[0]) if isinstance(error, KeyError) else str(error)
            yield Malformed(name, place, told, number, operator_name=row.get("api_name") or row.get("op_name") or "")  # fmt: skip


class _Reader:
    """Reads one row; what is wrong is told with its column."""

    def __init__(self, row: Row, folder: Path) -> None:
        self.row = row
        self.folder = folder

    def literal(self, column: str) -> Any:
        text = self.row.get(column)
        if text is None:
            return None
        try:
            return read_literal(text)
        except ValueError as error:
            raise CellError(column, str(error)) from None

    def case(self, name: str, place: str, number: int) -> Case:
        operator, tensors, column = self.operator()
        attributes = self.attributes(operator)
        specs = self.tensors(tensors, attributes, column)
        self.scalars(operator, attributes)
        return Case(
            name, operator.name, place, number, specs, attributes,
            tolerance=self.tolerance(), atol=self.number("absolute_precision"),
            products=self.words("soc_series"), golden=self.golden_binary(),
            enabled=(self.row.get("is_enabled") or "True").lower() not in ("false", "0"),
        )  # fmt: skip

    def operator(self) -> tuple[Operator, list[Parameter], str]:
        """The operator, its tensors in the row's order, and the word that begins the columns about them."""
        api, kernel = self.row.get("api_name"), self.row.get("op_name")
        if api is not None:
            try:
                found = find_operator(api)
            except KeyError as error:
                raise CellError("api_name", str(error.args[0])) from None
            return found, list(found.tensors), "tensor_view"
        if kernel is None:
            raise CellError("api_name", "a row names an interface here, or a kernel as op_name")
        for each in registry():
            form = getattr(each.workloads, "KERNEL", None)
            if form is not None and form.name == kernel:
                return each, [*(each[name] for name in form.inputs), each.output], "input"
        known = [w.KERNEL.name for o in registry() if hasattr(w := o.workloads, "KERNEL")]
        raise CellError("op_name", f"unknown kernel {kernel!r}; known: {', '.join(known)}")

    def attributes(self, operator: Operator) -> dict[str, Any]:
        given = self.literal("attributes")
        if given is None:
            return {}
        if not isinstance(given, dict):
            raise CellError("attributes", f"names with values are expected, not {given!r}")
        form = getattr(operator.workloads, "KERNEL", None)
        renamed: Mapping[str, str] = form.renamed if form is not None else {}
        found = {}
        for name, value in given.items():
            parameter = parameter_named(operator, renamed.get(name, name))
            if parameter is None:
                raise CellError("attributes", f"{operator.name} has no parameter {name!r}")
            found[parameter.name] = value
        return found

    def tensors(
        self, parameters: list[Parameter], attributes: dict[str, Any], kind: str
    ) -> dict[str, TensorSpec | None]:
        """Specifications by C name; tensors that the attributes give values of leave them."""
        prefix = "tensor" if kind == "tensor_view" else kind
        columns = {
            "shape": self.each(f"{kind}_shapes", parameters, attributes, shape=True),
            "dtype": self.each(f"{prefix}_dtypes", parameters, attributes),
            "format": self.each(f"{prefix}_formats", parameters, attributes),
            "strides": self.each("tensor_view_strides", parameters, attributes, shape=True),
            "offset": self.each("tensor_view_offsets", parameters, attributes),
            "storage": self.each("tensor_storage_shapes", parameters, attributes, shape=True),
            "range": self.each("input_data_ranges", parameters, attributes, shape=True),
            "binary": self.each(f"manual_{prefix}_binaries", parameters, attributes),
        }
        self.check_outputs(parameters)
        found: dict[str, TensorSpec | None] = {}
        for parameter in parameters:
            held = {column: values.get(parameter.name) for column, values in columns.items()}
            values = attributes.pop(parameter.name, None)
            if kind == "input" and parameter.kind is Kind.OUTPUT:
                if held["shape"] is None or held["dtype"] is None:
                    continue  # the operator knows what it makes
            found[parameter.name] = self.spec(parameter, held, values, kind)
        return found

    def each(
        self,
        column: str,
        parameters: list[Parameter],
        attributes: dict[str, Any],
        shape: bool = False,
    ) -> dict[str, Any]:
        """A column's values by C name: one for all, one a tensor, or one a tensor that is not an output or an attribute."""
        given = self.literal_or_word(column)
        outputs = self.literal_or_word(column.replace("input", "output")) if column.startswith("input_") and "ranges" not in column else None  # fmt: skip
        if given is None:
            return {}
        single = not isinstance(given, (tuple, list)) or (
            shape and bool(given) and all(isinstance(part, (int, float)) for part in given)
        )
        if single and shape and "ranges" not in column and len(parameters) > 1:
            raise CellError(column, f"a tuple for each tensor is expected, not {given!r}")
        if single:
            return {parameter.name: given for parameter in parameters}
        values = list(given)
        inputs = [p for p in parameters if p.kind is not Kind.OUTPUT]
        if outputs is not None:
            more = outputs if isinstance(outputs, (tuple, list)) else [outputs]
            values, outside = (
                values[: len(inputs)] + [None] * (len(inputs) - len(values)),
                list(more),
            )
            values += outside[:1]
        for which in (parameters, inputs, [p for p in parameters if p.name not in attributes]):
            if len(values) == len(which):
                return {p.name: value for p, value in zip(which, values, strict=True)}
        names = ", ".join(p.name for p in parameters)
        raise CellError(column, f"{len(values)} entries for the tensors {names}")

    def literal_or_word(self, column: str) -> Any:
        """A literal, or a bare word such as float16 or ND."""
        text = self.row.get(column)
        return text if text is not None and text.replace("_", "").isalnum() and not text.isdigit() and text != "None" else self.literal(column)  # fmt: skip

    def spec(
        self, parameter: Parameter, held: dict[str, Any], values: Any, kind: str
    ) -> TensorSpec | None:
        word = f"{kind}_shapes"
        shape = held["shape"]
        if shape is None and values is None:
            return None
        try:
            if shape is None:
                import numpy as np

                shape = np.shape(values)
            dtype = self.dtype(parameter, held["dtype"], kind)
            word = "input_data_ranges"
            how = None if held["range"] is None else distribution_of(held["range"])
            word = f"{kind}_shapes"
            return TensorSpec(
                _ints(shape), dtype, how, None if held["strides"] is None else _ints(held["strides"]),
                int(held["offset"] or 0), None if held["storage"] is None else _ints(held["storage"]),
                _format(held["format"]), None if held["binary"] is None else self.folder / str(held["binary"]), values,
            )  # fmt: skip
        except CellError:
            raise
        except (ValueError, TypeError) as error:
            raise CellError(word, f"{parameter.name}: {error}") from None

    def dtype(self, parameter: Parameter, given: Any, kind: str) -> DType:
        column = "tensor_dtypes" if kind == "tensor_view" else "input_dtypes"
        if given is None:
            raise CellError(column, f"no dtype for {parameter.name}")
        try:
            return dtype_named(str(given))
        except ValueError as error:
            raise CellError(column, str(error)) from None

    def check_outputs(self, parameters: list[Parameter]) -> None:
        given = self.literal("output_tensor_indexes")
        if given is None:
            return
        wanted = [n for n, p in enumerate(parameters) if p.kind is Kind.OUTPUT]
        listed = list(given) if isinstance(given, (tuple, list)) else [given]
        if [n % len(parameters) for n in listed if isinstance(n, int)] != wanted:
            raise CellError(
                "output_tensor_indexes", f"the output is tensor {wanted[0]}, not {given!r}"
            )

    def scalars(self, operator: Operator, attributes: dict[str, Any]) -> None:
        """aclScalar parameters: a value among the attributes, or a range to draw from; with a dtype of their own."""
        names = [p.name for p in operator.parameters if p.kind is Kind.SCALAR]
        dtypes = self.literal_or_word("scalar_dtypes")
        ranges = self.literal("scalar_data_ranges")
        for number, name in enumerate(names):
            dtype = _entry(dtypes, number, "float32" if ranges is not None else None)
            spread = _entry(ranges, number, None) if not _is_pair(ranges) else ranges
            if dtype is None:
                continue
            how = distribution_of(spread) if spread is not None else DEFAULT
            if name in attributes:
                how = Distribution(float(attributes[name]), float(attributes[name]))
            elif spread is None:
                how = Distribution(operator[name].default, operator[name].default)
            attributes[name] = Drawn(how, dtype_named(str(dtype)))

    def tolerance(self) -> tuple[float, float] | None:
        given = self.literal("precision_tolerances")
        if given is None:
            return None
        pair = given if _is_pair(given) else _entry(given, 0, None)
        if not _is_pair(pair):
            raise CellError("precision_tolerances", f"(rtol, ptol) is expected, not {given!r}")
        return float(pair[0]), float(pair[1])

    def number(self, column: str) -> float | None:
        given = self.literal(column)
        if given is None or isinstance(given, (int, float)):
            return None if given is None else float(given)
        raise CellError(column, f"a number is expected, not {given!r}")

    def words(self, column: str) -> tuple[str, ...]:
        text = self.row.get(column) or ""
        return tuple(part.strip(" '\"()[]") for part in text.split(",") if part.strip(" '\"()[]"))

    def golden_binary(self) -> Path | None:
        given = self.literal_or_word("manual_golden_binaries")
        given = given[0] if isinstance(given, (tuple, list)) and given else given
        return None if not given else self.folder / str(given)


def _ints(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(v) is int for v in values):
        raise ValueError(f"whole numbers are expected, not {values!r}")
    return tuple(values)


def _format(name: Any) -> int:
    if name is None:
        return Format.ACL_FORMAT_ND
    try:
        return Format[f"ACL_FORMAT_{str(name).upper()}"]
    except KeyError:
        raise ValueError(f"unknown format {name!r}") from None


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) >= 2 and all(isinstance(v, (int, float)) for v in value)  # fmt: skip


def _entry(values: Any, number: int, otherwise: Any) -> Any:
    if isinstance(values, Sequence) and not isinstance(values, str):
        return values[number] if number < len(values) else otherwise
    return otherwise if values is None else values
