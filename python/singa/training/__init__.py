"""Tools for training scripts: checkpoints, logs, curves, progress bars, atomic writes."""

from ..files.atomic import atomic_write
from .csv_log import CsvLog
from .curves import plot_curves
from .log import JsonLinesLog, read_log
from .log_base import Histogram, Image, Log
from .tensorboard_log import TensorBoardLog

__all__ = [
    "CsvLog",
    "Histogram",
    "Image",
    "JsonLinesLog",
    "Log",
    "TensorBoardLog",
    "atomic_write",
    "plot_curves",
    "read_log",
]
