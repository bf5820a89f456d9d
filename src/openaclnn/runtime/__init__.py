"""What stands in for the NPU: memory (padded, tracked), streams and events (asynchronous), copies.

The C-named functions over it are in `openaclnn.acl`; importing this starts no thread.
"""

from openaclnn.runtime import config
from openaclnn.runtime.context import default_stream, sys_param
from openaclnn.runtime.errors import AclFailure
from openaclnn.runtime.event import Event
from openaclnn.runtime.memory import Allocation, find_allocation
from openaclnn.runtime.resources import current_stream
from openaclnn.runtime.stream import Stream

__all__ = [
    "AclFailure", "Allocation", "Event", "Stream", "config", "current_stream", "default_stream",
    "find_allocation",
    "sys_param",
]  # fmt: skip
