"""Where the words lie that a kernel in PyTorch's dispatcher has of its own, one block for each operator and device.

The first are those of an object that C++ counts references to; then comes what differs between operators and devices,
functions and objects by address, and tables.
"""

from __future__ import annotations

from openaclnn.repeat.words.slots import MAX_DTYPES, MAX_OPTIONS

(
    _TABLE, REFERENCES, WEAK_REFERENCES, _SPARE,
    ROAD, RECORDS, COUNT, TURN, CORE, ORIGINAL, ORIGINAL_SELF, ASKED, BOXED, BOXED_SELF, DEVICE_KIND, DEVICE_WORD,
    ENSURE, RELEASE, WRAP, COPY, DELETE, EMPTY, ZERO, UNDEFINED, CLEAR, FROM_DOUBLE, FROM_INT64, FROM_BOOL, VECTORCALL,
    INCREF, DECREF, NONE, NOT_IMPLEMENTED, TRUE, FALSE, KEPT, FETCH, NORMALIZE, LATER, SET_LATER, THREAD,
    TENSOR_TABLE, STORAGE_TABLE, STREAM, MANY_ONES, REDUCTIONS,
) = range(46)  # fmt: skip
# RECORDS: where the address of the list of records is. COUNT, TURN: of the calls that read it (`published.py`).
OPTION_TYPES = REDUCTIONS + 3
DTYPES = OPTION_TYPES + MAX_OPTIONS  # DLPack's word for each of PyTorch's
ONES = DTYPES + MAX_DTYPES  # weights that change nothing: classes, dtype, device, tensor
MAX_ONES, ONES_SLOTS = 16, 4
BLOCK_SLOTS = ONES + MAX_ONES * ONES_SLOTS

MAX_RESULTS = 2
