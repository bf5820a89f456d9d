"""How kernels take positions, which are rows or pixels, some at a time.

In the order to read: `tile.py` has some rows, where they lie or copied together, and `stretches.py` pieces of
rows; `pixel_groups.py` has neighbouring pixels, `turned.py` makes pixels of rows, and `lengths.py` says when that
is worth it; `sizes.py` has both at any size.
"""
