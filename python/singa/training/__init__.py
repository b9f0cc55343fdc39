"""Tools for training: Trainer with its callbacks, checkpoints, logs, curves, progress bars."""

from typing import TYPE_CHECKING, Any

from ..files.atomic import atomic_write
from ..raw import calls, words
from .callbacks import BestModel, Callback, EarlyStopping
from .csv_log import CsvLog
from .curves import plot_curves
from .log import JsonLinesLog, read_log
from .log_base import Histogram, Image, Log
from .tensorboard_log import TensorBoardLog
from .totals import NonFiniteLossError
from .trainer import Trainer

__all__ = [
    "BestModel",
    "Callback",
    "CsvLog",
    "EarlyStopping",
    "Histogram",
    "Image",
    "JsonLinesLog",
    "Log",
    "NonFiniteLossError",
    "TensorBoardLog",
    "Trainer",
    "atomic_write",
    "plot_curves",
    "read_log",
]

if not TYPE_CHECKING:
    calls.answers_calls([globals()[name] for name in __all__])

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)
