"""Type stubs for what the registry makes at import time, so that editors and mypy see it.

`python -m tools.stubs` writes them; a test keeps them fresh.
"""

from __future__ import annotations

import keyword
from pathlib import Path

import openaclnn
from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.operators import registry

__all__ = ["PACKAGE", "stubs", "write_stubs"]

PACKAGE = Path(openaclnn.__file__).parent

_TYPES = {
    Kind.TENSOR: "ArrayLike",
    Kind.SCALAR: "Number",
    Kind.BOOL: "bool",
    Kind.INT64: "int",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "float",
    Kind.CSTRING: "str",
    Kind.OUTPUT: "Any",
}
_MADE = "# Written by `python -m tools.stubs` from the operators' declarations.\n"


def _plain_stub(operator: Operator) -> str:
    positional, keywords = operator.plain_parameters
    result, lines = "Any", []
    if operator.result_type is not None:
        result = operator.result_type.__name__
        lines = [f"class {result}(NamedTuple):"]
        lines += [f"    {name}: Any" for name in operator.result_type._fields] + [""]
    lines.append(f"def {operator.python_name}(")
    lines += [f"    {p.python_name}: {_TYPES[p.kind]}," for p in positional]
    lines.append("    *,")
    for p in keywords:
        kind = "str | int" if p.choices else _TYPES[p.kind]
        default = None if p.kind is Kind.OUTPUT else p.default
        if default is None and kind != "Any":
            kind += " | None"
        lines.append(
            f"    {p.python_name}: {kind} = {'...' if default is REQUIRED else repr(default)},"
        )
    lines += [
        "    product: str | None = None,",
        f") -> {result}:",
        f'    """{operator.summary}"""',
        "",
    ]
    return "\n".join(lines)


def _c_name(parameter: Parameter) -> str:
    """The C name, or the Python one where that is no keyword."""
    return parameter.python_name if keyword.iskeyword(parameter.name) else parameter.name


def _two_phase_stub(operator: Operator) -> str:
    lines = [f"def {operator.name}GetWorkspaceSize("]
    lines += [f"    {_c_name(p)}: Any," for p in operator.parameters]
    lines += [
        "    workspaceSize: Any = ...,", "    executor: Any = ...,", "    /,",
        ") -> tuple[int, int, Executor | None]: ...",
        f"def {operator.name}(",
        "    workspace: Any, workspaceSize: int, executor: Any, stream: Any = None",
        ") -> int: ...", "",
    ]  # fmt: skip
    return "\n".join(lines)


def stubs() -> dict[str, str]:
    """The text of each stub file, by its name in the package."""
    plain = [
        _MADE + "from typing import Any, NamedTuple",
        "",
        "import numpy as np",
        "",
        "from openaclnn.engines.dispatch import use_engine as use_engine",
        "from openaclnn.calls.explain import explain as explain",
        "from openaclnn.core.products import use_product as use_product",
        "from openaclnn.core.results import clear_results as clear_results",
        "from openaclnn.core.results import set_result_memory as set_result_memory",
        "from openaclnn.core.status import AclnnError as AclnnError",
        "from openaclnn.core.status import Status as Status",
        "from openaclnn.core.tensor import Scalar as Scalar",
        "from openaclnn.core.tensor import Tensor as Tensor",
        "from openaclnn.engines.threads import get_num_threads as get_num_threads",
        "from openaclnn.engines.threads import set_num_threads as set_num_threads",
        "from openaclnn.engines.threads import use_threads_of as use_threads_of",
        "from openaclnn.operators import find_operator as find_operator",
        "from openaclnn.operators import registry as registry",
        "from openaclnn.operators import support_table as support_table",
        "",
        "type ArrayLike = Any",
        "type Number = float | np.number[Any] | Scalar",
        "",
        "__version__: str",
        "",
        *(_plain_stub(operator) for operator in registry()),
    ]
    setter = "def {0}(executor: Any, index: int, tensor: Any, addr: Any, /) -> int: ..."
    dynamic = "def {0}(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any, /) -> int: ..."
    whole = "def {0}(executor: Any, /) -> int: ..."
    calls = {
        "clSetAclOpExecutorRepeatable": whole, "clDestroyAclOpExecutor": whole,
        "clSetInputTensorAddr": setter, "clSetOutputTensorAddr": setter, "clSetTensorAddr": setter,
        "clSetDynamicInputTensorAddr": dynamic, "clSetDynamicOutputTensorAddr": dynamic,
        "clSetDynamicTensorAddr": dynamic,
    }  # fmt: skip
    two_phase = [
        _MADE + "from typing import Any",
        "",
        "from openaclnn.calls.executor import Executor",
        "from openaclnn.runtime.api_init import aclGetRecentErrMsg as aclGetRecentErrMsg",
        "",
        *(line.format(first + name) for name, line in calls.items() for first in "aA"),
        "",
        *(_two_phase_stub(operator) for operator in registry()),
    ]
    # `type` statements need Python 3.12 at run time, but stub files are never run.
    text = "\n".join(plain).replace("type ArrayLike = Any", "ArrayLike = Any")
    text = text.replace("type Number = ", "Number = ")
    return {"__init__.pyi": text, "aclnn.pyi": "\n".join(two_phase)}


def write_stubs() -> None:
    """Write the stub files beside the modules they describe."""
    for name, text in stubs().items():
        (PACKAGE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_stubs()
