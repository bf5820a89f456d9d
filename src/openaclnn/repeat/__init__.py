"""The short road of repeated calls: what is compared, and the code that compares. docs/calls.md is its guide.

Each of these rooms imports from those below it:

    phases/    the road of phase one, which says where arrays lie, and what phase two is left to do
    kinds/     what is remembered of a call, and the road of an operator, which has it
    code/      the machine code of roads, for Python and for C++
    words/     where the words lie that it reads

So `kinds/road.py` is what Python knows of a road, which `code/road.py` writes; `code/native.py` writes one for PyTorch's dispatcher, whose own words are
in `words/native.py`.
"""
