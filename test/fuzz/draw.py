"""Decisions read from bytes: equal bytes decide equally, and shorter ones give simpler cases.

That makes calls and programs inputs like any other: they are mutated, cut down and kept as files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Draw:
    """Reads `data` from its beginning; behind its end everything is 0."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def byte(self) -> int:
        self._position += 1
        return self._data[self._position - 1] if self._position <= len(self._data) else 0

    def ended(self) -> bool:
        return self._position >= len(self._data)

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        number = self.byte()
        if count > 256:
            number = number << 8 | self.byte()
        return number % count

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def chance(self, one_in: int) -> bool:
        """True once in so many; never behind the end of the bytes."""
        return self.byte() % one_in == one_in - 1

    def pick(self, items: Sequence[_Item]) -> _Item:
        return items[self.below(len(items))]
