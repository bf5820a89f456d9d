"""The runtime in place of the NPU's: memory (padded, tracked), streams and events (asynchronous), copies.

`config.py`, `device.py`, `memory.py`, `stream.py` and `context.py` do the work; `errors.py` and `enums.py` have exceptions and constants.
`api_init.py`, `api_memory.py`, `api_stream.py` and `api_tensor.py`, and `context.py` for devices, have the functions of C's names, which
`openaclnn.acl` exports. Importing this package starts no thread.
"""

from openaclnn.runtime import config
from openaclnn.runtime.context import current_stream
from openaclnn.runtime.errors import AclFailure
from openaclnn.runtime.memory import find_allocation
from openaclnn.runtime.stream import Stream

__all__ = ["AclFailure", "Stream", "config", "current_stream", "find_allocation"]
