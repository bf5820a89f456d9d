"""Where the words lie that a kernel in PyTorch's dispatcher has of its own, one block for each operator and device.

Numbers of the operator and its device come first, then functions and objects by address, then tables.
"""

from __future__ import annotations

from openaclnn.repeat.slots import MAX_DTYPES, MAX_OPTIONS

(
    CACHE, COUNT, TURN, CORE, DEVICE_KIND, DEVICE_WORD, STREAM, VERSION, FALLBACK, OVERLOAD, PLACE,
    GET_DEVICE, GET_INDEX, GET_DTYPE, GET_DIM, GET_SIZES, GET_STRIDES, GET_DATA, GET_OFFSET, GET_BYTES, IS_DEFINED,
    EMPTY, ZERO, DELETE, FREE, DISPATCH, CHECK,
    KEPT, RAISED, TEXT, LATER, MOST_CLASSES, REDUCTIONS,
) = range(33)  # fmt: skip
# COUNT, TURN: of the calls that read the cache's list of entries (`read_copy_update.py`).
# REDUCTIONS: what the fast path takes for their numbers.
# RAISED: what the fallback raised in this thread, with the attributes TEXT, for C++ to raise, and LATER, for Python.
OPTION_TYPES = REDUCTIONS + 3
DTYPES = OPTION_TYPES + MAX_OPTIONS  # DLPack's word for each of PyTorch's numbers
DTYPE_OBJECTS = DTYPES + MAX_DTYPES  # Python's object and PyTorch's number
DTYPE_NAMES = ("float32", "float16", "bfloat16", "int64", "int32", "uint8")
ONES = DTYPE_OBJECTS + 2 * len(
    DTYPE_NAMES
)  # weights that change nothing: classes, dtype, device, tensor
MAX_ONES, ONES_SLOTS = 16, 4
BLOCK_SLOTS = ONES + MAX_ONES * ONES_SLOTS

MAX_RESULTS = 2
