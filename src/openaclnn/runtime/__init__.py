"""What stands in for the NPU: memory (padded, tracked), streams and events (asynchronous), copies.

The C-named functions over it are in `openaclnn.acl`; importing this starts no thread.
"""

from openaclnn.runtime import config
from openaclnn.runtime.errors import AclFailure
from openaclnn.runtime.memory import find_allocation
from openaclnn.runtime.resources import current_stream
from openaclnn.runtime.stream import Stream

__all__ = ["AclFailure", "Stream", "config", "current_stream", "find_allocation"]
