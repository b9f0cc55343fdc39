"""Alias of `singa.report.plan_cache`."""

import sys

from .report import plan_cache as _module
from .report.plan_cache import *  # noqa: F403 (for type checkers)

sys.modules[__name__] = _module
