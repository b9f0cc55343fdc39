"""Alias of `singa.report.bench`."""

import sys

from .report import bench as _module
from .report.bench import *  # noqa: F403 (for type checkers)

sys.modules[__name__] = _module
