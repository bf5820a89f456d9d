"""Results as somebody reads them: `tables/` on the terminal, on a page, in pictures.

In the order to read: `terminal.py` prints, `page.py` writes the page of `docs/`, `html.py` one file with pictures, which are from `plots.py`, and
`sheet.py` writes every timing as CSV.
"""
