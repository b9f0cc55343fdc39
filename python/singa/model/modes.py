"""Training or inference, in each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import autograd


class Threads(threading.local):
    """The training mode of each thread, and the thread whose mode is the default of the others."""

    def __init__(self, home: int) -> None:
        self.home = home


class Step:
    """A training step, for as long as it runs: an interrupt may come at any line, also where a flag
    would be taken back."""


class Running(threading.local):
    """A reference to the training step of a model in which this thread is."""

    step: Callable[[], Step | None] = staticmethod(lambda: None)


running = Running()


@contextmanager
def in_mode(training: bool) -> Iterator[None]:
    """Context manager that sets this thread's training flag and restores it at the end."""
    before = autograd.training
    autograd.training = training
    try:
        yield
    finally:
        autograd.training = before
