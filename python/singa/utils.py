"""Alias of `singa.compat.utils`, under SINGA's name."""

import sys

from .compat import utils as _module
from .compat.utils import *  # noqa: F403 (for type checkers)

sys.modules[__name__] = _module
