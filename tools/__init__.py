"""Tools of a checkout: what writes generated files, and what measures how exact results are (`accuracy.py`) and the words of formulas (`words.py`)."""
