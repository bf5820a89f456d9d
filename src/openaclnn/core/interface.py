"""An operator's interface: its names, its parameters, and what derives from them in C and in Python.

An interface never changes, so properties that calls read are computed once.
"""

from __future__ import annotations

import re
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.products import Product

REDUCTIONS = ("none", "mean", "sum")
"""The reductions by their number in the integer form of the parameter."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
"""Stands in place of a default where the plain call must be given the parameter."""


class Kind(Enum):
    """What a parameter is in C; the value is its C type as it stands before the name."""

    TENSOR = "const aclTensor *"
    SCALAR = "const aclScalar *"
    BOOL = "bool "
    INT64 = "int64_t "
    FLOAT = "float "
    DOUBLE = "double "
    CSTRING = "char *"
    OUTPUT = "aclTensor *"


@dataclass(frozen=True)
class Parameter:
    """One parameter of phase one, under its C name."""

    name: str
    kind: Kind
    text: str
    shape: str = ""  # the documented shape rule, for people
    dtypes: tuple[DType, ...] = ()  # the documented dtypes
    default: Any = REQUIRED  # the plain call's default
    optional: bool = False  # a null pointer is allowed
    computed: bool = False  # the plain call may leave it out; the kernel then computes it
    weak: bool = True  # a Python number given here takes the dtype of the call's other tensors
    choices: tuple[str, ...] = ()  # names of an enumerated value, by number
    c_type: str = ""  # the C type in the prototype, if it is not that of `kind`
    in_place: bool = False  # an output that is read before it is written
    axis: str = ""  # the tensor whose axis this integer numbers, from -rank to rank - 1

    @property
    def declaration(self) -> str:
        """The parameter as it stands in the C prototype."""
        return (self.c_type or self.kind.value) + self.name

    @cached_property
    def python_name(self) -> str:
        """The plain call's name: snake case, without the C suffix `Optional`; an output that is not read is `out`."""
        if self.kind is Kind.OUTPUT and not self.in_place:
            return "out"
        name = snake_case(self.name.removesuffix("Optional"))
        # `lambda` is a keyword of Python; PyTorch spells the parameter so.
        return "lambd" if name == "lambda" else name

    @cached_property
    def field(self) -> str:
        """An output's name in the named tuple of several: snake case, without the C suffixes."""
        return snake_case(self.name.removesuffix("Optional").removesuffix("Out"))

    @cached_property
    def is_tensor(self) -> bool:
        return self.kind in (Kind.TENSOR, Kind.OUTPUT)

    @cached_property
    def is_read(self) -> bool:
        """Whether it is a tensor with values for the operator."""
        return self.kind is Kind.TENSOR or self.in_place


@dataclass(frozen=True, kw_only=True, eq=False)
class Interface:
    """What callers see of one operator."""

    name: str  # the C name of phase two
    summary: str
    formula: str
    parameters: tuple[Parameter, ...]
    families: frozenset[str]  # tags of the product families that have it
    header_name: str = ""  # of the C header, where it is not the Python name

    @cached_property
    def python_name(self) -> str:
        return python_name(self.name)

    @property
    def header(self) -> str:
        """The C header, which an operator shares with its form that works in place."""
        name = self.header_name or self.python_name.removeprefix("inplace_")
        return f"aclnnop/aclnn_{name}.h"

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    def __getitem__(self, name: str) -> Parameter:
        return self._by_name[name]

    @cached_property
    def places(self) -> dict[str, int]:
        """The parameters' numbers in C order."""
        return {parameter.name: number for number, parameter in enumerate(self.parameters)}

    @cached_property
    def outputs(self) -> tuple[Parameter, ...]:
        """The parameters that are written, in C order."""
        return tuple(p for p in self.parameters if p.kind is Kind.OUTPUT)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The names of the parameters that are written."""
        return tuple(p.name for p in self.outputs)

    @cached_property
    def output(self) -> Parameter:
        """The first output."""
        return self.outputs[0]

    @cached_property
    def result_type(self) -> Any:
        """The named tuple of the plain call's results; None where there is one result."""
        if len(self.outputs) == 1:
            return None
        name = f"{self.name.removeprefix('aclnn')}Result"
        return namedtuple(name, [p.field for p in self.outputs], module="openaclnn")

    @cached_property
    def tensors(self) -> tuple[Parameter, ...]:
        """The tensor parameters in C order, outputs included."""
        return tuple(p for p in self.parameters if p.is_tensor)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The names of the tensors that are read only, in C order; outputs that work in place are not among them."""
        return tuple(p.name for p in self.tensors if p.kind is Kind.TENSOR)

    @cached_property
    def input_places(self) -> tuple[int, ...]:
        """The numbers in C order of the tensors that are read only."""
        return tuple(self.places[name] for name in self.input_names)

    @cached_property
    def output_places(self) -> tuple[int, ...]:
        """The numbers in C order of all tensors that are written."""
        return tuple(self.places[p.name] for p in self.outputs)

    @cached_property
    def reduction(self) -> Parameter | None:
        """The parameter that names the reduction, where there is one."""
        return next((p for p in self.parameters if p.choices), None)

    @cached_property
    def axis(self) -> Parameter | None:
        """The parameter that numbers the axis of the classes, where there is one."""
        return next((p for p in self.parameters if p.axis), None)

    @cached_property
    def plain_parameters(self) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
        """The plain call's positional and keyword-only parameters; last is `out`, the first output for all of them."""
        inputs = [p for p in self.parameters if p.kind is not Kind.OUTPUT or p.in_place]
        positional = (p for p in inputs if p.default is REQUIRED)
        keywords = (p for p in inputs if p.default is not REQUIRED)
        out = () if self.output.in_place else (self.output,)
        return tuple(positional), (*keywords, *out)

    @cached_property
    def plain_defaults(self) -> dict[str, Any]:
        """The plain call's defaults by Python name; REQUIRED where there is none."""
        positional, keywords = self.plain_parameters
        defaults = {p.python_name: p.default for p in (*positional, *keywords)}
        return defaults if self.output.in_place else defaults | {self.output.python_name: None}

    def supported_on(self, product: Product) -> bool:
        return product.is_default or product.tag in self.families

    def dtypes_on(self, product: Product) -> tuple[DType, ...]:
        """The floating types it takes on a product; none where the product lacks it."""
        if not self.supported_on(product):
            return ()
        beyond = [d for d in self.data_dtypes if d.kind == "floating" and d not in FLOATS]
        return (*(d for d in FLOATS if d in product.floats and d in self.data_dtypes), *beyond)

    @property
    def data_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the data: those of the first required input that allows several floating types, else those of the first tensor."""
        needed = [p.dtypes for p in self.tensors if p.is_read and not p.optional]
        several = (dtypes for dtypes in needed if [d.kind for d in dtypes].count("floating") > 1)
        return next(several, self.tensors[0].dtypes)

    def prototypes(self) -> tuple[str, str]:
        """The C prototypes of phase one and phase two."""
        arguments = [p.declaration for p in self.parameters]
        first = ", ".join([*arguments, "uint64_t *workspaceSize", "aclOpExecutor **executor"])
        second = (
            "void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream"
        )
        return (
            f"aclnnStatus {self.name}GetWorkspaceSize({first})",
            f"aclnnStatus {self.name}({second})",
        )

    def signature(self) -> str:
        """The plain call's signature, without types."""
        parts = [
            name if default is REQUIRED else f"{name}={default!r}"
            for name, default in self.plain_defaults.items()
        ]
        parts.insert(len(self.plain_parameters[0]), "*")
        return f"{self.python_name}({', '.join([*parts, 'product=None'])})"


def python_name(name: str) -> str:
    """An operator's name in Python."""
    return snake_case(name.removeprefix("aclnn"))


def snake_case(name: str) -> str:
    """`selfOrResult` -> `self_or_result`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return spaced.lower()
