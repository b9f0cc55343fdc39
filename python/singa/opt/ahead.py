"""The numbers of updates to come, where the device alone knows how many there were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import singa_wrap

#: Updates for which the first table holds, after which the host has to ask how many there were; the
#: tables that follow are longer and longer.
_FIRST, _MOST = 16, 256


class NumbersAhead:
    """A table on the device with the numbers of one update after the other, of which the device
    picks by the updates that it has counted (UpdateConditions in singa/operation/optimizer.h).

    `key` is all that the numbers follow from, beside the count.
    """

    def __init__(self) -> None:
        self.table: Any = None
        self._key: Any = None
        self._rows = 0
        self._end = 0

    def holds(self, key: Any, count: int, device: Any) -> bool:
        """Whether it has the numbers of an update before which there were `count`, or fewer."""
        placed = self.table is not None and self.table.device().id() == device.id()
        return placed and key == self._key and count < self._end

    def was_filled(self, key: Any) -> bool:
        """Whether the table is one of these numbers, be it for updates before."""
        return key == self._key

    def fill(self, key: Any, count: int, collect: Callable[[int, Any], None], device: Any) -> None:
        """For updates before which there were `count` or more; collect(i, numbers) hands over those
        of the i-th, or raises ValueError where it has none."""
        rows = min(2 * self._rows, _MOST) if key == self._key else _FIRST
        numbers = singa_wrap.UpdateNumbers()
        numbers.Collect()
        made = 0
        try:
            while made < rows:
                collect(made, numbers)
                made += 1
        except ValueError:  # that update may never come
            if not made:
                raise
        table = numbers.Table(count, _MOST).ToDevice(device)
        if self.table is not None and self.table.device().id() == device.id():
            self.table.CopyFrom(table)  # recorded steps know its address
        else:
            self.table = table
        self._key, self._rows, self._end = key, rows, count + made
