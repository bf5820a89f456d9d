"""What was found out before and may be asked for again: a dictionary that does not grow for ever."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["Kept"]

Key = TypeVar("Key")
Found = TypeVar("Found")


class Kept(dict[Key, Found]):
    """Of so many entries at most: with one more it begins anew, which costs looking up nothing."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Key, found: Found) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, found)
