"""The part of the README that comes from the declarations: its table of what is supported where.

`python -m tools.readme` writes it between two markers; a test keeps it fresh.
"""

from __future__ import annotations

from pathlib import Path

from openaclnn import support_table

__all__ = ["README", "with_support_table"]

README = Path(__file__).parent.parent / "README.md"
_BEGIN = "<!-- The table is written by `make format`. -->\n"
_END = "<!-- End of the table. -->\n"


def with_support_table(page: str) -> str:
    """The page with the table as the declarations say it now."""
    before, _, rest = page.partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise ValueError(f"README.md has lost the markers {_BEGIN.strip()} and {_END.strip()}")
    return f"{before}{_BEGIN}\n{support_table().markdown()}\n\n{_END}{after}"


if __name__ == "__main__":
    README.write_text(with_support_table(README.read_text(encoding="utf-8")), encoding="utf-8")
