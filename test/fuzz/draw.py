"""Decisions read from bytes: equal bytes give equal decisions, and shorter ones simpler cases.

Calls and programs are thus inputs like files, which can be mutated, minimised and stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Draw:
    """Reads `data` from its beginning. After its end all bytes are 0."""

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
        """True for one in `one_in` bytes; False after the end of the bytes."""
        return self.byte() % one_in == one_in - 1

    def pick(self, items: Sequence[_Item]) -> _Item:
        return items[self.below(len(items))]
