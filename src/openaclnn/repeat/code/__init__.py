"""The machine code of the short road: reads a call's arguments, finds its kind, runs its kernel.

It is one class, of which each file has a part, in the order to read: `doubt.py` is what speaks against a call, `look.py` reads the arguments (`tensors.py` those
that are C++ tensors), `search.py` finds the kind, `geometry.py` sees where elements lie, `outputs.py` takes or makes outputs, and `road.py` puts these together
and runs. `arrays.py` is the same without tensors, `native.py` for PyTorch's dispatcher, and `published.py` has records that it reads without a lock. It knows records as words in
memory, not who wrote them.
"""
