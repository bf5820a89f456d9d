"""Case lists of other tools, read: each row or object becomes a case, or says what is wrong with it.

In the order to read: `case.py` says what a case is, `lists.py` reads a list by the kind of its file, `ttk.py` and `atk.py` are the two
kinds; below these, `tables.py` has rows, `cells.py` what stands in them, `literals.py` and `words.py` how it is spelt. No data are drawn
here; `data/` lies below.
"""
