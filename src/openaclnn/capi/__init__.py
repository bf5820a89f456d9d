"""The C side: headers and shared libraries, made from the registry and from `prototypes`.

`openaclnn-config --cflags --libs` is all that a C or C++ build needs; the libraries are built on
first use and embed the Python that built them. Nothing here is imported by `import openaclnn`.

`prototypes.py` lists the functions and writes the headers, `glue.py` the wrappers, `build.py` builds, `config.py` is the tool. `bridge.py` and
`handles.py` run inside the program, with the C files beside them.
"""
