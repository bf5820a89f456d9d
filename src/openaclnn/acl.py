"""The AscendCL runtime and the aclnn objects under their C names.

C conventions become Python ones in four ways; nothing raises for bad input.

- A function returns its status, an int; 0 is success. After a failure `aclGetRecentErrMsg()`
  says which argument was wrong, what was expected and what came.
- Output pointers become return values behind the status: `status, ptr = aclrtMalloc(64, 0)`,
  `status, stream = aclrtCreateStream()`. They are 0, empty or None where the call failed.
- What C returns as a pointer is an object, or None for a null pointer: `aclCreateTensor(...)`.
- An array with its count is one sequence; None is a null pointer. Device pointers are ints, and
  null is 0 or None. Handles are objects; a foreign or destroyed one gives a status.

The host side of a copy may be an address, a NumPy array, or any other buffer. An address that the
runtime did not hand out is trusted to be host memory, as in C; no access leaves one that it did.
Every enumerator of the interface is a constant of this module: `ACL_FLOAT`, `ACL_FORMAT_ND`, ...
"""

from openaclnn.runtime import api_init, api_memory, api_stream, api_tensor, context
from openaclnn.runtime.api_init import *  # noqa: F403
from openaclnn.runtime.api_memory import *  # noqa: F403
from openaclnn.runtime.api_stream import *  # noqa: F403
from openaclnn.runtime.api_tensor import *  # noqa: F403
from openaclnn.runtime.context import *  # noqa: F403
from openaclnn.runtime.enums import ENUMERATORS

__all__ = [
    *api_init.__all__, *api_memory.__all__, *api_stream.__all__, *api_tensor.__all__, *context.__all__, *ENUMERATORS,
]  # fmt: skip

globals().update(ENUMERATORS)


def __getattr__(name: str) -> int:
    """For type checkers, to which the constants above are invisible."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
