"""Where the fast path's words lie: an operator's control block, its cache entries, and what is read of an array.
One int64 a slot; Python fills them, `code/` reads them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

MAX_ARRAYS, MAX_OPTIONS, MAX_AXES, MAX_CONSTANTS = 12, 8, 8, 16
MAX_OPERANDS = 2 * MAX_ARRAYS
MAX_DTYPES = 64  # PyTorch's have smaller numbers
MAX_ENTRIES = 32  # a training loop has a handful; the oldest makes room

# The control block: functions of PyTorch's, objects and tables by address, then numbers.
(
    FROM_PYTHON, CURRENT_STREAM, HAS_MODE, IS_NEGATED, STORAGE, STORAGE_OFFSET, IS_TRACING, MODES, REQUIRES_GRAD, COUNT_WRITE,
    NDARRAY, TENSOR, PARAMETER, PRODUCT, ENGINE, PIN, DESCRIPTOR, SCALAR, ENTRY_LIST,
    ARRAYS, OPTIONS, OUTPUTS, CHOSEN, CHOSEN_NOWHERE, COLLECTS, ORDERED, ATTRIBUTES,
) = range(27)  # fmt: skip
ATTRIBUTE_NAMES = "alive", "bits", "device", "dtype", "format", "given_strides", "shape", "writable"
CONTROL_SLOTS = ATTRIBUTES + len(ATTRIBUTE_NAMES)
# ENTRY_LIST: where the address of the list of entries is (`code/read_copy_update.py`).
# From HAS_MODE to COUNT_WRITE: the objects of `readers.TorchFunctions`.
# COLLECTS: whether the interpreter collects garbage, whose finalisers are Python code, when an object is made.
# ORDERED: whether a fresh output is left to the slow path if an input's axes lie in memory in another order than row-major.
# In phase one alone: PIN, what makes a weak reference; DESCRIPTOR and SCALAR, `core.tensor`'s types, and, from ATTRIBUTES on, their attributes' names.
# Of ARRAYS the last are the OUTPUTS.

# What is read of an array: the first six as a DLTensor has them (data, device, axes and dtype, shape, strides,
# offset), of a NumPy array data, dtype object, axes, shape, strides, 0.
# SHAPE_AT and STRIDES_AT say where it has sizes and strides; the call reads them once, into SIZES and STEPS: they may be others once Python code has run.
(
    DATA, DEVICE, KIND, SHAPE_AT, STRIDES_AT, OFFSET, LIBRARY, SIZE, IS_CONTIGUOUS, WRITABLE, SIZES,
) = range(11)  # fmt: skip
STEPS = SIZES + MAX_AXES
VIEW_SLOTS = STEPS + MAX_AXES
ABSENT, NUMPY, TORCH = 0, 1, 2  # LIBRARY; of descriptors it is the address of their device's name

# An entry: the guards of a kind of call, and what runs it.
(
    KEEP, ENTRY_LIBRARY, SHAPE_SOURCE, MAKE, MAKE_LARGE, LARGE_FROM, MAKE_DTYPE, BLOCK, ADDRESSES, TAKES, RESULTS,
    COUNT_FROM, COUNT_BELOW, SOURCE_AXES, SOURCE_CLASSES, CLASS_AXIS, HALF_AXIS, HALVED, CONSTANTS, DERIVE, DERIVED, SOURCE,
) = range(22)  # fmt: skip
# KEEP is the object that has the entry. MAKE is 0 where the caller gave all outputs.
# SHAPE_SOURCE is the array that sizes are read of; ARRAYS: what the inputs stretch to, or half of the array HALVED along HALF_AXIS; the first of the outputs: they are
# part of the kind.
# SOURCE_AXES and SOURCE_CLASSES: how many axes and classes the source has in all calls; 0 where that may change.
# BLOCK is the control block of a runner, which is called in words (`machine.callers`). It takes so many ADDRESSES.
# The numbers that it takes are CONSTANTS, integers, which DERIVE makes of other options than those they were made of; or, where there are none, options: those DERIVED, from SOURCE on.
NO_AXIS, SUMMED_AXES = -1, -2
"""CLASS_AXIS, where there is none; and where elements are added up along axes, none of which then goes backwards in any array."""
MAX_DERIVED = 4
TAKES_SIZES, TAKES_STRIDES, TAKES_NUMBERS = 1, 2, 4
"""Bits of TAKES, what a runner takes besides addresses and a stream, as `machine.callers` has them: the source's shape, or with strides the sizes of merged axes,
the class axis last; every operand's strides along those, in elements, one operand after the other; numbers."""
CONSTANT = SOURCE + MAX_DERIVED
FIRST_OPTION = CONSTANT + MAX_CONSTANTS

# Of each option: the type of a number and its bits, or 0 and the object; whether it may be another number, and within which bounds; and how many of FLOAT's
# last bits the dtype lacks that the number is rounded to.
TYPE, BITS, FREE, LEAST, MOST, DROPPED_BITS, OPTION_SLOTS = range(7)
FLOAT16_DROPS, BFLOAT16_DROPS = 13, 16
FIXED, ANOTHER, ANOTHER_BUT_ZERO, INTEGER = range(4)
"""FREE: not; any number within the bounds, which are floats, as is what is made of an integer; the same, but a zero stays one and others stay others; any integer, as it is."""
FIRST_ARRAY = FIRST_OPTION + MAX_OPTIONS * OPTION_SLOTS

# Of each array: how it must lie, where among a kernel's operands it stands, and once more, as its second half if it is halved, whether the output may be exactly its memory, and of an output that
# the fast path makes by which pattern its shape follows.
FIRST, SECOND, PATTERN, PLACE, OTHER_PLACE, ITEM, COINCIDES, FOLLOWS, MADE, SHAPE = range(10)
STRIDES = SHAPE + MAX_AXES
ARRAY_SLOTS = STRIDES + MAX_AXES
MISSING, SAME, DENSE, SOME, LAID = range(5)
"""Patterns: not given; the very shape and strides; row-major and of the source's shape; row-major, with axes that follow the source's (FOLLOWS); not
row-major, with such axes."""
STRETCHED, DOUBLED = 0x10, 0x20
"""FOLLOWS has a byte for each axis of an array: the axis of the source whose length it has, or twice that; or STRETCHED: one element."""
ANY_STRETCHED = int.from_bytes(bytes([STRETCHED] * MAX_AXES), "little")


class Entry:
    """A cache entry: words, which do not change, and what they rely on. Machine code holds it by the first word, which stands before those
    that it is made of."""

    __slots__ = ("address", "relies_on", "words")

    def __init__(self, words: Sequence[int] = (), relies_on: Any = None) -> None:
        # An array of the integers themselves takes four times as long to make, and "q" three times as long as "n".
        self.words = array("q", struct.pack(f"{len(words) + 1}n", id(self), *words))
        self.address = self.words.buffer_info()[0]
        self.relies_on = relies_on

    @property
    def guards(self) -> array[int]:
        """What calls it serves; what runs them aside."""
        words = self.words
        return words[ENTRY_LIBRARY:MAKE] + words[COUNT_FROM:CONSTANTS] + words[FIRST_OPTION:]
