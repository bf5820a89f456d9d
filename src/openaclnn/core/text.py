"""Text that may come from anywhere, for a terminal or a spreadsheet."""

from __future__ import annotations

import re

__all__ = ["cell_of", "neutral"]

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""What terminals obey: control characters of both sets but for tab and line feed, and what turns the direction of text around."""


def neutral(text: str) -> str:
    r"""The text with control characters as `\u001b`, which inside JSON's strings is the same character."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cell_of(value: object) -> str:
    """A cell of a CSV file; text that a spreadsheet would take for a formula has an apostrophe before it."""
    text = str(value)
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
