"""What is kept of earlier calls does not grow for ever."""

from __future__ import annotations

from openaclnn.core.kept import Kept


def test_with_one_entry_too_many_it_begins_anew() -> None:
    kept: Kept[int, str] = Kept(2)
    kept[1], kept[2] = "one", "two"
    assert kept == {1: "one", 2: "two"}
    kept[3] = "three"
    assert kept == {3: "three"}
