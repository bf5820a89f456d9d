"""Arrays in files, of whatever kind: where they lie, how they are read and written.

In the order to read: `sources.py` takes names apart, `arrays.py` reads and writes by the kind of the file, `weights.py` has the files of
models. Nothing is known here of operators or cases.
"""
