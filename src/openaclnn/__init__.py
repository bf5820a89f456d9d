"""openaclnn: the Ascend `aclnn` operator interface on any machine, in Python.

    import numpy as np, openaclnn
    openaclnn.elu_backward(np.float32([1, 2]), np.float32([-1, 1]))

The plain calls below come from the operator registry; `openaclnn.aclnn` has the two-phase interface under
its C names, `openaclnn.acl` the runtime. Importing this loads NumPy and nothing heavier.
"""

from openaclnn.calls.explain import explain
from openaclnn.calls.plain import make_plain_function as _make_plain_function
from openaclnn.core.forks import check_lock as _check_lock
from openaclnn.core.products import use_product
from openaclnn.core.results import clear_results, set_result_memory
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.core.version import __version__ as __version__
from openaclnn.engines.dispatch import use_engine
from openaclnn.engines.threads import get_num_threads, set_num_threads, use_threads_of
from openaclnn.operators import find_operator, registry, support_table

_check_lock()
for _operator in registry():
    globals()[_operator.python_name] = _make_plain_function(_operator)
    if _operator.result_type is not None:
        globals()[_operator.result_type.__name__] = _operator.result_type

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
    *(_operator.python_name for _operator in registry()),
    *(_operator.result_type.__name__ for _operator in registry() if _operator.result_type),
]
