"""Modules for scripts that were written for SINGA, and the switch for SINGA's behaviour.

Scripts import the modules as `singa.utils`, `singa.image_tool`, `singa.snapshot`, `singa.sonnx`,
`singa.proto` and `singa.data.ImageBatchIter`. docs/singa_compat.md lists what the switch changes,
and the differences that remain.
"""

from __future__ import annotations

import os
import sys
import types

from .. import singa_wrap as _c
from ..tape.behaviour import behaviour

#: Whether SINGA's behaviour is on. Assign to it to change that.
enabled: bool


def enable() -> None:
    """Turns SINGA's behaviour on in this process and in processes that it starts.

    >>> singa.compat.enabled
    False
    """
    _set_enabled(True)
    os.environ["SINGA_COMPAT"] = "1"


def _set_enabled(flag: bool) -> None:
    from .differences import set_enabled  # which loads all that it changes

    set_enabled(flag)


class _Compat(types.ModuleType):
    """Class of this module. It makes `enabled` a property."""

    @property
    def enabled(self) -> bool:
        return bool(behaviour.name)

    @enabled.setter
    def enabled(self, flag: bool) -> None:
        _set_enabled(flag)


sys.modules[__name__].__class__ = _Compat
if _c.EnvironmentValue("SINGA_COMPAT") == "1":
    _set_enabled(True)
