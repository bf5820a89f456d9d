"""The control block of `express`: what lies in which slot, for who fills it and for the code that reads it."""

NUMPY, TORCH = "express numpy", "express torch"
"""The names of the code for each kind of array."""

MAX_ARRAYS, MAX_AXES = 12, 8

# The control block, one int64 a slot: functions and objects by address, then a block for each argument.
(
    FROM_PYTHON, CURRENT_STREAM, CLEAR, TUPLE_NEW, TUPLE_SET, FROM_INT64, CALL, VECTORCALL,
    INCREF, DECREF, NOT_IMPLEMENTED, NONE, CLASS, OTHER_CLASS, MAKE, MAKE_ARGUMENTS, RUNNER,
    COUNT, ADDRESSES,
) = range(19)  # fmt: skip
HEADER = 24
GIVEN, FIRST, SECOND, PLACE, LOW, HIGH, SHAPE, STRIDES = 0, 1, 2, 3, 4, 5, 6, 6 + MAX_AXES
STRIDE = 6 + 2 * MAX_AXES
# What is known of an array, by slots, as a DLTensor has it: data, device (type and number), kind (axes
# and dtype), shape, strides, offset. Of a NumPy array: data, dtype object, axes, shape, strides, 0.
DATA, DEVICE, KIND, SHAPE_AT, STRIDES_AT, OFFSET, VIEW_SLOTS = range(7)
