"""Tools for training scripts: checkpoints, logs, curves, progress bars, atomic writes."""

from ..files.atomic import atomic_write
from .curves import plot_curves
from .log import JsonLinesLog, read_log

__all__ = ["JsonLinesLog", "atomic_write", "plot_curves", "read_log"]
