"""A call as the text of a program that makes it.

In the order to read: `examples.py` chooses the call and the language, `c.py` writes C and C++, `python.py` Python. `cases/` lies below, whose
words say what tensors a call takes.
"""
