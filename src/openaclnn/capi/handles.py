"""Handles: what C sees of a Python object. A handle is looked up, never dereferenced, never reused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import count
from typing import Any

# Bits 48 to 55 are set in no address that a program can own, on x86-64 and on AArch64 (which ignores
# the top byte): a handle is never mistaken for memory, and a program that reads through one stops.
_FIRST = 0x00AC_0000_0000_0010
_STEP = 16
_REMEMBERED = 1024


class Unknown:
    """Stands for a handle that is not in the table; the runtime refuses it by its type."""

    __slots__ = ("fate", "handle")

    def __init__(self, handle: int, fate: str = "is unknown or already destroyed") -> None:
        self.handle, self.fate = handle, fate

    def __repr__(self) -> str:
        return f"{self.handle:#x}, which {self.fate}"


# Messages say "got a <type>": this one should tell the reader what happened.
Unknown.__name__ = "handle that is unknown, destroyed or used up"


class HandleTable:
    """Objects by handle. Each method is one or two dictionary operations, which the GIL makes atomic."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self._numbers = count(_FIRST, _STEP)
        self._known: dict[int, int] = {}  # handles of objects that are handed out more than once
        self._members: dict[int, tuple[int, ...]] = {}
        # A dict takes long to give its oldest.
        self._retired: OrderedDict[int, None] = OrderedDict()

    def add(self, value: Any) -> int:
        """A fresh handle; 0, the null pointer, for None."""
        if value is None:
            return 0
        handle = next(self._numbers)
        self.objects[handle] = value
        return handle

    def handle_of(self, value: Any) -> int:
        """The handle of an object that may have one already."""
        handle = self.known(value)
        if not handle:
            handle = self._known[id(value)] = self.add(value)
        return handle

    def known(self, value: Any) -> int:
        """The handle of an object, 0 where it has none."""
        handle = self._known.get(id(value), 0)
        return handle if self.objects.get(handle) is value else 0

    def add_list(self, value: Any, members: Iterable[int]) -> int:
        """A handle of a list, whose end is the end of its members' handles too."""
        handle = self.add(value)
        if handle:
            self._members[handle] = tuple(members)
        return handle

    def find(self, handle: int) -> Any:
        """The object; None for null, `Unknown` for anything that is not a live handle."""
        if not handle:
            return None
        value = self.objects.get(handle)
        if value is not None:
            return value
        return (
            Unknown(handle, "has run already; phase one makes a new one")
            if handle in self._retired
            else Unknown(handle)
        )

    def forget(self, handle: int) -> None:
        """The handle is dead from now on."""
        value = self.objects.pop(handle, None)
        self._known.pop(id(value), None)
        for member in self._members.pop(handle, ()):
            self.objects.pop(member, None)

    def retire(self, handle: int) -> None:
        """Forget the handle of an executor, which its owner may still destroy, once; only the newest are remembered."""
        self.objects.pop(handle, None)
        self._retired[handle] = None
        if len(self._retired) > _REMEMBERED:
            self._retired.popitem(last=False)

    def was_retired(self, handle: int) -> bool:
        """Whether a handle was retired and not destroyed since; it is forgotten by asking."""
        return self._retired.pop(handle, self) is None

    def sweep(self) -> None:
        """Forget all objects that ended otherwise than through their handle."""
        for handle, value in list(self.objects.items()):
            if not getattr(value, "alive", True):
                self.forget(handle)


table = HandleTable()
"""The handles of this process; the C libraries and `openaclnn.pyacl` share them."""
