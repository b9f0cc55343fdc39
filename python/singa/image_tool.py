"""Alias of `singa.compat.image_tool`, under SINGA's name."""

import sys

from .compat import image_tool as _module
from .compat.image_tool import *  # noqa: F403 (for type checkers)

sys.modules[__name__] = _module
