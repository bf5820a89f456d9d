"""What an operator is tested on, and what it should give: arguments drawn from seeds, and their golden values.

In the order to read: `distribution.py` draws one array, `drawing.py` an operator's arguments, `goldens.py` has what they should give,
`recipe.py` says all this in words that draw the same bytes again, `manifest.py` keeps it in files,
`expected.py` finds there what a device should give. `judging/` and `files/` lie below.
"""
