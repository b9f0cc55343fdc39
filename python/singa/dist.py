"""Alias of `singa.distributed`."""

import sys

from . import distributed as _module
from .distributed import *  # noqa: F403 (for type checkers)

sys.modules[__name__] = _module
