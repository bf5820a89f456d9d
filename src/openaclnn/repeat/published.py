"""A road's records for readers that do not hold the interpreter's lock.

What they read never changes: a list of copies, replaced as a whole by another. What it had lives on until every reader that
may have found it has left. Each has a word that counts it, in one of two turns; a turn that nobody is in any more, at some time
after the list was replaced, has no reader of it, and those that come meanwhile get the other turn.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping
from typing import Any

from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.shared import publish
from openaclnn.engines.machine.values import Value

__all__ = ["Published", "Readers", "arrive", "depart"]

# The word of a place where readers come in: how many there are in the first turn and in the second, and how many calls they served.
_TURN_BITS = 14
_TURN = (1 << _TURN_BITS) - 1
_SERVED_BIT = 2 * _TURN_BITS


def arrive(code: Code, place: Array) -> Value:
    """Count a reader before it reads; what it takes to leave."""
    turn = place.read(1)
    code.add_shared(place, 0, turn)
    return turn


def depart(code: Code, place: Array, turn: Value, served: bool) -> None:
    code.add_shared(place, 0, code.integer(served << _SERVED_BIT) - turn)


class Readers:
    """A place where readers come in: two slots, the word and what the next is counted by."""

    def __init__(self, address: int) -> None:
        self._slots = (ctypes.c_uint64 * 2).from_address(address)
        self._slots[1] = 1

    @property
    def served(self) -> int:
        return self._slots[0] >> _SERVED_BIT

    def left(self) -> set[int]:
        """The turns that nobody is in; the next reader has the other turn."""
        word = self._slots[0]
        self._slots[1] ^= 1 | 1 << _TURN_BITS
        return {turn for turn in range(2) if not word >> turn * _TURN_BITS & _TURN}


class _List:
    """Records, with what they rely on, and the turns that were seen empty since another list is in force."""

    def __init__(self, records: Mapping[int, tuple[array[int], Any]]) -> None:
        self.records = records
        addresses = [own.buffer_info()[0] for own, _ in records.values()]
        self._words = array("q", [len(addresses), *addresses])
        self.address = self._words.buffer_info()[0]
        self.left: set[tuple[int, int]] = set()


class Published:
    """Lists of records: the one in force, and those before it that somebody may be reading."""

    def __init__(self) -> None:
        self._place = array("q", [0])
        self._readers: list[Readers] = []
        self._lists: list[_List] = []
        self._replace({})

    @property
    def address(self) -> int:
        """Where the address of the list is: how many records there are, and the address of each."""
        return self._place.buffer_info()[0]

    def admit(self, readers: Readers) -> None:
        self._readers.append(readers)

    def enter(self, index: int, record: bytes, held: Any) -> None:
        """A record, in the place of what has its index."""
        self._replace({**self._lists[-1].records, index: (array("q", record), held)})

    def forget(self) -> None:
        self._replace({})

    def _replace(self, records: Mapping[int, tuple[array[int], Any]]) -> None:
        """A finaliser may do the same in the middle of this, or a signal's handler raise: each list is held before it is found."""
        made = _List(records)
        self._lists.append(made)
        publish(self.address, made.address)
        self._let_go()

    def _let_go(self) -> None:
        """What nobody can be reading any more."""
        now = self._place[0]
        places = range(len(self._readers))
        empty = {(place, turn) for place in places for turn in self._readers[place].left()}
        for own in [own for own in self._lists if own.address != now]:
            own.left |= empty
            if len(own.left) == 2 * len(places):
                self._lists.remove(own)
