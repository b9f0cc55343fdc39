"""Alias of `singa.compat.sonnx`, under SINGA's name."""

import sys

from .compat import sonnx as _module
from .compat.sonnx import *  # noqa: F403 (for type checkers)

sys.modules[__name__] = _module
