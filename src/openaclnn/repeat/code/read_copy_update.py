"""Read-copy-update: the list of a cache's entries, for readers that hold the interpreter's lock and those that do not.

What they read never changes. A new entry makes another list, whose address replaces the one in force, and the old list is kept until no reader without
the lock can be reading it (the grace period).

That is told by counting. Readers are counted as they come and go, in one of two turns, and the turn that newcomers get changes with each look. Those who may have
found the old list are in one turn or the other; so once each of the two was seen empty since the list was replaced, they have all left, although there may be
newcomers at all times.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

from openaclnn.engines.machine.builtins import publish
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.slots import Entry

# The word of a place where readers come in: how many there are in the first turn and in the second, and how many calls they served.
_TURN_BITS = 14
_TURN = (1 << _TURN_BITS) - 1
_SERVED_BIT = 2 * _TURN_BITS


def arrive(code: Code, place: Array) -> Value:
    """Count a reader before it reads; gives what `depart` takes."""
    turn = place.read(1)
    code.add_shared(place, 0, turn)
    return turn


def depart(code: Code, place: Array, turn: Value, served: bool) -> None:
    code.add_shared(place, 0, code.integer(served << _SERVED_BIT) - turn)


def take_back(code: Code, place: Array) -> None:
    """A call that was counted as served is not."""
    code.add_shared(place, 0, code.integer(-(1 << _SERVED_BIT)))


class Readers:
    """A place where readers come in: two slots, the word that counts, and what the next reader adds to it."""

    def __init__(self, address: int) -> None:
        self._slots = (ctypes.c_uint64 * 2).from_address(address)
        self._slots[1] = 1

    @property
    def served(self) -> int:
        return self._slots[0] >> _SERVED_BIT

    def left(self) -> set[int]:
        """The turns that nobody is in; from now on readers come in the other turn than before."""
        word = self._slots[0]
        self._slots[1] ^= 1 | 1 << _TURN_BITS
        return {turn for turn in range(2) if not word >> turn * _TURN_BITS & _TURN}


class _List:
    """Entries, and the turns that were seen empty since another list took its place."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._words = array("q", [len(entries), *[entry.address for entry in entries]])
        self.address = self._words.buffer_info()[0]
        self.settled = False  # as soon as whoever made it has done so
        self.left: set[tuple[int, int]] = set()


class Published:
    """Lists of entries: the one in force, and those before it that somebody may be reading."""

    def __init__(self) -> None:
        self._place = array("q", [0])
        self._readers: list[Readers] = []
        self._lists: list[_List] = []
        self.replace(())

    @property
    def address(self) -> int:
        """Where the address of the list in force is. A list is its length, then the address of each entry."""
        return self._place.buffer_info()[0]

    @property
    def entries(self) -> Sequence[Entry]:
        return self._lists[-1].entries

    def admit(self, readers: Readers) -> None:
        self._readers.append(readers)

    def replace(self, entries: Sequence[Entry]) -> None:
        """A finaliser may do the same in the middle of this, or a signal's handler raise: so a list is held from before readers can find it until
        the newest is in force."""
        fresh, lists, place = _List(entries), self._lists, self._place
        lists.append(fresh)
        while place[0] != lists[-1].address:
            if self._readers:
                publish(self.address, lists[-1].address)
            else:
                place[0] = lists[-1].address
        fresh.settled = True
        self._let_go()

    def _let_go(self) -> None:
        """Drop the lists that nobody can be reading any more."""
        now, readers = self._place[0], self._readers
        empty = [(place, turn) for place, each in enumerate(readers) for turn in each.left()]
        for old in self._lists[:-1]:
            if old.settled and old.address != now:
                old.left.update(empty)
                if len(old.left) == 2 * len(readers):
                    self._lists.remove(old)
