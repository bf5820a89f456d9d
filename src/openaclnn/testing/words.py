"""The words for dtypes in lists, in commands and behind names of files."""

from __future__ import annotations

from openaclnn.core.dtypes import DType, dtype_of_name

__all__ = ["dtype_named"]

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
