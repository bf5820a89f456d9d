"""From any strides to the dense rows that flat kernels take.

`tiles.py` cuts a plan into tiles and brings them; `gathered.py` does for few elements without a plan, told sizes and strides at the call.
"""
