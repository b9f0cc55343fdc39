"""Modules for scripts that were written for SINGA, and the switch for SINGA's behaviour.

Scripts import the modules as `singa.utils`, `singa.image_tool`, `singa.snapshot`, `singa.sonnx`,
`singa.proto` and `singa.data.ImageBatchIter`. docs/singa_compat.md lists what the switch changes,
and the differences that remain.
"""

from __future__ import annotations

import sys
import types

from ..raw import compat_mode
from ..raw.compat_mode import enable

__all__ = ["enable", "enabled"]

#: Whether SINGA's behaviour is on. Assign to it to change that.
enabled: bool


class _Compat(types.ModuleType):
    """Class of this module. It makes `enabled` a property that sets the flag of `compat_mode`."""

    @property
    def enabled(self) -> bool:
        return compat_mode.enabled

    @enabled.setter
    def enabled(self, flag: bool) -> None:
        compat_mode.enabled = flag


sys.modules[__name__].__class__ = _Compat
