"""From any strides to the dense rows that flat kernels take.

In the order to read: `tiles.py` cuts a plan into tiles, `driver.py` is the machine code that brings them, `copies.py` copies those that are not dense;
`gathered.py` does for few elements without a plan, told sizes and strides at the call.
"""
