"""How an operator is declared. Everything that users see of an operator derives from one `Operator`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.products import Product

if TYPE_CHECKING:
    from openaclnn.core.call import Call
    from openaclnn.core.checks import Check
    from openaclnn.core.plan import Plan

__all__ = [
    "REDUCTIONS",
    "REQUIRED",
    "Kind",
    "Operator",
    "Parameter",
    "Sample",
    "find_operator",
    "register",
    "registry",
]

REDUCTIONS = ("none", "mean", "sum")
"""The reductions by their number in the integer form of the parameter."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
"""The default of a parameter that has none."""


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
    c_type: str = ""  # where the prototype departs from its kind's C type

    @property
    def declaration(self) -> str:
        """The parameter as it stands in the C prototype."""
        return (self.c_type or self.kind.value) + self.name

    @property
    def python_name(self) -> str:
        """The plain call's name: snake case, without the C suffix; the output is `out`."""
        return "out" if self.kind is Kind.OUTPUT else snake_case(self.name.removesuffix("Optional"))

    @property
    def is_tensor(self) -> bool:
        return self.kind in (Kind.TENSOR, Kind.OUTPUT)


@dataclass(frozen=True)
class Sample:
    """A call with a known answer, computed in FLOAT. An operator's first is its document's own example: `openaclnn
    demo` shows it, and tests take it through both phases and through C.

    Tests hold the reference to `expected`, and results to a few units in the last place of FLOAT.
    """

    title: str  # for people
    arguments: Mapping[str, Any]  # of the plain call; tensors as (dtype, nested list)
    expected: Any  # for the arguments as they are written, to 12 decimals or all digits
    exact: bool = (
        False  # `expected` is what FLOAT arguments give exactly: results must have its bits
    )

    def arrays(self) -> dict[str, Any]:
        """The arguments with `(dtype, nested list)` pairs made into arrays."""
        return {
            name: np.asarray(value[1], dtype=value[0].numpy) if isinstance(value, tuple) else value
            for name, value in self.arguments.items()
        }


@dataclass(frozen=True)
class Operator:
    """One operator: parameters, ordered checks, plan, formula and float64 reference."""

    name: str  # the C name of phase two
    summary: str
    formula: str
    parameters: tuple[Parameter, ...]
    families: frozenset[str]  # tags of the product families that have it
    checks: tuple[Check, ...]
    result: Callable[[Call], tuple[tuple[int, ...], DType]]  # shape and dtype of an omitted output
    plan: Callable[[Call], Plan]
    reference: Callable[..., np.ndarray[Any, Any]]
    samples: tuple[Sample, ...] = ()
    generated: bool = False  # the vendor generates this interface: its phase two is stricter
    _index: dict[str, Parameter] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._index.update({parameter.name: parameter for parameter in self.parameters})

    @property
    def python_name(self) -> str:
        return snake_case(self.name.removeprefix("aclnn"))

    @property
    def header(self) -> str:
        return f"aclnnop/aclnn_{self.python_name}.h"

    @property
    def output(self) -> Parameter:
        return next(p for p in self.parameters if p.kind is Kind.OUTPUT)

    @property
    def tensors(self) -> tuple[Parameter, ...]:
        """The tensor parameters in C order, the output included."""
        return tuple(p for p in self.parameters if p.is_tensor)

    def __getitem__(self, name: str) -> Parameter:
        return self._index[name]

    def supported_on(self, product: Product) -> bool:
        return product.is_default or product.tag in self.families

    def dtypes_on(self, product: Product) -> tuple[DType, ...]:
        """The floating types it computes with on a product; none where the product lacks it."""
        if not self.supported_on(product):
            return ()
        return tuple(dtype for dtype in FLOATS if dtype in product.floats)

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

    @property
    def plain_parameters(self) -> tuple[list[Parameter], list[Parameter]]:
        """The plain call's positional and keyword-only parameters, the output last."""
        inputs = [p for p in self.parameters if p.kind is not Kind.OUTPUT]
        positional = [p for p in inputs if p.default is REQUIRED]
        keywords = [p for p in inputs if p.default is not REQUIRED]
        return positional, [*keywords, self.output]

    def signature(self) -> str:
        """The plain call's signature, without types."""
        positional, keywords = self.plain_parameters
        parts = [p.python_name for p in positional]
        parts += ["*"] + [
            f"{p.python_name}={None if p.kind is Kind.OUTPUT else p.default!r}" for p in keywords
        ]
        return f"{self.python_name}({', '.join([*parts, 'product=None'])})"

    @property
    def workloads(self) -> Any:
        """Test cases, benchmark problems and PyTorch peers: `workloads/<name>.py` beside the declaring `<name>.py`."""
        package, _, name = self.reference.__module__.rpartition(".")
        return importlib.import_module(f"{package}.workloads.{name}")

    def oracle(self, /, *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
        """The float64 reference for the same arguments as the plain call (`out` is not used)."""
        from openaclnn.core.call import oracle_arguments

        return self.reference(**oracle_arguments(self, args, kwargs))

    def describe(self) -> str:
        """Prototype, parameters, checks and formula as text."""
        from openaclnn.core.describe import describe

        return describe(self)

    def __repr__(self) -> str:
        return f"<Operator {self.name}>"


def snake_case(name: str) -> str:
    """`selfOrResult` -> `self_or_result`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return spaced.lower()


_operators: dict[str, Operator] = {}


def register(operator: Operator) -> Operator:
    """Add an operator to the registry; every interface iterates it."""
    _operators[operator.name] = operator
    return operator


def registry() -> tuple[Operator, ...]:
    """All operators, in the order of their declaration."""
    import openaclnn.operators  # noqa: F401  (declares them)

    return tuple(_operators.values())


def find_operator(name: str) -> Operator:
    """An operator by its C or Python name; KeyError lists the known ones."""
    for operator in registry():
        if name in (operator.name, operator.python_name):
            return operator
    known = ", ".join(operator.python_name for operator in registry())
    raise KeyError(f"unknown operator {name!r}; known operators: {known}")
