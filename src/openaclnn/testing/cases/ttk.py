"""TTK tables: a case a row, in the kernel's or the interface's words.

First the rows of a table, CSV or .xlsx, with what their cells say: literals, words and one value a tensor; what is wrong is told with its column.
"""

from __future__ import annotations

import ast
import codecs
import csv
import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.tensor import Format
from openaclnn.operators import operators_by_kernel
from openaclnn.operators.workloads.words import KernelForm
from openaclnn.testing.cases.case import (
    Case,
    Drawn,
    Malformed,
    Skip,
    TensorSpec,
    check_range,
    dtype_of,
    number_of,
    operator_named,
    parameter_named,
    telling,
    ttk_range,
    without_unread,
)
from openaclnn.testing.drawing import Distribution, ranks_of
from openaclnn.testing.extras import need
from openaclnn.testing.figures import Rules
from openaclnn.testing.files import FileError, read_whole

_LARGEST_UNPACKED = 1 << 30  # bytes
_LARGEST_MERGED = 1 << 26  # bytes of a sheet in which merged cells are looked for
_MOST_MERGED = 1 << 20  # cells
_MERGED = re.compile(rb'<mergeCell ref="([A-Z]+[0-9]+:[A-Z]+[0-9]+)"')
_LONGEST = 1 << 20  # characters of a cell
_WORD = re.compile(r"(?!(?:None|none|null)$)[A-Za-z]\w*")
_RULE = re.compile(r"ELEWISE|REDUCE\s*\([^()]*\)", re.IGNORECASE)
_NAMES = {"inf": math.inf, "nan": math.nan, "null": None, "none": None, "true": True, "false": False}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row: its line in the file, and its cells by column; cells that hold nothing are left out."""

    line: int
    cells: dict[str, str]

    def get(self, column: str) -> str | None:
        return self.cells.get(column)

    def literal(self, column: str) -> Any:
        """A Python literal; None where the cell is empty."""
        text = self.get(column)
        with telling(f"column {column}"):
            return None if text is None else read_literal(text)

    def literal_or_word(self, column: str) -> Any:
        """A literal, or a bare word such as float16 or ND."""
        text = self.get(column)
        return text if text is not None and _WORD.fullmatch(text) else self.literal(column)

    def words(self, column: str) -> tuple[str, ...]:
        """Words with commas between them, however they are quoted."""
        parts = (part.strip(" '\"()[]") for part in (self.get(column) or "").split(","))
        return tuple(part for part in parts if part)

    def switch(self, column: str, otherwise: bool) -> bool:
        text = self.get(column)
        return otherwise if text is None else text.lower() not in ("false", "0", "0.0")

    def tolerances(self, column: str) -> tuple[tuple[float, float], ...]:
        """(rtol, ptol), alone or one for each output; what stands behind them is not read."""
        cell = self.literal(column)
        if is_nothing(cell):
            return ()
        pairs = [cell] if _is_row(cell) or not isinstance(cell, (tuple, list)) else cell
        with telling(f"column {column}"):
            if not all(_is_row(pair) and len(pair) > 1 for pair in pairs):
                raise ValueError(f"(rtol, ptol) is expected, not {cell!r}")
            tolerances = tuple((float(pair[0]), float(pair[1])) for pair in pairs)
            for rtol, ptol in tolerances:
                Rules(rtol=rtol, ptol=ptol)
        return tolerances

    def offsets(self, column: str) -> tuple[float, ...]:
        """How far an element may be off, alone or one for each output."""
        cell = self.literal(column)
        if is_nothing(cell):
            return ()
        with telling(f"column {column}"):
            offsets = tuple(number_of(each) for each in _listed(cell))
            for atol in offsets:
                Rules(atol=atol)
        return offsets

    def names(self, column: str) -> tuple[str | None, ...]:
        """Names of files, one or several, None among them."""
        names = _listed(self.literal_or_word(column))
        with telling(f"column {column}"):
            return tuple(map(file_name, names))

    def shapes(self, column: str) -> list[Any]:
        """One entry a tensor; a row of numbers alone is one tensor's. Nothing where the operator's rule is meant."""
        text = self.get(column)
        if text is None or _RULE.fullmatch(text):
            return []
        cell = self.literal(column)
        if not isinstance(cell, (tuple, list)):
            cell = () if cell is None else (cell,)
        return [cell] if _is_row(cell) or not cell else list(cell)

    def each(self, column: str, count: int, one_for_all: bool = True) -> list[Any]:
        """One entry for each of so many tensors, None where there is none; a word, or the only entry, is that of all."""
        cell = self.literal_or_word(column)
        values = [] if is_nothing(cell) else list(_listed(cell))
        if len(values) == 1 and one_for_all:
            return values * count
        return [*values[:count], *[None] * (count - len(values))]

    def ranges(self, column: str, count: int) -> list[Any]:
        """As `each`; numbers alone are one range for all tensors."""
        cell = self.literal(column)
        return [cell] * count if _is_row(cell) else self.each(column, count)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else [value]


def _is_row(value: Any) -> bool:
    """Whether a value is numbers alone, not one thing for each of several tensors."""
    if not isinstance(value, (tuple, list)) or not value:
        return False
    return all(isinstance(each, (int, float)) for each in value)


def is_nothing(value: Any) -> bool:
    """Whether a cell is unset: empty, (), [] or None."""
    return value is None or (isinstance(value, (tuple, list, dict)) and not value)


def file_name(value: Any) -> str | None:
    """A file's name, or None for none."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"a file's name is expected, not {value!r}")
    return value


def read_literal(text: str) -> Any:
    """A number, string, tuple, list, dict or None, read and never evaluated; ValueError where the text is anything else."""
    if len(text) > _LONGEST:
        raise ValueError(f"a cell of {len(text)} characters is not read")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"not a Python literal: {text[:60]!r}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if (
            not isinstance(value, (bytes, complex)) and value is not ...
        ):
            return value
        case ast.Tuple(elts=parts):
            return tuple(_value(part) for part in parts)
        case ast.List(elts=parts):
            return [_value(part) for part in parts]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_key(key): _value(value) for key, value in pairs}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand)
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                return -number if isinstance(sign, ast.USub) else number
        case ast.Name(id=name) if name.lower() in _NAMES:
            return _NAMES[name.lower()]
    raise ValueError(f"not a Python literal: {ast.unparse(node)[:60]!r}")


def _key(node: Any) -> str:
    key = _value(node)
    if not isinstance(key, str):
        raise ValueError(f"names are expected before colons, not {key!r}")
    return key


def read_rows(path: Path, needed: Sequence[str], sheet: str | None = None) -> Iterator[Row]:
    """The rows below the header; FileError where the file is no table, or has none of the columns that are needed."""
    lines = _xlsx(path, sheet) if path.suffix.lower() == ".xlsx" else _csv(path)
    header: list[str] | None = None
    for line, cells in lines:
        if header is None:
            if not any(cell.strip() for cell in cells):
                continue
            header = ["_".join(cell.lower().split()) for cell in cells]
            if not any(name in header for name in needed):
                raise FileError(f"{path}: no column {' or '.join(needed)} in its first line")
            continue
        filled: dict[str, str] = {}
        for name, cell in zip(header, map(str.strip, cells), strict=False):
            if name and cell and filled.setdefault(name, cell) != cell:
                raise FileError(f"{path}: line {line}: two columns {name}, with {filled[name]} and {cell}")  # fmt: skip
        if filled:
            yield Row(line, filled)
    if header is None:
        raise FileError(f"{path}: an empty table")


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(1 << 24)
    try:
        text = _decoded(read_whole(path))
        named = _SEPARATOR.match(text)
        first = text.lstrip().partition("\n")[0]
        separator = named[1] if named else max(",;\t", key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        line = 1
        for cells in reader:
            if not (named and line == 1):
                yield (
                    line,
                    [_COMMA.sub(r"\1.\2", cell) for cell in cells] if separator == ";" else cells,
                )
            line = reader.line_num + 1
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: not a CSV file: {error}") from None


_SEPARATOR = re.compile(r'"?sep=([,;\t|])"?\r?\n', re.IGNORECASE)
"""The line by which a table tells spreadsheets what stands between its cells."""
_COMMA = re.compile(r"^([-+]?\d+),(\d+(?:e[-+]?\d+)?)$", re.IGNORECASE)
"""That of a cell which is one number, as spreadsheets write it that have semicolons between cells: 0,001."""


def _decoded(text: bytes) -> str:
    """UTF-8, or what spreadsheets write: UTF-16 with its mark, and Chinese ones GB 18030."""
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return text.decode("utf-16")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return text.decode("gb18030")


def _xlsx(path: Path, sheet: str | None) -> Iterator[tuple[int, list[str]]]:
    openpyxl: Any = need("openpyxl", f"{path}: openpyxl reads it")
    held = io.BytesIO(read_whole(path))
    try:
        with zipfile.ZipFile(held) as parts:
            size = sum(part.file_size for part in parts.infolist())
            if size > _LARGEST_UNPACKED:
                raise FileError(f"{path}: {size:,} bytes unpacked; at most {_LARGEST_UNPACKED:,} are read")  # fmt: skip
            merged = 0 < _merged_cells(parts, openpyxl) < _MOST_MERGED
        # What is read row by row does not tell which cells are merged.
        book = openpyxl.load_workbook(held, read_only=not merged, data_only=True)
    except FileError:
        raise
    except Exception as error:  # zip and XML errors of all kinds
        raise FileError(f"{path}: not an .xlsx file: {error}") from None
    try:
        if sheet is not None and sheet not in book.sheetnames:
            raise FileError(f"{path}: no sheet {sheet!r}; it has {', '.join(book.sheetnames)}")
        page = book[sheet] if sheet is not None else book.worksheets[0]
        values: dict[tuple[int, int], Any] = {}
        for area in page.merged_cells.ranges if merged else ():
            values |= dict.fromkeys(area.cells, page.cell(area.min_row, area.min_col).value)
        for line, cells in enumerate(page.iter_rows(values_only=True), 1):
            whole = [values.get((line, column), cell) for column, cell in enumerate(cells, 1)]
            yield line, ["" if cell is None else str(cell) for cell in whole]
    except FileError:
        raise
    except Exception as error:  # a sheet is read row by row: what is wrong with it shows here
        raise FileError(f"{path}: a damaged sheet: {error}") from None
    finally:
        book.close()


def _merged_cells(parts: zipfile.ZipFile, openpyxl: Any) -> int:
    """How many cells of a workbook's sheets, of which none is large, are merged with others."""
    count = 0
    for part in parts.infolist():
        if part.filename.startswith("xl/worksheets/") and part.file_size <= _LARGEST_MERGED:
            for area in _MERGED.findall(parts.read(part)):
                left, top, right, bottom = openpyxl.utils.range_boundaries(area.decode())
                count += (right - left + 1) * (bottom - top + 1)
    return count


# Cases.


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
        tensors |= _ones(form, tensors) | _typed(form, tensors)
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
    words: KernelForm = field(default_factory=lambda: KernelForm("", {}))  # of a known kernel

    @property
    def inputs(self) -> list[Parameter]:
        """What is read, numbers among it that a kernel has as tensors."""
        return [p for p in self.tensors if p.is_read or not p.is_tensor]

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
    return _Form(operator, tensors, True, form)


def _attributes(row: Row, form: _Form) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Values by C name, those of tensors among them; and what was not used."""
    cell = row.literal("attributes")
    if not is_nothing(cell) and not isinstance(cell, dict):
        raise ValueError(f"column attributes: names with values are expected, not {cell!r}")
    words, notes = form.words, []
    values, renamed = dict(words.values), {**words.inputs, **words.renamed}
    for name, value in (cell or {}).items():
        if name in words.only:
            if not _is_same(value, words.only[name]):
                told = f"{row.get('op_name')} with {name} {value!r} is not among our operators"
                raise Skip("another operator", told)
            continue
        if name in words.numbered:
            value = _number(name, value, words.numbered[name])
        parameter = parameter_named(form.operator, renamed.get(name, name))
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
        if not parameter.is_tensor:
            if stated and parameter.name not in valued:
                attributes[parameter.name] = _drawn(parameter, entries["ranges"], entries["dtypes"])
            continue
        if parameter.is_read or stated:
            values = valued.get(parameter.name)
            specs[parameter.name] = _spec(form, parameter, entries, values, folder)
    return specs


def _ones(form: _Form, tensors: Mapping[str, TensorSpec | None]) -> dict[str, TensorSpec | None]:
    """Tensors that a kernel can do without, where a row leaves them out: ones for each class."""
    ones: dict[str, TensorSpec | None] = {}
    for name, classes in form.words.ones.items():
        like = tensors.get(classes)
        if tensors.get(name) is None and like is not None:
            ones[name] = TensorSpec(like.shape[:2][-1:], like.dtype, Distribution(1, 1))
    return ones


def _typed(form: _Form, tensors: Mapping[str, TensorSpec | None]) -> dict[str, TensorSpec]:
    """Outputs in the interface's dtype, where the kernel has another."""
    typed = {}
    for name, other in form.words.typed.items():
        output, like = tensors.get(name), tensors.get(other)
        if output is not None and like is not None:
            typed[name] = replace(output, dtype=like.dtype)
    return typed


def _columns(row: Row, form: _Form, valued: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What each column says of each tensor, in the row's order."""
    tensors, count, inputs = form.tensors, len(form.tensors), len(form.inputs)
    shapes = row.shapes(form.column("shapes"))
    most = inputs if form.kernel else count
    if len(shapes) <= most + len(form.words.unread):
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
            values = _filled(values, shape)
    steps, storage = entries["tensor_view_strides"], entries["tensor_storage_shapes"]
    column = form.column("shapes") if steps is None else "tensor_view_strides"
    with telling(f"column {column}", name):
        return TensorSpec(
            shape, dtype, how, None if steps is None else _shape(steps),
            int(entries["tensor_view_offsets"] or 0), None if storage is None else _shape(storage),
            layout, None if binary is None else folder / binary, values,
        )  # fmt: skip


def _filled(values: Any, shape: tuple[int, ...]) -> list[Any]:
    """A value for each element; fewer are repeated, as NumPy does."""
    try:
        filled: list[Any] = np.broadcast_to(np.asarray(values, np.float64), shape).tolist()
    except (ValueError, TypeError):
        raise ValueError(f"values for shape {shape} are expected, not {values!r}"[:200]) from None
    return filled


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
    """The tensors that a row calls outputs are some, or may be by their prototype."""
    cell = row.literal("output_tensor_indexes")
    if form.kernel or is_nothing(cell):
        return
    count = len(form.tensors)
    with telling("column output_tensor_indexes"):
        for number in cell if isinstance(cell, (tuple, list)) else [cell]:
            if type(number) is not int or not -count <= number < count:
                raise ValueError(f"{number!r} is none of {count} tensors")
            parameter = form.tensors[number]
            if parameter.declaration.startswith("const ") and parameter.kind is not Kind.OUTPUT:
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
            value = attributes.get(name)
            scalars[name] = _drawn(operator[name], spread if value is None else value, dtype_name)
    return scalars


def _drawn(parameter: Parameter, spread: Any, dtype_name: Any) -> Drawn:
    """A number of a range, or its default."""
    dtype = dtype_of("float32" if dtype_name is None else dtype_name)
    how = _range(spread, dtype) or _range(parameter.default, dtype)
    assert how is not None
    return Drawn(how, dtype)
