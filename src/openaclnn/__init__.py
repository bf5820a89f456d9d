"""openaclnn: the Ascend `aclnn` operator interface on any machine, in Python.

    import numpy as np, openaclnn
    openaclnn.elu_backward(np.float32([1, 2]), np.float32([-1, 1]))

The plain calls below are made from the operators' declarations; `openaclnn.aclnn` has the two-phase interface under
its C names, `openaclnn.acl` the runtime. Importing this loads NumPy and nothing heavier.
"""

import os as _os
from importlib import import_module as _import_module
from typing import Any as _Any

from openaclnn.calls.explain import explain
from openaclnn.calls.plain import make_plain_function as _make_plain_function
from openaclnn.core.declare import Operator as _Operator, registry as _declared
from openaclnn.core.forks import check_lock as _check_lock
from openaclnn.core.interface import python_name as _python_name
from openaclnn.core.products import use_product
from openaclnn.core.results import clear_results, set_result_memory
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.core.version import __version__ as __version__
from openaclnn.engines.dispatch import use_engine
from openaclnn.engines.threads import get_num_threads, set_num_threads, use_threads_of
from openaclnn.operators import (
    FAMILIES as _FAMILIES,
    family_of as _family_of,
    find_operator,
    load_family as _load_family,
    registry,
    support_table,
)

_check_lock()


def _enter(operator: _Operator) -> None:
    """Make the plain call of an operator, and the type of its results, this module's."""
    globals()[operator.python_name] = _make_plain_function(operator)
    if operator.result_type is not None:
        globals()[operator.result_type.__name__] = operator.result_type


def __getattr__(name: str) -> _Any:
    """The plain calls of families, which are declared when one of them is asked for."""
    family = _family_of(name)
    for operator in _load_family(family) if family else ():
        _enter(operator)
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


for _operator in _declared():
    _enter(_operator)

__all__ = [
    "AclnnError",
    "Scalar",
    "Status",
    "Tensor",
    "clear_results",
    "explain",
    "find_operator",
    "get_num_threads",
    "registry",
    "set_num_threads",
    "set_result_memory",
    "support_table",
    "use_engine",
    "use_product",
    "use_threads_of",
    *(_operator.python_name for _operator in _declared()),
    *(_operator.result_type.__name__ for _operator in _declared() if _operator.result_type),
    *(_python_name(_name) for _names in _FAMILIES.values() for _name in _names),
]

if _os.environ.get("OPENACLNN_SANITIZE"):
    _import_module("openaclnn.sanitizer").watch_as_asked(_os.environ["OPENACLNN_SANITIZE"])
