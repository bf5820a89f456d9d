"""Arrays in files, of whatever kind: where they lie, how they are read and written.

In the order to read: `sources.py` takes names apart, `arrays.py` reads and writes by the kind of the file, `npy.py` has NumPy's files,
`weights.py` those of models; `folders.py` replaces a folder as a whole. Nothing is known here of operators or cases.
"""
