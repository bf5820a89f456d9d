"""What an operator is tested on, and what it should give: arguments drawn from seeds, and their golden values.

In the order to read: `drawing.py` draws arrays, an operator's arguments and whole recipes of cases, `goldens.py` has what they should give,
`manifest.py` keeps it in files and finds there what a device should give, `folders.py` writes a folder as a whole. Judging and
files lie below.
"""
