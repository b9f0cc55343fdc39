"""What a training script needs around the training itself: safe files, a log, curves."""

from .curves import plot_curves
from .files import atomic_write
from .log import JsonLinesLog, read_log

__all__ = ["JsonLinesLog", "atomic_write", "plot_curves", "read_log"]
