"""The machine code of the fast path: reads a call's arguments, finds its cache entry, runs its kernel.

It is one class, of which each file has a part, in the order to read: `recognise.py` has guards, reads the arguments and finds the entry, `outputs.py` sees where elements
lie and takes or makes outputs, and `fast_path.py` puts these together and runs. `phase_one.py` recognises alone, for two-phase calls, and reads descriptors, too. `native.py` is the same for PyTorch's dispatcher, and `read_copy_update.py` has the list of entries, which may be read without a lock. All know entries as words in
memory, not who wrote them.
"""
