"""Libraries that only some of the tools need, and how dtypes, shapes and values are written in commands, in lists and behind names of files."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from openaclnn.core.dtypes import DType, dtype_of_name
from openaclnn.core.tensor import Format

_EXTRAS = dict.fromkeys(("matplotlib", "markdown_it", "openpyxl", "yaml"), "tools") | {
    "torch": "torch"
}


class MissingLibraryError(ImportError):
    """A library that is not installed, with the extra that has it."""


def need(module: str, purpose: str) -> Any:
    """Import a module; the refusal says what for, and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = _EXTRAS[module.partition(".")[0]]
        raise MissingLibraryError(
            f"{purpose}, which is not installed: pip install 'openaclnn[{extra}]'"
        ) from error


_SHORT = {
    "fp16": "float16", "fp32": "float32", "fp64": "float64", "f16": "float16", "f32": "float32", "f64": "float64",
    "int": "int64", "half": "float16", "double": "float64", "attr_bool": "bool",
}  # fmt: skip


def dtype_named(name: str) -> DType:
    """A dtype by the name that a list gives it; ValueError where there is none of that name."""
    try:
        return dtype_of_name(_SHORT.get(name.strip().lower(), name.strip()))
    except KeyError as error:
        raise ValueError(error.args[0]) from None


_SHAPE, _STRIDES, _OFFSET = "a shape like 2x3, 5 or ()", "strides like 3,1", "an offset like 4"
"""What whole numbers are expected for."""

_BRACKETED = re.compile(r"\(([^()\[\]]*?),?\s*\)|\[([^()\[\]]*)\]")
_LARGEST = (1 << 63) - 1


def whole_numbers(written: Any, expected: str) -> tuple[int, ...]:
    """Of a list, or of text: `2x3`, `2,3`, `(2, 3)`, `(2,)`, `5`, and `()` for none; ValueError says what was expected, and what came."""
    words = written
    if isinstance(written, str):
        text = written.strip()
        bracketed = _BRACKETED.fullmatch(text)
        text = text if bracketed is None else (bracketed[1] or bracketed[2] or "").strip()
        words = [] if bracketed and not text else re.split(r"\s*[x,]\s*|\s+", text)
    elif not isinstance(written, (list, tuple)):
        words = [written]
    if len(words) > 64:  # more than any rule on dimensions has to see
        raise ValueError(f"expected {expected}, got {len(words)} numbers where up to 64 are read")
    numbers = []
    for word in words:
        if type(word) is not int and not (
            type(word) is str and re.fullmatch("-?[0-9]{1,60}", word)
        ):
            raise ValueError(f"expected {expected}, got {str(written)[:60]!r}")
        numbers.append(int(word))
        if abs(numbers[-1]) > _LARGEST:
            raise ValueError(f"expected {expected} in 64 bits, got {str(written)[:60]!r}")
    return tuple(numbers)


def shape_of(text: Any) -> tuple[int, ...]:
    """`2x3` or `2,3`; `()` for one number without axes."""
    shape = whole_numbers(text, _SHAPE)
    if any(size < 0 for size in shape):
        raise ValueError(f"a shape has no negative sizes: {text!r}")
    return shape


class FieldError(ValueError):
    """What is wrong with a field of a tensor."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def tensor_fields(held: Mapping[str, Any]) -> dict[str, Any]:
    """`dtype`, `shape`, `strides`, `offset` and `format` of a tensor that an object describes; FieldError names the one that is wrong."""
    field = "dtype"
    try:
        dtype = dtype_named(str(held.get("dtype", ""))[:200])
        field = "shape"
        shape = shape_of(held.get("shape", ()))
        field = "strides"
        strides = whole_numbers(held["strides"], _STRIDES) if "strides" in held else None
        if strides is not None and len(strides) != len(shape):
            raise ValueError(f"expected {len(shape)} strides for shape {shape}, got {len(strides)}")
        field = "offset"
        [offset] = whole_numbers(held.get("offset", 0), _OFFSET)
        field, written = "format", str(held.get("format", "ND"))
        layout = Format.__members__.get(f"ACL_FORMAT_{written.upper()}")
        if layout is None:
            raise ValueError(f"expected a format like ND, got {written[:60]!r}")
    except ValueError as error:
        raise FieldError(field, str(error)) from None
    return {"dtype": dtype, "shape": shape, "strides": strides, "offset": offset, "format": layout}


def value_of(text: str) -> Any:
    """A number, true, false, inf, nan, null, or the text itself."""
    words = {"true": True, "false": False, "null": None}
    text = text.strip()
    if text.lower() in words:
        return words[text.lower()]
    if text.isascii() and "_" not in text:  # Python reads more than is written elsewhere
        for read in (int, float, complex):
            try:
                return read(text)
            except ValueError:
                continue
    return text
