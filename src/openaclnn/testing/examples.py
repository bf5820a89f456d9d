"""Programs that make a call, in C, C++ and Python, and a CMake file: for an operator's first sample, or any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import FLOAT, dtype_of_numpy
from openaclnn.core.interface import Kind
from openaclnn.core.products import PRODUCTS, Product
from openaclnn.testing.c_program import c_program
from openaclnn.testing.case import TensorSpec
from openaclnn.testing.python_program import python_program

__all__ = ["LANGUAGES", "example_of", "program_of", "sample_values"]

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
    expected: Any = sample.expected
    written = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
    values = sample_values(operator, sample)
    for parameter, each in zip(written, [expected] if len(written) == 1 else expected, strict=True):
        values.setdefault(parameter.name, TensorSpec(np.shape(each), FLOAT))
    return program_of(operator, values, language, made=frozenset(p.name for p in written))


def program_of(
    operator: Operator, values: Mapping[str, Any], language: str, product: Product = PRODUCTS[0],
    made: frozenset[str] = frozenset(),
) -> str:  # fmt: skip
    """The program of a call; ValueError for a call that the language cannot make.

    `values` has tensors as specs, by C name; those left out are null. The plain call makes the outputs in `made`.
    """
    if language == "python":
        return python_program(operator, values, product, made)
    if language == "cmake":
        return _CMAKE.format(python=operator.python_name)
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; known: {', '.join(LANGUAGES)}")
    return c_program(operator, values, product, plus=language == "c++")


def sample_values(operator: Operator, sample: Sample) -> dict[str, Any]:
    """A sample's arguments by C name, tensors as specs with values; what the plain call makes is not among them."""
    given = sample.arrays()
    values: dict[str, Any] = {}
    for parameter in operator.parameters:
        value = given.get(parameter.python_name, parameter.default)
        if isinstance(value, np.ndarray):
            dtype = dtype_of_numpy(value.dtype)
            assert dtype is not None
            values[parameter.name] = TensorSpec(value.shape, dtype, values=value)
        elif parameter.python_name in given or not (parameter.kind is Kind.OUTPUT or parameter.computed):  # fmt: skip
            values[parameter.name] = value
    return values
