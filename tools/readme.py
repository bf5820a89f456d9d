"""The parts of the README that are made: the table of what is supported where, and the tables of speed.

`python -m tools.readme` writes the first from the declarations and that of small calls from its page in docs/, and tests keep
them fresh; given files of the benchmark's results, `python -m tools.readme RESULTS.json ...` writes that of large problems too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from openaclnn import support_table
from tools.calls import PAGE, calls_table
from tools.speed import speed_table

__all__ = ["README", "with_calls_table", "with_speed_table", "with_support_table"]

README = Path(__file__).parent.parent / "README.md"
_SUPPORT = ("<!-- The table is written by `make format`. -->\n", "<!-- End of the table. -->\n")
_SPEED = (
    "<!-- The table of speed is written by `python -m tools.readme RESULTS.json ...`. -->\n",
    "<!-- End of the table of speed. -->\n",
)
_CALLS = (
    "<!-- The table of small calls is written by `make format`. -->\n",
    "<!-- End of the table of small calls. -->\n",
)


def with_support_table(page: str) -> str:
    """The page with the table as the declarations say it now."""
    return _between(page, _SUPPORT, support_table().markdown())


def with_calls_table(page: str) -> str:
    """The page with the small calls that docs/ tells of now."""
    return _between(page, _CALLS, calls_table(PAGE.read_text(encoding="utf-8")))


def with_speed_table(page: str, files: Sequence[Path]) -> str:
    """The page with the speed that these results say."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return _between(page, _SPEED, speed_table(reports))


def _between(page: str, markers: tuple[str, str], table: str) -> str:
    begin, end = markers
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"README.md has lost the markers {begin.strip()} and {end.strip()}")
    return f"{before}{begin}\n{table}\n\n{end}{after}"


if __name__ == "__main__":
    text = with_calls_table(with_support_table(README.read_text(encoding="utf-8")))
    results = [Path(name) for name in sys.argv[1:]]
    README.write_text(with_speed_table(text, results) if results else text, encoding="utf-8")
