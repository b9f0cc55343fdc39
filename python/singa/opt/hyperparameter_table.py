"""Hyperparameters of future updates, for a step count that only the device knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import singa_wrap

#: Rows of the first table, and the most rows. Each one is twice as long as the one before. When a
#: table runs out, the host asks the device for its count.
_FIRST, _MOST = 16, 256


class HyperparameterTable:
    """A table on the device with the hyperparameters of consecutive updates. The device counts the
    updates that it makes, and picks the row (UpdateConditions in singa/operation/optimizer.h).

    `key` is all that the rows follow from, besides the count. Tables of equal keys are equal.
    """

    def __init__(self) -> None:
        self.values: Any = None
        self._key: Any = None
        self._rows = 0
        self._end = 0

    def holds(self, key: Any, count: int, device: Any) -> bool:
        """Whether it has the rows of all updates up to number `count`, counted from 0."""
        placed = self.values is not None and self.values.device().id() == device.id()
        return placed and key == self._key and count < self._end

    def was_filled(self, key: Any) -> bool:
        """Whether the table was filled with this key, perhaps for earlier updates."""
        return key == self._key

    def fill(self, key: Any, count: int, collect: Callable[[int, Any], None], device: Any) -> None:
        """Fills it from update number `count` on. collect(i, update_scalars) hands over row i, or
        raises ValueError where the schedule has no value."""
        rows = min(2 * self._rows, _MOST) if key == self._key else _FIRST
        update_scalars = singa_wrap.UpdateScalars()
        update_scalars.Collect()
        made = 0
        try:
            while made < rows:
                collect(made, update_scalars)
                made += 1
        except ValueError:  # that update may never be made
            if not made:
                raise
        table = update_scalars.Table(count, _MOST).ToDevice(device)
        if self.values is not None and self.values.device().id() == device.id():
            self.values.CopyFrom(table)  # recorded steps hold its address
        else:
            self.values = table
        self._key, self._rows, self._end = key, rows, count + made
