"""Programs that make a call, in C, C++ and Python, and a CMake file: for an operator's first sample, or any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.interface import Kind
from openaclnn.core.products import PRODUCTS, Product
from openaclnn.testing.cases.case import TensorSpec
from openaclnn.testing.data.goldens import places_of, results_of
from openaclnn.testing.programs.c import c_program
from openaclnn.testing.programs.python import python_program

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
    values = sample_values(operator, sample)
    for name, (shape, dtype) in places_of(operator, sample.arrays()).items():
        values.setdefault(name, TensorSpec(shape, dtype))
    made = frozenset(p.name for p in operator.outputs if not p.in_place)
    computed = frozenset(results_of(operator, sample.arrays()))
    return program_of(operator, values, language, made=made, computed=computed)


def program_of(
    operator: Operator, values: Mapping[str, Any], language: str, product: Product = PRODUCTS[0],
    made: frozenset[str] = frozenset(), computed: frozenset[str] | None = None,
) -> str:  # fmt: skip
    """The program of a call; ValueError for a call that the language cannot make.

    `values` has tensors as specs, by C name; those left out are null. The plain call makes the outputs in `made`. Of the outputs
    those in `computed` are shown, or all.
    """
    if language == "python":
        return python_program(operator, values, product, made)
    if language == "cmake":
        return _CMAKE.format(python=operator.python_name)
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; known: {', '.join(LANGUAGES)}")
    return c_program(operator, values, product, language == "c++", computed)


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
