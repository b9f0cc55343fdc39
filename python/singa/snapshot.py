"""Alias of `singa.compat.snapshot`, under SINGA's name."""

import sys

from .compat import snapshot as _module
from .compat.snapshot import *  # noqa: F403 (for type checkers)

sys.modules[__name__] = _module
